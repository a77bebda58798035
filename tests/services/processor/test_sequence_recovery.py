"""A completion whose engine or scheduler is lost: it goes on, and no token is lost or comes twice."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from .fake_ports import Full, GivenUp, NotThere, PeerLost
from .sequence_harness import POLICY, Harness


def test_a_loss_within_the_call_is_tried_again_too() -> None:
    one = Harness(at_once=True)
    one.ports.on_generate = lambda stream: stream.end(PeerLost("engine"))
    one.sequence.start()
    assert one.ports.released == ["r/0"]
    one.ports.on_generate = lambda stream: stream.send(0, b"ab", finish_reason="length")
    one.ports.pass_time()
    assert (one.text, one.ports.released) == ("ab", ["r/0", "r/0.2"])


def test_an_engine_that_is_lost_is_gone_on_from_by_the_next_with_the_tokens_so_far() -> None:
    one = Harness()
    one.begin().send(0, b"ab")
    one.ports.streams[0].end(PeerLost("engine"))
    assert one.ports.released == ["r/0"]
    assert one.failures == []
    second = one.again()
    asked = one.ports.placings[1].request
    assert (asked.request_id, asked.prompt_tokens, asked.max_tokens) == ("r/0.2", 8, 6)
    assert (second.engine, second.request.request_id) == ("engine2", "r/0.2")
    assert second.request.generated_token_ids == [*b"ab"]
    assert second.request.sampling.max_tokens == 8, "they count towards it"
    second.send(2, b"cd", finish_reason="stop", stop_token_id=None)
    assert (one.text, one.ports.released) == ("abcd", ["r/0", "r/0.2"])
    assert one.is_done()


def test_the_tokens_handed_over_are_those_of_the_moment() -> None:
    one = Harness()
    one.begin().send(0, b"ab")
    request = one.ports.streams[0].request
    one.ports.streams[0].send(2, b"c")
    assert request.generated_token_ids == [], "the message is not the completion's own list"


def test_half_a_character_and_a_half_stop_string_outlive_the_engine() -> None:
    one = Harness("STOP", max_tokens=20)
    one.begin().send(0, b"a \xf0\x9f")
    one.ports.streams[0].end(PeerLost("engine"))
    one.again().send(4, b"\x8c\x8dST")
    one.ports.streams[1].end(PeerLost("engine"))
    one.again().send(8, b"OP")
    assert one.text == "a 🌍"
    assert one.deltas[-1].stop_reason == "STOP"
    assert one.ports.released == ["r/0", "r/0.2", "r/0.3"]
    assert one.is_done()


def test_what_an_earlier_engine_still_says_is_not_heard() -> None:
    one = Harness()
    first = one.begin()
    first.send(0, b"a")
    first.end(PeerLost("engine"))
    second = one.again()
    first.send(1, b"x")
    first.on_end(None)
    second.send(1, b"b", finish_reason="length")
    assert one.text == "ab"
    assert one.is_done()


def test_a_placement_that_comes_after_its_attempt_was_given_up_is_not_used() -> None:
    one = Harness()
    one.sequence.start()
    one.ports.placings[0].refuse(PeerLost("scheduler"))
    one.ports.pass_time()
    one.ports.placings[0].answer()
    assert one.ports.streams == []
    assert one.ports.released == ["r/0"]


def test_a_lost_scheduler_s_place_is_released_and_one_that_was_not_there_s_is_not() -> None:
    for error, released in ((PeerLost(), ["r/0"]), (NotThere(), [])):
        one = Harness()
        one.sequence.start()
        one.ports.placings[0].refuse(error)
        assert one.ports.released == released
        one.again().send(0, b"a", finish_reason="length")
        assert one.ports.released == [*released, "r/0.2"]
        assert one.is_done()


def test_want_of_room_turns_away_who_has_not_begun() -> None:
    one, full = Harness(), Full()
    one.sequence.start()
    one.ports.placings[0].refuse(full)
    assert (one.failures, one.ports.released) == ([full], [])


def test_want_of_room_makes_who_has_begun_wait() -> None:
    one = Harness()
    one.begin().send(0, b"a")
    one.ports.streams[0].end(PeerLost("engine"))
    one.ports.pass_time()
    one.ports.placings[1].refuse(Full())
    assert one.failures == []
    one.again().send(1, b"b", finish_reason="length")
    assert (one.text, one.ports.released) == ("ab", ["r/0", "r/0.3"])


def test_the_delays_grow_to_the_most_and_the_attempts_end() -> None:
    one, last = Harness(), NotThere("last")
    one.sequence.start()
    delays = []
    for _ in range(POLICY.attempts):
        one.ports.placings[-1].refuse(NotThere())
        delays.append(one.ports.pass_time())
    assert delays == pytest.approx([0.1, 0.2, 0.25])
    one.ports.placings[-1].refuse(last)
    assert one.failures == [last]
    assert one.is_done()


def test_a_peer_that_is_lost_for_good_is_told_in_the_words_of_the_ports() -> None:
    one = Harness()
    one.begin()
    for _ in range(POLICY.attempts):
        one.ports.streams[-1].end(PeerLost("engine"))
        one.again()
    one.ports.streams[-1].end(PeerLost("engine"))
    assert [str(failure) for failure in one.failures] == ["engine"]
    assert isinstance(one.failures[0], GivenUp)
    assert one.is_done()


def test_a_new_token_makes_all_attempts_available_again() -> None:
    one = Harness(max_tokens=20)
    one.begin()
    for number in range(3 * POLICY.attempts):
        one.ports.streams[-1].send(number, b"a")
        one.ports.streams[-1].end(PeerLost("engine"))
        one.again()
    assert one.failures == []
    assert one.ports.now == pytest.approx(0.1 * 3 * POLICY.attempts)


def test_an_engine_lost_behind_the_last_token_has_done_all_that_was_to_do() -> None:
    one = Harness(max_tokens=2)
    one.begin().send(0, b"ab")
    one.ports.streams[0].end(PeerLost("engine"))
    assert (one.text, one.deltas[-1].finish_reason, one.ports.released) == ("ab", "length", ["r/0"])
    assert one.is_done()


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.sampled_from(["lost", "absent"])), max_size=12))
def test_however_engines_are_lost_the_text_is_the_undisturbed_one(
    attempts: list[tuple[int, int, str]],
) -> None:
    """Each attempt: tokens it gives, how many of them it sends again, and how the scheduler fails before the next."""
    output = "a🌍字b🌍".encode()
    one = Harness(max_tokens=len(output))
    one.begin()
    for tokens, repeated, before in attempts:
        stream, have = one.ports.streams[-1], len(one.completion.token_ids)
        assert stream.request.generated_token_ids == [*output[:have]]
        stream.send(max(0, have - repeated), output[max(0, have - repeated) : have + tokens])
        stream.end(PeerLost("engine"))
        if one.failures or (one.deltas and one.deltas[-1].finish_reason):
            break
        one.ports.pass_time()
        if before == "absent" and one.sequence._failures < POLICY.attempts:
            one.ports.placings[-1].refuse(NotThere())
            one.ports.pass_time()
        one.ports.placings[-1].answer()
    have = len(one.completion.token_ids)
    if not one.completion.finished and not one.failures:
        one.ports.streams[-1].send(have, output[have:], finish_reason="length")
    if not one.failures:
        assert one.text == output.decode()
    assert one.is_done()
    assert sorted(one.ports.released) == sorted(set(one.ports.released)), "each once"
