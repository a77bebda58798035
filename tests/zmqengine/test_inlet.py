"""Streams from the caller to the service, and both ways at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator

import pytest

from zmqengine import Client, Inlet, Interface, Message, call, connect, stream, wire
from zmqengine.asyncio_loop import AsyncioLoop
from zmqengine.errors import Cancelled, DeadlineExceeded, HandlerFailed, InvalidArgument, UsageError
from zmqengine.peers import Peers

from .by_hand_process import ByHand

SERVICE = """
import asyncio
import time
from collections.abc import AsyncIterator
from zmqengine import Deferred, Inlet, Message, Service, call, stream

class Part(Message):
    number: int
    data: bytes = b""

class Sums(Service, protocol="sums/1"):
    def setup(self) -> None:
        self.seen = 0
        self.ends = []
    @call
    async def add(self, start: int, parts: Inlet[Part]) -> int:
        self.ends.append("open")
        try:
            async for part in parts:
                self.seen += 1
                start += part.number
        finally:
            self.ends[-1] = "closed"
        return start
    @call
    def count(self, parts: Inlet[Part]) -> Deferred[int]:
        answer = Deferred()
        numbers = []
        def ended(error):
            if error is None:
                answer.resolve(len(numbers))
            else:
                answer.reject(error)
        parts.subscribe(lambda part: numbers.append(part.number), ended)
        return answer
    @call
    async def first(self, parts: Inlet[Part]) -> int:
        async for part in parts:
            return part.number
        raise ValueError("there was none")
    @call
    def refuse(self, parts: Inlet[Part]) -> None:
        raise ValueError("not today")
    @call
    async def unread(self, parts: Inlet[Part]) -> None:
        await asyncio.get_running_loop().create_future()
    @stream
    async def double(self, parts: Inlet[Part]) -> AsyncIterator[Part]:
        async for part in parts:
            yield Part(number=2 * part.number, data=part.data)
    @call
    def progress(self) -> tuple[int, list[str]]:
        return self.seen, self.ends
