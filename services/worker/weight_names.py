"""How a file format names the tensors of a decoder."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightNames:
    """Templates with the field {layer}. Norms and embeddings are whole names; projections lack .weight and .bias."""

    embedding: str
    final_norm: str
    head: str
    attention_norm: str
    q: str
    k: str
    v: str
    output: str
    ffn_norm: str
    gate: str
    up: str
    down: str
