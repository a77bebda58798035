"""Garbage from the network: whatever comes, the service goes on, and says what was wrong if there is somebody to tell.

Frames are random, truncated, or mutations of valid ones, alone and in wrong numbers. ZMQENGINE_FUZZ_S sets for how long
(seconds); a seed is printed, so that what was found can be found again.
"""

from __future__ import annotations

import os
import random
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import psutil
import pytest
import zmq

from zmqengine import Client, Inlet, Interface, Message, call, connect, envelope, stream, tell, wire
from zmqengine.connection import Connection
from zmqengine.errors import ZmqEngineError
from zmqengine.peer import Location

from .by_hand_process import ByHand

SECONDS = float(os.environ.get("ZMQENGINE_FUZZ_S", "10"))
BURST = 200

SERVICE = """
from collections.abc import AsyncIterator, Iterator
from zmqengine import Inlet, Message, Service, call, event, stream, tell

class Item(Message):
    number: int
    names: list[str] = []
    more: dict[str, float] = {}

class Fuzzed(Service, protocol="fuzzed/1"):
    @call
    def echo(self, item: Item, blob: bytes = b"") -> Item:
        return item
    @tell
    def note(self, item: Item) -> None:
        pass
    @stream
    def count(self, limit: int) -> Iterator[Item]:
        for number in range(min(limit, 100)):
            yield Item(number=number)
    @stream
    async def double(self, items: Inlet[Item]) -> AsyncIterator[Item]:
        async for item in items:
            yield item
    @event
    def state(self) -> Item:
        return Item(number=0)
Fuzzed.main()
"""


class Item(Message):
    number: int
    names: list[str] = []
    more: dict[str, float] = {}


class FuzzedInterface(Interface, protocol="fuzzed/1"):
    @call
    def echo(self, item: Item, blob: bytes = b"") -> Item: ...
    @tell
    def note(self, item: Item) -> None: ...
    @stream
    def count(self, limit: int) -> Iterator[Item]: ...
    @stream
    def double(self, items: Inlet[Item]) -> Iterator[Item]: ...


