"""The decoder: from the tokens of one step, over the paged KV cache, to logits.

Pre-norm residual blocks of grouped-query attention (Ainslie et al. 2023) with rotary embedding (Su et al. 2021) and a
SwiGLU feed-forward (Shazeer 2020), normalised by RMSNorm (Zhang and Sennrich 2019), as in Llama (Touvron et al. 2023).

Shape suffixes: T tokens of the step, of all its sequences; S tokens to sample behind; D hidden; H query heads; K key
and value heads; J = H + K; E head; F feed-forward; V vocabulary; O, I outputs and inputs of a projection.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from .attention import attend
from .decoder_config import DecoderConfig
from .flat_step import FlatStep
from .kv_cache import KVCache
from .linear import linear


@dataclass(slots=True)
class Projection:
    """A weight [O, I], and a bias [O] where the family has one. Several that share an input are stacked in one."""

    weight_OI: torch.Tensor
    bias_O: torch.Tensor | None = None

    def __call__(self, x_TI: torch.Tensor) -> torch.Tensor:
        return linear(x_TI, self.weight_OI, self.bias_O)


@dataclass(slots=True)
class Layer:
    """The weights of one block."""

    attention_norm_D: torch.Tensor
    qkv: Projection
    """[(H + 2 K) E, D]: queries, keys, values."""
    output: Projection
    """[D, H E]"""
    ffn_norm_D: torch.Tensor
    gate_up: Projection
    """[2 F, D]"""
    down: Projection
    """[D, F]"""


@dataclass(slots=True)
class Weights:
    """All weights. All are of one dtype, and on one device."""

    embedding_VD: torch.Tensor
    layers: list[Layer]
    final_norm_D: torch.Tensor
    head_VD: torch.Tensor
    """The embedding itself, where they are tied."""

    @property
    def n_bytes(self) -> int:
        """Memory they take."""
        return sum(t.nbytes for t in {id(t): t for t in self._tensors()}.values())

    def _tensors(self) -> list[torch.Tensor]:
        found = [self.embedding_VD, self.final_norm_D, self.head_VD]
        for layer in self.layers:
            found += [layer.attention_norm_D, layer.ffn_norm_D]
            for projection in (layer.qkv, layer.output, layer.gate_up, layer.down):
                found.append(projection.weight_OI)
                if projection.bias_O is not None:
                    found.append(projection.bias_O)
        return found


class Decoder:
    """A model that is loaded."""

    def __init__(self, config: DecoderConfig, weights: Weights) -> None:
        self.config = config
        self.weights = weights
        self.dtype = weights.embedding_VD.dtype
        self.device = weights.embedding_VD.device
        exponents = torch.arange(0, config.head_dim, 2, dtype=torch.int64).float() / config.head_dim
        self._inverse_frequency = (1.0 / config.rope_theta**exponents).to(self.device)
        """float32 [E / 2]"""

    @torch.inference_mode()
    def forward(self, step: FlatStep, cache: KVCache) -> torch.Tensor:
        """Compute a step's tokens, write their keys and values into the cache, and answer logits float32 [S, V].

        The rows are `step.sample_index`'s, in its order.
        """
        config, weights = self.config, self.weights
        x_TD = F.embedding(step.token_ids_T, weights.embedding_VD)
        rotation = self._rotation(step.positions_T)
        for number, layer in enumerate(weights.layers):
            normed_TD = self._norm(x_TD, layer.attention_norm_D)
            x_TD = x_TD + layer.output(self._attention(number, layer, normed_TD, rotation, step, cache))
            normed_TD = self._norm(x_TD, layer.ffn_norm_D)
            gate_TF, up_TF = torch.split(layer.gate_up(normed_TD), config.ffn_size, dim=1)
            x_TD = x_TD + layer.down(F.silu(gate_TF) * up_TF)
        x_SD = self._norm(x_TD[step.sample_index_S], weights.final_norm_D)
        return linear(x_SD, weights.head_VD).float().contiguous()

    def _norm(self, x_TD: torch.Tensor, weight_D: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x_TD, weight_D.shape, weight_D, self.config.rms_norm_eps)

    def _rotation(self, positions_T: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines and sines [T, 1, E / 2] of the positions' angles, computed in float32 whatever the dtype."""
        angles = (positions_T[:, None].float() * self._inverse_frequency)[:, None]
        return angles.cos().to(self.dtype), angles.sin().to(self.dtype)

    def _attention(
        self, number: int, layer: Layer, x_TD: torch.Tensor, rotation: tuple[torch.Tensor, torch.Tensor],
        step: FlatStep, cache: KVCache,
    ) -> torch.Tensor:  # fmt: skip
        """[T, H E]; writes the tokens' keys and values into the cache before it reads the sequences' from it."""
        config = self.config
        qkv_TJE = torch.unflatten(layer.qkv(x_TD), 1, (-1, config.head_dim))
        qk_TJE = rotate(qkv_TJE[:, : -config.num_kv_heads], *rotation)
        q_THE, k_TKE = torch.split(qk_TJE, [config.num_heads, config.num_kv_heads], dim=1)
        cache.write(number, step.block_T, step.offset_T, k_TKE, qkv_TJE[:, -config.num_kv_heads :])
        return attend(q_THE, step.groups, cache, number).flatten(1)


def rotate(x_TJE: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotary embedding; a pair is a number of a head's first half and its fellow of the second."""
    first, second = x_TJE.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
