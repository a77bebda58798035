"""Several streams of deltas as one, for a request with several prompts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from services.protocols.processor import TextDelta

Source = AsyncGenerator[tuple[int, TextDelta], None]
_QUEUED = 64
"""Deltas that may wait for a slow client before the streams behind are paused."""


async def merged(streams: list[AsyncGenerator[TextDelta, None]]) -> Source:
    """Yield (number of the stream, its delta), as they come.

    The first error of any stream ends all and is raised. Closing this closes all of them before it returns.
    """
    if len(streams) == 1:
        async with aclosing(streams[0]) as only:
            async for item in only:
                yield 0, item
        return
    queue: asyncio.Queue[tuple[int, TextDelta | None]] = asyncio.Queue(_QUEUED)
    pumps = [asyncio.create_task(_pump(number, stream, queue)) for number, stream in enumerate(streams)]
    try:
        open_streams = len(pumps)
        while open_streams:
            number, delta = await queue.get()
            if delta is not None:
                yield number, delta
                continue
            open_streams -= 1
            await pumps[number]  # raises what its stream raised
    finally:
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)


async def _pump(
    number: int, stream: AsyncGenerator[TextDelta, None], queue: asyncio.Queue[tuple[int, TextDelta | None]]
) -> None:
    """Move a stream's deltas into the queue, and None behind them."""
    try:
        async with aclosing(stream):
            async for delta in stream:
                await queue.put((number, delta))
    except Exception:
        await queue.put((number, None))
        raise
    await queue.put((number, None))
