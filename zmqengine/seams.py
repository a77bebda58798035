"""What the parts of the toolkit need of one another, where more than one thing can be in the place of a part.

For type checkers alone, and imported by nothing at run time: to make a Protocol costs a millisecond of every start.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from .deferred import Deferred
from .errors import PeerLost
from .interface import Method
from .streams import Outlet
from .transport import Sent


class LinkLike(Protocol):
    """What a connection needs of its transport (`transport.Link`, or one in memory for tests)."""

    peer: str
    lost: PeerLost | None

    def receive(self) -> list[bytes] | None: ...
    def send(self, frame: bytes) -> bool: ...
    def close(self) -> None: ...


class PortLike(Protocol):
    """What the dispatcher needs of its transport (`transport.Port`, or one in memory for tests)."""

    endpoint: str

    def receive(self) -> tuple[bytes, list[bytes]] | None: ...
    def receive_expected(self) -> tuple[bytes, list[bytes]] | None: ...
    def send(self, identity: bytes, frame: bytes) -> Sent: ...
    def close(self) -> None: ...


class Runner(Protocol):
    """How a handler that is no plain function is run; the service's loop implements it."""

    def run_coroutine(self, coroutine: Any, answer: Deferred[Any]) -> None: ...
    def run_async_generator(self, generator: Any, outlet: Outlet[Any]) -> None: ...
    def run_generator(self, generator: Any, outlet: Outlet[Any]) -> None: ...
    def run_in_thread(self, function: Callable[[], Any], answer: Deferred[Any]) -> None: ...


class Declared(Protocol):
    """What tells the methods of a service: its `Interface`, or its own description."""

    @property
    def protocol(self) -> str: ...
    @property
    def methods(self) -> Mapping[str, Method]: ...
