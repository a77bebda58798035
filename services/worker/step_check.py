"""Whether a step can be run: checked whole, before anything is changed. Without torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from services.protocols.worker import Advance, NewSequence, StepBatch

from .tracked_sequence import TrackedSequence


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLimits:
    """What a worker was set up with."""

    max_seqs: int
    max_batched_tokens: int
    max_context: int
    num_blocks: int
    block_size: int
    vocab_size: int


class StepRefused(ValueError):
    """A step that breaks the protocol; nothing was changed. `field` is the path of what is wrong."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field


@dataclass(frozen=True, slots=True)
class _Slot:
    """What an advance is checked against."""

    tokens: int
    computed: int
    started: bool
    blocks: Sequence[int]


def check_step(batch: StepBatch, next_step: int, table: Mapping[int, TrackedSequence], limits: StepLimits) -> None:
    """Raises StepRefused for the first thing that is wrong."""
    if batch.step != next_step:
        _refuse("batch.step", f"is {batch.step}; the next step of this worker is {next_step}")
    released = _check_release(batch.release, table)
    slots = {
        number: _Slot(len(s.token_ids), s.computed, s.started, s.blocks)
        for number, s in table.items()
        if number not in released
    }
    for index, new in enumerate(batch.add):
        _check_new(f"batch.add[{index}]", new, slots, limits)
        slots[new.slot] = _Slot(len(new.token_ids), 0, False, ())
    advanced: set[int] = set()
    for index, advance in enumerate(batch.advance):
        where = f"batch.advance[{index}]"
        if advance.slot in advanced:
            _refuse(f"{where}.slot", f"slot {advance.slot} is advanced twice")
        advanced.add(advance.slot)
        _check_advance(where, advance, slots, limits)
    total = sum(advance.count for advance in batch.advance)
    if total > limits.max_batched_tokens:
        _refuse("batch.advance", f"computes {total} tokens; a step has at most {limits.max_batched_tokens}")


def _check_release(release: list[int], table: Mapping[int, TrackedSequence]) -> set[int]:
    released: set[int] = set()
    for index, slot in enumerate(release):
        if slot in released:
            _refuse(f"batch.release[{index}]", f"slot {slot} is released twice")
        if slot not in table:
            _refuse(f"batch.release[{index}]", f"slot {slot} holds no sequence")
        released.add(slot)
    return released


def _check_new(where: str, new: NewSequence, slots: Mapping[int, _Slot], limits: StepLimits) -> None:
    if not 0 <= new.slot < limits.max_seqs:
        _refuse(f"{where}.slot", f"is {new.slot}; slots are 0 to {limits.max_seqs - 1}")
    if new.slot in slots:
        _refuse(f"{where}.slot", f"slot {new.slot} is taken")
    length = len(new.token_ids)
    if not 1 <= length <= limits.max_context:
        _refuse(f"{where}.token_ids", f"has {length} tokens; a sequence has 1 to {limits.max_context}")
    if not 1 <= new.prompt_len <= length:
        _refuse(f"{where}.prompt_len", f"is {new.prompt_len}, of {length} tokens")
    for position, token in enumerate(new.token_ids):
        if not 0 <= token < limits.vocab_size:
            _refuse(f"{where}.token_ids[{position}]", f"is {token}; the vocabulary ends at {limits.vocab_size - 1}")


def _check_advance(where: str, advance: Advance, slots: Mapping[int, _Slot], limits: StepLimits) -> None:
    slot = slots.get(advance.slot)
    if slot is None:
        _refuse(f"{where}.slot", f"slot {advance.slot} holds no sequence")
    if slot.started and advance.start != slot.computed:
        _refuse(f"{where}.start", f"is {advance.start}, but {slot.computed} tokens of slot {advance.slot} are computed")
    if advance.start < 0:
        _refuse(f"{where}.start", f"is {advance.start}")
    end = advance.start + advance.count
    if advance.count < 1 or end > slot.tokens:
        _refuse(
            f"{where}.count",
            f"is {advance.count}, from {advance.start} on, but slot {advance.slot} has {slot.tokens} tokens",
        )
    if advance.sample and end != slot.tokens:
        _refuse(f"{where}.sample", f"{slot.tokens - end} tokens behind the last one computed are known already")
    if advance.sample and end >= limits.max_context:
        _refuse(f"{where}.sample", f"the context of {limits.max_context} tokens is full")
    _check_blocks(where, advance, slot, end, limits)


def _check_blocks(where: str, advance: Advance, slot: _Slot, end: int, limits: StepLimits) -> None:
    seen = set(slot.blocks) if advance.blocks else set()
    for index, block in enumerate(advance.blocks):
        if not 0 <= block < limits.num_blocks:
            _refuse(f"{where}.blocks[{index}]", f"is {block}; blocks are 0 to {limits.num_blocks - 1}")
        if block in seen:
            _refuse(f"{where}.blocks[{index}]", f"block {block} is in the table of slot {advance.slot} already")
        seen.add(block)
    total = len(slot.blocks) + len(advance.blocks)
    if total * limits.block_size < end:
        _refuse(
            f"{where}.blocks",
            f"slot {advance.slot} has {total} blocks of {limits.block_size}, too few for {end} tokens",
        )


def _refuse(field: str, reason: str) -> NoReturn:
    raise StepRefused(field, reason)
