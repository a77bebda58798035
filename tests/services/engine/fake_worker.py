"""A worker without a model: a strict referee of worker/1, whose tokens are a function of the sequence alone.

What real blocks would hold is simulated: each position of each block remembers which sequence wrote which token there,
and a step reads everything that attention would read. So a block that two sequences have, that is reused too early, or
a table in the wrong order, comes out as `Violation`, not as a strange text.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from services.protocols.engine import FinishReason
from services.protocols.sampling import SamplingParams, TokenLogprob
from services.protocols.worker import Advance, NewSequence, Sampled, StepBatch, StepResult, WorkerInfo

EOS = 1
UNSAMPLABLE = 2
"""A prompt with this token cannot be sampled behind its third generated token."""
POISON = 3
"""A prompt with this token ends the worker when it is computed."""
LATE_POISON = 4
"""... when the second generated token is."""
FIRST_PLAIN = 5


class Violation(AssertionError):
    """The engine broke worker/1, or would have computed nonsense."""


class WorkerDied(Exception):
    """This worker is gone."""


def worker_info(
    *, num_blocks: int = 8, block_size: int = 4, max_seqs: int = 4, max_batched_tokens: int = 16, max_context: int = 64,
    vocab_size: int = 50,
) -> WorkerInfo:  # fmt: skip
    """What a small worker says of itself."""
    return WorkerInfo(
        model="/models/fake.gguf", architecture="fake", dtype="float32", device="cpu", fingerprint="00",
        vocab_size=vocab_size, max_context=max_context, num_blocks=num_blocks, block_size=block_size,
        max_seqs=max_seqs, max_batched_tokens=max_batched_tokens, weight_bytes=0, kv_bytes=0, eos_token_ids=[EOS],
    )  # fmt: skip


def next_token(token_ids: Sequence[int], vocab_size: int) -> int:
    """The token behind a sequence: any plain one, 0, or the end of sequence (rarely)."""
    choice = zlib.crc32(repr(list(token_ids)).encode())
    if choice % 23 == 0:
        return EOS
    if choice % 7 == 0:
        return 0
    return FIRST_PLAIN + choice % (vocab_size - FIRST_PLAIN)


def undisturbed(
    prompt: Sequence[int], sampling: SamplingParams, vocab_size: int = 50
) -> tuple[list[int], FinishReason]:
    """What a request gives if it has a worker of its own that never dies: tokens, and why it ends."""
    token_ids = list(prompt)
    while True:
        generated = len(token_ids) - len(prompt)
        if UNSAMPLABLE in prompt and generated == 3:
            return token_ids[len(prompt) :], "error"
        token = next_token(token_ids, vocab_size)
        token_ids.append(token)
        if token in sampling.stop_token_ids or (token == EOS and not sampling.ignore_eos):
            return token_ids[len(prompt) :], "stop"
        if generated + 1 == sampling.max_tokens:
            return token_ids[len(prompt) :], "length"


@dataclass
class _Sequence:
    number: int
    """Of all that were ever added."""
    token_ids: list[int]
    prompt_len: int
    sampling: SamplingParams
    computed: int = 0
    blocks: list[int] = field(default_factory=list)


class FakeWorker:
    """One incarnation."""

    def __init__(self, info: WorkerInfo) -> None:
        self.info = info
        self.table: dict[int, _Sequence] = {}
        self.steps = self.tokens_computed = self.most_in_a_step = 0
        self._next = 0
        self._numbers = itertools.count()
        self._kv: dict[tuple[int, int], tuple[int, int]] = {}
        """(block, offset) to (number of the sequence, position of the token) that was written there last."""

    def reset(self) -> None:
        self.table.clear()
        self._next = 0

    def step(self, batch: StepBatch) -> StepResult:
        """Raises Violation, and WorkerDied for a poisonous batch."""
        self._must(batch.step == self._next, f"step {batch.step} came where {self._next} was due")
        self._must(len(set(batch.release)) == len(batch.release), f"released twice: {batch.release}")
        for slot in batch.release:
            self._must(slot in self.table, f"slot {slot} is released, but holds nothing")
            del self.table[slot]
        for new in batch.add:
            self._add(new)
        slots = [advance.slot for advance in batch.advance]
        self._must(len(set(slots)) == len(slots), f"advanced twice: {slots}")
        total = sum(advance.count for advance in batch.advance)
        self._must(0 < total <= self.info.max_batched_tokens, f"{total} tokens in a step")
        for advance in batch.advance:
            self._enter(advance)
        self._check_no_block_is_shared()
        sampled = [answer for advance in batch.advance if (answer := self._compute(advance)) is not None]
        self._next += 1
        self.steps += 1
        self.tokens_computed += total
        self.most_in_a_step = max(self.most_in_a_step, total)
        return StepResult(step=batch.step, sampled=sampled, compute_s=0.001)

    def _add(self, new: NewSequence) -> None:
        self._must(0 <= new.slot < self.info.max_seqs, f"slot {new.slot}")
        self._must(new.slot not in self.table, f"slot {new.slot} is taken")
        self._must(1 <= new.prompt_len <= len(new.token_ids) < self.info.max_context, f"{new.request_id}: its length")
        generated = len(new.token_ids) - new.prompt_len
        self._must(generated < new.sampling.max_tokens, f"{new.request_id}: nothing is left to generate")
        self.table[new.slot] = _Sequence(next(self._numbers), list(new.token_ids), new.prompt_len, new.sampling)

    def _enter(self, advance: Advance) -> None:
        """Check what is asked against the table, and append the blocks."""
        self._must(advance.slot in self.table, f"slot {advance.slot} holds nothing")
        sequence = self.table[advance.slot]
        end = advance.start + advance.count
        self._must(advance.start == sequence.computed, f"{advance}, but {sequence.computed} are computed")
        self._must(advance.count >= 1 and end <= len(sequence.token_ids), f"{advance} of {len(sequence.token_ids)}")
        self._must(advance.sample == (end == len(sequence.token_ids)), f"{advance} of {len(sequence.token_ids)}")
        for block in advance.blocks:
            self._must(0 <= block < self.info.num_blocks, f"block {block}")
        sequence.blocks += advance.blocks
        self._must(len(sequence.blocks) * self.info.block_size >= end, f"{advance}: too few blocks")

    def _check_no_block_is_shared(self) -> None:
        owned = [block for sequence in self.table.values() for block in sequence.blocks]
        self._must(len(set(owned)) == len(owned), f"blocks are in several tables: {sorted(owned)}")

    def _compute(self, advance: Advance) -> Sampled | None:
        sequence = self.table[advance.slot]
        end = advance.start + advance.count
        prompt = sequence.token_ids[: sequence.prompt_len]
        if POISON in sequence.token_ids[advance.start : end] or (LATE_POISON in prompt and end > len(prompt) + 1):
            raise WorkerDied
        for position in range(end):
            place = (sequence.blocks[position // self.info.block_size], position % self.info.block_size)
            if position >= advance.start:
                self._kv[place] = (sequence.number, position)
            held = self._kv.get(place)
            self._must(held == (sequence.number, position), f"slot {advance.slot}, position {position}: {held}")
        sequence.computed = end
        return self._sample(advance.slot, sequence) if advance.sample else None

    def _sample(self, slot: int, sequence: _Sequence) -> Sampled:
        generated = len(sequence.token_ids) - sequence.prompt_len
        if UNSAMPLABLE in sequence.token_ids[: sequence.prompt_len] and generated == 3:
            return Sampled(slot=slot, token_id=-1, error="no token is left to sample")
        self._must(generated < sequence.sampling.max_tokens, f"slot {slot}: sampled beyond max_tokens")
        token = next_token(sequence.token_ids, self.info.vocab_size)
        sequence.token_ids.append(token)
        logprob = None
        if sequence.sampling.logprobs is not None:
            logprob = TokenLogprob(token_id=token, logprob=-float(generated), top=[])
        return Sampled(slot=slot, token_id=token, logprob=logprob)

    @staticmethod
    def _must(truth: bool, otherwise: str) -> None:
        if not truth:
            raise Violation(otherwise)
