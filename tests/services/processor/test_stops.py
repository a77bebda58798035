"""Stop strings against a reference that looks at the whole text again with each character."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from services.processor.stops import StopAutomaton, StopMatcher

STOPS = st.lists(st.text("ab", min_size=1, max_size=5), max_size=4)
TEXT = st.text("abc", max_size=40)


def matcher(*stops: str, include_stop: bool = False) -> StopMatcher:
    return StopMatcher(StopAutomaton(stops), include_stop=include_stop)


def first_match(text: str, stops: Sequence[str]) -> tuple[int, str] | None:
    """The end of the match that is complete first, and the longest stop string that ends there."""
    for end in range(1, len(text) + 1):
        matching = [stop for stop in stops if text[:end].endswith(stop)]
        if matching:
            return end, max(matching, key=len)
    return None


def longest_beginning(text: str, stops: Sequence[str]) -> int:
    """Characters at the end of the text that may be the beginning of a stop string."""
    lengths = (n for stop in stops for n in range(1, len(stop)) if text.endswith(stop[:n]))
    return max(lengths, default=0)


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(ValueError, match="must not be empty"):
        StopAutomaton(["a", ""])


def test_without_stop_strings_nothing_is_held_back() -> None:
    stops = matcher()
    assert stops.feed("abc") == "abc"
    assert stops.held == ""


def test_a_stop_string_across_three_pieces_is_cut_off() -> None:
    stops = matcher("STOP")
    assert [stops.feed(piece) for piece in ("ab S", "TO", "P and more")] == ["ab ", "", ""]
    assert stops.matched == "STOP"


def test_what_began_like_a_stop_string_and_is_none_comes_out_as_soon_as_that_is_known() -> None:
    stops = matcher("STOP")
    assert [stops.feed(piece) for piece in ("S", "T", "A")] == ["", "", "STA"]
    assert stops.matched is None


def test_held_back_text_is_flushed_at_the_end() -> None:
    stops = matcher("STOP")
    assert stops.feed("a STO") == "a "
    assert stops.held == "STO"
    assert stops.flush() == "STO"
    assert stops.held == ""
    assert stops.flush() == ""


def test_no_more_is_held_back_than_may_become_a_stop_string() -> None:
    stops = matcher("aab")
    assert stops.feed("aaaa") == "aa"
    assert stops.held == "aa"


def test_the_stop_string_is_included_on_request() -> None:
    stops = matcher("STOP", include_stop=True)
    assert stops.feed("a ST") == "a "
    assert stops.feed("OP more") == "STOP"


@pytest.mark.parametrize("include_stop", [False, True])
def test_nothing_comes_behind_a_stop_string(include_stop: bool) -> None:
    stops = matcher("x", include_stop=include_stop)
    stops.feed("ax")
    assert (stops.feed("b"), stops.pass_by("b"), stops.flush(), stops.held) == ("", "", "", "")


def test_of_overlapping_stop_strings_the_one_complete_first_wins() -> None:
    stops = matcher("abcd", "bc")
    assert stops.feed("xabcd") == "xa"
    assert stops.matched == "bc"


def test_of_stop_strings_complete_together_the_longest_wins() -> None:
    for given_as in (("c", "abc", "bc"), ("abc", "bc", "c")):
        stops = matcher(*given_as)
        assert stops.feed("xabc") == "x"
        assert stops.matched == "abc"


def test_a_stop_string_that_overlaps_itself_is_found() -> None:
    stops = matcher("aba", "ababc")
    assert stops.feed("x") + stops.feed("ab") + stops.feed("a") == "x"
    assert stops.matched == "aba"


def test_text_that_is_passed_by_is_not_part_of_a_stop_string() -> None:
    stops = matcher("STOP")
    assert stops.pass_by("STOP ST") == "STOP ST"
    assert stops.feed("OP") == "OP"
    assert stops.matched is None


def test_a_beginning_that_was_held_back_comes_out_with_what_is_passed_by() -> None:
    stops = matcher("STOP")
    assert stops.feed("ST") == ""
    assert stops.pass_by("OP") == "STOP"
    assert stops.matched is None


def test_a_beginning_that_was_passed_by_is_not_gone_on_from() -> None:
    stops = matcher("STOP")
    assert stops.feed("ST") == ""
    assert stops.pass_by("") == "ST"
    assert stops.feed("OP") == "OP"
    assert stops.matched is None


@settings(deadline=None)
@given(TEXT, STOPS, st.lists(st.integers(0, 40), max_size=8), st.booleans())
@example("ababcab", ["abc", "bab"], [3], False)
def test_the_output_is_the_text_cut_at_the_first_match_and_nothing_is_ever_retracted(
    text: str, stops: list[str], cuts: list[int], include_stop: bool
) -> None:
    edges = sorted({0, len(text), *(min(cut, len(text)) for cut in cuts)})
    watched = StopMatcher(StopAutomaton(stops), include_stop=include_stop)
    match = first_match(text, stops)
    expected = text
    if match is not None:
        end, stop = match
        expected = text[: end if include_stop else end - len(stop)]
    out = ""
    for start, end in itertools.pairwise(edges):
        out += watched.feed(text[start:end])
        assert expected.startswith(out)
        if watched.matched is None:  # as much as is certain, and no less
            assert len(out) == end - longest_beginning(text[:end], stops)
            assert out + watched.held == text[:end]
    assert out + watched.flush() == expected
    assert watched.matched == (None if match is None else match[1])


@settings(deadline=None)
@given(TEXT, STOPS)
def test_one_automaton_serves_many_completions(text: str, stops: list[str]) -> None:
    automaton = StopAutomaton(stops)
    whole, single = StopMatcher(automaton), StopMatcher(automaton)
    pieces = [single.feed(character) for character in text]
    assert "".join(pieces) + single.flush() == whole.feed(text) + whole.flush()
    assert single.matched == whole.matched


def test_the_automaton_of_many_long_stop_strings_takes_one_step_per_character() -> None:
    stops = matcher(*("a" * n + "b" for n in range(1, 1000, 10)))
    assert stops.feed("a" * 100_000) == "a" * (100_000 - 991)
    assert stops.feed("c") == "a" * 991 + "c"
