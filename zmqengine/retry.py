"""Every retry policy of the library, by name. Only what is "not yet" is retried; tenacity does it.

A policy says how long to wait between attempts. When to give up is for the caller's deadline to say, and what may be
retried for the exception `NotYet`: everything else ends the attempts at once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import tenacity

T = TypeVar("T")


class NotYet(Exception):
    """What was asked for is not there yet, and may still come."""


@dataclass(frozen=True, slots=True)
class Policy:
    """Exponential backoff with jitter, in seconds."""

    initial_s: float
    max_s: float
    jitter_s: float

    @property
    def wait(self) -> tenacity.wait.wait_base:
        """tenacity's form of it."""
        return tenacity.wait_exponential_jitter(initial=self.initial_s, max=self.max_s, jitter=self.jitter_s)

    def delay_s(self, attempt: int) -> float:
        """Seconds to wait after attempt number `attempt` (from 1), for a loop that has timers of its own."""
        state = tenacity.RetryCallState(tenacity.Retrying(), None, (), {})
        state.attempt_number = attempt
        return float(self.wait(state))


PROBE_READY = Policy(initial_s=0.01, max_s=0.5, jitter_s=0.01)
"""Health handshake of a service that starts. A service tells when its state changes, which ends the wait early."""
REDIAL_BROKER = Policy(initial_s=0.05, max_s=2.0, jitter_s=0.1)
"""A service whose broker went away."""
REDIAL_RUN = Policy(initial_s=0.02, max_s=0.25, jitter_s=0.02)
"""A command that waits for a run to appear."""


async def retry_not_yet(
    attempt: Callable[[], Awaitable[T]],
    policy: Policy,
    *,
    sleep: Callable[[float], Awaitable[Any]],
    deadline: float,
    clock: Callable[[], float],
) -> T:
    """Call `attempt` until it does not raise NotYet; after the deadline (on `clock`) the last NotYet is raised.

    sleep: how to wait; it may return early on news.
    """
    retrying = tenacity.AsyncRetrying(
        retry=tenacity.retry_if_exception_type(NotYet),
        wait=policy.wait,
        stop=lambda _: clock() >= deadline,
        sleep=sleep,
        reraise=True,
    )
    return await retrying(attempt)
