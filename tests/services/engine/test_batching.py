"""Requests over the lives of workers."""

from __future__ import annotations

import pytest

from services.engine.limits import Options
from services.engine.refusal import DuplicateRequest, NeverFits, QueueFull

from .fake_worker import LATE_POISON, POISON, UNSAMPLABLE, undisturbed, worker_info
from .simulation import Simulation, message


def simulation(*, pipeline: int = 1, max_waiting: int = 100, **worker: int) -> Simulation:
    options = Options(pipeline=pipeline, max_waiting=max_waiting, watermark=0.0)
    return Simulation(options, worker_info(**{"num_blocks": 200, "max_seqs": 8, **worker}))


def test_an_id_that_is_being_generated_is_refused_and_free_again_behind_its_end() -> None:
    sim = simulation()
    sim.batching.add(message("r", [5]), 0.0)

    with pytest.raises(DuplicateRequest, match="'r'"):
        sim.batching.add(message("r", [6]), 0.0)
    assert sim.batching.abort("r")
    assert sim.batching.add(message("r", [6]), 0.0) is None


def test_a_full_queue_refuses_and_what_runs_does_not_count() -> None:
    sim = simulation(max_waiting=2, max_seqs=1)
    sim.attach()
    for name in ("a", "b", "c"):
        assert sim.ask(message(name, [5])) is not None
        sim.pump()

    with pytest.raises(QueueFull, match="2 requests wait already"):
        sim.batching.add(message("d", [5]), 0.0)
    sim.batching.abort("b")
    assert sim.batching.add(message("d", [5]), 0.0) is None


def test_what_fits_nowhere_is_refused_at_once_with_a_worker_and_ends_with_an_error_when_one_comes() -> None:
    sim = simulation(num_blocks=2)
    early = sim.ask(message("early", [5] * 30, max_tokens=30))
    fits = sim.ask(message("fits", [5, 5], max_tokens=2, ignore_eos=True))
    assert early is not None
    assert fits is not None
    sim.attach()

    assert early.endings[0].reason == "error"
    assert early.endings[0].field == "request.prompt_token_ids"
    assert "holds 8 (2 blocks of 4)" in str(early.endings[0].error)
    with pytest.raises(NeverFits):
        sim.batching.add(message("late", [5] * 30, max_tokens=30), 0.0)
    sim.finish(10)
    assert fits.endings[0].reason == "length"


def test_a_request_that_comes_with_all_its_tokens_has_ended() -> None:
    sim = simulation()
    sim.attach()
    prompt = [7, 8]
    tokens, reason = undisturbed(prompt, message("r", prompt).sampling)

    whole = sim.ask(message("whole", prompt, generated=tokens))
    part = sim.ask(message("part", prompt, generated=tokens[:2]))
    sim.finish(20)

    assert whole is not None
    assert part is not None
    assert (whole.tokens, [e.reason for e in whole.endings]) == ([], [reason])
    assert (part.tokens, [e.reason for e in part.endings]) == (tokens[2:], [reason])


@pytest.mark.parametrize("pipeline", [1, 2])
def test_requests_go_on_with_the_same_tokens_over_three_deaths(pipeline: int) -> None:
    sim = simulation(pipeline=pipeline)
    asked = [sim.ask(message(f"r{i}", [10 + i] * (i + 1), max_tokens=20, ignore_eos=True)) for i in range(4)]
    for _ in range(3):
        sim.attach()
        for _ in range(9):
            sim.work()
        sim.die()
    sim.finish(200)

    assert all(a is not None and len(a.tokens) == 20 and a.endings[0].reason == "length" for a in asked)


@pytest.mark.parametrize("pipeline", [1, 2])
@pytest.mark.parametrize("company", ["none", "before", "together"])
def test_poison_fails_alone_behind_its_second_death(company: str, pipeline: int) -> None:
    sim = simulation(pipeline=pipeline)
    sim.attach()
    others = 0 if company == "none" else 5
    innocent = [sim.ask(message(f"r{i}", [10 + i], max_tokens=12, ignore_eos=True)) for i in range(others)]
    if company == "before":
        sim.pump()
        for _ in range(3):
            sim.work()
    guilty = sim.ask(message("guilty", [9, POISON], max_tokens=12, ignore_eos=True))
    sim.finish(300)

    assert sim.deaths == 2
    assert guilty is not None
    assert "lost twice" in str(guilty.endings[0].error)
    assert all(a is not None and len(a.tokens) == 12 and a.endings[0].reason == "length" for a in innocent)