class Mutator:
    """Makes frames that are wrong in many ways, or nearly right."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def valid(self) -> bytes:
        """A frame as a client would send it, or nearly."""
        pick = self.random.choice
        kind = pick(list(wire.Kind))
        if kind is wire.Kind.BATCH:
            return envelope.encode_batch([self.valid() for _ in range(self.random.randrange(4))])
        return envelope.encode(
            kind,
            incarnation=pick(["", "", "", "0123456789ab"]),
            call_id=pick([0, 1, 2, 3, 2**63, -1]),
            method=pick(["echo", "count", "double", "note", "state", wire.DESCRIBE, "nothing", "x" * 1000]),
            budget_ms=pick([None, 0, 1, 1000, -5, 2**60]),
            seq=pick([0, 1, 7, -1]),
            credit=pick([None, (0, 0), (5, 1000), (-1, -1), (2**62, 2**62)]),
            traceparent=pick([None, "", "00-" + "ab" * 16 + "-" + "cd" * 8 + "-01", "garbage"]),
            body=self.body(),
        )

    def body(self, depth: int = 0) -> object:
        """Something with a msgpack form."""
        pick = self.random.choice
        if depth > 3:
            return None
        return pick([
            lambda: {"item": {"number": 3}}, lambda: {"limit": pick([0, 3, 10**9, "many", None])}, lambda: None,
            lambda: [self.body(depth + 1) for _ in range(3)], lambda: {"item": self.body(depth + 1)},
            lambda: [{"number": 1}, {"number": 2}], lambda: self.random.randbytes(self.random.randrange(50)),
            lambda: {str(i): self.body(depth + 1) for i in range(3)}, lambda: 2**63, lambda: float("nan"),
            lambda: "\u00bd",
        ])()  # fmt: skip

    def frames(self) -> list[bytes]:
        """One message."""
        return self.random.choice(
            [self._random, self._truncated, self._flipped, self._nested, self._several, self._right]
        )()

    def _random(self) -> list[bytes]:
        prefix = self.random.choice([b"", b"ZE", b"ZE\x01", b"ZE\x01\x04", b"ZE\x02\x04", b"ZE\x01\xff", b"ZE\x01\x0f"])
        return [prefix + self.random.randbytes(self.random.randrange(200))]

    def _truncated(self) -> list[bytes]:
        frame = self.valid()
        return [frame[: self.random.randrange(len(frame) + 1)]]

    def _flipped(self) -> list[bytes]:
        frame = bytearray(self.valid())
        for _ in range(self.random.randrange(1, 6)):
            frame[self.random.randrange(len(frame))] = self.random.randrange(256)
        return [bytes(frame)]

    def _nested(self) -> list[bytes]:
        depth = self.random.choice([100, 10_000, 100_000])
        array = b"\x9a\x00\xa0\x01\xa4echo\xc0\x00\xc0\xc0\xc0" + b"\x91" * depth + b"\xc0"
        return [b"ZE\x01\x04" + array]

    def _several(self) -> list[bytes]:
        return [self.random.choice([b"", self.valid(), b"ZE"]) for _ in range(self.random.randrange(2, 30))]

    def _right(self) -> list[bytes]:
        return [self.valid()]


@pytest.fixture
def seed() -> int:
    found = int(os.environ.get("ZMQENGINE_FUZZ_SEED", secrets.randbits(32)))
    print(f"ZMQENGINE_FUZZ_SEED={found}")
    return found


@pytest.fixture
def context() -> Iterator[zmq.Context[zmq.Socket[bytes]]]:
    made: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    yield made
    made.destroy(0)


@pytest.fixture
def fuzzed(tmp_path: Path) -> Iterator[ByHand]:
    process = ByHand(tmp_path, SERVICE)
    yield process
    if process.process.poll() is None:
        process.stop()


def drained(socket: zmq.Socket[bytes]) -> list[list[bytes]]:
    """What the service has answered by now."""
    found = []
    while socket.poll(0):
        found.append(socket.recv_multipart())
    return found


@pytest.mark.timeout(SECONDS + 60)
def test_a_service_goes_on_whatever_is_sent_to_it(
    fuzzed: ByHand, context: zmq.Context[zmq.Socket[bytes]], seed: int
) -> None:
    mutator, process = Mutator(seed), psutil.Process(fuzzed.process.pid)
    with connect(fuzzed.endpoint, FuzzedInterface, deadline_s=10) as client:
        until, memory, answered = time.monotonic() + SECONDS, [], 0
        while time.monotonic() < until:
            socket = context.socket(zmq.DEALER)
            socket.linger = 0
            socket.connect(fuzzed.endpoint)
            for _ in range(BURST):
                socket.send_multipart(mutator.frames())
            assert client.echo(Item(number=7)).number == 7
            assert [item.number for item in client.count(5)] == list(range(5))
            answers = drained(socket)
            answered += len(answers)
            for frames in answers:
                list(envelope.decode_message(frames))  # what it answers is well-formed, whatever it was asked
            socket.close(0)
            memory.append(process.memory_info().rss)
        assert answered, "it tells a peer that it is not understood"
        if len(memory) > 40:
            assert memory[-1] - memory[len(memory) // 2] < 20e6, "garbage is not kept"


@pytest.mark.timeout(SECONDS + 60)
def test_a_client_survives_whatever_a_service_answers(tmp_path: Path, seed: int) -> None:
    mutator = Mutator(seed)
    until, pending_failed = time.monotonic() + SECONDS / 2, 0
    echo = FuzzedInterface.methods["echo"]
    while time.monotonic() < until:
        link = Scripted()
        connection = Connection(link)
        answer = connection.call(echo, {"item": Item(number=1)}, 60.0)
        items = connection.open(FuzzedInterface.methods["count"], {"limit": 3}, None, (10, 1000), None)
        link.incoming = [mutator.frames() for _ in range(BURST)]
        for _ in range(BURST):
            connection.turn()
        if answer.done and answer.error is not None:
            assert isinstance(answer.error, ZmqEngineError)
            pending_failed += 1
        assert items.error is None or isinstance(items.error, ZmqEngineError)
        connection.close()
        assert answer.done
        assert items.ended
    assert pending_failed


class Scripted:
    """A link whose other end says what the test wants."""

    peer = "scripted"
    lost = None

    def __init__(self) -> None:
        self.incoming: list[list[bytes]] = []

    def receive(self) -> list[bytes] | None:
        return self.incoming.pop() if self.incoming else None

    def send(self, frame: bytes) -> bool:
        return True

    def close(self) -> None:
        self.incoming.clear()


def expect_working(client: Client) -> None:
    assert client.echo(Item(number=1)).number == 1


@pytest.mark.parametrize(
    ("send", "said"),
    [
        (lambda s: s.send(b"GET / HTTP/1.1\r\n\r\n"), "does not begin with 'ZE'"),
        (lambda s: s.send(b"ZE\x02\x04\x90"), "protocol major 2 is not spoken here"),
        (lambda s: s.send(b"ZE\x01\xc8\x90"), "unknown message kind 200"),
        (lambda s: s.send_multipart([envelope.encode(wire.Kind.CALL)] * 3), "3 frames where one"),
        (lambda s: s.send(b"ZE\x01\x04" + msgspec.msgpack.encode([0, 1, 2])), "malformed CALL envelope"),
        (lambda s: s.send(b"ZE\x01\x04\x9a\x00\xa0\x01\xa4echo\xc0\x00\xc0\xc0\xc0" + b"\x91" * 100_000 + b"\xc0"), ""),
        (lambda s: s.send(envelope.encode_batch([envelope.encode_batch([])])), "a BATCH within a BATCH"),
    ],
)  # fmt: skip
def test_what_is_no_message_is_answered_by_name_and_the_next_call_works(
    fuzzed: ByHand, context: zmq.Context[zmq.Socket[bytes]], send: Callable[[zmq.Socket[bytes]], object], said: str
) -> None:
    with context.socket(zmq.DEALER) as socket:
        socket.connect(fuzzed.endpoint)
        send(socket)
        assert socket.poll(5000)
        ((kind, message),) = envelope.decode_message(socket.recv_multipart())
    assert kind is wire.Kind.ERROR
    assert said in bytes(message.body).decode(errors="replace")
    with connect(fuzzed.endpoint, FuzzedInterface) as client:
        expect_working(client)


def test_a_message_beyond_the_limit_is_refused_and_the_next_call_works(
    fuzzed: ByHand, context: zmq.Context[zmq.Socket[bytes]]
) -> None:
    with connect(fuzzed.endpoint, FuzzedInterface) as client:
        with pytest.raises(ZmqEngineError, match="a message has at most"):
            client.echo(Item(number=1), blob=bytes(300 << 20))
        expect_working(client)
        with context.socket(zmq.DEALER) as raw:
            raw.linger = 0
            raw.connect(fuzzed.endpoint)
            raw.send(bytes(300 << 20))  # a foreign peer does not check: it is cut off
            expect_working(client)


def test_a_call_to_an_earlier_incarnation_is_refused(fuzzed: ByHand) -> None:
    location = Location(name="fuzzed", incarnation="000000000000", endpoint=fuzzed.endpoint)
    with Client(location, FuzzedInterface) as client, pytest.raises(ZmqEngineError, match="not 000000000000"):
        client.echo(Item(number=1))
