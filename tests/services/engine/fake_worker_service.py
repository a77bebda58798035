"""The fake worker as a process: ``python -m tests.services.engine.fake_worker_service``."""

from __future__ import annotations

import os
import signal
import threading

from services.protocols.worker import StepBatch, StepResult, WorkerInfo, WorkerInterface
from zmqengine import Config, Service, call
from zmqengine.errors import InvalidArgument

from .fake_worker import FakeWorker, Violation, WorkerDied, worker_info


class FakeWorkerConfig(Config):
    """Options of the fake worker."""

    num_blocks: int = 600
    block_size: int = 4
    max_seqs: int = 8
    max_context: int = 2000
    step_s: float = 0.0
    """How long a step takes."""
    refuse_step: int = -1
    """Number of the step that is refused."""
    fail_step: int = -1
    """Number of the step that fails; only once."""


class Seen(Config):
    """What a fake worker has seen."""

    violations: list[str]
    live: int
    """Sequences in the table."""
    steps: int
    pid: int


class FakeWorkerService(Service, WorkerInterface):
    """A worker without a model."""

    config: FakeWorkerConfig

    def setup(self) -> None:
        config = self.config
        info = worker_info(
            num_blocks=config.num_blocks, block_size=config.block_size, max_seqs=config.max_seqs,
            max_context=config.max_context, max_batched_tokens=512,
        )  # fmt: skip
        self._worker = FakeWorker(info)
        self._violations: list[str] = []
        self._failed = False

    def info(self) -> WorkerInfo:
        return self._worker.info

    def reset(self) -> None:
        self._worker.reset()

    def step(self, batch: StepBatch) -> StepResult:
        threading.Event().wait(self.config.step_s)
        if batch.step == self.config.refuse_step:
            raise InvalidArgument("refused, as it was told to", field="batch")
        if batch.step == self.config.fail_step and not self._failed:
            self._failed = True
            raise RuntimeError("failed, as it was told to")
        try:
            return self._worker.step(batch)
        except Violation as violation:
            self._violations.append(str(violation))
            raise
        except WorkerDied:
            os.kill(os.getpid(), signal.SIGKILL)
            raise

    @call(idempotent=True)
    def seen(self) -> Seen:
        """What it has seen."""
        return Seen(
            violations=self._violations, live=len(self._worker.table), steps=self._worker.steps, pid=os.getpid()
        )


if __name__ == "__main__":
    FakeWorkerService.main()
