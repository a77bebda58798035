"""Nothing queues without bound: a producer sends what was granted, and a reader grants again what it has taken."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zmqengine import Outlet
from zmqengine.errors import Cancelled, DeadlineExceeded, UsageError
from zmqengine.streams import Stream


class Sink:
    """Where an outlet's items go; an item is its own size."""

    def __init__(self, items: int, size: int) -> None:
        self.sent: list[int] = []
        self.ends: list[BaseException | None] = []
        self.outlet: Outlet[int] = Outlet((items, size), self._send, self.ends.append, None)

    def _send(self, item: int) -> int:
        self.sent.append(item)
        return item


# The producer's end


def test_a_producer_without_credit_is_refused_before_anything_is_sent() -> None:
    sink = Sink(2, 1000)
    sink.outlet.send(1)
    sink.outlet.send(1)
    assert sink.outlet.credit == 0
    with pytest.raises(UsageError, match="without credit"):
        sink.outlet.send(1)
    assert sink.sent == [1, 1]


def test_bytes_are_overdrawn_once_and_then_paid_back() -> None:
    sink = Sink(100, 10)
    sink.outlet.send(25)
    assert sink.outlet.credit == 0
    sink.outlet.grant(0, 15)
    assert sink.outlet.credit == 0, "15 of them only pay what was overdrawn"
    sink.outlet.grant(0, 1)
    assert sink.outlet.credit == 99


@given(st.lists(st.integers(0, 30) | st.tuples(st.integers(0, 5), st.integers(0, 40)), max_size=50))
def test_what_is_sent_never_exceeds_what_was_granted_by_more_than_one_item(steps: list[int | tuple[int, int]]) -> None:
    items, size = 3, 50
    sink = Sink(items, size)
    for step in steps:
        if isinstance(step, tuple):
            items, size = items + step[0], size + step[1]
            sink.outlet.grant(*step)
        elif sink.outlet.credit:
            sink.outlet.send(step)
        assert len(sink.sent) <= items
        assert sum(sink.sent[:-1]) < size
        assert sink.outlet.credit in (0, items - len(sink.sent))


def test_credit_that_arrives_is_told_only_where_there_was_none() -> None:
    sink, told = Sink(0, 0), [0]
    sink.outlet.on_credit(lambda: told.append(sink.outlet.credit))
    sink.outlet.grant(5, 0)
    assert told == [0], "items without bytes are no credit"
    sink.outlet.grant(0, 10)
    sink.outlet.grant(3, 10)
    assert told == [0, 5]


def test_a_stream_has_one_end_and_nothing_behind_it() -> None:
    sink = Sink(10, 1000)
    sink.outlet.send(1)
    sink.outlet.end()
    sink.outlet.fail(ValueError("late"))
    sink.outlet.abandon(Cancelled("late"))
    sink.outlet.send(2)
    assert (sink.sent, sink.ends) == ([1], [None])
    assert sink.outlet.closed
    assert sink.outlet.credit == 0
    assert sink.outlet.cancelled is None


def test_a_producer_hears_once_of_a_reader_that_is_gone_also_where_it_asks_later() -> None:
    sink, told = Sink(10, 1000), []
    sink.outlet.on_cancel(lambda: told.append("early"))
    error = DeadlineExceeded("late")
    sink.outlet.abandon(error)
    sink.outlet.abandon(Cancelled("again"))
    assert told == ["early"]
    assert sink.outlet.cancelled is error
    assert sink.ends == [error]
    sink.outlet.on_cancel(lambda: told.append("asked later"))
    assert told == ["early", "asked later"]


def test_an_outlet_without_a_budget_has_no_deadline() -> None:
    assert Sink(1, 1).outlet.deadline_s is None


# The reader's end


class Source:
    """A stream whose other end is the test."""

    def __init__(self, items: int = 4, size: int = 1000, script: list[Any] | None = None) -> None:
        self.granted: list[tuple[int, int]] = []
        self.cancelled: list[BaseException] = []
        self.script = list(script or [])
        pump = None if script is None else self._pump
        self.stream: Stream[Any] = Stream(
            (items, size), lambda n, b: self.granted.append((n, b)), self.cancelled.append, pump
        )

    def _pump(self) -> None:
        """Items, or what ends it."""
        step = self.script.pop(0)
        if isinstance(step, list):
            self.stream.deliver(step, 10 * len(step))
        else:
            self.stream.finish(step)


def test_a_reader_grants_again_once_half_of_its_window_is_taken() -> None:
    source = Source(items=8, size=10_000, script=[[1, 2, 3], [4, 5, 6, 7, 8], None])
    granted_after: list[int] = []
    for _ in source.stream:
        granted_after.append(len(source.granted))
    assert granted_after == [0, 0, 0, 1, 1, 1, 1, 2]
    assert source.granted == [(4, 40), (4, 40)]


def test_a_reader_of_large_items_grants_by_their_bytes() -> None:
    source = Source(items=1000, size=30, script=[[1, 2, 3, 4], None])
    assert list(source.stream) == [1, 2, 3, 4]
    assert source.granted == [(2, 20), (2, 20)]


