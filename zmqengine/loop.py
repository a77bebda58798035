"""The loop that a service runs on: one thread, one turn at a time. Two kinds that differ only in how they wait.

`poll_loop.PollLoop` waits in poll(2): the fastest for a service of plain handlers, and without asyncio, whose import
is a quarter of what a small service's start costs. `asyncio_loop.AsyncioLoop` lives on asyncio, for services with
`async def` handlers, for the HTTP edge, and for asyncio programs that only call.
(Measured on a 100-byte call over ipc: blocking sockets 123 us, asyncio with the sockets' descriptors 181 us,
zmq.asyncio 340 us; so neither kind uses zmq.asyncio.)
"""

from __future__ import annotations

import collections
import contextlib
import contextvars
import heapq
import itertools
import logging
import os
import threading
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any

from . import trace
from .connection import Connection
from .deferred import Deferred
from .dispatcher import Dispatcher
from .errors import Unsupported
from .streams import Outlet

if TYPE_CHECKING:
    import concurrent.futures

log = logging.getLogger(__name__)

RECEIVE_LIMIT = 256
"""Messages handled in one turn, so that timers and other sockets get theirs."""
GENERATOR_ITEMS = 128
"""Items taken from one generator in one turn."""
GENERATOR_SLICE_S = 0.001
"""Time after which a generator lets others have the turn; its items are sent at once then."""
BLOCKED_RETRY_S = 0.005
"""ROUTER does not tell which peer can be written again, so a peer that was full is tried again after this."""


