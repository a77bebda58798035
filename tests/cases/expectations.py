"""Checks an answer against an entry of api.jsonl; its keys are described in the README of the cases."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

Case = dict[str, Any]
API_CASES: list[Case] = [
    json.loads(line) for line in Path(__file__).with_name("api.jsonl").read_text().splitlines() if line
]


def parse_events(body: bytes) -> tuple[list[dict[str, Any]], bool]:
    """The JSON of each event, and whether [DONE] came last."""
    events = [line.removeprefix("data: ") for line in body.decode().split("\n\n") if line]
    done = bool(events) and events[-1] == "[DONE]"
    return [json.loads(event) for event in (events[:-1] if done else events)], done


def check_refusal(case: Case, answer: dict[str, Any]) -> None:
    """A 400 or 404: OpenAI's error object, which names the field."""
    error = answer["error"]
    param = case["expect"]["error_param"]
    assert error["param"] == param
    assert param in error["message"]
    assert error["type"] == "invalid_request_error"


def check_whole(case: Case, answer: dict[str, Any], again: Callable[[], dict[str, Any]]) -> None:
    """A 200 that is not streamed. again: sends the request once more."""
    expect = case.get("expect", {})
    choices, usage = answer["choices"], answer["usage"]
    texts = [text_of(choice) for choice in choices]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert usage["prompt_tokens"] > 0
    assert [choice["index"] for choice in choices] == list(range(len(choices)))
    checks: dict[str, Callable[[Any], bool]] = {
        "finish_reason": lambda v: all(choice["finish_reason"] in v for choice in choices),
        "completion_tokens": lambda v: usage["completion_tokens"] == v,
        "max_completion_tokens": lambda v: usage["completion_tokens"] <= v,
        "min_completion_tokens": lambda v: usage["completion_tokens"] >= v,
        "choices": lambda v: len(choices) == v,
        "text_excludes": lambda v: all(piece not in text for piece in v for text in texts),
        "text_starts": lambda v: all(text.startswith(v) for text in texts),
        "text_in": lambda v: all(text in v for text in texts),
        "text_matches": lambda v: all(re.fullmatch(v, text) for text in texts),
        "valid_utf8": lambda v: all("�" not in text for text in texts),
        "logprobs": lambda v: all(_chat_alternatives(choice, v, usage) for choice in choices),
        "logprobs_completion": lambda v: all(_completion_alternatives(choice, v, usage) for choice in choices),
        "same_twice": lambda v: [text_of(choice) for choice in again()["choices"]] == texts,
        "differs_in": lambda v: len({tuple(map(text_of, again()["choices"])) for _ in range(v)}) > 1,
        "json_keys": lambda v: set(json.loads(texts[0])) == set(v),
    }
    for key, value in expect.items():
        assert checks[key](value), f"{case['name']}: {key} is not {value}: {answer}"


def check_stream(case: Case, body: bytes) -> None:
    """A 200 that is streamed."""
    expect = case["expect"]
    chunks, done = parse_events(body)
    assert done
    with_usage = [number for number, chunk in enumerate(chunks) if chunk.get("usage") is not None]
    if expect.get("no_usage"):
        assert with_usage == []
    if expect.get("usage_last_only"):
        assert with_usage == [len(chunks) - 1]
        assert chunks[-1]["choices"] == []
    finished = Counter(
        choice["index"] for chunk in chunks for choice in chunk["choices"] if choice["finish_reason"] is not None
    )
    choices = expect.get("finish_once_per_choice", 1)
    assert finished == dict.fromkeys(range(choices), 1)


def text_of(choice: dict[str, Any]) -> str:
    """Text of a choice of either endpoint."""
    text: str = choice["message"]["content"] if "message" in choice else choice["text"]
    return text


def _chat_alternatives(choice: dict[str, Any], count: int, usage: dict[str, int]) -> bool:
    positions = choice["logprobs"]["content"]
    return len(positions) == usage["completion_tokens"] and all(
        len(position["top_logprobs"]) == count and position["logprob"] <= 0 for position in positions
    )


def _completion_alternatives(choice: dict[str, Any], count: int, usage: dict[str, int]) -> bool:
    logprobs = choice["logprobs"]
    lengths = {len(logprobs[key]) for key in ("tokens", "token_logprobs", "top_logprobs", "text_offset")}
    return lengths == {usage["completion_tokens"]} and all(len(top) == count for top in logprobs["top_logprobs"])
