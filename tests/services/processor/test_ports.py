"""How the processor asks scheduler and engines, and what it makes of their errors."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from services.processor.sequence import Retry, Verdict
from services.processor.service import _Ports
from services.protocols.engine import GenerateTokens, TokenChunk
from services.protocols.sampling import SamplingParams
from services.protocols.scheduler import Placement, PlaceRequest
from zmqengine import Deferred, errors
from zmqengine.streams import Stream

from .fake_ports import Timer

PLACE = PlaceRequest(request_id="r", prompt_tokens=1, max_tokens=1, owner="processor", owner_incarnation="1")
ASK = GenerateTokens(request_id="r", prompt_token_ids=[1], sampling=SamplingParams(max_tokens=1))


class FakePeer:
    """Either peer."""

    def __init__(self) -> None:
        self.incarnation = ""
        self.placing: Deferred[Placement] = Deferred()
        self.stream_cancels: list[BaseException] = []
        self.stream: Stream[TokenChunk] = Stream((9, 9), lambda items, size: None, self.stream_cancels.append, None)
        self.release_error: Exception | None = None

    def options(self, **options: float) -> FakePeer:
        return self

    def place(self, request: PlaceRequest) -> Deferred[Placement]:
        return self.placing

    def release(self, request_id: str) -> None:
        if self.release_error is not None:
            raise self.release_error

    def generate(self, request: GenerateTokens) -> Stream[TokenChunk]:
        return self.stream


class _Handle:
    def __init__(self, timer: Timer) -> None:
        self._timer = timer

    def cancel(self) -> None:
        self._timer.cancelled = True


class FakeService:
    """What the ports need of the service: a peer for every name, and a loop with timers."""

    class config:
        scheduler = "scheduler"
        place_timeout_s = 600.0
        engine_timeout_s = 60.0

    def __init__(self) -> None:
        self.made = FakePeer()
        self.timers: list[Timer] = []
        self.loop = self
        self.log = logging.getLogger("processor")

    def peer(self, name: str, interface: object) -> FakePeer:
        return self.made

    def call_later(self, delay_s: float, callback: Any) -> _Handle:
        self.timers.append(Timer(delay_s, callback))
        return _Handle(self.timers[-1])


class Harness:
    """The ports, and what came of a `generate`."""

    def __init__(self) -> None:
        self.service = FakeService()
        self.peer = self.service.made
        self.ports = _Ports(self.service)  # type: ignore[arg-type]
        self.chunks: list[TokenChunk] = []
        self.ends: list[BaseException | None] = []

    def generate(self) -> Any:
        return self.ports.generate("engine", ASK, self.chunks.append, self.ends.append)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (errors.PeerLost("x"), Verdict(Retry.ALWAYS, begun=True)),
        (errors.StaleIncarnation("x"), Verdict(Retry.ALWAYS, begun=False)),
        (errors.Unavailable("x"), Verdict(Retry.ALWAYS, begun=False)),
        (errors.Overloaded("x"), Verdict(Retry.RESUMED, begun=False)),
        (errors.InvalidArgument("x"), Verdict(Retry.NEVER, begun=False)),
        (errors.HandlerFailed("x"), Verdict(Retry.NEVER, begun=True)),
        (errors.DeadlineExceeded("x"), Verdict(Retry.NEVER, begun=True)),
        (errors.Cancelled("x"), Verdict(Retry.NEVER, begun=True)),
        (RuntimeError("x"), Verdict(Retry.NEVER, begun=True)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_error_is_worth_another_attempt_or_not_and_may_have_had_an_effect(
    error: BaseException, expected: Verdict
) -> None:
    assert Harness().ports.judge(error) == expected


def test_a_peer_that_is_lost_for_good_is_told_as_unavailable_with_a_time() -> None:
    final = Harness().ports.final(errors.PeerLost("engine: killed by signal 9"))
    assert isinstance(final, errors.Unavailable)
    assert "engine: killed by signal 9" in str(final)
    assert final.retry_after_s is not None
    refusal = errors.InvalidArgument("too long")
    assert Harness().ports.final(refusal) is refusal


def test_an_engine_that_does_not_come_ends_the_stream_once_and_is_not_waited_for_again() -> None:
    one = Harness()
    one.generate()
    (timer,) = one.service.timers
    assert timer.due == 60.0
    timer.callback()
    (end,) = one.ends
    assert isinstance(end, errors.Unavailable)
    assert "engine has not been there for 60 s" in str(end)
    assert len(one.peer.stream_cancels) == 1
    assert one.ports.judge(end) == Verdict(Retry.NEVER, begun=False)
    assert errors.to_wire(end).code == "unavailable"


def test_an_engine_that_is_there_has_all_the_time_it_needs() -> None:
    one = Harness()
    one.generate()
    one.peer.incarnation = "1"
    one.service.timers[0].callback()
    assert (one.ends, one.peer.stream_cancels) == ([], [])


def test_a_stream_s_chunks_and_its_end_are_passed_on_and_the_timer_is_cancelled() -> None:
    for error in (None, errors.PeerLost("x")):
        one = Harness()
        one.generate()
        chunk = TokenChunk(start=0, token_ids=[1])
        one.peer.stream.deliver([chunk], 1)
        one.peer.stream.finish(error)
        assert (one.chunks, one.ends) == ([chunk], [error])
        assert one.service.timers[0].cancelled


def test_cancelling_tells_the_engine() -> None:
    one = Harness()
    one.generate()()
    assert isinstance(one.ends[0], errors.Cancelled)
    assert len(one.peer.stream_cancels) == 1
    assert one.service.timers[0].cancelled


def test_a_placement_or_its_error_is_passed_on() -> None:
    placement, error = Placement(request_id="r", engine="engine", waited_s=0.0), errors.Overloaded("full")
    answers: list[tuple[Placement | None, BaseException | None]] = []
    for given in (placement, error):
        one = Harness()
        one.ports.place(PLACE, lambda placed, failed: answers.append((placed, failed)))
        if isinstance(given, Placement):
            one.peer.placing.resolve(given)
        else:
            one.peer.placing.reject(given)
    assert answers == [(placement, None), (None, error)]


def test_a_release_that_cannot_be_sent_is_logged_and_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    one = Harness()
    one.peer.release_error = errors.PeerLost("scheduler is gone")
    with caplog.at_level(logging.INFO):
        one.ports.release("r")
    assert "the place of r was not released: scheduler is gone" in caplog.text
