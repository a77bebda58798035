"""Steps on a tiny model."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest
import torch

from services.protocols.worker import StepBatch
from services.worker.runner import ResetNeeded, Runner
from services.worker.step_check import StepRefused

from .stepping import Engine, advance, make_runner, new
from .tiny_models import Tensors, Tiny, naive_logits

PROMPTS = [[5, 9, 3, 3, 60, 1, 17], [8], [44, 2, 2, 91, 30, 30, 30, 30, 12], [1, 2, 3, 4]]


@pytest.fixture
def runner(tiny_folder: Path) -> Runner:
    return make_runner(tiny_folder, max_seqs=8)


def naive_greedy(tiny: Tiny, tensors: Tensors, prompt: list[int], num_tokens: int) -> list[int]:
    tokens = list(prompt)
    for _ in range(num_tokens):
        tokens.append(int(naive_logits(tiny, tensors, tokens)[-1].argmax()))
    return tokens[len(prompt) :]


@pytest.mark.parametrize("chunk", [1, 3, 100])
def test_sequences_together_and_in_chunks_generate_what_each_does_alone(
    runner: Runner, tiny: Tiny, tiny_tensors: Tensors, chunk: int
) -> None:
    made = Engine(runner, chunk).generate([new(slot, prompt) for slot, prompt in enumerate(PROMPTS)], 6)
    assert made == [naive_greedy(tiny, tiny_tensors, prompt, 6) for prompt in PROMPTS]


def test_a_sampled_token_stays_in_the_slot_so_that_the_next_step_needs_no_token(runner: Runner) -> None:
    first = runner.step(StepBatch(step=0, add=[new(0, [4, 5])], advance=[advance(0, 0, 2, [9])]))
    runner.step(StepBatch(step=1, advance=[advance(0, 2, 1)]))
    with pytest.raises(StepRefused, match="has 4 tokens"):
        runner.step(StepBatch(step=2, advance=[advance(0, 3, 2)]))
    assert first.step == 0
    assert [s.slot for s in first.sampled] == [0]
    assert first.compute_s > 0


def test_samples_come_in_the_order_of_the_advances_that_asked(runner: Runner) -> None:
    add = [new(slot, prompt) for slot, prompt in enumerate(PROMPTS)]
    advances = [
        advance(2, 0, 9, [0, 1, 2]), advance(1, 0, 1, [3]), advance(0, 0, 6, [4, 5], sample=False),
        advance(3, 0, 4, [7]),
    ]  # fmt: skip
    result = runner.step(StepBatch(step=0, add=add, advance=advances))
    assert [s.slot for s in result.sampled] == [2, 1, 3]
    runner.reset()
    alone = Engine(runner).generate([new(0, PROMPTS[2])], 1)
    assert result.sampled[0].token_id == alone[0][0]


def test_a_refused_step_changes_nothing(runner: Runner) -> None:
    runner.step(StepBatch(step=0, add=[new(0, [4, 5])], advance=[advance(0, 0, 2, [9])]))
    bad = StepBatch(step=1, release=[0], add=[new(1, [3])], advance=[advance(1, 0, 1, [99])])
    with pytest.raises(StepRefused):
        runner.step(bad)
    good = StepBatch(step=1, add=[new(1, [3])], advance=[advance(0, 2, 1), advance(1, 0, 1, [8])])
    assert [s.slot for s in runner.step(good).sampled] == [0, 1]


def test_a_released_slot_is_free_within_the_same_step(runner: Runner) -> None:
    runner.step(StepBatch(step=0, add=[new(0, [4, 5])], advance=[advance(0, 0, 2, [9])]))
    again = StepBatch(step=1, release=[0], add=[new(0, [7])], advance=[advance(0, 0, 1, [9])])
    assert len(runner.step(again).sampled) == 1


def test_reset_forgets_the_sequences_and_begins_with_step_0(runner: Runner) -> None:
    step = StepBatch(step=0, add=[new(0, [4, 5])], advance=[advance(0, 0, 2, [9])])
    first = runner.step(step)
    with pytest.raises(StepRefused, match="next step of this worker is 1"):
        runner.step(step)
    runner.reset()
    assert runner.step(step).sampled == first.sampled


def test_a_prefix_hit_starts_behind_what_is_in_the_blocks(runner: Runner) -> None:
    prompt = PROMPTS[2]
    fresh = Engine(runner).generate([new(0, prompt)], 1)[0][0]  # its blocks are 0, 1, 2
    hit = StepBatch(step=1, add=[new(1, prompt)], advance=[advance(1, 8, 1, [0, 1, 20])])
    assert runner.step(hit).sampled[0].token_id == fresh


def test_what_an_earlier_holder_left_in_a_block_reaches_nobody(runner: Runner) -> None:
    expected = Engine(runner).generate([new(0, PROMPTS[0]), new(1, PROMPTS[1])], 4)
    runner.cache.data.fill_(float("nan"))
    assert Engine(runner).generate([new(0, PROMPTS[0]), new(1, PROMPTS[1])], 4) == expected


def test_a_seeded_sequence_goes_on_alike_when_it_is_resumed_from_its_tokens(tiny_folder: Path) -> None:
    prompt, seeded = PROMPTS[0], {"temperature": 1.3, "seed": -5, "top_p": 0.95}
    whole = Engine(make_runner(tiny_folder)).generate([new(0, prompt, **seeded)], 10)[0]
    for cut in (1, 4, 9):
        company = [new(1, PROMPTS[2], temperature=1.0), new(2, PROMPTS[1])]
        resumed = new(0, [*prompt, *whole[:cut]], len(prompt), **seeded)
        rest = Engine(make_runner(tiny_folder)).generate([resumed, *company], 10 - cut)[0]
        assert rest == whole[cut:]


def test_sequences_without_a_seed_differ_from_run_to_run(tiny_folder: Path) -> None:
    hot = [new(slot, PROMPTS[0], temperature=2.0) for slot in range(2)]
    first = Engine(make_runner(tiny_folder)).generate(hot, 12)
    second = Engine(make_runner(tiny_folder)).generate(hot, 12)
    assert len({tuple(tokens) for tokens in [*first, *second]}) == 4
    fixed = [Engine(make_runner(tiny_folder, new_seed=count(3).__next__)).generate(hot, 12) for _ in range(2)]
    assert fixed[0] == fixed[1]


def test_a_sequence_that_cannot_be_sampled_is_reported_and_the_others_go_on(runner: Runner) -> None:
    add = [new(0, [4]), new(1, [4], allowed_token_ids=[]), new(2, [4], logit_bias={5000: 1.0})]
    step = StepBatch(step=0, add=add, advance=[advance(n, 0, 1, [n]) for n in range(3)])
    good, empty, outside = runner.step(step).sampled
    assert (good.error, good.token_id >= 0) == (None, True)
    assert (empty.token_id, outside.token_id) == (-1, -1)
    assert "no token is left" in str(empty.error)
    assert "logit_bias" in str(outside.error)
    released = runner.step(StepBatch(step=1, release=[1, 2], advance=[advance(0, 1, 1)]))
    assert released.sampled[0].error is None


def test_a_step_that_fails_half_way_is_followed_by_refusals_until_reset(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = StepBatch(step=0, add=[new(0, [4, 5])], advance=[advance(0, 0, 2, [9])])

    def fail(*_args: object) -> torch.Tensor:
        raise RuntimeError("out of memory")

    with monkeypatch.context() as patch:
        patch.setattr(runner.decoder, "forward", fail)
        with pytest.raises(RuntimeError, match="out of memory"):
            runner.step(step)
    with pytest.raises(ResetNeeded, match="reset"):
        runner.step(step)
    runner.reset()
    assert len(runner.step(step).sampled) == 1


def test_a_step_without_advances_only_releases(runner: Runner) -> None:
    runner.step(StepBatch(step=0, add=[new(0, [4, 5])]))
    assert runner.step(StepBatch(step=1, release=[0])).sampled == []
    assert len(runner.step(StepBatch(step=2, add=[new(0, [1])], advance=[advance(0, 0, 1, [0])])).sampled) == 1
