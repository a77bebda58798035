from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.scheduler.admission import Admission, DuplicateRequest, Placed, QueueFull

from .asking import ask


def placed(admission: Admission, now: float = 0.0) -> list[str]:
    found = []
    while (place := admission.place_next(now)) is not None:
        found.append(place.request_id)
    return found


def test_a_free_engine_is_given_at_once_and_the_wait_is_told() -> None:
    admission = Admission(["engine"], max_placed=1, max_queued=5)
    admission.ask(ask("a"), 1.0)
    admission.ask(ask("b"), 2.0)

    assert admission.place_next(1.0) == Placed("a", "engine", 0.0)
    assert admission.place_next(3.0) is None
    assert admission.release("a", 4.5) is True
    assert admission.place_next(4.5) == Placed("b", "engine", 2.5)


def test_an_id_that_is_queued_or_placed_is_refused_until_it_is_released() -> None:
    admission = Admission(["engine"], max_placed=1, max_queued=5)
    admission.ask(ask("a"), 0.0)
    with pytest.raises(DuplicateRequest, match="'a' is queued already"):
        admission.ask(ask("a"), 0.0)
    placed(admission)
    with pytest.raises(DuplicateRequest, match="'a' is placed already"):
        admission.ask(ask("a"), 0.0)
    admission.release("a", 0.0)

    admission.ask(ask("a"), 0.0)
    assert placed(admission) == ["a"]
    assert (admission.admitted_total, admission.refused_total) == (2, 2)


def test_a_full_queue_refuses_with_the_time_that_it_takes_to_drain() -> None:
    admission = Admission(["engine"], max_placed=1, max_queued=2)
    for name in "abc":
        admission.ask(ask(name), 0.0)
        placed(admission)

    with pytest.raises(QueueFull, match="2 requests are queued") as unknown:
        admission.ask(ask("d"), 0.0)
    admission.release("a", 5.0)
    placed(admission)
    admission.ask(ask("d"), 5.0)
    with pytest.raises(QueueFull) as known:
        admission.ask(ask("e"), 10.0)
    assert unknown.value.retry_after_s == 2.0
    assert known.value.retry_after_s == 10.0


def test_without_a_queue_a_free_engine_still_takes() -> None:
    admission = Admission(["engine"], max_placed=1, max_queued=0)
    admission.ask(ask("a"), 0.0)

    assert placed(admission) == ["a"]
    with pytest.raises(QueueFull):
        admission.ask(ask("b"), 0.0)


def test_releasing_is_idempotent_and_takes_queued_ones_out() -> None:
    admission = Admission(["engine"], max_placed=1, max_queued=5)
    admission.ask(ask("a"), 0.0)
    placed(admission)
    admission.ask(ask("b"), 0.0)

    assert [admission.release(name, 0.0) for name in ("b", "b", "never", "a", "a")] == [True, False, False, True, False]
    assert placed(admission) == []
    assert (len(admission.queue), len(admission.engines)) == (0, 0)


def test_a_new_incarnation_releases_what_the_old_one_held() -> None:
    admission = Admission(["engine"], max_placed=2, max_queued=5)
    for name in "abc":
        request = ask(name)
        assert admission.owner_speaks(request, 0.0) == []
        admission.ask(request, 0.0)
    placed(admission)
    again = ask("a", incarnation="2")

    assert admission.owner_speaks(again, 1.0) == ["c"]
    admission.ask(again, 1.0)
    assert placed(admission) == ["a"]
    assert (len(admission.queue), len(admission.engines)) == (0, 1)


def test_places_are_spread_over_engines_by_tokens() -> None:
    admission = Admission(["a", "b"], max_placed=2, max_queued=9)
    for name, tokens in [("large", 1000), ("x", 10), ("y", 10), ("z", 10), ("w", 10)]:
        admission.ask(ask(name, tokens), 0.0)

    found = {}
    while (place := admission.place_next(0.0)) is not None:
        found[place.request_id] = place.engine

    assert found == {"large": "a", "x": "b", "y": "b", "z": "a"}


@given(
    st.lists(st.tuples(st.sampled_from(["ask", "release", "restart"]), st.integers(0, 9), st.integers(0, 2))),
    st.integers(1, 3), st.integers(0, 3),
)  # fmt: skip
def test_whatever_happens_each_is_queued_or_placed_once_and_no_place_stays_empty_while_one_waits(
    moves: list[tuple[str, int, int]], max_placed: int, max_queued: int
) -> None:
    admission = Admission(["e", "f"], max_placed=max_placed, max_queued=max_queued)
    incarnations = ["0", "0", "0"]
    known: dict[str, int] = {}
    for move, number, owner in moves:
        name = f"r{number}"
        if move == "restart":
            incarnations[owner] = str(int(incarnations[owner]) + 1)
        elif move == "release":
            assert admission.release(name, 0.0) == (known.pop(name, None) is not None)
        else:
            request = ask(name, owner=f"p{owner}", incarnation=incarnations[owner], tenant=str(number % 2))
            before = len(admission.queue) + len(admission.engines)
            admission.owner_speaks(request, 0.0)
            if len(admission.queue) + len(admission.engines) < before:
                known = {n: o for n, o in known.items() if n in admission.queue or n in admission.engines}
            placed(admission)
            full = len(admission.queue) >= max_queued and admission.engines.choose() is None
            if name in known:
                with pytest.raises(DuplicateRequest):
                    admission.ask(request, 0.0)
            elif full:
                with pytest.raises(QueueFull):
                    admission.ask(request, 0.0)
            else:
                admission.ask(request, 0.0)
                known[name] = owner
        placed(admission)
        assert len(admission.queue) + len(admission.engines) == len(known)
        assert all((n in admission.queue) != (n in admission.engines) for n in known)
        assert len(admission.engines) <= 2 * max_placed
        assert not admission.queue or admission.engines.choose() is None
        assert len(admission.queue) <= max_queued
