"""The run directory: sockets, logs and state of one run, and the proof of who runs it.

A run is alive while its launcher holds the lock on its directory: the kernel drops the lock with the process, however
it ends, so a stale run is recognised without trusting a pid. What is cleaned is what the directory names, nothing else.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import select
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil

from .errors import ConfigError, NotFound
from .message import Message
from .orphans import kill_all_with, wait_until_ended
from .private_files import private_directory
from .spawn import DEATH_FD, RUN_DIR
from .transport import MAX_IPC_PATH, somebody_listens

RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,39}")
KILL_WAIT_S = 2.0
"""For a process to be gone after its SIGKILL."""
CLEARING_S = 5.0
"""How long a launcher waits for the guard of the one before it, which needs milliseconds."""
LONGEST_SOCKET = len("/") + 40 + len("@999-") + 12 + len(".control")
"""Bytes of the longest socket name in a run directory: service, replica, incarnation, role."""


class Process(Message):
    """A process of the run. The start time tells it from a later one with the same pid."""

    name: str
    pid: int
    started: float


class RunState(Message):
    """state.json: what has to be known to clean up after a launcher that was killed."""

    run: str
    launcher: Process
    guard: Process | None = None
    """Clears up after a launcher that is killed, and holds the lock until that is done."""
    services: list[Process] = []
    shared_memory: list[str] = []
    """Names under /dev/shm that belong to the run."""


def base_directory() -> Path:
    """Where the runs of this user are: $ZMQENGINE_RUNTIME_DIR, $XDG_RUNTIME_DIR/zmqengine or /tmp/zmqengine-UID."""
    given = os.environ.get("ZMQENGINE_RUNTIME_DIR")
    if given:
        return Path(given)
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and os.access(runtime, os.W_OK):
        return Path(runtime) / "zmqengine"
    return Path(f"/tmp/zmqengine-{os.getuid()}")


def process_of(name: str, pid: int) -> Process | None:
    """The identity of a running process; None if there is none, or if it has ended and its parent took no note yet."""
    try:
        found = psutil.Process(pid)
        return (
            None if found.status() == psutil.STATUS_ZOMBIE else Process(name=name, pid=pid, started=found.create_time())
        )
    except psutil.NoSuchProcess:
        return None


class RunDirectory:
    """The directory of one run. `create` makes the caller its launcher; `open` only looks."""

    def __init__(self, path: Path, lock: int | None) -> None:
        self.path = path
        self.name = path.name
        self.guard: Process | None = None
        """Who clears up if this process is killed."""
        self._lock = lock

    @classmethod
    def create(cls, name: str) -> RunDirectory:
        """Take the name. Clears what a killed launcher left. Raises ConfigError if the run is alive, naming its pid."""
        path = _path(name)
        _private(path.parent)
        _private(path)
        lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if not cls(path, None)._take(lock):
            os.close(lock)
            state = cls(path, None).read_state()
            who = f" (pid {state.launcher.pid})" if state else ""
            raise ConfigError(f"run {name!r} is up already{who}; stop it with `zmqengine down --run {name}`, "
                              "or give this one another name with --run") from None  # fmt: skip
        directory = cls(path, lock)
        directory.clear_stale()
        for child in ("logs", "keys"):
            _private(path / child)
        return directory

    @classmethod
    def open(cls, name: str) -> RunDirectory:
        """A run that is alive. Raises NotFound that lists the runs there are."""
        path = _path(name)
        if not path.is_dir() or not cls(path, None).alive:
            runs = ", ".join(run.name for run in list_runs()) or "none"
            raise NotFound(f"there is no run {name!r}; alive: {runs}. Start one with `zmqengine up --run {name}`")
        return cls(path, None)

    def _take(self, lock: int) -> bool:
        """Whether the lock could be had: at once, or when the guard of a launcher that was killed has cleared up."""
        if _flock(lock):
            return True
        state = self.read_state()
        if state is None or state.guard is None or _is_same(state.launcher) or not _is_same(state.guard):
            return _flock(lock)
        try:
            guard = os.pidfd_open(state.guard.pid)
        except ProcessLookupError:
            return _flock(lock)
        try:
            select.select([guard], [], [], CLEARING_S)
        finally:
            os.close(guard)
        return _flock(lock)

    @property
    def lock(self) -> int:
        """The descriptor that holds the name, for a guard to keep."""
        assert self._lock is not None
        return self._lock

    @property
    def alive(self) -> bool:
        """Whether a launcher holds it."""
        if self._lock is not None:
            return True
        try:
            fd = os.open(self.path / "lock", os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(fd)
        return False

    @property
    def broker(self) -> str:
        """The broker's endpoint."""
        return f"ipc://{self.path}/broker"

    @property
    def logs(self) -> Path:
        """Directory of the services' logs."""
        return self.path / "logs"

    def write_state(self, state: RunState) -> None:
        """Replace state.json as a whole."""
        temporary = self.path / "state.json.new"
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(msgspec.json.encode(state))
        temporary.replace(self.path / "state.json")

    def read_state(self) -> RunState | None:
        """state.json, or None if there is none that can be read."""
        try:
            return msgspec.json.decode((self.path / "state.json").read_bytes(), type=RunState)
        except (OSError, msgspec.DecodeError):
            return None

    def clear_stale(self) -> list[str]:
        """End the processes and remove the files that a killed launcher left. What was done, in words."""
        done: list[str] = []
        # First what is no longer a child of a service; those below would lose theirs.
        orphans = kill_all_with(f"{RUN_DIR}={self.path}", f"{DEATH_FD}=", wait_s=KILL_WAIT_S)
        if orphans:
            done.append(f"killed {orphans} processes that were tied to a launcher that is gone")
        state = self.read_state()
        if state is not None:
            for process in state.services:
                if _kill_if_same(process):
                    done.append(f"killed {process.name} (pid {process.pid})")
            for name in state.shared_memory:
                with contextlib.suppress(FileNotFoundError):
                    Path("/dev/shm", Path(name).name).unlink()
                    done.append(f"removed /dev/shm/{name}")
        for path in list(self.path.iterdir()):
            # A service that somebody runs by hand may still serve.
            left = path.is_socket() and not somebody_listens(str(path))
            if left or path.name in ("state.json", "state.json.new"):
                path.unlink(missing_ok=True)
        return done

    def remove(self) -> None:
        """Give the name back and remove the directory, logs included if there are none to keep."""
        self.clear_stale()
        shutil.rmtree(self.path, ignore_errors=True)
        self._release()

    def close(self) -> None:
        """Give the name back, and keep the logs."""
        self.clear_stale()
        self._release()

    def _release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def keys_of_run(name: str, *, make: bool = False) -> Path:
    """The key folder of a run, which need not be up: keys are there before its first start. Raises ConfigError."""
    path = _path(name)
    for directory in (path.parent, path, path / "keys") if make else ():
        _private(directory)
    return path / "keys"


