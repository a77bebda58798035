"""A request's n completions on their way to one reader, quick or slow."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.processor.generation import Generation
from services.processor.sequence import RetryPolicy
from services.protocols.processor import GenerateText, TextDelta, TextPrompt
from services.protocols.sampling import SamplingParams

from .byte_tokenizer import byte_tokenizer
from .fake_ports import Broken, FakePorts, Full, Generating, PeerLost

TOKENIZER = byte_tokenizer()


class Reader:
    """Takes deltas while it has credit."""

    def __init__(self, credit: int = 1000) -> None:
        self.credit = credit
        self.deltas: list[TextDelta] = []
        self.ends: list[BaseException | None] = []

    def send(self, item: TextDelta) -> None:
        assert self.credit > 0, "sent without credit"
        assert self.ends == [], "sent behind the end"
        self.credit -= 1
        self.deltas.append(item)

    def end(self) -> None:
        self.ends.append(None)

    def fail(self, error: BaseException) -> None:
        self.ends.append(error)

    def texts(self) -> dict[int, str]:
        """Each completion's text so far."""
        found: dict[int, str] = {}
        for delta in self.deltas:
            found[delta.index] = found.get(delta.index, "") + delta.text
        return found


class Harness:
    """A generation with everything around it."""

    def __init__(self, n: int = 1, *, credit: int = 1000, at_once: bool = True, echo: str = "", **fields: Any) -> None:
        self.ports, self.reader = FakePorts(at_once=at_once), Reader(credit)
        self.done = 0
        sampling = SamplingParams(max_tokens=20, seed=fields.pop("seed", None))
        request = GenerateText(request_id="r", prompt=TextPrompt(text="p"), sampling=sampling, n=n, **fields)
        self.generation = Generation(
            request, [*b"p"], sampling, tokenizer=TOKENIZER, ports=self.ports, reader=self.reader,
            owner=("processor", "inc-1"), echo=echo, policy=RetryPolicy(attempts=2), on_done=self._count,
        )  # fmt: skip

    def _count(self) -> None:
        self.done += 1

    def begin(self) -> list[Generating]:
        self.generation.start()
        return self.ports.streams

    def grant(self, items: int) -> None:
        self.reader.credit += items
        self.generation.credit()

    def has_left_nothing(self) -> bool:
        """Whether it has ended once, with every place released and nothing under way."""
        return (
            len(self.reader.ends) <= 1 and self.done == 1 and self.ports.leaves_nothing()
            and sorted(self.ports.released) == sorted(self.ports.asked())
        )  # fmt: skip


def test_one_completion_is_placed_generated_and_released_exactly_once() -> None:
    one = Harness()
    (stream,) = one.begin()
    stream.send(0, b"ab")
    assert one.ports.released == []
    stream.send(2, b"c", finish_reason="length")
    assert [delta.text for delta in one.reader.deltas] == ["ab", "c"]
    assert one.reader.ends == [None]
    assert (one.ports.asked(), one.ports.released) == (["r/0"], ["r/0"])
    assert one.has_left_nothing()


def test_each_of_n_has_a_place_an_index_and_a_seed_of_its_own() -> None:
    one = Harness(3, seed=7)
    streams = one.begin()
    assert one.ports.asked() == ["r/0", "r/1", "r/2"]
    assert [stream.request.sampling.seed for stream in streams] == [7, 8, 9]
    for number, stream in enumerate(streams):
        assert one.reader.ends == []
        stream.send(0, bytes([97 + number]), finish_reason="length")
    assert one.reader.texts() == {0: "a", 1: "b", 2: "c"}
    assert one.reader.ends == [None]
    assert one.has_left_nothing()


def test_each_completion_begins_with_the_echo() -> None:
    one = Harness(2, echo="p")
    for stream in one.begin():
        stream.send(0, b"a")
        stream.send(1, b"b", finish_reason="length")
    assert one.reader.texts() == {0: "pab", 1: "pab"}


def test_stop_strings_are_watched_in_each_completion_on_its_own() -> None:
    one = Harness(2, stop=["xy"])
    first, second = one.begin()
    first.send(0, b"ax")
    second.send(0, b"y")
    first.send(2, b"y")
    second.send(1, b"b", finish_reason="length")
    assert one.reader.texts() == {0: "a", 1: "yb"}
    assert first.cancelled
    assert not second.cancelled
    assert one.has_left_nothing()


def test_an_engine_that_is_lost_costs_no_token_and_brings_none_twice() -> None:
    one = Harness(2)
    first, second = one.begin()
    first.send(0, b"ab")
    second.send(0, b"cd")
    first.end(PeerLost("engine"))
    one.ports.pass_time()
    third = one.ports.streams[2]
    assert third.request.generated_token_ids == [*b"ab"]
    third.send(0, b"abe", finish_reason="length")
    second.send(2, b"f", finish_reason="length")
    assert one.reader.texts() == {0: "abe", 1: "cdf"}
    assert one.ports.released == ["r/0", "r/0.2", "r/1"]
    assert one.has_left_nothing()


