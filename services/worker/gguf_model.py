"""A GGUF file as a model: its configuration, its tensors' names, and reading them. Without torch.

Metadata keys and tensor names are those of the GGUF specification and llama.cpp's converter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from services.models.gguf_file import GgufFile
from services.models.load_error import MalformedFile, MissingTensor, UnknownArchitecture

from .decoder_config import DecoderConfig
from .weight_names import WeightNames

NAMES = WeightNames(
    embedding="token_embd.weight", final_norm="output_norm.weight", head="output.weight",
    attention_norm="blk.{layer}.attn_norm.weight", q="blk.{layer}.attn_q", k="blk.{layer}.attn_k",
    v="blk.{layer}.attn_v", output="blk.{layer}.attn_output", ffn_norm="blk.{layer}.ffn_norm.weight",
    gate="blk.{layer}.ffn_gate", up="blk.{layer}.ffn_up", down="blk.{layer}.ffn_down",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Family:
    """How the files of one architecture differ from those of another."""

    rotary_pairs_adjacent: bool
    """Rows of Q and K are permuted so that the two numbers of a rotated pair are neighbours."""


FAMILIES: Mapping[str, Family] = {
    "llama": Family(rotary_pairs_adjacent=True),  # Mistral is converted to it, too
    "qwen2": Family(rotary_pairs_adjacent=False),
}


def read_config(file: GgufFile) -> tuple[DecoderConfig, Family]:
    """The model's dimensions and family. Raises UnknownArchitecture, MissingMetadata, MissingTensor, MalformedFile."""
    architecture = file.metadata("general.architecture")
    family = FAMILIES.get(architecture)
    if family is None:
        known = ", ".join(FAMILIES)
        raise UnknownArchitecture(file.path, f"has the architecture {architecture!r}; those implemented are: {known}")

    def value(key: str, *default: Any) -> Any:
        return file.metadata(f"{architecture}.{key}", *default)

    _refuse_unsupported(file, architecture)
    embedding = file.tensors.get(NAMES.embedding)
    if embedding is None:
        raise MissingTensor(file.path, f"has no tensor {NAMES.embedding!r}")
    heads, hidden = value("attention.head_count"), value("embedding_length")
    try:
        config = DecoderConfig(
            architecture=architecture, vocab_size=embedding.shape[0], hidden_size=hidden,
            num_layers=value("block_count"), num_heads=heads,
            num_kv_heads=value("attention.head_count_kv", heads),
            head_dim=value("attention.key_length", hidden // heads), ffn_size=value("feed_forward_length"),
            max_context=value("context_length"), rms_norm_eps=value("attention.layer_norm_rms_epsilon"),
            rope_theta=value("rope.freq_base", 10000.0), tied_head=NAMES.head not in file.tensors,
            qkv_bias="blk.0.attn_q.bias" in file.tensors, output_bias="blk.0.attn_output.bias" in file.tensors,
            mlp_bias="blk.0.ffn_gate.bias" in file.tensors, eos_token_ids=_eos_token_ids(file),
        )  # fmt: skip
    except (ValueError, TypeError, ArithmeticError) as error:
        if isinstance(error, MissingTensor | MalformedFile | UnknownArchitecture):
            raise
        raise MalformedFile(file.path, f"describes no model: {error}") from error
    if value("rope.dimension_count", config.head_dim) != config.head_dim:
        raise UnknownArchitecture(file.path, "rotates a part of each head only, which is not implemented")
    return config, family


def _refuse_unsupported(file: GgufFile, architecture: str) -> None:
    """Refuse what would load and then compute something else than the model."""
    scaling = file.metadata(f"{architecture}.rope.scaling.type", "none")
    if scaling != "none" or "rope_freqs.weight" in file.tensors:
        kind = "llama3" if "rope_freqs.weight" in file.tensors else scaling
        raise UnknownArchitecture(file.path, f"needs RoPE scaling {kind!r}, which is not implemented")
    if file.metadata(f"{architecture}.expert_count", 0):
        raise UnknownArchitecture(file.path, "is a mixture of experts, which is not implemented")
    context = file.metadata(f"{architecture}.context_length")
    if file.metadata(f"{architecture}.attention.sliding_window", context) < context:
        raise UnknownArchitecture(file.path, "attends within a sliding window, which is not implemented")


def _eos_token_ids(file: GgufFile) -> tuple[int, ...]:
    """The tokens that end a sequence: end of text, of turn, and of message, where the file has them."""
    keys = ("eos_token_id", "eot_token_id", "eom_token_id")
    found = (file.metadata(f"tokenizer.ggml.{key}", None) for key in keys)
    return tuple(dict.fromkeys(token for token in found if isinstance(token, int)))
