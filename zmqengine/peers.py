"""The services that somebody talks to, by name: each resolved when first called, and followed to new incarnations."""

from __future__ import annotations

from collections.abc import Mapping

from .deferred import Deferred
from .errors import Unavailable
from .interface import Interface
from .loop import Loop
from .peer import Location, Peer, Route


class Peers:
    """Routes of one loop; all peers of one name share a connection."""

    def __init__(
        self, loop: Loop, *, broker: str = "", given: Mapping[str, str] | None = None, owner: str = "this client",
        keys: Mapping[str, str] | None = None, run_dir: str = "",
    ) -> None:  # fmt: skip
        """broker: endpoint of the run's broker, empty without one. given: endpoints by name, which go before the
        broker's. owner: who asks, for messages. keys: CURVE public keys of given endpoints that have one, by name.
        run_dir: whose own keys are shown to peers."""
        self._loop = loop
        self._broker_endpoint = broker
        self._given = given or {}
        self._owner = owner
        self._keys = keys or {}
        self._run_dir = run_dir
        self._routes: dict[str, Route] = {}
        self._broker: Route | None = None

    def peer(self, name: str, interface: type[Interface]) -> Peer:
        """A service, by name."""
        return Peer(self.route(name), interface)

    def route(self, name: str) -> Route:
        """The connection behind a name."""
        if name not in self._routes:
            self._routes[name] = Route(self._loop, name, self._resolve, self._run_dir)
        return self._routes[name]

    def _resolve(self, name: str) -> Deferred[Location]:
        given = self._given.get(name)
        answer: Deferred[Location] = Deferred()
        if given is not None:
            answer.resolve(Location(name=name, incarnation="", endpoint=given, server_key=self._keys.get(name, "")))
            return answer
        if not self._broker_endpoint:
            answer.reject(Unavailable(f"{self._owner} runs alone and was not told where {name!r} is (--peer)"))
            return answer
        from .broker_interface import BrokerInterface

        if self._broker is None:
            self._broker = Route(self._loop, "broker", lambda _: _resolved(self._broker_endpoint))
        # Waits as long as it takes: the calls behind it have deadlines of their own.
        call: Deferred[Location] = self._broker.connection().call(
            BrokerInterface.methods["resolve"], {"name": name, "wait": True}, None
        )
        return call


def _resolved(endpoint: str) -> Deferred[Location]:
    answer: Deferred[Location] = Deferred()
    answer.resolve(Location(name="broker", incarnation="", endpoint=endpoint))
    return answer
