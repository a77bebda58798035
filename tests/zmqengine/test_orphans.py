"""What left its group and lost its parent is found by its environment, and nothing else is touched."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from zmqengine.guard import Guard
from zmqengine.orphans import kill_all_with

from .conftest import wait_until

Start = Callable[..., "subprocess.Popen[str]"]
WAIT = "import signal; print('here', flush=True); signal.pause()"


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a process with these settings in its environment that waits for ever."""
    started: list[subprocess.Popen[str]] = []

    def begin(code: str = WAIT, **settings: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", code], env={**os.environ, **settings}, stdout=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def test_only_processes_with_all_the_settings_are_ended(start: Start) -> None:
    both = start(ZE_TEST_RUN="/run/x", ZE_TEST_FD="7")
    others = [
        start(ZE_TEST_RUN="/run/x"),
        start(ZE_TEST_RUN="/run/xy", ZE_TEST_FD="7"),
        start(OLD_ZE_TEST_RUN="/run/x"),
    ]
    assert kill_all_with("ZE_TEST_RUN=/run/x", "ZE_TEST_FD=", wait_s=5.0) == 1
    assert both.wait(0) == -signal.SIGKILL
    assert [other.poll() for other in others] == [None, None, None]


def test_a_stopped_process_and_its_children_are_ended(start: Start) -> None:
    fork = "import os, signal\nif os.fork() == 0:\n    os.setsid()\n    signal.pause()\n" + WAIT
    parent = start(fork, ZE_TEST_RUN=f"/run/{os.getpid()}")
    (child,) = psutil.Process(parent.pid).children()
    parent.send_signal(signal.SIGSTOP)
    assert kill_all_with(f"ZE_TEST_RUN=/run/{os.getpid()}", wait_s=5.0) == 2
    assert parent.wait(0) == -signal.SIGKILL
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


def test_nothing_is_found_where_there_is_nothing() -> None:
    assert kill_all_with("ZE_TEST_RUN=/no/such/run", wait_s=5.0) == 0


LAUNCHER = """
import os, sys
from pathlib import Path
from zmqengine.guard import Guard
guard = Guard(int(sys.argv[1]), lambda: Path(sys.argv[2]).write_text("cleared"))
print(guard.pid, flush=True)
sys.stdin.read()
guard.close()
"""


def test_the_guard_clears_up_however_its_launcher_ends_and_lets_go_of_what_it_was_given(tmp_path: Path) -> None:
    for number, killed in enumerate([True, False]):
        done = tmp_path / f"done{number}"
        read, kept = os.pipe()
        launcher = subprocess.Popen(
            [sys.executable, "-c", LAUNCHER, str(kept), str(done)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            pass_fds=(kept,), text=True,
        )  # fmt: skip
        os.close(kept)
        assert launcher.stdout is not None
        guard = psutil.Process(int(launcher.stdout.readline()))
        guard.terminate()  # at once: also before it has made its arrangements
        wait_until(lambda guard=guard: os.getsid(guard.pid) == guard.pid)  # then no Ctrl-C reaches it
        assert not done.exists()
        if killed:
            launcher.kill()
        launcher.communicate(timeout=5.0)  # stdout is at its end: the guard does not hold it
        assert os.read(read, 1) == b"", "what it keeps, it keeps until it is done"
        os.close(read)
        assert done.read_text() == "cleared"
        assert launcher.returncode == (-signal.SIGKILL if killed else 0)


def test_a_guard_whose_work_fails_ends_all_the_same() -> None:
    def fail() -> None:
        raise OSError("as it was told to")

    read, write = os.pipe()
    guard = Guard(write, fail)
    guard.close()
    os.close(write)
    assert os.read(read, 1) == b""
    os.close(read)
