"""What clients do to a running engine: the unmodified openai client, many at once, some that leave, some that lie."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam

from tests.cases.expectations import API_CASES, Case, check_refusal, check_stream, check_whole
from tests.services.api.test_cases import NOT_YET

from .llm import Llm

MODEL = "smollm2"
CAPITAL: list[ChatCompletionMessageParam] = [{"role": "user", "content": "What is the capital of France?"}]


def client_of(llm: Llm) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{llm.url}/v1", api_key="unused", max_retries=0)


def async_client_of(llm: Llm) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{llm.url}/v1", api_key="unused", max_retries=0)


def test_the_openai_client_lists_the_model(llm: Llm) -> None:
    with client_of(llm) as client:
        assert [model.id for model in client.models.list()] == [MODEL]


def test_the_openai_client_chats(llm: Llm) -> None:
    with client_of(llm) as client:
        answer = client.chat.completions.create(model=MODEL, messages=CAPITAL, temperature=0, max_tokens=20)
    assert "Paris" in (answer.choices[0].message.content or "")
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_the_openai_client_streams_the_same_chat(llm: Llm) -> None:
    with client_of(llm) as client:
        whole = client.chat.completions.create(model=MODEL, messages=CAPITAL, temperature=0, max_tokens=20)
        with client.chat.completions.create(
            model=MODEL, messages=CAPITAL, temperature=0, max_tokens=20, stream=True,
            stream_options={"include_usage": True},
        ) as stream:  # fmt: skip
            chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert [chunk.usage for chunk in chunks if chunk.usage] == [whole.usage]


def test_the_openai_client_completes_streaming_and_not(llm: Llm) -> None:
    asked: dict[str, Any] = {"model": MODEL, "prompt": "The capital of France is", "temperature": 0, "max_tokens": 8}
    with client_of(llm) as client:
        whole = client.completions.create(**asked)
        with client.completions.create(**asked, stream=True) as stream:
            text = "".join(chunk.choices[0].text for chunk in stream)
    assert text == whole.choices[0].text
    assert text.startswith(" Paris.")


@pytest.mark.anyio
async def test_the_async_openai_client_chats_and_completes_streaming_and_not(llm: Llm) -> None:
    async with async_client_of(llm) as client:
        whole, completion = await asyncio.gather(
            client.chat.completions.create(model=MODEL, messages=CAPITAL, temperature=0, max_tokens=20),
            client.completions.create(model=MODEL, prompt="The capital of France is", temperature=0, max_tokens=8),
        )
        assert "Paris" in (whole.choices[0].message.content or "")
        assert completion.choices[0].text.startswith(" Paris.")
        chat = await client.chat.completions.create(
            model=MODEL, messages=CAPITAL, temperature=0, max_tokens=20, stream=True
        )
        parts = [chunk.choices[0].delta.content or "" async for chunk in chat]
        assert "".join(parts) == whole.choices[0].message.content
        stream = await client.completions.create(
            model=MODEL, prompt="The capital of France is", temperature=0, max_tokens=8, stream=True
        )
        assert "".join([chunk.choices[0].text async for chunk in stream]) == completion.choices[0].text


@pytest.mark.anyio
@pytest.mark.timeout(300)
async def test_two_hundred_requests_sixteen_at_a_time_are_counted_right(llm: Llm) -> None:
    gate = asyncio.Semaphore(16)
    async with async_client_of(llm) as client, httpx.AsyncClient(base_url=llm.url) as http:

        async def ask(number: int) -> None:
            prompt, tokens = f"Number {number}: " + "word " * (number % 7), 1 + number % 9
            async with gate:
                tokenized = (await http.post("/tokenize", json={"model": MODEL, "prompt": prompt})).json()
                asked: dict[str, Any] = {
                    "model": MODEL, "prompt": prompt, "max_tokens": tokens, "extra_body": {"ignore_eos": True}
                }  # fmt: skip
                if number % 2:
                    usage = (await client.completions.create(**asked)).usage
                else:
                    stream = await client.completions.create(
                        **asked, stream=True, stream_options={"include_usage": True}
                    )
                    chunks = [chunk async for chunk in stream]
                    usage = chunks[-1].usage
                    reasons = [c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason]
                    assert reasons == ["length"]
            assert usage is not None
            assert (usage.prompt_tokens, usage.completion_tokens) == (tokenized["count"], tokens)

        await asyncio.gather(*map(ask, range(200)))
    llm.wait_until_idle()


@pytest.mark.parametrize("chunks_read", [0, 3])
@pytest.mark.parametrize("n", [1, 3])
def test_a_client_that_disconnects_frees_its_sequences(llm: Llm, chunks_read: int, n: int) -> None:
    body = {"model": MODEL, "prompt": "Once", "max_tokens": 2000, "ignore_eos": True, "stream": True, "n": n}
    with httpx.stream("POST", f"{llm.url}/v1/completions", json=body) as answer:
        lines = answer.iter_lines()
        for _ in range(chunks_read):
            assert next(line for line in lines if line).startswith("data: ")
    # 2000 tokens take over a minute: they are gone because they were cancelled.
    llm.wait_until_idle(within_s=5.0)


def test_a_client_that_disconnects_during_the_prefill_frees_its_sequence(llm: Llm) -> None:
    body = {"model": MODEL, "prompt": "word " * 1500, "max_tokens": 400, "ignore_eos": True}
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{llm.url}/v1/completions", json=body, timeout=httpx.Timeout(10, read=0.3))
    llm.wait_until_idle(within_s=5.0)


@pytest.mark.parametrize("case", [pytest.param(case, id=case["name"]) for case in API_CASES])
def test_a_case_of_the_api_gets_its_answer_from_the_real_model(llm: Llm, case: Case) -> None:
    def send() -> httpx.Response:
        return httpx.request(case["method"], llm.url + case["path"], json=case["body"], timeout=60)

    answer = send()
    if case["name"] in NOT_YET:
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == NOT_YET[case["name"]]
        return
    assert answer.status_code == case["status"], answer.text
    if answer.status_code != 200:
        check_refusal(case, answer.json())
    elif case.get("expect", {}).get("stream"):
        check_stream(case, answer.content)
    else:
        check_whole(case, answer.json(), lambda: send().json())
    assert httpx.get(f"{llm.url}/ready").status_code == 200
