"""Reads the tokenizer of a Hugging Face folder: tokenizer.json, and tokenizer_config.json for the special tokens."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tokenizers

from .byte_alphabet import byte_level_bytes, sentencepiece_bytes
from .tokenizer import SpecialIds, Tokenizer, TokenizerError

CONFIG = "tokenizer_config.json"
_ROLES = {"bos": "bos_token", "eos": "eos_token", "unknown": "unk_token", "padding": "pad_token"}


def read_tokenizer_config(folder: Path) -> dict[str, Any]:
    """tokenizer_config.json as it is; empty if there is none. Raises TokenizerError."""
    path = folder / CONFIG
    if not path.is_file():
        return {}
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise TokenizerError(f"{path}: cannot be read: {error}") from error
    if not isinstance(config, dict):
        raise TokenizerError(f"{path}: is a JSON {type(config).__name__}, not an object")
    return config


def read_hf_tokenizer(folder: Path, config: Mapping[str, Any]) -> Tokenizer:
    """Read it. config: the folder's tokenizer_config.json. Raises TokenizerError that names the file."""
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise TokenizerError(f"{path}: is not there. Save the tokenizer in the fast format (tokenizer.json)")
    try:
        encoder = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises nothing more particular
        raise TokenizerError(f"{path}: cannot be read: {error}") from None
    # A saved tokenizer may have been cutting or padding when it was saved.
    encoder.no_truncation()
    encoder.no_padding()
    added = encoder.get_added_tokens_decoder()
    ids = _special_ids(encoder, config)
    return Tokenizer(
        encoder, _alphabet(encoder, path),
        literal={i: token.content for i, token in added.items()},
        special=frozenset(i for i, token in added.items() if token.special),
        ids=ids, add_bos=_adds_bos(encoder, config, ids.bos),
    )  # fmt: skip


def _alphabet(encoder: tokenizers.Tokenizer, path: Path) -> Callable[[str], bytes]:
    """How the vocabulary writes bytes, told by the decoder that the file has."""
    kinds = _decoder_kinds(encoder)
    if "ByteLevel" in kinds:
        return byte_level_bytes
    if kinds & {"ByteFallback", "Metaspace", "Replace"}:
        return sentencepiece_bytes
    raise TokenizerError(
        f"{path}: its decoder is {', '.join(sorted(kinds)) or 'absent'}; byte-level and SentencePiece can be read"
    )


def _decoder_kinds(encoder: tokenizers.Tokenizer) -> set[str]:
    if encoder.decoder is None:
        return set()
    described = json.loads(encoder.decoder.__getstate__())
    return {step["type"] for step in described.get("decoders", [described])}


def _special_ids(encoder: tokenizers.Tokenizer, config: Mapping[str, Any]) -> SpecialIds:
    texts = {role: token_content(config.get(key)) for role, key in _ROLES.items()}
    return SpecialIds(**{role: None if text is None else encoder.token_to_id(text) for role, text in texts.items()})


def token_content(token: Any) -> str | None:
    """A token in tokenizer_config.json is a string, or an object with its `content`."""
    if isinstance(token, Mapping):
        token = token.get("content")
    return token if isinstance(token, str) else None


def _adds_bos(encoder: tokenizers.Tokenizer, config: Mapping[str, Any], bos: int | None) -> bool:
    """As configured; else as the tokenizer's own post-processor does."""
    configured = config.get("add_bos_token")
    if isinstance(configured, bool):
        return configured
    return bos is not None and encoder.encode("a").ids[:1] == [bos]
