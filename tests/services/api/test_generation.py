"""Answers whole and streamed: their order, their counts, and their errors."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from services.api.errors import BackendError
from tests.cases.expectations import parse_events

from .fake_backend import FakeBackend, delta

pytestmark = pytest.mark.anyio
CHAT = "/v1/chat/completions"
COMPLETION = "/v1/completions"


def chat_body(**change: Any) -> dict[str, Any]:
    return {"model": "smollm2", "messages": [{"role": "user", "content": "Count."}], "max_tokens": 3} | change


def completion_body(**change: Any) -> dict[str, Any]:
    return {"model": "smollm2", "prompt": "Count.", "max_tokens": 3} | change


async def test_a_chat_is_answered_whole(client: httpx.AsyncClient, backend: FakeBackend) -> None:
    backend.script = (
        delta(text="Hel", count=1, cached_tokens=4),
        delta(text="lo", count=2),
        delta(count=3, finish="stop", stop_reason="!"),
    )
    answer = (await client.post(CHAT, json=chat_body())).json()

    assert answer["object"] == "chat.completion"
    assert answer["id"] == backend.requests[0].request_id
    assert answer["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Hello", "refusal": None},
            "logprobs": None,
            "finish_reason": "stop",
            "stop_reason": "!",
        }
    ]
    assert answer["usage"] == {
        "prompt_tokens": 7,
        "completion_tokens": 3,
        "total_tokens": 10,
        "prompt_tokens_details": {"cached_tokens": 4},
    }


async def test_a_chat_streams_the_role_then_the_text_then_the_end(
    client: httpx.AsyncClient, backend: FakeBackend
) -> None:
    backend.script = (delta(count=1), delta(text="Hel", count=2), delta(text="lo", count=3, finish="length"))
    answer = await client.post(CHAT, json=chat_body(stream=True))
    chunks, done = parse_events(answer.content)

    assert done
    assert answer.headers["cache-control"] == "no-cache"
    assert [chunk["choices"][0]["delta"] for chunk in chunks] == [
        {"role": "assistant", "content": ""}, {"content": "Hel"}, {"content": "lo"}, {},
    ]  # fmt: skip
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None, None, None, "length"]
    assert len({(chunk["id"], chunk["created"], chunk["model"], chunk["object"]) for chunk in chunks}) == 1
    assert all("usage" not in chunk for chunk in chunks)


async def test_usage_comes_in_a_last_chunk_of_its_own(client: httpx.AsyncClient) -> None:
    for url, body in ((CHAT, chat_body), (COMPLETION, completion_body)):
        options = {"stream": True, "stream_options": {"include_usage": True}, "n": 2}
        chunks, done = parse_events((await client.post(url, json=body(**options))).content)

        assert done
        assert [chunk["choices"] for chunk in chunks if "usage" in chunk] == [[]]
        assert chunks[-1]["usage"]["completion_tokens"] == 6


async def test_choices_that_interleave_are_told_apart(client: httpx.AsyncClient, backend: FakeBackend) -> None:
    backend.script = (
        delta(1, "b1"),
        delta(0, "a1"),
        delta(1, "b2", count=2, finish="stop"),
        delta(0, "a2", count=2, finish="length"),
    )
    whole = (await client.post(CHAT, json=chat_body(n=2))).json()
    chunks, _ = parse_events((await client.post(CHAT, json=chat_body(n=2, stream=True))).content)

    assert [choice["message"]["content"] for choice in whole["choices"]] == ["a1a2", "b1b2"]
    assert [choice["finish_reason"] for choice in whole["choices"]] == ["length", "stop"]
    for index, text in enumerate(["a1a2", "b1b2"]):
        own = [c["choices"][0] for c in chunks if c["choices"][0]["index"] == index]
        assert own[0]["delta"]["role"] == "assistant"
        assert "".join(choice["delta"].get("content", "") for choice in own) == text
        assert [choice["finish_reason"] is None for choice in own] == [True] * (len(own) - 1) + [False]


async def test_several_prompts_are_numbered_prompt_by_prompt(client: httpx.AsyncClient, backend: FakeBackend) -> None:
    body = completion_body(prompt=["one two", "red"], n=2, echo=True)
    answer = (await client.post(COMPLETION, json=body)).json()

    assert [choice["text"][:3] for choice in answer["choices"]] == ["one", "one", "red", "red"]
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2, 3]
    assert answer["usage"]["prompt_tokens"] == 3  # each prompt once, not once for each of its completions
    assert answer["usage"]["completion_tokens"] == 12
    ids = [request.request_id for request in backend.requests]
    assert sorted(ids) == [f"{answer['id']}-0", f"{answer['id']}-1"]


async def test_one_prompt_of_several_that_is_refused_ends_the_others(
    client: httpx.AsyncClient, backend: FakeBackend
) -> None:
    body = completion_body(prompt=["word " * 3000, *["fine"] * 5], max_tokens=1000)
    answer = await client.post(COMPLETION, json=body)

    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "prompt"
    assert backend.open == 0


async def test_chat_logprobs_have_bytes_and_alternatives_in_both_ways(client: httpx.AsyncClient) -> None:
    body = chat_body(logprobs=True, top_logprobs=2)
    whole = (await client.post(CHAT, json=body)).json()["choices"][0]["logprobs"]["content"]
    chunks, _ = parse_events((await client.post(CHAT, json=body | {"stream": True})).content)
    streamed = [
        item
        for chunk in chunks
        for choice in chunk["choices"]
        if choice["logprobs"]
        for item in choice["logprobs"]["content"]
    ]

    assert whole == streamed
    assert [len(item["top_logprobs"]) for item in whole] == [2, 2, 2]
    assert whole[0]["bytes"] == list(b"0, ")


async def test_completion_logprobs_keep_their_offsets_in_a_stream(client: httpx.AsyncClient) -> None:
    body = completion_body(logprobs=1)
    whole = (await client.post(COMPLETION, json=body)).json()["choices"][0]["logprobs"]
    chunks, _ = parse_events((await client.post(COMPLETION, json=body | {"stream": True})).content)
    offsets = [o for c in chunks for o in (c["choices"][0]["logprobs"] or {"text_offset": []})["text_offset"]]

    assert whole["text_offset"] == [0, 3, 6]
    assert offsets == whole["text_offset"]


@pytest.mark.parametrize(
    ("code", "status", "header"),
    [
        ("invalid_argument", 400, None),
        ("not_found", 404, None),
        ("overloaded", 429, ("retry-after", "3")),
        ("unavailable", 503, ("retry-after", "3")),
        ("peer_lost", 503, ("retry-after", "3")),
        ("stale_incarnation", 503, ("retry-after", "3")),
        ("cancelled", 503, ("x-should-retry", "false")),
        ("unsupported", 501, ("x-should-retry", "false")),
        ("deadline_exceeded", 504, None),
        ("internal", 500, None),
        ("some_new_code", 500, None),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_an_error_before_the_first_token_has_its_own_status(
    client: httpx.AsyncClient,
    backend: FakeBackend,
    code: str,
    status: int,
    header: Any,
    stream: bool,
) -> None:
    backend.script = (BackendError(code, "worker: secret /path", field="request.prompt", retry_after_s=2.4),)
    answer = await client.post(CHAT, json=chat_body(stream=stream), headers={"x-request-id": "r-1"})
    error = answer.json()["error"]

    assert answer.status_code == status
    assert header is None or answer.headers[header[0]] == header[1]
    assert error["param"] == ("messages" if status == 400 else None)
    if status == 500:
        assert "secret" not in error["message"]
        assert error["request_id"] == "r-1"


@pytest.mark.parametrize("url", [CHAT, COMPLETION])
async def test_an_error_in_the_middle_ends_the_stream_without_done(
    client: httpx.AsyncClient, backend: FakeBackend, url: str
) -> None:
    backend.script = (delta(text="a"), BackendError("peer_lost", "the engine went away"))
    body = chat_body() if url == CHAT else completion_body()
    answer = await client.post(url, json=body | {"stream": True})
    events, done = parse_events(answer.content)

    assert answer.status_code == 200
    assert not done
    assert "the engine went away" in events[-1]["error"]["message"]
    assert all(choice["finish_reason"] is None for event in events[:-1] for choice in event["choices"])
    assert backend.open == 0


@pytest.mark.parametrize(("finish", "status"), [("error", 500), ("abort", 503)])
async def test_a_completion_that_failed_is_an_error_and_no_finish_reason(
    client: httpx.AsyncClient, backend: FakeBackend, finish: str, status: int
) -> None:
    backend.script = (delta(0, "a"), delta(1, "b", finish=finish, error="logits are NaN"), delta(0, "c", finish="stop"))
    whole = await client.post(CHAT, json=chat_body(n=2))
    events, done = parse_events((await client.post(CHAT, json=chat_body(n=2, stream=True))).content)

    assert whole.status_code == status
    assert "NaN" not in whole.text
    assert not done
    assert events[-1]["error"]["code"] == whole.json()["error"]["code"]
    assert backend.open == 0


@pytest.mark.parametrize(
    "script",
    [
        (delta(text="a"),),
        (delta(text="a", finish="stop"), delta(text="b")),
        (delta(text="a", finish="stop"), delta(finish="stop")),
        (delta(3, "a"),),
        (delta(0, "a", finish="stop"), ValueError("a bug")),
    ],
    ids=["no end", "goes on after its end", "two ends", "no such choice", "a bug"],
)
async def test_a_backend_that_breaks_its_word_is_an_internal_error(
    client: httpx.AsyncClient, backend: FakeBackend, script: tuple[Any, ...]
) -> None:
    backend.script = script
    whole = await client.post(CHAT, json=chat_body())
    events, done = parse_events((await client.post(CHAT, json=chat_body(stream=True))).content)

    assert whole.status_code == 500
    assert whole.json()["error"]["code"] == "internal"
    assert not done
    assert events[-1]["error"]["code"] == "internal"


async def test_a_model_that_was_swapped_is_found_at_once(client: httpx.AsyncClient, backend: FakeBackend) -> None:
    assert (await client.post(CHAT, json=chat_body())).status_code == 200
    backend.card = type(backend.card)(
        name="other", path="/m", max_context=8, vocab_size=9, has_chat_template=False, created=1
    )

    assert (await client.post(CHAT, json=chat_body(model="other"))).status_code == 200
    assert (await client.post(CHAT, json=chat_body())).json()["error"]["code"] == "model_not_found"
