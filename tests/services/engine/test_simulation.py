"""The engine as a whole, at random: whatever happens, each request ends once, with the tokens it would have had."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from services.engine.limits import Options

from .fake_worker import worker_info
from .simulation import Simulation, bound_on_steps, random_message


def simulate(rng: random.Random, options: Options, *, num_blocks: int, block_size: int, moves: int = 40) -> Simulation:
    """Moves at random, then an end."""
    info = worker_info(
        num_blocks=num_blocks,
        block_size=block_size,
        max_seqs=rng.randint(1, 6),
        max_batched_tokens=rng.randint(1, 24),
        max_context=rng.choice([24, 64]),
    )
    simulation = Simulation(options, info)
    killing = rng.random() < 0.5
    for move in range(moves):
        chance = rng.random()
        if chance < 0.3:
            simulation.ask(random_message(rng, f"r{move}", info.vocab_size, longest=rng.choice([4, 20])), now=move)
            if rng.random() < 0.7:
                simulation.pump()
        elif chance < 0.4:
            simulation.abort(f"r{rng.randrange(moves)}")
        elif chance < 0.45 and killing and simulation.worker is not None:
            if rng.random() < 0.3:
                simulation.fail_step()
            else:
                successor = structs.replace(info, num_blocks=rng.choice([num_blocks, rng.randint(1, num_blocks)]))
                simulation.die(ran=rng.randint(0, len(simulation.wire)), successor=successor)
        elif simulation.batching.limits is None:
            simulation.attach()
        else:
            simulation.pump()
            simulation.work()
    simulation.finish(bound_on_steps(simulation))
    return simulation


def random_options(rng: random.Random) -> Options:
    return Options(
        max_batched_tokens=rng.choice([1, 3, 8, 64]),
        max_seqs=rng.randint(1, 6),
        prefill_chunk=rng.choice([1, 2, 5, 64]),
        pipeline=rng.choice([1, 2]),
        max_waiting=rng.choice([2, 100]),
        watermark=rng.choice([0.0, 0.01, 0.3, 0.9]),
    )


@pytest.mark.parametrize("block", range(10))
def test_thousands_of_random_runs_end_with_the_tokens_of_undisturbed_ones(block: int) -> None:
    seen = {"preemptions": 0, "deaths": 0, "resets": 0, "poisoned": 0, "aborted": 0}
    for seed in range(block * 300, block * 300 + 300):
        rng = random.Random(seed)
        options = random_options(rng)
        simulation = simulate(rng, options, num_blocks=rng.randint(1, 12), block_size=rng.choice([1, 2, 4]))
        seen["preemptions"] += simulation.batching.preemptions
        seen["deaths"] += simulation.deaths
        seen["resets"] += simulation.resets
        seen["aborted"] += sum(a.aborted for a in simulation.asked.values())
        seen["poisoned"] += sum(a.poisonous and bool(a.endings) for a in simulation.asked.values())
    assert all(seen.values()), f"a simulation that never gets to these shows nothing: {seen}"


@settings(max_examples=150, deadline=None)
@given(
    rng=st.randoms(use_true_random=False),
    num_blocks=st.integers(1, 10),
    block_size=st.integers(1, 5),
    pipeline=st.integers(1, 2),
    prefill_chunk=st.integers(1, 8),
    max_batched_tokens=st.integers(1, 16),
    watermark=st.floats(0.0, 0.95),
)
def test_any_limits_will_do(
    rng: random.Random, num_blocks: int, block_size: int, pipeline: int, prefill_chunk: int, max_batched_tokens: int,
    watermark: float,
) -> None:  # fmt: skip
    options = Options(
        max_batched_tokens=max_batched_tokens, max_seqs=4, prefill_chunk=prefill_chunk, pipeline=pipeline,
        watermark=watermark,
    )  # fmt: skip
    simulate(rng, options, num_blocks=num_blocks, block_size=block_size, moves=25)
