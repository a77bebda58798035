from __future__ import annotations

from services.scheduler.pace import Pace


def test_the_wait_is_as_long_as_places_took_to_come_free() -> None:
    pace = Pace()
    for second in range(10):
        pace.count(float(second) * 2)

    assert pace.wait_s(5, now=20.0) == 10.0


def test_the_longer_nothing_comes_free_the_longer_the_wait() -> None:
    pace = Pace()
    pace.count(0.0)
    pace.count(1.0)

    assert pace.wait_s(1, now=2.0) < pace.wait_s(1, now=20.0)


def test_the_advice_is_bounded_and_there_is_one_when_nothing_is_known() -> None:
    pace = Pace()
    assert pace.wait_s(3, now=0.0) == 3.0
    assert pace.wait_s(10_000, now=0.0) == 60.0
    pace.count(0.0)
    assert pace.wait_s(1, now=0.0) == 0.1
