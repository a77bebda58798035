"""Attention over the paged KV cache, group by group of a step's sequences.

Shape suffixes: T tokens of the step, S sequences of a group, Q new tokens of each, C tokens of context; H query heads,
K key and value heads, G = H / K query heads that share one; E head.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from .kv_cache import KVCache


@dataclass(frozen=True, slots=True)
class Group:
    """Sequences that are attended to in one call: either several of one new token each, or one of many."""

    begin: int
    """First of its S Q tokens among the step's."""
    num_seqs: int
    num_queries: int
    context: int
    """Tokens of the longest context, the new ones included."""
    page_index: torch.Tensor
    """For `KVCache.gather`."""
    mask: torch.Tensor | None
    """Added to the scores, broadcast to [S, H, Q, C]: -inf hides padding and what lies ahead; None hides nothing."""
    causal: bool
    """The new tokens are the whole context, and each sees those before it."""

    @property
    def end(self) -> int:
        return self.begin + self.num_seqs * self.num_queries


def attend(q_THE: torch.Tensor, groups: Sequence[Group], cache: KVCache, layer: int) -> torch.Tensor:
    """Attention of each token to its sequence's cached tokens, itself included: [T, H, E]."""
    out_THE = torch.empty(q_THE.shape, dtype=q_THE.dtype, device=q_THE.device)
    for group in groups:
        k_SKCE, v_SKCE = cache.gather(layer, group.page_index, group.num_seqs)
        k_SKCE, v_SKCE = k_SKCE[:, :, : group.context], v_SKCE[:, :, : group.context]
        q = q_THE[group.begin : group.end]
        attend_group = _decode if group.num_queries == 1 else _prefill
        out_THE[group.begin : group.end] = attend_group(q, k_SKCE, v_SKCE, group)
    return out_THE


def _decode(q_SHE: torch.Tensor, k_SKCE: torch.Tensor, v_SKCE: torch.Tensor, group: Group) -> torch.Tensor:
    """The query heads that share a key head stand in the place of queries, so that keys are not repeated."""
    q_SKGE = torch.unflatten(q_SHE, 1, (k_SKCE.shape[1], -1))
    return F.scaled_dot_product_attention(q_SKGE, k_SKCE, v_SKCE, attn_mask=group.mask).flatten(1, 2)


def _prefill(q_QHE: torch.Tensor, k_SKCE: torch.Tensor, v_SKCE: torch.Tensor, group: Group) -> torch.Tensor:
    q_SHQE = q_QHE.transpose(0, 1)[None]
    out_SHQE = F.scaled_dot_product_attention(
        q_SHQE, k_SKCE, v_SKCE, attn_mask=group.mask, is_causal=group.causal, enable_gqa=True
    )
    return out_SHQE[0].transpose(0, 1)
