"""Log-probabilities in OpenAI's two shapes."""

from __future__ import annotations

import json
import math

import msgspec

from services.api.logprob import CompletionLogprobWriter, chat_logprobs
from services.protocols.processor import TextLogprob, TopToken

EARTH = "🌍".encode()


def top(token: str, token_id: int, logprob: float, raw: bytes | None = None) -> TopToken:
    return TopToken(token=token, token_id=token_id, logprob=logprob, raw=token.encode() if raw is None else raw)


def chosen(token: str, token_id: int, logprob: float, tops: list[TopToken], raw: bytes | None = None) -> TextLogprob:
    raw = token.encode() if raw is None else raw
    return TextLogprob(token=token, token_id=token_id, logprob=logprob, raw=raw, top=tops)


def test_a_chats_alternatives_are_as_many_as_asked_for() -> None:
    item = chosen("a", 1, -1.0, [top("b", 2, -0.5), top("a", 1, -1.0), top("c", 3, -2.0)])
    (written,) = chat_logprobs([item], 2)["content"]

    assert [t["token"] for t in written["top_logprobs"]] == ["b", "a"]
    assert written["logprob"] == -1.0


def test_an_impossible_token_has_a_number_that_json_has() -> None:
    item = chosen("a", 1, -math.inf, [top("a", 1, -math.inf)])
    text = msgspec.json.encode(chat_logprobs([item], 1))

    assert json.loads(text)["content"][0]["logprob"] == -9999.0
    assert CompletionLogprobWriter(1).write([item])["top_logprobs"] == [{"a": -9999.0}]


def test_parts_of_a_character_have_their_bytes() -> None:
    halves = [chosen("�", 1, -1.0, [], EARTH[:2]), chosen("�", 2, -1.0, [], EARTH[2:])]

    assert [item["bytes"] for item in chat_logprobs(halves, 0)["content"]] == [list(EARTH[:2]), list(EARTH[2:])]
    assert CompletionLogprobWriter(0).write(halves)["tokens"] == [r"bytes:\xf0\x9f", r"bytes:\x8c\x8d"]


def test_offsets_count_characters_over_calls_and_over_parts_of_a_character() -> None:
    writer = CompletionLogprobWriter(0)
    first = writer.write([chosen("é", 1, -1.0, []), chosen("�", 2, -1.0, [], EARTH[:2])])
    second = writer.write([chosen("�", 3, -1.0, [], EARTH[2:]), chosen("x", 4, -1.0, [])])

    assert first["text_offset"] + second["text_offset"] == [0, 1, 1, 2]


def test_the_chosen_token_is_always_among_a_completions_alternatives() -> None:
    item = chosen("z", 9, -7.0, [top("a", 1, -0.5), top("b", 2, -0.9)])

    assert CompletionLogprobWriter(2).write([item])["top_logprobs"] == [{"a": -0.5, "b": -0.9, "z": -7.0}]
    assert CompletionLogprobWriter(0).write([item])["top_logprobs"] == [{"z": -7.0}]


def test_two_tokens_of_one_text_are_both_reported() -> None:
    item = chosen("A", 1, -0.1, [top("A", 1, -0.1), top("A", 2, -0.2)])

    assert CompletionLogprobWriter(2).write([item])["top_logprobs"] == [{"A": -0.1, "token_id:2": -0.2}]
