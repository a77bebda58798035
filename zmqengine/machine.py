"""This machine as this user finds it: the facts that `zmqengine doctor` looks at."""

from __future__ import annotations

import fcntl
import os
import platform
import resource
import socket
import stat
import time
from pathlib import Path

import psutil

from . import cgroup
from .doctor import SHARED_MEMORY, Facts
from .rundir import RUN_NAME, RunDirectory, base_directory
from .transport import library

_LOOKS = 1000
"""At the clock, to see what one takes."""


def machine_facts() -> Facts:
    """The facts of this machine and this user."""
    base = base_directory()
    groups = cgroup.folders()
    major, minor, *_ = platform.python_version_tuple()
    left = cgroup.left(groups, "memory")
    available = psutil.virtual_memory().available
    return Facts(
        python=(int(major), int(minor)), system=platform.system(), library=library(),
        open_files=resource.getrlimit(resource.RLIMIT_NOFILE)[0], processes=_process_room(groups), base=base,
        base_problem=_problem_of(base), stale_runs=tuple(run.name for run in stale_runs()),
        shm_free_bytes=_free(SHARED_MEMORY), segments=tuple(path.name for path in left_segments()),
        memory_bytes=available if left is None else min(available, left), cpus=_cpus(groups), clock_s=_clock_s(),
        loopback=_loopback_problem(),
    )  # fmt: skip


def stale_runs() -> list[RunDirectory]:
    """Runs of this user whose launcher was killed: state is left, and nobody holds the lock."""
    base = base_directory()
    if _problem_of(base) or not base.is_dir():
        return []
    runs = [RunDirectory(path, None) for path in sorted(base.iterdir()) if RUN_NAME.fullmatch(path.name)]
    return [run for run in runs if (run.path / "state.json").exists() and not run.alive]


def left_segments() -> list[Path]:
    """Shared memory of this user's, named as ours, that no process has mapped."""
    if not SHARED_MEMORY.is_dir():
        return []
    ours = [path for path in SHARED_MEMORY.glob("zmqengine-*") if _owner(path) == os.getuid()]
    mapped: set[str] = set()
    for process in psutil.process_iter() if ours else ():
        try:
            mapped |= {mapping.path for mapping in process.memory_maps()}
        except psutil.Error:
            continue  # it has ended, or is another user's
    return [path for path in ours if str(path) not in mapped]


def remove_segment(path: Path) -> bool:
    """Unlink one that was left; false if it is gone already, or if its owner has made it just now and holds it."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    else:
        path.unlink(missing_ok=True)
        return True
    finally:
        os.close(fd)


def _owner(path: Path) -> int | None:
    try:
        return path.lstat().st_uid
    except FileNotFoundError:
        return None


def _problem_of(base: Path) -> str:
    try:
        info = base.lstat()
    except FileNotFoundError:
        return "" if os.access(base.parent, os.W_OK) else f"it is not there, and {base.parent} cannot be written"
    except OSError as error:
        return f"it cannot be looked at: {error.strerror}"
    if not stat.S_ISDIR(info.st_mode):
        return "it is not a directory"
    if info.st_uid != os.getuid():
        return "it is another user's"
    return "" if os.access(base, os.R_OK | os.W_OK | os.X_OK) else "it cannot be read and written"


def _free(path: Path) -> int | None:
    return psutil.disk_usage(str(path)).free if path.is_dir() else None


def _process_room(groups: list[Path]) -> int | None:
    """How many more processes and threads may be started; None: as many as one likes."""
    rooms = [cgroup.left(groups, "pids")]
    soft = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    if soft != resource.RLIM_INFINITY and os.getuid() != 0:  # the kernel does not hold root to it
        used = 0
        for process in psutil.process_iter():
            try:
                used += process.num_threads() if process.uids().real == os.getuid() else 0
            except psutil.Error:
                continue  # it has ended
        rooms.append(max(0, soft - used))
    return min((room for room in rooms if room is not None), default=None)


def _cpus(groups: list[Path]) -> float:
    quota = cgroup.cpu_quota(groups)
    cpus = float(len(os.sched_getaffinity(0)))
    return cpus if quota is None else min(cpus, quota)


def _clock_s() -> float:
    """What one look at the clock takes; the best of some, for others run beside us."""
    best = float("inf")
    for _ in range(5):
        began = time.perf_counter()
        for _ in range(_LOOKS):
            time.monotonic()
        best = min(best, time.perf_counter() - began)
    return best / _LOOKS


def _loopback_problem() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind(("127.0.0.1", 0))
        except OSError as error:
            return f"127.0.0.1 cannot be bound: {error.strerror}"
    return ""
