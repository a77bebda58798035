"""Finds and ends what services leave behind: children of theirs that left the process group, or lost their parent.

Such a process is no longer anybody's child, but it was started with the environment that the launcher made, which
names the run and the incarnation. A process that was given another environment on purpose is not found.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Iterable, Iterator

ROUNDS = 5
"""A process that forks while it is being looked for is found in the next round."""


def kill_all_with(*settings: str, wait_s: float = 0.0) -> int:
    """SIGKILL every process of this user whose environment has all these settings (``NAME=value``, or ``NAME=`` for
    any value), but this one; how many they were. wait_s: how long to wait until they are gone."""
    killed: dict[int, int] = {}
    try:
        for _ in range(ROUNDS):
            known = len(killed)
            for pid, pidfd in _with_environment([f"\0{setting}".encode() for setting in settings]):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                    if pid not in killed:
                        killed[pid] = os.dup(pidfd)
            if len(killed) == known:
                break
        wait_until_ended(killed.values(), wait_s)
        return len(killed)
    finally:
        for pidfd in killed.values():
            os.close(pidfd)


def wait_until_ended(pidfds: Iterable[int], timeout_s: float) -> None:
    """Wait, at most so long, until these processes have ended. Whether their parents have taken note is no matter."""
    until = time.monotonic() + timeout_s
    for pidfd in pidfds:
        select.select([pidfd], [], [], max(0.0, until - time.monotonic()))


def _with_environment(settings: list[bytes]) -> Iterator[tuple[int, int]]:
    """Pid and pidfd of each such process: the number could be another's by the time that it is used."""
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            pidfd = os.pidfd_open(int(name))
        except (OSError, OverflowError):
            continue  # it has ended
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                environ = b"\0" + file.read() + b"\0"
        except OSError:
            continue  # it has ended, or is another user's
        else:
            if all(_has(environ, setting) for setting in settings):
                yield int(name), pidfd
        finally:
            os.close(pidfd)


def _has(environ: bytes, setting: bytes) -> bool:
    return (setting if setting.endswith(b"=") else setting + b"\0") in environ
