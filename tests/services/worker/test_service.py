"""The worker as a process."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from services.protocols.worker import StepBatch, WorkerInterface
from zmqengine import Client, connect
from zmqengine.errors import InvalidArgument

from .stepping import advance, new
from .tiny_models import Tiny, write_folder

ROOT = Path(__file__).parents[3]


class Worker:
    """`python -m services.worker`, in a directory of its own."""

    def __init__(self, base: Path, *options: str) -> None:
        self.endpoint = f"ipc://{base}/worker"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "services.worker", "--bind", self.endpoint, *options],
            cwd=ROOT, env={**os.environ, "ZMQENGINE_RUNTIME_DIR": str(base)}, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def wait_ready(self) -> None:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if "is ready" not in line:
            raise AssertionError(f"not ready: {line}{self.process.communicate()[1]}")

    def connect(self) -> Client:
        return connect(self.endpoint, WorkerInterface, deadline_s=20.0)

    def stop(self) -> tuple[str, str]:
        if self.process.poll() is None:
            self.process.terminate()
        return self.process.communicate(timeout=20)


Start = Callable[..., Worker]


@pytest.fixture
def start() -> Iterator[Start]:
    base = Path(tempfile.mkdtemp(prefix="ze-", dir="/tmp"))  # short: paths of unix sockets have at most 107 bytes
    workers: list[Worker] = []

    def make(*options: str) -> Worker:
        workers.append(Worker(base, *options))
        return workers[-1]

    yield make
    for worker in workers:
        worker.stop()
    shutil.rmtree(base)


def test_a_worker_tells_what_it_loaded_runs_steps_and_refuses_wrong_ones(start: Start, tiny_folder: Path) -> None:
    worker = start("--model", str(tiny_folder), "--num-kv-blocks", "20", "--block-size", "4", "--max-seqs", "3")
    worker.wait_ready()
    with worker.connect() as client:
        info = client.info()
        assert (info.model, info.architecture, info.dtype, info.device) == (str(tiny_folder), "llama", "float32", "cpu")
        assert (info.vocab_size, info.num_blocks, info.block_size, info.max_seqs) == (97, 20, 4, 3)
        assert info.max_context == 80  # what the blocks hold, less than the model's 128
        assert info.eos_token_ids == [2]
        assert info.kv_bytes == 20 * 4 * 2 * 2 * 32 * 4
        step = StepBatch(step=0, add=[new(0, [4, 5], logprobs=2)], advance=[advance(0, 0, 2, [9])])
        first = client.step(step)
        assert first.sampled[0].logprob.token_id == first.sampled[0].token_id
        with pytest.raises(InvalidArgument) as caught:
            client.step(StepBatch(step=1, advance=[advance(0, 2, 1), advance(2, 0, 1)]))
        assert caught.value.field == "batch.advance[1].slot"
        client.step(StepBatch(step=1, advance=[advance(0, 2, 1)]))
        client.reset()
        assert client.step(step).sampled == first.sampled
    _, errors = worker.stop()
    assert worker.process.returncode == 0
    assert "Traceback" not in errors


def test_a_measured_cache_shows_its_arithmetic_in_the_log(start: Start, tiny_folder: Path) -> None:
    worker = start("--model", str(tiny_folder))
    worker.wait_ready()
    with worker.connect() as client:
        assert client.info().num_blocks == 64 * 8  # all that 64 slots of 128 tokens can use
    _, errors = worker.stop()
    assert "KV cache: 512 blocks" in errors
    assert "for a largest step" in errors


def cut_off(folder: Path) -> list[str]:
    write_folder(folder, Tiny())
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    return ["--model", str(folder)]


def not_gguf(folder: Path) -> list[str]:
    (folder / "m.gguf").write_bytes(b"GGML" * 9)
    return ["--model", str(folder / "m.gguf")]


def unknown_architecture(folder: Path) -> list[str]:
    write_folder(folder, Tiny(architecture="MambaForCausalLM"))
    return ["--model", str(folder)]


def missing(folder: Path) -> list[str]:
    return ["--model", str(folder / "gone.gguf")]


def too_little_memory(folder: Path) -> list[str]:
    write_folder(folder, Tiny())
    return ["--model", str(folder), "--memory-utilization", "1e-12"]


def too_many_blocks(folder: Path) -> list[str]:
    write_folder(folder, Tiny())
    return ["--model", str(folder), "--num-kv-blocks", str(10**12)]


def no_numbers(folder: Path) -> list[str]:
    tiny = Tiny()
    write_folder(folder, tiny, {name: tensor * float("nan") for name, tensor in tiny.tensors().items()})
    return ["--model", str(folder)]


@pytest.mark.parametrize(
    ("prepare", "said"),
    [
        (missing, "gone.gguf"),
        (cut_off, "model.safetensors: is truncated"),
        (not_gguf, "m.gguf: not a GGUF file"),
        (unknown_architecture, "config.json: has the architecture 'MambaForCausalLM'"),
        (too_little_memory, "too little memory for one KV block"),
        (too_many_blocks, "num_kv_blocks=1000000000000 needs"),
        (no_numbers, "its logits are not numbers"),
    ],
)
def test_a_start_that_cannot_succeed_ends_with_the_reason(
    start: Start, tmp_path: Path, prepare: Callable[[Path], list[str]], said: str
) -> None:
    began = time.monotonic()
    worker = start(*prepare(tmp_path))
    output, errors = worker.process.communicate(timeout=60)
    assert worker.process.returncode not in (0, None)
    assert said in output + errors
    assert time.monotonic() - began < 60


def test_an_option_out_of_range_is_named(start: Start) -> None:
    worker = start("--block-size", "0")
    output, errors = worker.process.communicate(timeout=30)
    assert worker.process.returncode != 0
    assert "block_size" in output + errors


def test_importing_the_service_does_not_import_torch() -> None:
    program = "import services.worker.service, sys; print('torch' in sys.modules, 'numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "False False"
