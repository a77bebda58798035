"""What is refused before anything is asked of another service, and by which field."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.processor.request_checks import (
    MAX_SEED,
    MIN_SEED,
    Limits,
    RequestError,
    check_request,
    fit_sampling,
    sampling_of,
)
from services.protocols.processor import GenerateText, TextPrompt
from services.protocols.sampling import SamplingParams

LIMITS = Limits(max_context=16, vocab_size=259, max_stop_strings=2, max_stop_characters=5)


def request(*, max_tokens: int = 4, max_tokens_default: bool = False, **fields: Any) -> GenerateText:
    """fields: of the request, or else of its sampling parameters."""
    own = {name: fields.pop(name) for name in ("stop", "n") if name in fields}
    return GenerateText(
        request_id="r", prompt=TextPrompt(text="x"), max_tokens_default=max_tokens_default,
        sampling=SamplingParams(max_tokens=max_tokens, **fields), **own,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "field", "message"),
    [
        ({"stop": ["a", "b", "c"]}, "stop", "3 strings; 2 is the most"),
        ({"stop": ["a", ""]}, "stop", "empty string"),
        ({"stop": ["abcdef"]}, "stop", "6 characters; 5 is the most"),
        ({"stop_token_ids": [0, 259]}, "sampling.stop_token_ids", "token id 259; the model's ids are 0 to 258"),
        ({"logit_bias": {-1: 1.0}}, "sampling.logit_bias", "token id -1"),
        ({"logit_bias": {1: math.nan}}, "sampling.logit_bias", "not a finite number"),
        ({"logit_bias": {1: math.inf}}, "sampling.logit_bias", "not a finite number"),
        ({"bad_words": [[1], [2, 259]]}, "sampling.bad_words", "token id 259"),
        ({"allowed_token_ids": []}, "sampling.allowed_token_ids", "no token could be sampled"),
        ({"allowed_token_ids": [300]}, "sampling.allowed_token_ids", "token id 300"),
        ({"temperature": math.nan}, "sampling.temperature", "not a finite number"),
        ({"top_p": math.nan}, "sampling.top_p", "not a finite number"),
        ({"seed": MAX_SEED + 1}, "sampling.seed", "64 bits at most"),
        ({"seed": MIN_SEED - 1}, "sampling.seed", "64 bits at most"),
    ],
)
def test_what_cannot_be_served_is_refused_by_its_field(fields: dict[str, Any], field: str, message: str) -> None:
    with pytest.raises(RequestError, match=message) as refused:
        check_request(request(**fields), LIMITS)
    assert refused.value.field == f"request.{field}"


@pytest.mark.parametrize(
    "fields",
    [
        {}, {"stop": ["a", "abcde"]}, {"stop_token_ids": [0, 258]}, {"logit_bias": {0: -100.0, 258: 100.0}},
        {"allowed_token_ids": [0]}, {"seed": MAX_SEED}, {"seed": MIN_SEED}, {"bad_words": [[258]]},
    ],
)  # fmt: skip
def test_what_is_at_the_limit_is_taken(fields: dict[str, Any]) -> None:
    check_request(request(**fields), LIMITS)


def test_a_prompt_that_leaves_no_room_for_one_token_is_refused_with_the_numbers() -> None:
    assert fit_sampling(request(max_tokens=1), 15, LIMITS).max_tokens == 1
    for default in (False, True):
        with pytest.raises(RequestError, match="16 tokens; the model's context is 16 tokens") as refused:
            fit_sampling(request(max_tokens=1, max_tokens_default=default), 16, LIMITS)
        assert refused.value.field == "request.prompt"


def test_more_tokens_than_the_context_holds_are_refused_or_cut_where_they_are_a_default() -> None:
    assert fit_sampling(request(max_tokens=12), 4, LIMITS).max_tokens == 12
    with pytest.raises(RequestError, match="together 17; the model's context is 16") as refused:
        fit_sampling(request(max_tokens=13), 4, LIMITS)
    assert refused.value.field == "request.sampling.max_tokens"
    assert fit_sampling(request(max_tokens=13, max_tokens_default=True), 4, LIMITS).max_tokens == 12
    assert fit_sampling(request(max_tokens=3, max_tokens_default=True), 4, LIMITS).max_tokens == 3


@pytest.mark.parametrize(("max_tokens", "default"), [(4, False), (100, True)])
def test_more_tokens_at_least_than_at_most_are_refused(max_tokens: int, default: bool) -> None:
    with pytest.raises(RequestError, match="min_tokens is 13, but at most") as refused:
        fit_sampling(request(max_tokens=max_tokens, max_tokens_default=default, min_tokens=13), 4, LIMITS)
    assert refused.value.field == "request.sampling.min_tokens"


@settings(deadline=None)
@given(st.integers(MIN_SEED, MAX_SEED), st.integers(0, 127))
def test_each_completion_has_a_seed_of_its_own_within_64_bits(seed: int, index: int) -> None:
    params = SamplingParams(max_tokens=1, seed=seed)
    derived = sampling_of(params, index).seed
    assert derived is not None
    assert MIN_SEED <= derived <= MAX_SEED
    assert (derived - seed - index) % 2**64 == 0
    assert sampling_of(params, 0) is params


def test_without_a_seed_nothing_is_derived() -> None:
    params = SamplingParams(max_tokens=1)
    assert sampling_of(params, 5) is params
