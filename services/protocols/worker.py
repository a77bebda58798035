"""worker/1: holds the weights and the KV cache, runs steps, samples. Spoken by the engine to each worker.

The worker keeps a table of sequences, addressed by slot. The engine sends deltas: a sequence's tokens once, then only
how far to advance. A sampled token stays in the worker's own table, so the next step can be sent before the last one
has been answered.
"""

from zmqengine import Interface, Message, call

from .sampling import SamplingParams, TokenId, TokenLogprob


class WorkerInfo(Message):
    """What a worker has loaded and how much KV cache it has."""

    model: str
    """Path of the model."""
    architecture: str
    dtype: str
    """float32 or bfloat16: what the weights are computed in."""
    device: str
    fingerprint: str
    """Hex digest over the model file's identity and dtype; equal fingerprints compute equal KV."""
    vocab_size: int
    max_context: int
    """Tokens (prompt and output) that one sequence can have."""
    num_blocks: int
    block_size: int
    """Tokens in a KV block."""
    max_seqs: int
    """Slots in the sequence table: valid slots are 0 to max_seqs - 1."""
    max_batched_tokens: int
    """Most tokens that one step may compute."""
    weight_bytes: int
    kv_bytes: int
    eos_token_ids: list[int]


class NewSequence(Message):
    """A sequence to enter into the table. A slot that is taken is refused with the step."""

    slot: int
    request_id: str
    """For logs and traces."""
    token_ids: list[TokenId]
    """[T] the prompt, and behind it what was generated already (a resumed sequence)."""
    prompt_len: int
    """How many of token_ids are prompt."""
    sampling: SamplingParams


class Advance(Message, array_like=True):
    """Compute the KV of tokens [start, start + count) of a slot's sequence."""

    slot: int
    start: int
    """Tokens whose KV is already in the blocks (computed or a prefix hit)."""
    count: int
    blocks: list[int]
    """Blocks to append to the slot's block table before computing; often empty."""
    sample: bool
    """Sample the token behind the last one computed, and append it to the sequence."""


class StepBatch(Message):
    """One step. Order of effects: release, then add, then advance."""

    step: int
    """Numbered from 0 for each worker incarnation; a repeated or skipped number is refused."""
    release: list[int] = []
    """Slots to forget. Their blocks are the engine's to reuse from this step on."""
    add: list[NewSequence] = []
    advance: list[Advance] = []


class Sampled(Message, array_like=True):
    """The outcome of one Advance with sample=True."""

    slot: int
    token_id: int
    """-1 where error is set."""
    logprob: TokenLogprob | None = None
    error: str | None = None
    """Why this one sequence could not be sampled; the engine ends it alone."""


class StepResult(Message):
    step: int
    sampled: list[Sampled]
    """In the order of the batch's advances that asked for a sample."""
    compute_s: float
    """Time the step took in the worker, without messaging."""


class WorkerInterface(Interface, protocol="worker/1"):
    """Runs the model."""

    @call(idempotent=True)
    def info(self) -> WorkerInfo:
        """What is loaded. Answered once the worker is READY."""

    @call
    def reset(self) -> None:
        """Forget all sequences; the next step is number 0. An engine says it when it (re)attaches."""

    @call
    def step(self, batch: StepBatch) -> StepResult:
        """Run one step.

        Errors: invalid_argument (unknown or taken slot, step number, block out of range, budget exceeded): nothing was
        changed. internal: the step failed; the engine must reset.
        """
