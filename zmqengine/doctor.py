"""What may keep a system from running well on this machine: facts in, findings out. `machine` gathers them."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from .rundir import LONGEST_SOCKET
from .transport import MAX_IPC_PATH, Library

Level = Literal["ok", "warning", "error"]
SHARED_MEMORY = Path("/dev/shm")
MIN_FILES, FEW_FILES = 256, 4096
MIN_PROCESSES, FEW_PROCESSES = 64, 512
"""Threads count as well: a service of arrays starts one for each CPU."""
MIN_SHM_BYTES = 64 << 20
MIN_MEMORY_BYTES = 1 << 30
SLOW_CLOCK_S = 1e-6
"""A call looks at the clock some ten times."""


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
    processes: int | None
    """How many more processes and threads this user may start here; None: there is no limit."""
    base: Path
    base_problem: str
    """What is wrong with the run directories' parent; empty if nothing."""
    stale_runs: tuple[str, ...]
    shm_free_bytes: int | None
    """None where there is no shared memory."""
    segments: tuple[str, ...]
    """Shared memory of ours that no living run names."""
    memory_bytes: int
    """Free, of the machine or of the container."""
    cpus: float
    """Worth of time that this process may take of them, together."""
    clock_s: float
    """What one look at the clock takes."""
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


def _processes(facts: Facts) -> Finding:
    room = facts.processes
    if room is not None and room < FEW_PROCESSES:
        level: Level = "error" if room < MIN_PROCESSES else "warning"
        return Finding("processes", level, f"{room} more can be started, threads included",
                       "raise `ulimit -u`, or the container's limit (docker run --pids-limit)")  # fmt: skip
    return Finding("processes", "ok", "no limit" if room is None else f"{room} more can be started")


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
    free = f"{facts.memory_bytes / 1e9:.1f} GB free"
    if facts.memory_bytes < MIN_MEMORY_BYTES:
        return Finding("memory", "warning", free, "the embedded model's engine takes 1 GB: free some")
    return Finding("memory", "ok", free)


def _cpus(facts: Facts) -> Finding:
    found = f"{facts.cpus:g}"
    if facts.cpus < 2:
        return Finding("CPUs", "warning", found,
                       "services wait for each other on it: grant two (docker run --cpus, taskset)")  # fmt: skip
    return Finding("CPUs", "ok", found)


def _clock(facts: Facts) -> Finding:
    found = f"{facts.clock_s * 1e9:.0f} ns to look at it"
    if facts.clock_s > SLOW_CLOCK_S:
        return Finding("clock", "warning", found,
                       "calls are slow by it: see /sys/devices/system/clocksource/clocksource0")  # fmt: skip
    return Finding("clock", "ok", found)


def _loopback(facts: Facts) -> Finding:
    if facts.loopback:
        return Finding("loopback", "error", facts.loopback, "HTTP is served on 127.0.0.1: bring `lo` up")
    return Finding("loopback", "ok", "127.0.0.1 can be bound")


CHECKS: tuple[Callable[[Facts], Finding], ...] = (
    _python, _libzmq, _open_files, _processes, _base, _stale, _shm, _memory, _cpus, _clock, _loopback,
)  # fmt: skip
