"""The loop of a service with `async def` handlers, and of asyncio programs that call services."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any

from . import transport
from .connection import Connection
from .deferred import Deferred
from .dispatcher import Dispatcher
from .errors import Unsupported
from .loop import Loop
from .streams import Outlet


class AsyncioLoop(Loop):
    """Lives on a running asyncio loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(clock)
        self.asyncio = asyncio.get_running_loop()
        self._scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0
        self._readers: dict[Connection | None, tuple[int, ...]] = {}
        self._unwatched: list[Connection] = []
        self._ready: set[Connection] = set()
        self._port_ready = False
        self._stopped = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()
        self.asyncio.add_reader(self._waker, self._woken)

    def serve(self, dispatcher: Dispatcher) -> None:
        super().serve(dispatcher)
        fd = dispatcher.port.socket.fileno()  # type: ignore[attr-defined]
        self._readers[None] = (fd,)
        self.asyncio.add_reader(fd, self._port_is_ready)
        self._port_ready = True
        self.touch()

    def add_connection(self, connection: Connection) -> None:
        super().add_connection(connection)
        self._unwatched.append(connection)
        self.touch()

    def remove_connection(self, connection: Connection) -> None:
        for fd in self._readers.pop(connection, ()):
            self.asyncio.remove_reader(fd)
        if connection in self._unwatched:
            self._unwatched.remove(connection)
        super().remove_connection(connection)

    def _watch(self, connection: Connection) -> bool:
        """Whether the connection has a link by now, which is waited on from now on."""
        link = connection.link
        if not isinstance(link, transport.Link):
            return False
        self._readers[connection] = (link.socket.fileno(), link.monitor.fileno())
        self.asyncio.add_reader(link.socket.fileno(), self._is_ready, connection)
        self.asyncio.add_reader(link.monitor.fileno(), self._saw, link, connection)
        link.watch()  # a zmq descriptor tells nothing until its socket was found empty once
        self._ready.add(connection)
        return True

    def _saw(self, link: transport.Link, connection: Connection) -> None:
        link.watch()
        self._is_ready(connection)

    def _is_ready(self, connection: Connection) -> None:
        self._ready.add(connection)
        self._turn()

    def _port_is_ready(self) -> None:
        self._port_ready = True
        self._turn()

    def touch(self) -> None:
        """Schedule a turn, once."""
        if not self._scheduled and not self.stopping:
            self._scheduled = True
            self.asyncio.call_soon(self._turn)

    def _turn(self) -> None:
        self._scheduled = False
        if self.stopping:
            self._stopped.set()
            return
        if self._unwatched:
            self._unwatched = [c for c in self._unwatched if not self._watch(c)]
        ready, self._ready = self._ready, set()
        receive, self._port_ready = self._port_ready, False
        more = False
        try:
            more = self._work(ready, receive)
        except BaseException:
            self._ready |= {c for c in ready if not c.used}  # a fault in one must not keep others from their turn
            raise
        finally:
            self._look_again()
            if more or self._ready or self._port_ready or self._unwatched_has_link():
                self.touch()
            self._schedule(self._next_due())
            if self.stopping:
                self._stopped.set()

    def _look_again(self) -> None:
        """A descriptor of zmq is edge-triggered, and any use of its socket may take the edge: so whatever was used in
        this turn is asked once more whether there is something."""
        dispatcher = self.dispatcher
        if dispatcher is not None and dispatcher.used:
            dispatcher.used = False
            self._port_ready = transport.has_news(dispatcher.port.socket, False)  # type: ignore[attr-defined]
        for connection in self._connections:
            link = connection.link
            if connection.used and isinstance(link, transport.Link) and connection.broken is None:
                connection.used = False
                if transport.has_news(link.socket, connection.wants_write):
                    self._ready.add(connection)

    def _unwatched_has_link(self) -> bool:
        return any(isinstance(c.link, transport.Link) for c in self._unwatched)

    def _schedule(self, due: float | None) -> None:
        """Have a turn at `due`. An earlier one that is scheduled already will do: it schedules the next."""
        if due is None or (self._timer is not None and self._timer_due <= due):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due = due
        self._timer = self.asyncio.call_later(max(0.0, due - self.clock()), self._is_due)

    def _is_due(self) -> None:
        self._timer = None
        self._turn()

    def run_coroutine(self, coroutine: Coroutine[Any, Any, Any], answer: Deferred[Any]) -> None:
        task = self._task(coroutine)

        def finished(done: asyncio.Task[Any]) -> None:
            if done.cancelled():
                answer.cancel("the handler was cancelled")
            elif (error := done.exception()) is not None:
                answer.reject(error)
            else:
                answer.resolve(done.result())

        task.add_done_callback(finished)
        answer.on_cancel(task.cancel)

    def run_async_generator(self, generator: AsyncGenerator[Any], outlet: Outlet[Any]) -> None:
        task = self._task(self._pull(generator, outlet))
        outlet.on_cancel(task.cancel)

    async def _pull(self, generator: AsyncGenerator[Any], outlet: Outlet[Any]) -> None:
        credit = asyncio.Event()
        outlet.on_credit(credit.set)
        try:
            async with contextlib.aclosing(generator):
                async for item in generator:
                    while not outlet.credit and not outlet.closed:
                        credit.clear()
                        await credit.wait()
                    outlet.send(item)
            outlet.end()
        except asyncio.CancelledError:
            outlet.fail(Unsupported("the stream was cancelled by the service"))
            raise
        except Exception as error:
            outlet.fail(error)

    def _task(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = self.asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def run(self) -> None:
        """Turn until stopped."""
        self._thread = threading.get_ident()
        self.touch()
        await self._stopped.wait()

    async def close(self) -> None:
        """Cancel the handlers that still run, and close what the loop drives."""
        self.stopping = True
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._timer is not None:
            self._timer.cancel()
        self.asyncio.remove_reader(self._waker)
        for fd in self._readers.pop(None, ()):
            self.asyncio.remove_reader(fd)
        self._close_all()
