"""Log-probabilities come with the text that they belong to, and never before it."""

from __future__ import annotations

import pytest

from services.processor.logprob_text import LogprobQueue, describe_logprob
from services.protocols.processor import TextLogprob
from services.protocols.sampling import TokenLogprob

from .byte_tokenizer import END, byte_tokenizer


def entry(token_id: int) -> TextLogprob:
    return TextLogprob(token=str(token_id), token_id=token_id, logprob=-0.5, raw=b"", top=[])


def ids(entries: list[TextLogprob]) -> list[int]:
    return [each.token_id for each in entries]


def test_a_token_and_its_alternatives_are_described_with_text_and_bytes() -> None:
    described = describe_logprob(
        byte_tokenizer(), TokenLogprob(token_id=97, logprob=-0.25, top=[(97, -0.25), (0xF0, -2.0), (END, -3.0)])
    )
    assert (described.token, described.token_id, described.logprob, described.raw) == ("a", 97, -0.25, b"a")
    assert [(t.token, t.token_id, t.logprob, t.raw) for t in described.top] == [
        ("a", 97, -0.25, b"a"), ("\ufffd", 0xF0, -2.0, b"\xf0"), ("<end>", END, -3.0, b"<end>"),
    ]  # fmt: skip


def test_a_token_waits_for_the_last_character_of_its_text() -> None:
    queue = LogprobQueue()
    queue.add(entry(1), 0, 3, pending=False)
    queue.add(entry(2), 3, 4, pending=False)
    assert ids(queue.release(2)) == []
    assert ids(queue.release(3)) == [1]
    assert ids(queue.release(4)) == [2]
    assert ids(queue.release(4)) == []


def test_tokens_of_one_character_wait_for_its_last_byte() -> None:
    queue = LogprobQueue()
    queue.add(entry(1), 0, 0, pending=True)
    queue.add(entry(2), 0, 0, pending=True)
    assert ids(queue.release(0)) == []
    queue.add(entry(3), 0, 1, pending=False)
    assert ids(queue.release(0)) == []
    assert ids(queue.release(1)) == [1, 2, 3]


def test_a_token_that_ends_one_character_and_begins_another_waits_for_both() -> None:
    queue = LogprobQueue()
    queue.add(entry(1), 0, 0, pending=True)
    queue.add(entry(2), 0, 1, pending=True)
    queue.add(entry(3), 1, 2, pending=False)
    assert ids(queue.release(1)) == [1]
    assert ids(queue.release(2)) == [2, 3]


def test_a_token_without_text_is_released_in_its_turn() -> None:
    queue = LogprobQueue()
    queue.add(entry(1), 0, 2, pending=False)
    queue.add(entry(2), 2, 2, pending=False)
    assert ids(queue.release(1)) == []
    assert ids(queue.release(2)) == [1, 2]


@pytest.mark.parametrize(
    ("given", "expected"),
    [(0, []), (1, [1]), (2, [1]), (3, [1, 2]), (4, [1, 2]), (5, [1, 2, 3])],
)  # fmt: skip
def test_at_the_end_those_with_a_part_in_the_text_remain(given: int, expected: list[int]) -> None:
    queue = LogprobQueue()
    queue.add(entry(1), 0, 2, pending=False)
    queue.add(entry(2), 2, 4, pending=False)
    queue.add(entry(3), 4, 5, pending=False)
    assert ids(queue.finish(given)) == expected
    assert queue.finish(given) == []


def test_at_the_end_tokens_of_an_unfinished_character_remain_unless_text_was_cut_off_before_them() -> None:
    for given, expected in ((2, [1, 2]), (1, [1])):
        queue = LogprobQueue()
        queue.add(entry(1), 0, 2, pending=False)
        queue.add(entry(2), 2, 2, pending=True)
        assert ids(queue.finish(given)) == expected
