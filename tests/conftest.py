"""At the end of the session nothing may be left: no process, no socket, no shared memory."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from hypothesis import settings

# No test asserts a speed: hypothesis's own limit of 0.2 s an example would, on a machine that does other work.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

SHARED_MEMORY = Path("/dev/shm")
END_WITHIN_S = 5.0


def _sockets() -> set[Path]:
    """Unix sockets of run directories below the places where tests put them."""
    found: set[Path] = set()
    for base in {Path(tempfile.gettempdir()), Path("/tmp")}:
        for folder in (*base.glob("ze-*"), *base.glob(f"zmqengine-{os.getuid()}")):
            found |= {path for path in folder.rglob("*") if path.is_socket()}
    return found


def _segments() -> set[Path]:
    return set(SHARED_MEMORY.glob("zmqengine*")) if SHARED_MEMORY.is_dir() else set()


@pytest.fixture(scope="session", autouse=True)
def nothing_is_left() -> Iterator[None]:
    """Looks for what this session started and did not end. What others have running is not looked at."""
    os.environ.setdefault("ZMQENGINE_TEST_SESSION", str(os.getpid()))
    sockets, segments = _sockets(), _segments()
    yield
    mine = [process for process in psutil.process_iter() if _is_of_this_session(process)]
    _, alive = psutil.wait_procs(mine, timeout=END_WITHIN_S)
    left = [f"{process.pid} {' '.join(process.cmdline())}" for process in alive if _is_alive(process)]
    assert left == [], "processes are left"
    mine_only = os.environ["ZMQENGINE_TEST_SESSION"] == str(os.getpid())
    if mine_only and not _others_run():
        assert sorted(_sockets() - sockets) == [], "sockets are left"
        assert sorted(_segments() - segments) == [], "shared memory is left"


def _is_of_this_session(process: psutil.Process) -> bool:
    try:
        of_it = process.environ().get("ZMQENGINE_TEST_SESSION") == os.environ["ZMQENGINE_TEST_SESSION"]
    except psutil.Error:
        return False
    return of_it and process.pid != os.getpid()


def _is_alive(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


def _others_run() -> bool:
    """Whether somebody else on this machine tests or serves: their sockets come and go."""
    me = os.getpid()
    for process in psutil.process_iter():
        try:
            if process.pid != me and any("pytest" in part or "zmqengine" in part for part in process.cmdline()):
                return True
        except psutil.Error:
            continue
    return False