@pytest.mark.parametrize("pipeline", [1, 2])
@pytest.mark.parametrize("others", [0, 5])
def test_poison_among_requests_that_went_on_well_is_found_by_isolation(others: int, pipeline: int) -> None:
    sim = simulation(pipeline=pipeline)
    sim.attach()
    innocent = [sim.ask(message(f"r{i}", [10 + i], max_tokens=12, ignore_eos=True)) for i in range(others)]
    guilty = sim.ask(message("guilty", [9, LATE_POISON], max_tokens=12, ignore_eos=True))
    sim.finish(300)

    assert sim.deaths == (3 if others else 2)
    assert guilty is not None
    assert "lost twice" in str(guilty.endings[0].error)
    assert all(a is not None and len(a.tokens) == 12 and a.endings[0].reason == "length" for a in innocent)


def test_nobody_who_went_on_well_is_failed_when_workers_are_killed_for_another_reason() -> None:
    sim = simulation(max_batched_tokens=64)
    sim.attach()
    asked = [sim.ask(message(f"r{i}", [10 + i] * 4, max_tokens=20, ignore_eos=True)) for i in range(6)]
    sim.pump()
    sim.work()
    for _ in range(6):
        sim.die(ran=1)  # in the very first step of each attempt but for one
        sim.attach()
        sim.work()
    sim.finish(300)

    assert all(a is not None and len(a.tokens) == 20 and a.endings[0].reason == "length" for a in asked)


def test_a_death_is_forgotten_once_its_step_has_been_computed_again() -> None:
    sim = simulation()
    sim.attach()
    sim.ask(message("r", [5, 6], max_tokens=30, ignore_eos=True))
    sim.pump()
    for _ in range(5):
        sim.work()
        sim.die()
        sim.attach()
        sim.work()
    sim.finish(100)

    assert [ending.reason for ending in sim.asked["r"].endings] == ["length"]


def test_a_death_while_nothing_is_under_way_is_nobodys_fault() -> None:
    sim = simulation()
    sim.ask(message("r", [5]))
    for _ in range(5):
        sim.die()

    assert not sim.batching.requests["r"].suspect
    sim.finish(20)


def test_a_step_that_failed_blames_its_own_requests_only() -> None:
    sim = simulation(pipeline=2, max_seqs=1)
    sim.attach()
    sim.ask(message("a", [5], max_tokens=1))
    sim.pump()
    sim.ask(message("b", [6], max_tokens=5))
    sim.batching.detach(sim.batching.rows_under_way(0))

    assert sim.batching.requests["a"].suspect
    assert not sim.batching.requests["b"].suspect


def test_requests_of_a_step_can_be_failed_and_the_others_go_on() -> None:
    sim = simulation(max_seqs=2)
    sim.attach()
    for name in ("a", "b", "c"):
        sim.ask(message(name, [5]))
    sim.pump()
    rows = sim.batching.rows_under_way(0)
    outcomes = sim.batching.fail([row.request for row in rows], "engine fault")

    assert [(o.request.request_id, o.ending and o.ending.error) for o in outcomes] == [
        ("a", "engine fault"), ("b", "engine fault"),
    ]  # fmt: skip
    assert sim.batching.fail([row.request for row in rows], "again") == []
    assert list(sim.batching.requests) == ["c"]


@pytest.mark.parametrize("pipeline", [1, 2])
def test_a_sequence_that_cannot_be_sampled_ends_alone(pipeline: int) -> None:
    sim = simulation(pipeline=pipeline)
    sim.attach()
    broken = sim.ask(message("broken", [9, UNSAMPLABLE], max_tokens=12, ignore_eos=True))
    other = sim.ask(message("other", [9, 9], max_tokens=12, ignore_eos=True))
    sim.finish(100)

    assert broken is not None
    assert other is not None
    assert (len(broken.tokens), broken.endings[0].reason) == (3, "error")
    assert broken.endings[0].error == "no token is left to sample"
    assert (len(other.tokens), other.endings[0].reason) == (12, "length")
    assert sim.resets == pipeline - 1, "planned ahead, the next step counted on the token that never came"


def test_detaching_what_is_not_attached_is_a_no_op() -> None:
    sim = simulation()
    sim.ask(message("r", [5]))

    assert sim.batching.detach() == []
    assert sim.batching.next_batch() is None
    assert list(sim.batching.requests) == ["r"]


def test_counters_outlive_workers() -> None:
    sim = simulation(num_blocks=4, block_size=1, max_seqs=2)
    sim.attach()
    sim.ask(message("a", [5], max_tokens=3, ignore_eos=True))
    sim.ask(message("b", [6], max_tokens=3, ignore_eos=True))
    sim.pump()
    while not sim.batching.preemptions:
        assert sim.work()
    before = sim.batching.preemptions
    sim.die()
    sim.finish(50)

    assert sim.batching.preemptions >= before > 0
    assert sim.batching.generated_tokens == 6
    assert sim.batching.prompt_tokens > 2, "recomputed ones included"