def test_cancelling_ends_all_n_at_once() -> None:
    one = Harness(3)
    streams = one.begin()
    streams[0].send(0, b"a")
    streams[1].end(PeerLost("engine"))  # waits for its next attempt
    one.generation.cancel()
    one.generation.cancel()
    assert [stream.cancelled for stream in streams] == [True, False, True]
    assert one.ports.pending_timers() == []
    assert one.reader.ends == [], "the reader is gone: it is told nothing"
    assert one.has_left_nothing()


def test_cancelling_ends_those_that_have_no_place_yet() -> None:
    one = Harness(2, at_once=False)
    one.generation.start()
    one.generation.cancel()
    assert [placing.cancelled for placing in one.ports.placings] == [True, True]
    for placing in one.ports.placings:  # the answers were on their way
        placing.answer()
    assert one.ports.streams == []
    assert one.has_left_nothing()


def test_one_completion_that_fails_fails_the_request_and_ends_the_others() -> None:
    one, broken = Harness(3), Broken("a bug")
    streams = one.begin()
    streams[0].send(0, b"a", finish_reason="length")
    streams[1].end(broken)
    assert one.reader.ends == [broken]
    assert streams[2].cancelled
    streams[2].on_end(None)
    one.grant(1)
    assert one.reader.texts() == {0: "a"}
    assert one.has_left_nothing()


def test_a_failure_within_the_start_asks_for_no_further_place() -> None:
    one, full = Harness(3, at_once=False), Full()
    place = one.ports.place

    def refuse(request: Any, done: Any) -> Any:
        cancel = place(request, done)
        one.ports.placings[-1].refuse(full)
        return cancel

    one.ports.place = refuse  # type: ignore[method-assign]
    one.generation.start()
    assert one.ports.asked() == ["r/0"]
    assert one.reader.ends == [full]


def test_a_reader_without_credit_gets_everything_later_in_one_delta() -> None:
    one = Harness(credit=1)
    (stream,) = one.begin()
    for number, byte in enumerate(b"abcd"):
        stream.send(number, bytes([byte]))
    assert [delta.text for delta in one.reader.deltas] == ["a"]
    one.grant(5)
    assert [(delta.text, delta.token_count) for delta in one.reader.deltas] == [("a", 1), ("bcd", 4)]
    assert one.reader.credit == 4


def test_each_completion_of_a_slow_reader_waits_in_one_delta_of_its_own_the_oldest_first() -> None:
    one = Harness(2, credit=0)
    first, second = one.begin()
    second.send(0, b"c")
    first.send(0, b"a")
    first.send(1, b"b")
    second.send(1, b"d")
    assert one.reader.deltas == []
    one.grant(1)
    assert one.reader.texts() == {1: "cd"}
    one.grant(1)
    assert one.reader.texts() == {1: "cd", 0: "ab"}


def test_the_end_waits_for_the_last_delta_to_be_taken_but_the_place_does_not() -> None:
    one = Harness(credit=0)
    (stream,) = one.begin()
    stream.send(0, b"ab", finish_reason="length")
    assert (one.reader.ends, one.done) == ([], 0)
    assert one.ports.released == ["r/0"], "the engine is done with it"
    one.grant(1)
    assert [(delta.text, delta.finish_reason) for delta in one.reader.deltas] == [("ab", "length")]
    assert one.reader.ends == [None]
    assert one.has_left_nothing()


def test_a_failure_does_not_wait_for_credit() -> None:
    one, broken = Harness(credit=0), Broken()
    (stream,) = one.begin()
    stream.send(0, b"a")
    stream.end(broken)
    assert one.reader.ends == [broken]
    one.grant(5)
    assert one.reader.deltas == []


def test_cancelling_a_slow_reader_drops_what_waits_for_it() -> None:
    one = Harness(credit=0)
    (stream,) = one.begin()
    stream.send(0, b"ab", finish_reason="length")
    one.generation.cancel()
    one.grant(5)
    assert (one.reader.deltas, one.reader.ends) == ([], [])
    assert one.has_left_nothing()


@pytest.mark.parametrize("n", [1, 3])
@settings(deadline=None)
@given(data=st.data())
def test_whenever_the_reader_takes_it_gets_every_text_whole_and_in_order(n: int, data: st.DataObject) -> None:
    output = "a🌍bx字c".encode()
    one = Harness(n, credit=0)
    streams = one.begin()
    sent = [0] * n
    while min(sent) < len(output):
        one.grant(data.draw(st.integers(0, 2)))
        index = data.draw(st.sampled_from([i for i in range(n) if sent[i] < len(output)]))
        end = min(len(output), sent[index] + data.draw(st.integers(1, 5)))
        ended = {"finish_reason": "length"} if end == len(output) else {}
        streams[index].send(sent[index], output[sent[index] : end], **ended)
        sent[index] = end
    while not one.reader.ends:
        one.grant(1)
    assert one.reader.texts() == {index: output.decode() for index in range(n)}
    assert sorted(delta.index for delta in one.reader.deltas if delta.finish_reason) == list(range(n))
    assert one.has_left_nothing()
