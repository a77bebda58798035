"""Requests of clients as requests to the processor."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from services.api.chat_request import ChatRequest
from services.api.completion_request import CompletionRequest
from services.api.errors import ApiError
from services.api.translate import client_field, generate_requests
from services.api.validation import validated
from services.protocols.processor import ChatMessage, GenerateText, TextPrompt, TokenPrompt
from services.protocols.sampling import SamplingParams

from .fake_backend import CARD

CHAT: dict[str, Any] = {"model": "smollm2", "messages": [{"role": "user", "content": "x"}]}
COMPLETION: dict[str, Any] = {"model": "smollm2", "prompt": "x"}


def chat(**change: Any) -> GenerateText:
    (request,) = generate_requests(validated(ChatRequest, CHAT | change), CARD, "id")
    return request


def completions(**change: Any) -> list[GenerateText]:
    return generate_requests(validated(CompletionRequest, COMPLETION | change), CARD, "id")


def test_a_bare_request_has_the_defaults_of_the_protocol() -> None:
    request = chat()

    assert request.sampling == SamplingParams(max_tokens=CARD.max_context)
    assert request.max_tokens_default
    assert (request.n, request.stop, request.skip_special_tokens, request.echo) == (1, [], True, False)


def test_every_field_arrives() -> None:
    request = chat(
        max_tokens=9, temperature=0, top_p=0.5, top_k=4, min_p=0.1, presence_penalty=1, frequency_penalty=-1,
        repetition_penalty=1.5, logit_bias={"0": -100, "7": 2}, allowed_token_ids=[0, 1], seed=-5, n=3, min_tokens=2,
        stop=["a", "b"], stop_token_ids=[0], include_stop_str_in_output=True, ignore_eos=True, priority=-3,
        skip_special_tokens=False, logprobs=True, top_logprobs=4,
    )  # fmt: skip

    assert request.sampling == SamplingParams(
        max_tokens=9, temperature=0, top_p=0.5, top_k=4, min_p=0.1, presence_penalty=1, frequency_penalty=-1,
        repetition_penalty=1.5, logit_bias={0: -100.0, 7: 2.0}, allowed_token_ids=[0, 1], seed=-5, min_tokens=2,
        stop_token_ids=[0], ignore_eos=True, logprobs=4,
    )  # fmt: skip
    assert (request.n, request.stop, request.include_stop, request.priority) == (3, ["a", "b"], True, -3)
    assert not request.skip_special_tokens
    assert not request.max_tokens_default


def test_what_is_sent_passes_the_protocols_own_validation() -> None:
    for request in [chat(seed=2**63 - 1, n=128, top_k=-1), *completions(prompt=[[0], [1]], echo=True)]:
        decoded = msgspec.msgpack.decode(msgspec.msgpack.encode(request), type=GenerateText)

        assert decoded == request


@pytest.mark.parametrize("top_k", [0, -1])
def test_all_tokens_are_kept_by_either_top_k(top_k: int) -> None:
    assert chat(top_k=top_k).sampling.top_k == 0


def test_max_completion_tokens_is_not_a_default() -> None:
    request = chat(max_completion_tokens=5)

    assert (request.sampling.max_tokens, request.max_tokens_default) == (5, False)


def test_a_completion_without_a_limit_generates_sixteen_or_what_there_is_room_for() -> None:
    (request,) = completions()

    assert (request.sampling.max_tokens, request.max_tokens_default) == (16, True)


def test_parts_are_joined_and_a_developer_is_the_system() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    messages = [{"role": "developer", "content": "be brief"}, {"role": "user", "content": parts, "name": "N"}]

    assert chat(messages=messages).prompt.messages == [  # type: ignore[union-attr]
        ChatMessage(role="system", content="be brief"),
        ChatMessage(role="user", content="a\nb", name="N"),
    ]


def test_a_stop_may_be_one_string() -> None:
    assert chat(stop="x").stop == ["x"]


def test_prompts_of_both_kinds_are_sent_one_by_one() -> None:
    assert [r.prompt for r in completions(prompt=["a", "b"])] == [TextPrompt(text="a"), TextPrompt(text="b")]
    assert [r.prompt for r in completions(prompt=[0, 5])] == [TokenPrompt(token_ids=[0, 5])]
    assert [r.request_id for r in completions(prompt=[[0], [5]])] == ["id-0", "id-1"]


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"logit_bias": {"49152": 1}}, "logit_bias"),
        ({"stop_token_ids": [49152]}, "stop_token_ids"),
        ({"allowed_token_ids": [1, 49152]}, "allowed_token_ids"),
        ({"prompt": [49151, 49152]}, "prompt"),
        ({"prompt": [[1], [49152]]}, "prompt"),
    ],
)
def test_ids_that_the_vocabulary_does_not_have_are_refused(change: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError, match="49152") as caught:
        completions(**change)
    assert caught.value.param == param


@pytest.mark.parametrize(
    ("field", "in_chat", "in_completion"),
    [
        ("prompt", "messages", "prompt"),
        ("messages", "messages", "prompt"),
        ("request.prompt", "messages", "prompt"),
        ("request.prompt.messages[0].content", "messages", "prompt"),
        ("request.prompt.token_ids", "messages", "prompt"),
        ("request.prompt.template_kwargs", "chat_template_kwargs", None),
        ("token_ids", "messages", "prompt"),
        ("request.sampling.top_p", "top_p", "top_p"),
        ("max_tokens", "max_tokens", "max_tokens"),
        ("request.sampling.logprobs", "logprobs", "logprobs"),
        ("request.include_stop", "include_stop_str_in_output", "include_stop_str_in_output"),
        ("echo", None, "echo"),
        ("request.request_id", None, None),
        ("tenant", None, None),
        ("request", None, None),
        ("", None, None),
    ],
)
def test_a_field_of_the_processors_has_the_clients_name(
    field: str, in_chat: str | None, in_completion: str | None
) -> None:
    assert client_field(field, validated(ChatRequest, CHAT)) == in_chat
    assert client_field(field, validated(CompletionRequest, COMPLETION)) == in_completion


def test_a_limit_has_the_name_that_the_client_used() -> None:
    request = validated(ChatRequest, CHAT | {"max_completion_tokens": 5, "logprobs": True, "top_logprobs": 2})

    assert client_field("request.sampling.max_tokens", request) == "max_completion_tokens"
    assert client_field("request.sampling.logprobs", request) == "top_logprobs"