def list_runs() -> Iterator[RunDirectory]:
    """The runs of this user that are alive."""
    base = base_directory()
    if base.is_dir():
        for path in sorted(base.iterdir()):
            if RUN_NAME.fullmatch(path.name) and path.is_dir() and RunDirectory(path, None).alive:
                yield RunDirectory(path, None)


def _path(name: str) -> Path:
    if not RUN_NAME.fullmatch(name):
        raise ConfigError(f"--run {name!r}: a run's name is at most 40 letters, digits, . - and _")
    path = base_directory() / name
    if len(os.fsencode(path)) + LONGEST_SOCKET > MAX_IPC_PATH:
        raise ConfigError(
            f"{path} is too long for unix sockets, whose paths have at most {MAX_IPC_PATH} bytes; "
            "set ZMQENGINE_RUNTIME_DIR to a shorter directory"
        )
    return path


def _private(path: Path) -> None:
    private_directory(path, ", or set ZMQENGINE_RUNTIME_DIR")


def _flock(lock: int) -> bool:
    """Whether the lock could be taken at once."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_same(process: Process) -> bool:
    """Whether it still runs: this very process, not another with its number."""
    found = process_of(process.name, process.pid)
    return found is not None and abs(found.started - process.started) <= 0.02


def _kill_if_same(process: Process) -> bool:
    """SIGKILL a process with its children, if it is the one that was meant."""
    if not _is_same(process):
        return False
    victims = [psutil.Process(process.pid)]
    with contextlib.suppress(psutil.NoSuchProcess):
        victims += victims[0].children(recursive=True)
    with contextlib.ExitStack() as stack:
        pidfds = []
        for victim in victims:
            with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
                pidfds.append(os.pidfd_open(victim.pid))
                stack.callback(os.close, pidfds[-1])
                victim.send_signal(signal.SIGKILL)
        wait_until_ended(pidfds, KILL_WAIT_S)
    return True
