"""The blocking client: `connect` to a service by name or endpoint, and call its methods."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from . import transport, wire
from .connection import Connection
from .deferred import Deferred
from .errors import DeadlineExceeded, PeerLost, StaleIncarnation, UsageError
from .events import Event
from .interface import Incoming, Interface, Mark, Method
from .peer import CALL_DEADLINE_S, Location, bind_arguments, dial, take_feed
from .streams import Stream

if TYPE_CHECKING:
    from .retry import Policy

IDLE_S = 0.1
"""A client that was not used for so long looks first whether its peer is still there."""
FLUSH_AT = 32
"""Calls that are begun and not waited for are sent together; so many, at once, for the service can begin on them."""


class Client:
    """A connection to one service. It is not thread-safe: it belongs to the thread that made it, and says so.

    Methods are attributes: ``client.add(amount=3)`` waits for the answer, a stream method gives an iterator.
    ``client.begin.add(3)`` gives a `Deferred` for a call that is waited for later with `wait`. A service that was lost
    is looked up again with the next call, where the client knows it by name.
    """

    def __init__(
        self,
        location: Location,
        interface: type[Interface] | None = None,
        *,
        deadline_s: float | None = None,
        relocate: Callable[[], Location] | None = None,
        run_dir: str = "",
    ) -> None:
        """deadline_s: budget of each call, in seconds. relocate: finds the service again when it was lost. run_dir:
        whose keys are shown to a service that is served with CURVE; empty: the user's."""
        self._deadline_s = deadline_s
        self._relocate = relocate
        self._run_dir = run_dir
        self._thread = threading.get_ident()
        self._methods = interface.methods if interface is not None else None
        self._open(location)
        self.begin = _Begin(self)

    def _open(self, location: Location) -> None:
        self._link = dial(location, location.name or location.endpoint, self._run_dir)
        self._connection = Connection(self._link, incarnation=location.incarnation)
        self._waiter = transport.Waiter()
        self._waiter.add(self._link.socket, lambda: None)
        self._waiter.add(self._link.monitor, self._link.watch, edge=True)
        self._link.watch()
        self._writable = False
        self._used_at = time.monotonic()

    def _live(self) -> Connection:
        """The connection, or, where its peer is known to be lost, one to its successor."""
        now = time.monotonic()
        if now - self._used_at > IDLE_S:  # what happened meanwhile is better known before a call is begun
            self._link.watch()
            if self._link.lost is not None:
                self._connection.fail(self._link.lost)
        self._used_at = now
        if self._connection.broken is not None and self._relocate is not None:
            location = self._relocate()
            self._connection.close()
            self._open(location)
        return self._connection

    def options(self, *, deadline_s: float | None = None, retry: Policy | None = None) -> WithOptions:
        """The same client with other options for its calls: a budget in seconds; retries within it.

        What was not begun because another incarnation serves by now is always tried again; idempotent calls also when
        their peer was lost, is not ready, or is overloaded.
        """
        return WithOptions(self, deadline_s, retry)

    def describe(self) -> dict[str, Any]:
        """The service's schema, as it tells it."""
        mark = Mark("call", True, None, False)
        method = Method(wire.DESCRIBE, mark, dict, (), dict[str, Any], "")  # type: ignore[arg-type]
        answer: dict[str, Any] = self.wait(self._connection.call(method, {}, self._budget(None)))
        return answer

    def wait(self, answer: Deferred[Any], deadline_s: float | None = None) -> Any:
        """The value of a call that was begun. Raises its error, or DeadlineExceeded after deadline_s."""
        until = None if deadline_s is None else time.monotonic() + deadline_s
        while not answer.done:
            self.turn(until)
            if until is not None and not answer.done and time.monotonic() >= until:
                raise DeadlineExceeded(f"{self._link.peer}: waited {deadline_s:g} s")
        return answer.value

    def turn(self, until: float | None = None) -> None:
        """Wait for news, at most until the monotonic time `until`, and take it in."""
        if threading.get_ident() != self._thread:
            raise UsageError("a Client belongs to the thread that made it; make one in each thread")
        connection = self._connection
        connection.flush()
        due = connection.next_deadline()
        if until is not None:
            due = until if due is None else min(due, until)
        if not connection.wants_write and (due is None or due - time.monotonic() > transport.SOON_S):
            frames = self._link.receive_soon()
            if frames is not None:
                connection.take(frames)
                return
        if connection.wants_write != self._writable:
            self._writable = connection.wants_write
            self._waiter.add(self._link.socket, lambda: None, writable=self._writable)
        self._waiter.wait(None if due is None else due - time.monotonic())
        connection.turn()

    def idle(self, seconds: float) -> None:
        """Take in what comes for so long."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.turn(until)

    def close(self) -> None:
        """Close it; calls in flight fail."""
        self._relocate = None
        self._connection.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        invoke = self.__dict__[name] = self._invoker(self._method(name), None)  # found at once the next time
        return invoke

    def _method(self, name: str) -> Method:
        if self._methods is None:
            self._methods = untyped_methods(self.describe())
        method = self._methods.get(name)
        if method is None:
            raise UsageError(f"{self._link.peer} has no method {name!r}; it has {', '.join(sorted(self._methods))}")
        return method

    def _budget(self, deadline_s: float | None) -> float:
        return next(d for d in (deadline_s, self._deadline_s, CALL_DEADLINE_S) if d is not None)

    def _invoker(self, method: Method, deadline_s: float | None) -> Callable[..., Any]:
        def invoke(*args: Any, **kwargs: Any) -> Any:
            begun = self._start(method, deadline_s, args, kwargs)
            if not isinstance(begun, Deferred):
                return begun
            try:
                return self.wait(begun)
            except StaleIncarnation:  # not begun: its successor is asked, once
                if self._relocate is None or method.inlet is not None:
                    raise
                self._connection.fail(PeerLost(f"{self._link.peer}: another incarnation serves it now"))
                return self.wait(self._connection_call(method, deadline_s, args, kwargs))

        return invoke

    def _start(
        self, method: Method, deadline_s: float | None, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Deferred[Any] | Stream[Any] | None:
        if method.inlet is not None:
            source = take_feed(method, kwargs)
            begun = self._plain(method, deadline_s, args, kwargs)
            self._connection.feed(begun, source)  # type: ignore[arg-type]  # no tell takes an Inlet
            return begun
        return self._plain(method, deadline_s, args, kwargs)

    def _plain(
        self, method: Method, deadline_s: float | None, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Deferred[Any] | Stream[Any] | None:
        if method.kind == "call":
            return self._connection_call(method, deadline_s, args, kwargs)
        message, connection = bind_arguments(method, args, kwargs), self._live()
        if method.kind == "tell":
            connection.tell(method, message)
            connection.flush()
            return None
        window = (wire.STREAM_ITEMS, wire.STREAM_BYTES)
        limit = deadline_s if deadline_s is not None else self._deadline_s
        return connection.open(method, message, limit, window, self.turn)

    def _connection_call(
        self, method: Method, deadline_s: float | None, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Deferred[Any]:
        return self._live().call(method, bind_arguments(method, args, kwargs), self._budget(deadline_s))


class _Begin:
    """``client.begin.method(...)``: begin without waiting."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Callable[..., Any]:
        client = self._client
        method = client._method(name)

        if method.kind == "call" and method.inlet is None:
            deadline_s = client._budget(None)

            def begin(*args: Any, **kwargs: Any) -> Any:
                connection = client._live()
                answer = connection.call(method, bind_arguments(method, args, kwargs), deadline_s)
                if connection.unsent >= FLUSH_AT:
                    connection.flush()
                return answer
        else:

            def begin(*args: Any, **kwargs: Any) -> Any:
                return client._start(method, None, args, kwargs)

        self.__dict__[name] = begin  # found at once the next time
        return begin


