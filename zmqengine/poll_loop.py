"""The loop of a service of plain handlers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from . import transport
from .connection import Connection
from .dispatcher import Dispatcher
from .loop import Loop


class PollLoop(Loop):
    """Waits in zmq's poller."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(clock)
        self._waiter = transport.Waiter()
        self._waiter.add(self._waker, self._woken)
        self._ready: set[Connection] = set()
        self._writing: set[Connection] = set()
        self._watched: dict[Connection, tuple[Any, Any]] = {}
        self._port_ready = True
        self._more = True
        """The last turn left something to do; before the first one, there may be."""

    def serve(self, dispatcher: Dispatcher) -> None:
        super().serve(dispatcher)
        self._waiter.add(dispatcher.port.socket, self._port_is_ready)  # type: ignore[attr-defined]

    def watch_fd(self, fd: int, callback: Callable[[], object]) -> None:
        """Call back whenever a file descriptor is readable."""
        self._waiter.add(fd, callback)

    def _port_is_ready(self) -> None:
        self._port_ready = True

    def remove_connection(self, connection: Connection) -> None:
        for source in self._watched.pop(connection, ()):
            self._waiter.remove(source)
        self._writing.discard(connection)
        super().remove_connection(connection)

    def _watch(self, connection: Connection) -> None:
        """Wait for a connection's sockets, and for room to write where it needs it."""
        link = connection.link
        if not isinstance(link, transport.Link):
            return
        wants = connection.wants_write
        if connection not in self._watched:
            self._watched[connection] = (link.socket, link.monitor)
            self._waiter.add(link.monitor, lambda: self._saw(link, connection), edge=True)
            self._saw(link, connection)
        elif wants == (connection in self._writing):
            return
        (self._writing.add if wants else self._writing.discard)(connection)
        self._waiter.add(link.socket, lambda: self._ready.add(connection), writable=wants)

    def _saw(self, link: transport.Link, connection: Connection) -> None:
        link.watch()
        self._ready.add(connection)

    def run_once(self, timeout_s: float | None) -> None:
        """Wait for news at most timeout_s, then do one turn."""
        for connection in self._connections:
            self._watch(connection)
        due = self._next_due()
        if self._more:
            timeout_s, self._more = 0.0, False
        elif due is not None:
            left = max(0.0, due - self.clock())
            timeout_s = left if timeout_s is None else min(left, timeout_s)
        slept = self._waiter.wait(timeout_s)
        ready, self._ready = self._ready, set()
        receive, self._port_ready = self._port_ready, False
        if self._work(ready, receive, alone=slept):
            self._port_ready = self._more = True

    def run(self) -> None:
        """Turn until stopped."""
        self._thread = threading.get_ident()
        while not self.stopping:
            self.run_once(None)

    def close(self) -> None:
        """Close what the loop drives."""
        self._close_all()
