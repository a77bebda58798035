"""The engine in a run whose supervisor starts its worker anew."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest

from services.protocols.engine import EngineInterface
from tests.integration.conftest import runs as runs  # the fixture
from tests.integration.runs import Runs
from zmqengine import connect

from .fake_worker import undisturbed
from .fake_worker_service import FakeWorkerService
from .processes import Collected
from .simulation import message


@pytest.fixture
def up(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runs]:
    monkeypatch.setenv("ZMQENGINE_RUNTIME_DIR", str(runs.base))
    worker = {
        "name": "worker", "impl": "tests.services.engine.fake_worker_service:FakeWorkerService",
        "protocol": "worker/1", "options": {"step_s": 0.005},
        "restart": {"strategy": "one_for_one", "intensity": 5, "period": 60, "backoff": [0.01, 0.1]},
    }  # fmt: skip
    engine = {"name": "engine", "impl": "services.engine.service:Engine", "protocol": "engine/1"}
    runs.run("up", runs.table(engine, worker), "--detach")
    yield runs
    runs.run("down")


def test_requests_go_on_with_each_worker_that_the_supervisor_starts(up: Runs) -> None:
    asked = [message(f"r{i}", [9 + i, 0], 150, ignore_eos=True) for i in range(4)]
    collected = [Collected(each) for each in asked]
    killed: list[int] = []
    with connect("engine", EngineInterface, deadline_s=60.0) as client:
        streams = [client.begin.generate(each) for each in asked]
        for stream, each in zip(streams, collected, strict=True):
            stream.subscribe(each.take)
        while not all(stream.ended for stream in streams):
            client.turn(time.monotonic() + 0.1)
            if len(killed) < 2 and min(len(each.token_ids) for each in collected) > 40 * (len(killed) + 1):
                pid = up.services()["worker"]["pid"]
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)

    for each in collected:
        assert (each.token_ids, each.reason) == undisturbed(each.asked.prompt_token_ids, each.asked.sampling)
    with connect("worker", FakeWorkerService, deadline_s=5.0) as worker:
        seen = worker.seen()
    assert seen.violations == []
    assert seen.pid not in killed
    assert len(set(killed)) == 2
