from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def wait_until(condition: Callable[[], Any], timeout_s: float = 10.0) -> Any:
    """Look until it is true, at most timeout_s; what it gave."""
    until = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < until, f"not within {timeout_s} s"
        time.sleep(0.001)
    return found
