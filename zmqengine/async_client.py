"""The asyncio client: `aconnect` to a service by name or endpoint, and await its methods."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import wire
from .asyncio_loop import AsyncioLoop
from .client import untyped_methods
from .errors import UsageError
from .interface import Interface, Mark, Method
from .peer import CALL_DEADLINE_S, Peer
from .peers import Peers

if TYPE_CHECKING:
    from .retry import Policy


@dataclass(frozen=True, slots=True)
class _Described:
    """A service as it describes itself, for a client that has no interface: answers are plain values."""

    protocol: str
    methods: dict[str, Method]


class AsyncClient:
    """A service, called from an asyncio program. It belongs to the event loop that it was made on.

    ``await client.add(amount=3)`` is a call; without the await it is one in flight. ``async for item in
    client.count_to(10)`` reads a stream. A new incarnation of the service is followed; calls in flight to one that dies
    fail with PeerLost.
    """

    def __init__(
        self, peers: Peers, loop: AsyncioLoop, target: str, interface: type[Interface] | None, deadline_s: float | None
    ) -> None:
        self._loop = loop
        self._route = peers.route(target)
        self._deadline_s = deadline_s
        self._peer = None if interface is None else Peer(self._route, interface, deadline_s)

    def options(
        self, *, deadline_s: float | None = None, credit: int | None = None, retry: Policy | None = None
    ) -> Peer:
        """The same service with other options for its calls, as `Peer.options` has them."""
        return self._known().options(deadline_s=deadline_s, credit=credit, retry=retry)

    async def describe(self) -> dict[str, Any]:
        """The service's schema, as it tells it."""
        mark = Mark("call", True, None, False)
        method = Method(wire.DESCRIBE, mark, dict, (), dict[str, Any], "")  # type: ignore[arg-type]
        budget = CALL_DEADLINE_S if self._deadline_s is None else self._deadline_s
        schema: dict[str, Any] = await self._route.connection().call(method, {}, budget)
        return schema

    async def close(self) -> None:
        """Close it; calls in flight fail."""
        await self._loop.close()

    async def __aenter__(self) -> AsyncClient:
        if self._peer is None:
            schema = await self.describe()
            self._peer = Peer(self._route, _Described(schema["protocol"], untyped_methods(schema)), self._deadline_s)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        method: Callable[..., Any] = getattr(self._known(), name)
        self.__dict__[name] = method  # found at once the next time
        return method

    def _known(self) -> Peer:
        if self._peer is None:
            raise UsageError("a client without an interface asks the service for it: use `async with aconnect(...)`")
        return self._peer


def aconnect(
    target: str, interface: type[Interface] | None = None, *, run: str = "default", deadline_s: float | None = None,
    server_key: str = "",
) -> AsyncClient:  # fmt: skip
    """Connect to a service from a coroutine.

    target: a name in the run, or an endpoint (``ipc://...``). interface: its declaration, for typed answers; without
    it the service is asked for its schema. server_key: CURVE public key of an endpoint that is served with one. A
    service that is not READY is waited for, within each call's deadline. Raises NotFound (no such run).
    """
    from .discovery import broker_of, run_directory

    loop = AsyncioLoop()
    if "://" in target:
        peers = Peers(loop, given={target: target}, keys={target: server_key})
    else:
        broker = broker_of(run).endpoint
        peers = Peers(loop, broker=broker, given={"broker": broker}, run_dir=str(run_directory(run)))
    return AsyncClient(peers, loop, target, interface, deadline_s)
