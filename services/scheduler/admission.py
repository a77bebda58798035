"""Who gets a place, where, and when: the one object that decides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from services.protocols.scheduler import PlaceRequest

from .engines import Engines
from .owners import Owners
from .pace import Pace
from .queue import FairQueue


class Refusal(ValueError):
    """A request is not taken; nothing was changed."""


class DuplicateRequest(Refusal):
    """Its id is queued or placed already."""


class QueueFull(Refusal):
    """Too many wait already."""

    def __init__(self, message: str, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, slots=True)
class Placed:
    """A request has got its place."""

    request_id: str
    engine: str
    waited_s: float


class Admission:
    """Times are seconds on one monotonic clock."""

    def __init__(self, engines: Sequence[str], *, max_placed: int, max_queued: int) -> None:
        """max_placed: requests on one engine at most. max_queued: that wait at most."""
        self.queue = FairQueue()
        self.engines = Engines(engines, max_placed)
        self.admitted_total = self.refused_total = 0
        self._max_queued = max_queued
        self._owners = Owners()
        self._pace = Pace()

    def owner_speaks(self, request: PlaceRequest, now: float) -> list[str]:
        """Release what an earlier incarnation of the asking service held; the ids of those that were still queued."""
        queued = []
        for request_id in self._owners.speaks(request.owner, request.owner_incarnation):
            if request_id in self.queue:
                queued.append(request_id)
            self.release(request_id, now)
        return queued

    def ask(self, request: PlaceRequest, now: float) -> None:
        """Queue a request; `place_next` gives places out. Raises DuplicateRequest, QueueFull."""
        request_id = request.request_id
        try:
            if request_id in self.queue or request_id in self.engines:
                where = "queued" if request_id in self.queue else "placed"
                raise DuplicateRequest(f"request {request_id!r} is {where} already; release it first")
            # Whoever finds a free engine does not wait, whatever the limit.
            if len(self.queue) >= self._max_queued and self.engines.choose() is None:
                waiting = len(self.queue)
                raise QueueFull(f"{waiting} requests are queued, and no more may be", self._pace.wait_s(waiting, now))
        except Refusal:
            self.refused_total += 1
            raise
        self.queue.push(request, now)
        self._owners.hold(request_id, request.owner, request.owner_incarnation)

    def place_next(self, now: float) -> Placed | None:
        """Give the next one a place; None if nobody waits or no engine has room."""
        engine = self.engines.choose()
        if engine is None or not self.queue:
            return None
        waiting = self.queue.pop()
        self.engines.place(waiting.request.request_id, waiting.tokens, engine)
        self.admitted_total += 1
        return Placed(waiting.request.request_id, engine, now - waiting.since_s)

    def release(self, request_id: str, now: float) -> bool:
        """A request has ended or is not wanted any more, queued or placed; False, and a no-op, for an unknown id."""
        self._owners.forget(request_id)
        if self.engines.release(request_id):
            self._pace.count(now)
            return True
        return self.queue.remove(request_id)
