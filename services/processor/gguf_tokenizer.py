"""Builds the tokenizer out of a GGUF file's own vocabulary, merges, token types and pre-tokenizer's name.

(transformers' conversion of the same metadata agrees with llama.cpp on 20 of 26 test strings: it fails on spaces
before digits and on fractions, for it does not read tokenizer.ggml.pre.)
"""

from __future__ import annotations

import tokenizers
from tokenizers import AddedToken, models

from services.models.gguf_file import GgufFile

from .byte_alphabet import byte_level_bytes
from .pre_tokenizer import PreTokenizer, UnknownPreTokenizer, pre_tokenizer
from .tokenizer import SpecialIds, Tokenizer, TokenizerError

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
"""Values of tokenizer.ggml.token_type."""


def read_gguf_tokenizer(file: GgufFile) -> Tokenizer:
    """Build it. Raises TokenizerError that names the file and the key at fault."""
    model = file.metadata("tokenizer.ggml.model", None)
    if model != "gpt2":
        raise TokenizerError(
            f"{file.path}: tokenizer.ggml.model is {model!r}; of GGUF files 'gpt2' (byte-level BPE) can be read. Give "
            "the model's Hugging Face folder, whose tokenizer.json is read whatever its kind"
        )
    cut = _pre_tokenizer(file)
    tokens: list[str] = _array(file, "tokenizer.ggml.tokens")
    types: list[int] = _array(file, "tokenizer.ggml.token_type", [NORMAL] * len(tokens))
    if len(types) != len(tokens):
        raise TokenizerError(f"{file.path}: {len(types)} token types for {len(tokens)} tokens")
    literal = {i: tokens[i] for i, kind in enumerate(types) if kind not in (NORMAL, BYTE)}
    special = frozenset(i for i in literal if types[i] != USER_DEFINED)
    ids = _special_ids(file, len(tokens))
    return Tokenizer(
        _encoder(file, cut, tokens, types, literal), byte_level_bytes,
        # An unused entry (padding of the vocabulary) has a name, but is no text.
        literal={i: "" if types[i] == UNUSED else text for i, text in literal.items()},
        special=special, ids=ids,
        add_bos=bool(file.metadata("tokenizer.ggml.add_bos_token", cut.add_bos)),
    )  # fmt: skip


def _encoder(
    file: GgufFile, cut: PreTokenizer, tokens: list[str], types: list[int], literal: dict[int, str]
) -> tokenizers.Tokenizer:
    # From the second character on: a token may be a space itself.
    merges = [(m[:at], m[at + 1 :]) for m in _array(file, "tokenizer.ggml.merges") if (at := m.find(" ", 1)) > 0]
    vocabulary = dict(zip(tokens, range(len(tokens)), strict=True))
    if len(vocabulary) != len(tokens):
        raise TokenizerError(f"{file.path}: tokenizer.ggml.tokens has the same token twice")
    try:
        model = models.BPE(vocabulary, merges, ignore_merges=cut.ignore_merges)
    except Exception as error:  # the library raises nothing more particular
        raise TokenizerError(f"{file.path}: tokenizer.ggml.merges do not fit its tokens: {error}") from None
    encoder = tokenizers.Tokenizer(model)
    encoder.pre_tokenizer = cut.build()
    normalizer = cut.build_normalizer()
    if normalizer is not None:
        encoder.normalizer = normalizer
    added = [(i, text) for i, text in literal.items() if types[i] != UNUSED and text]
    encoder.add_special_tokens([_added(text) for i, text in added if types[i] != USER_DEFINED])
    encoder.add_tokens([_added(text) for i, text in added if types[i] == USER_DEFINED])
    return encoder


def _added(text: str) -> AddedToken:
    return AddedToken(text, normalized=False, special=False)


def _pre_tokenizer(file: GgufFile) -> PreTokenizer:
    name = file.metadata("tokenizer.ggml.pre", None)
    if name is None:
        raise TokenizerError(
            f"{file.path}: tokenizer.ggml.pre is not there, so nothing says how text is to be cut. Convert the model "
            "anew with a current converter"
        )
    try:
        return pre_tokenizer(str(name))
    except UnknownPreTokenizer as error:
        raise TokenizerError(f"{file.path}: tokenizer.ggml.pre: {error}") from None


def _array(file: GgufFile, key: str, *default: list[int]) -> list:  # type: ignore[type-arg]
    found = file.metadata(key, *default)
    if not isinstance(found, list):
        raise TokenizerError(f"{file.path}: {key} is {type(found).__name__}, not an array")
    return found


def _special_ids(file: GgufFile, vocab_size: int) -> SpecialIds:
    found: dict[str, int | None] = {}
    for name in ("bos", "eos", "unknown", "padding"):
        key = f"tokenizer.ggml.{name}_token_id"
        token_id = file.metadata(key, None)
        if token_id is not None and not (isinstance(token_id, int) and 0 <= token_id < vocab_size):
            raise TokenizerError(f"{file.path}: {key} is {token_id!r}, but there are {vocab_size} tokens")
        found[name] = token_id
    return SpecialIds(**found)
