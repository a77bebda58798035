"""Which tokens the next step computes: continuous batching with chunked prefill, without phases.

Each request has computed tokens that chase its length. A step goes on with the running requests first, in order of
rank, then admits waiting ones, within a budget of tokens: decode (one token) and chunks of prefill are mixed. Iteration
level scheduling is Orca's (Yu et al. 2022), chunked prefill Sarathi's (Agrawal et al. 2023), preemption by recompute
vLLM's (Kwon et al. 2023).

A step may be planned while earlier ones still run. That a block is freed and given to another sequence meanwhile is
safe, because a worker runs steps in their order: whatever a step under way still writes to that block (a row of a
sequence that is found ended or preempted by now) is written before the first step that has the block in another table;
and that sequence reads of its blocks only the positions that it has itself written since.

That a request gets on is never in doubt: the running request of the best rank can have the block of every other one,
admission has made sure that all of them are enough for it, and nothing that was planned within a step is undone.
"""

from __future__ import annotations

from bisect import bisect_left, insort

from .blocks import BlockPool
from .limits import Limits
from .plan import Plan, Row
from .request import Request, Status


class Scheduling:
    """The waiting and the running requests of one worker attachment."""

    def __init__(self, limits: Limits, waiting: list[Request]) -> None:
        """waiting: in order of rank, each checked against the limits."""
        self.limits = limits
        self.pool = BlockPool(limits.num_blocks)
        self.waiting = waiting
        self.running: list[Request] = []
        """In order of rank."""
        self.preemptions = 0

    def next_step(self) -> Plan:
        """What to compute next; without rows if there is nothing to do now. It is taken as issued."""
        plan = Plan()
        budget = self._go_on(plan, self.limits.max_batched_tokens)
        if not plan.preempted:  # what was just taken away is not given to others in the same step
            self._admit(plan, budget)
        return plan

    def end(self, request: Request) -> None:
        """Take a request out, at whatever point it is. An ended one is a no-op."""
        if request.status is Status.RUNNING:
            _remove(self.running, request)
            self.pool.free(request.blocks)
            request.leave_worker()
        elif request.status is Status.WAITING:
            _remove(self.waiting, request)
        request.status = Status.ENDED

    def _go_on(self, plan: Plan, budget: int) -> int:
        """Plan for the running requests; the budget that is left."""
        index = 0
        while index < len(self.running) and budget:
            request = self.running[index]
            index += 1
            # A chunk leaves each of those behind it a token, so that no prefill, however urgent, stops their output.
            most = max(1, budget - (len(self.running) - index))
            count = min(request.pending, self.limits.prefill_chunk, most)
            if not count:
                continue
            needed = self.limits.blocks_for(request.computed + count) - len(request.blocks)
            if not self._make_room(request, needed, plan):
                break
            plan.rows.append(self._row(request, count, needed))
            budget -= count
        return budget

    def _make_room(self, request: Request, needed: int, plan: Plan) -> bool:
        """Preempt from the lowest rank up until `needed` blocks are free; False if that took the request itself.

        Planning goes in order of rank, so none of those preempted is in the plan.
        """
        while not self.pool.can_allocate(needed):
            victim = self.running.pop()
            self.pool.free(victim.blocks)
            plan.preempted.append(victim)
            victim.leave_worker()
            victim.status = Status.WAITING
            insort(self.waiting, victim, key=_rank)
            self.preemptions += 1
            if victim is request:
                return False
        return True

    def _admit(self, plan: Plan, budget: int) -> None:
        """Admit waiting requests, strictly in order of rank: a small one must not starve a large one."""
        trial = _Trial(self.running)
        index = 0
        while budget and index < len(self.waiting) and len(self.running) < self.limits.max_seqs:
            request = self.waiting[index]
            if request.in_flight or not trial.admits(request):
                # Preempted with a sample under way, its last token is not known yet; or it is to be tried later.
                index += 1
                continue
            # All that is known gets its blocks at once: half-filled prefills must not take each other's room.
            needed = self.limits.blocks_for(len(request.token_ids))
            reserve = self.limits.watermark_blocks if self.running else 0
            if not self.pool.can_allocate(needed + reserve):
                return
            del self.waiting[index]
            trial.enter(request)
            request.status = Status.RUNNING
            request.prefill_len = len(request.token_ids)
            insort(self.running, request, key=_rank)
            count = min(request.pending, self.limits.prefill_chunk, budget)
            plan.rows.append(self._row(request, count, needed, admitted=True))
            budget -= count

    def _row(self, request: Request, count: int, needed: int, *, admitted: bool = False) -> Row:
        blocks = self.pool.allocate(max(0, needed))
        start, end = request.computed, request.computed + count
        sample = end == request.length
        request.blocks += blocks
        request.computed = end
        request.in_flight += sample
        return Row(request, start, count, blocks, sample, admitted)


class _Trial:
    """Which of the requests that may have ended a worker run. One that is to be isolated has no other beside it, so
    that, if it happens again, it is known which one it was."""

    def __init__(self, running: list[Request]) -> None:
        self._any = self._isolated = False
        for request in running:
            self.enter(request)

    def enter(self, request: Request) -> None:
        self._any = self._any or request.suspect
        self._isolated = self._isolated or request.isolate

    def admits(self, request: Request) -> bool:
        return not request.suspect or not (self._isolated or (request.isolate and self._any))


def _rank(request: Request) -> tuple[int, float, int]:
    return request.rank


def _remove(requests: list[Request], request: Request) -> None:
    """Take a request out of a list in order of rank."""
    index = bisect_left(requests, request.rank, key=_rank)
    assert requests[index] is request
    del requests[index]
