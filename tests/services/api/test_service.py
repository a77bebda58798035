"""The service as a process, with another process for the processor."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from services.api.listener import listening_socket
from services.protocols.api import ApiInterface
from tests.cases.expectations import parse_events
from zmqengine import connect

ROOT = Path(__file__).parents[3]
CHAT = {"model": "smollm2", "messages": [{"role": "user", "content": "Count."}], "max_tokens": 4}
WAIT = {"model": "smollm2", "prompt": "wait", "stream": True}


class Processes:
    """Services run by hand, in a directory of their own."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.started: list[subprocess.Popen[str]] = []

    def start(self, module: str, *args: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *args],
            cwd=ROOT,
            env={**os.environ, "ZMQENGINE_RUNTIME_DIR": str(self.base)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process

    def endpoint(self, name: str) -> str:
        return f"ipc://{self.base}/{name}"

    def api(self, *options: str) -> subprocess.Popen[str]:
        peer = f"processor={self.endpoint('processor')}"
        return self.start("services.api", "--bind", self.endpoint("api"), "--peer", peer, *options)

    def close(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.communicate()


@pytest.fixture
def processes() -> Iterator[Processes]:
    base = Path(tempfile.mkdtemp(prefix="ze-", dir="/tmp"))  # short: paths of unix sockets have at most 107 bytes
    made = Processes(base)
    yield made
    made.close()
    shutil.rmtree(base)


def wait_ready(process: subprocess.Popen[str]) -> None:
    """Read the line that says so."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if "is ready" not in line:
        raise AssertionError(f"not ready: {line}{process.communicate()[1]}")


@pytest.fixture
def url(processes: Processes) -> str:
    """An api and a processor, both READY."""
    started = [
        processes.start("tests.services.api.stand_in_processor", "--bind", processes.endpoint("processor")),
        processes.api("--port", "0"),
    ]
    for process in started:
        wait_ready(process)
    return str(status(processes)["url"])


def status(processes: Processes) -> dict[str, Any]:
    """What api/1 says."""
    with connect(processes.endpoint("api"), ApiInterface, deadline_s=5.0) as client:
        answer = client.status()
    return {name: getattr(answer, name) for name in answer.__struct_fields__}


def eventually(condition: Callable[[], bool], within_s: float = 5.0) -> None:
    """Look again and again until it is so."""
    until = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < until, "it never came"
        time.sleep(0.01)


def test_a_request_goes_through_both_processes_and_is_counted(processes: Processes, url: str) -> None:
    whole = httpx.post(f"{url}/v1/chat/completions", json=CHAT).json()
    streamed = httpx.post(f"{url}/v1/chat/completions", json=CHAT | {"stream": True})
    refused = httpx.post(f"{url}/v1/completions", json={"model": "smollm2", "prompt": "word " * 3000})

    assert whole["choices"][0]["message"]["content"] == "0, 1, 2, 3, "
    assert parse_events(streamed.content)[1]
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "prompt"
    assert refused.json()["error"]["message"].startswith("prompt: 3000 tokens")
    counts = status(processes)
    assert (counts["served"], counts["refused"], counts["failed"], counts["in_flight"]) == (2, 1, 0, 0)


def test_what_is_missing_behind_is_named(url: str) -> None:
    ready = httpx.get(f"{url}/ready")

    assert ready.status_code == 503
    assert "worker is absent" in ready.json()["error"]["message"]
    assert httpx.get(f"{url}/health").status_code == 200
    assert httpx.post(f"{url}/detokenize", json={"tokens": [1]}).status_code == 503


def test_a_client_that_hangs_up_frees_the_processor(processes: Processes, url: str) -> None:
    with httpx.stream("POST", f"{url}/v1/completions", json=WAIT) as answer:
        pieces = answer.iter_bytes()  # to forget it would close the connection
        next(pieces)
        assert httpx.post(f"{url}/tokenize", json={"prompt": ""}).json()["tokens"] == [1]

    eventually(lambda: httpx.post(f"{url}/tokenize", json={"prompt": ""}).json()["tokens"] == [0])
    assert status(processes)["disconnected"] == 1


def test_a_processor_that_dies_ends_the_stream_with_an_error(processes: Processes, url: str) -> None:
    with httpx.stream("POST", f"{url}/v1/completions", json=WAIT, timeout=20) as answer:
        pieces = answer.iter_bytes()
        body = next(pieces)
        processes.started[0].kill()
        body += b"".join(pieces)
    events, done = parse_events(body)

    assert not done
    assert events[-1]["error"]["code"] == "unavailable"
    assert httpx.get(f"{url}/health").status_code == 200


def test_a_stop_ends_what_is_in_flight_with_an_error_and_leaves_nothing(processes: Processes, url: str) -> None:
    api = processes.started[1]
    with httpx.stream("POST", f"{url}/v1/completions", json=WAIT, timeout=20) as answer:
        pieces = answer.iter_bytes()
        body = next(pieces)
        api.send_signal(signal.SIGTERM)
        body += b"".join(pieces)
    _, errors = api.communicate(timeout=10)

    assert parse_events(body)[0][-1]["error"]["code"] == "aborted"
    assert api.returncode == 0
    assert "Traceback" not in errors
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/health")


def test_a_port_in_use_fails_the_start_with_port_and_option(processes: Processes) -> None:
    with listening_socket("127.0.0.1", 0, "api") as taken:
        port = taken.getsockname()[1]
        api = processes.api("--port", str(port))
        output, errors = api.communicate(timeout=20)

    assert api.returncode == 1
    assert f"api.port: port {port} on 127.0.0.1 is in use" in output + errors
    assert "Traceback" not in errors


def test_without_a_processor_it_is_alive_and_says_what_is_missing(processes: Processes) -> None:
    wait_ready(processes.api("--port", "0", "--control-timeout-s", "0.3"))
    url = status(processes)["url"]
    answer = httpx.post(f"{url}/v1/chat/completions", json=CHAT)

    assert httpx.get(f"{url}/health").status_code == 200
    assert answer.status_code == 503
    assert "processor" in answer.json()["error"]["message"]
    assert answer.headers["retry-after"] == "1"


TABLE = """
[[service]]
name = "processor"
impl = "tests.services.api.stand_in_processor:StandInProcessor"
protocol = "processor/1"

[[service]]
name = "api"
impl = "services.api.service:Api"
protocol = "api/1"
[service.options]
port = 0
"""


def test_a_drained_run_ends_what_is_in_flight_and_refuses_what_comes(processes: Processes) -> None:
    table = processes.base / "table.toml"
    table.write_text(TABLE)
    assert processes.start("zmqengine.cli.main", "up", str(table), "--detach").wait(60) == 0
    try:
        listed, _ = processes.start("zmqengine.cli.main", "ps", "--json").communicate(timeout=20)
        url = next(row["url"] for row in json.loads(listed) if row["name"] == "api")
        slow = {"model": "smollm2", "prompt": "slow", "max_tokens": 20, "stream": True}
        with httpx.stream("POST", f"{url}/v1/completions", json=slow, timeout=20) as answer:
            pieces = answer.iter_bytes()
            body = next(pieces)
            down = processes.start("zmqengine.cli.main", "down")
            eventually(lambda: httpx.get(f"{url}/ready").status_code == 503 and _refuses(url))
            body += b"".join(pieces)
        assert down.wait(30) == 0
    finally:
        processes.start("zmqengine.cli.main", "down").wait(30)

    chunks, done = parse_events(body)
    assert done
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks).endswith("19, ")


def _refuses(url: str) -> bool:
    answer = httpx.post(f"{url}/v1/chat/completions", json=CHAT)
    return answer.status_code == 503 and answer.json()["error"]["code"] == "draining"
