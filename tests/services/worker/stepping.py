"""Runs sequences through a Runner as an engine does."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from services.protocols.sampling import SamplingParams
from services.protocols.worker import Advance, NewSequence, Sampled, StepBatch
from services.worker.kv_cache import KVCache
from services.worker.loading import load_model
from services.worker.runner import Runner
from services.worker.step_check import StepLimits


def make_runner(path: Path, *, num_blocks: int = 64, block_size: int = 4, **options: Any) -> Runner:
    """A float32 runner on the CPU."""
    decoder = load_model(path, "float32", "cpu")
    cache = KVCache.allocate(decoder.config, num_blocks, block_size, decoder.dtype, decoder.device)
    limits = StepLimits(
        max_seqs=options.pop("max_seqs", 16), max_batched_tokens=options.pop("max_batched_tokens", 2048),
        max_context=min(decoder.config.max_context, num_blocks * block_size), num_blocks=num_blocks,
        block_size=block_size, vocab_size=decoder.config.vocab_size,
    )  # fmt: skip
    return Runner(decoder, cache, limits, **options)


def params(**values: Any) -> SamplingParams:
    """Greedy, unless values say otherwise."""
    return SamplingParams(**({"max_tokens": 16, "temperature": 0.0} | values))


def new(slot: int, token_ids: list[int], prompt_len: int | None = None, **values: Any) -> NewSequence:
    """A sequence to add; `values` are sampling parameters."""
    return NewSequence(
        slot=slot, request_id=f"r{slot}", token_ids=token_ids, prompt_len=prompt_len or len(token_ids),
        sampling=params(**values),
    )  # fmt: skip


def advance(slot: int, start: int, count: int, blocks: Sequence[int] = (), sample: bool = True) -> Advance:
    return Advance(slot=slot, start=start, count=count, blocks=list(blocks), sample=sample)


class Engine:
    """The least of an engine: every sequence its own blocks, every step everything that can go on."""

    def __init__(self, runner: Runner, chunk: int = 1 << 30) -> None:
        self.runner = runner
        self.chunk = chunk
        """Prompt tokens of a sequence in one step."""
        self.samples: list[list[Sampled]] = []
        runner.reset()

    def generate(self, sequences: Sequence[NewSequence], num_tokens: int) -> list[list[int]]:
        """Generate so many tokens for each, all in flight at once; slots are 0, 1, ..."""
        size = self.runner.limits.block_size
        lengths = [len(s.token_ids) for s in sequences]
        computed, made = [0] * len(sequences), [[] for _ in sequences]
        self.samples = [[] for _ in sequences]
        free = iter(range(self.runner.limits.num_blocks))
        held = [0] * len(sequences)
        step, add = 0, list(sequences)
        while any(len(tokens) < num_tokens for tokens in made):
            advances = []
            for slot, tokens in enumerate(made):
                if len(tokens) == num_tokens:
                    continue
                count = min(self.chunk, lengths[slot] + len(tokens) - computed[slot])
                needed = -(-(computed[slot] + count) // size) - held[slot]
                held[slot] += needed
                last = computed[slot] + count == lengths[slot] + len(tokens)
                advances.append(advance(slot, computed[slot], count, [next(free) for _ in range(needed)], last))
                computed[slot] += count
            result = self.runner.step(StepBatch(step=step, add=add, advance=advances))
            for sampled in result.sampled:
                assert sampled.error is None, sampled.error
                made[sampled.slot].append(sampled.token_id)
                self.samples[sampled.slot].append(sampled)
            step, add = step + 1, []
        return made
