"""broker/1: what a run's broker answers: who is served where, how each service is, and the commands of the CLI."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .interface import Interface, call, stream
from .lifecycle import State
from .message import Message
from .peer import Location
from .reconcile import Step
from .table import Table


class ServiceStatus(Message):
    """One service of the run. Times are of the machine's monotonic clock, in seconds; null until they happen."""

    name: str
    state: State
    pid: int | None
    incarnation: str
    protocol: str
    endpoint: str | None
    control: str | None
    restarts: int
    uptime_s: float | None
    """Since it was READY."""
    rss_bytes: int | None
    spawned_at: float | None = None
    hello_at: float | None = None
    imported_at: float | None = None
    setup_at: float | None = None
    ready_at: float | None = None
    url: str | None = None
    """For a service that serves HTTP."""
    error: str | None = None
    progress: str | None = None
    """What it is doing, while it is LOADING."""
    after: list[str] = []
    """Whom it waits for before it is set up."""
    calls: int = 0
    """Taken since it began."""
    in_flight: int = 0
    """Calls without an answer yet."""
    queued: int = 0
    """What waits in it, as it says itself."""
    refused: int = 0
    """Connections, and messages of keys that were revoked since, that it did not take."""
    p50_s: float | None = None
    p99_s: float | None = None
    """From a call to its answer, over the last minute or so."""


class RunStatus(Message):
    """The whole run."""

    run: str
    pid: int
    phase: str
    """starting, up, stopping or stopped."""
    table: str
    ready_after_s: float | None
    """From the start of the run until all was READY."""
    services: list[ServiceStatus]
    started_at: float | None = None
    """When the run was started, in seconds of the machine's monotonic clock."""


class Event(Message):
    """Something that happened in the run, as `zmqengine up` prints it."""

    at: float
    """Monotonic seconds."""
    kind: str
    """state, progress, failed, up, stopped."""
    service: str = ""
    state: State | None = None
    text: str = ""
    seconds: float | None = None
    """Since the start of the run, or of the phase that ended."""


class SwapRequest(Message):
    """What is to take the place of a service."""

    name: str
    impl: str = ""
    command: list[str] = []
    """What to run instead of what its row says; both empty: the same, anew."""
    options: dict[str, Any] = {}
    """Over those of the row."""
    mode: str = ""
    """start_first or stop_first instead of the row's."""


class Swapped(Message):
    """A swap that succeeded."""

    old: str
    new: str
    """Incarnations."""
    seconds: float
    """From the request until the new one served."""


class BrokerInterface(Interface, protocol="broker/1"):
    """Registry and supervisor of one run."""

    @call(idempotent=True)
    def status(self) -> RunStatus:
        """How everything is."""

    @call(idempotent=True)
    def resolve(self, name: str, wait: bool = False) -> Location:
        """Where a service is served.

        wait: answer when it is READY, within the call's budget. Errors: not_found (no such service), unavailable (it
        is not READY, or is quarantined: says why).
        """

    @call
    def stop(self, force: bool = False) -> None:
        """Stop the whole run: drain and stop in reverse order; force: kill. Answered when it has begun."""

    @call
    def restart(self, name: str) -> None:
        """Restart one service. Answered when it has begun."""

    @call
    def apply(self, table: Table, dry_run: bool = False) -> list[Step]:
        """Make the run as a table says: start, stop and restart only what differs. Answered when it has begun.

        dry_run: answer the steps, and do nothing. Errors: invalid_argument (a table that contradicts itself),
        unavailable (the run is starting or stopping).
        """

    @call
    def swap(self, request: SwapRequest) -> Swapped:
        """Replace a service by another incarnation while the system serves; answered when the new one serves.

        Errors: unavailable (why the old incarnation serves on, or is started again),
        not_found, invalid_argument (a service that is run by hand; a swap that is under way).
        """

    @stream
    def events(self) -> Iterator[Event]:
        """What happens from now on, until the run has stopped."""
