"""A client that goes away frees what works for it: before the first token, in the middle, streamed or not."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from fastapi import FastAPI

from services.api.disconnect import unless_disconnected
from services.api.errors import ClientDisconnected
from services.api.gate import Gate

from .fake_backend import NEVER, FakeBackend, delta

pytestmark = pytest.mark.anyio


class FakeConnection:
    """One request over ASGI, by a client that can hang up."""

    def __init__(self, path: str, body: dict[str, Any], *, more_body: bool = False) -> None:
        self.sent: list[dict[str, Any]] = []
        self.anything_sent = asyncio.Event()
        self._hung_up = asyncio.Event()
        self._body: list[dict[str, Any]] = [
            {"type": "http.request", "body": json.dumps(body).encode(), "more_body": more_body}
        ]
        self.scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "path": path,
            "raw_path": path.encode(), "query_string": b"", "scheme": "http", "root_path": "",
            "headers": [(b"content-type", b"application/json")],
        }  # fmt: skip

    async def receive(self) -> dict[str, Any]:
        if self._body:
            return self._body.pop()
        await self._hung_up.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: dict[str, Any]) -> None:
        self.sent.append(message)
        self.anything_sent.set()

    def hang_up(self) -> None:
        self._hung_up.set()


def chat(**change: Any) -> dict[str, Any]:
    return {"model": "smollm2", "messages": [{"role": "user", "content": "x"}]} | change


async def run_until(app: FastAPI, connection: FakeConnection, happened: asyncio.Event) -> None:
    """Serve the request, hang up once something has happened, and wait until it is over."""
    async with asyncio.timeout(5):
        task = asyncio.create_task(app(connection.scope, connection.receive, connection.send))  # type: ignore[arg-type]
        await happened.wait()
        connection.hang_up()
        await task


@pytest.mark.parametrize("stream", [False, True])
async def test_before_the_first_token(app: FastAPI, backend: FakeBackend, gate: Gate, stream: bool) -> None:
    backend.script = (NEVER,)
    connection = FakeConnection("/v1/chat/completions", chat(stream=stream))
    await run_until(app, connection, backend.begun)

    assert backend.open == 0
    assert backend.closed.is_set()
    assert connection.sent == []
    assert (gate.in_flight, gate.counts.disconnected, gate.counts.failed) == (0, 1, 0)


async def test_in_the_middle_of_a_stream(app: FastAPI, backend: FakeBackend, gate: Gate) -> None:
    backend.script = (delta(text="a"), NEVER)
    connection = FakeConnection("/v1/chat/completions", chat(stream=True))
    await run_until(app, connection, connection.anything_sent)

    assert backend.open == 0
    assert gate.counts.disconnected == 1
    assert not any(b"[DONE]" in message.get("body", b"") for message in connection.sent)


async def test_in_the_middle_of_a_whole_answer(app: FastAPI, backend: FakeBackend) -> None:
    passed = asyncio.Event()

    async def note() -> None:
        passed.set()

    backend.script = (delta(text="a"), note(), NEVER)
    connection = FakeConnection("/v1/completions", {"model": "smollm2", "prompt": "x"})
    await run_until(app, connection, passed)

    assert backend.open == 0
    assert connection.sent == []


async def test_all_prompts_of_a_request_are_freed(app: FastAPI, backend: FakeBackend) -> None:
    backend.script = (delta(text="a"), NEVER)
    body = {"model": "smollm2", "prompt": ["x"] * 20, "n": 3, "stream": True}
    connection = FakeConnection("/v1/completions", body)
    await run_until(app, connection, connection.anything_sent)

    assert len(backend.requests) == 20
    assert backend.open == 0


async def test_while_the_body_is_sent(app: FastAPI, backend: FakeBackend, gate: Gate) -> None:
    connection = FakeConnection("/v1/chat/completions", {}, more_body=True)
    connection.hang_up()
    async with asyncio.timeout(5):
        await app(connection.scope, connection.receive, connection.send)  # type: ignore[arg-type]

    assert connection.sent == []
    assert gate.counts.disconnected == 1
    assert backend.requests == []


async def test_a_slow_client_pauses_the_backend(app: FastAPI, backend: FakeBackend) -> None:
    produced = 0

    async def note() -> None:
        nonlocal produced
        produced += 1

    backend.script = (*(step for _ in range(100) for step in (delta(text="a"), note())), delta(finish="stop"))
    connection = FakeConnection("/v1/chat/completions", chat(stream=True))
    blocked = asyncio.Event()

    async def stuck(message: dict[str, Any]) -> None:
        if message.get("body"):
            blocked.set()
            await asyncio.Event().wait()

    connection.send = stuck  # type: ignore[method-assign]
    await run_until(app, connection, blocked)

    assert produced == 0
    assert backend.open == 0
    for step in backend.script[1::2]:
        if asyncio.iscoroutine(step):
            step.close()


async def test_work_that_is_done_first_is_not_lost() -> None:
    async def receive() -> dict[str, Any]:
        await asyncio.sleep(0)
        return {"type": "http.disconnect"}

    async def work() -> int:
        return 3

    async def fail() -> int:
        raise KeyError("x")

    assert await unless_disconnected(receive, work()) == 3
    with pytest.raises(KeyError):
        await unless_disconnected(receive, fail())


async def test_work_has_ended_when_the_disconnect_is_raised() -> None:
    ended = False

    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def work() -> None:
        nonlocal ended
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended = True

    with pytest.raises(ClientDisconnected):
        await unless_disconnected(receive, work())
    assert ended


async def test_cancelling_the_wait_ends_the_work() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def receive() -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    task = asyncio.create_task(unless_disconnected(receive, work()))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()
