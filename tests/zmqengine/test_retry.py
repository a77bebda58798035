"""Only "not yet" is tried again, on the caller's clock, until the caller's deadline."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zmqengine import retry
from zmqengine.errors import HandshakeFailed, InvalidArgument, Overloaded, PeerLost, StaleIncarnation, Unavailable
from zmqengine.retry import NotYet, Policy, call_again, may_call_again, pause_s, retry_not_yet

from .in_memory import Clock

POLICIES = {name: value for name, value in vars(retry).items() if isinstance(value, Policy)}
STEADY = Policy(initial_s=0.1, max_s=0.1, jitter_s=0.0)


class Attempt:
    """Does what the script says, time after time."""

    def __init__(self, *script: Any) -> None:
        self.script = list(script)
        self.made = 0

    async def __call__(self) -> Any:
        self.made += 1
        step = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if isinstance(step, BaseException):
            raise step
        return step


def run(attempt: Attempt, deadline_s: float = 10.0) -> tuple[Any, list[float]]:
    """What it gave, or the exception; and the pauses."""
    clock, slept = Clock(), []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock.sleep(seconds)

    async def go() -> Any:
        try:
            return await retry_not_yet(attempt, STEADY, sleep=sleep, deadline=clock() + deadline_s, clock=clock)
        except Exception as error:
            return error

    return asyncio.run(go()), slept


def test_not_yet_is_tried_again_until_it_is() -> None:
    attempt = Attempt(NotYet("loading"), NotYet("loading"), "ready")
    assert run(attempt) == ("ready", [0.1, 0.1])


@pytest.mark.parametrize("error", [ValueError("no"), Unavailable("no"), PeerLost("no"), TimeoutError(), OSError("no")])
def test_every_other_failure_ends_it_at_once(error: Exception) -> None:
    attempt = Attempt(error)
    assert run(attempt) == (error, [])
    assert attempt.made == 1


def test_after_the_deadline_the_last_reason_is_raised_itself() -> None:
    attempt = Attempt(NotYet("first"), NotYet("LOADING shard 3 of 8"))
    raised, slept = run(attempt, deadline_s=1.0)
    assert isinstance(raised, NotYet)
    assert str(raised) == "LOADING shard 3 of 8"
    assert sum(slept) == pytest.approx(1.0)


def test_news_ends_a_pause_early_and_the_deadline_stands() -> None:
    """A sleep that returns at once, as one that was woken does, takes nothing from the time that is left."""
    clock = Clock()
    attempt = Attempt(*[NotYet("no")] * 50, "ready")

    async def woken(seconds: float) -> None:
        await asyncio.sleep(0)

    coroutine = retry_not_yet(attempt, STEADY, sleep=woken, deadline=clock() + 0.2, clock=clock)
    assert asyncio.run(coroutine) == "ready"


def test_a_cancelled_wait_is_not_tried_again() -> None:
    attempt = Attempt(asyncio.CancelledError())
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(retry_not_yet(attempt, STEADY, sleep=asyncio.sleep, deadline=1e12, clock=Clock()))
    assert attempt.made == 1


@pytest.mark.parametrize("name", POLICIES)
@given(attempt=st.integers(1, 2000))
def test_a_pause_grows_from_the_first_to_the_last_and_no_further(name: str, attempt: int) -> None:
    policy = POLICIES[name]
    delay = policy.delay_s(attempt)
    assert min(policy.initial_s * 2 ** min(attempt - 1, 60), policy.max_s) <= delay + 1e-9
    assert delay <= policy.max_s + policy.jitter_s
    if attempt == 1:
        assert delay <= policy.initial_s + policy.jitter_s


def test_the_policies_are_those_that_are_named() -> None:
    assert set(POLICIES) == {"PROBE_READY", "REDIAL_BROKER", "RETRY_CALL", "REDIAL_RUN"}
    assert all(policy.jitter_s > 0 for policy in POLICIES.values()), "those that start together must not go on so"


def test_a_peer_that_says_when_is_not_asked_sooner() -> None:
    assert pause_s(STEADY, 1, Overloaded("full", retry_after_s=2.0)) == 2.0
    assert pause_s(STEADY, 1, Overloaded("full", retry_after_s=0.01)) == pytest.approx(0.1)
    assert pause_s(STEADY, 1, None) == pytest.approx(0.1)


def test_keys_that_do_not_fit_are_not_tried_again() -> None:
    assert not may_call_again(HandshakeFailed("no"), idempotent=True)


@pytest.mark.parametrize(
    ("error", "idempotent", "calls"),
    [
        (StaleIncarnation("x"), False, 2),
        (PeerLost("x"), False, 1),
        (PeerLost("x"), True, 2),
        (InvalidArgument("x"), True, 1),
    ],
)
def test_a_call_is_made_again_where_that_does_no_harm(error: Exception, idempotent: bool, calls: int) -> None:
    clock, left = Clock(), []

    def attempt(left_s: float) -> str:
        left.append(left_s)
        if len(left) == 1:
            raise error
        return "done"

    def go() -> str:
        return call_again(attempt, STEADY, idempotent=idempotent, budget_s=5.0, sleep=clock.sleep, clock=clock)

    if calls == 1:
        with pytest.raises(type(error)):
            go()
    else:
        assert go() == "done"
    assert left == [pytest.approx(5.0), pytest.approx(4.9)][:calls], "the budget is for all attempts together"
