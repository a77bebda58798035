"""Where the time of a start went: each service's phases, and the chain of them that decided when all was ready."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .broker_interface import ServiceStatus

PHASES = ("spawn", "import", "wait", "setup")
"""Until HELLO; until the code is imported; until the release; until READY."""


@dataclass(frozen=True, slots=True)
class Phase:
    """One phase of one service. Times are seconds since the first spawn."""

    service: str
    name: str
    start_s: float
    end_s: float
    critical: bool = False
    """Part of the chain that decided when all was ready."""

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.end_s - self.start_s


def of_the_start(services: Sequence[ServiceStatus], up_at: float | None) -> list[ServiceStatus]:
    """Those that became READY and whose last start was part of the run's, which ended at `up_at`.

    One that was started anew since is left out: hours later, its phases would make all others too short to be seen.
    """
    return [
        service for service in services
        if service.ready_at is not None and (up_at is None or _marks(service)[0] <= up_at)
    ]  # fmt: skip


def timeline(services: Sequence[ServiceStatus]) -> list[Phase]:
    """The phases of those that became READY, in their order; of one that was restarted, its last start."""
    started = [service for service in services if service.ready_at is not None]
    if not started:
        return []
    zero = min(_marks(service)[0] for service in started)
    critical = critical_chain(started)
    phases = []
    for service in started:
        marks = _marks(service)
        for name, start, end in zip(PHASES, marks, marks[1:], strict=False):
            phases.append(Phase(service.name, name, start - zero, end - zero, (service.name, name) in critical))
    return phases


def critical_chain(services: Sequence[ServiceStatus]) -> list[tuple[str, str]]:
    """(service, phase), first to last: each could only begin when the one before it had ended, up to the last READY."""
    by_name = {service.name: service for service in services if service.ready_at is not None}
    if not by_name:
        return []
    service = max(by_name.values(), key=_ready)
    chain: list[tuple[str, str]] = []
    while True:
        chain.append((service.name, "setup"))
        *_, imported, released, _ = _marks(service)
        # One that became READY after the release was started anew since: another start of it was waited for.
        waited_for = [by_name[name] for name in service.after if name in by_name and _ready(by_name[name]) <= released]
        last = max(waited_for, key=_ready, default=None)
        if last is None or _ready(last) <= imported:
            return [(service.name, "spawn"), (service.name, "import"), *reversed(chain)]
        service = last


def _ready(service: ServiceStatus) -> float:
    return _marks(service)[-1]


def _marks(service: ServiceStatus) -> list[float]:
    """Times at which the phases begin and end. A mark that is missing, as the spawn of a service that is run by hand,
    is where the next one is: that phase took no time."""
    marks = [service.ready_at or 0.0]
    for at in (service.setup_at, service.imported_at, service.hello_at, service.spawned_at):
        marks.append(marks[-1] if at is None else at)
    return marks[::-1]