class Timer:
    """A callback in the future; `cancel` forgets it."""

    __slots__ = ("callback", "cancelled", "due")

    def __init__(self, due: float, callback: Callable[[], object]) -> None:
        self.due = due
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Loop:
    """What both kinds share: timers, generators, connections, and the order of things in a turn."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.dispatcher: Dispatcher | None = None
        self.turns = 0
        self.busy_since: float | None = None
        self.busy_until = 0.0
        self.stopping = False
        self._soon: collections.deque[Callable[[], object]] = collections.deque()
        self._timers: list[tuple[float, int, Timer]] = []
        self._timer_ids = itertools.count()
        self._connections: set[Connection] = set()
        self._generators: collections.deque[tuple[Generator[Any], Outlet[Any]]] = collections.deque()
        self._executor: concurrent.futures.ThreadPoolExecutor | None = None
        self._thread = threading.get_ident()
        self._foreign: collections.deque[Callable[[], object]] = collections.deque()
        self._waker = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    # For services and clients

    def call_soon(self, callback: Callable[[], object]) -> None:
        """Run `callback` in this loop's next turn. Only from the loop's own thread."""
        self._soon.append(trace.carried(callback))
        self.touch()

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Timer:
        """Run `callback` after delay_s seconds."""
        timer = Timer(self.clock() + delay_s, trace.carried(callback))
        heapq.heappush(self._timers, (timer.due, next(self._timer_ids), timer))
        self.touch()
        return timer

    def call_threadsafe(self, callback: Callable[[], object]) -> None:
        """Run `callback` on the loop's thread, from any thread or signal handler."""
        self._foreign.append(callback)
        with contextlib.suppress(BlockingIOError):
            os.eventfd_write(self._waker, 1)

    def _woken(self) -> None:
        """Take the waker's edge where it is seen, not where callbacks are run: a turn may run a callback before its
        thread has written the waker, which would then stay readable and keep the loop spinning."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._waker)
        self.touch()

    def stop(self) -> None:
        """End `run` after this turn. From any thread or signal handler."""
        self.call_threadsafe(self._stop)

    def _stop(self) -> None:
        self.stopping = True

    def touch(self) -> None:
        """Something is to be done in a next turn."""

    # Sockets

    def serve(self, dispatcher: Dispatcher) -> None:
        """Serve a port from now on."""
        self.dispatcher = dispatcher

    def add_connection(self, connection: Connection) -> None:
        """Drive a connection."""
        self._connections.add(connection)

    def remove_connection(self, connection: Connection) -> None:
        """Stop driving a connection, and close it."""
        self._connections.discard(connection)
        connection.close()

    # The turn

    def _work(self, ready: set[Connection] | None, receive: bool, alone: bool = False) -> bool:
        """One turn; ready: the connections with news, or None for all. Whether there is more to do at once.

        alone: the loop slept until something came to the port, so it is one message most likely; what else has come is
        asked for before the next wait, in which case all of it is taken in one turn and answered together.
        """
        self.turns += 1
        self.busy_since = self.clock()
        more = False
        dispatcher = self.dispatcher
        if receive and dispatcher is not None:
            if alone:
                dispatcher.receive_one()
            else:
                more = dispatcher.receive(RECEIVE_LIMIT)
        for connection in list(self._connections) if ready is None else ready:
            if connection in self._connections:
                connection.turn()
        # A turn is on the path of every call: what has nothing to do is not called.
        if self._foreign:
            self._run_foreign()
        for _ in range(len(self._soon)):
            self._guard(self._soon.popleft())
        if self._timers or self._connections:
            self._run_timers()
        if self._generators:
            self._run_generators()
        if dispatcher is not None:
            dispatcher.expire()
            dispatcher.flush()
        for connection in self._connections:
            connection.flush()
        self.busy_since = None
        return more or bool(self._soon) or any(outlet.credit for _, outlet in self._generators)

    def _next_due(self) -> float | None:
        """Monotonic time at which the next turn is due without news, or None."""
        known = [due for c in self._connections if (due := c.next_deadline()) is not None]
        dispatcher = self.dispatcher
        if dispatcher is not None:
            if (due := dispatcher.next_deadline()) is not None:
                known.append(due)
            if dispatcher.blocked:
                known.append(self.clock() + BLOCKED_RETRY_S)
        while self._timers and self._timers[0][2].cancelled:
            heapq.heappop(self._timers)
        if self._timers:
            known.append(self._timers[0][0])
        return min(known) if known else None

    def _run_foreign(self) -> None:
        for _ in range(len(self._foreign)):
            self._guard(self._foreign.popleft())

    def _run_timers(self) -> None:
        now = self.clock()
        expired = [c for c in self._connections if (due := c.next_deadline()) is not None and due <= now]
        for connection in expired:
            connection.expire()
        while self._timers and self._timers[0][0] <= now:
            timer = heapq.heappop(self._timers)[2]
            if not timer.cancelled:
                self._guard(timer.callback)

    def _run_generators(self) -> None:
        for _ in range(len(self._generators)):
            generator, outlet = self._generators.popleft()
            if outlet.closed:
                generator.close()
                continue
            if self._advance(generator, outlet):
                self._generators.append((generator, outlet))

    def _advance(self, generator: Generator[Any], outlet: Outlet[Any]) -> bool:
        """Take items while there is credit and time; whether the generator has more."""
        until = self.clock() + GENERATOR_SLICE_S
        for _ in range(min(GENERATOR_ITEMS, outlet.credit)):
            if not outlet.credit:  # the bytes may be used up before the items are
                return True
            try:
                item = next(generator)
                outlet.send(item)
            except StopIteration:
                outlet.end()
                return False
            except Exception as error:
                generator.close()
                outlet.fail(error)
                return False
            if self.clock() >= until:
                return True
        return True

    @staticmethod
    def _guard(callback: Callable[[], object]) -> None:
        """A callback that raises is a fault of the service, and must not end the loop that answers everybody else."""
        try:
            callback()
        except Exception:
            log.exception("a callback on the loop failed")

    # Runner

    def run_generator(self, generator: Generator[Any], outlet: Outlet[Any]) -> None:
        """Pull items from a generator as credit allows."""
        context = None if trace.current.get() is None else contextvars.copy_context()
        self._generators.append((generator if context is None else _within(context, generator), outlet))
        outlet.on_cancel(self.touch)
        outlet.on_credit(self.touch)
        self.touch()

    def run_in_thread(self, function: Callable[[], Any], answer: Deferred[Any]) -> None:
        """Run a function in the thread pool."""
        import concurrent.futures

        if self._executor is None:
            self._executor = concurrent.futures.ThreadPoolExecutor(thread_name_prefix="handler")

        def finished(future: concurrent.futures.Future[Any]) -> None:
            error = future.exception()
            self.call_threadsafe(lambda: answer.reject(error) if error else answer.resolve(future.result()))

        self._executor.submit(trace.carried(function)).add_done_callback(finished)

    def run_coroutine(self, coroutine: Coroutine[Any, Any, Any], answer: Deferred[Any]) -> None:
        """Run an `async def` handler."""
        coroutine.close()
        answer.reject(Unsupported("this service's loop runs no coroutines: declare the handler `async def`"))

    def run_async_generator(self, generator: AsyncGenerator[Any], outlet: Outlet[Any]) -> None:
        """Pull items from an asynchronous generator as credit allows."""
        outlet.fail(Unsupported("this service's loop runs no coroutines: declare the handler `async def`"))

    def _close_all(self) -> None:
        for connection in list(self._connections):
            self.remove_connection(connection)
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)
        os.close(self._waker)


def _within(context: contextvars.Context, generator: Generator[Any]) -> Generator[Any]:
    """The generator, each of its steps run in a context."""
    try:
        while True:
            try:
                item = context.run(next, generator)
            except StopIteration:
                return
            yield item
    finally:
        generator.close()
