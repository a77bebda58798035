"""What a chat request may say, field by field."""

from __future__ import annotations

from typing import Any, get_type_hints

import pytest
from openai.types.chat import completion_create_params
from openai.types.chat.chat_completion_stream_options_param import ChatCompletionStreamOptionsParam

from services.api.chat_request import ChatRequest
from services.api.errors import ApiError
from services.api.generation_request import StreamOptions
from services.api.validation import validated

BODY: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
USER = {"role": "user", "content": "x"}


def refusal(**change: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        validated(ChatRequest, BODY | change)
    assert caught.value.status == 400
    return caught.value


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("temperature", 2.1, "must be at most 2"),
        ("temperature", float("nan"), "finite"),
        ("temperature", float("-inf"), "finite"),
        ("temperature", True, "must be a number; it is true"),
        ("temperature", 10**400, "huge"),
        ("top_p", 0, "must be above 0"),
        ("top_k", -2, "at least -1"),
        ("top_k", 1.0, "an integer"),
        ("min_p", -0.1, "at least 0"),
        ("repetition_penalty", 0, "above 0"),
        ("frequency_penalty", -2.5, "at least -2"),
        ("n", 129, "at most 128"),
        ("n", True, "an integer"),
        ("max_tokens", 2**31, "at most"),
        ("max_completion_tokens", 0, "at least 1"),
        ("min_tokens", -1, "at least 0"),
        ("seed", 2**63, "below"),
        ("seed", -(2**63) - 1, "at least"),
        ("seed", 1.5, "an integer"),
        ("stop", "", "not be empty"),
        ("stop", 5, "a string or a list"),
        ("stop", ["x" * 1001], "at most 1000 characters"),
        ("stop", ["x"] * 17, "at most 16 items"),
        ("stop", [None], "a string"),
        ("stop_token_ids", [-1], "at least 0"),
        ("stop_token_ids", [2**31], "below"),
        ("allowed_token_ids", [], "at least 1 item"),
        ("logit_bias", {"1": 100.5}, "-100 to 100"),
        ("logit_bias", {"1": float("nan")}, "-100 to 100"),
        ("logit_bias", {"1": None}, "-100 to 100"),
        ("logit_bias", {"-1": 1}, "not a token id"),
        ("logit_bias", {"01": 1}, "not a token id"),
        ("logit_bias", {"٣": 1}, "not a token id"),
        ("logit_bias", {str(i): 1 for i in range(1025)}, "at most 1024"),
        ("logit_bias", [1], "an object"),
        ("logprobs", 1, "true or false"),
        ("top_logprobs", 21, "at most 20"),
        ("stream", "true", "true or false"),
        ("stream_options", {"include_usage": True}, "only allowed when stream is true"),
        ("priority", 1001, "at most 1000"),
        ("user", "x" * 513, "at most 512 characters"),
        ("metadata", {str(i): "" for i in range(17)}, "at most 16"),
        ("metadata", {"k": 1}, "a string"),
        ("response_format", {"type": "json_object"}, "not supported yet"),
        ("response_format", {"type": "json_schema", "json_schema": {}}, "not supported yet"),
        ("response_format", {"type": ["text"]}, "'text'"),
        ("response_format", {"type": "text", "schema": {}}, "not a field"),
        ("guided_json", {}, "not supported yet"),
        ("guided_grammar", "", "not supported yet"),
        ("tools", [{"type": "function"}], "not supported yet"),
        ("tool_choice", "required", "not supported yet"),
        ("functions", [{}], "not supported yet"),
        ("store", True, "not supported yet"),
        ("service_tier", "flex", "not supported yet"),
        ("reasoning_effort", "high", "not supported yet"),
        ("chat_template", "{{ x }}", "not supported yet"),
        ("chat_template_kwargs", {"messages": []}, "must not set 'messages'"),
        ("chat_template_kwargs", {"a": 2**63}, "64 bits"),
        ("chat_template_kwargs", {"a": [float("inf")]}, "infinity"),
        ("chat_template_kwargs", {"a": [0] * 5000}, "at most 4096 values"),
        ("continue_final_message", True, "assistant's message"),
        ("n_best", 1, "not a field"),
    ],
)
def test_a_wrong_value_is_refused_under_its_field(field: str, value: Any, said: str) -> None:
    error = refusal(**{field: value})

    assert error.param == field
    assert field in error.message
    assert said in error.message