class WithOptions:
    """``client.options(deadline_s=2).method(...)``."""

    def __init__(self, client: Client, deadline_s: float | None, retry: Policy | None) -> None:
        self._client = client
        self._deadline_s = deadline_s
        self._retry = retry

    def __getattr__(self, name: str) -> Callable[..., Any]:
        client, policy = self._client, self._retry
        method = client._method(name)
        if policy is None or method.kind != "call":
            return client._invoker(method, self._deadline_s)

        def invoke(*args: Any, **kwargs: Any) -> Any:
            from .retry import call_again  # tenacity takes 0.1 s to import

            return call_again(
                lambda left_s: client._invoker(method, left_s)(*args, **kwargs), policy,
                idempotent=method.mark.idempotent, budget_s=client._budget(self._deadline_s), sleep=client.idle,
            )  # fmt: skip

        return invoke


def untyped_methods(schema: dict[str, Any]) -> dict[str, Method]:
    """Methods read off a service's own description, for a client that has no interface: answers are plain values."""
    return {
        name: Method(
            name, Mark(described["kind"], described["idempotent"], None, False), dict,  # type: ignore[arg-type]
            tuple(described["args"].get("properties", ())), Any, described["doc"],
            msgspec.msgpack.Decoder(list[Event[Any]]) if described["kind"] == "event" else None,
            Incoming(described["inlet"]["name"], Any) if "inlet" in described else None,
        )
        for name, described in schema["methods"].items()
    }  # fmt: skip


def connect(
    target: str, interface: type[Interface] | None = None, *, run: str = "default", deadline_s: float | None = None,
    server_key: str = "",
) -> Client:  # fmt: skip
    """Connect to a service.

    target: a name in the run, or an endpoint (``ipc://...``). interface: its declaration, for typed answers; without
    it the service is asked for its schema. server_key: CURVE public key of an endpoint that is served with one. Raises
    NotFound (no such run or service) and Unavailable (not READY).
    """
    if "://" in target:
        location = Location(name=target, incarnation="", endpoint=target, server_key=server_key)
        return Client(location, interface, deadline_s=deadline_s)
    from .discovery import broker_of, resolve, run_directory

    def locate() -> Location:
        return broker_of(run) if target == "broker" else resolve(run, target)

    found, run_dir = locate(), str(run_directory(run))
    return Client(found, interface, deadline_s=deadline_s, relocate=locate, run_dir=run_dir)
