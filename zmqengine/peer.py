"""A service's (or an asyncio program's) view of another service: its methods, called from a loop without blocking."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from . import transport, wire
from .connection import Connection, NoLink
from .deferred import Deferred
from .errors import PeerLost, UsageError, ZmqEngineError
from .interface import Method
from .loop import Loop
from .message import Message

log = logging.getLogger(__name__)

CALL_DEADLINE_S = 60.0
"""Budget of a call whose caller names none. A stream has none unless it is given one: its peer's death ends it."""


class Location(Message):
    """Where a service is served."""

    name: str
    incarnation: str
    endpoint: str
    protocol: str = ""
    schema: str = ""


def bind_arguments(method: Method, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The message of a call. Raises UsageError that names what is missing or too much."""
    names = method.arg_names
    # The usual ways to call come first: this is on the path of every call. A map of all arguments is their message.
    if not kwargs and len(args) == len(names):
        return dict(zip(names, args, strict=True))
    if not args:
        return _message(method, kwargs)
    if len(args) > len(method.arg_names):
        raise UsageError(f"{method.name} takes {len(method.arg_names)} arguments, but {len(args)} were given")
    named = dict(zip(method.arg_names, args, strict=False))
    twice = named.keys() & kwargs.keys()
    if twice:
        raise UsageError(f"{method.name}: {', '.join(sorted(twice))} given twice")
    named.update(kwargs)
    return _message(method, named)


def _message(method: Method, named: dict[str, Any]) -> Any:
    try:
        return method.args(**named)
    except TypeError as error:
        unknown = named.keys() - set(method.arg_names)
        if unknown:
            text = f"{method.name} has no argument {', '.join(sorted(unknown))}; it has {', '.join(method.arg_names)}"
            raise UsageError(text) from None
        raise UsageError(f"{method.name}: {error}") from None


class Route:
    """The connection behind a name: resolved when first used, and again when its peer was lost."""

    def __init__(self, loop: Loop, name: str, resolve: Callable[[str], Deferred[Location]]) -> None:
        self._loop = loop
        self._name = name
        self._resolve = resolve
        self._connection: Connection | None = None
        self._listeners: list[Callable[[Location], object]] = []

    @property
    def incarnation(self) -> str:
        """The incarnation that calls go to; empty while it is not known."""
        return "" if self._connection is None else self._connection.incarnation

    def on_attach(self, callback: Callable[[Location], object]) -> None:
        """Have `callback` called with each incarnation that is connected to."""
        self._listeners.append(callback)

    def connection(self) -> Connection:
        """A connection that is not broken; its calls wait until the name is resolved."""
        if self._connection is None or self._connection.broken is not None:
            if self._connection is not None:
                self._loop.remove_connection(self._connection)
            fresh = Connection(NoLink(self._name), touched=self._loop.touch, clock=self._loop.clock)
            self._connection = fresh
            self._loop.add_connection(fresh)
            self._resolve(self._name).add_done_callback(lambda found: self._attach(fresh, found))
        return self._connection

    def _attach(self, connection: Connection, found: Deferred[Location]) -> None:
        if connection.broken is not None:
            return
        if found.error is not None:
            error = found.error
            connection.fail(error if isinstance(error, ZmqEngineError) else PeerLost(f"{self._name}: {error}"))
            return
        location = found.value
        connection.attach(transport.Link(location.endpoint, self._name), location.incarnation)
        self._loop.touch()
        for listener in self._listeners:
            listener(location)


class Declared(Protocol):
    """What tells the methods of a service: its `Interface`, or its own description."""

    @property
    def protocol(self) -> str: ...
    @property
    def methods(self) -> Mapping[str, Method]: ...


class Peer:
    """Call a peer's methods as attributes: a call gives a `Deferred`, a stream a `Stream`, a tell None."""

    def __init__(
        self, route: Route, interface: Declared, deadline_s: float | None = None,
        window: tuple[int, int] = (wire.STREAM_ITEMS, wire.STREAM_BYTES),
    ) -> None:  # fmt: skip
        self._route = route
        self._interface = interface
        self._deadline_s = deadline_s
        self._window = window

    def options(self, *, deadline_s: float | None = None, credit: int | None = None) -> Peer:
        """The same peer with other options for its calls: a budget in seconds, a stream's credit in items."""
        window = self._window if credit is None else (credit, self._window[1])
        return Peer(self._route, self._interface, self._deadline_s if deadline_s is None else deadline_s, window)

    @property
    def incarnation(self) -> str:
        """The incarnation that calls go to; empty while it is not known."""
        return self._route.incarnation

    def on_attach(self, callback: Callable[[Location], object]) -> None:
        """Have `callback` called with the location of each incarnation that is connected to."""
        self._route.on_attach(callback)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = self._interface.methods.get(name)
        if method is None:
            raise AttributeError(f"{self._interface.protocol} has no method {name!r}")

        kind, route = method.kind, self._route
        deadline_s = CALL_DEADLINE_S if self._deadline_s is None else self._deadline_s

        def invoke(*args: Any, **kwargs: Any) -> Any:
            message = bind_arguments(method, args, kwargs)
            connection = route.connection()
            if kind == "call":
                return connection.call(method, message, deadline_s)
            if kind == "stream":
                return connection.open(method, message, self._deadline_s, self._window, None)
            return connection.tell(method, message)

        self.__dict__[name] = invoke  # found at once the next time
        return invoke
