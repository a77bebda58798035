from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.engine.blocks import BlockFault, BlockPool


def test_asking_is_apart_from_taking() -> None:
    pool = BlockPool(3)

    assert pool.can_allocate(3)
    assert pool.can_allocate(0)
    assert not pool.can_allocate(4)
    assert pool.num_free == 3


def test_taking_too_many_changes_nothing() -> None:
    pool = BlockPool(2)
    pool.allocate(1)

    with pytest.raises(BlockFault, match="2 blocks were asked for, but 1 of 2 are free"):
        pool.allocate(2)
    with pytest.raises(BlockFault):
        pool.allocate(-1)
    assert pool.num_free == 1


@pytest.mark.parametrize("wrong", [[0, 0], [2], [1, 2], [-1], [3], [0, 1, 0]])
def test_freeing_what_is_not_owned_is_an_error_and_changes_nothing(wrong: list[int]) -> None:
    pool = BlockPool(3)
    assert pool.allocate(2) == [0, 1]

    with pytest.raises(BlockFault):
        pool.free(wrong)
    assert pool.num_free == 1
    pool.free([0, 1])
    assert sorted(pool.allocate(3)) == [0, 1, 2]


def test_a_block_cannot_be_freed_again() -> None:
    pool = BlockPool(1)
    blocks = pool.allocate(1)
    pool.free(blocks)

    with pytest.raises(BlockFault, match="block 0 is freed, but nobody owns it"):
        pool.free(blocks)
    assert pool.num_free == 1


def test_the_block_that_was_freed_last_is_given_first() -> None:
    pool = BlockPool(4)
    first, second = pool.allocate(2), pool.allocate(1)
    pool.free(second)
    pool.free(first)

    assert pool.allocate(2) == first


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 6)), max_size=60))
def test_every_block_is_free_or_owned_exactly_once(moves: list[tuple[bool, int]]) -> None:
    pool, owned = BlockPool(8), list[list[int]]()
    for take, number in moves:
        if take and pool.can_allocate(number):
            owned.append(pool.allocate(number))
        elif not take and owned:
            pool.free(owned.pop(number % len(owned)))
        held = [block for blocks in owned for block in blocks]
        assert len(set(held)) == len(held)
        assert pool.num_free == 8 - len(held)
    for blocks in owned:
        pool.free(blocks)
    assert sorted(pool.allocate(8)) == list(range(8))
