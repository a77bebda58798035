"""The client's side of the protocol on one link: calls in flight, their deadlines, and what arrives for them.

It never waits: whoever owns it calls `turn` when the link can be read or time has passed, and asks `next_deadline`.
The sync client, the asyncio client and a service's own loop all drive this one class.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import heapq
import itertools
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from . import envelope, trace
from .deferred import Deferred
from .envelope import Envelope
from .errors import (
    DeadlineExceeded,
    ErrorBody,
    LocalProtocolError,
    PeerLost,
    RemoteProtocolError,
    StaleIncarnation,
    ZmqEngineError,
    from_wire,
)  # fmt: skip
from .feeder import Feeder
from .interface import Method
from .streams import Stream
from .wire import Kind

if TYPE_CHECKING:
    from .seams import LinkLike


_any_decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder()
_items_decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(list[Any])
_error_decoder = msgspec.msgpack.Decoder(ErrorBody)
_decoders: dict[Any, msgspec.msgpack.Decoder[Any]] = {}


def decoder_for(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    """The decoder of a type; building one costs more than using it."""
    try:
        return _decoders[kind]
    except (KeyError, TypeError):
        decoder = msgspec.msgpack.Decoder(kind)
        with contextlib.suppress(TypeError):  # an unhashable annotation: it is rebuilt each time
            _decoders[kind] = decoder
        return decoder


class _Pending:
    """A call in flight."""

    __slots__ = ("answer", "decoder", "feeder", "method", "next_seq", "request", "stream", "via")

    def __init__(
        self, method: str, decoder: msgspec.msgpack.Decoder[Any], answer: Deferred[Any] | None,
        stream: Stream[Any] | None,
    ) -> None:  # fmt: skip
        self.method = method
        self.decoder = decoder
        self.answer = answer
        self.stream = stream
        self.next_seq = 0
        self.feeder: Feeder | None = None
        self.request: tuple[Any, float | None, tuple[int, int] | None, str | None] | None = None
        """Arguments, deadline (on the clock), credit and traceparent: what it takes to ask another incarnation."""
        self.via: tuple[Connection, int] | None = None
        """The connection and the call id that it is known by now."""

    def fail(self, error: BaseException) -> None:
        self.stop_feeding()
        if self.stream is not None:
            self.stream.finish(error)
        elif self.answer is not None:
            self.answer.reject(error)

    def grant(self, items: int, size: int) -> None:
        """For its stream: the reader takes more."""
        if self.via is not None:
            self.via[0].give_credit(self.via[1], items, size)

    def cancel(self, _: BaseException) -> None:
        """For its stream: the reader wants no more."""
        if self.via is not None:
            self.via[0].cancel_call(self.via[1])

    def stop_feeding(self) -> None:
        """The call has its terminal answer: what the caller sends along is of no use any more."""
        if self.feeder is not None:
            self.feeder.close()


class NoLink:
    """Stands for a link whose endpoint is not known yet: what is to be sent waits, bounded by its deadline."""

    def __init__(self, peer: str) -> None:
        self.peer = peer
        self.lost: PeerLost | None = None

    def receive(self) -> list[bytes] | None:
        return None

    def send(self, frame: bytes) -> bool:
        return False

    def close(self) -> None:
        return None


class Connection:
    """Calls to one incarnation of a service."""

    def __init__(
        self,
        link: LinkLike,
        *,
        incarnation: str = "",
        touched: Callable[[], object] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """touched: called when something was put in the outbox outside of `turn`, so that its owner flushes soon."""
        self.link = link
        self.incarnation = incarnation
        self.broken: ZmqEngineError | None = None
        self.malformed = 0
        self.reroute: Callable[[_Pending], object] | None = None
        """Given each call that was not begun, because another incarnation serves by now, to be asked there."""
        self.superseded = False
        """The peer said that another incarnation serves by now: what is in flight ends here, new calls go there."""
        self.used = False
        """The link was used; whoever waits on its descriptor clears it, and looks whether that took the edge."""
        self._clock = clock
        self._touched = touched
        self._ids = itertools.count(1)
        self._pending: dict[int, _Pending] = {}
        self._deadlines: list[tuple[float, int]] = []
        self._outbox: collections.deque[bytes] = collections.deque()

    @property
    def in_flight(self) -> int:
        """Calls and streams without a terminal answer yet."""
        return len(self._pending)

    @property
    def unsent(self) -> int:
        """Messages that the next flush sends."""
        return len(self._outbox)

    @property
    def wants_write(self) -> bool:
        """Whether something waits until the link takes it."""
        return bool(self._outbox)

    def call(
        self, method: Method, args: Any, deadline_s: float | None, traceparent: str | None = None, bound: bool = False
    ) -> Deferred[Any]:
        """Begin a call that answers once. bound: it is meant for this incarnation alone."""
        # What `_begin` does, in one piece: this is on the path of every call.
        answer: Deferred[Any] = Deferred()
        if self.broken is not None:
            answer.reject(self.broken)
            return answer
        call_id = next(self._ids)
        budget_ms = None if deadline_s is None else max(0, int(deadline_s * 1000))
        if traceparent is None:
            traceparent = trace.current.get()
        try:
            frame = envelope.encode_call(self.incarnation, call_id, method.name, budget_ms, traceparent, args)
        except LocalProtocolError as error:
            answer.reject(error)
            return answer
        answer.on_cancel(functools.partial(self._cancel, call_id))
        pending = self._pending[call_id] = _Pending(method.name, method.decoder or _any_decoder, answer, None)
        if self.reroute is not None and not bound:
            due = None if deadline_s is None else self._clock() + deadline_s
            pending.request = (args, due, None, traceparent)
        if deadline_s is not None:
            self._remember_deadline(deadline_s, call_id)
        self._put(frame)
        return answer

    def open(
        self,
        method: Method,
        args: Any,
        deadline_s: float | None,
        window: tuple[int, int],
        pump: Callable[[], object] | None,
        traceparent: str | None = None,
    ) -> Stream[Any]:
        """Begin a stream. pump: what a sync reader calls to wait for more."""
        call_id = next(self._ids)
        pending = _Pending(method.name, method.decoder or _items_decoder, None, None)
        pending.via = (self, call_id)
        opened: Stream[Any] = Stream(window, pending.grant, pending.cancel, pump)
        pending.stream = opened
        traceparent = traceparent or trace.current.get()
        if self.reroute is not None:
            due = None if deadline_s is None else self._clock() + deadline_s
            pending.request = (args, due, window, traceparent)
        self._begin(Kind.CALL, call_id, pending, args, deadline_s, window, traceparent)
        return opened

    def tell(self, method: Method, args: Any, traceparent: str | None = None) -> None:
        """Send a message without an answer. Raises what broke the connection, if it is."""
        if self.broken is not None:
            raise self.broken
        self._post(Kind.TELL, method=method.name, body=args, traceparent=traceparent or trace.current.get())

    def feed(self, call: Deferred[Any] | Stream[Any], source: Any) -> None:
        """Send the items of an iterable (or, on an asyncio loop, of an asynchronous one) along with the call that was
        begun last."""
        call_id, pending = next(reversed(self._pending.items()), (0, None))
        if pending is None or (pending.answer is not call and pending.stream is not call):
            return  # it failed before it was begun

        def fail(error: BaseException) -> None:
            found = self._pending.pop(call_id, None)
            if found is not None:
                self._post(Kind.CANCEL, call_id=call_id)
                found.fail(error)

        pending.feeder = Feeder(source, pending.method, call_id, self._put, fail)

    def notify(self, kind: Kind, body: Any) -> None:
        """Send one of the lifecycle kinds without awaiting an answer; a broken connection drops it."""
        self._post(kind, body=body)

    def ask(self, kind: Kind, body: Any, returns: Any, deadline_s: float | None) -> Deferred[Any]:
        """Send one of the lifecycle kinds (HELLO, HEALTH, ...) and await its REPLY or WELCOME."""
        answer: Deferred[Any] = Deferred()
        call_id = next(self._ids)
        answer.on_cancel(lambda: self._cancel(call_id))
        self._begin(
            kind, call_id, _Pending(kind.name, decoder_for(returns), answer, None), body, deadline_s, None, None
        )
        return answer

    def attach(self, link: LinkLike, incarnation: str) -> None:
        """The peer's endpoint is known: what was begun before goes to this incarnation."""
        self.link, self.incarnation = link, incarnation

    def turn(self) -> None:
        """Take in all that has arrived, fail what is late, send what waits."""
        link = self.link
        self.used = True
        self._receive()
        self.expire()
        self.flush()
        if link.lost is not None and self.broken is None:
            self._receive()  # what the peer sent before it went is still to be had
            self.fail(link.lost)

    def take(self, frames: list[bytes]) -> None:
        """Take in one message."""
        try:
            for kind, message in envelope.decode_message(frames):
                self._handle(kind, message)
        except envelope.OtherMajor as error:
            self.fail(error)  # nothing that this peer says will be understood: nobody is to wait for it
        except RemoteProtocolError:
            self.malformed += 1

    def _receive(self) -> None:
        link = self.link
        while self.broken is None:
            frames = link.receive()
            if frames is None:
                return
            self.take(frames)
            if not self._pending:
                return  # nothing is awaited: whether more has come is asked for before the next wait

    def flush(self) -> None:
        """Send what waits, as far as the link takes it, coalesced."""
        outbox = self._outbox
        if not outbox:
            return
        self.used = True
        if len(outbox) == 1:
            if self.link.send(outbox[0]):
                outbox.clear()
            return
        frames = list(envelope.coalesce(list(outbox)))
        outbox.clear()
        for index, frame in enumerate(frames):
            if not self.link.send(frame):
                outbox.extend(member for rest in frames[index:] for member in envelope.members(rest))
                return

    def next_deadline(self) -> float | None:
        """Monotonic time of the next call to be late, or None."""
        while self._deadlines and self._deadlines[0][1] not in self._pending:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def fail(self, error: ZmqEngineError) -> None:
        """Fail every call in flight, and refuse new ones, with `error`."""
        if self.broken is None:
            self.broken = error
            pending, self._pending = self._pending, {}
            self._outbox.clear()
            for call in pending.values():
                call.fail(error)

    def close(self) -> None:
        """Fail what is in flight and close the link."""
        self.flush()
        self.fail(PeerLost(f"{self.link.peer}: the connection was closed by this side"))
        self.link.close()

    def _begin(
        self,
        kind: Kind,
        call_id: int,
        pending: _Pending,
        args: Any,
        deadline_s: float | None,
        credit: tuple[int, int] | None,
        traceparent: str | None,
    ) -> None:
        if self.broken is not None:
            pending.fail(self.broken)
            return
        budget_ms = None if deadline_s is None else max(0, int(deadline_s * 1000))
        try:
            frame = envelope.encode(
                kind, incarnation=self.incarnation, call_id=call_id, method=pending.method, budget_ms=budget_ms,
                credit=credit, traceparent=traceparent, body=args,
            )  # fmt: skip
        except LocalProtocolError as error:
            pending.fail(error)
            return
        self._pending[call_id] = pending
        if deadline_s is not None:
            self._remember_deadline(deadline_s, call_id)
        self._put(frame)

    def _remember_deadline(self, deadline_s: float, call_id: int) -> None:
        deadlines = self._deadlines
        heapq.heappush(deadlines, (self._clock() + deadline_s, call_id))
        if len(deadlines) > 2 * len(self._pending) + 64:  # most are answered: forget theirs
            self._deadlines = [entry for entry in deadlines if entry[1] in self._pending]
            heapq.heapify(self._deadlines)

    def _post(self, kind: Kind, **fields: Any) -> None:
        if self.broken is None:
            self._put(envelope.encode(kind, incarnation=self.incarnation, **fields))

    def _put(self, frame: bytes) -> None:
        self._outbox.append(frame)
        if self._touched is not None:
            self._touched()

    def _cancel(self, call_id: int) -> None:
        call = self._pending.pop(call_id, None)
        if call is not None:
            call.stop_feeding()
            self._post(Kind.CANCEL, call_id=call_id)
            self.flush()  # a blocking client may not turn again for long

    def expire(self) -> None:
        """Fail the calls whose deadline has passed, and tell the peer."""
        now = self._clock()
        while self._deadlines and self._deadlines[0][0] <= now:
            _, call_id = heapq.heappop(self._deadlines)
            call = self._pending.pop(call_id, None)
            if call is not None:
                self._post(Kind.CANCEL, call_id=call_id)
                call.fail(DeadlineExceeded(f"{self.link.peer} {call.method}: no answer within its deadline"))

    def _handle(self, kind: Kind, message: Envelope) -> None:
        if kind is Kind.REPLY:
            call = self._pending.pop(message.call_id, None)
            if call is not None:
                self._end(call, kind, message)
            return
        if kind is Kind.ERROR and message.call_id == 0:
            body = envelope.decode_body(_error_decoder, message.body, self.link.peer)
            self.fail(from_wire(body, self.link.peer))
            return
        call = self._pending.get(message.call_id)
        if call is None:
            return  # answered, cancelled or late: its terminal answer was given
        if kind is Kind.ITEM and call.stream is not None:
            self._items(call, call.stream, message)
            return
        if kind is Kind.CREDIT:
            if call.feeder is not None and message.credit is not None:
                call.feeder.grant(*message.credit)
            return
        del self._pending[message.call_id]
        self._end(call, kind, message)

    def _end(self, call: _Pending, kind: Kind, message: Envelope) -> None:
        """A terminal answer has come."""
        call.stop_feeding()
        if call.answer is not None and kind in (Kind.REPLY, Kind.WELCOME):
            try:
                value = call.decoder.decode(message.body)
            except (msgspec.DecodeError, RecursionError) as error:
                where = f"{self.link.peer} answer of {call.method}"
                call.fail(RemoteProtocolError(envelope.describe_fault(error, where)))
            else:
                call.answer.resolve(value)
        elif kind is Kind.ERROR:
            where = f"{self.link.peer} {call.method}"
            try:
                failure = from_wire(envelope.decode_body(_error_decoder, message.body, where), where)
            except RemoteProtocolError as malformed:  # an error it is all the same, and the call's only answer
                failure = malformed
            self._failed(call, failure)
        elif kind is Kind.REDIRECT:
            where = f"{self.link.peer} {call.method}"
            self._failed(call, StaleIncarnation(f"{where}: another incarnation serves it now"))
        elif kind is Kind.END and call.stream is not None:
            call.stream.finish(None)
        else:
            call.fail(RemoteProtocolError(f"{self.link.peer} {call.method}: answered with {kind.name}"))

    def _failed(self, call: _Pending, error: ZmqEngineError) -> None:
        if isinstance(error, StaleIncarnation):
            self.superseded = True
            if self.reroute is not None and call.request is not None and call.feeder is None:
                self.reroute(call)
                return
        call.fail(error)

    def resend(self, call: _Pending) -> None:
        """Make a call that another connection's peer has not begun. It is made anew once: what is said then holds."""
        assert call.request is not None
        (args, due, window, traceparent), call.request = call.request, None
        call_id = next(self._ids)
        call.via = (self, call_id)
        if call.answer is not None:
            call.answer.on_cancel(functools.partial(self._cancel, call_id))
        left_s = None if due is None else max(0.0, due - self._clock())
        self._begin(Kind.CALL, call_id, call, args, left_s, window, traceparent)

    def give_credit(self, call_id: int, items: int, size: int) -> None:
        """The reader of a stream takes more."""
        self._post(Kind.CREDIT, call_id=call_id, credit=(items, size))

    def cancel_call(self, call_id: int) -> None:
        """Nobody wants the rest of a call."""
        self._cancel(call_id)

    def _items(self, call: _Pending, stream: Stream[Any], message: Envelope) -> None:
        where = f"{self.link.peer} item of {call.method}"
        try:
            if message.seq != call.next_seq:
                raise RemoteProtocolError(f"{where}: number {message.seq} came where {call.next_seq} was due")
            items = envelope.decode_body(call.decoder, message.body, where)
            if not items:
                raise RemoteProtocolError(f"{where}: a message of items without one")
        except RemoteProtocolError as error:
            self._cancel(message.call_id)
            stream.finish(error)
            return
        call.next_seq += len(items)
        stream.deliver(items, envelope.size_of_items(message.body, len(items)))
