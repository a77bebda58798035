"""The tokenizer of GGUF files: the embedded model's against golden ids, and files that are wrong in one thing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from services.models.load_error import MissingMetadata
from services.processor.gguf_tokenizer import read_gguf_tokenizer
from services.processor.text_model import TextModel
from services.processor.tokenizer import TokenizerError

from .gguf_vocabulary import TOKENS, TYPES, vocabulary
from .golden import CASES

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)
UNWRITABLE = {0x04, 0x06, 0x13, 0x14, 0x16, 0x1D, 0xF1, 0xF2}
"""Bytes of UTF-8 that the embedded model's vocabulary has no token for: six control characters, and the first byte of
the planes 4 to 11, in which no character is assigned. The published tokenizer, too, leaves them out."""


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_the_embedded_model_gives_the_golden_ids(smollm2: TextModel, case: dict[str, Any]) -> None:
    assert smollm2.tokenizer.encode(case["prompt_text"]) == case["prompt_ids"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_the_embedded_model_gives_the_golden_text(smollm2: TextModel, case: dict[str, Any]) -> None:
    assert smollm2.tokenizer.decode(case["output_ids"]).rstrip("\ufffd") == case["output_text"].rstrip("\ufffd")


@pytest.mark.parametrize("numeric", ["½", "٣", "Ⅷ", "²", "7", "৩"])
def test_a_numeric_character_is_never_merged_with_what_is_beside_it(smollm2: TextModel, numeric: str) -> None:
    encode = smollm2.tokenizer.encode
    assert encode(f"cup{numeric}{numeric}cup") == [*encode("cup"), *encode(numeric) * 2, *encode("cup")]
    assert encode(f"a {numeric}") == [*encode("a"), *encode(" "), *encode(numeric)]


@given(text=TEXT)
@example(text="\u0085\u00ad\ufeff\U0010ffff")
@example(text="  \n\t \r\n  ")
@example(text="<|im_start|>user\n<|im_end|>")
@example(text="a\x04\U00040000b")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_any_text_comes_back_as_it_was(smollm2: TextModel, text: str) -> None:
    tokenizer = smollm2.tokenizer
    ids = tokenizer.encode(text, add_bos=False)
    encoded = text.encode()
    if UNWRITABLE.isdisjoint(encoded):
        assert tokenizer.decode(ids) == text
        assert tokenizer.at_least(text) <= len(ids)
    else:
        assert tokenizer.join(ids, skip_special=False) == bytes(byte for byte in encoded if byte not in UNWRITABLE)


def test_the_embedded_model_s_special_tokens_are_special(smollm2: TextModel) -> None:
    tokenizer = smollm2.tokenizer
    assert (tokenizer.token_text(tokenizer.ids.bos), tokenizer.token_text(tokenizer.ids.eos)) == (
        "<|im_start|>", "<|im_end|>",
    )  # fmt: skip
    assert {tokenizer.ids.bos, tokenizer.ids.eos} <= tokenizer.special_ids
    assert tokenizer.add_bos is False
    assert tokenizer.vocab_size == 49152


def test_merges_are_applied_and_added_tokens_are_text_of_their_own(tmp_path: Path) -> None:
    tokenizer = read_gguf_tokenizer(vocabulary(tmp_path))
    assert tokenizer.encode("the<tool></s>") == [TOKENS.index(token) for token in ("the", "<tool>", "</s>")]
    assert tokenizer.decode(tokenizer.encode("the<tool></s>"), skip_special=True) == "the<tool>"


def test_an_unused_entry_is_neither_written_nor_read(tmp_path: Path) -> None:
    tokenizer = read_gguf_tokenizer(vocabulary(tmp_path))
    padding = TOKENS.index("<pad0>")
    assert padding not in tokenizer.encode("<pad0>")
    assert tokenizer.token_bytes(padding) == b""
    assert tokenizer.decode(tokenizer.encode("<pad0>")) == "<pad0>"


def test_a_token_that_is_a_space_can_be_merged(tmp_path: Path) -> None:
    tokens = [*TOKENS, " x"]  # outside of the byte alphabet, as some vocabularies have it
    tokenizer = read_gguf_tokenizer(vocabulary(tmp_path, ggml_tokens=tokens, ggml_token_type=[*TYPES, 1]))
    assert tokenizer.token_bytes(len(TOKENS)) == b" x"


@pytest.mark.parametrize(("configured", "expected"), [(True, True), (False, False), (None, True)])
def test_whether_texts_begin_with_a_token_is_the_file_s_word_and_else_the_family_s(
    tmp_path: Path, configured: bool | None, expected: bool
) -> None:
    file = vocabulary(tmp_path, ggml_pre="llama-bpe", ggml_add_bos_token=configured)
    assert (read_gguf_tokenizer(file).encode("a")[0] == TOKENS.index("<s>")) is expected


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"ggml_model": "llama"}, r"tokenizer.ggml.model is 'llama'.*Hugging Face folder"),
        ({"ggml_model": None}, "tokenizer.ggml.model is None"),
        ({"ggml_pre": None}, "tokenizer.ggml.pre is not there"),
        ({"ggml_pre": "tekken"}, "tokenizer.ggml.pre: unknown pre-tokenizer 'tekken'"),
        ({"ggml_token_type": TYPES[:-1]}, "261 token types for 262 tokens"),
        ({"ggml_tokens": [*TOKENS[:-1], "the"]}, "the same token twice"),
        ({"ggml_tokens": "the"}, "tokenizer.ggml.tokens is str, not an array"),
        ({"ggml_merges": ["t h", "th q q"]}, "merges do not fit"),
        ({"ggml_eos_token_id": 262}, "eos_token_id is 262, but there are 262 tokens"),
        ({"ggml_bos_token_id": "<s>"}, "bos_token_id is '<s>'"),
    ],
)  # fmt: skip
def test_a_file_that_no_tokenizer_can_be_made_of_is_refused_by_its_key(
    tmp_path: Path, changed: dict[str, Any], message: str
) -> None:
    with pytest.raises(TokenizerError, match=message) as refused:
        read_gguf_tokenizer(vocabulary(tmp_path, **changed))
    assert str(tmp_path / "vocabulary.gguf") in str(refused.value)


def test_a_file_without_tokens_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MissingMetadata, match=r"tokenizer\.ggml\.tokens"):
        read_gguf_tokenizer(vocabulary(tmp_path, ggml_tokens=None))
