"""A whole engine against a fake worker: arrivals, aborts and deaths in any order, checked after each move."""

from __future__ import annotations

import contextlib
import random
from collections import deque
from dataclasses import dataclass, field

from services.engine.batching import Batching
from services.engine.limits import Options
from services.engine.outcome import Ending, Outcome
from services.engine.refusal import Refusal
from services.engine.request import Request, Status
from services.protocols.engine import GenerateTokens
from services.protocols.sampling import SamplingParams
from services.protocols.worker import StepBatch, WorkerInfo

from .fake_worker import FIRST_PLAIN, LATE_POISON, POISON, UNSAMPLABLE, FakeWorker, WorkerDied, undisturbed


@dataclass
class Asked:
    """A request, and what its reader was told."""

    message: GenerateTokens
    tokens: list[int] = field(default_factory=list)
    endings: list[Ending] = field(default_factory=list)
    aborted: bool = False

    @property
    def poisonous(self) -> bool:
        return POISON in self.message.prompt_token_ids or LATE_POISON in self.message.prompt_token_ids


class Simulation:
    """The engine, its worker, and the messages between them."""

    def __init__(self, options: Options, info: WorkerInfo) -> None:
        self.batching = Batching(options)
        self.options = options
        self.info = info
        self.worker: FakeWorker | None = None
        self.wire: deque[StepBatch] = deque()
        self.asked: dict[str, Asked] = {}
        self.deaths = self.resets = 0
        self.least = info
        """The smallest worker that there was."""

    # Moves

    def ask(self, message: GenerateTokens, now: float = 0.0) -> Asked | None:
        """None: it was refused."""
        try:
            ending = self.batching.add(message, now)
        except Refusal:
            return None
        asked = self.asked[message.request_id] = Asked(message)
        if ending is not None:
            asked.endings.append(ending)
        self.check()
        return asked

    def abort(self, request_id: str) -> None:
        known = self.batching.abort(request_id)
        asked = self.asked.get(request_id)
        assert known == (asked is not None and not asked.endings and not asked.aborted)
        if known and asked is not None:
            asked.aborted = True
        assert not self.batching.abort(request_id)
        self.check()

    def attach(self) -> None:
        if self.worker is None:
            self.worker = FakeWorker(self.info)
        else:
            self.worker.reset()
        self._tell(self.batching.attach(self.info))
        self.pump()

    def pump(self) -> None:
        """Issue steps until the pipeline is full or there is nothing to do."""
        while (batch := self.batching.next_batch()) is not None:
            self.wire.append(batch)
            assert len(self.wire) <= self.options.pipeline
            self.check()

    def work(self) -> bool:
        """Have the worker run the oldest step; False if there is none."""
        if self.worker is None or not self.wire:
            return False
        try:
            result = self.worker.step(self.wire[0])
        except WorkerDied:
            self.die()
            self.attach()
            return True
        self.wire.popleft()
        self._tell(self.batching.complete(result))
        if self.batching.out_of_step:
            self.resets += 1
            self.wire.clear()
            self._tell(self.batching.detach())
            self.attach()
        self.pump()
        return True

    def die(self, ran: int = 0, successor: WorkerInfo | None = None) -> None:
        """The worker is killed, after it ran so many of the steps under way whose answers are lost."""
        if self.worker is not None:
            with contextlib.suppress(WorkerDied):
                for batch in list(self.wire)[:ran]:
                    self.worker.step(batch)
        self.worker = None
        self.info = successor or self.info
        self.least = min(self.least, self.info, key=lambda info: info.num_blocks)
        self.wire.clear()
        self.deaths += 1
        self._tell(self.batching.detach(self.batching.rows_under_way()))

    def fail_step(self) -> None:
        """The worker answers that the oldest step failed in it; it lives, and is reset."""
        if self.wire:
            blamed = self.batching.rows_under_way(self.wire[0].step)
            self.wire.clear()
            self.deaths += 1
            self._tell(self.batching.detach(blamed))
            self.attach()

    def finish(self, steps: int) -> None:
        """Let everything end; it must within so many steps."""
        if self.batching.limits is None:
            self.attach()
        self.pump()
        for _ in range(steps):
            if not self.work():
                break
        assert not self.batching.requests, f"no end within {steps} steps: {list(self.batching.requests)}"
        assert not self.wire
        assert self.batching.free_blocks == self.info.num_blocks
        for asked in self.asked.values():
            self._check_result(asked)

    # What must always hold

    def check(self) -> None:
        batching = self.batching
        scheduling = batching._scheduling
        waiting, running = list(batching.waiting), list(batching.running)
        assert sorted(waiting + running, key=lambda r: r.number) == sorted(
            batching.requests.values(), key=lambda r: r.number
        )
        for line in (waiting, running):
            assert [r.rank for r in line] == sorted(r.rank for r in line)
        assert all(r.status is Status.WAITING and not r.blocks and r.slot == -1 for r in waiting)
        assert all(r.status is Status.RUNNING for r in running)
        if any(r.isolate for r in running):
            assert sum(r.suspect for r in running) == 1
        if scheduling is None:
            return
        limits, pool = scheduling.limits, scheduling.pool
        assert len(running) <= limits.max_seqs
        owned = [block for r in running for block in r.blocks]
        assert sorted(owned + pool._free) == list(range(limits.num_blocks)), "a block is lost, or has two owners"
        assert [block in owned for block in range(limits.num_blocks)] == pool._owned
        for r in running:
            assert len(r.blocks) >= limits.blocks_for(r.computed)
            assert 0 <= r.in_flight <= self.options.pipeline
            assert r.computed <= r.length

    def _tell(self, outcomes: list[Outcome]) -> None:
        for outcome in outcomes:
            asked = self.asked[outcome.request.request_id]
            assert not asked.endings, "told something after its end"
            assert not asked.aborted, "told something after it was aborted"
            if outcome.token_id is not None:
                asked.tokens.append(outcome.token_id)
            if outcome.ending is not None:
                asked.endings.append(outcome.ending)
        self.check()

    def _check_result(self, asked: Asked) -> None:
        message = asked.message
        prompt = message.prompt_token_ids
        whole, reason = undisturbed(prompt, message.sampling, self.info.vocab_size)
        expected = whole[len(message.generated_token_ids) :]
        if asked.aborted:
            assert not asked.endings
            assert asked.tokens == expected[: len(asked.tokens)]
            return
        assert len(asked.endings) == 1
        ending = asked.endings[0]
        if ending.field is not None:  # a worker came that it can never fit into
            assert asked.tokens == expected[: len(asked.tokens)]
            total = len(prompt) + message.sampling.max_tokens
            assert total > min(self.least.max_context, self.least.num_blocks * self.least.block_size)
        elif ending.error is not None and "lost twice" in ending.error:
            assert asked.poisonous or self.deaths >= 2
            assert asked.tokens == expected[: len(asked.tokens)]
        else:
            assert POISON not in prompt
            assert (asked.tokens, ending.reason) == (expected, reason)
            assert ending.stop_token_id == (whole[-1] if reason == "stop" else None)