def test_a_reader_that_takes_nothing_grants_nothing() -> None:
    source = Source()
    source.stream.deliver([1, 2, 3, 4], 40)
    assert source.granted == []


@given(st.lists(st.lists(st.integers(), min_size=1, max_size=7), max_size=10), st.integers(2, 20))
def test_all_that_was_taken_but_less_than_half_a_window_is_granted_back(parts: list[list[int]], window: int) -> None:
    source = Source(items=window, size=10**9, script=[*parts, None])
    assert list(source.stream) == [item for part in parts for item in part]
    back = sum(items for items, _ in source.granted)
    assert 0 <= sum(map(len, parts)) - back <= (window + 1) // 2


def test_the_sizes_that_are_granted_add_up_however_they_divide() -> None:
    source = Source(items=2, size=10_000)
    taken: list[int] = []
    source.stream.subscribe(taken.append)
    source.stream.deliver([1, 2, 3, 4], 43)
    assert taken == [1, 2, 3, 4]
    assert sum(size for _, size in source.granted) == 43


def test_items_before_an_error_are_given_and_then_it_is_raised() -> None:
    source = Source(script=[[1, 2], ValueError("why")])
    got: list[int] = []
    with pytest.raises(ValueError, match="why"):
        got.extend(iter_into(source.stream, got))
    assert got == [1, 2]


def iter_into(stream: Stream[Any], got: list[int]) -> Iterator[int]:
    for item in stream:
        got.append(item)
        yield from ()


def test_a_reader_that_leaves_early_cancels_and_one_that_came_to_the_end_does_not() -> None:
    left = Source(script=[[1, 2, 3]])
    for item in left.stream:
        if item == 2:
            break
    assert [str(error) for error in left.cancelled] == ["the reader left"]
    ended = Source(script=[[1], None])
    assert list(ended.stream) == [1]
    assert ended.cancelled == []


def test_a_cancel_ends_it_for_the_reader_too_and_only_once() -> None:
    source, ends = Source(), []
    source.stream.subscribe(lambda _: None, ends.append)
    source.stream.cancel("enough")
    source.stream.cancel("again")
    source.stream.finish(None)
    assert [str(error) for error in source.cancelled] == ["enough"]
    assert [str(error) for error in ends] == ["enough"]
    assert isinstance(source.stream.error, Cancelled)


def test_who_subscribes_late_gets_what_came_before_in_order_and_then_the_end() -> None:
    source, seen = Source(items=2), []
    source.stream.deliver([1, 2], 20)
    source.stream.subscribe(seen.append, lambda error: seen.append(error))
    source.stream.deliver([3], 10)
    source.stream.finish(None)
    assert seen == [1, 2, 3, None]


def test_what_had_come_before_the_end_is_given_to_a_late_subscriber_before_it() -> None:
    source, seen = Source(), []
    source.stream.deliver([1, 2], 20)
    source.stream.finish(None)
    source.stream.subscribe(seen.append, lambda error: seen.append(error))
    assert seen == [1, 2, None]


def test_a_reader_that_cancels_at_an_item_gets_none_behind_it() -> None:
    source, seen = Source(), []

    def take(item: int) -> None:
        seen.append(item)
        if item == 2:
            source.stream.cancel("enough")

    source.stream.deliver([1], 10)
    source.stream.subscribe(take, lambda error: seen.append(type(error)))
    source.stream.deliver([2, 3, 4], 30)
    assert seen == [1, 2, Cancelled]


def test_a_reader_that_cancels_at_an_item_that_had_waited_hears_of_the_end_once() -> None:
    source, ends = Source(), []
    source.stream.deliver([1, 2], 20)
    source.stream.subscribe(lambda _: source.stream.cancel("enough"), ends.append)
    assert [str(error) for error in ends] == ["enough"]


def test_what_waits_when_its_reader_cancels_is_dropped() -> None:
    source, seen = Source(), []
    source.stream.deliver([1, 2], 20)
    source.stream.cancel("enough")
    source.stream.subscribe(seen.append, lambda error: seen.append(type(error)))
    assert seen == [Cancelled]


def test_a_stream_of_a_loop_cannot_be_waited_for_by_blocking() -> None:
    with pytest.raises(UsageError, match="async for"):
        list(Source().stream)


@pytest.mark.anyio
async def test_an_asynchronous_reader_waits_takes_and_leaves(anyio_backend: str) -> None:
    source, got = Source(items=2), []
    loop = asyncio.get_running_loop()
    loop.call_soon(source.stream.deliver, [1, 2], 20)
    loop.call_later(0.01, source.stream.deliver, [3], 10)
    loop.call_later(0.02, source.stream.finish, ValueError("why"))
    with pytest.raises(ValueError, match="why"):
        async for item in source.stream:
            got.append(item)
    assert got == [1, 2, 3]
    assert source.granted[0] == (1, 10)
