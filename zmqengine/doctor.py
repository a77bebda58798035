"""What may keep a system from running well on this machine: facts in, findings out. `machine_facts` gathers them."""

from __future__ import annotations

import os
import platform
import resource
import socket
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil

from .rundir import LONGEST_SOCKET, RunDirectory, base_directory
from .transport import MAX_IPC_PATH, Library, library

Level = Literal["ok", "warning", "error"]
SHARED_MEMORY = Path("/dev/shm")
MIN_FILES, FEW_FILES = 256, 4096
MIN_SHM_BYTES = 64 << 20
MIN_MEMORY_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    check: str
    level: Level
    found: str
    advice: str = ""
    """What to do about it; empty where it is fine."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What the checks look at."""

    python: tuple[int, int]
    system: str
    library: Library
    open_files: int
    """Soft limit of this process; -1: none."""
    base: Path
    base_problem: str
    """What is wrong with the run directories' parent; empty if nothing."""
    stale_runs: tuple[str, ...]
    shm_free_bytes: int | None
    """None where there is no shared memory."""
    segments: tuple[str, ...]
    """Shared memory of ours that no living run names."""
    memory_bytes: int
    cpus: int
    loopback: str
    """Why no port of the loopback can be bound; empty if one can."""


def examine(facts: Facts) -> list[Finding]:
    """Every check, in the order in which to mend them."""
    return [check(facts) for check in CHECKS]


def _python(facts: Facts) -> Finding:
    version = ".".join(map(str, facts.python))
    if facts.system != "Linux":
        return Finding("system", "error", facts.system, "pidfd, PDEATHSIG and eventfd are Linux's: run it there")
    if facts.python < (3, 11):
        return Finding("python", "error", version, "use Python 3.11 or newer")
    return Finding("python", "ok", f"{version} on {facts.system}")


def _libzmq(facts: Facts) -> Finding:
    lib = facts.library
    found = f"pyzmq {lib.pyzmq}, libzmq {lib.libzmq}"
    if tuple(map(int, lib.libzmq.split(".")[:2])) < (4, 2):
        return Finding("libzmq", "error", found, "install pyzmq's own wheel: it brings libzmq 4.3")
    if not lib.curve:
        return Finding("libzmq", "warning", f"{found}, without CURVE",
                       "services on other hosts need it: install pyzmq's own wheel")  # fmt: skip
    return Finding("libzmq", "ok", f"{found}, with CURVE")


def _open_files(facts: Facts) -> Finding:
    limit = facts.open_files
    if 0 <= limit < FEW_FILES:
        level: Level = "error" if limit < MIN_FILES else "warning"
        return Finding("open files", level, f"at most {limit}",
                       f"`ulimit -n {FEW_FILES}` in the shell that starts it: each connection takes three")  # fmt: skip
    return Finding("open files", "ok", "no limit" if limit < 0 else f"at most {limit}")


def _base(facts: Facts) -> Finding:
    room = MAX_IPC_PATH - LONGEST_SOCKET - len(os.fsencode(facts.base)) - 1
    if facts.base_problem:
        return Finding("run directories", "error", f"{facts.base}: {facts.base_problem}",
                       "mend it, or set ZMQENGINE_RUNTIME_DIR to a directory of yours")  # fmt: skip
    if room < 1:
        return Finding("run directories", "error", f"{facts.base} is too long for the paths of unix sockets",
                       "set ZMQENGINE_RUNTIME_DIR to a shorter directory")  # fmt: skip
    level: Level = "ok" if room >= 8 else "warning"
    advice = "" if level == "ok" else "set ZMQENGINE_RUNTIME_DIR to a shorter directory for longer names"
    return Finding("run directories", level, f"{facts.base}, names of at most {min(room, 40)} letters", advice)


def _stale(facts: Facts) -> Finding:
    if facts.stale_runs:
        return Finding("stale runs", "warning", ", ".join(facts.stale_runs),
                       "`zmqengine doctor --clean` ends what is left of them, as `zmqengine up` does")  # fmt: skip
    return Finding("stale runs", "ok", "none")


