"""What a service's control thread may know of its main thread: written there, read here, one value at a time."""

from __future__ import annotations

import os
from collections.abc import Callable

from .health import Health, Progress
from .lifecycle import State
from .loop import Loop
from .spawn import SpawnInfo


class Vitals:
    """State of one incarnation. Single attributes are read and written atomically; nothing is computed over two."""

    def __init__(self, info: SpawnInfo) -> None:
        self.info = info
        self.state = State.CONNECTED
        self.protocol = ""
        self.schema = ""
        self.methods: dict[str, str] = {}
        self.config_digest = ""
        self.progress: Progress | None = None
        self.error: str | None = None
        self.announced: dict[str, str] = {}
        self.loop: Loop | None = None
        self.queued: Callable[[], int] = lambda: 0
        self.refused: Callable[[], int] = lambda: 0

    def health(self) -> Health:
        """A snapshot."""
        loop = self.loop
        busy_since = None if loop is None else loop.busy_since
        now = 0.0 if loop is None else loop.clock()
        dispatcher = None if loop is None else loop.dispatcher
        p50, p99 = (None, None) if dispatcher is None else dispatcher.latencies.quantiles(0.5, 0.99)
        return Health(
            name=self.info.name, pid=os.getpid(), incarnation=self.info.incarnation, state=self.state,
            protocol=self.protocol, schema=self.schema, progress=self.progress,
            turns=0 if loop is None else loop.turns,
            busy_s=None if busy_since is None else max(0.0, now - busy_since),
            busy_allowed_s=0.0 if loop is None else max(0.0, loop.busy_until - now),
            in_flight=0 if dispatcher is None else dispatcher.in_flight,
            calls=0 if dispatcher is None else dispatcher.calls,
            queued=self.queued(), refused=self.refused(), p50_s=p50, p99_s=p99,
            error=self.error, announced=self.announced,
        )  # fmt: skip
