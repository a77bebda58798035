"""What a completion request may say."""

from __future__ import annotations

from typing import Any, get_type_hints

import pytest
from openai.types import completion_create_params

from services.api.completion_request import CompletionRequest
from services.api.errors import ApiError
from services.api.validation import validated

BODY: dict[str, Any] = {"model": "m", "prompt": "x"}


def refusal(**change: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        validated(CompletionRequest, BODY | change)
    assert caught.value.status == 400
    return caught.value


@pytest.mark.parametrize(
    ("prompt", "path", "said"),
    [
        (None, "prompt", "must be a string, a list"),
        (3, "prompt", "must be a string, a list"),
        ([], "prompt", "at least 1 item"),
        ([[]], "prompt[0]", "at least 1 item"),
        ([1, "a"], "prompt[1]", "an integer"),
        (["a", 1], "prompt[1]", "a string"),
        ([[1], "a"], "prompt[1]", "a list"),
        ([1, True], "prompt[1]", "an integer"),
        ([-1], "prompt[0]", "at least 0"),
        ([1.0], "prompt[0]", "a string"),
        (["a"] * 1025, "prompt", "at most 1024 items"),
    ],
)
def test_a_wrong_prompt_is_refused_under_its_path(prompt: Any, path: str, said: str) -> None:
    error = refusal(prompt=prompt)

    assert error.param == "prompt"
    assert f"'{path}'" in error.message
    assert said in error.message


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [("a", ["a"]), (["a", "b"], ["a", "b"]), ([0, 1], [[0, 1]]), ([[0], [1, 2]], [[0], [1, 2]])],
)
def test_a_prompt_has_four_forms(prompt: Any, prompts: Any) -> None:
    assert validated(CompletionRequest, BODY | {"prompt": prompt}).prompts() == prompts


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"best_of": 3}, "best_of"),
        ({"best_of": 1, "n": 2}, "best_of"),
        ({"suffix": "x"}, "suffix"),
        ({"suffix": ""}, "suffix"),
        ({"logprobs": 21}, "logprobs"),
        ({"logprobs": True}, "logprobs"),
        ({"echo": True, "logprobs": 0}, "logprobs"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"min_tokens": 17}, "min_tokens"),
        ({"prompt": ["a"] * 9, "n": 128}, "n"),
        ({"messages": []}, "messages"),
        ({"prompt_logprobs": 1}, "prompt_logprobs"),
    ],
)
def test_a_wrong_value_is_refused_under_its_field(change: dict[str, Any], param: str) -> None:
    error = refusal(**change)

    assert error.param == param
    assert param in error.message


def test_without_max_tokens_it_generates_sixteen() -> None:
    assert validated(CompletionRequest, BODY).token_limit() == 16


def test_best_of_one_is_the_default() -> None:
    assert validated(CompletionRequest, BODY | {"best_of": 1}).choices_per_prompt == 1


def test_every_field_of_openai_is_known() -> None:
    theirs = get_type_hints(completion_create_params.CompletionCreateParamsStreaming)

    assert set(theirs) - set(CompletionRequest.model_fields) == set()
