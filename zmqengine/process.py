"""One child process of the launcher: spawned in a group of its own, its output captured, its death seen at once."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence

import psutil

from . import parent
from .logs import LogWriter
from .oom import OomKills

log = logging.getLogger(__name__)

READ_BYTES = 64 * 1024


class ChildProcess:
    """Lives on the running asyncio loop."""

    def __init__(
        self,
        argv: Sequence[str],
        environ: Mapping[str, str],
        death_fd: int,
        log: LogWriter,
        on_exit: Callable[[int, str], object],
        oom_kills: OomKills,
        *,
        cpus: frozenset[int] | None = None,
    ) -> None:
        """Spawn. on_exit is given the exit code (negative: the signal), and it in words, once all output is captured.

        Raises OSError where the program cannot be run.
        """
        self.log = log
        self._on_exit = on_exit
        self._oom_kills = oom_kills
        self._loop = asyncio.get_running_loop()
        self._process = subprocess.Popen(
            argv,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=(death_fd,),
            process_group=0,
            preexec_fn=_Prepare(os.getpid(), cpus),
        )
        self.pid = self._process.pid
        self._pidfd = os.pidfd_open(self.pid)
        self._loop.add_reader(self._pidfd, self._died)
        for stream, name in ((self._process.stdout, "out"), (self._process.stderr, "err")):
            assert stream is not None
            fd = stream.fileno()
            os.set_blocking(fd, False)
            self._loop.add_reader(fd, self._read, fd, name)

    @property
    def alive(self) -> bool:
        """Whether it runs (its death may not have been reported yet)."""
        return self._process.poll() is None

    def terminate(self) -> None:
        """SIGTERM to its group."""
        self._signal_group(signal.SIGTERM)

    def dump_stacks(self) -> None:
        """Have it write the stacks of its threads into its log (the bootstrap registers faulthandler for this)."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGUSR1)

    def kill(self) -> None:
        """SIGKILL to its whole tree: also to what left its group."""
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in psutil.Process(self.pid).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()
        self._signal_group(signal.SIGKILL)

    def _signal_group(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def _read(self, fd: int, name: str) -> None:
        try:
            data = os.read(fd, READ_BYTES)
        except BlockingIOError:
            return
        if data:
            self.log.feed(name, data)
            return
        self._loop.remove_reader(fd)

    def _died(self) -> None:
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        code = self._process.wait()
        # Whatever it left behind in its group goes with it.
        self._signal_group(signal.SIGKILL)
        try:
            self._take_last_words()
        except OSError:
            log.exception("pid %d: its last words are lost", self.pid)  # a full disk must not hide its end
        self._on_exit(
            code, describe_exit(code, out_of_memory=code == -signal.SIGKILL and self._oom_kills.explains_one())
        )

    def _take_last_words(self) -> None:
        for stream, name in ((self._process.stdout, "out"), (self._process.stderr, "err")):
            assert stream is not None
            fd = stream.fileno()
            self._loop.remove_reader(fd)
            with stream:
                self._drain(fd, name)
        self.log.flush()

    def _drain(self, fd: int, name: str) -> None:
        """Read what is in a pipe now. A grandchild that left the group may hold it open, and write on for ever."""
        left = fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ)
        with contextlib.suppress(BlockingIOError):
            while left > 0 and (data := os.read(fd, left)):
                left -= len(data)
                self.log.feed(name, data)


class _Prepare:
    """Runs in the child between fork and exec. The launcher has one Python thread, but ZeroMQ's own beside it: nothing
    is loaded or looked up here, for another thread may have held the loader's lock at the fork."""

    def __init__(self, launcher: int, cpus: frozenset[int] | None) -> None:
        parent.prepare()
        self._launcher = launcher
        self._cpus = cpus

    def __call__(self) -> None:
        # Kept over exec: also a program that knows nothing of us ends with its launcher.
        parent.die_with_parent(self._launcher)
        if self._cpus is not None:
            os.sched_setaffinity(0, self._cpus)


HINTS = {
    "SIGSEGV": " (a native crash)", "SIGBUS": " (a native crash)", "SIGILL": " (a native crash)",
    "SIGFPE": " (a native crash)", "SIGABRT": " (a native abort)",
}  # fmt: skip


def describe_exit(code: int, *, out_of_memory: bool = False) -> str:
    """Exit status in words: ``exit code 3``, ``killed by SIGSEGV (a native crash)`` or, where the kernel has lately
    killed for want of memory, ``killed by SIGKILL, perhaps out of memory``."""
    if code >= 0:
        return f"exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:  # a real-time signal
        name = f"signal {-code}"
    return f"killed by {name}{', perhaps out of memory' if out_of_memory else HINTS.get(name, '')}"


def python_argv(impl: str) -> list[str]:
    """Command line of a service that is a Python class."""
    return [sys.executable, "-m", "zmqengine.bootstrap", impl]
