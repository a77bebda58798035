"""worker/1: holds the weights and the KV cache, runs steps, samples.

| method | kind | answers |
|---|---|---|
| info | call, idempotent | WorkerInfo: what is loaded |
| reset | call | nothing; forgets all sequences |
| step | call | StepResult: the sampled tokens |

A step runs on the loop's thread, which has nothing else to do meanwhile: the engine sends one at a time, and health is
the control thread's. torch is imported in `preload`, by `startup`, while the engine starts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta

from services.models.load_error import ModelFileError
from services.models.store import resolve
from services.models.store_error import ModelStoreError
from services.protocols.sampling import SamplingParams
from services.protocols.worker import Advance, NewSequence, StepBatch, StepResult, WorkerInfo, WorkerInterface
from zmqengine import Config, Service
from zmqengine.errors import ConfigError, InvalidArgument

from .step_check import StepRefused
from .threads import prepare_threads

if TYPE_CHECKING:
    from .startup import Started


class WorkerConfig(Config):
    """Options of the worker."""

    model: Annotated[str, Meta(description="A registered name, a .gguf file, or a Hugging Face folder.")] = "smollm2"
    dtype: Annotated[
        Literal["auto", "float32", "bfloat16"],
        Meta(description="What weights and KV cache are; auto: float32 on a CPU, bfloat16 on a GPU."),
    ] = "auto"
    device: Annotated[str, Meta(description="auto (a GPU where there is one), cpu, cuda, cuda:1, ...")] = "auto"
    num_kv_blocks: (
        Annotated[int, Meta(ge=1, description="Blocks of KV cache; absent: as many as there is memory for.")] | None
    ) = None
    block_size: Annotated[int, Meta(ge=1, le=1024, description="Tokens in a KV block.")] = 16
    max_seqs: Annotated[int, Meta(ge=1, le=4096, description="Sequences at once.")] = 64
    max_batched_tokens: Annotated[int, Meta(ge=1, description="Tokens that one step computes at most.")] = 2048
    max_context: (
        Annotated[int, Meta(ge=1, description="Tokens of a sequence at most; absent: what the model was made for.")]
        | None
    ) = None
    memory_utilization: (
        Annotated[
            float,
            Meta(gt=0.0, le=1.0, description="Share of the free memory that a measured KV cache takes; absent: 0.9 of "
            "a GPU's, 0.3 of a host's."),
        ]
        | None
    ) = None  # fmt: skip
    threads: Annotated[int, Meta(ge=1, description="Threads that compute; absent: one per core.")] | None = None


class Worker(Service, WorkerInterface):
    """Runs the model."""

    config: WorkerConfig

    @classmethod
    def preload(cls) -> None:
        prepare_threads(None)  # the environment that torch reads when it is imported; `setup` has the last word
        from . import startup  # noqa: F401

    def setup(self) -> None:
        """Load the model. Fails with the file and the reason, or with the memory's arithmetic."""
        config = self.config
        try:
            path = resolve(config.model).path
        except ModelStoreError as error:
            raise ConfigError(f"option model={config.model!r}: {error}") from error
        self._path = str(path)
        threads = prepare_threads(config.threads)
        from .startup import NotEnoughMemory, StartOptions, start_runner

        options = StartOptions(
            path=path, dtype=config.dtype, device=config.device, threads=threads, num_kv_blocks=config.num_kv_blocks,
            block_size=config.block_size, max_seqs=config.max_seqs, max_batched_tokens=config.max_batched_tokens,
            max_context=config.max_context, memory_utilization=config.memory_utilization,
        )  # fmt: skip
        try:
            # Annotated here and not in the class, whose hints are resolved at run time.
            self._started: Started = start_runner(
                options, lambda done, total: self.progress(done, total, "reading weights")
            )
        except ModelFileError as error:
            raise ConfigError(f"option model={config.model!r}: {error}") from error
        except NotEnoughMemory as error:
            raise ConfigError(f"option model={config.model!r}: {path}: {error}") from error

    def selftest(self) -> None:
        """One token through the whole model: it must come out as a token."""
        new = NewSequence(slot=0, request_id="selftest", token_ids=[0], prompt_len=1, sampling=_GREEDY)
        advance = Advance(slot=0, start=0, count=1, blocks=[0], sample=self._started.runner.limits.max_context > 1)
        runner = self._started.runner
        result = runner.step(StepBatch(step=0, add=[new], advance=[advance]))
        runner.reset()
        for sampled in result.sampled:
            if sampled.error is not None:
                raise ValueError(f"{self.config.model}: the model computes nothing usable: {sampled.error}")

    def info(self) -> WorkerInfo:
        started = self._started
        decoder, limits = started.runner.decoder, started.runner.limits
        return WorkerInfo(
            model=self._path, architecture=decoder.config.architecture, dtype=started.dtype,
            device=str(decoder.device), fingerprint=started.fingerprint, vocab_size=limits.vocab_size,
            max_context=limits.max_context, num_blocks=limits.num_blocks, block_size=limits.block_size,
            max_seqs=limits.max_seqs, max_batched_tokens=limits.max_batched_tokens, weight_bytes=started.weight_bytes,
            kv_bytes=started.kv_bytes, eos_token_ids=list(decoder.config.eos_token_ids),
        )  # fmt: skip

    def reset(self) -> None:
        self._started.runner.reset()

    def step(self, batch: StepBatch) -> StepResult:
        self.busy(self._longest_s(batch))
        try:
            return self._started.runner.step(batch)
        except StepRefused as error:
            raise InvalidArgument(str(error), field=error.field) from error

    def _longest_s(self, batch: StepBatch) -> float:
        """What the step may take on the slowest machine; beyond it, it is stalled."""
        weights = self._started.runner.decoder.config.num_weights
        return _STEP_S + 2.0 * weights * sum(advance.count for advance in batch.advance) / _SLOWEST_FLOPS


_GREEDY = SamplingParams(max_tokens=1, temperature=0.0)
_STEP_S = 30.0
_SLOWEST_FLOPS = 5e9
"""A tenth of what two cores do."""
