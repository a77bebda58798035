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


def timeline(services: Sequence[ServiceStatus]) -> list[Phase]:
    """The phases of those that became READY, in their order; of one that was restarted, its last start."""
    started = {service.name: service for service in services if service.ready_at is not None}
    spawns = [service.spawned_at for service in started.values() if service.spawned_at is not None]
    if not spawns:
        return []
    zero = min(spawns)
    critical = critical_chain(list(started.values()))
    phases = []
    for service in started.values():
        marks = _marks(service)
        for name, start, end in zip(PHASES, marks, marks[1:], strict=False):
            phases.append(Phase(service.name, name, start - zero, end - zero, (service.name, name) in critical))
    return phases


def critical_chain(services: Sequence[ServiceStatus]) -> list[tuple[str, str]]:
    """(service, phase), first to last: each could only begin when the one before it had ended, up to the last READY."""
    by_name = {service.name: service for service in services}
    if not by_name:
        return []
    service = max(by_name.values(), key=lambda s: s.ready_at or 0.0)
    chain: list[tuple[str, str]] = []
    while True:
        chain.append((service.name, "setup"))
        waited_for = [by_name[name] for name in service.after if name in by_name]
        last = max(waited_for, key=lambda s: s.ready_at or 0.0, default=None)
        if last is None or (last.ready_at or 0.0) <= (service.imported_at or 0.0):
            return [(service.name, "spawn"), (service.name, "import"), *reversed(chain)]
        service = last


def _marks(service: ServiceStatus) -> list[float]:
    """Times at which the phases begin and end."""
    hello = service.hello_at or service.ready_at or 0.0
    times = [service.spawned_at, service.hello_at, service.imported_at, service.setup_at, service.ready_at]
    return [hello if at is None else at for at in times]
