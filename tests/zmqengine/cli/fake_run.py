"""A run that answers what a test says, in the place of a broker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import pytest

from zmqengine.broker_interface import RunStatus, ServiceStatus
from zmqengine.lifecycle import State


class FakeBroker:
    """Answers `status` with one status after the other, the last one for ever; an error among them is raised."""

    def __init__(self, *answers: RunStatus | Exception) -> None:
        self.answers = list(answers)
        self.idled: list[float] = []

    def status(self) -> RunStatus:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def idle(self, seconds: float) -> None:
        self.idled.append(seconds)


def take_place(monkeypatch: pytest.MonkeyPatch, command: ModuleType, broker: FakeBroker) -> None:
    """Whatever run the command asks for, it gets this one."""

    @contextmanager
    def connect(*_: object, **__: object) -> Iterator[FakeBroker]:
        yield broker

    monkeypatch.setattr(command, "connect", connect)


def service(name: str, state: State = State.READY, **fields: Any) -> ServiceStatus:
    """One that is served and has nothing to do, but for `fields`."""
    usual = {
        "pid": None, "incarnation": "i1", "protocol": "p/1", "endpoint": None, "control": None, "restarts": 0,
        "uptime_s": 5.0, "rss_bytes": 29_000_000,
    }  # fmt: skip
    return ServiceStatus(name=name, state=state, **(usual | fields))  # type: ignore[arg-type]


def status(*services: ServiceStatus, **fields: Any) -> RunStatus:
    """A run of these that is up."""
    usual = {"run": "r", "pid": 1, "phase": "up", "table": "t", "ready_after_s": 5.0, "started_at": 100.0}
    return RunStatus(services=list(services), **(usual | fields))  # type: ignore[arg-type]


def lines_at(width: int, renderable: Any) -> list[str]:
    """What a terminal without colours shows, without the space at the ends of lines."""
    from rich.console import Console

    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(renderable)
    return [line.rstrip() for line in capture.get().splitlines()]
