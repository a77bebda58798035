"""The threads that compute. Without torch, which reads the environment once, when it is imported."""

from __future__ import annotations

import os
from collections.abc import MutableMapping

from .memory import physical_cores


def prepare_threads(threads: int | None, environ: MutableMapping[str, str] = os.environ) -> int:
    """Set the OpenMP environment; answer the number of threads. To be called before torch is imported.

    threads: None for OMP_NUM_THREADS or else one per physical core. Waiting is passive, so that between two steps the
    cores are the other services'. What the user has set of that stays.
    """
    from_user = environ.get("OMP_NUM_THREADS", "")
    if threads is not None:
        count = threads
    elif from_user.isdecimal() and int(from_user) > 0:
        count = int(from_user)
    else:
        count = physical_cores()
    environ["OMP_NUM_THREADS"] = str(count)
    environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    environ.setdefault("KMP_BLOCKTIME", "0")
    return count
