"""An answer arrives once; whoever asks and whoever works on it each hear of its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zmqengine import Deferred
from zmqengine.errors import Cancelled, DeadlineExceeded, UsageError

ENDS: dict[str, Callable[[Deferred[Any]], object]] = {
    "resolve": lambda d: d.resolve("value"),
    "resolve with None": lambda d: d.resolve(None),
    "reject": lambda d: d.reject(ValueError("why")),
    "cancel": lambda d: d.cancel("enough"),
    "abandon": lambda d: d.abandon(DeadlineExceeded("late")),
}


def outcome(deferred: Deferred[Any]) -> Any:
    try:
        return deferred.value
    except Exception as error:
        return (type(error), str(error))


@given(st.lists(st.sampled_from(sorted(ENDS)), min_size=1, max_size=5))
def test_only_the_first_end_counts_and_is_told_once(ends: list[str]) -> None:
    alone: Deferred[Any] = Deferred()
    ENDS[ends[0]](alone)
    told: list[Deferred[Any]] = []
    given_up: list[int] = []
    deferred: Deferred[Any] = Deferred()
    deferred.add_done_callback(told.append)
    deferred.on_cancel(lambda: given_up.append(1))
    for end in ends:
        ENDS[end](deferred)
    assert outcome(deferred) == outcome(alone)
    assert told == [deferred]
    assert len(given_up) == (ends[0] in ("cancel", "abandon")), "the answer of who works on it is no cancellation"


def test_the_value_is_not_to_be_had_before_it_is_there() -> None:
    deferred: Deferred[int] = Deferred()
    with pytest.raises(UsageError, match="before it was done"):
        _ = deferred.value
    assert deferred.error is None
    deferred.resolve(3)
    assert deferred.value == 3


def test_an_error_is_raised_each_time_that_the_value_is_read() -> None:
    deferred: Deferred[int] = Deferred()
    deferred.reject(ValueError("why"))
    for _ in range(2):
        with pytest.raises(ValueError, match="why"):
            _ = deferred.value
    assert isinstance(deferred.error, ValueError)


def test_a_callback_that_comes_late_is_called_at_once() -> None:
    deferred: Deferred[int] = Deferred()
    deferred.resolve(3)
    told: list[int] = []
    deferred.add_done_callback(lambda d: told.append(d.value))
    assert told == [3]


def test_callbacks_are_called_in_the_order_they_came() -> None:
    deferred: Deferred[int] = Deferred()
    told: list[str] = []
    for name in "abc":
        deferred.add_done_callback(lambda _, name=name: told.append(name))
    deferred.resolve(0)
    assert told == ["a", "b", "c"]


def test_who_works_on_it_hears_of_the_end_after_the_asking_side_has_its_error() -> None:
    deferred: Deferred[int] = Deferred()
    seen: list[Any] = []
    deferred.on_cancel(lambda: seen.append(deferred.error))
    deferred.on_cancel(lambda: deferred.resolve(3))
    deferred.cancel("enough")
    assert isinstance(seen[0], Cancelled)
    assert isinstance(deferred.error, Cancelled), "a late value does not replace it"


@pytest.mark.anyio
async def test_awaiting_gives_the_value_or_raises_the_error(anyio_backend: str) -> None:
    early: Deferred[int] = Deferred()
    early.resolve(1)
    late: Deferred[int] = Deferred()
    failed: Deferred[int] = Deferred()
    loop = asyncio.get_running_loop()
    loop.call_soon(late.resolve, 2)
    loop.call_soon(failed.reject, ValueError("why"))
    assert (await early, await late) == (1, 2)
    with pytest.raises(ValueError, match="why"):
        await failed


@pytest.mark.anyio
async def test_a_task_that_is_cancelled_while_it_awaits_cancels_the_call(anyio_backend: str) -> None:
    deferred: Deferred[int] = Deferred()
    given_up: list[int] = []
    deferred.on_cancel(lambda: given_up.append(1))

    async def wait() -> int:
        return await deferred

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert given_up == [1]
    assert isinstance(deferred.error, Cancelled)


@pytest.mark.anyio
async def test_several_tasks_may_await_one_answer(anyio_backend: str) -> None:
    deferred: Deferred[int] = Deferred()

    async def wait() -> int:
        return await deferred

    tasks = [asyncio.create_task(wait()) for _ in range(3)]
    await asyncio.sleep(0)
    deferred.resolve(7)
    assert await asyncio.gather(*tasks) == [7, 7, 7]
