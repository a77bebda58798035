"""A second process of `zmqengine up` that only waits for the first one's end, and then ends and clears what is left.

The kernel kills a service with its launcher (`parent.die_with_parent`), but not the children of that service. With the
launcher killed nobody else would: so this process outlives it by some milliseconds.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import NoReturn

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Guard:
    """Started by a launcher before it has threads or sockets. `close` lets it do its work, and waits for it."""

    def __init__(self, keep: int, clear: Callable[[], object]) -> None:
        """keep: a descriptor to stay open in the guard, the run's lock. clear: ends and removes what is left."""
        read, self._write = os.pipe()
        # Held back over the fork: a Ctrl-C that comes before the guard ignores it must not end it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
        self.pid = os.fork()
        if self.pid == 0:
            _wait_and_clear(read, keep, clear)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(read)

    def close(self) -> None:
        """The launcher is done."""
        os.close(self._write)
        os.waitpid(self.pid, 0)


def _wait_and_clear(read: int, keep: int, clear: Callable[[], object]) -> NoReturn:
    """In the guard, which has the signals blocked that ask for an end: it ends with the launcher, and not before.
    Whatever ends the launcher closes the pipe's other end."""
    try:
        os.setsid()  # Ctrl-C in the terminal is for the launcher
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1):
            os.dup2(null, fd)
        # What the launcher was given to write to, and its end of the pipe, must not seem open for longer than it lives.
        for fd in map(int, os.listdir("/proc/self/fd")):
            if fd > 2 and fd not in (read, keep):
                try:
                    os.close(fd)
                except OSError:
                    continue  # that of the listing itself
        os.read(read, 1)
        clear()
    finally:
        os._exit(0)
