"""A trace goes through every hop and every way to run a handler, and a tracer sees each call once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from zmqengine import Client, Interface, call, connect, stream
from zmqengine.errors import HandlerFailed, UsageError
from zmqengine.trace import check, current, is_valid, new_traceparent

from .by_hand_process import ByHand

SERVICE = """
from collections.abc import Iterator
from zmqengine import Deferred, Interface, Service, call, stream, tell
from zmqengine.trace import current

class Span:
    def __init__(self, method, traceparent):
        self.method, self.traceparent = method, (traceparent or "none")
    def end(self, error):
        print(f"span {self.method} {self.traceparent} {type(error).__name__}", flush=True)

class RecordingTracer:
    def begin(self, method, traceparent):
        return Span(method, traceparent)

class RelayInterface(Interface, protocol="relay/1"):
    @call
    def plain(self) -> str | None: ...
    @call
    def hop(self, hops: int) -> list[str | None]: ...

class Relay(Service, protocol="relay/1"):
    def tracer(self):
        return RecordingTracer() if TRACED else None
    @call
    def plain(self) -> str | None:
        return current.get()
    @call(thread=True)
    def threaded(self) -> str | None:
        return current.get()
    @call
    def later(self) -> Deferred[str | None]:
        answer = Deferred()
        self.loop.call_later(0.01, lambda: self.loop.call_soon(lambda: answer.resolve(current.get())))
        return answer
    @call
    def fail(self) -> None:
        raise ValueError(current.get())
    @stream
    def items(self, count: int) -> Iterator[str | None]:
        for _ in range(count):
            yield current.get()
    @call
    def hop(self, hops: int) -> Deferred[list[str | None]]:
        answer = Deferred()
        if hops == 0:
            answer.resolve([current.get()])
            return answer
        here = current.get()
        def answered(done):
            answer.resolve([here, *done.value])
        self.peer("me", RelayInterface).hop(hops - 1).add_done_callback(answered)
        return answer
TRACED = %s
Relay.main()
"""


class RelayInterface(Interface, protocol="relay/1"):
    @call
    def plain(self) -> str | None: ...
    @call
    def threaded(self) -> str | None: ...
    @call
    def later(self) -> str | None: ...
    @call
    def fail(self) -> None: ...
    @stream
    def items(self, count: int) -> Iterator[str | None]: ...
    @call
    def hop(self, hops: int) -> list[str | None]: ...


@pytest.fixture(params=[False, True], ids=["untraced", "traced"])
def relay(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ByHand]:
    process = ByHand(tmp_path, SERVICE % request.param, "--peer", "me=ENDPOINT")
    process.traced = request.param  # type: ignore[attr-defined]
    yield process
    if process.process.poll() is None:
        process.stop()


@pytest.fixture
def client(relay: ByHand) -> Iterator[Client]:
    with connect(relay.endpoint, RelayInterface) as client:
        yield client


@pytest.fixture
def traceparent() -> Iterator[str]:
    token = current.set(new_traceparent())
    yield str(current.get())
    current.reset(token)


def test_every_kind_of_handler_runs_in_the_trace_of_its_caller(client: Client, traceparent: str) -> None:
    assert client.plain() == traceparent
    assert client.threaded() == traceparent
    assert client.later() == traceparent
    assert list(client.items(300)) == [traceparent] * 300
    with pytest.raises(HandlerFailed, match=traceparent):
        client.fail()


def test_a_trace_goes_through_every_hop(client: Client, traceparent: str) -> None:
    assert client.hop(3) == [traceparent] * 4


def test_a_trace_does_not_leak_into_calls_without_one(client: Client, relay: ByHand) -> None:
    token = current.set(new_traceparent())
    client.plain()
    client.later()
    current.reset(token)
    nothing = "none" if relay.traced else None  # type: ignore[attr-defined]
    assert client.plain() == nothing
    assert client.later() == nothing


def test_what_is_no_traceparent_is_not_carried_on(client: Client, relay: ByHand) -> None:
    token = current.set("00-" + "0" * 32 + "-x")
    nothing = "none" if relay.traced else None  # type: ignore[attr-defined]
    assert client.plain() == nothing
    current.reset(token)


def test_a_tracer_sees_the_end_of_each_call_once(client: Client, relay: ByHand, traceparent: str) -> None:
    client.plain()
    list(client.items(2))
    with pytest.raises(HandlerFailed):
        client.fail()
    spans = [line.split()[1:] for line in relay.stop().splitlines() if line.startswith("span")]
    if relay.traced:  # type: ignore[attr-defined]
        assert spans == [[m, traceparent, e] for m, e in
                         (("plain", "NoneType"), ("items", "NoneType"), ("fail", "ValueError"))]  # fmt: skip
    else:
        assert spans == []


@pytest.mark.parametrize("wrong", ["", "00-abc", "00-" + "0" * 32 + "-" + "1" * 16 + "-01", json.dumps({})])
def test_a_wrong_traceparent_is_refused_by_name(wrong: str) -> None:
    assert not is_valid(wrong)
    with pytest.raises(UsageError, match="traceparent"):
        check(wrong)
    assert check(new_traceparent())
