"""Both ends of a stream: `Outlet` where items are produced, `Stream` where they are taken. Credit is what bounds it.

The reader grants credit in items and bytes; an item costs one of the first and its body's size of the second (the
last item may overdraw the bytes once). A producer without credit pauses or coalesces; nothing queues without bound.
"""

from __future__ import annotations

import collections
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from . import trace
from .errors import Cancelled, UsageError
from .interface import incoming, injected

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")


@injected
class Outlet(Generic[T]):
    """Where a handler pushes a stream's items. It belongs to the service's loop."""

    def __init__(
        self,
        credit: tuple[int, int],
        send: Callable[[Any], int],
        finish: Callable[[BaseException | None], object],
        deadline: float | None,
    ) -> None:
        self._items, self._bytes = credit
        self._send = send
        self._finish = finish
        self._deadline = deadline
        self._credit_callback: Callable[[], object] | None = None
        self._cancel_callback: Callable[[], object] | None = None
        self.closed = False
        self.cancelled: BaseException | None = None

    @property
    def credit(self) -> int:
        """How many items the reader still takes; 0 means to pause or to coalesce."""
        return self._items if self._bytes > 0 and not self.closed else 0

    @property
    def deadline_s(self) -> float | None:
        """Seconds left of the call's budget; None if it has no limit."""
        return None if self._deadline is None else self._deadline - time.monotonic()

    def send(self, item: T) -> None:
        """Send an item. A no-op once the stream is closed; UsageError without credit."""
        if self.closed:
            return
        if self._items <= 0 or self._bytes <= 0:
            raise UsageError("Outlet.send without credit: look at `credit` first, and wait for `on_credit`")
        self._items -= 1
        self._bytes -= self._send(item)

    def end(self) -> None:
        """Complete the stream. A no-op once it is closed."""
        self._close(None)

    def fail(self, error: BaseException) -> None:
        """End the stream with an error. A no-op once it is closed."""
        self._close(error)

    def on_credit(self, callback: Callable[[], object]) -> None:
        """Have `callback` called each time that credit arrives after there was none."""
        self._credit_callback = callback

    def on_cancel(self, callback: Callable[[], object]) -> None:
        """Have `callback` called once if the reader cancels or dies, or the deadline passes."""
        self._cancel_callback = callback
        if self.cancelled is not None:
            callback()

    def grant(self, items: int, size: int) -> None:
        """For the loop: the reader takes more."""
        had = self.credit
        self._items += items
        self._bytes += size
        if not had and self.credit and self._credit_callback is not None:
            self._credit_callback()

    def abandon(self, error: BaseException) -> None:
        """For the loop: the reader is gone, has cancelled, or the deadline has passed."""
        if not self.closed:
            self.closed, self.cancelled = True, error
            self._finish(error)
            if self._cancel_callback is not None:
                self._cancel_callback()

    def _close(self, error: BaseException | None) -> None:
        if not self.closed:
            self.closed = True
            self._finish(error)


class Stream(Generic[T]):
    """A stream being read: subscribe with callbacks, or iterate (`for` on a sync client, `async for` on a loop)."""

    def __init__(
        self,
        window: tuple[int, int],
        grant: Callable[[int, int], object],
        cancel: Callable[[BaseException], object],
        pump: Callable[[], object] | None,
    ) -> None:
        self._window = window
        self._grant = grant
        self._cancel = cancel
        self._pump = pump
        self._queue: collections.deque[tuple[T, int]] = collections.deque()
        self._taken_items = self._taken_bytes = 0
        self._on_item: Callable[[T], object] | None = None
        self._on_end: Callable[[BaseException | None], object] | None = None
        self._waiter: asyncio.Future[None] | None = None
        self.ended = False
        self.error: BaseException | None = None

    def subscribe(
        self, on_item: Callable[[T], object], on_end: Callable[[BaseException | None], object] | None = None
    ) -> None:
        """Have each item given to on_item, and at the end None or the error to on_end. An item counts as taken when
        on_item returns."""
        on_item = trace.carried(on_item)
        on_end = None if on_end is None else trace.carried(on_end)
        self._on_item, self._on_end = on_item, on_end
        had_ended = self.ended
        while self._queue:  # also of a stream that has ended: what came before its end is still the reader's
            self._take(*self._queue.popleft())
        if had_ended and on_end is not None:
            on_end(self.error)

    def cancel(self, reason: str = "cancelled") -> None:
        """Tell the producer that no more is wanted. A no-op once the stream has ended."""
        if not self.ended:
            self._queue.clear()
            error = Cancelled(reason)
            self._cancel(error)
            self.finish(error)

    def deliver(self, items: list[T], size: int) -> None:
        """For the connection: items have arrived, of `size` bytes in all."""
        share, rest = divmod(size, len(items))
        if self._on_item is not None:
            for item in items:
                if self.ended:
                    return  # the reader cancelled at one of them
                self._take(item, share + rest)
                rest = 0
        else:
            self._queue.append((items[0], share + rest))
            self._queue.extend([(item, share) for item in items[1:]])
            self._wake()

    def finish(self, error: BaseException | None) -> None:
        """For the connection: END (None) or an error has arrived."""
        if not self.ended:
            self.ended, self.error = True, error
            self._wake()
            if self._on_end is not None:
                self._on_end(error)

    def _take(self, item: T, size: int) -> None:
        if self._on_item is not None:
            self._on_item(item)
        self._consumed(size)

    def _consumed(self, size: int) -> None:
        """Grant what was taken back once half of the window is used up: one CREDIT for many items."""
        self._taken_items += 1
        self._taken_bytes += size
        if not self.ended and (self._taken_items * 2 >= self._window[0] or self._taken_bytes * 2 >= self._window[1]):
            items, size = self._taken_items, self._taken_bytes
            self._taken_items = self._taken_bytes = 0
            self._grant(items, size)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _finished(self) -> bool:
        """Whether all has been taken; raises the stream's error then."""
        if self._queue:
            return False
        if self.ended and self.error is not None:
            raise self.error
        return self.ended

    def __iter__(self) -> Iterator[T]:
        if self._pump is None:
            raise UsageError("this stream belongs to a loop: use `async for`, or subscribe")
        try:
            while not self._finished():
                queue = self._queue
                if not queue:
                    self._pump()
                while queue:
                    item, size = queue.popleft()
                    self._consumed(size)
                    yield item
        finally:
            self.cancel("the reader left")

    async def __aiter__(self) -> AsyncIterator[T]:
        import asyncio

        try:
            while not self._finished():
                queue = self._queue
                if not queue:
                    self._waiter = asyncio.get_running_loop().create_future()
                    await self._waiter
                while queue:
                    item, size = queue.popleft()
                    self._consumed(size)
                    yield item
        finally:
            self.cancel("the reader left")


@incoming
class Inlet(Stream[T]):
    """What a caller sends along with its call, item by item: a handler's parameter ``chunks: Inlet[bytes]``.

    It is read like any stream of a loop: ``async for chunk in chunks``, or `subscribe` and a `Deferred` answer. Its
    items are validated, and come as this end takes them. When the call has its answer, it ends with Cancelled.
    """
