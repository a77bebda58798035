"""Bodies that are too large, too slow, or not the JSON that they say they are."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from hypothesis import given, settings
from hypothesis import strategies as st

from services.api.app import AppSettings, create_app
from services.api.body import parse_json
from services.api.errors import ApiError
from services.api.gate import Gate

from .fake_backend import FakeBackend

pytestmark = pytest.mark.anyio
URL = "/v1/chat/completions"
JSON = {"content-type": "application/json"}
LIMIT = 2048


@pytest.fixture
def app(backend: FakeBackend, gate: Gate) -> FastAPI:
    return create_app(backend, AppSettings("1", max_body_bytes=LIMIT, body_timeout_s=0.2), gate)


def error_of(answer: httpx.Response, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    error: dict[str, Any] = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error


async def test_a_body_above_the_limit_is_refused_with_the_limit(client: httpx.AsyncClient) -> None:
    error = error_of(await client.post(URL, content=b'"' + b"x" * LIMIT + b'"', headers=JSON), 413)

    assert str(LIMIT) in error["message"]


async def test_a_body_of_the_limit_is_read(client: httpx.AsyncClient, chat_body: dict[str, Any]) -> None:
    raw = json.dumps(chat_body).encode()

    assert (await client.post(URL, content=raw.ljust(LIMIT), headers=JSON)).status_code == 200
    assert (await client.post(URL, content=raw.ljust(LIMIT + 1), headers=JSON)).status_code == 413


async def test_a_body_without_a_length_is_not_read_to_its_end(client: httpx.AsyncClient) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 1024
            yield b"x" * 1024

    error_of(await client.post(URL, content=endless(), headers=JSON), 413)
    assert LIMIT < sent <= 16 * LIMIT


async def test_a_declared_length_far_above_the_limit_is_refused_unread(client: httpx.AsyncClient) -> None:
    async def never() -> AsyncIterator[bytes]:
        raise AssertionError("the body was read")
        yield b""

    headers = JSON | {"content-length": str(100 * LIMIT)}
    answer = await client.post(URL, content=never(), headers=headers)

    error_of(answer, 413)
    assert answer.headers["connection"] == "close"


async def test_a_body_that_does_not_come_is_not_waited_for(client: httpx.AsyncClient) -> None:
    async def stalled() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.Event().wait()

    assert "0.2 s" in error_of(await client.post(URL, content=stalled(), headers=JSON), 408)["message"]


@pytest.mark.parametrize("declared", ["", "text/plain", "application/x-www-form-urlencoded", "application/jsonp"])
async def test_a_body_that_is_not_declared_as_json_is_refused(client: httpx.AsyncClient, declared: str) -> None:
    headers = {"content-type": declared} if declared else {}

    assert "Content-Type" in error_of(await client.post(URL, content=b"{}", headers=headers), 415)["message"]


@pytest.mark.parametrize(
    "raw",
    [b"", b"{", b"{'a': 1}", b'{"model": }', b"\xff\xfe", b"[" * 2000, b"1" * 2000 + b",", b"\xef\xbb\xbf{}", b"nul"],
)
async def test_what_is_not_json_is_refused(client: httpx.AsyncClient, raw: bytes) -> None:
    error = error_of(await client.post(URL, content=raw, headers=JSON), 400)

    assert error["param"] is None
    assert error["code"] == "invalid_json"


@pytest.mark.parametrize("raw", [b"[]", b"1", b"null", b'"x"', b"NaN"])
async def test_json_that_is_no_object_is_refused(client: httpx.AsyncClient, raw: bytes) -> None:
    assert "a JSON object" in error_of(await client.post(URL, content=raw, headers=JSON), 400)["message"]


def with_messages(content: bytes) -> bytes:
    return b'{"model": "smollm2", "messages": [{"role": "user", "content": "' + content + b'"}]}'


@pytest.mark.parametrize("content", [rb"\ud83d", rb"\udc00\ud83d", b"\xff", b"\xe4\xbd", b"\xed\xa0\x80"])
async def test_half_characters_are_refused_under_their_field(client: httpx.AsyncClient, content: bytes) -> None:
    error = error_of(await client.post(URL, content=with_messages(content), headers=JSON), 400)

    assert error["param"] == "messages"
    assert "Unicode" in error["message"]


async def test_whole_surrogate_pairs_are_characters(client: httpx.AsyncClient, backend: FakeBackend) -> None:
    answer = await client.post(URL, content=with_messages(rb"\ud83c\udf0d \\ud83d"), headers=JSON)

    assert answer.status_code == 200
    assert backend.requests[0].prompt.messages[0].content == "🌍 \\ud83d"  # type: ignore[union-attr]


async def test_a_half_character_in_a_field_name_is_refused(client: httpx.AsyncClient) -> None:
    raw = b'{"model": "smollm2", "\\ud800": 1}'

    assert "name of a field" in error_of(await client.post(URL, content=raw, headers=JSON), 400)["message"]


@pytest.mark.parametrize("literal", [b"NaN", b"Infinity", b"-Infinity", b"1e999"])
async def test_numbers_that_are_not_finite_are_refused_under_their_field(
    client: httpx.AsyncClient, literal: bytes
) -> None:
    raw = with_messages(b"x")[:-1] + b', "top_p": ' + literal + b"}"

    assert error_of(await client.post(URL, content=raw, headers=JSON), 400)["param"] == "top_p"


def test_a_number_of_ten_thousand_digits_is_refused() -> None:
    with pytest.raises(ApiError, match="too many digits"):
        parse_json(b'{"seed": ' + b"1" * 10_000 + b"}")


_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
_fields = st.sampled_from(
    ["messages", "model", "stop", "n", "logit_bias", "stream", "stream_options", "tools", "seed", "top_p", "metadata",
     "response_format", "chat_template_kwargs", "prompt", "logprobs", "zzz"]
)  # fmt: skip


_backend = FakeBackend()
_app = create_app(_backend, AppSettings("1"), Gate())


@settings(max_examples=150, deadline=None)
@given(change=st.dictionaries(_fields, _values, max_size=3), url=st.sampled_from([URL, "/v1/completions", "/tokenize"]))
def test_no_json_makes_the_server_fail(change: dict[str, Any], url: str) -> None:
    body = {"model": "smollm2", "max_tokens": 2, "messages": [{"role": "user", "content": "x"}]}
    if url != URL:
        body = {"model": "smollm2", "prompt": "x"}

    async def send() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(_app), base_url="http://test") as client:
            return await client.post(url, content=json.dumps(body | change), headers=JSON)

    answer = asyncio.run(send())

    assert answer.status_code in (200, 400, 404)
    assert _backend.open == 0
    if answer.status_code != 200:
        assert answer.json()["error"]["message"]
