"""Each service of the engine is swapped under streaming requests: every stream ends as it would have undisturbed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import httpx
import pytest

from .runs import Runs

PROMPTS = ["The capital of France is", "Once upon a time", "def fib(n):", "A list of colors:"]
TOKENS = 48


@pytest.fixture
def engine(runs: Runs) -> Iterator[Runs]:
    runs.run("up", "llm", "--detach", "--set", "api.port=0", "--set", "dtype=float32")
    yield runs
    runs.run("down")


async def stream(client: httpx.AsyncClient, prompt: str, begun: asyncio.Event | None = None) -> str:
    """The text of one greedy completion. begun: set with its first token."""
    body = {
        "model": "smollm2", "prompt": prompt, "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True,
        "stream": True, "stream_options": {"include_usage": True},
    }  # fmt: skip
    text, usage = "", None
    async with client.stream("POST", "/v1/completions", json=body) as answer:
        assert answer.status_code == 200
        async for line in answer.aiter_lines():
            if not line.startswith("data: {"):
                continue
            event = json.loads(line.removeprefix("data: "))
            assert "error" not in event, event
            usage = event.get("usage") or usage
            if event["choices"]:
                text += event["choices"][0]["text"]
                if begun is not None:
                    begun.set()
    assert usage is not None
    assert usage["completion_tokens"] == TOKENS, "no token is lost or doubled"
    return text


@pytest.mark.anyio
@pytest.mark.timeout(240)
async def test_every_service_is_swapped_under_load_and_no_stream_changes(engine: Runs) -> None:
    url = str(engine.services()["api"]["url"])
    async with httpx.AsyncClient(base_url=url, timeout=120) as client:
        undisturbed = await asyncio.gather(*(stream(client, prompt) for prompt in PROMPTS))
        for service in ("scheduler", "worker", "engine", "processor"):
            begun = [asyncio.Event() for _ in PROMPTS]
            streams = asyncio.gather(*(stream(client, p, e) for p, e in zip(PROMPTS, begun, strict=True)))
            all_begun = asyncio.gather(*(event.wait() for event in begun))
            await asyncio.wait([streams, all_begun], return_when=asyncio.FIRST_COMPLETED)
            assert all_begun.done(), streams.exception()
            before = (await asyncio.to_thread(engine.services))[service]["incarnation"]
            await asyncio.to_thread(engine.run, "swap", service)
            assert await streams == undisturbed, service
            after = (await asyncio.to_thread(engine.services))[service]["incarnation"]
            assert after != before
