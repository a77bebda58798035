"""scheduler/1: admits requests, queues them, and chooses the engine for each.

| method | kind | answers |
|---|---|---|
| place | call | Placement, once there is room; overloaded with retry_after_s where too many wait |
| release | tell | nothing; a request has ended, however |
| stats | call, idempotent | SchedulerStats: counters and gauges |
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, field

from services.protocols.scheduler import Placement, PlaceRequest, SchedulerInterface, SchedulerStats
from zmqengine import Config, Deferred, Service
from zmqengine.errors import Cancelled, InvalidArgument, Overloaded, Unavailable

from .admission import Admission, DuplicateRequest, QueueFull


class SchedulerConfig(Config):
    """Options of the scheduler."""

    engines: Annotated[list[str], Meta(min_length=1, description="Names of the engines.")] = field(
        default_factory=lambda: ["engine"]
    )
    max_placed: Annotated[
        int, Meta(ge=1, description="Requests on one engine at most: what it runs at once, and some that stand by.")
    ] = 80
    max_queued: Annotated[int, Meta(ge=0, description="Requests that wait at most; more are refused.")] = 1000


class Scheduler(Service, SchedulerInterface):
    """Admission, queue, priority, fairness, choice of the engine."""

    config: SchedulerConfig

    def setup(self) -> None:
        config = self.config
        self._admission = Admission(config.engines, max_placed=config.max_placed, max_queued=config.max_queued)
        self._answers: dict[str, Deferred[Placement]] = {}
        """To those that are queued."""

    def drain(self, deadline_s: float) -> None:
        """Nobody waits for a place that a scheduler gives that is about to go."""
        for request_id in list(self._answers):
            self._drop(request_id, Unavailable(f"{self.name} is draining"))

    def queued(self) -> int:
        return len(self._admission.queue)

    # scheduler/1

    def place(self, request: PlaceRequest) -> Deferred[Placement]:
        now = self.loop.clock()
        for request_id in self._admission.owner_speaks(request, now):
            self._drop(request_id, Cancelled(f"{request.owner} has been started anew"))
        self._place()
        try:
            self._admission.ask(request, now)
        except DuplicateRequest as refusal:
            raise InvalidArgument(str(refusal), field="request.request_id") from None
        except QueueFull as refusal:
            raise Overloaded(str(refusal), retry_after_s=refusal.retry_after_s) from None
        answer: Deferred[Placement] = Deferred()
        answer.on_cancel(lambda: self._cancelled(request.request_id, answer))
        self._answers[request.request_id] = answer
        self._place()
        return answer

    def release(self, request_id: str) -> None:
        self._drop(request_id, Cancelled(f"request {request_id!r} was released while it was queued"))
        self._place()

    def stats(self) -> SchedulerStats:
        admission = self._admission
        return SchedulerStats(
            queued=len(admission.queue), placed=len(admission.engines), admitted_total=admission.admitted_total,
            refused_total=admission.refused_total,
        )  # fmt: skip

    # Placing

    def _place(self) -> None:
        """Give out the places that there are."""
        now = self.loop.clock()
        while (placed := self._admission.place_next(now)) is not None:
            answer = self._answers.pop(placed.request_id)
            answer.resolve(Placement(request_id=placed.request_id, engine=placed.engine, waited_s=placed.waited_s))

    def _drop(self, request_id: str, reason: Exception) -> None:
        """A request is not to be placed, or not any more; one that is queued is answered with the reason."""
        self._admission.release(request_id, self.loop.clock())
        answer = self._answers.pop(request_id, None)
        if answer is not None:
            answer.reject(reason)

    def _cancelled(self, request_id: str, answer: Deferred[Placement]) -> None:
        """The asking side gave up while it was queued. The id may be another's by now."""
        if self._answers.get(request_id) is answer:
            del self._answers[request_id]
            self._admission.release(request_id, self.loop.clock())
            self._place()