def message(
    request_id: str, prompt: list[int], max_tokens: int = 8, priority: int = 0, generated: list[int] | None = None,
    **sampling: object,
) -> GenerateTokens:  # fmt: skip
    """A request."""
    params = SamplingParams(max_tokens=max_tokens, **sampling)  # type: ignore[arg-type]
    return GenerateTokens(
        request_id=request_id, prompt_token_ids=prompt, sampling=params, priority=priority,
        generated_token_ids=generated or [],
    )  # fmt: skip


def random_message(rng: random.Random, request_id: str, vocab_size: int, longest: int) -> GenerateTokens:
    """Any request, also ones that fit nowhere, cannot be sampled, or kill the worker."""
    prompt = [rng.choice([0, rng.randrange(FIRST_PLAIN, vocab_size)]) for _ in range(rng.randint(1, longest))]
    fate = rng.random()
    if fate < 0.03:
        prompt[rng.randrange(len(prompt))] = UNSAMPLABLE
    elif fate < 0.05:
        prompt[rng.randrange(len(prompt))] = rng.choice([POISON, LATE_POISON])
    max_tokens = rng.randint(1, longest)
    sampling = SamplingParams(
        max_tokens=max_tokens, ignore_eos=rng.random() < 0.5, stop_token_ids=[0] if rng.random() < 0.1 else []
    )
    generated: list[int] = []
    if rng.random() < 0.2 and fate >= 0.05:  # resubmitted from somewhere on its way
        tokens, reason = undisturbed(prompt, sampling, vocab_size)
        generated = tokens[: rng.randint(0, len(tokens) if reason != "error" else 0)]
    return GenerateTokens(
        request_id=request_id, prompt_token_ids=prompt, sampling=sampling, generated_token_ids=generated,
        priority=rng.choice([0, 0, 0, 1, -1]), arrival_s=rng.random(),
    )  # fmt: skip


def bound_on_steps(simulation: Simulation) -> int:
    """Steps that suffice to end what is there, however often it is preempted: while the request of the best rank
    advances, each other one is recomputed at most once per token of it."""
    live: list[Request] = list(simulation.batching.requests.values())
    tokens = sum(r.prompt_len + r.sampling.max_tokens for r in live)
    return 20 + 8 * tokens * max(1, len(live))
