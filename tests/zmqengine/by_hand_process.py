"""A service in a process of its own, run by hand at an endpoint of the test's."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path


class ByHand:
    """Starts it, and is ready when the service says so. What it writes is read all the time, so that it never waits."""

    def __init__(self, folder: Path, source: str, *args: str, name: str = "service") -> None:
        """source: Python source of a module whose last line runs the service."""
        path = folder / f"{name}.py"
        path.write_text(source)
        self.endpoint = f"ipc://{folder}/{name}"
        args = tuple(arg.replace("ENDPOINT", self.endpoint) for arg in args)
        self.process = subprocess.Popen(
            [sys.executable, str(path), "--bind", self.endpoint, *args],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        self.lines: list[str] = []
        self._ready = threading.Event()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        assert self._ready.wait(30)
        assert self.process.poll() is None, f"it ended before it was ready:\n{''.join(self.lines)}"

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as output:
            for line in output:
                self.lines.append(line)
                if "is ready" in line:
                    self._ready.set()
        self.process.wait()
        self._ready.set()

    def stop(self) -> str:
        """End it; all that it wrote."""
        self.process.terminate()
        self._reader.join(10)
        assert not self._reader.is_alive()
        return "".join(self.lines)
