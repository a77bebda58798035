"""Runs the command line in a run directory of its own, and knows what has to be gone afterwards."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import psutil

from zmqengine import Client
from zmqengine.broker_interface import BrokerInterface
from zmqengine.logs import LogLine, read_merged
from zmqengine.peer import Location

HERE = Path(__file__).parent
TIMEOUT_S = 60.0


class Runs:
    """The command line, with a base directory of its own."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self._shared_memory = shared_memory()
        """What others on this machine have."""
        self.environ = {
            **os.environ,
            "ZMQENGINE_RUNTIME_DIR": str(base),
            "PYTHONPATH": os.pathsep.join([str(HERE.parent.parent), os.environ.get("PYTHONPATH", "")]),
        }
        self.environ.pop("ZMQENGINE_RUN", None)
        self.launchers: list[subprocess.Popen[str]] = []

    def command(self, *args: str) -> list[str]:
        return [sys.executable, "-m", "zmqengine.cli.main", *args]

    def run(self, *args: str, ok: bool = True, timeout: float = TIMEOUT_S) -> subprocess.CompletedProcess[str]:
        """Run a command to its end; ok: it has to succeed."""
        done = subprocess.run(
            self.command(*args), env=self.environ, capture_output=True, text=True, timeout=timeout, check=False
        )
        if ok and done.returncode != 0:
            raise AssertionError(f"{args}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done

    def start(self, *args: str) -> subprocess.Popen[str]:
        """Begin a command that goes on, as `up` in the foreground."""
        launcher = subprocess.Popen(
            self.command(*args),
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            # A shell that starts the tests in the background has SIGINT ignored, and children inherit that.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        self.launchers.append(launcher)
        return launcher

    def table(self, *rows: dict[str, Any]) -> str:
        """A table file of rows; `impl` names a class of stand_ins."""
        lines = []
        for row in rows:
            lines.append("[[service]]")
            for key, value in row.items():
                if key == "options":
                    continue
                text = f"tests.integration.stand_ins:{value}" if key == "impl" and ":" not in value else value
                lines.append(f"{key} = {_toml(text)}")
            if "options" in row:
                lines.append("[service.options]")
                lines += [f"{key} = {_toml(value)}" for key, value in row["options"].items()]
        path = self.base / f"table{len(list(self.base.glob('*.toml')))}.toml"
        path.write_text("\n".join(lines))
        return str(path)

    def services(self, run: str = "default") -> dict[str, dict[str, Any]]:
        """What `ps --json` shows, by name; asked for in this process, which takes a hundredth of the time."""
        broker = Location(name="broker", incarnation="", endpoint=f"ipc://{self.base}/{run}/broker")
        with Client(broker, BrokerInterface, deadline_s=10.0) as client:
            return {s["name"]: s for s in msgspec.to_builtins(client.status().services, str_keys=True)}

    def log_lines(self, run: str = "default") -> list[LogLine]:
        """What all services of a run wrote."""
        folder = self.base / run / "logs"
        return list(read_merged(folder, [path.stem for path in folder.glob("*.log")]))

    def processes(self) -> list[psutil.Process]:
        """Every process that was started with this base directory."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get("ZMQENGINE_RUNTIME_DIR") == str(self.base) and process.pid != os.getpid():
                    found.append(process)
            except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
                continue
        return found

    def assert_nothing_left(self, within_s: float = 2.0) -> None:
        """No process, socket or shared memory of any run is left."""
        _, alive = psutil.wait_procs(self.processes(), timeout=within_s)
        assert [p.cmdline() for p in alive if p.is_running() and p.status() != psutil.STATUS_ZOMBIE] == []
        assert [str(path) for path in self.base.rglob("*") if path.is_socket()] == []
        assert shared_memory() - self._shared_memory == set()

    def close(self) -> None:
        """End what a failed test left."""
        for launcher in self.launchers:
            if launcher.poll() is None:
                launcher.kill()
            if launcher.stdout is not None and not launcher.stdout.closed:
                launcher.communicate()
        for process in self.processes():
            process.kill()


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{k} = {_toml(v)}" for k, v in value.items()) + " }"
    return json.dumps(value)


def shared_memory() -> set[str]:
    """Names of the segments of shared memory that are ours by their names."""
    return {path.name for path in Path("/dev/shm").iterdir() if path.name.startswith("zmqengine")}


def wait_until(condition: Any, timeout_s: float = 10.0, what: str = "") -> Any:
    """Look until it is true, at most timeout_s; what it gave."""
    until = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < until, f"not within {timeout_s} s: {what or condition}"
        time.sleep(0.02)
    return found
