"""What a step is planned to compute; that runs end right is `test_simulation`'s."""

from __future__ import annotations

from services.engine.limits import Limits, Options
from services.engine.plan import Plan
from services.engine.request import Request, Status
from services.engine.scheduling import Scheduling

from .fake_worker import worker_info
from .simulation import message


class Case:
    """A scheduling whose worker answers every step at once, with token 0 each time."""

    def __init__(
        self, *, num_blocks: int = 100, block_size: int = 4, max_seqs: int = 8, budget: int = 32, chunk: int = 16,
        watermark: float = 0.0,
    ) -> None:  # fmt: skip
        info = worker_info(
            num_blocks=num_blocks, block_size=block_size, max_seqs=max_seqs, max_batched_tokens=999, max_context=9999
        )
        options = Options(max_batched_tokens=budget, max_seqs=99, prefill_chunk=chunk, watermark=watermark)
        self.scheduling = Scheduling(Limits.of(options, info), [])
        self.count = 0

    def add(self, prompt: int, max_tokens: int = 50, priority: int = 0, arrival_s: float = 0.0) -> Request:
        self.count += 1
        sampling = message("r", [0], max_tokens).sampling
        request = Request(f"r{self.count}", [0] * prompt, prompt, sampling, priority, arrival_s, self.count)
        self.scheduling.waiting = sorted([*self.scheduling.waiting, request], key=lambda r: r.rank)
        return request

    def plan(self, *, answer: bool = True) -> dict[str, tuple[int, int, bool]]:
        """Plan a step; (start, count, sample) of each request in it, in order."""
        plan = self.last = self.scheduling.next_step()
        if answer:
            self.answer(plan)
        return {row.request.request_id: (row.start, row.count, row.sample) for row in plan.rows}

    @staticmethod
    def answer(plan: Plan) -> None:
        for row in plan.rows:
            if row.sample:
                row.request.in_flight -= 1
                row.request.token_ids.append(0)


def test_a_prompt_is_computed_in_chunks_and_sampled_behind_the_last() -> None:
    case = Case(chunk=5)
    case.add(12)

    assert [case.plan()["r1"] for _ in range(5)] == [
        (0, 5, False), (5, 5, False), (10, 2, True), (12, 1, True), (13, 1, True),
    ]  # fmt: skip


def test_decode_and_chunks_of_prefill_are_mixed_in_one_step() -> None:
    case = Case(budget=10, chunk=8)
    case.add(2)
    case.plan()
    case.add(20)

    assert case.plan() == {"r1": (2, 1, True), "r2": (0, 8, False)}
    assert case.plan() == {"r1": (3, 1, True), "r2": (8, 8, False)}


def test_running_goes_before_waiting_within_the_budget() -> None:
    case = Case(budget=6, chunk=8)
    case.add(4)
    case.add(9, arrival_s=1.0)
    case.add(3, arrival_s=2.0)

    assert case.plan() == {"r1": (0, 4, True), "r2": (0, 2, False)}
    assert case.plan() == {"r1": (4, 1, True), "r2": (2, 5, False)}
    assert case.plan() == {"r1": (5, 1, True), "r2": (7, 2, True), "r3": (0, 3, True)}


def test_an_urgent_prefill_leaves_every_running_sequence_its_token() -> None:
    case = Case(budget=8, chunk=99)
    for _ in range(3):
        case.add(1)
    case.plan()
    case.add(40, priority=-1)

    steps = [case.plan() for _ in range(4)]

    assert [step["r4"][1] for step in steps] == [5, 5, 5, 5]
    assert all(step[name][1] == 1 for step in steps for name in ("r1", "r2", "r3"))


def test_waiting_goes_by_priority_then_arrival_then_order() -> None:
    case = Case(max_seqs=1)
    for priority, arrival_s in [(1, 0.0), (0, 5.0), (0, 3.0), (0, 3.0), (-1, 9.0)]:
        case.add(2, max_tokens=1, priority=priority, arrival_s=arrival_s)

    order = []
    while case.scheduling.waiting:
        (name,) = case.plan()
        order.append(name)
        case.scheduling.end(case.scheduling.running[0])

    assert order == ["r5", "r3", "r4", "r2", "r1"]


def test_no_more_run_than_there_are_slots() -> None:
    case = Case(max_seqs=2)
    for _ in range(4):
        case.add(1)

    assert list(case.plan()) == ["r1", "r2"]
    case.scheduling.end(case.scheduling.running[0])
    assert list(case.plan()) == ["r2", "r3"]


def test_the_lowest_priority_and_then_the_youngest_is_preempted() -> None:
    case = Case(num_blocks=3, block_size=2)
    case.add(2, arrival_s=1.0)
    case.add(2, arrival_s=2.0)
    case.add(2, arrival_s=0.0, priority=1)
    assert len(case.plan()) == 3

    plan = case.plan()

    assert [r.request_id for r in case.last.preempted] == ["r3", "r2"]
    assert list(plan) == ["r1"]
    assert [(r.request_id, r.status, r.computed) for r in case.scheduling.waiting] == [
        ("r2", Status.WAITING, 0), ("r3", Status.WAITING, 0),
    ]  # fmt: skip


