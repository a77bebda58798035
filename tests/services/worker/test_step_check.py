"""What a worker refuses, and that nothing else is refused."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.protocols.worker import Advance, NewSequence, StepBatch
from services.worker.step_check import StepLimits, StepRefused, check_step
from services.worker.tracked_sequence import TrackedSequence

from .stepping import advance, new, params

LIMITS = StepLimits(max_seqs=4, max_batched_tokens=12, max_context=20, num_blocks=8, block_size=4, vocab_size=50)


def table() -> dict[int, TrackedSequence]:
    """Slot 1 has computed 5 of its 6 tokens, in blocks 3 and 6; slot 2 is full, all but one of its 20 computed."""
    return {
        1: TrackedSequence("a", [1, 2, 3, 4, 5, 6], 5, params(), 0, blocks=[3, 6], computed=5, started=True),
        2: TrackedSequence("b", [0] * 20, 10, params(), 0, blocks=[0, 1, 2, 4, 5], computed=19, started=True),
    }


def check(
    *advances: Advance, add: list[NewSequence] | None = None, release: list[int] | None = None, step: int = 7
) -> None:
    batch = StepBatch(step=step, release=release or [], add=add or [], advance=list(advances))
    check_step(batch, 7, table(), LIMITS)


def test_a_right_step_passes() -> None:
    check()
    check(advance(1, 5, 1))
    check(advance(1, 5, 1, [7]), advance(2, 19, 1, sample=False))
    check(advance(2, 0, 4, [0], sample=False), add=[new(2, [1] * 5)], release=[2])
    check(advance(0, 0, 5, [0, 7]), add=[new(0, [1] * 5)])
    check(advance(0, 8, 1, [0, 7, 1]), add=[new(0, [1] * 9)])  # a prefix hit


@pytest.mark.parametrize(
    ("field", "said", "advances", "add", "release"),
    [
        ("batch.release[1]", "released twice", [], [], [1, 1]),
        ("batch.release[0]", "slot 3 holds no", [], [], [3]),
        ("batch.release[0]", "slot -1 holds no", [], [], [-1]),
        ("batch.add[0].slot", "slots are 0 to 3", [], [new(4, [1])], []),
        ("batch.add[0].slot", "slots are 0 to 3", [], [new(-1, [1])], []),
        ("batch.add[0].slot", "slot 1 is taken", [], [new(1, [1])], []),
        ("batch.add[1].slot", "slot 0 is taken", [], [new(0, [1]), new(0, [1])], []),
        ("batch.add[0].token_ids", "has 0 tokens", [], [new(0, [])], []),
        ("batch.add[0].token_ids", "has 21 tokens", [], [new(0, [1] * 21)], []),
        ("batch.add[0].prompt_len", "is 3, of 2", [], [new(0, [1, 2], 3)], []),
        ("batch.add[0].prompt_len", "is -1", [], [new(0, [1, 2], -1)], []),
        ("batch.add[0].token_ids[1]", "is 50; the vocabulary ends at 49", [], [new(0, [49, 50])], []),
        ("batch.advance[0].slot", "slot 0 holds no", [advance(0, 0, 1, [0])], [], []),
        ("batch.advance[0].slot", "slot 1 holds no", [advance(1, 5, 1)], [], [1]),
        ("batch.advance[1].slot", "advanced twice", [advance(1, 5, 1), advance(1, 6, 1)], [], []),
        ("batch.advance[0].start", "is 4, but 5 tokens", [advance(1, 4, 2)], [], []),
        ("batch.advance[0].start", "is 6, but 5 tokens", [advance(1, 6, 1)], [], []),
        ("batch.advance[0].start", "is -1", [advance(0, -1, 1, [0])], [new(0, [1])], []),
        ("batch.advance[0].count", "is 0", [advance(1, 5, 0)], [], []),
        ("batch.advance[0].count", "is 2, from 5 on, but slot 1 has 6", [advance(1, 5, 2)], [], []),
        ("batch.advance[0].sample", "2 tokens behind", [advance(0, 0, 1, [0])], [new(0, [1] * 3)], []),
        ("batch.advance[0].sample", "context of 20 tokens is full", [advance(2, 19, 1)], [], []),
        ("batch.advance[0].blocks[1]", "is 8; blocks are 0 to 7", [advance(1, 5, 1, [7, 8])], [], []),
        ("batch.advance[0].blocks[0]", "is -1", [advance(1, 5, 1, [-1])], [], []),
        ("batch.advance[0].blocks[0]", "block 6 is in the table", [advance(1, 5, 1, [6])], [], []),
        ("batch.advance[0].blocks[1]", "block 7 is in the table", [advance(1, 5, 1, [7, 7])], [], []),
        ("batch.advance[0].blocks", "1 blocks of 4, too few for 5", [advance(0, 0, 5, [0])], [new(0, [1] * 5)], []),
        ("batch.advance[0].blocks", "2 blocks of 4, too few for 9", [advance(0, 8, 1, [0, 7])], [new(0, [1] * 9)], []),
        ("batch.advance", "computes 13 tokens", [advance(0, 0, 13, [0, 1, 2, 7])], [new(0, [1] * 13)], []),
    ],
)
def test_each_fault_is_refused_with_its_field(
    field: str, said: str, advances: list[Advance], add: list[NewSequence], release: list[int]
) -> None:
    with pytest.raises(StepRefused, match=said) as caught:
        check(*advances, add=add, release=release)
    assert caught.value.field == field


@pytest.mark.parametrize("step", [6, 8, 0, -1])
def test_a_repeated_or_skipped_step_is_refused(step: int) -> None:
    with pytest.raises(StepRefused, match=f"is {step}; the next step of this worker is 7"):
        check(step=step)


SMALL = st.integers(-2, 9)


@given(
    advances=st.lists(
        st.builds(
            Advance, slot=st.integers(-1, 5), start=st.integers(-1, 21), count=st.integers(-1, 14),
            blocks=st.lists(SMALL, max_size=5), sample=st.booleans(),
        ), max_size=3,
    ),
    add=st.lists(st.builds(new, st.integers(-1, 5), st.lists(st.integers(0, 55), max_size=22)), max_size=2),
    release=st.lists(st.integers(-1, 5), max_size=2),
)  # fmt: skip
def test_a_step_that_passes_keeps_every_table_within_its_bounds(
    advances: list[Advance], add: list[NewSequence], release: list[int]
) -> None:
    with suppress(StepRefused):
        check(*advances, add=add, release=release)
        assert_within_bounds(advances, add, release)


def assert_within_bounds(advances: list[Advance], add: list[NewSequence], release: list[int]) -> None:
    lengths = {n: len(s.token_ids) for n, s in table().items() if n not in release} | {
        n.slot: len(n.token_ids) for n in add
    }
    held = {n: s.blocks for n, s in table().items() if n not in release}
    for a in advances:
        blocks = [*held.get(a.slot, []), *a.blocks]
        assert 1 <= a.start + a.count <= lengths[a.slot] <= LIMITS.max_context
        assert len(set(blocks)) == len(blocks)
        assert all(0 <= block < LIMITS.num_blocks for block in blocks)
        assert len(blocks) * LIMITS.block_size >= a.start + a.count
    assert sum(a.count for a in advances) <= LIMITS.max_batched_tokens
