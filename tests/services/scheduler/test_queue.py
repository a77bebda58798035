from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from services.scheduler.queue import FairQueue

from .asking import ask


def drained(queue: FairQueue) -> list[str]:
    order = []
    while queue:
        order.append(queue.pop().request.request_id)
    return order


def test_one_tenant_is_served_first_come_first_served() -> None:
    queue = FairQueue()
    for name in "abc":
        queue.push(ask(name), 0.0)

    assert drained(queue) == ["a", "b", "c"]


def test_a_lower_priority_number_goes_first_whoever_came_first() -> None:
    queue = FairQueue()
    for name, priority in [("a", 1), ("b", 0), ("c", -1), ("d", 0)]:
        queue.push(ask(name, priority=priority), 0.0)

    assert drained(queue) == ["c", "b", "d", "a"]


def test_a_tenant_that_floods_does_not_keep_another_waiting() -> None:
    queue = FairQueue()
    for number in range(100):
        queue.push(ask(f"flood{number}", tenant="a"), 0.0)
    queue.push(ask("quiet", tenant="b"), 0.0)

    assert "quiet" in drained(queue)[:2]


def test_tenants_are_served_alike_in_tokens_not_in_requests() -> None:
    queue = FairQueue()
    for number in range(60):
        queue.push(ask(f"a{number}", 10, tenant="a"), 0.0)
        queue.push(ask(f"b{number}", 50, tenant="b"), 0.0)

    first = drained(queue)[:30]

    assert sum(name.startswith("a") for name in first) == 25


def test_nobody_saves_up_turns_by_staying_away() -> None:
    queue = FairQueue()
    for number in range(40):
        queue.push(ask(f"a{number}", tenant="a"), 0.0)
    for _ in range(20):
        queue.pop()
    for number in range(20):
        queue.push(ask(f"b{number}", tenant="b"), 0.0)

    first = drained(queue)[:20]

    assert 9 <= sum(name.startswith("b") for name in first) <= 11


def test_a_tenant_that_comes_one_at_a_time_gets_its_half_against_a_flood() -> None:
    queue = FairQueue()
    for number in range(100):
        queue.push(ask(f"a{number}", tenant="a"), 0.0)
    served = []
    for number in range(40):
        if not any(waiting.request.tenant == "b" for waiting in queue):
            queue.push(ask(f"b{number}", tenant="b"), 0.0)
        served.append(queue.pop().request.tenant)

    assert 18 <= served.count("b") <= 22


def test_removing_takes_one_out_wherever_it_stands_and_twice_is_a_no_op() -> None:
    queue = FairQueue()
    for name in "abc":
        queue.push(ask(name, tenant=name), 0.0)

    assert queue.remove("b") is True
    assert queue.remove("b") is False
    assert queue.remove("never") is False
    assert ("b" in queue, len(queue)) == (False, 2)
    assert drained(queue) == ["a", "c"]


def test_what_is_removed_is_not_charged() -> None:
    queue = FairQueue()
    queue.push(ask("stays", tenant="b"), 0.0)
    queue.push(ask("huge", 10_000, tenant="a"), 0.0)
    queue.remove("huge")
    queue.push(ask("small", tenant="a"), 0.0)
    queue.push(ask("stays too", tenant="b"), 0.0)

    assert drained(queue) == ["stays", "small", "stays too"]


@given(st.lists(st.tuples(st.sampled_from(["push", "pop", "remove"]), st.integers(0, 15), st.integers(0, 3))))
def test_each_comes_out_once_and_a_tenants_own_in_their_order(moves: list[tuple[str, int, int]]) -> None:
    queue, inside, count = FairQueue(), dict[str, tuple[int, int]](), 0
    for move, number, group in moves:
        name = f"r{number}"
        if move == "push" and name not in inside:
            count += 1
            inside[name] = (group % 2, count)
            queue.push(ask(name, 2 + number, priority=group % 2, tenant=str(number % 3)), 0.0)
        elif move == "pop" and inside:
            waiting = queue.pop()
            priority, order = inside.pop(waiting.request.request_id)
            assert all(priority <= other for other, _ in inside.values())
            mine = [
                inside[w.request.request_id][1]
                for w in queue
                if (w.request.tenant, w.request.priority) == (waiting.request.tenant, priority)
            ]
            assert all(order < other for other in mine)
        elif move == "remove":
            assert queue.remove(name) == (inside.pop(name, None) is not None)
        assert {w.request.request_id for w in queue} == set(inside)
    assert sorted(drained(queue)) == sorted(inside)
