"""A child's end is seen at once, in words, with its last lines, whatever it leaves behind."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from zmqengine.logs import LogWriter
from zmqengine.oom import OomKills
from zmqengine.process import ChildProcess, describe_exit


@pytest.mark.parametrize(
    ("code", "out_of_memory", "words"),
    [
        (0, False, "exit code 0"),
        (3, False, "exit code 3"),
        (-signal.SIGKILL, False, "killed by SIGKILL"),
        (-signal.SIGKILL, True, "killed by SIGKILL, perhaps out of memory"),
        (-signal.SIGSEGV, False, "killed by SIGSEGV (a native crash)"),
        (-signal.SIGBUS, False, "killed by SIGBUS (a native crash)"),
        (-signal.SIGABRT, False, "killed by SIGABRT (a native abort)"),
        (-signal.SIGTERM, False, "killed by SIGTERM"),
        (-40, False, "killed by signal 40"),
    ],
)
def test_an_exit_is_said_in_words(code: int, out_of_memory: bool, words: str) -> None:
    assert describe_exit(code, out_of_memory=out_of_memory) == words


def run_child(code: str, log: LogWriter, oom_kills: OomKills | None = None) -> tuple[int, str]:
    """What is told of a child's exit, within 5 s."""

    async def run() -> tuple[int, str]:
        ended: asyncio.Future[tuple[int, str]] = asyncio.get_running_loop().create_future()
        read, write = os.pipe()
        try:
            ChildProcess(
                [sys.executable, "-c", code], os.environ, read, log, lambda *exit: ended.set_result(exit),
                oom_kills or OomKills([]),
            )  # fmt: skip
            return await asyncio.wait_for(ended, 5.0)
        finally:
            os.close(read)
            os.close(write)

    return asyncio.run(run())


def test_a_grandchild_that_left_and_floods_the_pipe_does_not_hide_the_childs_end(tmp_path: Path) -> None:
    code = """
import os, sys
print("last words", flush=True)
if os.fork() == 0:
    os.setsid()
    print(os.getpid(), file=sys.stderr, flush=True)
    while True:
        os.write(1, b"x" * 60 + b"\\n")
os.wait3(os.WNOHANG)
os._exit(7)
"""
    log = LogWriter(tmp_path / "log")
    try:
        assert run_child(code, log) == (7, "exit code 7")
        assert "last words" in (tmp_path / "log").read_text()
    finally:
        log.close()
    # Its pipe is closed, so its next write ends it: nothing is left behind.


def test_a_disk_that_is_full_does_not_hide_the_end_of_a_child(tmp_path: Path) -> None:
    class Full(LogWriter):
        def feed(self, stream: str, data: bytes) -> None:
            raise OSError(28, "No space left on device")

    log = Full(tmp_path / "log")
    assert run_child("import os; os.write(1, b'x'); os._exit(3)", log) == (3, "exit code 3")
    log.close()


def test_a_kill_for_want_of_memory_explains_one_exit_by_sigkill(tmp_path: Path) -> None:
    counter = tmp_path / "memory.events"
    counter.write_text("low 0\noom 1\noom_kill 4\noom_group_kill 0\n")
    kills = OomKills([tmp_path / "absent", counter])
    log = LogWriter(tmp_path / "log")
    kill = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    assert run_child(kill, log, kills) == (-9, "killed by SIGKILL")
    counter.write_text("oom_kill 5\n")
    assert run_child("raise SystemExit(1)", log, kills) == (1, "exit code 1")
    assert run_child(kill, log, kills) == (-9, "killed by SIGKILL, perhaps out of memory")
    assert run_child(kill, log, kills) == (-9, "killed by SIGKILL"), "it explains one exit"
    log.close()


def test_this_machine_has_a_counter_of_such_kills() -> None:
    assert OomKills().explains_one() is False
