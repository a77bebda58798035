"""The caller's end of a stream that it sends along with a call: its items go as the service's credit allows."""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from . import envelope, wire
from .errors import UsageError

if TYPE_CHECKING:
    import asyncio

BATCH_ITEMS = 128
"""Items that go in one message at most."""


class Feeder:
    """Pulls items from an iterable when there is credit, and sends them; what the iterable raises fails the call."""

    def __init__(
        self,
        source: Iterable[Any] | AsyncIterable[Any],
        method: str,
        call_id: int,
        put: Callable[[bytes], object],
        fail: Callable[[BaseException], object],
    ) -> None:
        self._method, self._call_id, self._put, self._fail = method, call_id, put, fail
        self._items = self._bytes = self._seq = 0
        self._busy = self._closed = False
        self._iterator: Iterator[Any] | None = None
        self._task: asyncio.Task[None] | None = None
        self._credit: asyncio.Event | None = None
        if isinstance(source, AsyncIterable):
            import asyncio

            self._credit = asyncio.Event()
            self._task = asyncio.get_running_loop().create_task(self._pull(source, self._credit))
        elif isinstance(source, Iterable):
            self._iterator = iter(source)
        else:
            raise UsageError(f"{method}: {type(source).__name__} is no iterable of items")

    @property
    def credit(self) -> int:
        """Items that the service takes now."""
        return self._items if self._bytes > 0 and not self._closed else 0

    def grant(self, items: int, size: int) -> None:
        """For the connection: the service takes more."""
        self._items += items
        self._bytes += size
        if self._credit is not None:
            self._credit.set()
        else:
            self._advance()

    def close(self) -> None:
        """For the connection: the call has its terminal answer."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
        iterator, self._iterator = self._iterator, None
        if iterator is not None and hasattr(iterator, "close") and not self._busy:
            iterator.close()

    def _advance(self) -> None:
        if self._busy:
            return  # the iterable itself waits for something on this connection
        self._busy = True
        try:
            while self.credit and self._iterator is not None:
                self._send_some(self._iterator)
        except Exception as error:
            self._fail(error)
        finally:
            self._busy = False

    def _send_some(self, iterator: Iterator[Any]) -> None:
        batch: list[msgspec.Raw] = []
        size = 0
        try:
            while len(batch) < BATCH_ITEMS and size < wire.MAX_BATCH_BYTES and len(batch) < self._items:
                batch.append(envelope.encode_item(next(iterator), self._method))
                size += len(batch[-1])
        except StopIteration:
            self._iterator = None
        if batch:
            self._send(batch, size)
        if self._iterator is None:
            self._end()

    def _send(self, batch: list[msgspec.Raw], size: int) -> None:
        if self._closed:
            return
        frame = envelope.encode_items(self._call_id, self._seq, batch)
        self._seq += len(batch)
        self._items -= len(batch)
        self._bytes -= size
        self._put(frame)

    def _end(self) -> None:
        if not self._closed:
            self._put(envelope.encode(wire.Kind.END, call_id=self._call_id, seq=self._seq))

    async def _pull(self, source: AsyncIterable[Any], credit: asyncio.Event) -> None:
        try:
            async for item in source:
                while not self.credit:
                    credit.clear()
                    await credit.wait()
                raw = envelope.encode_item(item, self._method)
                self._send([raw], len(raw))
            self._end()
        except Exception as error:  # also the source's own: it is what the caller gets
            self._fail(error)