def test_a_preempted_request_is_computed_anew_with_what_it_generated() -> None:
    case = Case(num_blocks=4, block_size=2)
    case.add(2, max_tokens=6)
    case.add(2, max_tokens=6, arrival_s=1.0)
    case.plan()
    while not case.last.preempted:
        case.plan()
    first, second = case.scheduling.running[0], case.scheduling.waiting[0]
    generated = second.num_generated
    case.scheduling.end(first)

    assert generated >= 1
    assert case.plan() == {"r2": (0, 2 + generated, True)}


def test_nothing_is_admitted_in_the_step_that_preempts() -> None:
    case = Case(num_blocks=4, block_size=2)
    case.add(4)
    case.add(4, arrival_s=1.0)
    case.plan()
    case.add(1, priority=-1)  # for which there would be room

    assert list(case.plan()) == ["r1"]
    assert [r.request_id for r in case.last.preempted] == ["r2"]
    assert list(case.plan()) == ["r1", "r3"]


def test_a_large_request_is_not_overtaken_by_small_ones_behind_it() -> None:
    case = Case(num_blocks=4, block_size=4, chunk=99)
    case.add(8)
    case.plan()
    case.add(12, arrival_s=1.0)
    case.add(1, arrival_s=2.0)

    assert list(case.plan()) == ["r1"]
    assert [r.request_id for r in case.scheduling.waiting] == ["r2", "r3"]


def test_admission_leaves_the_watermark_free_unless_nothing_runs() -> None:
    case = Case(num_blocks=10, block_size=4, watermark=0.3, chunk=99, budget=99)
    case.add(40, max_tokens=1)
    assert list(case.plan()) == ["r1"]
    case.scheduling.end(case.scheduling.running[0])

    case.add(12, arrival_s=1.0)
    case.add(17, arrival_s=2.0)  # 5 blocks: with the 3 that run, 2 would be left
    assert list(case.plan()) == ["r2"]
    case.scheduling.end(case.scheduling.waiting[0])
    case.add(16, arrival_s=2.0)  # 4 blocks: 2 are left, for r2 has taken another
    assert list(case.plan()) == ["r2"]
    case.scheduling.end(case.scheduling.waiting[0])
    case.add(12, arrival_s=2.0)
    assert list(case.plan()) == ["r2", "r5"]


def test_a_step_can_be_planned_before_the_last_is_answered() -> None:
    case = Case()
    request = case.add(3, max_tokens=3)

    assert case.plan(answer=False) == {"r1": (0, 3, True)}
    first = case.last
    assert case.plan(answer=False) == {"r1": (3, 1, True)}
    assert case.plan(answer=False) == {"r1": (4, 1, True)}
    assert case.plan(answer=False) == {}, "nothing comes behind the third token"
    assert (request.in_flight, request.computed) == (3, 5)
    case.answer(first)
    assert case.plan(answer=False) == {}


def test_one_that_was_preempted_with_a_sample_under_way_waits_for_its_token() -> None:
    case = Case(num_blocks=2, block_size=2)
    case.add(2)
    case.add(2, arrival_s=1.0)
    case.plan(answer=False)
    first = case.last
    assert list(case.plan(answer=False)) == ["r1"]
    case.scheduling.end(case.scheduling.running[0])

    assert case.plan() == {}
    case.answer(first)
    assert case.plan() == {"r2": (0, 3, True)}


def test_a_suspect_to_be_isolated_is_tried_without_another_and_the_rest_runs_beside_it() -> None:
    case = Case()
    suspects = [case.add(2), case.add(2), case.add(2)]
    case.add(2)
    for suspect in suspects:
        suspect.suspect_until = 2
        suspect.isolate = True

    assert list(case.plan()) == ["r1", "r4"]
    assert list(case.plan()) == ["r1", "r4"]
    suspects[0].acquit()
    assert list(case.plan()) == ["r1", "r4", "r2"]


def test_suspects_that_had_been_going_on_well_are_tried_together() -> None:
    case = Case()
    together = [case.add(2), case.add(2)]
    isolated = case.add(2)
    isolated.isolate = True
    for suspect in (*together, isolated):
        suspect.suspect_until = 2

    assert list(case.plan()) == ["r1", "r2"]
    together[0].acquit()
    assert list(case.plan()) == ["r1", "r2"]
    together[1].acquit()
    assert list(case.plan()) == ["r1", "r2", "r3"]


def test_ending_frees_all_at_any_point_and_twice_is_a_no_op() -> None:
    case = Case(max_seqs=1)
    running, waiting = case.add(8), case.add(8)
    case.plan()
    for request in (running, waiting, running, waiting):
        case.scheduling.end(request)

    assert case.scheduling.pool.num_free == 100
    assert not case.scheduling.running
    assert not case.scheduling.waiting
    assert case.plan() == {}
