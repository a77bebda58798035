"""Every retry policy of the library, by name. Only what is "not yet" is retried; tenacity does it.

A policy says how long to wait between attempts. When to give up is for the caller's deadline to say, and what may be
retried for the exception `NotYet`: everything else ends the attempts at once.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import tenacity

from .errors import HandshakeFailed, Overloaded, PeerLost, StaleIncarnation, Unavailable

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
        return tenacity.wait_exponential_jitter(multiplier=self.initial_s, max=self.max_s, jitter=self.jitter_s)

    def delay_s(self, attempt: int) -> float:
        """Seconds to wait after attempt number `attempt` (from 1), for a loop that has timers of its own."""
        state = tenacity.RetryCallState(tenacity.Retrying(), None, (), {})
        state.attempt_number = attempt
        return float(self.wait(state))


PROBE_READY = Policy(initial_s=0.01, max_s=0.5, jitter_s=0.01)
"""Health handshake of a service that starts. A service tells when its state changes, which ends the wait early."""
REDIAL_BROKER = Policy(initial_s=0.05, max_s=2.0, jitter_s=0.1)
"""A service whose broker went away."""
RETRY_CALL = Policy(initial_s=0.02, max_s=1.0, jitter_s=0.02)
"""Calls that may be made again (``client.options(retry=RETRY_CALL)``), within their budget."""
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


def may_call_again(error: BaseException, *, idempotent: bool) -> bool:
    """Whether a call that failed so may be made again: one that another incarnation has to answer was not begun; of one
    that was lost or refused for now nobody knows, or it is for its policy to say, so it has to be idempotent. Keys that
    do not fit today do not fit the next time either."""
    if isinstance(error, StaleIncarnation):
        return True
    if isinstance(error, HandshakeFailed):
        return False
    return idempotent and isinstance(error, (PeerLost, Unavailable, Overloaded))


def pause_s(policy: Policy, attempt: int, error: BaseException | None) -> float:
    """Seconds until the next attempt: what the policy says, and not sooner than the peer asked for."""
    return max(policy.delay_s(attempt), getattr(error, "retry_after_s", None) or 0.0)


def call_again(
    attempt: Callable[[float], T],
    policy: Policy,
    *,
    idempotent: bool,
    budget_s: float,
    sleep: Callable[[float], None],
    clock: Callable[[], float] = time.monotonic,
) -> T:
    """Make a call until it succeeds, fails for good, or its budget is spent: then its last error is raised.

    attempt: makes it, given the seconds that are left.
    """
    until = clock() + budget_s

    def wait(state: tenacity.RetryCallState) -> float:
        error = None if state.outcome is None else state.outcome.exception()
        return pause_s(policy, state.attempt_number, error)

    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception(lambda error: may_call_again(error, idempotent=idempotent)),
        wait=wait,
        stop=lambda state: clock() + state.upcoming_sleep >= until,
        sleep=sleep,
        reraise=True,
    )
    return retrying(lambda: attempt(max(0.0, until - clock())))
