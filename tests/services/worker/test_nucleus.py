"""Drawing from cut distributions."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from services.worker import nucleus
from services.worker.draw import uniform
from services.worker.nucleus import Cuts, draw

CPU = torch.device("cpu")
LOGITS = st.lists(st.floats(-30, 30, width=32), min_size=1, max_size=40)


def one(logits: list[float], temperature: float, top_k: int, top_p: float, min_p: float, number: float) -> int:
    cuts = Cuts.of([(temperature, top_k, top_p, min_p, number)], CPU)
    return int(draw(torch.tensor([logits]), cuts))


def allowed(logits: list[float], temperature: float, top_k: int, top_p: float, min_p: float) -> set[int]:
    """Tokens that may be drawn, by the parameters' definitions; ties at a border, and rounding at one, count in."""
    best = max(logits)
    weights = [math.exp((value - best) / temperature) for value in logits]
    order = sorted(range(len(logits)), key=lambda i: -weights[i])
    kth = weights[order[min(top_k, len(order)) - 1]] if top_k else 0.0
    kept = order[:top_k] if top_k else order
    total, mass, nucleus_last = sum(weights[i] for i in kept), 0.0, 0.0
    for i in kept:
        if mass >= top_p * total * (1 + 1e-9):
            break
        mass, nucleus_last = mass + weights[i], weights[i]
    least = max(kth, nucleus_last, min_p) * (1 - 1e-9)
    return {i for i, weight in enumerate(weights) if weight >= least}


@given(
    logits=LOGITS, temperature=st.floats(0.05, 5.0), top_k=st.integers(0, 50), top_p=st.floats(0.01, 1.0),
    min_p=st.floats(0.0, 1.0), number=st.floats(1e-9, 1 - 1e-9), candidates=st.sampled_from([1, 3, 1024]),
)  # fmt: skip
def test_only_tokens_within_every_cut_are_drawn(
    logits: list[float], temperature: float, top_k: int, top_p: float, min_p: float, number: float, candidates: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nucleus, "_CANDIDATES", candidates)
        token = one(logits, temperature, top_k, top_p, min_p, number)
    assert token in allowed(logits, temperature, top_k, top_p, min_p)


@given(logits=LOGITS, top_p=st.floats(0.01, 1.0), top_k=st.integers(0, 50))
def test_the_nucleus_has_at_least_top_p_of_the_mass_and_needs_its_last_token(
    logits: list[float], top_p: float, top_k: int
) -> None:
    weights = torch.tensor([logits], dtype=torch.float64)
    weights = (weights - weights.max()).exp().sort(dim=1, descending=True).values
    kept = nucleus.kept(weights, weights.sum(dim=1, keepdim=True), Cuts.of([(1.0, top_k, top_p, 0.0, 0.5)], CPU))[0]
    count = int(kept.sum())
    assert kept[:count].all()
    within_k = weights[0, :top_k] if top_k else weights[0]
    needed = top_p * float(within_k.sum())
    assert float(weights[0, :count].sum()) >= needed * (1 - 1e-12)
    if 0 < count < len(within_k) or (count == len(within_k) and top_p < 1):
        assert count == 1 or float(weights[0, : count - 1].sum()) < needed * (1 + 1e-12)


@given(logits=LOGITS, number=st.floats(1e-12, 1 - 1e-12), rest=st.lists(LOGITS, max_size=3))
def test_a_row_draws_the_same_whatever_else_is_in_the_batch(
    logits: list[float], number: float, rest: list[list[float]]
) -> None:
    rows = [logits, *[(other * len(logits))[: len(logits)] for other in rest]]
    settings = [(0.7, 5, 0.9, 0.01, number), (1.0, 0, 1.0, 0.0, 0.3), (2.0, 0, 0.5, 0.0, 0.9), (1.0, 3, 1.0, 0.2, 0.1)]
    together = draw(torch.tensor(rows), Cuts.of(settings[: len(rows)], CPU))
    assert int(together[0]) == one(logits, *settings[0])


@pytest.mark.parametrize("cuts", [(1.0, 0, 1.0, 0.0), (1.0, 6, 1.0, 0.0), (1.0, 0, 0.999999, 0.0)])
def test_tokens_come_as_often_as_their_probability_says(cuts: tuple[float, int, float, float]) -> None:
    probabilities = [0.5, 0.05, 0.25, 0.0, 0.15, 0.05]
    logits = torch.tensor([probabilities]).log()
    draws = 4000
    rows = Cuts.of([(*cuts, uniform(1, i)) for i in range(draws)], CPU)
    counts = Counter(draw(logits.expand(draws, -1), rows).tolist())
    for token, probability in enumerate(probabilities):
        deviation = 4 * math.sqrt(draws * probability * (1 - probability))
        assert abs(counts[token] - draws * probability) <= deviation


@pytest.mark.parametrize("number", [1e-17, 0.5, 1 - 1e-16])
def test_the_ends_of_the_unit_interval_draw_tokens_that_may_be_drawn(number: float) -> None:
    logits = [float("-inf"), 1.0, float("-inf"), 0.0, float("-inf")]
    for cuts in ((1.0, 0, 1.0, 0.0), (1.0, 4, 1.0, 0.0), (1.0, 0, 0.99, 0.0), (1.0, 0, 1.0, 1.0)):
        assert one(logits, *cuts, number) in {1, 3}


@pytest.mark.parametrize("temperature", [1e-320, 1e-30, 1e-3])
def test_a_tiny_temperature_draws_the_best_token(temperature: float) -> None:
    assert one([1.0, 3.0, 2.9, -5.0], temperature, 0, 1.0, 0.0, 0.999) == 1


def test_a_huge_vocabulary_keeps_its_improbable_tokens() -> None:
    logits = [0.0] * 200_000
    assert one(logits, 1.0, 0, 1.0, 0.0, 1 - 1e-7) == 199_999
    assert one(logits, 1.0, 0, 0.5, 0.0, 0.9) < 200_000
