"""The conversation with one worker: plans as deltas in its terms (worker/1), and its answers as outcomes.

It numbers the steps, gives sequences their slots, and remembers what each step under way was to do. A slot is told to
be free exactly once, with the first step behind; from that step on another sequence may have it.
"""

from __future__ import annotations

import collections
import heapq

from services.protocols.worker import Advance, NewSequence, Sampled, StepBatch, StepResult

from .limits import Limits
from .outcome import Ending, Outcome, ending_of
from .plan import Plan, Row
from .request import Request, Status


class WorkerFault(ValueError):
    """A worker's answer does not fit the step that it is for. Nothing was changed."""


class Steps:
    """The steps of one worker attachment, from number 0."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._next = 0
        self._under_way: collections.deque[tuple[int, list[Row]]] = collections.deque()
        self._free = list(range(limits.max_seqs))  # a heap: few sequences use the first few slots
        self._releases: list[int] = []
        self.out_of_step = False
        """A sequence could not be sampled while the next step, which counts on its token, was under way already: the
        worker will refuse that step. It has to be reset."""

    @property
    def under_way(self) -> int:
        """Steps that are not answered."""
        return len(self._under_way)

    def rows_of(self, step: int | None = None) -> list[Row]:
        """What a step under way computes; None: what all of them do."""
        return [row for number, rows in self._under_way if step in (None, number) for row in rows]

    def issue(self, plan: Plan) -> StepBatch:
        """The message of a step."""
        released, self._releases = self._releases, []
        for slot in released:
            heapq.heappush(self._free, slot)
        added = [self._add(row) for row in plan.rows if row.admitted]
        advance = [self._advance(row) for row in plan.rows]
        batch = StepBatch(step=self._next, release=released, add=added, advance=advance)
        self._under_way.append((self._next, plan.rows))
        self._next += 1
        return batch

    def release(self, request: Request) -> None:
        """A request has left the worker: tell it with the next step. One without a slot is a no-op."""
        if request.slot >= 0:
            self._releases.append(request.slot)
            request.slot = -1

    def complete(self, result: StepResult) -> list[Outcome]:
        """What the answer of the oldest step under way means. Raises WorkerFault if it is not its answer."""
        sampled = self._check(result)
        _, rows = self._under_way.popleft()
        for row in rows:
            if row.end >= row.request.suspect_until:
                row.request.acquit()  # what a worker was lost over has now been computed, and it lives
        return [outcome for row, answer in sampled if (outcome := self._take(row, answer)) is not None]

    def _add(self, row: Row) -> NewSequence:
        request = row.request
        request.slot = heapq.heappop(self._free)
        return NewSequence(
            slot=request.slot, request_id=request.request_id, token_ids=list(request.token_ids),
            prompt_len=request.prompt_len, sampling=request.sampling,
        )  # fmt: skip

    @staticmethod
    def _advance(row: Row) -> Advance:
        row.slot = row.request.slot
        return Advance(slot=row.slot, start=row.start, count=row.count, blocks=row.blocks, sample=row.sample)

    def _check(self, result: StepResult) -> list[tuple[Row, Sampled]]:
        number, rows = self._under_way[0]
        if result.step != number:
            raise WorkerFault(f"the worker answered step {result.step} where {number} was due")
        asked = [row for row in rows if row.sample]
        if [row.slot for row in asked] != [sampled.slot for sampled in result.sampled]:
            slots = [sampled.slot for sampled in result.sampled]
            raise WorkerFault(f"step {number}: the worker sampled slots {slots} of {[row.slot for row in asked]}")
        for sampled in result.sampled:
            if sampled.error is None and not 0 <= sampled.token_id < self._limits.vocab_size:
                raise WorkerFault(
                    f"step {number}: the worker sampled token {sampled.token_id} for slot {sampled.slot}, but the"
                    f" vocabulary ends at {self._limits.vocab_size - 1}"
                )
        return list(zip(asked, result.sampled, strict=True))

    def _take(self, row: Row, sampled: Sampled) -> Outcome | None:
        """A sample's outcome; None for a sequence that was over before (its row was planned ahead)."""
        request = row.request
        request.in_flight -= 1
        if request.status is Status.ENDED:
            return None
        if sampled.error is not None:
            if any(request is later.request for _, rows in self._under_way for later in rows):
                self.out_of_step = True
            return Outcome(request, ending=Ending("error", error=sampled.error))
        request.proven = True
        request.token_ids.append(sampled.token_id)
        return Outcome(request, sampled.token_id, sampled.logprob, ending_of(request, self._limits.eos_token_ids))
