"""One completion: numbered tokens in, text out."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.processor.completion import Completion, NumberingError, merge_deltas
from services.processor.stops import StopAutomaton
from services.protocols.engine import TokenChunk
from services.protocols.processor import TextDelta
from services.protocols.sampling import TokenLogprob

from .byte_tokenizer import END, TOOL, byte_tokenizer

TOKENIZER = byte_tokenizer()


def completion(*stop: str, prompt: bytes = b"?", **options: Any) -> Completion:
    return Completion(TOKENIZER, list(prompt), stops=StopAutomaton(stop), **options)


def chunk(start: int, tokens: bytes | list[int], **fields: Any) -> TokenChunk:
    return TokenChunk(start=start, token_ids=list(tokens), **fields)


def scored(start: int, tokens: bytes | list[int], **fields: Any) -> TokenChunk:
    logprobs = [TokenLogprob(token_id=token, logprob=-1.0, top=[]) for token in tokens]
    return chunk(start, tokens, logprobs=logprobs, **fields)


def text_of(delta: TextDelta | None) -> str:
    return "" if delta is None else delta.text


def raw(delta: TextDelta | None) -> bytes:
    """The bytes of the tokens whose log-probabilities are in it."""
    return b"" if delta is None else b"".join(each.raw for each in delta.logprobs or ())


def test_tokens_become_text_with_the_counts_of_the_moment() -> None:
    one = completion(prompt=b"abc", index=3)
    delta = one.take(chunk(0, b"xy", cached_tokens=2))
    assert delta == TextDelta(index=3, text="xy", token_count=2, prompt_tokens=3, cached_tokens=2)
    assert not one.finished
    last = one.take(chunk(2, b"z", finish_reason="length"))
    assert last == TextDelta(
        index=3, text="z", token_count=3, finish_reason="length", prompt_tokens=3, cached_tokens=2
    )  # fmt: skip
    assert one.finished


def test_half_a_character_is_no_news() -> None:
    one = completion()
    assert one.take(chunk(0, "🌍".encode()[:3])) is None
    delta = one.take(chunk(3, "🌍".encode()[3:]))
    assert delta is not None
    assert (delta.text, delta.token_count) == ("🌍", 4)


def test_a_character_that_the_prompt_begins_is_the_completion_s() -> None:
    one = completion(prompt=b"see \xf0\x9f")
    assert one.take(chunk(0, b"\x8c")) is None
    assert text_of(one.take(chunk(1, b"\x8d!"))) == "🌍!"


def test_an_unfinished_character_at_the_end_is_not_text() -> None:
    one = completion()
    assert text_of(one.take(chunk(0, b"a\xf0\x9f", finish_reason="length"))) == "a"


def test_the_token_that_ends_it_is_no_text_unless_stops_are_included() -> None:
    ended = {"finish_reason": "stop", "stop_token_id": 10}
    for include, expected in ((False, "a"), (True, "a\n")):
        delta = completion(include_stop=include).take(chunk(0, b"a\n", **ended))
        assert delta is not None
        assert (delta.text, delta.stop_reason, delta.finish_reason, delta.token_count) == (expected, 10, "stop", 2)


def test_the_same_token_before_the_end_is_text() -> None:
    one = completion()
    assert text_of(one.take(chunk(0, b"\na\n", finish_reason="stop", stop_token_id=10))) == "\na"


def test_control_tokens_are_skipped_or_shown_and_other_added_tokens_are_text() -> None:
    for skip, expected in ((True, "a<tool>b"), (False, "a<end><tool>b")):
        assert text_of(completion(skip_special=skip).take(chunk(0, [97, END, TOOL, 98]))) == expected


def test_a_stop_string_ends_it_though_the_engine_goes_on() -> None:
    one = completion("STOP")
    assert text_of(one.take(chunk(0, b"a ST"))) == "a "
    last = one.take(chunk(4, b"OP and more"))
    assert last is not None
    assert (last.text, last.finish_reason, last.stop_reason, last.token_count) == ("", "stop", "STOP", 6)
    assert one.take(chunk(15, b"even more")) is None


def test_a_stop_string_in_the_last_chunk_is_why_it_ends() -> None:
    last = completion("x").take(chunk(0, b"axb", finish_reason="length"))
    assert last is not None
    assert (last.text, last.finish_reason, last.stop_reason) == ("a", "stop", "x")


def test_what_was_held_back_comes_with_the_last_delta() -> None:
    for end in (chunk(4, b"", finish_reason="length"), chunk(4, [END], finish_reason="stop", stop_token_id=END)):
        one = completion("STOP")
        assert text_of(one.take(chunk(0, b"a ST"))) == "a "
        assert text_of(one.take(end)) == "ST"


def test_stop_strings_do_not_count_within_the_first_tokens() -> None:
    one = completion("ab", min_tokens=3)
    assert text_of(one.take(chunk(0, b"aba"))) == "aba"
    assert text_of(one.take(chunk(3, b"b"))) == "b", "it began before they counted"
    last = one.take(chunk(4, b"ab"))
    assert last is not None
    assert last.stop_reason == "ab"


def test_an_error_is_told_with_what_was_generated_before_it() -> None:
    one = completion("STOP")
    last = one.take(chunk(0, b"a ST", finish_reason="error", error="the weights are NaN"))
    assert last is not None
    assert (last.text, last.finish_reason, last.error) == ("a ST", "error", "the weights are NaN")


def test_it_can_be_ended_without_the_engine() -> None:
    one = completion("STOP")
    one.take(chunk(0, b"a ST"))
    last = one.end("length")
    assert (last.text, last.finish_reason) == ("ST", "length")
    assert one.finished


def test_an_echo_comes_once_before_all_text() -> None:
    one = completion(echo="said: ")
    assert one.take(chunk(0, b"\xf0")) is None
    assert text_of(one.take(chunk(1, b"\x9f\x8c\x8d"))) == "said: 🌍"
    assert text_of(one.take(chunk(4, b"b"))) == "b"


def test_an_echo_comes_also_where_nothing_was_generated() -> None:
    assert completion(echo="said: ").end("abort").text == "said: "


def test_a_stop_string_in_the_echo_does_not_count() -> None:
    one = completion("x", echo="xx")
    assert text_of(one.take(chunk(0, b"a"))) == "xxa"


def test_missing_tokens_are_an_error() -> None:
    one = completion()
    one.take(chunk(0, b"ab"))
    with pytest.raises(NumberingError, match="token 3 where 2 was due"):
        one.take(chunk(3, b"c"))
    with pytest.raises(NumberingError, match="numbered from 0"):
        one.take(chunk(-1, b"a"))
    assert one.token_ids == [97, 98]


def test_tokens_that_come_again_are_skipped_and_must_be_the_same() -> None:
    one = completion()
    one.take(chunk(0, b"abc"))
    assert one.take(chunk(1, b"b")) is None
    assert text_of(one.take(chunk(0, b"abcd"))) == "d"
    with pytest.raises(NumberingError, match="token 1 again, as 120, not 98"):
        one.take(chunk(0, b"axcde"))
    assert one.token_ids == [*b"abcd"]


def test_log_probabilities_must_be_as_many_as_tokens() -> None:
    with pytest.raises(NumberingError, match="1 log-probabilities for 2 tokens"):
        completion().take(chunk(0, b"ab", logprobs=[TokenLogprob(token_id=97, logprob=-1.0, top=[])]))


def test_log_probabilities_wait_for_the_text_of_their_tokens() -> None:
    one = completion("STOP")
    assert raw(one.take(scored(0, b"a S"))) == b"a "
    assert raw(one.take(scored(3, b"T"))) == b""
    assert raw(one.take(scored(4, b"A"))) == b"STA"
    assert raw(one.take(scored(5, "🌍".encode()[:2]))) == b""
    assert raw(one.take(scored(7, "🌍".encode()[2:]))) == "🌍".encode()


def test_the_log_probabilities_of_a_stop_string_are_dropped_unless_it_is_included() -> None:
    for include, expected in ((False, b"a "), (True, b"a STOP")):
        one = completion("STOP", include_stop=include)
        got = raw(one.take(scored(0, b"a ST"))) + raw(one.take(scored(4, b"OPQ")))
        assert got == expected


def test_the_log_probability_of_the_token_that_ends_it_is_left_out_with_its_text() -> None:
    ended = {"finish_reason": "stop", "stop_token_id": 10}
    assert raw(completion().take(scored(0, b"a\n", **ended))) == b"a"
    assert raw(completion(include_stop=True).take(scored(0, b"a\n", **ended))) == b"a\n"


def test_a_control_token_that_is_not_shown_has_a_log_probability_all_the_same() -> None:
    delta = completion().take(scored(0, [END]))
    assert delta is not None
    assert (delta.text, raw(delta)) == ("", b"<end>")


@settings(deadline=None)
@given(
    st.lists(st.sampled_from([*b"abST", *"🌍".encode(), END]), max_size=20),
    st.lists(st.integers(0, 20), max_size=6), st.booleans(), st.booleans(), st.integers(0, 6),
)  # fmt: skip
def test_neither_the_chunks_nor_their_repetition_change_the_outcome(
    tokens: list[int], cuts: list[int], include_stop: bool, skip_special: bool, min_tokens: int
) -> None:
    def make() -> Completion:
        return completion(
            "ST", "ab", prompt=b"\xf0", include_stop=include_stop, skip_special=skip_special, min_tokens=min_tokens
        )

    at_once = make().take(scored(0, tokens, finish_reason="length"))
    assert at_once is not None
    one, deltas = make(), []
    for start, end in itertools.pairwise(sorted({0, len(tokens), *(min(cut, len(tokens)) for cut in cuts)})):
        for first in {start, max(0, start - 2)}:
            deltas.append(one.take(scored(first, tokens[first:end])))
    deltas.append(one.take(scored(len(one.token_ids), [], finish_reason="length")))
    given_out = [delta for delta in deltas if delta is not None]
    assert "".join(delta.text for delta in given_out) == at_once.text
    assert b"".join(map(raw, given_out)) == raw(at_once)
    assert [delta.finish_reason for delta in given_out if delta.finish_reason] == [at_once.finish_reason]
    assert given_out[-1].stop_reason == at_once.stop_reason
    assert given_out[-1].token_count == at_once.token_count


def test_two_deltas_become_one_for_a_slow_reader() -> None:
    one = completion()
    first = one.take(scored(0, b"ab", cached_tokens=1))
    second = one.take(scored(2, b"c", finish_reason="stop", stop_token_id=99))
    assert first is not None
    assert second is not None
    merged = merge_deltas(first, second)
    assert (merged.text, merged.token_count, merged.finish_reason, merged.stop_reason) == ("ab", 3, "stop", 99)
    assert (raw(merged), merged.cached_tokens, merged.prompt_tokens) == (b"ab", 1, 1)
    assert merge_deltas(TextDelta(index=0, text="a", token_count=1), TextDelta(index=0, text="b", token_count=2)) == (
        TextDelta(index=0, text="ab", token_count=2)
    )
