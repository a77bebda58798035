"""Runs steps: keeps the table of sequences, drives decoder and sampler. The clock is injected."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable

from services.protocols.worker import Advance, NewSequence, Sampled, StepBatch, StepResult

from .decoder import Decoder
from .flat_step import FlatStep, Row
from .kv_cache import KVCache
from .sampler import Choice, NoChoice, Sampler
from .step_check import StepLimits, check_step
from .tracked_sequence import TrackedSequence


class ResetNeeded(RuntimeError):
    """An earlier step failed half-way, so that the table is not what the engine takes it for."""


class Runner:
    """A model with its KV cache and its table of sequences."""

    def __init__(
        self, decoder: Decoder, cache: KVCache, limits: StepLimits, *,
        clock: Callable[[], float] = time.perf_counter, new_seed: Callable[[], int] = lambda: secrets.randbits(64),
    ) -> None:  # fmt: skip
        """new_seed: for sequences without a seed of their own."""
        self.decoder = decoder
        self.cache = cache
        self.limits = limits
        self._sampler = Sampler(decoder.config.eos_token_ids)
        self._clock = clock
        self._new_seed = new_seed
        self._table: dict[int, TrackedSequence] = {}
        self._next_step = 0
        self._failed = False

    def reset(self) -> None:
        """Forget all sequences; the next step is number 0."""
        self._table.clear()
        self._next_step = 0
        self._failed = False

    def step(self, batch: StepBatch) -> StepResult:
        """Run one step.

        Raises StepRefused, and then nothing was changed; ResetNeeded behind a step that failed in any other way.
        """
        if self._failed:
            raise ResetNeeded("an earlier step failed; reset the worker, and add the sequences again")
        check_step(batch, self._next_step, self._table, self.limits)
        began = self._clock()
        try:
            sampled = self._run(batch)
        except BaseException:
            self._failed = True
            raise
        self._next_step += 1
        return StepResult(step=batch.step, sampled=sampled, compute_s=self._clock() - began)

    def _run(self, batch: StepBatch) -> list[Sampled]:
        for slot in batch.release:
            del self._table[slot]
        for new in batch.add:
            self._table[new.slot] = self._track(new)
        if not batch.advance:
            return []
        rows = [self._advance(advance) for advance in batch.advance]
        logits_SV = self.decoder.forward(FlatStep.of(rows, self.cache), self.cache)
        slots = [advance.slot for advance in batch.advance if advance.sample]
        if not slots:
            return []
        choices = self._sampler.sample(logits_SV, [self._table[slot] for slot in slots])
        return [self._take(slot, choice) for slot, choice in zip(slots, choices, strict=True)]

    def _track(self, new: NewSequence) -> TrackedSequence:
        seed = self._new_seed() if new.sampling.seed is None else new.sampling.seed
        return TrackedSequence(new.request_id, list(new.token_ids), new.prompt_len, new.sampling, seed)

    def _advance(self, advance: Advance) -> Row:
        sequence = self._table[advance.slot]
        end = advance.start + advance.count
        size = self.limits.block_size
        first_new = len(sequence.blocks)
        sequence.blocks += advance.blocks
        # Blocks that hold tokens before `start` came filled.
        self.cache.clear(sequence.blocks[max(first_new, -(-advance.start // size)) :])
        sequence.started, sequence.computed = True, end
        return Row(sequence.token_ids[advance.start : end], advance.start, sequence.blocks, advance.sample)

    def _take(self, slot: int, choice: Choice | NoChoice) -> Sampled:
        if isinstance(choice, NoChoice):
            return Sampled(slot=slot, token_id=-1, error=choice.reason)
        self._table[slot].token_ids.append(choice.token_id)
        return Sampled(slot=slot, token_id=choice.token_id, logprob=choice.logprob)
