"""Never half a character, however its bytes come."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from services.processor.detokenizer import Detokenizer, incomplete_suffix

FAMILY = "👩\u200d👧"
BYTES = st.one_of(
    st.binary(max_size=24),
    st.lists(st.sampled_from([b"\xf0", b"\x9f", b"\x8c", b"\x8d", b"\xe5", b"\xad", b"\x97", b"\xed", b"\xa0", b"a",
                              b"\xc0", b"\xe0", b"\x80", b"\xf4", b"\x90"]), max_size=16).map(b"".join),
)  # fmt: skip


def splits(data: bytes) -> list[list[bytes]]:
    """Every way to cut it into pieces."""
    found = []
    for cuts in itertools.product([False, True], repeat=len(data) - 1):
        edges = [0, *(i + 1 for i, cut in enumerate(cuts) if cut), len(data)]
        found.append([data[a:b] for a, b in itertools.pairwise(edges)])
    return found


def whole(data: bytes) -> str:
    """What all of it says, up to its last whole character."""
    return data[: len(data) - len(incomplete_suffix(data))].decode("utf-8", "replace")


@pytest.mark.parametrize("text", ["a🌍b", "字é字", "½🌤", "e\u0301"])
def test_characters_come_out_whole_for_all_splits_of_their_bytes(text: str) -> None:
    for pieces in splits(text.encode()):
        detokenizer = Detokenizer()
        given_out, taken = "", b""
        for piece in pieces:
            given_out += detokenizer.feed(piece)
            taken += piece
            assert given_out == taken.decode("utf-8", "ignore")
            assert detokenizer.pending == (len(given_out.encode()) < len(taken))
        assert given_out == text


def test_every_character_of_a_joined_emoji_comes_as_soon_as_it_is_whole() -> None:
    detokenizer = Detokenizer()
    out = [detokenizer.feed(bytes([byte])) for byte in FAMILY.encode()]
    assert "".join(out) == FAMILY
    assert [number for number, text in enumerate(out) if text] == [3, 6, 10]


@pytest.mark.parametrize("character", ["🌍", "字", "é"])
def test_a_character_that_the_prompt_begins_is_the_completion_s_for_all_splits(character: str) -> None:
    data = character.encode()
    for cut in range(1, len(data)):
        for pieces in splits(data[cut:] + b"!"):
            detokenizer = Detokenizer(b"see " + data[:cut])
            out = [detokenizer.feed(piece) for piece in pieces]
            assert "".join(out) == character + "!"
            assert "\ufffd" not in "".join(out)


@pytest.mark.parametrize("following", ["!", "字", "🌍", "\n"])
def test_half_a_character_of_the_prompt_that_is_not_completed_leaves_no_trace(following: str) -> None:
    for pieces in splits(following.encode()):
        detokenizer = Detokenizer(b"see \xf0\x9f")
        assert "".join(detokenizer.feed(piece) for piece in pieces) == following


def test_a_wrong_byte_behind_the_prompt_s_half_is_the_completion_s_own_fault() -> None:
    detokenizer = Detokenizer(b"\xf0\x9f")
    assert detokenizer.feed(b"\x8c") == ""
    assert detokenizer.pending
    assert detokenizer.feed(b"!") == "\ufffd!"
    assert not detokenizer.pending


def test_nothing_stands_for_an_unfinished_end() -> None:
    detokenizer = Detokenizer()
    assert detokenizer.feed(b"a\xf0\x9f\x8c") == "a"
    assert detokenizer.pending


def test_empty_tokens_change_nothing() -> None:
    for detokenizer in (Detokenizer(), Detokenizer(b"\xf0\x9f")):
        assert detokenizer.feed(b"") == ""
        assert not detokenizer.pending


@pytest.mark.parametrize(
    ("data", "suffix"),
    [
        (b"", b""), (b"a", b""), (b"a\xf0\x9f", b"\xf0\x9f"), (b"\xf0\x9f\x8c\x8d", b""), (b"\x9f\x8c", b""),
        (b"\xe0\x80", b""), (b"\xff", b""), (b"\xf0\x9f\x8c", b"\xf0\x9f\x8c"), (b"\xf0\xf0", b"\xf0"),
    ],
)  # fmt: skip
def test_an_incomplete_suffix_is_what_more_bytes_could_complete(data: bytes, suffix: bytes) -> None:
    assert incomplete_suffix(data) == suffix


@settings(deadline=None)
@given(BYTES, st.lists(st.integers(0, 24), max_size=6))
@example(b"\xed\xa0\x80a", [1, 2])
@example(b"\xf4\x90\x80\x80", [1, 2, 3])
def test_the_splits_of_any_bytes_do_not_matter(data: bytes, cuts: list[int]) -> None:
    edges = sorted({0, len(data), *(min(cut, len(data)) for cut in cuts)})
    detokenizer = Detokenizer()
    out = "".join(detokenizer.feed(data[a:b]) for a, b in itertools.pairwise(edges))
    assert out == whole(data)
    assert detokenizer.pending == bool(incomplete_suffix(data))


@settings(deadline=None)
@given(BYTES, BYTES, st.lists(st.integers(0, 24), max_size=6))
def test_the_splits_of_any_bytes_behind_any_prompt_do_not_matter(prompt: bytes, data: bytes, cuts: list[int]) -> None:
    edges = sorted({0, len(data), *(min(cut, len(data)) for cut in cuts)})
    pieces = [data[a:b] for a, b in itertools.pairwise(edges)]
    at_once, in_pieces = Detokenizer(prompt), Detokenizer(prompt)
    assert "".join(in_pieces.feed(piece) for piece in pieces) == at_once.feed(data)
    assert in_pieces.pending == at_once.pending
