"""The service's side of the protocol: which handler a message goes to, and exactly one terminal answer for each call.

It never waits and knows no socket: it is given messages and sends frames through a `PortLike`.
"""

from __future__ import annotations

import heapq
import inspect
import logging
import time
from collections.abc import Callable
from types import CoroutineType
from typing import TYPE_CHECKING, Any

import msgspec

from . import envelope, trace, wire
from .deferred import Deferred
from .envelope import Envelope
from .errors import (
    Cancelled,
    DeadlineExceeded,
    InvalidArgument,
    LocalProtocolError,
    NotFound,
    Overloaded,
    RemoteError,
    RemoteProtocolError,
    StaleIncarnation,
    Unavailable,
    ZmqEngineError,
    to_wire,
)  # fmt: skip
from .interface import Method
from .latency import Latencies
from .streams import Inlet, Outlet
from .transport import Sent
from .wire import Kind

if TYPE_CHECKING:
    from .seams import PortLike, Runner
    from .tracer import Span, Tracer

log = logging.getLogger(__name__)

LATENCIES_S = 60.0
"""After which the latencies begin anew."""
LOG_TELLS_S = 1.0
"""Between two lines about tells that were refused."""
OVERLOADED_RETRY_S = 0.1
"""What a refused caller is told when nothing better is known."""


_LATER = (Deferred, CoroutineType)
"""What a handler returns that has its answer later."""


class Handler:
    """A method with the function that serves it."""

    __slots__ = (
        "decoder",
        "function",
        "injects",
        "inlet",
        "kind",
        "limit",
        "method",
        "name",
        "names",
        "running",
        "thread",
    )

    def __init__(self, method: Method, function: Callable[..., Any]) -> None:
        self.method = method
        self.name = method.name
        self.function = function
        self.decoder = msgspec.msgpack.Decoder(method.args)
        parameters = inspect.signature(function).parameters
        self.inlet = method.inlet
        own = {*method.arg_names, *([method.inlet.name] if method.inlet is not None else [])}
        self.injects = next((name for name in parameters if name not in own), None)
        # What each call asks for, without the way through method and mark.
        self.kind, self.names = method.kind, method.arg_names
        self.limit, self.thread = method.mark.concurrency, method.mark.thread
        self.running = 0

    def arguments(self, body: msgspec.Raw) -> dict[str, Any]:
        """The validated arguments, by name. Raises msgspec.DecodeError."""
        args = self.decoder.decode(body)
        return {name: getattr(args, name) for name in self.names}


class ActiveCall:
    """A call that has no terminal answer yet."""

    __slots__ = (
        "answer", "began", "call_id", "handler", "identity", "inlet", "inlet_left", "inlet_seq", "item_bytes", "items",
        "outlet", "seq", "span",
    )  # fmt: skip

    def __init__(self, identity: bytes, call_id: int, handler: Handler, began: float, span: Span | None) -> None:
        self.identity = identity
        self.call_id = call_id
        self.handler = handler
        self.began = began
        self.span = span
        self.answer: Deferred[Any] | None = None
        self.outlet: Outlet[Any] | None = None
        self.inlet: Inlet[Any] | None = None
        self.inlet_seq = self.inlet_left = 0
        """Number of the next item that the caller sends; how many it may send."""
        self.seq = 0
        """Number of the next item."""
        self.items: list[msgspec.Raw] = []
        self.item_bytes = 0
        """Items that the end of the turn sends, and their size: those of one turn go in one message."""

    def abandon(self, error: ZmqEngineError) -> None:
        """The asking side is gone, has cancelled, or its deadline has passed."""
        if self.outlet is not None:
            self.outlet.abandon(error)
        elif self.answer is not None:
            self.answer.abandon(error)