@pytest.mark.parametrize(
    ("messages", "path", "said"),
    [
        ("hi", "messages", "must be a list"),
        ([], "messages", "at least 1 item"),
        ([USER] * 4097, "messages", "at most 4096 items"),
        (["hi"], "messages[0]", "an object with a role"),
        ([USER, {"content": "x"}], "messages[1]", "has no role"),
        ([{"role": ["user"], "content": "x"}], "messages[0]", "unknown role"),
        ([{"role": "tool", "content": "x", "tool_call_id": "1"}], "messages[0]", "tools are not supported"),
        ([{"role": "user"}], "messages[0].content", "is required"),
        ([{"role": "user", "content": None}], "messages[0].content", "a string or a list"),
        ([{"role": "user", "content": []}], "messages[0].content", "at least 1 item"),
        ([{"role": "user", "content": [{"type": "input_audio"}]}], "messages[0].content[0]", "audio"),
        ([{"role": "user", "content": [{"type": "text", "text": 1}]}], "messages[0].content[0].text", "a string"),
        ([{"role": "user", "content": [{"type": "poem"}]}], "messages[0].content[0].type", "must be 'text'"),
        ([{**USER, "weight": 1}], "messages[0].weight", "not a field"),
        ([{"role": "assistant", "content": "", "tool_calls": [{}]}], "messages[0].tool_calls", "not supported yet"),
    ],
)
def test_a_wrong_message_is_refused_under_its_path(messages: Any, path: str, said: str) -> None:
    error = refusal(messages=messages)

    assert error.param == "messages"
    assert f"'{path}'" in error.message
    assert said in error.message


def test_a_deep_value_for_the_template_is_refused() -> None:
    value: Any = 0
    for _ in range(500):
        value = [value]

    assert "nested" in refusal(chat_template_kwargs={"a": value}).message


def test_a_hundred_thousand_stops_are_refused_at_once() -> None:
    assert refusal(stop=["x"] * 100_000).param == "stop"


def test_a_hundred_thousand_unknown_fields_are_refused_by_the_first() -> None:
    assert refusal(**{f"f{i}": 1 for i in range(100_000)}).param == "f0"


def test_top_logprobs_need_logprobs_unless_none_are_asked_for() -> None:
    assert refusal(top_logprobs=1).param == "top_logprobs"
    assert validated(ChatRequest, BODY | {"top_logprobs": 0}).top_alternatives is None
    assert validated(ChatRequest, BODY | {"logprobs": True}).top_alternatives == 0
    assert validated(ChatRequest, BODY | {"logprobs": True, "top_logprobs": 3}).top_alternatives == 3


def test_two_limits_are_allowed_only_if_they_are_equal() -> None:
    assert refusal(max_tokens=3, max_completion_tokens=4).param == "max_tokens"
    assert validated(ChatRequest, BODY | {"max_tokens": 3, "max_completion_tokens": 3}).token_limit() == 3


def test_min_tokens_is_held_against_the_newer_limit_too() -> None:
    assert refusal(min_tokens=5, max_completion_tokens=4).param == "min_tokens"
    assert validated(ChatRequest, BODY | {"min_tokens": 4, "max_completion_tokens": 4}).min_tokens == 4


def test_the_final_message_is_continued_without_a_generation_prompt() -> None:
    messages = [USER, {"role": "assistant", "content": "The"}]
    request = validated(ChatRequest, BODY | {"messages": messages, "continue_final_message": True})

    assert request.generation_prompt is False
    error = refusal(messages=messages, continue_final_message=True, add_generation_prompt=True)
    assert error.param == "continue_final_message"


@pytest.mark.parametrize(
    "harmless",
    [
        {"user": "u", "metadata": {"a": "b"}, "store": False, "safety_identifier": "s", "prompt_cache_key": "k"},
        {"service_tier": "auto", "modalities": ["text"], "verbosity": "medium", "reasoning_effort": "none"},
        {"tools": [], "tool_choice": "none", "parallel_tool_calls": True, "function_call": "auto", "functions": []},
        {"response_format": {"type": "text"}, "stop": [], "logit_bias": {}, "stop_token_ids": []},
        {"stream": True, "stream_options": {"include_usage": True, "include_obfuscation": False}},
        {"stop": "one", "top_k": -1, "seed": -(2**63), "temperature": 0},
    ],
)
def test_what_asks_for_nothing_is_accepted(harmless: dict[str, Any]) -> None:
    assert validated(ChatRequest, BODY | harmless).model == "m"


def test_null_is_the_same_as_leaving_a_field_out() -> None:
    optional = set(ChatRequest.model_fields) - {"model", "messages"}

    assert validated(ChatRequest, BODY | dict.fromkeys(optional)) == validated(ChatRequest, BODY).model_copy()


def test_every_field_of_openai_is_known() -> None:
    theirs = get_type_hints(completion_create_params.CompletionCreateParamsStreaming)

    assert set(theirs) - set(ChatRequest.model_fields) == set()
    assert set(get_type_hints(ChatCompletionStreamOptionsParam)) <= set(StreamOptions.model_fields)
