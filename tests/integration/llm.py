"""A running engine, as its clients see it."""

from __future__ import annotations

import time
from typing import Any

from services.protocols.engine import EngineInterface, EngineStats
from services.protocols.processor import ProcessorInterface
from services.protocols.scheduler import SchedulerInterface
from zmqengine import Client, connect


class Llm:
    """Where the services of one run are, and clients of them."""

    def __init__(self, services: dict[str, dict[str, Any]], run: str) -> None:
        self.services = services
        self.run = run
        self.url: str = services["api"]["url"]

    def processor(self) -> Client:
        """A client of its processor, to be closed."""
        return connect("processor", ProcessorInterface, run=self.run)

    def engine_stats(self) -> EngineStats:
        """What its engine has to do."""
        with connect("engine", EngineInterface, run=self.run) as engine:
            stats: EngineStats = engine.stats()
        return stats

    def wait_until_idle(self, within_s: float = 10.0) -> None:
        """No sequence runs or waits, every block is free, and no place is taken."""
        until = time.monotonic() + within_s
        with (
            connect("engine", EngineInterface, run=self.run) as engine,
            connect("scheduler", SchedulerInterface, run=self.run) as scheduler,
        ):
            while True:
                stats, places = engine.stats(), scheduler.stats()
                busy = stats.running + stats.waiting + places.placed + places.queued
                if not busy and stats.free_blocks == stats.total_blocks:
                    return
                assert time.monotonic() < until, f"not idle within {within_s} s: {stats} {places}"
