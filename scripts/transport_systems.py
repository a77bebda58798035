"""The systems that bench_transport.py compares: each one echoes, streams, and carries blobs between two processes.

Run as a program, this file is the serving side: ``python transport_systems.py raw|toolkit ENDPOINT``.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import importlib.util
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgpack
import zmq

from zmqengine import Message, Service, call, connect, stream

PAYLOAD = {"name": "prefill-0", "numbers": list(range(20)), "text": "x" * 40, "ratio": 0.5}
"""About 100 bytes of msgpack."""


def installed(module: str) -> bool:
    """Whether a package can be used here."""
    return importlib.util.find_spec(module) is not None


if installed("uvloop"):
    import uvloop


class Payload(Message):
    """The same, typed: the toolkit validates it on both sides."""

    name: str
    numbers: list[int]
    text: str
    ratio: float


TYPED = Payload(**PAYLOAD)  # type: ignore[arg-type]


class Echo(Service, protocol="echo/1"):
    """The toolkit's serving side."""

    @call
    def echo(self, payload: Payload) -> Payload:
        return payload

    @stream
    def count(self, limit: int) -> Iterator[Payload]:
        for _ in range(limit):
            yield TYPED


def serve_raw(endpoint: str) -> None:
    """ROUTER, blocking, one message a call; a stream is pushed to the endpoint that the request names."""
    context = zmq.Context()
    router = context.socket(zmq.ROUTER)
    router.bind(endpoint)
    push = context.socket(zmq.PUSH)
    push.bind(endpoint + ".push")
    print("ready", flush=True)
    while True:
        identity, *frames = router.recv_multipart()
        body = msgpack.unpackb(frames[0])
        if "push" in body:
            for _ in range(body["push"]):
                push.send(msgpack.packb(PAYLOAD))
        elif len(frames) > 1:
            router.send_multipart((identity, *frames), copy=False)
        else:
            router.send_multipart((identity, msgpack.packb(body)))


class System:
    """One way to call another process."""

    name = ""
    process: subprocess.Popen[str] | None = None

    def __init__(self, folder: Path) -> None:
        self.endpoint = f"ipc://{folder}/{type(self).__name__}"

    def spawn(self, *args: str) -> None:
        """Start the serving side, and wait until it says that it is ready."""
        self.process = subprocess.Popen(
            [sys.executable, __file__, *args, self.endpoint], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        while "ready" not in (line := self.process.stdout.readline()):
            if not line:
                raise RuntimeError(f"{self.name}: its serving side ended with {self.process.wait()}")

    def open(self) -> None:
        """Start both sides."""

    def call(self) -> None:
        """One call with the small payload."""
        raise NotImplementedError

    def pipelined(self, calls: int, in_flight: int) -> None:
        """That many calls, `in_flight` of them at a time."""
        raise NotImplementedError

    def stream(self, items: int) -> None:
        """Read a stream of small items."""
        raise NotImplementedError

    def close(self) -> None:
        """End both sides."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait()
            assert self.process.stdout is not None
            self.process.stdout.close()


class Raw(System):
    """pyzmq, ROUTER and DEALER over ipc, blocking sockets, msgpack of a dict."""

    name = "raw pyzmq"

    def open(self) -> None:
        self.spawn("raw")
        self.context = zmq.Context()
        self.dealer = self.context.socket(zmq.DEALER)
        self.dealer.connect(self.endpoint)
        self.pull = self.context.socket(zmq.PULL)
        self.pull.connect(self.endpoint + ".push")

    def call(self) -> None:
        self.dealer.send(msgpack.packb(PAYLOAD))
        msgpack.unpackb(self.dealer.recv())

    def pipelined(self, calls: int, in_flight: int) -> None:
        sent = 0
        for _ in range(min(in_flight, calls)):
            self.dealer.send(msgpack.packb(PAYLOAD))
            sent += 1
        for _ in range(calls):
            msgpack.unpackb(self.dealer.recv())
            if sent < calls:
                self.dealer.send(msgpack.packb(PAYLOAD))
                sent += 1

    def stream(self, items: int) -> None:
        self.dealer.send(msgpack.packb({"push": items}))
        for _ in range(items):
            msgpack.unpackb(self.pull.recv())

    def close(self) -> None:
        self.context.destroy(0)
        super().close()


class Toolkit(System):
    """zmqengine, the blocking client."""

    name = "zmqengine"

    def open(self) -> None:
        self.spawn("toolkit", "--bind")
        self.client = connect(self.endpoint, Echo)
        self.echo = self.client.echo

    def call(self) -> None:
        self.echo(TYPED)

    def pipelined(self, calls: int, in_flight: int) -> None:
        begin, wait = self.client.begin.echo, self.client.wait
        pending = collections.deque(begin(TYPED) for _ in range(min(in_flight, calls)))
        begun = len(pending)
        while pending:
            wait(pending.popleft())
            if begun < calls:
                pending.append(begin(TYPED))
                begun += 1

    def stream(self, items: int) -> None:
        assert sum(1 for _ in self.client.count(items)) == items

    def close(self) -> None:
        self.client.close()
        super().close()


class ToolkitAsync(Toolkit):
    """zmqengine, the asyncio client."""

    name = "zmqengine asyncio"

    def open(self) -> None:
        from zmqengine import aconnect

        self.spawn("toolkit", "--bind")
        self.loop = uvloop.new_event_loop() if installed("uvloop") else asyncio.new_event_loop()

        async def opened() -> Any:
            return aconnect(self.endpoint, Echo)

        self.aclient = self.loop.run_until_complete(opened())

    def latencies(self, calls: int) -> list[float]:
        """Seconds of each of so many calls: within one coroutine, as a program would do it."""

        async def timed() -> list[float]:
            found = []
            for _ in range(calls):
                started = time.perf_counter()
                await self.aclient.echo(TYPED)
                found.append(time.perf_counter() - started)
            return found

        return self.loop.run_until_complete(timed())

    def pipelined(self, calls: int, in_flight: int) -> None:
        async def worker(share: int) -> None:
            for _ in range(share):
                await self.aclient.echo(TYPED)

        async def together() -> None:
            await asyncio.gather(*(worker(calls // in_flight) for _ in range(in_flight)))

        self.loop.run_until_complete(together())

    def stream(self, items: int) -> None:
        async def read() -> int:
            return sum([1 async for _ in self.aclient.count(items)])

        assert self.loop.run_until_complete(read()) == items

    def close(self) -> None:
        self.loop.run_until_complete(self.aclient.close())
        self.loop.close()
        System.close(self)


@contextlib.contextmanager
def opened(kinds: list[type[System]]) -> Iterator[list[System]]:
    """The systems, started; ended at the end."""
    with tempfile.TemporaryDirectory(prefix="ze-", dir="/tmp") as folder, contextlib.ExitStack() as stack:
        systems = []
        for kind in kinds:
            system = kind(Path(folder))
            system.open()
            stack.callback(system.close)
            systems.append(system)
        yield systems


if __name__ == "__main__":
    if sys.argv[1] == "raw":
        serve_raw(sys.argv[-1])
    else:
        sys.argv[1:2] = []
        Echo.main()
