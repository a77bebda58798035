"""Both ends of the protocol joined without a socket, on a clock that the test turns."""

from __future__ import annotations

import collections
from typing import Any

from zmqengine import envelope, wire
from zmqengine.connection import Connection
from zmqengine.dispatcher import Dispatcher, Handler
from zmqengine.envelope import Envelope
from zmqengine.errors import PeerLost
from zmqengine.interface import Interface
from zmqengine.loop import Loop
from zmqengine.transport import Sent
from zmqengine.wire import Kind

TERMINAL = {Kind.REPLY, Kind.END, Kind.ERROR, Kind.REDIRECT}
INCARNATION = "0123456789ab"


class Clock:
    """Monotonic seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class MemoryPort:
    """A service's end."""

    endpoint = "memory://port"

    def __init__(self) -> None:
        self.inbox: collections.deque[tuple[bytes, list[bytes]]] = collections.deque()
        self.links: dict[bytes, MemoryLink] = {}

    def receive(self) -> tuple[bytes, list[bytes]] | None:
        return self.inbox.popleft() if self.inbox else None

    receive_expected = receive

    def send(self, identity: bytes, frame: bytes) -> Sent:
        link = self.links.get(identity)
        if link is None:
            return Sent.GONE
        if link.full:
            return Sent.FULL
        link.inbox.append([frame])
        return Sent.OK

    def close(self) -> None:
        self.links.clear()


class MemoryLink:
    """A client's end."""

    def __init__(self, port: MemoryPort, identity: bytes = b"a", peer: str = "counter") -> None:
        self.peer = peer
        self.lost: PeerLost | None = None
        self.full = False
        """It takes nothing more from its peer."""
        self.stuck = False
        """Its peer takes nothing more from it."""
        self.inbox: collections.deque[list[bytes]] = collections.deque()
        self._port, self._identity = port, identity
        port.links[identity] = self

    def receive(self) -> list[bytes] | None:
        return self.inbox.popleft() if self.inbox else None

    def send(self, frame: bytes) -> bool:
        if not self.stuck:
            self._port.inbox.append((self._identity, [frame]))
        return not self.stuck

    def close(self) -> None:
        self._port.links.pop(self._identity, None)


class MemoryLoop(Loop):
    """A loop that turns when the test says so."""

    def turn(self) -> bool:
        """One turn; whether there is more to do at once."""
        return self._work(None, receive=True)

    def close(self) -> None:
        self._close_all()


class Served:
    """An implementation behind a dispatcher, on a loop in memory."""

    def __init__(self, implementation: Interface, **options: Any) -> None:
        self.clock = Clock()
        self.port = MemoryPort()
        self.loop = MemoryLoop(self.clock)
        cls = type(implementation)
        handlers = {name: Handler(method, getattr(implementation, name)) for name, method in cls.methods.items()}
        self.dispatcher = Dispatcher(
            self.port, self.loop, handlers, where=cls.protocol, incarnation=INCARNATION, describe=cls.schema,
            clock=self.clock, **options,
        )  # fmt: skip
        self.loop.serve(self.dispatcher)

    def turn(self) -> None:
        """Turn until there is nothing to do at once."""
        while self.loop.turn():
            pass

    def raw(self, identity: bytes = b"a") -> RawPeer:
        """A peer that speaks in envelopes."""
        return RawPeer(self, identity)

    def connect(self, identity: bytes = b"c") -> Connection:
        """A peer that is a connection."""
        return Connection(MemoryLink(self.port, identity), incarnation=INCARNATION, clock=self.clock)

    def close(self) -> None:
        self.loop.close()


class RawPeer:
    """Sends envelopes and reads what comes back, as a foreign client would."""

    def __init__(self, served: Served, identity: bytes) -> None:
        self._served, self._identity = served, identity
        self.link = MemoryLink(served.port, identity)
        self.seen: list[tuple[Kind, Envelope]] = []

    def send(self, kind: Kind, **fields: Any) -> None:
        self.send_frames([envelope.encode(kind, **fields)])

    def send_frames(self, frames: list[bytes]) -> None:
        self._served.port.inbox.append((self._identity, frames))

    def ask(self, kind: Kind, **fields: Any) -> list[tuple[Kind, Envelope]]:
        """Send a message; what has come by the end of the turn."""
        self.send(kind, **fields)
        self._served.turn()
        return self.news()

    def call(self, call_id: int, method: str, body: Any = None, **fields: Any) -> list[tuple[Kind, Envelope]]:
        return self.ask(Kind.CALL, call_id=call_id, method=method, body={} if body is None else body, **fields)

    def news(self) -> list[tuple[Kind, Envelope]]:
        """What has come since the last look."""
        found: list[tuple[Kind, Envelope]] = []
        while (frames := self.link.receive()) is not None:
            found.extend(envelope.decode_message(frames))
        self.seen += found
        return found

    def answers(self, call_id: int) -> list[Kind]:
        """The terminal answers that a call has had by now."""
        self.news()
        return [kind for kind, message in self.seen if message.call_id == call_id and kind in TERMINAL]


def error_of(message: Envelope) -> dict[str, Any]:
    """The body of an ERROR."""
    return decoded(message)


def decoded(message: Envelope) -> Any:
    """A body as plain values."""
    import msgspec

    return msgspec.msgpack.decode(message.body)


WINDOW = (wire.STREAM_ITEMS, wire.STREAM_BYTES)
