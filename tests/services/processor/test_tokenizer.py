from __future__ import annotations

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, models, normalizers

from services.processor.byte_alphabet import byte_level_bytes
from services.processor.tokenizer import SpecialIds, Tokenizer, TokenizerError

from .byte_tokenizer import END, TOOL, UNTOLD, byte_tokenizer

TOKENIZER = byte_tokenizer()


def test_a_lone_surrogate_is_refused() -> None:
    with pytest.raises(TokenizerError, match="not valid Unicode"):
        TOKENIZER.encode("a\ud83d")


def test_text_that_spells_a_special_token_becomes_it() -> None:
    assert TOKENIZER.encode("a<end>b<tool>") == [97, END, 98, TOOL]


def test_a_beginning_is_put_first_once_and_only_where_it_is_wanted() -> None:
    wants = byte_tokenizer(add_bos=True)
    assert wants.encode("a") == [END, 97]
    assert wants.encode("<end>a") == [END, 97]
    assert wants.encode("") == [END]
    assert wants.encode("a", add_bos=False) == [97]
    assert TOKENIZER.encode("a", add_bos=True) == [97]


def test_a_model_without_a_beginning_token_gets_none_whatever_is_configured() -> None:
    encoder = tokenizers.Tokenizer(models.BPE({"a": 0}, []))
    tokenizer = Tokenizer(
        encoder, byte_level_bytes, literal={}, special=frozenset(), ids=SpecialIds(), add_bos=True
    )  # fmt: skip
    assert tokenizer.add_bos is False
    assert tokenizer.encode("a") == [0]


def test_special_tokens_are_skipped_or_written_out_and_added_text_always_stands() -> None:
    ids = [97, END, TOOL, 98]
    assert TOKENIZER.decode(ids) == "a<end><tool>b"
    assert TOKENIZER.decode(ids, skip_special=True) == "a<tool>b"
    assert TOKENIZER.is_special(END)
    assert not TOKENIZER.is_special(TOOL)


@pytest.mark.parametrize("token_id", [UNTOLD, 2**31, -1, 2**40])
def test_an_id_without_a_token_has_no_bytes(token_id: int) -> None:
    assert TOKENIZER.token_bytes(token_id) == b""


def test_bytes_that_are_no_text_become_replacement_characters() -> None:
    assert TOKENIZER.decode([0xF0, 0x9F, 97, 0xFF]) == "\ufffda\ufffd"
    assert TOKENIZER.token_text(0xF0) == "\ufffd"
    assert TOKENIZER.token_text(None) == ""


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_the_lower_bound_is_never_above_the_number_of_tokens(text: str) -> None:
    assert TOKENIZER.at_least(text) <= len(TOKENIZER.encode(text))


def test_the_lower_bound_grows_with_the_text() -> None:
    assert TOKENIZER.at_least("a" * 7000) == 7000 // len("<tool>")


def test_there_is_no_lower_bound_where_a_text_may_become_shorter() -> None:
    normalized = tokenizers.Tokenizer(models.BPE({"a": 0}, []))
    normalized.normalizer = normalizers.Strip()
    stripping = tokenizers.Tokenizer(models.BPE({"a": 0}, []))
    stripping.add_tokens([AddedToken("<x>", lstrip=True)])
    for encoder in (normalized, stripping):
        tokenizer = Tokenizer(
            encoder, byte_level_bytes, literal={}, special=frozenset(), ids=SpecialIds(), add_bos=False
        )  # fmt: skip
        assert tokenizer.at_least("a" + " " * 1000) == 0


def test_the_detokenizer_goes_on_from_half_a_character_of_the_prompt() -> None:
    prompt = [*b"see ", 0xF0, 0x9F]
    assert TOKENIZER.detokenizer(prompt).feed(bytes([0x8C, 0x8D])) == "\U0001f30d"
    assert TOKENIZER.detokenizer([*prompt, END]).feed(bytes([0x8C, 0x8D])) == "\U0001f30d"
    assert TOKENIZER.detokenizer([*prompt, END], skip_special=False).feed(b"a") == "a"
