from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from services.worker.draw import uniform


@given(seed=st.integers(-(2**70), 2**70), position=st.integers(0, 2**40))
def test_a_number_depends_on_seed_and_position_alone_and_lies_strictly_within_0_and_1(seed: int, position: int) -> None:
    number = uniform(seed, position)
    assert 0.0 < number < 1.0
    uniform(seed + 1, position)
    assert uniform(seed, position) == number
    assert uniform(seed + 2**64, position) == number


def test_numbers_are_spread_evenly_over_positions_and_over_seeds() -> None:
    for numbers in ([uniform(7, i) for i in range(4000)], [uniform(i, 7) for i in range(4000)]):
        assert len(set(numbers)) == 4000
        for tenth in range(10):
            assert 320 < sum(tenth <= 10 * n < tenth + 1 for n in numbers) < 480
