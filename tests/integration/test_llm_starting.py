"""Starting the engine: models that cannot be loaded, two engines at once, Ctrl-C at any moment."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import httpx
import pytest

from services.models.store import resolve

from .runs import Runs, wait_until

MODEL = resolve("smollm2").path


def truncated(folder: Path) -> Path:
    path = folder / "truncated.gguf"
    with MODEL.open("rb") as source:
        path.write_bytes(source.read(8 << 20))
    return path


def no_gguf(folder: Path) -> Path:
    path = folder / "text.gguf"
    path.write_text("this is not a model\n" * 100)
    return path


def unknown_architecture(folder: Path) -> Path:
    path = folder / "unknown.gguf"
    data = MODEL.read_bytes()
    key = data.index(b"general.architecture")
    value = data.index(b"llama", key)
    path.write_bytes(data[:value] + b"zebra" + data[value + 5 :])
    return path


def missing(folder: Path) -> Path:
    return folder / "missing.gguf"


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (missing, "there is no"),
        (truncated, "is truncated"),
        (no_gguf, "not a GGUF file"),
        (unknown_architecture, "architecture 'zebra'"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
@pytest.mark.parametrize("given_to", ["llm", "worker"])
def test_a_model_that_cannot_be_loaded_ends_the_start_with_one_clear_message(
    runs: Runs, tmp_path: Path, make: object, reason: str, given_to: str
) -> None:
    assert callable(make)
    path = make(tmp_path)
    key = "model" if given_to == "llm" else "worker.model"
    done = runs.run("up", "llm", "--detach", "--set", "api.port=0", "--set", f"{key}={path}", ok=False)
    ended = time.time()
    check_failed_start(runs, done, ended, str(path), reason)
    assert ("worker did not start" if given_to == "worker" else "did not start") in done.stderr


def test_too_little_memory_for_one_block_ends_the_start_with_the_numbers(runs: Runs) -> None:
    done = runs.run(
        "up", "llm", "--detach", "--set", "api.port=0", "--set", "worker.memory_utilization=1e-9", ok=False
    )  # fmt: skip
    check_failed_start(runs, done, time.time(), str(MODEL), "too little memory for one KV block: ")
    assert "worker did not start" in done.stderr


def check_failed_start(
    runs: Runs, done: subprocess.CompletedProcess[str], ended: float, path: str, reason: str
) -> None:
    assert done.returncode == 1
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, done.stderr
    assert path in errors[0]
    assert reason in errors[0]
    # The service logs its failure at the moment of it.
    failures = [line for line in runs.log_lines() if " failed: " in line.text and path in line.text]
    assert failures
    assert ended - min(line.at for line in failures) < 2.0
    runs.assert_nothing_left(within_s=0.5)


@pytest.mark.timeout(180)
def test_two_engines_run_side_by_side_and_one_outlives_the_other(runs: Runs) -> None:
    names = ["one", "two"]
    for name in names:
        runs.run("up", "llm", "--detach", "--run", name, "--set", "api.port=0")
    urls = [str(runs.services(name)["api"]["url"]) for name in names]
    assert urls[0] != urls[1]
    body = {"model": "smollm2", "prompt": "The capital of France is", "max_tokens": 4, "temperature": 0}
    for url in urls:
        answer = httpx.post(f"{url}/v1/completions", json=body, timeout=60).json()
        assert answer["choices"][0]["text"].startswith(" Paris")
    runs.run("down", "--run", "one")
    assert httpx.post(f"{urls[1]}/v1/completions", json=body, timeout=60).status_code == 200
    runs.run("down", "--run", "two")


@pytest.mark.parametrize("after_s", [0.05, 0.4, 0.8, 1.2, 1.8, 2.5, 3.2, 4.0])
def test_ctrl_c_at_any_moment_of_the_start_leaves_nothing(runs: Runs, after_s: float) -> None:
    launcher = runs.start("up", "llm", "--set", "api.port=0")
    with pytest.raises(subprocess.TimeoutExpired):
        launcher.wait(after_s)
    launcher.send_signal(signal.SIGINT)
    # -SIGINT: it came while the interpreter itself was starting, before there was a program to handle it.
    assert launcher.wait(10) in (0, 130, -signal.SIGINT)
    runs.assert_nothing_left(within_s=0.5)


def test_ctrl_c_once_it_serves_drains_and_leaves_nothing(runs: Runs) -> None:
    launcher = runs.start("up", "llm", "--set", "api.port=0")
    wait_until(lambda: _ready(runs), 60, "it is ready")
    launcher.send_signal(signal.SIGINT)
    output, _ = launcher.communicate(timeout=20)
    assert launcher.returncode in (0, 130)
    assert "ready in" in output
    runs.assert_nothing_left(within_s=0.5)


def _ready(runs: Runs) -> bool:
    done = runs.run("ps", "--json", ok=False)
    return done.returncode == 0 and done.stdout.count('"READY"') == 5
