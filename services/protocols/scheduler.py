"""scheduler/1: admits requests and chooses the engine for each. Spoken by the processor; two services implement it."""

from typing import Annotated

from msgspec import Meta

from zmqengine import Interface, Message, call, tell


class PlaceRequest(Message):
    """Asks for a place in an engine."""

    request_id: Annotated[str, Meta(min_length=1, max_length=256)]
    prompt_tokens: Annotated[int, Meta(ge=1)]
    max_tokens: Annotated[int, Meta(ge=1)]
    owner: str
    """Who holds the placement: the asking service's name and incarnation. When a newer incarnation of the same name
    asks, what the older one held is released."""
    owner_incarnation: str
    priority: int = 0
    """Lower is placed first."""
    tenant: str = ""
    """Whom the request is for; placements are shared fairly among tenants of one priority."""


class Placement(Message):
    request_id: str
    engine: str
    """Service name of the engine that takes the request."""
    waited_s: float
    """How long it was queued."""


class SchedulerStats(Message):
    queued: int
    placed: int
    """Requests placed and not yet released."""
    admitted_total: int
    refused_total: int


class SchedulerInterface(Interface, protocol="scheduler/1"):
    """Admission, queue, priority, fairness, choice of the engine."""

    @call
    def place(self, request: PlaceRequest) -> Placement:
        """Wait for a place. Cancelling it, or its deadline, takes the request out of the queue.

        Errors: overloaded with retry_after_s (queue full), invalid_argument (the id is placed already), unavailable
        (draining). The holder must `release` the placement when the request has ended.
        """

    @tell
    def release(self, request_id: str) -> None:
        """A request has ended, however. An unknown id is a no-op."""

    @call(idempotent=True)
    def stats(self) -> SchedulerStats:
        """Counters and gauges."""