def _shm(facts: Facts) -> Finding:
    if facts.shm_free_bytes is None:
        return Finding("shared memory", "error", f"there is no {SHARED_MEMORY}", f"mount a tmpfs at {SHARED_MEMORY}")
    free = f"{facts.shm_free_bytes / 1e6:.0f} MB free"
    if facts.segments:
        return Finding("shared memory", "warning", f"{free}; left over: {', '.join(facts.segments)}",
                       "`zmqengine doctor --clean` removes them")  # fmt: skip
    if facts.shm_free_bytes < MIN_SHM_BYTES:
        return Finding("shared memory", "warning", free,
                       f"make {SHARED_MEMORY} larger (docker run --shm-size=1g): buffers go through it")  # fmt: skip
    return Finding("shared memory", "ok", free)


def _memory(facts: Facts) -> Finding:
    free = f"{facts.memory_bytes / 1e9:.1f} GB free, {facts.cpus} CPUs"
    if facts.memory_bytes < MIN_MEMORY_BYTES:
        return Finding("memory", "warning", free, "the embedded model's engine takes 1 GB: free some")
    return Finding("memory", "ok", free)


def _loopback(facts: Facts) -> Finding:
    if facts.loopback:
        return Finding("loopback", "error", facts.loopback, "HTTP is served on 127.0.0.1: bring `lo` up")
    return Finding("loopback", "ok", "127.0.0.1 can be bound")


CHECKS: tuple[Callable[[Facts], Finding], ...] = (
    _python, _libzmq, _open_files, _base, _stale, _shm, _memory, _loopback,
)  # fmt: skip


def machine_facts() -> Facts:
    """The facts of this machine and this user."""
    base = base_directory()
    major, minor, *_ = platform.python_version_tuple()
    return Facts(
        python=(int(major), int(minor)), system=platform.system(), library=library(),
        open_files=resource.getrlimit(resource.RLIMIT_NOFILE)[0], base=base, base_problem=_problem_of(base),
        stale_runs=tuple(run.name for run in stale_runs()), shm_free_bytes=_free(SHARED_MEMORY),
        segments=tuple(path.name for path in left_segments()), memory_bytes=psutil.virtual_memory().available,
        cpus=psutil.cpu_count() or 1, loopback=_loopback_problem(),
    )  # fmt: skip


def stale_runs() -> list[RunDirectory]:
    """Runs of this user whose launcher was killed: state is left, and nobody holds the lock."""
    base = base_directory()
    paths: Iterable[Path] = sorted(base.iterdir()) if base.is_dir() else ()
    runs = (RunDirectory(path, None) for path in paths if (path / "state.json").exists())
    return [run for run in runs if not run.alive]


def left_segments() -> list[Path]:
    """Shared memory of this user's, named as ours, that no process has mapped."""
    if not SHARED_MEMORY.is_dir():
        return []
    ours = [path for path in SHARED_MEMORY.glob("zmqengine-*") if path.stat().st_uid == os.getuid()]
    mapped: set[str] = set()
    for process in psutil.process_iter() if ours else ():
        try:
            mapped |= {mapping.path for mapping in process.memory_maps()}
        except psutil.Error:
            continue
    return [path for path in ours if str(path) not in mapped]


def _problem_of(base: Path) -> str:
    try:
        info = base.lstat()
    except FileNotFoundError:
        return "" if os.access(base.parent, os.W_OK) else f"it is not there, and {base.parent} cannot be written"
    if not stat.S_ISDIR(info.st_mode):
        return "it is not a directory"
    if info.st_uid != os.getuid():
        return "it is another user's"
    return "" if os.access(base, os.W_OK | os.X_OK) else "it cannot be written"


def _free(path: Path) -> int | None:
    return psutil.disk_usage(str(path)).free if path.is_dir() else None


def _loopback_problem() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind(("127.0.0.1", 0))
        except OSError as error:
            return f"127.0.0.1 cannot be bound: {error.strerror}"
    return ""
