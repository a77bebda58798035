"""The whole chain against the reference's greedy outputs: token ids through the processor, text through HTTP."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from services.protocols.processor import ChatMessage, ChatPrompt, GenerateText, ProcessorInterface, TextPrompt
from services.protocols.sampling import SamplingParams
from zmqengine import aconnect

from .llm import Llm

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parents[1] / "cases" / "golden.json").read_text())["cases"]
TIE = 1e-3
"""Where the reference's two best logits lie closer than this, either is right, and the comparison ends."""
BY_NAME = pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])


def prompt_of(case: dict[str, Any]) -> TextPrompt | ChatPrompt:
    if case["kind"] == "raw":
        return TextPrompt(text=case["prompt"])
    return ChatPrompt(messages=[ChatMessage(**message) for message in case["messages"]])


def request_of(case: dict[str, Any], name: str) -> GenerateText:
    sampling = SamplingParams(max_tokens=len(case["output_ids"]), temperature=0.0, ignore_eos=True, logprobs=5)
    return GenerateText(
        request_id=f"{name}-{case['name']}", prompt=prompt_of(case), sampling=sampling, skip_special_tokens=False
    )


def check(case: dict[str, Any], deltas: list[Any]) -> None:
    """Token by token, up to a tie."""
    logprobs = [entry for delta in deltas for entry in delta.logprobs or ()]
    assert [delta.finish_reason for delta in deltas if delta.finish_reason] == ["length"]
    assert deltas[-1].token_count == len(logprobs) == len(case["output_ids"])
    assert deltas[-1].prompt_tokens == len(case["prompt_ids"])
    first = logprobs[0].top
    assert [top.token_id for top in first] == [token for token, _ in case["top5_first"]]
    assert [top.logprob for top in first] == pytest.approx([value for _, value in case["top5_first"]], abs=1e-3)
    for entry, expected in zip(logprobs, case["output_ids"], strict=True):
        if entry.token_id != expected:
            assert case["min_margin"] < TIE, case["name"]
            best, second = entry.top[:2]
            assert {entry.token_id, expected} == {best.token_id, second.token_id}
            assert best.logprob - second.logprob < 2 * TIE
            return
    assert "".join(delta.text for delta in deltas) == case["output_text"]


@BY_NAME
def test_a_prompt_has_the_references_token_ids(llm: Llm, case: dict[str, Any]) -> None:
    with llm.processor() as processor:
        assert processor.tokenize(prompt_of(case)) == case["prompt_ids"]


@BY_NAME
def test_a_case_alone_gives_the_references_tokens(llm: Llm, case: dict[str, Any]) -> None:
    with llm.processor() as processor:
        check(case, list(processor.generate(request_of(case, "alone"))))
    llm.wait_until_idle()


@pytest.mark.anyio
async def test_all_cases_at_once_give_the_references_tokens(llm: Llm) -> None:
    async with aconnect("processor", ProcessorInterface, run=llm.run) as processor:

        async def deltas(case: dict[str, Any]) -> list[Any]:
            return [delta async for delta in processor.generate(request_of(case, "together"))]

        answers = await asyncio.gather(*map(deltas, CASES))
    for case, answer in zip(CASES, answers, strict=True):
        check(case, answer)
    llm.wait_until_idle()


@pytest.mark.anyio
async def test_over_http_all_at_once_the_texts_are_the_references(llm: Llm) -> None:
    async with httpx.AsyncClient(base_url=llm.url, timeout=120) as client:

        async def text(case: dict[str, Any]) -> str:
            body = {
                "model": "smollm2", "max_tokens": len(case["output_ids"]), "temperature": 0, "ignore_eos": True,
                "skip_special_tokens": False,
            }  # fmt: skip
            if case["kind"] == "raw":
                answer = await client.post("/v1/completions", json={**body, "prompt": case["prompt"]})
                assert answer.status_code == 200, answer.text
                return str(answer.json()["choices"][0]["text"])
            answer = await client.post("/v1/chat/completions", json={**body, "messages": case["messages"]})
            assert answer.status_code == 200, answer.text
            return str(answer.json()["choices"][0]["message"]["content"])

        texts = await asyncio.gather(*map(text, CASES))
    sure = [(text, case) for text, case in zip(texts, CASES, strict=True) if case["min_margin"] >= TIE]
    assert len(sure) >= len(CASES) - 2
    for text, case in sure:
        assert text == case["output_text"], case["name"]
