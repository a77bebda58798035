from __future__ import annotations

from typing import Any

import pytest
import torch

from services.worker.logit_rules import UnusableParams, apply_rules, check_params, has_rules
from services.worker.tracked_sequence import TrackedSequence

from .stepping import params

LOGITS = [2.0, -1.0, 0.5, 3.0, -2.0, 1.0]
EOS = (5,)
NEVER = float("-inf")


def ruled(token_ids: list[int], prompt_len: int, **values: Any) -> list[float]:
    logits = torch.tensor(LOGITS)
    sequence = TrackedSequence("r", token_ids, prompt_len, params(**values), 0)
    assert has_rules(sequence)
    apply_rules(logits, sequence, EOS)
    return logits.tolist()


def test_without_rules_there_is_nothing_to_apply() -> None:
    assert not has_rules(TrackedSequence("r", [1], 1, params(temperature=1.0, top_k=3, stop_token_ids=[2]), 0))


def test_repetition_penalty_divides_positive_and_multiplies_negative_logits_of_prompt_and_output() -> None:
    assert ruled([0, 1, 1, 3], 2, repetition_penalty=2.0) == [1.0, -2.0, 0.5, 1.5, -2.0, 1.0]


def test_presence_penalty_counts_generated_tokens_once_and_spares_the_prompt() -> None:
    assert ruled([0, 1, 1, 3], 1, presence_penalty=1.5) == [2.0, -2.5, 0.5, 1.5, -2.0, 1.0]


def test_frequency_penalty_counts_each_generated_token() -> None:
    assert ruled([0, 1, 1, 3], 1, frequency_penalty=-0.5) == [2.0, 0.0, 0.5, 3.5, -2.0, 1.0]
    assert ruled([0, 1, 1], 3, frequency_penalty=1.0) == LOGITS


def test_logit_bias_is_added_and_token_0_is_a_token() -> None:
    assert ruled([1], 1, logit_bias={0: 100.0, 4: -1.0}) == [102.0, -1.0, 0.5, 3.0, -3.0, 1.0]


def test_allowed_tokens_hide_all_others() -> None:
    assert ruled([1], 1, allowed_token_ids=[0, 2]) == [2.0, NEVER, 0.5, NEVER, NEVER, NEVER]
    assert ruled([1], 1, allowed_token_ids=[]) == [NEVER] * 6


def test_min_tokens_hides_the_ends_until_enough_is_generated() -> None:
    hidden = [2.0, -1.0, NEVER, 3.0, -2.0, NEVER]
    assert ruled([1, 1], 1, min_tokens=2, stop_token_ids=[2, 99]) == hidden
    assert ruled([1, 1], 1, min_tokens=2, stop_token_ids=[2], ignore_eos=True) == hidden
    assert not has_rules(TrackedSequence("r", [1, 1, 1], 1, params(min_tokens=2, stop_token_ids=[2]), 0))


def test_a_bad_word_is_hidden_only_where_it_would_be_completed() -> None:
    words = [[3], [0, 1], [4, 0, 2], [0, 4]]
    assert ruled([4, 0], 2, bad_words=words) == [2.0, NEVER, NEVER, NEVER, NEVER, 1.0]
    assert ruled([0], 1, bad_words=[[4, 0, 2]]) == LOGITS


def test_no_bias_lifts_what_is_hidden() -> None:
    logits = ruled([1], 1, bad_words=[[3]], logit_bias={3: 100.0, 5: 100.0}, min_tokens=1)
    assert logits[3] == logits[5] == NEVER


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"logit_bias": {6: 1.0}}, "logit_bias has token id 6.*ends at 5"),
        ({"logit_bias": {-1: 1.0}}, "logit_bias has token id -1"),
        ({"allowed_token_ids": [0, 77]}, "allowed_token_ids has token id 77"),
        ({"bad_words": [[0], [1, 6]]}, "bad_words has token id 6"),
        ({"bad_words": [[0], []]}, "word of no tokens"),
    ],
)
def test_token_ids_outside_the_vocabulary_are_named(values: dict[str, Any], said: str) -> None:
    with pytest.raises(UnusableParams, match=said):
        check_params(params(**values), 6)
