"""engine/1: turns a prompt's tokens into a stream of numbered tokens. Spoken by the processor."""

from typing import Annotated, Iterator, Literal

from msgspec import Meta

from zmqengine import Interface, Message, call, stream

from .sampling import SamplingParams, TokenId, TokenLogprob

FinishReason = Literal["stop", "length", "abort", "error"]


class GenerateTokens(Message):
    """A request for one sequence."""

    request_id: Annotated[str, Meta(min_length=1, max_length=256)]
    prompt_token_ids: Annotated[list[TokenId], Meta(min_length=1)]
    """[T]"""
    sampling: SamplingParams
    generated_token_ids: list[TokenId] = []
    """What an earlier attempt generated already: generation goes on behind it, and it counts towards max_tokens."""
    priority: int = 0
    """Lower is served first."""
    arrival_s: float = 0.0
    """Seconds that the request has waited elsewhere already (scheduler queue), for fairness within a priority."""


class TokenChunk(Message):
    """The next tokens of a sequence. Tokens are numbered from 0 without gaps; a slow reader gets several in one."""

    start: int
    """Number of the first token in this chunk."""
    token_ids: list[int]
    """[N]; empty only with a finish reason."""
    logprobs: list[TokenLogprob] | None = None
    """[N], where the request asked for them."""
    finish_reason: FinishReason | None = None
    """Set on the last chunk only. stop: an end-of-sequence or stop token (which is the last of token_ids)."""
    stop_token_id: int | None = None
    """The token that ended it, if one did."""
    error: str | None = None
    """Why, with finish reason "error"."""
    cached_tokens: int = 0
    """Prompt tokens that were not computed, for they were in the prefix cache."""


class EngineInfo(Message):
    model: str
    max_context: int
    """Tokens that a prompt and its output may have together."""
    num_blocks: int
    block_size: int
    vocab_size: int
    max_seqs: int
    eos_token_ids: list[int]


class EngineStats(Message):
    running: int
    waiting: int
    free_blocks: int
    total_blocks: int
    steps: int
    preemptions: int
    prompt_tokens: int
    """Computed since the start, chunks and recomputation included."""
    generated_tokens: int
    worker: str
    """Whether the worker is there: "ready", "absent" or "restarting"."""


class EngineInterface(Interface, protocol="engine/1"):
    """Continuous batching over a worker."""

    @stream
    def generate(self, request: GenerateTokens) -> Iterator[TokenChunk]:
        """Generate. Cancelling the stream frees the sequence within one step.

        Errors: invalid_argument (more tokens than the context or the KV cache can ever hold; a request id that is
        already running), overloaded (queue full), unavailable (draining).
        """

    @call(idempotent=True)
    def abort(self, request_id: str) -> bool:
        """End a request with finish reason "abort"; False if it is not known (any more)."""

    @call(idempotent=True)
    def info(self) -> EngineInfo:
        """What is served; waits, within the call's deadline, for the worker."""

    @call(idempotent=True)
    def stats(self) -> EngineStats:
        """Counters and gauges."""
