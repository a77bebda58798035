from __future__ import annotations

import pytest
from tokenizers import pre_tokenizers

from services.processor.byte_alphabet import BYTE_OF, byte_level_bytes, sentencepiece_bytes


def test_the_alphabet_is_the_one_of_the_tokenizers_library() -> None:
    assert set(BYTE_OF) == set(pre_tokenizers.ByteLevel.alphabet())
    assert sorted(BYTE_OF.values()) == list(range(256))


def test_each_character_stands_for_the_byte_that_the_library_writes_with_it() -> None:
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    for text in ("\x00\t\n !~\x7f", "\u00a0\u00ad\u00ff", "é½٣字🌍"):
        written = "".join(piece for piece, _ in byte_level.pre_tokenize_str(text))
        assert byte_level_bytes(written) == text.encode()


def test_a_token_with_a_character_outside_of_the_alphabet_is_plain_text() -> None:
    assert byte_level_bytes("字") == "字".encode()
    assert byte_level_bytes("Ġ字") == "Ġ字".encode()


@pytest.mark.parametrize(
    ("token", "expected"),
    [
        ("\u2581the", b" the"), ("\u2581\u2581", b"  "), ("<0x0A>", b"\n"), ("<0xe4>", b"\xe4"),
        ("<0x0A>x", b"<0x0A>x"), ("<0x100>", b"<0x100>"), ("字", "字".encode()), ("", b""),
    ],
)  # fmt: skip
def test_sentencepiece_writes_spaces_and_fallback_bytes_in_its_own_way(token: str, expected: bytes) -> None:
    assert sentencepiece_bytes(token) == expected