Sums.main()
"""


class Part(Message):
    number: int
    data: bytes = b""


class SumsInterface(Interface, protocol="sums/1"):
    @call
    def add(self, start: int, parts: Inlet[Part]) -> int: ...
    @call
    def count(self, parts: Inlet[Part]) -> int: ...
    @call
    def first(self, parts: Inlet[Part]) -> int: ...
    @call
    def refuse(self, parts: Inlet[Part]) -> None: ...
    @call
    def unread(self, parts: Inlet[Part]) -> None: ...
    @stream
    def double(self, parts: Inlet[Part]) -> Iterator[Part]: ...
    @call
    def progress(self) -> tuple[int, list[str]]: ...


@pytest.fixture(scope="module")
def sums(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ByHand]:
    process = ByHand(tmp_path_factory.mktemp("sums"), SERVICE)
    yield process
    process.stop()


@pytest.fixture
def client(sums: ByHand) -> Iterator[Client]:
    with connect(sums.endpoint, SumsInterface, deadline_s=20) as client:
        yield client


def parts(count: int) -> Iterator[Part]:
    return (Part(number=number) for number in range(count))


@pytest.mark.parametrize("count", [0, 1, 5000])
def test_a_caller_sends_items_along_with_a_call(client: Client, count: int) -> None:
    assert client.add(7, parts=parts(count)) == 7 + sum(range(count))
    assert client.count(parts=list(parts(count))) == count


def test_both_ways_at_once_each_item_comes_back_in_order(client: Client) -> None:
    assert [part.number for part in client.double(parts=parts(3000))] == list(range(0, 6000, 2))


def test_a_client_without_the_interface_sends_plain_values(sums: ByHand) -> None:
    with connect(sums.endpoint) as client:
        assert client.add(start=1, parts=[{"number": 2}, {"number": 3}]) == 6
        assert client.describe()["methods"]["add"]["inlet"]["name"] == "parts"


def test_items_that_are_bytes_heavy_stay_within_the_credit(client: Client) -> None:
    heavy = [Part(number=n, data=bytes(1 << 20)) for n in range(12)]
    assert [len(part.data) for part in client.double(parts=heavy)] == [1 << 20] * 12


def test_a_service_that_does_not_read_stops_the_caller_within_its_credit(sums: ByHand) -> None:
    taken = 0

    def endless() -> Iterator[Part]:
        nonlocal taken
        while True:
            taken += 1
            yield Part(number=taken)

    with connect(sums.endpoint, SumsInterface, deadline_s=0.5) as client, pytest.raises(DeadlineExceeded):
        client.unread(parts=endless())
    assert taken <= wire.STREAM_ITEMS + 1


def test_an_answer_before_the_end_stops_the_caller(client: Client) -> None:
    closed = []

    def endless() -> Iterator[Part]:
        try:
            while True:
                yield Part(number=5)
        finally:
            closed.append(True)

    assert client.first(parts=endless()) == 5
    assert closed == [True]
    with pytest.raises(HandlerFailed, match="not today"):
        client.refuse(parts=endless())
    assert client.count(parts=[]) == 0


def test_what_the_callers_iterable_raises_is_raised_and_the_service_stops(client: Client) -> None:
    def broken() -> Iterator[Part]:
        yield Part(number=1)
        raise LookupError("the disk is gone")

    with pytest.raises(LookupError, match="the disk is gone"):
        client.add(0, parts=broken())
    until = time.monotonic() + 5
    while client.progress()[1][-1] != "closed":
        assert time.monotonic() < until, "the handler goes on"
    assert client.count(parts=parts(3)) == 3


def test_an_item_of_the_wrong_type_fails_the_call_with_its_name(client: Client, sums: ByHand) -> None:
    with connect(sums.endpoint) as untyped:
        with pytest.raises(InvalidArgument, match=r"add\.parts\[1\]\.number: expected `int`, got `str`") as caught:
            untyped.add(start=0, parts=[{"number": 1}, {"number": "x"}])
        assert caught.value.field == "parts[1].number"
    assert client.count(parts=parts(3)) == 3


def test_a_missing_iterable_is_named(client: Client) -> None:
    with pytest.raises(UsageError, match="parts=ITERABLE is missing"):
        client.add(0)
    with pytest.raises(UsageError, match="int is no iterable"):
        client.add(0, parts=3)
    assert client.count(parts=parts(2)) == 2


@pytest.mark.anyio
async def test_an_asyncio_caller_sends_an_asynchronous_iterable(sums: ByHand) -> None:
    async def slowly(count: int) -> AsyncIterator[Part]:
        for part in parts(count):
            await asyncio.wait([asyncio.ensure_future(asyncio.to_thread(lambda: None))])
            yield part

    async def broken() -> AsyncIterator[Part]:
        yield Part(number=1)
        raise LookupError("gone")

    loop = AsyncioLoop()
    peer = Peers(loop, given={"sums": sums.endpoint}).peer("sums", SumsInterface)
    try:
        assert await peer.add(1, parts=slowly(40)) == 1 + sum(range(40))
        assert [part.number async for part in peer.double(parts=slowly(30))] == list(range(0, 60, 2))
        assert await peer.count(parts=parts(700)) == 700
        with pytest.raises(LookupError):
            await peer.add(1, parts=broken())
        waiting = peer.unread(parts=slowly(3))
        waiting.cancel("enough")
        with pytest.raises(Cancelled):
            await waiting
        assert await peer.first(parts=parts(9)) == 0
    finally:
        await loop.close()


def test_an_inlet_where_none_can_be_is_refused_at_the_declaration() -> None:
    with pytest.raises(UsageError, match="takes one Inlet"):

        class Two(Interface, protocol="two/1"):
            @call
            def both(self, a: Inlet[int], b: Inlet[int]) -> None: ...

    with pytest.raises(UsageError, match="takes one Inlet"):

        class Threaded(Interface, protocol="threaded/1"):
            @call(thread=True)
            def read(self, a: Inlet[int]) -> None: ...
