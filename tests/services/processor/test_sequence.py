"""One completion between scheduler and engine: each place is released once, however it ends."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from services.processor.sequence import EngineFault
from services.protocols.scheduler import Placement

from .fake_ports import Broken, PeerLost, Refused
from .sequence_harness import Harness


def test_a_place_is_asked_for_used_and_released() -> None:
    one = Harness()
    one.sequence.start()
    asked = one.ports.placings[0].request
    assert (asked.request_id, asked.prompt_tokens, asked.max_tokens) == ("r/0", 6, 8)
    assert (asked.owner, asked.owner_incarnation, asked.priority, asked.tenant) == (
        "processor", "inc-1", -1, "tenant",
    )  # fmt: skip
    one.ports.placings[0].answer(waited_s=0.75)
    stream = one.ports.streams[0]
    assert (stream.engine, stream.request.request_id, stream.request.arrival_s) == ("engine", "r/0", 0.75)
    assert (stream.request.prompt_token_ids, stream.request.generated_token_ids) == ([*b"prompt"], [])
    stream.send(0, b"ab")
    assert one.ports.released == []
    stream.send(2, b"c", finish_reason="length")
    stream.end()
    assert (one.text, one.ports.released, stream.cancelled) == ("abc", ["r/0"], False)
    assert one.is_done()


def test_everything_may_happen_within_the_first_call() -> None:
    one = Harness(at_once=True)
    one.ports.on_generate = lambda stream: (stream.send(0, b"ab", finish_reason="length"), stream.end())
    one.sequence.start()
    assert (one.text, one.ports.released) == ("ab", ["r/0"])
    assert one.is_done()


def test_a_refusal_fails_at_once_with_the_peer_s_error() -> None:
    one, refusal = Harness(), Refused("too long")
    one.sequence.start()
    one.ports.placings[0].refuse(refusal)
    assert (one.failures, one.ports.released) == ([refusal], [])
    two = Harness()
    two.begin().end(refusal)
    assert (two.failures, two.ports.released) == ([refusal], ["r/0"])
    assert one.is_done()
    assert two.is_done()


def test_an_engine_that_breaks_fails_the_request_and_frees_its_place() -> None:
    one, broken = Harness(), Broken("a bug")
    one.begin().send(0, b"ab")
    one.ports.streams[0].end(broken)
    assert (one.text, one.failures, one.ports.released) == ("ab", [broken], ["r/0"])


def test_a_stop_string_ends_the_engine_s_work() -> None:
    one = Harness("x")
    stream = one.begin()
    stream.send(0, b"axb")
    assert (one.text, stream.cancelled, one.ports.released) == ("a", True, ["r/0"])
    assert one.is_done()


def test_a_stop_string_within_generate_itself_cancels_what_it_returns() -> None:
    one = Harness("x", at_once=True)
    one.ports.on_generate = lambda stream: stream.send(0, b"axb")
    one.sequence.start()
    assert (one.ports.streams[0].cancelled, one.ports.released) == (True, ["r/0"])
    assert one.is_done()


def test_missing_tokens_are_the_engine_s_fault() -> None:
    one = Harness()
    stream = one.begin()
    stream.send(0, b"a")
    stream.send(2, b"c")
    assert stream.cancelled
    (fault,) = one.failures
    assert isinstance(fault, EngineFault)
    assert "r/0: the engine sent token 2 where 1 was due" in str(fault)
    assert one.ports.released == ["r/0"]


def test_a_stream_that_ends_without_a_reason_is_the_engine_s_fault() -> None:
    one = Harness()
    one.begin().end(None)
    assert isinstance(one.failures[0], EngineFault)
    assert "ended without a finish reason" in str(one.failures[0])
    assert one.ports.released == ["r/0"]


def test_a_placement_for_another_request_is_the_scheduler_s_fault() -> None:
    one = Harness()
    one.sequence.start()
    one.ports.placings[0].done(Placement(request_id="other", engine="engine", waited_s=0.0), None)
    assert one.ports.streams == []
    assert isinstance(one.failures[0], EngineFault)
    assert one.ports.released == ["r/0"]


def test_an_answer_with_neither_a_placement_nor_an_error_is_a_fault() -> None:
    one = Harness()
    one.sequence.start()
    one.ports.placings[0].done(None, None)
    assert isinstance(one.failures[0], EngineFault)
    assert one.ports.released == ["r/0"]


def placing(one: Harness) -> None:
    one.sequence.start()


def generating(one: Harness) -> None:
    one.begin().send(0, b"a")


def waiting(one: Harness) -> None:
    one.begin().send(0, b"a")
    one.ports.streams[0].end(PeerLost("engine"))


@pytest.mark.parametrize("moment", [placing, generating, waiting], ids=lambda moment: moment.__name__)
def test_an_abort_at_any_moment_cancels_what_is_under_way_and_frees_the_place(
    moment: Callable[[Harness], None],
) -> None:
    one = Harness()
    moment(one)
    before = list(one.deltas)
    one.sequence.abort()
    one.sequence.abort()
    assert one.ports.released == ["r/0"]
    assert one.ports.leaves_nothing()
    assert moment is not placing or one.ports.placings[0].cancelled
    if moment is placing:  # its answer was on its way
        one.ports.placings[0].answer()
        assert one.ports.streams == []
    assert (one.deltas, one.failures) == (before, [])


def test_an_abort_after_the_end_is_nothing() -> None:
    one = Harness()
    one.begin().send(0, b"a", finish_reason="length")
    one.sequence.abort()
    assert one.ports.released == ["r/0"]
