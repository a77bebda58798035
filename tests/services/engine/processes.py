"""An engine and its worker as processes that run by hand."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from services.protocols.engine import EngineInterface, EngineStats, GenerateTokens, TokenChunk
from zmqengine import Client, connect

from .fake_worker_service import FakeWorkerService, Seen

ROOT = Path(__file__).parents[3]


class Processes:
    """Services run by hand, in a directory of their own."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.started: list[subprocess.Popen[str]] = []
        self._clients: list[Client] = []

    def endpoint(self, name: str) -> str:
        return f"ipc://{self.base}/{name}"

    def start(self, module: str, name: str, *args: str) -> subprocess.Popen[str]:
        """Start a service; it is READY when this returns."""
        process = subprocess.Popen(
            [sys.executable, "-m", module, "--bind", self.endpoint(name), *args],
            cwd=ROOT,
            env={**os.environ, "ZMQENGINE_RUNTIME_DIR": str(self.base)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        assert process.stdout is not None
        line = process.stdout.readline()
        if "is ready" not in line:
            raise AssertionError(f"not ready: {line}{process.communicate()[1]}")
        return process

    def worker(self, **options: float) -> subprocess.Popen[str]:
        return self.start("tests.services.engine.fake_worker_service", "worker", *_flags(options))

    def engine(self, **options: float) -> subprocess.Popen[str]:
        return self.start("services.engine", "engine", "--peer", f"worker={self.endpoint('worker')}", *_flags(options))

    def client(self, deadline_s: float = 20.0) -> Client:
        """A client of the engine."""
        client = connect(self.endpoint("engine"), EngineInterface, deadline_s=deadline_s)
        self._clients.append(client)
        return client

    def seen(self) -> Seen:
        """What the fake worker has seen."""
        with connect(self.endpoint("worker"), FakeWorkerService, deadline_s=5.0) as client:
            seen: Seen = client.seen()
            return seen

    def stats(self) -> EngineStats:
        with connect(self.endpoint("engine"), EngineInterface, deadline_s=5.0) as client:
            stats: EngineStats = client.stats()
            return stats

    def kill(self, process: subprocess.Popen[str]) -> None:
        """SIGKILL, and reap."""
        process.kill()
        process.communicate()

    def close(self) -> None:
        for client in self._clients:
            client.close()
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.communicate()


def _flags(options: dict[str, Any]) -> list[str]:
    return [text for name, value in options.items() for text in (f"--{name.replace('_', '-')}", str(value))]


class Collected:
    """Chunks of one stream, checked for gaps."""

    def __init__(self, asked: GenerateTokens) -> None:
        self.asked = asked
        self.token_ids: list[int] = []
        self.chunks: list[TokenChunk] = []

    def take(self, chunk: TokenChunk) -> None:
        assert not self.chunks or self.chunks[-1].finish_reason is None, "something came behind the end"
        assert chunk.start == len(self.asked.generated_token_ids) + len(self.token_ids)
        self.token_ids += chunk.token_ids
        self.chunks.append(chunk)

    @property
    def reason(self) -> str | None:
        return self.chunks[-1].finish_reason if self.chunks else None


def collect(client: Client, asked: GenerateTokens) -> Collected:
    """The whole stream of a request."""
    collected = Collected(asked)
    for chunk in client.generate(asked):
        collected.take(chunk)
    return collected


def eventually(condition: Callable[[], bool], within_s: float = 10.0) -> None:
    """Look again and again until it is so."""
    until = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < until, "it never came"
        time.sleep(0.01)
