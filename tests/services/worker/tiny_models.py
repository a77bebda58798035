"""Tiny models with random weights, written as files, and a naive forward pass to compare with."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from safetensors.torch import save_file

Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Tiny:
    """Dimensions and parts of a model."""

    architecture: str = "LlamaForCausalLM"
    vocab: int = 97
    hidden: int = 64
    layers: int = 2
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 16
    ffn: int = 96
    tied: bool = False
    attention_bias: bool = False
    mlp_bias: bool = False
    theta: float = 10000.0
    extra: dict[str, Any] = field(default_factory=dict)
    """Further keys of config.json; None takes one away."""

    def config(self) -> dict[str, Any]:
        values: dict[str, Any] = {
            "architectures": [self.architecture], "vocab_size": self.vocab, "hidden_size": self.hidden,
            "num_hidden_layers": self.layers, "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads, "head_dim": self.head_dim, "intermediate_size": self.ffn,
            "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "rope_theta": self.theta,
            "tie_word_embeddings": self.tied, "hidden_act": "silu", "eos_token_id": 2,
            "attention_bias": self.attention_bias, "mlp_bias": self.mlp_bias,
        }  # fmt: skip
        return {key: value for key, value in (values | self.extra).items() if value is not None}

    @property
    def biased(self) -> list[str]:
        """Projections with a bias."""
        qwen = self.architecture.startswith("Qwen2")
        names = [f"self_attn.{n}_proj" for n in "qkv"] if qwen or self.attention_bias else []
        names += ["self_attn.o_proj"] if self.attention_bias else []
        return names + [f"mlp.{n}_proj" for n in ("gate", "up", "down") if self.mlp_bias]

    def tensors(self, seed: int = 0) -> Tensors:
        """Random weights by their Hugging Face names, float32."""
        generator = torch.Generator().manual_seed(seed)
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (self.vocab, self.hidden)}
        for layer in range(self.layers):
            at = f"model.layers.{layer}."
            projections = {
                "self_attn.q_proj": (q, self.hidden), "self_attn.k_proj": (kv, self.hidden),
                "self_attn.v_proj": (kv, self.hidden), "self_attn.o_proj": (self.hidden, q),
                "mlp.gate_proj": (self.ffn, self.hidden), "mlp.up_proj": (self.ffn, self.hidden),
                "mlp.down_proj": (self.hidden, self.ffn),
            }  # fmt: skip
            shapes |= {f"{at}{name}.weight": shape for name, shape in projections.items()}
            shapes |= {f"{at}{name}.bias": projections[name][:1] for name in self.biased}
            shapes |= {f"{at}{name}.weight": (self.hidden,) for name in ("input_layernorm", "post_attention_layernorm")}
        shapes["model.norm.weight"] = (self.hidden,)
        if not self.tied:
            shapes["lm_head.weight"] = (self.vocab, self.hidden)
        return {name: torch.randn(shape, generator=generator) * 0.3 for name, shape in shapes.items()}


def write_folder(folder: Path, tiny: Tiny, tensors: Tensors | None = None, shards: int = 1) -> Tensors:
    """Write a Hugging Face folder; answers its tensors."""
    tensors = tiny.tensors() if tensors is None else tensors
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(tiny.config()))
    if shards == 1:
        save_file(tensors, folder / "model.safetensors")
        return tensors
    weight_map = {}
    for index in range(shards):
        names = sorted(tensors)[index::shards]
        file = f"model-{index + 1:05}-of-{shards:05}.safetensors"
        save_file({name: tensors[name] for name in names}, folder / file)
        weight_map |= dict.fromkeys(names, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return tensors


_GGUF_NAMES = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}  # fmt: skip


def write_gguf(
    path: Path, tiny: Tiny, tensors: Tensors, storage: gguf.GGMLQuantizationType, *, architecture: str = "llama"
) -> Tensors:
    """Write a GGUF file as llama.cpp's converter does; answers the tensors that a reader should see, by HF name.

    Q and K are permuted for the architecture llama; norms and biases stay F32.
    """
    writer = gguf.GGUFWriter(str(path), architecture)
    writer.add_context_length(128)
    writer.add_embedding_length(tiny.hidden)
    writer.add_block_count(tiny.layers)
    writer.add_feed_forward_length(tiny.ffn)
    writer.add_head_count(tiny.heads)
    writer.add_head_count_kv(tiny.kv_heads)
    writer.add_key_length(tiny.head_dim)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(tiny.theta)
    writer.add_eos_token_id(2)
    writer.add_eot_token_id(5)
    seen: Tensors = {}
    for name, tensor in tensors.items():
        values = tensor.numpy()
        heads = {"q_proj": tiny.heads, "k_proj": tiny.kv_heads}.get(name.split(".")[-2])
        if heads is not None and architecture == "llama":
            values = np.ascontiguousarray(
                values.reshape(heads, 2, tiny.head_dim // 2, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)
            )
        kind = storage if values.ndim == 2 else gguf.GGMLQuantizationType.F32
        stored = gguf.quants.quantize(values, kind)
        writer.add_tensor(gguf_name(name), stored, raw_dtype=kind)
        read = gguf.quants.dequantize(stored, kind).reshape(values.shape)
        if heads is not None and architecture == "llama":
            read = read.reshape(heads, tiny.head_dim // 2, 2, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)
        seen[name] = torch.from_numpy(np.array(read, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return seen


def gguf_name(name: str) -> str:
    """blk.0.attn_q.weight for model.layers.0.self_attn.q_proj.weight."""
    stem, kind = name.rsplit(".", 1)
    if stem.startswith("model.layers."):
        _, _, layer, part = stem.split(".", 3)
        return f"blk.{layer}.{_GGUF_NAMES[part]}.{kind}"
    return f"{_GGUF_NAMES[stem]}.{kind}"


def naive_logits(tiny: Tiny, tensors: Tensors, token_ids: list[int]) -> torch.Tensor:
    """Logits [T, V] of one sequence, without cache, head by head, in float64: slow, and obviously what it says."""
    weights = {name: tensor.double() for name, tensor in tensors.items()}
    length, half = len(token_ids), tiny.head_dim // 2

    def project(name: str, x: torch.Tensor) -> torch.Tensor:
        return x @ weights[f"{name}.weight"].T + weights.get(f"{name}.bias", torch.zeros(()))

    def norm(name: str, x: torch.Tensor) -> torch.Tensor:
        return x / (x.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * weights[f"{name}.weight"]

    def rope(vector: torch.Tensor, position: int) -> torch.Tensor:
        out = vector.clone()
        for pair in range(half):
            angle = position * tiny.theta ** (-2 * pair / tiny.head_dim)
            first, second = vector[pair], vector[pair + half]
            out[pair] = first * math.cos(angle) - second * math.sin(angle)
            out[pair + half] = second * math.cos(angle) + first * math.sin(angle)
        return out

    x = weights["model.embed_tokens.weight"][token_ids]
    for layer in range(tiny.layers):
        at = f"model.layers.{layer}"
        y = norm(f"{at}.input_layernorm", x)
        q, k, v = (project(f"{at}.self_attn.{n}_proj", y).view(length, -1, tiny.head_dim) for n in "qkv")
        heads = []
        for head in range(tiny.heads):
            kv_head = head // (tiny.heads // tiny.kv_heads)
            keys = torch.stack([rope(k[t, kv_head], t) for t in range(length)])
            rows = []
            for t in range(length):
                scores = keys[: t + 1] @ rope(q[t, head], t) / math.sqrt(tiny.head_dim)
                rows.append(scores.softmax(0) @ v[: t + 1, kv_head])
            heads.append(torch.stack(rows))
        x = x + project(f"{at}.self_attn.o_proj", torch.cat(heads, dim=1))
        y = norm(f"{at}.post_attention_layernorm", x)
        gate, up = project(f"{at}.mlp.gate_proj", y), project(f"{at}.mlp.up_proj", y)
        x = x + project(f"{at}.mlp.down_proj", gate * gate.sigmoid() * up)
    head_weight = weights["model.embed_tokens.weight" if tiny.tied else "lm_head.weight"]
    return (norm("model.norm", x) @ head_weight.T).float()
