"""Prompts of every kind as token ids."""

from __future__ import annotations

from typing import Any

import pytest

from services.processor.prompt import ReadPrompt, characters_in, echo_of, read_prompt
from services.processor.request_checks import Limits, RequestError
from services.processor.template import ChatTemplate
from services.processor.text_model import TextModel
from services.protocols.processor import ChatMessage, ChatPrompt, TextPrompt, TokenPrompt

from .byte_tokenizer import END, byte_tokenizer
from .golden import CASES

LIMITS = Limits(max_context=100, vocab_size=259)
TEMPLATE = ChatTemplate("{% for m in messages %}{{ m.role[0] }}:{{ m.content }}<end>{% endfor %}", {})
MODEL = TextModel(byte_tokenizer(), {"default": TEMPLATE})
BEGINNING = TextModel(byte_tokenizer(add_bos=True), {"default": TEMPLATE})


def chat(*contents: str, **fields: Any) -> ChatPrompt:
    return ChatPrompt(messages=[ChatMessage(role="user", content=text) for text in contents], **fields)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_the_embedded_model_reads_the_golden_prompts(smollm2: TextModel, case: dict[str, Any]) -> None:
    prompt: ChatPrompt | TextPrompt
    if case["kind"] == "chat":
        prompt = ChatPrompt(messages=[ChatMessage(**message) for message in case["messages"]])
    else:
        prompt = TextPrompt(text=case["prompt"])
    read = read_prompt(smollm2, prompt, Limits(max_context=8192, vocab_size=49152))
    assert read.token_ids == case["prompt_ids"]


def test_token_ids_are_taken_as_they_are_if_the_model_has_them() -> None:
    assert read_prompt(MODEL, TokenPrompt(token_ids=[0, END]), LIMITS) == ReadPrompt([0, END], None)
    for wrong in (259, -1):
        with pytest.raises(RequestError, match=f"token id {wrong}") as refused:
            read_prompt(MODEL, TokenPrompt(token_ids=[0, wrong]), LIMITS)
        assert refused.value.field == "request.prompt"


def test_text_begins_as_the_model_wants_and_a_conversation_as_its_template_writes() -> None:
    assert read_prompt(BEGINNING, TextPrompt(text="a"), LIMITS) == ReadPrompt([END, 97], "a")
    assert read_prompt(BEGINNING, TextPrompt(text="a"), LIMITS, add_special_tokens=False).token_ids == [97]
    assert read_prompt(BEGINNING, chat("a"), LIMITS) == ReadPrompt([*b"u:a", END], None)


def test_an_empty_prompt_is_refused_unless_the_model_begins_it() -> None:
    with pytest.raises(RequestError, match="nothing to go on from") as refused:
        read_prompt(MODEL, TextPrompt(text=""), LIMITS)
    assert refused.value.field == "request.prompt"
    assert read_prompt(BEGINNING, TextPrompt(text=""), LIMITS).token_ids == [END]


def test_text_that_is_no_unicode_is_refused() -> None:
    with pytest.raises(RequestError, match="not valid Unicode") as refused:
        read_prompt(MODEL, TextPrompt(text="\ud83d"), LIMITS)
    assert refused.value.field == "request.prompt"


def test_a_text_that_is_too_long_for_certain_is_refused_without_being_tokenized() -> None:
    with pytest.raises(RequestError, match="at least 16666 tokens; the model's context is 100"):
        read_prompt(MODEL, TextPrompt(text="a" * 100_000), LIMITS)
    assert len(read_prompt(MODEL, TextPrompt(text="a" * 600), LIMITS).token_ids) == 600, "for fit_sampling to refuse"


def test_what_the_template_refuses_is_refused_by_its_part_of_the_prompt() -> None:
    for prompt, field in (
        (chat("a", tools=[{"type": "function"}]), "tools"),
        (chat("a", template_kwargs={"messages": []}), "template_kwargs"),
        (chat("a", continue_final_message=True), "continue_final_message"),
    ):
        with pytest.raises(RequestError) as refused:
            read_prompt(MODEL, prompt, LIMITS)
        assert refused.value.field == f"request.prompt.{field}"


def test_a_refusal_tells_where_the_prompt_stands() -> None:
    for prompt, field in ((TextPrompt(text=""), "prompt"), (chat("a", tools=[{}]), "prompt.tools")):
        with pytest.raises(RequestError) as refused:
            read_prompt(MODEL, prompt, LIMITS, field="prompt")
        assert refused.value.field == field


def test_an_echo_is_the_text_as_it_was_given() -> None:
    read = read_prompt(BEGINNING, TextPrompt(text="a<end>"), LIMITS)
    assert echo_of(BEGINNING.tokenizer, read, skip_special=True) == "a<end>"


@pytest.mark.parametrize(("skip", "expected"), [(True, "ab"), (False, "a<end>b")])
def test_an_echo_of_token_ids_ends_with_their_last_whole_character(skip: bool, expected: str) -> None:
    read = read_prompt(MODEL, TokenPrompt(token_ids=[97, END, 98, 0xF0, 0x9F]), LIMITS)
    assert echo_of(MODEL.tokenizer, read, skip_special=skip) == expected


def test_the_length_of_a_prompt_counts_everything_that_a_template_may_print() -> None:
    assert characters_in(TextPrompt(text="abc")) == 3
    assert characters_in(TokenPrompt(token_ids=[1] * 1000)) == 0
    assert characters_in(chat("abc", "de")) == 5
    called = ChatMessage(role="assistant", tool_calls=[{"function": {"name": "f", "arguments": "x" * 5000}}])
    assert characters_in(ChatPrompt(messages=[called])) > 5000
    assert characters_in(chat("a", tools=[{"function": {"description": "x" * 5000}}])) > 5000
    assert characters_in(chat("a", template_kwargs={"documents": ["x" * 5000]})) > 5000
