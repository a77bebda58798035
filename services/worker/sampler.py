"""Choosing the next token of each sequence of a step.

Shape suffixes: S sequences, V vocabulary, R those of the sequences that something is done for.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch

from services.protocols.sampling import TokenLogprob

from .draw import uniform
from .logit_rules import UnusableParams, apply_rules, has_rules
from .nucleus import Cuts, draw
from .tracked_sequence import TrackedSequence


@dataclass(frozen=True, slots=True)
class Choice:
    """What was chosen for a sequence."""

    token_id: int
    logprob: TokenLogprob | None = None


@dataclass(frozen=True, slots=True)
class NoChoice:
    """A sequence that could not be sampled; the others of its step are not touched by that."""

    reason: str


class Sampler:
    """Samples for the model with this vocabulary."""

    def __init__(self, eos_token_ids: Collection[int]) -> None:
        self._eos_token_ids = tuple(eos_token_ids)

    @torch.inference_mode()
    def sample(self, logits_SV: torch.Tensor, sequences: Sequence[TrackedSequence]) -> list[Choice | NoChoice]:
        """Choose for each sequence. logits_SV, float32, is changed in place.

        A number for position i of a sequence is drawn from its seed and i alone (`draw.uniform`).
        """
        raw = _raw_logprobs(logits_SV, sequences)
        failures = self._apply_rules(logits_SV, sequences)
        best_S, tokens_S = logits_SV.max(dim=1)
        for row in (~best_S.isfinite()).nonzero()[:, 0].tolist():
            failures.setdefault(row, _why_not_finite(logits_SV[row]))
        random = [i for i, s in enumerate(sequences) if s.params.temperature > 0 and i not in failures]
        if random:
            rows = torch.tensor(random, device=logits_SV.device)
            cuts = Cuts.of([_cuts(sequences[i]) for i in random], logits_SV.device)
            everyone = len(random) == len(sequences)
            tokens_S[rows] = draw(logits_SV if everyone else logits_SV[rows], cuts)
        reports = _report(raw, tokens_S)
        return [
            NoChoice(failures[row]) if row in failures else Choice(token, reports.get(row))
            for row, token in enumerate(tokens_S.tolist())
        ]

    def _apply_rules(self, logits_SV: torch.Tensor, sequences: Sequence[TrackedSequence]) -> dict[int, str]:
        """Apply each sequence's rules to its row; answer the rows where that failed, with the reason."""
        failures: dict[int, str] = {}
        for row, sequence in enumerate(sequences):
            if has_rules(sequence):
                try:
                    apply_rules(logits_SV[row], sequence, self._eos_token_ids)
                except UnusableParams as error:
                    failures[row] = str(error)
        return failures


def _cuts(sequence: TrackedSequence) -> tuple[float, int, float, float, float]:
    params = sequence.params
    number = uniform(sequence.seed, sequence.num_generated)
    return params.temperature, params.top_k, params.top_p, params.min_p, number


def _why_not_finite(logits_V: torch.Tensor) -> str:
    if logits_V.isnan().any():
        return "its logits are not numbers: the model's weights, or a logit_bias, are broken"
    if logits_V.isposinf().any():
        return "a logit is infinite: a logit_bias is"
    return "no token is left to sample: allowed_token_ids, bad_words, min_tokens and logit_bias rule all of them out"


def _raw_logprobs(logits_SV: torch.Tensor, sequences: Sequence[TrackedSequence]) -> dict[int, tuple[int, torch.Tensor]]:
    """Row to (number of alternatives, log-probabilities [V] of the model itself), where the request asked for them."""
    asked = {i: s.params.logprobs for i, s in enumerate(sequences) if s.params.logprobs is not None}
    if not asked:
        return {}
    logprobs_RV = logits_SV[torch.tensor(list(asked), device=logits_SV.device)].log_softmax(dim=1)
    return {row: (count, logprobs_RV[i]) for i, (row, count) in enumerate(asked.items())}


def _report(raw: dict[int, tuple[int, torch.Tensor]], tokens_S: torch.Tensor) -> dict[int, TokenLogprob]:
    reports: dict[int, TokenLogprob] = {}
    for row, (count, logprobs_V) in raw.items():
        token = int(tokens_S[row])
        values, ids = logprobs_V.topk(min(count, len(logprobs_V)))
        top = list(zip(ids.tolist(), values.tolist(), strict=True))
        reports[row] = TokenLogprob(token_id=token, logprob=float(logprobs_V[token]), top=top)
    return reports
