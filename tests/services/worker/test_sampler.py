from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from services.worker.sampler import Choice, NoChoice, Sampler
from services.worker.tracked_sequence import TrackedSequence

from .stepping import params

VOCABULARY = 50


def logits(rows: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, VOCABULARY, generator=torch.Generator().manual_seed(seed)) * 3


def sequence(seed: int = 0, tokens: int = 3, **values: Any) -> TrackedSequence:
    return TrackedSequence("r", list(range(tokens)), 2, params(**values), seed)


def sample(rows: torch.Tensor, *sequences: TrackedSequence) -> list[Choice | NoChoice]:
    return Sampler(eos_token_ids=(7,)).sample(rows.clone(), sequences)


def tokens(choices: list[Choice | NoChoice]) -> list[int]:
    assert all(isinstance(choice, Choice) for choice in choices), choices
    return [choice.token_id for choice in choices if isinstance(choice, Choice)]


def test_a_greedy_batch_is_the_argmax() -> None:
    rows = logits(8)
    assert tokens(sample(rows, *[sequence() for _ in range(8)])) == rows.argmax(dim=1).tolist()


def test_greedy_and_random_sequences_mix() -> None:
    rows = logits(4)
    mixed = tokens(sample(rows, sequence(), sequence(1, temperature=5.0), sequence(), sequence(2, temperature=5.0)))
    assert [mixed[0], mixed[2]] == rows.argmax(dim=1)[[0, 2]].tolist()
    assert mixed[1] == tokens(sample(rows[1:2], sequence(1, temperature=5.0)))[0]


@given(
    seed=st.integers(-(2**63), 2**64), others=st.lists(st.integers(0, 9), max_size=5), at=st.integers(0, 5),
    position=st.integers(2, 30), top_p=st.sampled_from([1.0, 0.8]), top_k=st.sampled_from([0, 7]),
)  # fmt: skip
def test_a_seed_repeats_its_token_in_any_batch_at_the_same_position(
    seed: int, others: list[int], at: int, position: int, top_p: float, top_k: int
) -> None:
    mine = sequence(seed, position, temperature=1.5, top_p=top_p, top_k=top_k)
    row = logits(1, seed=5)
    alone = tokens(sample(row, mine))[0]
    batch = [sequence(other, temperature=0.5 * other) for other in others]
    place = min(at, len(batch))
    batch.insert(place, mine)
    rows = logits(len(batch), seed=6)
    rows[place] = row[0]
    assert tokens(sample(rows, *batch))[place] == alone


def test_a_seed_draws_other_numbers_at_other_positions_and_other_seeds_other_tokens() -> None:
    rows = torch.zeros(1, VOCABULARY)
    by_position = {tokens(sample(rows, sequence(1, n, temperature=1.0)))[0] for n in range(2, 40)}
    by_seed = {tokens(sample(rows, sequence(seed, temperature=1.0)))[0] for seed in range(40)}
    assert len(by_position) > 10
    assert len(by_seed) > 10


@given(allowed=st.sets(st.integers(0, VOCABULARY - 1), min_size=1), seed=st.integers(0, 999), hot=st.booleans())
def test_what_is_masked_is_never_sampled(allowed: set[int], seed: int, hot: bool) -> None:
    chosen = sequence(seed, temperature=100.0 if hot else 0.0, allowed_token_ids=sorted(allowed))
    assert tokens(sample(logits(1, seed), chosen))[0] in allowed


def test_a_sequence_that_cannot_be_sampled_ends_alone() -> None:
    rows = logits(6)
    rows[1, 3] = float("nan")
    greedy = rows.argmax(dim=1).tolist()
    choices = sample(
        rows,
        sequence(),
        sequence(temperature=1.0),
        sequence(allowed_token_ids=[]),
        sequence(logit_bias={VOCABULARY: 1.0}),
        sequence(logit_bias={3: float("inf")}, temperature=1.0),
        sequence(),
    )
    reasons = [choice.reason if isinstance(choice, NoChoice) else None for choice in choices]
    assert [reason is None for reason in reasons] == [True, False, False, False, False, True]
    assert tokens([choices[0], choices[5]]) == [greedy[0], greedy[5]]
    causes = ["not numbers", "no token is left", "vocabulary ends", "infinite"]
    for reason, said in zip(reasons[1:5], causes, strict=True):
        assert said in str(reason)


def test_a_bias_that_is_no_number_is_an_error_of_that_sequence() -> None:
    (choice,) = sample(logits(1), sequence(logit_bias={3: float("nan")}))
    assert isinstance(choice, NoChoice)


def test_logprobs_are_those_of_the_raw_logits_whatever_is_done_to_them() -> None:
    rows = logits(3)
    choices = sample(
        rows, sequence(logprobs=4, allowed_token_ids=[9]), sequence(), sequence(logprobs=0, temperature=2.0)
    )
    raw = rows.log_softmax(dim=1)
    first, second, third = (choice.logprob for choice in choices if isinstance(choice, Choice))
    assert second is None
    assert first is not None
    assert first.token_id == 9
    assert first.logprob == pytest.approx(float(raw[0, 9]), abs=1e-6)
    assert [token for token, _ in first.top] == raw[0].topk(4).indices.tolist()
    assert [value for _, value in first.top] == pytest.approx(raw[0].topk(4).values.tolist(), abs=1e-6)
    assert third is not None
    assert third.top == []


def test_more_alternatives_than_the_vocabulary_has_are_all_of_them() -> None:
    (choice,) = sample(logits(1), sequence(logprobs=100))
    assert isinstance(choice, Choice)
    assert choice.logprob is not None
    assert len(choice.logprob.top) == VOCABULARY
