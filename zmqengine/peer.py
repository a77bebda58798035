"""A service's (or an asyncio program's) view of another service: its methods, called from a loop without blocking."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from . import transport, wire
from .connection import Connection, NoLink
from .deferred import Deferred
from .errors import PeerLost, UsageError, ZmqEngineError
from .interface import Method
from .loop import Loop
from .message import Message
from .streams import Stream

if TYPE_CHECKING:
    from .retry import Policy
    from .seams import Declared

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
    server_key: str = ""
    """CURVE public key that it has to prove to have; empty: it is served in plain."""


def dial(location: Location, peer: str, run_dir: str = "") -> transport.Link:
    """A link to a service, with the keys of the run (else the user's) where it is served with CURVE. peer: its name,
    for messages. Raises ConfigError that says what to do where keys are missing."""
    client = None
    if location.server_key:
        from .keys import folder_of  # most clients have no need of keys

        client = folder_of(run_dir).client(location.server_key)
    return transport.Link(location.endpoint, peer, client)


def take_feed(method: Method, kwargs: dict[str, Any]) -> Any:
    """The iterable that goes along with a call, taken out of its arguments. Raises UsageError where it is missing."""
    assert method.inlet is not None
    if method.inlet.name not in kwargs:
        raise UsageError(f"{method.name}: {method.inlet.name}=ITERABLE is missing: its items go along with the call")
    return kwargs.pop(method.inlet.name)


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

    def __init__(self, loop: Loop, name: str, resolve: Callable[[str], Deferred[Location]], run_dir: str = "") -> None:
        """run_dir: whose keys are shown to peers that are served with CURVE."""
        self._loop = loop
        self._name = name
        self._run_dir = run_dir
        self._resolve = resolve
        self._connection: Connection | None = None
        self._listeners: list[Callable[[Location], object]] = []
        self._retired: list[Connection] = []

    @property
    def loop(self) -> Loop:
        """The loop that drives it."""
        return self._loop

    @property
    def incarnation(self) -> str:
        """The incarnation that calls go to; empty while it is not known."""
        return "" if self._connection is None else self._connection.incarnation

    def on_attach(self, callback: Callable[[Location], object]) -> None:
        """Have `callback` called with each incarnation that is connected to."""
        self._listeners.append(callback)

    def connection(self) -> Connection:
        """A connection that is not broken; its calls wait until the name is resolved."""
        current = self._connection
        if current is not None and current.broken is None and not current.superseded:
            return current
        self._retire(current)
        fresh = Connection(NoLink(self._name), touched=self._loop.touch, clock=self._loop.clock)
        fresh.reroute = lambda call: self.connection().resend(call)
        self._connection = fresh
        self._loop.add_connection(fresh)
        self._resolve(self._name).add_done_callback(lambda found: self._attach(fresh, found))
        return fresh

    def _retire(self, connection: Connection | None) -> None:
        """Let what is in flight on superseded connections end, then close them."""
        retired = self._retired if connection is None else [*self._retired, connection]
        self._retired = [old for old in retired if old.broken is None and old.in_flight]
        for old in retired:
            if old not in self._retired:
                self._loop.remove_connection(old)

    def _attach(self, connection: Connection, found: Deferred[Location]) -> None:
        if connection.broken is not None:
            return
        if found.error is not None:
            error = found.error
            connection.fail(error if isinstance(error, ZmqEngineError) else PeerLost(f"{self._name}: {error}"))
            return
        location = found.value
        try:
            link = dial(location, self._name, self._run_dir)
        except ZmqEngineError as error:  # it cannot be dialled so, as the message says
            connection.fail(error)
            return
        connection.attach(link, location.incarnation)
        self._loop.touch()
        for listener in self._listeners:
            listener(location)


class Peer:
    """Call a peer's methods as attributes: a call gives a `Deferred`, a stream a `Stream`, a tell None."""

    def __init__(
        self, route: Route, interface: Declared, deadline_s: float | None = None,
        window: tuple[int, int] = (wire.STREAM_ITEMS, wire.STREAM_BYTES), retry: Policy | None = None,
        bound: bool = False,
    ) -> None:  # fmt: skip
        self._route = route
        self._interface = interface
        self._deadline_s = deadline_s
        self._window = window
        self._retry = retry
        self._bound = bound

    def options(
        self, *, deadline_s: float | None = None, credit: int | None = None, retry: Policy | None = None,
        bound: bool | None = None,
    ) -> Peer:  # fmt: skip
        """The same peer with other options for its calls: a budget in seconds, a stream's credit in items, retries
        within the budget (of idempotent calls whose peer was lost, is not ready or is overloaded, and of any that
        another incarnation has to answer). bound: its calls are meant for the incarnation that they are sent to, whose
        state they count on: where another one serves by then, they fail with StaleIncarnation instead of going there.
        """
        return Peer(
            self._route, self._interface, self._deadline_s if deadline_s is None else deadline_s,
            self._window if credit is None else (credit, self._window[1]), self._retry if retry is None else retry,
            self._bound if bound is None else bound,
        )  # fmt: skip

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

        kind, route, policy, bound = method.kind, self._route, self._retry, self._bound
        deadline_s = CALL_DEADLINE_S if self._deadline_s is None else self._deadline_s

        if method.inlet is not None:
            return self._feeding(method, deadline_s)

        def invoke(*args: Any, **kwargs: Any) -> Any:
            message = bind_arguments(method, args, kwargs)
            if policy is not None and kind == "call":
                return _Again(route, method, message, deadline_s, policy).answer
            connection = route.connection()
            if kind == "call":
                return connection.call(method, message, deadline_s, None, bound)
            if kind != "tell":
                return connection.open(method, message, self._deadline_s, self._window, None)
            return connection.tell(method, message)

        self.__dict__[name] = invoke  # found at once the next time
        return invoke

    def _feeding(self, method: Method, deadline_s: float) -> Callable[..., Any]:
        """Calls of a method that its caller sends items along with. They are not made again: the items are gone."""

        def invoke(*args: Any, **kwargs: Any) -> Any:
            source = take_feed(method, kwargs)
            message, connection = bind_arguments(method, args, kwargs), self._route.connection()
            begun: Deferred[Any] | Stream[Any]
            if method.kind == "call":
                begun = connection.call(method, message, deadline_s)
            else:
                begun = connection.open(method, message, self._deadline_s, self._window, None)
            connection.feed(begun, source)
            return begun

        return invoke


class _Again:
    """One call on a loop, made again as its policy says, until `answer` has its outcome."""

    def __init__(self, route: Route, method: Method, message: Any, budget_s: float, policy: Policy) -> None:
        self.answer: Deferred[Any] = Deferred()
        self._route, self._method, self._message, self._policy = route, method, message, policy
        self._until = route.loop.clock() + budget_s
        self._attempts = 0
        self._give_up: Callable[[], object] = lambda: None
        self.answer.on_cancel(lambda: self._give_up())
        self._attempt()

    def _attempt(self) -> None:
        self._attempts += 1
        left_s = max(0.0, self._until - self._route.loop.clock())
        call = self._route.connection().call(self._method, self._message, left_s)
        self._give_up = call.cancel
        call.add_done_callback(self._ended)

    def _ended(self, call: Deferred[Any]) -> None:
        from .retry import may_call_again, pause_s  # tenacity takes 0.1 s to import

        if self.answer.done:
            return
        error = call.error
        if error is None:
            self.answer.resolve(call.value)
            return
        pause = pause_s(self._policy, self._attempts, error)
        late = self._route.loop.clock() + pause >= self._until
        if late or not may_call_again(error, idempotent=self._method.mark.idempotent):
            self.answer.reject(error)
        else:
            self._give_up = self._route.loop.call_later(pause, self._attempt).cancel
