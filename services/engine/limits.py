"""What an engine was set up with, what its worker can hold, and which requests that rules out for ever."""

from __future__ import annotations

import math
from dataclasses import dataclass

from services.protocols.engine import EngineInfo
from services.protocols.worker import WorkerInfo

from .refusal import NeverFits
from .request import Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How an engine batches; see EngineConfig for what each means."""

    max_batched_tokens: int = 256
    max_seqs: int = 64
    prefill_chunk: int = 128
    pipeline: int = 1
    max_waiting: int = 1024
    watermark: float = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What holds for one worker: the options, cut to what the worker takes."""

    max_batched_tokens: int
    max_seqs: int
    prefill_chunk: int
    max_context: int
    num_blocks: int
    block_size: int
    vocab_size: int
    watermark_blocks: int
    """Blocks that an admission leaves free for the sequences that run: without them it would soon be preempted."""
    eos_token_ids: frozenset[int]

    @classmethod
    def of(cls, options: Options, worker: WorkerInfo) -> Limits:
        return cls(
            max_batched_tokens=min(options.max_batched_tokens, worker.max_batched_tokens),
            max_seqs=min(options.max_seqs, worker.max_seqs),
            prefill_chunk=options.prefill_chunk,
            max_context=worker.max_context,
            num_blocks=worker.num_blocks,
            block_size=worker.block_size,
            vocab_size=worker.vocab_size,
            watermark_blocks=math.ceil(options.watermark * worker.num_blocks),
            eos_token_ids=frozenset(worker.eos_token_ids),
        )

    @property
    def max_tokens(self) -> int:
        """Tokens that a prompt and its output may have together."""
        return min(self.max_context, self.num_blocks * self.block_size)

    def describe(self, model: str) -> EngineInfo:
        """What an engine with this worker says of itself."""
        return EngineInfo(
            model=model, max_context=self.max_tokens, num_blocks=self.num_blocks, block_size=self.block_size,
            vocab_size=self.vocab_size, max_seqs=self.max_seqs, eos_token_ids=sorted(self.eos_token_ids),
        )  # fmt: skip

    def blocks_for(self, tokens: int) -> int:
        """Blocks that hold so many tokens."""
        return -(-tokens // self.block_size)

    def check(self, request: Request) -> None:
        """Raises NeverFits, with the numbers, if this worker can never run the request to its end."""
        for position, token in enumerate(request.token_ids):
            if token >= self.vocab_size:
                name, index = ("prompt_token_ids", position)
                if position >= request.prompt_len:
                    name, index = ("generated_token_ids", position - request.prompt_len)
                raise NeverFits(
                    f"token {token} at position {index} is not in the vocabulary, which ends at {self.vocab_size - 1}",
                    field=f"request.{name}",
                )
        total = request.prompt_len + request.sampling.max_tokens
        if total > self.max_tokens:
            held = f"the context has {self.max_context}"
            if self.max_tokens < self.max_context:
                held = f"the KV cache holds {self.max_tokens} ({self.num_blocks} blocks of {self.block_size})"
            too_long = request.prompt_len >= self.max_tokens
            raise NeverFits(
                f"{request.prompt_len} tokens of prompt and {request.sampling.max_tokens} of max_tokens are {total},"
                f" but {held}; shorten the {'prompt' if too_long else 'prompt, or lower max_tokens'}",
                field="request.prompt_token_ids" if too_long else "request.sampling.max_tokens",
            )
