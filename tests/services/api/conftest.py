"""Fixtures of the HTTP server's tests: an application over a fake backend, and a client of it without a socket."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
from fastapi import FastAPI

from services.api.app import AppSettings, create_app
from services.api.gate import Gate

from .fake_backend import FakeBackend


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def backend() -> FakeBackend:
    return FakeBackend()


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def app(backend: FakeBackend, gate: Gate) -> FastAPI:
    return create_app(backend, AppSettings(version="1.2.3", body_timeout_s=0.2), gate)


@pytest.fixture
async def client(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        yield client


@pytest.fixture
def chat_body() -> dict[str, object]:
    """A request that is right; a test changes one thing in it."""
    return {"model": "smollm2", "messages": [{"role": "user", "content": "Count."}], "max_tokens": 3}