class Dispatcher:
    """Dispatches the messages of one service incarnation."""

    def __init__(
        self,
        port: PortLike,
        runner: Runner,
        handlers: dict[str, Handler],
        *,
        where: str,
        incarnation: str,
        describe: Callable[[], Any],
        max_in_flight: int = 10_000,
        touched: Callable[[], object] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """touched: called when something is to be flushed, by a loop whose handlers also run outside of its turns."""
        self.port = port
        self._touched = touched
        self.tracer: Tracer | None = None
        self.refusal: Callable[[], ZmqEngineError | None] = lambda: None
        self.calls = self.malformed = self.refused_tells = 0
        self.last_malformed = ""
        self._log_tells_at = float("-inf")
        self.latencies = Latencies()
        """Of the calls answered in the last minute or so."""
        self._forget_latencies_at = clock() + LATENCIES_S
        self.used = False
        """The port was used; whoever waits on its descriptor clears it, and looks whether that took the edge."""
        self.lifecycle: dict[Kind, Callable[[bytes, Envelope], object]] = {}
        self._runner = runner
        self._handlers = handlers
        self._where = where
        self._incarnation = incarnation
        self._describe = describe
        self._max_in_flight = max_in_flight
        self._clock = clock
        self._active: dict[tuple[bytes, int], ActiveCall] = {}
        self._deadlines: list[tuple[float, tuple[bytes, int]]] = []
        self._outbox: dict[bytes, list[bytes]] = {}
        self._streaming: list[ActiveCall] = []
        """Calls with items to be sent."""

    @property
    def in_flight(self) -> int:
        """Calls without a terminal answer."""
        return len(self._active)

    @property
    def blocked(self) -> bool:
        """Whether answers wait for a peer that does not read."""
        return bool(self._outbox)

    def receive(self, limit: int) -> bool:
        """Handle at most `limit` pending messages; whether there may be more."""
        self.used = True
        for _ in range(limit):
            received = self.port.receive()
            if received is None:
                return False
            self.handle(*received)
        return True

    def receive_one(self) -> None:
        """Handle the one message that the transport just told of."""
        received = self.port.receive_expected()
        if received is not None:
            self.handle(*received)

    def handle(self, identity: bytes, frames: list[bytes]) -> None:
        """Handle one message. Nothing that a peer sends raises."""
        try:
            for kind, message in envelope.decode_message(frames):
                self._handle_one(identity, kind, message)
        except RemoteProtocolError as error:
            # Without an envelope there is no call to answer: ERROR for call 0 tells the peer that it is not understood.
            self.malformed += 1
            self.last_malformed = str(error)
            self._put(identity, envelope.encode(Kind.ERROR, body=to_wire(error)))

    def _handle_one(self, identity: bytes, kind: Kind, message: Envelope) -> None:
        if kind is Kind.CALL or kind is Kind.TELL:
            self._begin(identity, kind, message)
        elif kind is Kind.CANCEL:
            call = self._active.get((identity, message.call_id))
            if call is not None:
                call.abandon(Cancelled("cancelled by the caller"))
        elif kind is Kind.CREDIT:
            call = self._active.get((identity, message.call_id))
            if call is not None and call.outlet is not None and message.credit is not None:
                items, size = message.credit
                if items < 0 or size < 0:
                    raise RemoteProtocolError("CREDIT must not be negative")
                call.outlet.grant(items, size)
        elif kind is Kind.ITEM or kind is Kind.END:
            call = self._active.get((identity, message.call_id))
            if call is not None:  # else it has its answer, and the caller will stop when it gets it
                self._take_in(call, kind, message)
        elif kind in self.lifecycle:
            self._live(identity, kind, message)
        else:
            raise RemoteProtocolError(f"{kind.name} is not taken on this socket")

    def _live(self, identity: bytes, kind: Kind, message: Envelope) -> None:
        """One of the lifecycle kinds. A fault of ours costs neither its sender an answer nor others theirs."""
        try:
            self.lifecycle[kind](identity, message)
        except RemoteProtocolError:
            raise
        except Exception as error:
            log.exception("could not handle %s", kind.name)
            if message.call_id:  # else nobody waits for an answer
                self._error(identity, message.call_id, error)

    def _begin(self, identity: bytes, kind: Kind, message: Envelope) -> None:
        self.calls += 1
        key = (identity, message.call_id)
        try:
            handler, args = self._admit(key, kind, message)
        except ZmqEngineError as error:
            if kind is Kind.CALL:
                self._error(identity, message.call_id, error)
            else:
                self._tell_refused(message.method, error)
            return
        if handler is None:
            self._put(identity, envelope.encode(Kind.REPLY, call_id=message.call_id, body=self._describe()))
        elif message.traceparent is None and self.tracer is None:
            self._run(identity, kind, message, handler, args, None)
        else:
            self._run_traced(identity, kind, message, handler, args)

    def _run_traced(
        self, identity: bytes, kind: Kind, message: Envelope, handler: Handler, args: dict[str, Any]
    ) -> None:
        """Run a call within the trace that it came with."""
        traceparent = message.traceparent
        if traceparent is not None and not trace.is_valid(traceparent):
            traceparent = None
        span = None if self.tracer is None else self.tracer.begin(handler.name, traceparent)
        token = trace.current.set(traceparent if span is None else span.traceparent)
        try:
            self._run(identity, kind, message, handler, args, span)
        finally:
            trace.current.reset(token)

    def _admit(self, key: tuple[bytes, int], kind: Kind, message: Envelope) -> tuple[Handler | None, dict[str, Any]]:
        """The handler and its arguments, or the reason why the call is not begun. None: the built-in describe."""
        if message.incarnation and message.incarnation != self._incarnation:
            raise StaleIncarnation(f"this is incarnation {self._incarnation}, not {message.incarnation}")
        if message.method == wire.DESCRIBE:
            return None, {}
        handler = self._handlers.get(message.method)
        if handler is None:
            raise NotFound(f"{self._where} has no method {message.method[:80]!r}; it has {', '.join(self._handlers)}")
        if (handler.kind == "tell") != (kind is Kind.TELL):
            raise InvalidArgument(
                f"{self._where} {message.method} is of kind {handler.kind}, and was sent a {kind.name.lower()}"
            )
        if key in self._active:
            raise InvalidArgument(f"call id {key[1]} is in flight already")
        refusal = self.refusal()
        if refusal is not None:
            raise refusal
        limit = handler.limit
        if len(self._active) >= self._max_in_flight or (limit is not None and handler.running >= limit):
            raise Overloaded(
                f"{message.method}: {handler.running} calls of it and {len(self._active)} in all are in progress",
                retry_after_s=OVERLOADED_RETRY_S,
            )
        try:
            return handler, handler.arguments(message.body)
        except (msgspec.DecodeError, RecursionError) as error:
            where = f"{self._where} {message.method}"
            raise InvalidArgument(envelope.describe_fault(error, where), field=envelope.fault_field(error)) from None

    def _tell_refused(self, method: str, error: ZmqEngineError) -> None:
        """Nobody is there to be told: it is counted, and logged once a second at most, for a peer may send many."""
        self.refused_tells += 1
        now = self._clock()
        if now >= self._log_tells_at:
            self._log_tells_at = now + LOG_TELLS_S
            log.warning("%.80s: a tell was refused (%d so far): %s", method, self.refused_tells, error)

    def _run_tell(self, handler: Handler, args: dict[str, Any], span: Span | None) -> None:
        def done(answer: Deferred[Any]) -> None:
            if answer.error is not None:
                log.error("tell %s failed: %s", handler.name, answer.error, exc_info=answer.error)
            if span is not None:
                span.end(answer.error)

        answer: Deferred[Any] = Deferred()
        answer.add_done_callback(done)
        try:
            self._settle(answer, handler.function(**args))
        except Exception as error:
            answer.reject(error)

    def _run(
        self, identity: bytes, kind: Kind, message: Envelope, handler: Handler, args: dict[str, Any], span: Span | None
    ) -> None:
        if kind is Kind.TELL:
            self._run_tell(handler, args, span)
            return
        now = self._clock()
        call = ActiveCall(identity, message.call_id, handler, now, span)
        if handler.inlet is not None:
            args[handler.inlet.name] = call.inlet = self._open_inlet(call)
        deadline = None
        if message.budget_ms is not None:
            deadline = now + message.budget_ms / 1000
        if call.handler.kind == "call":
            self._run_call(call, args, deadline)
        else:
            self._run_stream(call, args, deadline, message.credit or (wire.STREAM_ITEMS, wire.STREAM_BYTES))

    def _run_call(self, call: ActiveCall, args: dict[str, Any], deadline: float | None) -> None:
        handler = call.handler
        if handler.thread:
            answer: Deferred[Any] = Deferred()
            self._track(call, deadline)
            self._runner.run_in_thread(lambda: handler.function(**args), answer)
            self._await(call, answer)
            return
        try:
            result = handler.function(**args)
        except Exception as error:
            self._failed(call, error)
            return
        if isinstance(result, _LATER):
            self._track(call, deadline)
            answer = Deferred()
            call.answer = answer
            self._settle(answer, result)
            self._await(call, answer)
        else:
            self._reply(call, result)

    def _settle(self, answer: Deferred[Any], result: Any) -> None:
        """Make `answer` the outcome of what a handler returned, and let a cancellation reach it."""
        if isinstance(result, Deferred):
            answer.on_cancel(lambda: result.abandon(answer.error or Cancelled("cancelled")))
            result.add_done_callback(
                lambda d: answer.reject(d.error) if d.error is not None else answer.resolve(d.value)
            )
        elif inspect.iscoroutine(result):
            self._runner.run_coroutine(result, answer)
        else:
            answer.resolve(result)

    def _await(self, call: ActiveCall, answer: Deferred[Any]) -> None:
        call.answer = answer

        def answered(done: Deferred[Any]) -> None:
            self._untrack(call)
            if done.error is None:
                self._reply(call, done.value)
            else:
                self._failed(call, done.error)

        answer.add_done_callback(answered)

    def _open_inlet(self, call: ActiveCall) -> Inlet[Any]:
        window = (wire.STREAM_ITEMS, wire.STREAM_BYTES)

        def grant(items: int, size: int) -> None:
            call.inlet_left += items
            self._put(call.identity, envelope.encode(Kind.CREDIT, call_id=call.call_id, credit=(items, size)))

        grant(*window)
        return Inlet(window, grant, lambda error: None, None)

    def _take_in(self, call: ActiveCall, kind: Kind, message: Envelope) -> None:
        """Items of the stream that a caller sends along, or its end."""
        inlet, incoming = call.inlet, call.handler.inlet
        if inlet is None or incoming is None:
            raise RemoteProtocolError(f"{self._where} {call.handler.name}: its caller sends nothing along")
        if kind is Kind.END:
            inlet.finish(None)
            return
        where = f"{self._where} {call.handler.name}.{incoming.name}"
        try:
            if message.seq != call.inlet_seq:
                raise InvalidArgument(f"{where}: item {message.seq} came where {call.inlet_seq} was due")
            items = incoming.decoder.decode(message.body)
            call.inlet_seq += len(items)
            call.inlet_left -= len(items)
            if not items or call.inlet_left < 0:
                raise InvalidArgument(f"{where}: {len(items)} items came, beyond the credit", field=incoming.name)
        except (msgspec.DecodeError, RecursionError) as error:
            field = f"{incoming.name}{envelope.fault_field(error) or ''}"
            call.abandon(InvalidArgument(envelope.describe_fault(error, where), field=field))
        except InvalidArgument as error:
            call.abandon(error)
        else:
            inlet.deliver(items, envelope.size_of_items(message.body, len(items)))

    def _run_stream(
        self, call: ActiveCall, args: dict[str, Any], deadline: float | None, credit: tuple[int, int]
    ) -> None:
        outlet: Outlet[Any] = Outlet(
            credit, lambda item: self._item(call, item), lambda error: self._end(call, error), deadline
        )
        call.outlet = outlet
        self._track(call, deadline)
        handler = call.handler
        if handler.injects is not None:
            args[handler.injects] = outlet
        try:
            result = handler.function(**args)
        except Exception as error:
            outlet.fail(error)
            return
        if inspect.isasyncgen(result):
            self._runner.run_async_generator(result, outlet)
        elif inspect.isgenerator(result):
            self._runner.run_generator(result, outlet)
        elif inspect.iscoroutine(result):
            answer: Deferred[Any] = Deferred()
            answer.add_done_callback(lambda d: outlet.end() if d.error is None else outlet.fail(d.error))
            self._runner.run_coroutine(result, answer)
        elif result is not None:
            outlet.fail(TypeError(f"{handler.method.name}: a stream's handler returned {type(result).__name__}"))

    def _item(self, call: ActiveCall, item: Any) -> int:
        """Queue an item for the end of this turn; its size."""
        raw = envelope.encode_item(item, call.handler.name)
        size = len(raw)
        if not call.items:
            self._streaming.append(call)
            if self._touched is not None:
                self._touched()
        elif call.item_bytes + size > wire.MAX_BATCH_BYTES:
            self._put_items(call)
            self._streaming.append(call)
        call.items.append(raw)
        call.item_bytes += size
        return size

    def _put_items(self, call: ActiveCall) -> None:
        if call.items:
            frame = envelope.encode_items(call.call_id, call.seq, call.items)
            call.seq += len(call.items)
            call.items, call.item_bytes = [], 0
            self._put(call.identity, frame)

    def _end(self, call: ActiveCall, error: BaseException | None) -> None:
        self._put_items(call)
        self._untrack(call)
        if error is None:
            self._put(call.identity, envelope.encode(Kind.END, call_id=call.call_id, seq=call.seq))
            self._answered(call, None)
        else:
            self._failed(call, error)

    def _reply(self, call: ActiveCall, value: Any) -> None:
        try:
            frame = envelope.encode_reply(call.call_id, value, call.handler.name)
        except LocalProtocolError as error:
            log.error("%s: its answer cannot be sent: %s", call.handler.name, error)
            self._error(call.identity, call.call_id, error)
            self._answered(call, error)
            return
        self._put(call.identity, frame)
        self._answered(call, None)

    def _failed(self, call: ActiveCall, error: BaseException) -> None:
        """The terminal answer of a call that was begun is an error."""
        self._log_unexpected(call.handler, error)
        self._error(call.identity, call.call_id, error)
        self._answered(call, error)

    def _answered(self, call: ActiveCall, error: BaseException | None) -> None:
        """A call that was begun has got its terminal answer."""
        now = self._clock()
        self.latencies.add(now - call.began)
        if now >= self._forget_latencies_at:
            self._forget_latencies_at = now + LATENCIES_S
            self.latencies.forget()
        if call.span is not None:
            call.span.end(error)

    def _error(self, identity: bytes, call_id: int, error: BaseException) -> None:
        self._put(identity, envelope.encode(Kind.ERROR, call_id=call_id, body=to_wire(error)))

    @staticmethod
    def _log_unexpected(handler: Handler, error: BaseException) -> None:
        if not isinstance(error, (RemoteError, Cancelled, DeadlineExceeded)):
            log.error("%s failed", handler.method.name, exc_info=error)

    def _track(self, call: ActiveCall, deadline: float | None) -> None:
        key = (call.identity, call.call_id)
        self._active[key] = call
        call.handler.running += 1
        if deadline is not None:
            heapq.heappush(self._deadlines, (deadline, key))

    def _untrack(self, call: ActiveCall) -> None:
        if self._active.pop((call.identity, call.call_id), None) is not None:
            call.handler.running -= 1
        if call.inlet is not None:
            call.inlet.finish(Cancelled("the call has its answer"))

    def _put(self, identity: bytes, frame: bytes) -> None:
        queue = self._outbox.get(identity)
        if queue is not None:
            queue.append(frame)
            return
        self._outbox[identity] = [frame]
        if self._touched is not None:
            self._touched()

    def reply_to(self, identity: bytes, kind: Kind, call_id: int, body: Any) -> None:
        """Answer a lifecycle message."""
        self._put(identity, envelope.encode(kind, call_id=call_id, body=body))

    def flush(self) -> None:
        """Send what is pending, one message per peer where it fits. What a full peer does not take stays pending."""
        if self._streaming:
            streaming, self._streaming = self._streaming, []
            for call in streaming:
                self._put_items(call)
        if not self._outbox:
            return
        self.used = True
        outbox, self._outbox = self._outbox, {}
        for identity, frames in outbox.items():
            if len(frames) > 1 or self.port.send(identity, frames[0]) is not Sent.OK:
                self._flush_peer(identity, frames)

    def _flush_peer(self, identity: bytes, frames: list[bytes]) -> None:
        messages = list(envelope.coalesce(frames)) if len(frames) > 1 else frames
        for index, message in enumerate(messages):
            sent = self.port.send(identity, message)
            if sent is Sent.GONE:
                self.peer_gone(identity)
                return
            if sent is Sent.FULL:
                rest = [frame for m in messages[index:] for frame in envelope.members(m)]
                self._outbox[identity] = rest + self._outbox.get(identity, [])
                return

    def peer_gone(self, identity: bytes) -> None:
        """A peer went away: everything it asked for is cancelled."""
        for call in [c for (peer, _), c in self._active.items() if peer == identity]:
            call.abandon(Cancelled("the caller went away"))
        self._outbox.pop(identity, None)

    def next_deadline(self) -> float | None:
        """Monotonic time at which the next call is late; None if none will be."""
        while self._deadlines and self._deadlines[0][1] not in self._active:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def expire(self) -> None:
        """Answer the calls whose budget is spent."""
        now = self._clock()
        while self._deadlines and self._deadlines[0][0] <= now:
            _, key = heapq.heappop(self._deadlines)
            call = self._active.get(key)
            if call is not None:
                call.abandon(DeadlineExceeded(f"{self._where} {call.handler.method.name}: its budget is spent"))

    def abandon_all(self, reason: str) -> None:
        """The service stops: give every call that is in flight its terminal answer."""
        for call in list(self._active.values()):
            call.abandon(Unavailable(reason))
        self.flush()
