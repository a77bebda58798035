"""A Hugging Face folder's configuration. Without torch.

Keys are those of transformers' config.json, of its versions 4 (rope_theta, rope_scaling) and 5 (rope_parameters).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from services.models.load_error import MalformedFile, MissingFile, MissingMetadata, NotAModel, UnknownArchitecture

from .decoder_config import DecoderConfig
from .weight_names import WeightNames

_LAYER = "model.layers.{layer}."
NAMES = WeightNames(
    embedding="model.embed_tokens.weight", final_norm="model.norm.weight", head="lm_head.weight",
    attention_norm=_LAYER + "input_layernorm.weight", q=_LAYER + "self_attn.q_proj", k=_LAYER + "self_attn.k_proj",
    v=_LAYER + "self_attn.v_proj", output=_LAYER + "self_attn.o_proj",
    ffn_norm=_LAYER + "post_attention_layernorm.weight", gate=_LAYER + "mlp.gate_proj", up=_LAYER + "mlp.up_proj",
    down=_LAYER + "mlp.down_proj",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Family:
    """What an architecture has of its own, where config.json does not say."""

    name: str
    qkv_bias: bool | None = None
    """None: as attention_bias says, and the output projection then has one, too."""


FAMILIES: Mapping[str, Family] = {
    "LlamaForCausalLM": Family("llama"),
    "MistralForCausalLM": Family("mistral", qkv_bias=False),
    "Qwen2ForCausalLM": Family("qwen2", qkv_bias=True),
}


def read_config(folder: Path) -> DecoderConfig:
    """Read config.json and generation_config.json.

    Raises MissingFile, NotAModel (no JSON object), UnknownArchitecture, MissingMetadata, MalformedFile.
    """
    path = folder / "config.json"
    values = read_json(path)
    family = _family(path, values)
    _refuse_unsupported(path, values)

    def value(key: str, *default: Any) -> Any:
        found = values.get(key)
        if found is not None:
            return found
        if default:
            return default[0]
        raise MissingMetadata(path, f"has no {key!r}")

    attention_bias = bool(value("attention_bias", False)) if family.qkv_bias is None else family.qkv_bias
    heads, hidden = value("num_attention_heads"), value("hidden_size")
    try:
        return DecoderConfig(
            architecture=family.name, vocab_size=value("vocab_size"), hidden_size=hidden,
            num_layers=value("num_hidden_layers"), num_heads=heads,
            num_kv_heads=value("num_key_value_heads", heads), head_dim=value("head_dim", hidden // heads),
            ffn_size=value("intermediate_size"), max_context=value("max_position_embeddings"),
            rms_norm_eps=value("rms_norm_eps", 1e-6), rope_theta=float(_rope(values).get("rope_theta", 10000.0)),
            tied_head=bool(value("tie_word_embeddings", False)), qkv_bias=attention_bias,
            output_bias=attention_bias and family.qkv_bias is None, mlp_bias=bool(value("mlp_bias", False)),
            eos_token_ids=_eos_token_ids(folder, values),
        )  # fmt: skip
    except (TypeError, ArithmeticError, ValueError) as error:
        if isinstance(error, MissingMetadata | MissingFile | NotAModel | MalformedFile):
            raise
        raise MalformedFile(path, f"describes no model: {error}") from error


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object. Raises MissingFile, or NotAModel where it is none."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise MissingFile(path, f"cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise NotAModel(path, f"is not JSON: {error}") from error
    if not isinstance(values, dict):
        raise NotAModel(path, "is not a JSON object")
    return values


def _family(path: Path, values: dict[str, Any]) -> Family:
    names = values.get("architectures")
    if not isinstance(names, list) or not names:
        raise MissingMetadata(path, "has no 'architectures', so it does not say what kind of model this is")
    family = FAMILIES.get(names[0])
    if family is None:
        known = ", ".join(FAMILIES)
        raise UnknownArchitecture(path, f"has the architecture {names[0]!r}; those implemented are: {known}")
    return family


def _rope(values: dict[str, Any]) -> dict[str, Any]:
    """rope_theta and the scaling's parameters, in one dict, as version 5 writes them."""
    parameters = values.get("rope_parameters") or values.get("rope_scaling") or {}
    theta = {} if values.get("rope_theta") is None else {"rope_theta": values["rope_theta"]}
    return theta | parameters


def _refuse_unsupported(path: Path, values: dict[str, Any]) -> None:
    """Refuse what would load and then compute something else than the model."""
    rope = _rope(values)
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind != "default":
        raise UnknownArchitecture(path, f"needs RoPE scaling {kind!r}, which is not implemented")
    if rope.get("partial_rotary_factor", values.get("partial_rotary_factor", 1.0)) != 1.0:
        raise UnknownArchitecture(path, "rotates a part of each head only, which is not implemented")
    window, context = values.get("sliding_window"), values.get("max_position_embeddings", 0)
    if window is not None and values.get("use_sliding_window", True) and window < context:
        raise UnknownArchitecture(path, "attends within a sliding window, which is not implemented")
    activation = values.get("hidden_act", "silu")
    if activation != "silu":
        raise UnknownArchitecture(path, f"has the activation {activation!r}; only 'silu' is implemented")
    if "quantization_config" in values:
        raise UnknownArchitecture(path, "is quantized, which is implemented for GGUF files only")


def _eos_token_ids(folder: Path, values: dict[str, Any]) -> tuple[int, ...]:
    """generation_config.json has the last word: chat models end on more tokens than config.json says."""
    generation = folder / "generation_config.json"
    found = read_json(generation).get("eos_token_id") if generation.exists() else None
    if found is None:
        found = values.get("eos_token_id")
    tokens = found if isinstance(found, list) else [found]
    return tuple(token for token in tokens if isinstance(token, int))
