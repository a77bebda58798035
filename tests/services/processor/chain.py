"""Scheduler, stand-in engine and processor as processes that run by hand."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from services.protocols.processor import GenerateText, ProcessorInterface, TextDelta, TextPrompt
from services.protocols.sampling import SamplingParams
from services.protocols.scheduler import SchedulerInterface, SchedulerStats
from zmqengine import Client, connect
from zmqengine.streams import Stream

from ..engine.processes import Processes, _flags
from .gguf_vocabulary import write_vocabulary
from .stand_in_engine import Seen, StandInEngine

CHAT_TEMPLATE = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"


class Chain(Processes):
    """A processor with a small vocabulary, and what stands behind it."""

    def __init__(self, base: Path) -> None:
        super().__init__(base)
        self.model = write_vocabulary(base / "tiny.gguf", chat_template=CHAT_TEMPLATE)

    def scheduler(self, **options: Any) -> subprocess.Popen[str]:
        return self.start("services.scheduler", "scheduler", *_flags(options))

    def stand_in(self, **options: Any) -> subprocess.Popen[str]:
        return self.start("tests.services.processor.stand_in_engine", "engine", *_flags(options))

    def processor(self, **options: Any) -> subprocess.Popen[str]:
        peers = [f"--peer={name}={self.endpoint(name)}" for name in ("engine", "scheduler")]
        return self.start("services.processor", "processor", *peers, *_flags({"model": self.model, **options}))

    def all(self, **engine: Any) -> Client:
        """Start everything with its defaults; a client of the processor."""
        self.scheduler()
        self.stand_in(**engine)
        self.processor()
        return self.asker()

    def asker(self, deadline_s: float = 20.0) -> Client:
        """A client of the processor."""
        client = connect(self.endpoint("processor"), ProcessorInterface, deadline_s=deadline_s)
        self._clients.append(client)
        return client

    def engine_seen(self) -> Seen:
        with connect(self.endpoint("engine"), StandInEngine, deadline_s=5.0) as client:
            seen: Seen = client.seen()
            return seen

    def placed(self) -> SchedulerStats:
        with connect(self.endpoint("scheduler"), SchedulerInterface, deadline_s=5.0) as client:
            stats: SchedulerStats = client.stats()
            return stats

    def is_idle(self) -> bool:
        """Whether no place is held and nothing is generated."""
        return self.placed().placed == 0 and self.engine_seen().running == []


def text(prompt: str, max_tokens: int, request_id: str = "r", **fields: Any) -> GenerateText:
    return GenerateText(
        request_id=request_id, prompt=TextPrompt(text=prompt), sampling=SamplingParams(max_tokens=max_tokens), **fields
    )  # fmt: skip


class Collected:
    """Deltas of one stream, checked as they come."""

    def __init__(self) -> None:
        self.deltas: list[TextDelta] = []
        self.texts: dict[int, str] = {}
        self.last: dict[int, TextDelta] = {}

    def take(self, delta: TextDelta) -> None:
        assert delta.index not in self.last, "something came behind the end"
        assert "\ufffd" not in delta.text
        self.deltas.append(delta)
        self.texts[delta.index] = self.texts.get(delta.index, "") + delta.text
        if delta.finish_reason is not None:
            self.last[delta.index] = delta


def collect(client: Client, request: GenerateText) -> Collected:
    """The whole stream of a request."""
    collected = Collected()
    for delta in client.generate(request):
        collected.take(delta)
    return collected


def follow(client: Client, request: GenerateText) -> tuple[Stream[TextDelta], Collected]:
    """Begin a request, and collect while the client is turned."""
    stream: Stream[TextDelta] = client.begin.generate(request)
    collected = Collected()
    stream.subscribe(collected.take)
    return stream, collected


def turn_until(client: Client, condition: Callable[[], object], within_s: float = 20.0) -> None:
    until = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < until, "it never came"
        client.turn(time.monotonic() + 0.1)
