"""From options to a runner: load the weights, measure the memory, allocate the KV cache."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

import torch

from .decoder import Decoder
from .fingerprint import fingerprint
from .flat_step import GROUP_TOKENS
from .kv_cache import KVCache, block_bytes
from .loading import Progress, load_model
from .memory import BlockPlan, NotEnoughMemory, available_bytes, plan_blocks, step_bytes
from .runner import Runner
from .step_check import StepLimits
from .tensor_source import weight_files

log = logging.getLogger(__name__)

__all__ = ["NotEnoughMemory", "StartOptions", "Started", "start_runner"]

_UTILIZATION = {"cpu": 0.3, "cuda": 0.9}
"""Share of the free memory that the cache takes: a GPU is the worker's own, a host is shared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartOptions:
    """What `start_runner` is told; fields as in the service's options."""

    path: Path
    dtype: str
    device: str
    threads: int
    num_kv_blocks: int | None
    block_size: int
    max_seqs: int
    max_batched_tokens: int
    max_context: int | None
    memory_utilization: float | None


@dataclass(frozen=True, slots=True)
class Started:
    """A runner, and what is told of it."""

    runner: Runner
    dtype: str
    fingerprint: str
    weight_bytes: int
    kv_bytes: int


def start_runner(options: StartOptions, progress: Progress | None = None) -> Started:
    """Load and allocate.

    Raises ModelFileError (the file and what is wrong with it), NotEnoughMemory (the arithmetic), ValueError (no such
    device).
    """
    torch.set_num_threads(options.threads)
    decoder = load_model(options.path, options.dtype, options.device, progress)
    config = decoder.config
    max_context = min(config.max_context, options.max_context or config.max_context)
    plan = _plan(options, decoder, max_context)
    log.info("KV cache: %d blocks of %d tokens: %s", plan.num_blocks, options.block_size, plan.arithmetic)
    cache = KVCache.allocate(config, plan.num_blocks, options.block_size, decoder.dtype, decoder.device)
    limits = StepLimits(
        max_seqs=options.max_seqs, max_batched_tokens=options.max_batched_tokens,
        max_context=min(max_context, plan.num_blocks * options.block_size), num_blocks=plan.num_blocks,
        block_size=options.block_size, vocab_size=config.vocab_size,
    )  # fmt: skip
    dtype = str(decoder.dtype).removeprefix("torch.")
    identity = fingerprint(weight_files(options.path), dtype)
    return Started(Runner(decoder, cache, limits), dtype, identity, decoder.weights.n_bytes, cache.data.nbytes)


def _plan(options: StartOptions, decoder: Decoder, max_context: int) -> BlockPlan:
    config, on_gpu = decoder.config, decoder.device.type == "cuda"
    step = step_bytes(
        config, itemsize=decoder.dtype.itemsize, max_batched_tokens=options.max_batched_tokens,
        max_seqs=options.max_seqs, max_context=max_context, group_tokens=GROUP_TOKENS,
    )  # fmt: skip
    return plan_blocks(
        requested=options.num_kv_blocks,
        available=torch.cuda.mem_get_info(decoder.device)[0] if on_gpu else available_bytes(),
        step=step,
        block=block_bytes(config, options.block_size, decoder.dtype.itemsize),
        useful=options.max_seqs * -(-max_context // options.block_size),
        utilization=options.memory_utilization or _UTILIZATION["cuda" if on_gpu else "cpu"],
    )
