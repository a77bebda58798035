"""Several streams as one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from services.api.merge import merged
from services.protocols.processor import TextDelta

from .fake_backend import delta

pytestmark = pytest.mark.anyio


class Streams:
    """Makes streams, and knows which are open."""

    def __init__(self) -> None:
        self.open = 0

    async def of(
        self, texts: list[str], *, error: Exception | None = None, wait: bool = False
    ) -> AsyncGenerator[TextDelta, None]:
        self.open += 1
        try:
            for text in texts:
                yield delta(text=text)
                await asyncio.sleep(0)
            if error is not None:
                raise error
            if wait:
                await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            self.open -= 1


async def test_each_delta_comes_with_its_stream_in_order() -> None:
    streams = Streams()
    got: list[tuple[int, str]] = []
    async for number, item in merged([streams.of([f"{n}{i}" for i in range(200)]) for n in range(3)]):
        got.append((number, item.text))

    for number in range(3):
        assert [text for n, text in got if n == number] == [f"{number}{i}" for i in range(200)]
    assert streams.open == 0


@pytest.mark.parametrize("others", [0, 3])
async def test_the_first_error_ends_all_and_is_raised(others: int) -> None:
    streams = Streams()
    sources = [streams.of(["a"], error=KeyError("x")), *(streams.of(["b"], wait=True) for _ in range(others))]

    with pytest.raises(KeyError):
        async for _ in merged(sources):
            pass
    assert streams.open == 0


@pytest.mark.parametrize("count", [1, 4])
async def test_closing_it_closes_all_before_it_returns(count: int) -> None:
    streams = Streams()
    async with aclosing(merged([streams.of(["a"], wait=True) for _ in range(count)])) as source:
        await anext(source)
        assert streams.open == count
    assert streams.open == 0


async def test_a_reader_that_stands_still_pauses_the_streams() -> None:
    produced = 0

    async def endless() -> AsyncGenerator[TextDelta, None]:
        nonlocal produced
        while True:
            produced += 1
            yield delta(text="x")

    async with aclosing(merged([endless(), endless()])) as source:
        await anext(source)
        for _ in range(1000):
            await asyncio.sleep(0)
    assert produced < 100
