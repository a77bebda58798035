"""The ties to the launcher: when it dies, so does this process, whatever it is doing."""

from __future__ import annotations

import functools
import os
import signal
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1


@functools.cache
def prepare() -> Callable[..., int]:
    """The C library's prctl: looked up before a fork for one who is to call it after."""
    import ctypes  # for the launcher: a service is tied already when it is executed, and need not import it

    found: Callable[..., int] = ctypes.CDLL(None, use_errno=True).prctl
    return found


def die_with_parent(expected_parent: int | None = None) -> None:
    """Ask the kernel to SIGKILL this process when its parent dies; for a parent that is gone already, exit now."""
    if prepare()(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError("prctl(PR_SET_PDEATHSIG) failed")
    # The parent may have died between the fork and the call above.
    if expected_parent is not None and os.getppid() != expected_parent:
        os._exit(1)


def kill_own_group() -> None:
    """End this process and every child that stayed in its group. Only a process that leads its group may call it."""
    if os.getpgid(0) == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)
