from __future__ import annotations

import pytest
from msgspec import structs

from services.engine.batching import Batching
from services.engine.limits import Options
from services.engine.steps import WorkerFault
from services.protocols.worker import Sampled, StepBatch, StepResult

from .fake_worker import FakeWorker, worker_info
from .simulation import message


def started(*prompts: list[int], pipeline: int = 1, **worker: int) -> tuple[Batching, FakeWorker]:
    info = worker_info(**worker)
    batching = Batching(Options(pipeline=pipeline, watermark=0.0))
    batching.attach(info)
    for index, prompt in enumerate(prompts):
        assert batching.add(message(f"r{index}", prompt, ignore_eos=True), 0.0) is None
    return batching, FakeWorker(info)


def next_batch(batching: Batching) -> StepBatch:
    batch = batching.next_batch()
    assert batch is not None
    return batch


def test_a_sequence_is_told_once_and_then_only_how_far_it_goes() -> None:
    batching, worker = started([5, 0, 7])
    first = next_batch(batching)
    batching.complete(worker.step(first))
    second = next_batch(batching)

    assert [(new.slot, new.token_ids, new.prompt_len) for new in first.add] == [(0, [5, 0, 7], 3)]
    assert [(a.start, a.count, a.blocks, a.sample) for a in first.advance] == [(0, 3, [0], True)]
    assert second.add == []
    assert [(a.start, a.count, a.blocks, a.sample) for a in second.advance] == [(3, 1, [], True)]
    assert (first.step, second.step) == (0, 1)


def test_a_slot_is_released_exactly_once_and_reused_in_that_very_step() -> None:
    batching, worker = started([5], [6], max_seqs=1)
    batching.complete(worker.step(next_batch(batching)))
    assert batching.abort("r0")
    assert not batching.abort("r0")
    batch = next_batch(batching)

    assert batch.release == [0]
    assert [(new.slot, new.request_id) for new in batch.add] == [(0, "r1")]
    batching.complete(worker.step(batch))
    assert next_batch(batching).release == []


def test_one_that_ends_while_the_next_step_is_under_way_wastes_a_row_and_no_more() -> None:
    batching, worker = started([5], [6], pipeline=2)
    first, second = next_batch(batching), next_batch(batching)
    assert batching.next_batch() is None
    batching.complete(worker.step(first))
    batching.abort("r0")
    third = next_batch(batching)
    outcomes = batching.complete(worker.step(second))

    assert [outcome.request.request_id for outcome in outcomes] == ["r1"]
    assert third.release == [0]
    assert [a.slot for a in third.advance] == [1]
    worker.step(third)


def test_token_0_is_a_token_like_any_other() -> None:
    batching, _ = started([0, 0])
    batch = next_batch(batching)
    assert batch.add[0].token_ids == [0, 0]

    (outcome,) = batching.complete(StepResult(step=0, sampled=[Sampled(slot=0, token_id=0)], compute_s=0.0))

    assert outcome.token_id == 0
    assert outcome.ending is None
    assert batching.requests["r0"].token_ids == [0, 0, 0]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"step": 1}, "step 1 where 0"),
        ({"sampled": []}, r"sampled slots \[\] of \[0, 1\]"),
        ({"sampled": [Sampled(slot=1, token_id=5), Sampled(slot=0, token_id=5)]}, r"slots \[1, 0\]"),
        ({"sampled": [Sampled(slot=0, token_id=5), Sampled(slot=1, token_id=50)]}, "token 50 for slot 1"),
        ({"sampled": [Sampled(slot=0, token_id=5), Sampled(slot=1, token_id=-1)]}, "token -1 for slot 1"),
    ],
)
def test_an_answer_that_does_not_fit_its_step_is_the_workers_fault_and_changes_nothing(
    change: dict[str, object], words: str
) -> None:
    batching, worker = started([5], [6])
    result = worker.step(next_batch(batching))

    with pytest.raises(WorkerFault, match=words):
        batching.complete(structs.replace(result, **change))

    assert [request.num_generated for request in batching.running] == [0, 0]
    assert len(batching.rows_under_way(0)) == 2
    batching.complete(result)
    assert [request.num_generated for request in batching.running] == [1, 1]
