"""How much memory there is, and how many KV blocks it is good for. Without torch."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil

from .decoder_config import DecoderConfig

_CGROUP_FILES = (
    ("memory.max", "memory.current"),  # version 2
    ("memory.limit_in_bytes", "memory.usage_in_bytes"),  # version 1
)
_SAMPLING_BYTES = 4 + 4 * 8
"""Per logit: the float32 itself, and float64 weights, cumulated weights, and two temporaries."""


class NotEnoughMemory(ValueError):
    """What was asked for does not fit; the message has the arithmetic."""


@dataclass(frozen=True, slots=True)
class BlockPlan:
    """How many KV blocks to allocate, and why so many."""

    num_blocks: int
    arithmetic: str


def available_bytes() -> int:
    """Host memory that this process can still take: the machine's, its control group's or its own limit's."""
    bounds: list[int] = [psutil.virtual_memory().available]
    bounds += _cgroup_rooms(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup"))
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY:
        bounds.append(soft - psutil.Process().memory_info().vms)
    return max(0, min(bounds))


def _cgroup_rooms(membership: Path, root: Path) -> Iterable[int]:
    """What this process's control groups have left; one without a limit, or that is not visible, says nothing."""
    if not membership.exists():
        return
    for line in membership.read_text().splitlines():
        _, controllers, group = line.split(":", 2)
        base = root / "memory" if "memory" in controllers.split(",") else root
        # In a container its own group is often mounted as the root, so that the path does not exist there.
        for folder in {base / group.lstrip("/"), base}:
            for limit_name, usage_name in _CGROUP_FILES:
                limit, usage = folder / limit_name, folder / usage_name
                if limit.is_file() and usage.is_file():
                    text = limit.read_text().strip()
                    if text != "max":
                        yield int(text) - int(usage.read_text())


def physical_cores() -> int:
    """Physical cores that this process may use: two threads of one core wait for each other in a matrix product."""
    allowed = len(os.sched_getaffinity(0))
    return max(1, min(allowed, psutil.cpu_count(logical=False) or allowed))


def step_bytes(
    config: DecoderConfig, *, itemsize: int, max_batched_tokens: int, max_seqs: int, max_context: int, group_tokens: int
) -> int:
    """An upper estimate of what a largest step allocates beside weights and KV cache.

    Computed rather than measured: a largest batch takes seconds on a CPU, which every start would pay for.
    """
    qkv = config.q_size + 2 * config.kv_size
    per_token = 4 * config.hidden_size + 3 * qkv + 4 * config.ffn_size
    hidden = max_batched_tokens * per_token * itemsize
    mask_and_scores = 2 * max_batched_tokens * max_context * itemsize
    gathered = 2 * 2 * config.kv_size * max(group_tokens, max_context) * itemsize
    logits = max_seqs * config.vocab_size * _SAMPLING_BYTES
    return hidden + mask_and_scores + gathered + logits


def plan_blocks(
    *, requested: int | None, available: int, step: int, block: int, useful: int, utilization: float
) -> BlockPlan:
    """Choose the number of KV blocks.

    requested: blocks asked for, or None to take as many as there is room for. available: bytes left beside the weights.
    step: bytes of a largest step. block: bytes of a block. useful: blocks that all slots could fill. utilization: share
    of the room to take. Raises NotEnoughMemory.
    """
    room = available - step
    left = f"{size_text(available)} available - {size_text(step)} for a largest step = {size_text(room)}"
    if requested is not None:
        if requested * block > room:
            raise NotEnoughMemory(
                f"num_kv_blocks={requested} needs {size_text(requested * block)} ({size_text(block)} a block), but "
                f"there is room for {max(0, room // block)}: {left}. Ask for fewer, or leave it out to measure"
            )
        return BlockPlan(requested, f"{requested} blocks of {size_text(block)} as asked for; {left}")
    share = int(room * utilization)
    fitting = max(0, share // block)
    arithmetic = f"{left}; x {utilization:g} = {size_text(share)}; / {size_text(block)} a block = {fitting} blocks"
    if fitting < 1:
        raise NotEnoughMemory(
            f"too little memory for one KV block: {arithmetic}. Free some, raise memory_utilization, or lower "
            "max_batched_tokens, max_seqs or block_size"
        )
    if fitting > useful:
        return BlockPlan(useful, f"{arithmetic}; all slots together can use {useful}")
    return BlockPlan(fitting, arithmetic)


def size_text(n_bytes: int) -> str:
    """Bytes for people: 1.25 GB."""
    for factor, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if abs(n_bytes) >= factor:
            return f"{n_bytes / factor:.2f} {unit}"
    return f"{n_bytes} B"
