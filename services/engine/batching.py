"""All requests of an engine, over whatever worker there is: the one object that decides.

It outlives its workers: where one is lost, running requests wait again with their prompt and tokens so far, and the
next worker computes them anew; the tokens' numbers go on.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Sequence

from services.protocols.engine import EngineStats, GenerateTokens
from services.protocols.worker import StepBatch, StepResult, WorkerInfo

from .blame import POISON, poisonous
from .limits import Limits, Options
from .outcome import Ending, Outcome, ending_of
from .plan import Row
from .refusal import DuplicateRequest, NeverFits, QueueFull
from .request import Request, Status
from .scheduling import Scheduling
from .steps import Steps


class Batching:
    """Requests go in by `add` and come out by outcomes, each with exactly one ending unless it is aborted.

    While a worker is attached, `next_batch` gives steps and `complete` takes their answers. Nothing here raises for
    what a request holds: one that no worker can run is refused by `add`, or ends with an error on `attach`.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self.requests: dict[str, Request] = {}
        """Those that have not ended, by id."""
        self.limits: Limits | None = None
        """The attached worker's; None while there is none."""
        self.steps_issued = self.prompt_tokens = self.generated_tokens = 0
        self._preemptions = 0
        """Of earlier attachments."""
        self._idle: list[Request] = []
        """In order of rank: what waits while no worker is attached."""
        self._scheduling: Scheduling | None = None
        self._steps: Steps | None = None
        self._count = 0

    # What is where

    @property
    def waiting(self) -> Sequence[Request]:
        return self._idle if self._scheduling is None else self._scheduling.waiting

    @property
    def running(self) -> Sequence[Request]:
        return [] if self._scheduling is None else self._scheduling.running

    @property
    def free_blocks(self) -> int:
        return 0 if self._scheduling is None else self._scheduling.pool.num_free

    @property
    def preemptions(self) -> int:
        """Since the start, over all workers."""
        return self._preemptions + (0 if self._scheduling is None else self._scheduling.preemptions)

    @property
    def under_way(self) -> int:
        """Steps that are not answered."""
        return 0 if self._steps is None else self._steps.under_way

    @property
    def out_of_step(self) -> bool:
        """The worker will refuse the step under way, and has to be reset: `detach`, without blame, and `attach`."""
        return self._steps is not None and self._steps.out_of_step

    def stats(self, worker: str) -> EngineStats:
        """Counters and gauges; worker: whether it is there."""
        return EngineStats(
            running=len(self.running), waiting=len(self.waiting), free_blocks=self.free_blocks,
            total_blocks=0 if self.limits is None else self.limits.num_blocks, steps=self.steps_issued,
            preemptions=self.preemptions, prompt_tokens=self.prompt_tokens, generated_tokens=self.generated_tokens,
            worker=worker,
        )  # fmt: skip

    # Requests

    def add(self, asked: GenerateTokens, now: float) -> Ending | None:
        """Take a request; an ending if it has reached its end already (resubmitted with all its tokens).

        now: seconds, on any monotonic clock. Raises DuplicateRequest, QueueFull, NeverFits. Whether it fits and whether
        it has ended is seen at once where a worker is attached, otherwise when one is (`attach`).
        """
        if asked.request_id in self.requests:
            raise DuplicateRequest(f"a request {asked.request_id!r} is being generated already")
        if len(self.waiting) >= self.options.max_waiting:
            raise QueueFull(f"{len(self.waiting)} requests wait already, and no more may (max_waiting)")
        self._count += 1
        request = Request(
            request_id=asked.request_id, token_ids=[*asked.prompt_token_ids, *asked.generated_token_ids],
            prompt_len=len(asked.prompt_token_ids), sampling=asked.sampling, priority=asked.priority,
            arrival_s=now - asked.arrival_s, number=self._count, stop_ids=frozenset(asked.sampling.stop_token_ids),
        )  # fmt: skip
        ending = None
        if self.limits is not None:
            self.limits.check(request)
            ending = ending_of(request, self.limits.eos_token_ids)
        if ending is None:
            self.requests[request.request_id] = request
            insort(self._idle if self._scheduling is None else self._scheduling.waiting, request, key=_rank)
        return ending

    def abort(self, request_id: str) -> bool:
        """End a request, at whatever point it is; False if it is not known (any more). The next step is without it."""
        request = self.requests.get(request_id)
        if request is not None:
            self._end(request)
        return request is not None

    # The worker

    def attach(self, worker: WorkerInfo) -> list[Outcome]:
        """A worker is there, and knows no sequence; how requests end that it can never run."""
        assert self._scheduling is None, "attached already"
        limits = Limits.of(self.options, worker)
        outcomes = [outcome for request in self._idle if (outcome := _unfit(request, limits)) is not None]
        for outcome in outcomes:
            self._end(outcome.request)
        self.limits = limits
        self._scheduling = Scheduling(limits, self._idle)
        self._idle = []
        self._steps = Steps(limits)
        return outcomes

    def detach(self, blamed: Iterable[Row] = ()) -> list[Outcome]:
        """The worker is lost, or is about to be reset: everything waits again. How requests end that are given up.

        blamed: what may have caused it. Requests that are given up are poison (`blame`).
        """
        if self._scheduling is None or self._steps is None:
            return []
        poison = poisonous(blamed)
        outcomes = [Outcome(request, ending=Ending("error", error=POISON)) for request in poison]
        for request in poison:
            self._end(request)
        self._preemptions += self._scheduling.preemptions
        waiting = [*self._scheduling.waiting, *self._scheduling.running]
        self.limits = self._scheduling = self._steps = None
        for request in waiting:
            request.leave_worker()
            request.status, request.slot, request.in_flight = Status.WAITING, -1, 0
        self._idle = sorted(waiting, key=_rank)
        return outcomes

    def rows_under_way(self, step: int | None = None) -> list[Row]:
        """What a step that is not answered computes; None: what all of them do."""
        return [] if self._steps is None else self._steps.rows_of(step)

    def fail(self, requests: Iterable[Request], error: str) -> list[Outcome]:
        """End requests with an error, each once, those that have ended already excepted."""
        outcomes = [
            Outcome(request, ending=Ending("error", error=error))
            for request in dict.fromkeys(requests)
            if request.status is not Status.ENDED
        ]
        for outcome in outcomes:
            self._end(outcome.request)
        return outcomes

    def next_batch(self) -> StepBatch | None:
        """The next step, which is under way from now on; None if there is none to begin now."""
        if self._scheduling is None or self._steps is None or self._steps.out_of_step:
            return None
        if self._steps.under_way >= self.options.pipeline:
            return None
        plan = self._scheduling.next_step()
        for request in plan.preempted:
            self._steps.release(request)
        if not plan.rows:
            return None
        self.steps_issued += 1
        for row in plan.rows:
            self.prompt_tokens += max(0, min(row.end, row.request.prefill_len) - row.start)
        return self._steps.issue(plan)

    def complete(self, result: StepResult) -> list[Outcome]:
        """What the oldest step under way brought. Raises WorkerFault for an answer that does not fit it."""
        assert self._steps is not None, "no worker is attached"
        outcomes = self._steps.complete(result)
        for outcome in outcomes:
            self.generated_tokens += outcome.token_id is not None
            if outcome.ending is not None:
                self._end(outcome.request)
        return outcomes

    def _end(self, request: Request) -> None:
        """Forget a request, and free all that it holds."""
        del self.requests[request.request_id]
        if self._scheduling is None or self._steps is None:
            self._idle.remove(request)
            request.status = Status.ENDED
        else:
            self._scheduling.end(request)
            self._steps.release(request)


def _unfit(request: Request, limits: Limits) -> Outcome | None:
    """How a request ends that waited for a worker, if this one shows it to be impossible, or complete already."""
    try:
        limits.check(request)
    except NeverFits as refusal:
        return Outcome(request, ending=Ending("error", error=str(refusal), field=refusal.field))
    ending = ending_of(request, limits.eos_token_ids)
    return None if ending is None else Outcome(request, ending=ending)


def _rank(request: Request) -> tuple[int, float, int]:
    return request.rank
