"""Drawing from a distribution that is cut to its most probable tokens: top-k, top-p, min-p.

Top-p (nucleus) is Holtzman et al. 2020, min-p is Nguyen et al. 2024. They are applied in the order top-k, top-p, min-p;
the probabilities that top-p adds up are those after top-k.

Shape suffixes: R sequences, V vocabulary, C candidates in order of falling probability.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

_CANDIDATES = 1024
"""Most distributions have top_p of their mass in so many tokens, and to find these costs a tenth of sorting all."""


@dataclass(frozen=True, slots=True)
class Cuts:
    """Parameters of R sequences: float64 or int64 [R, 1], on the logits' device."""

    temperature: torch.Tensor
    """Positive."""
    top_k: torch.Tensor
    """Tokens to keep; 0 keeps all."""
    top_p: torch.Tensor
    min_p: torch.Tensor
    uniform: torch.Tensor
    """In (0, 1): where in the cumulated distribution the token is."""

    @classmethod
    def of(cls, rows: list[tuple[float, int, float, float, float]], device: torch.device) -> Cuts:
        """Of (temperature, top_k, top_p, min_p, uniform) for each sequence."""
        values = torch.tensor(rows, dtype=torch.float64, device=device)[:, :, None].unbind(1)
        return cls(values[0], values[1].long(), values[2], values[3], values[4])

    def __getitem__(self, rows: torch.Tensor) -> Cuts:
        return Cuts(self.temperature[rows], self.top_k[rows], self.top_p[rows], self.min_p[rows], self.uniform[rows])


def draw(logits_RV: torch.Tensor, cuts: Cuts) -> torch.Tensor:
    """Draw one token for each sequence: int64 [R].

    Each row's maximum must be finite; -inf is never drawn. A row's outcome depends on that row alone. float64 all
    through: float32 sums over a large vocabulary would lose its improbable tokens.
    """
    logits_RV = logits_RV.double()
    # Subtracting first keeps tiny temperatures from overflowing: the greatest weight is 1.
    weights_RV = ((logits_RV - logits_RV.amax(dim=1, keepdim=True)) / cuts.temperature).exp_()
    tokens_R = torch.empty(len(weights_RV), dtype=torch.int64, device=weights_RV.device)
    ordered = ((cuts.top_k > 0) | (cuts.top_p < 1.0))[:, 0]
    for rows, pick in ((~ordered, _draw_unordered), (ordered, _draw_ordered)):
        if rows.any():
            tokens_R[rows] = pick(weights_RV[rows], cuts[rows])
    return tokens_R


def _draw_unordered(weights_RV: torch.Tensor, cuts: Cuts) -> torch.Tensor:
    return _invert(weights_RV.masked_fill(weights_RV < cuts.min_p, 0.0), cuts.uniform)


def _draw_ordered(weights_RV: torch.Tensor, cuts: Cuts) -> torch.Tensor:
    """Look at the most probable tokens, and at all of them only where those do not decide it."""
    vocabulary = weights_RV.shape[1]
    total_R1 = weights_RV.sum(dim=1, keepdim=True)
    best_RC, ids_RC = weights_RV.topk(min(_CANDIDATES, vocabulary), dim=1)
    by_count = (cuts.top_k > 0) & (cuts.top_k <= best_RC.shape[1])
    by_mass = (cuts.top_k == 0) & (best_RC.sum(dim=1, keepdim=True) >= cuts.top_p * total_R1)
    decided = (by_count | by_mass)[:, 0]
    tokens_R = torch.empty(len(weights_RV), dtype=torch.int64, device=weights_RV.device)
    tokens_R[decided] = _pick(best_RC[decided], ids_RC[decided], total_R1[decided], cuts[decided])
    if not decided.all():
        rest_RV, order_RV = weights_RV[~decided].sort(dim=1, descending=True)
        tokens_R[~decided] = _pick(rest_RV, order_RV, total_R1[~decided], cuts[~decided])
    return tokens_R


def _pick(best_RC: torch.Tensor, ids_RC: torch.Tensor, total_R1: torch.Tensor, cuts: Cuts) -> torch.Tensor:
    kept_RC = best_RC * kept(best_RC, total_R1, cuts)
    return ids_RC.gather(1, _invert(kept_RC, cuts.uniform)[:, None])[:, 0]


def kept(best_RC: torch.Tensor, total_R1: torch.Tensor, cuts: Cuts) -> torch.Tensor:
    """Which of the candidates may be drawn: bool [R, C]. At least the first.

    best_RC: weights, falling; the greatest is 1. total_R1: the sum of all weights, candidates or not.
    """
    ranks_C = torch.arange(best_RC.shape[1], device=best_RC.device)
    within_k = (ranks_C < cuts.top_k) | (cuts.top_k == 0)
    mass_RC = (best_RC * within_k).cumsum(dim=1)
    reference_R1 = torch.where(cuts.top_k > 0, mass_RC[:, -1:], total_R1)
    # A token is needed as long as those before it do not reach top_p.
    within_p = (mass_RC - best_RC < cuts.top_p * reference_R1) | (cuts.top_p >= 1.0)
    within_p[:, 0] = True
    return within_k & within_p & (best_RC >= cuts.min_p)


def _invert(weights_RX: torch.Tensor, uniform_R1: torch.Tensor) -> torch.Tensor:
    """Index of the token that a number falls on, by inverting the cumulated distribution: int64 [R]."""
    cumulated_RX = weights_RX.cumsum(dim=1)
    target_R1 = uniform_R1 * cumulated_RX[:, -1:]
    # The first whose sum exceeds the target has a weight of its own. Rounding could lift the target to the whole sum.
    index_R1 = torch.searchsorted(cumulated_RX, target_R1, right=True)
    last_R1 = torch.searchsorted(cumulated_RX, cumulated_RX[:, -1:].contiguous(), right=False)
    return torch.minimum(index_R1, last_R1)[:, 0]
