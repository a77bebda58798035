from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import pre_tokenizers

from services.processor.pre_tokenizer import PRE_TOKENIZERS, UnknownPreTokenizer, pre_tokenizer

TEXT = st.text(st.characters(exclude_categories=["Cs"]))


def pieces(name: str, text: str) -> list[str]:
    """The pieces as text, by their offsets."""
    return [text[start:end] for _, (start, end) in pre_tokenizer(name).build().pre_tokenize_str(text)]


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnknownPreTokenizer, match=r"'tekken'.*gpt-2.*smollm"):
        pre_tokenizer("tekken")


def test_smollm_splits_every_numeric_character_off_on_its_own() -> None:
    text = "a½b٣c 12,Ⅷ²"
    assert pieces("smollm", text) == ["a", "½", "b", "٣", "c", " ", "1", "2", ",", "Ⅷ", "²"]


@settings(deadline=None)
@given(TEXT)
def test_smollm_leaves_no_numeric_character_with_a_neighbour(text: str) -> None:
    for piece in pieces("smollm", text):
        assert len(piece) == 1 or not any(unicodedata.category(c).startswith("N") for c in piece)


@settings(deadline=None)
@given(st.text("ab ½٣12\t\n'!é字🌍"))
def test_smollm_cuts_as_the_library_s_digits_and_byte_level_of_the_published_tokenizer_do(text: str) -> None:
    published = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    assert pre_tokenizer("smollm").build().pre_tokenize_str(text) == published.pre_tokenize_str(text)


@settings(deadline=None)
@given(st.text("ab ½٣12\t\n'stre!é字🌍"))
def test_gpt2_cuts_as_the_library_s_own_pattern(text: str) -> None:
    own = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    assert pre_tokenizer("gpt-2").build().pre_tokenize_str(text) == own.pre_tokenize_str(text)


def test_llama3_takes_three_digits_and_qwen2_one() -> None:
    assert pieces("llama-bpe", "12345") == ["123", "45"]
    assert pieces("qwen2", "12345") == ["1", "2", "3", "4", "5"]


def test_llama3_takes_contractions_of_any_case_and_a_sign_before_a_word() -> None:
    assert pieces("llama-bpe", "I'LL (go)\n\n x") == ["I", "'LL", " (", "go", ")\n\n", " x"]


def test_only_a_family_that_normalizes_has_a_normalizer() -> None:
    normalizer = pre_tokenizer("qwen2").build_normalizer()
    assert normalizer is not None
    assert normalizer.normalize_str("e\u0301") == "\u00e9"
    assert pre_tokenizer("smollm").build_normalizer() is None


@pytest.mark.parametrize("name", sorted(PRE_TOKENIZERS))
@settings(deadline=None)
@given(text=TEXT)
def test_no_character_is_lost_between_the_pieces(name: str, text: str) -> None:
    assert "".join(pieces(name, text)) == text
