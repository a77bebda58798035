"""Time from `zmqengine up llm --detach` to ready, against one bare process that imports torch and loads the weights.

    python scripts/bench_startup.py [--runs N] [--json]

Both are timed from outside, from spawn to exit (the bare process) or to the return of `up` (all READY), alternating.
The bare process uses the worker's own loading code. What `up` does beside it (five interpreters, tokenizer, KV cache,
the selftest's step) is what the ratio is about: there is no sleep in it to find.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time

import click
from benchmark import at_most, report
from rich.table import Table

from services.models.store import resolve

GOAL = 1.3
BARE = """
import sys
from pathlib import Path
import torch
from services.worker.loading import load_model
from services.worker.threads import prepare_threads
torch.set_num_threads(prepare_threads(None))
load_model(Path(sys.argv[1]), "float32", "cpu")
"""


def timed(command: list[str], environ: dict[str, str]) -> float:
    """Seconds that a command takes."""
    started = time.monotonic()
    subprocess.run(command, check=True, env=environ, stdout=subprocess.DEVNULL)
    return time.monotonic() - started


def measure(runs: int) -> tuple[list[float], list[float]]:
    """Seconds of each bare load, and of each start until ready."""
    path = str(resolve("smollm2").path)
    bare, up = [], []
    with tempfile.TemporaryDirectory(prefix="ze-", dir="/tmp") as base:
        environ = {**os.environ, "ZMQENGINE_RUNTIME_DIR": base}
        command = [sys.executable, "-m", "zmqengine.cli.main"]
        for number in range(runs + 1):
            seconds_bare = timed([sys.executable, "-c", BARE, path], environ)
            started = [*command, "up", "llm", "--detach", "--set", "dtype=float32", "--set", "api.port=0"]
            try:
                seconds_up = timed(started, environ)
            finally:
                subprocess.run([*command, "down"], check=False, env=environ, stdout=subprocess.DEVNULL)
            if number:  # the first of each fills the page cache
                bare.append(seconds_bare)
                up.append(seconds_up)
    return bare, up


@click.command()
@click.option("--runs", default=7, show_default=True, type=click.IntRange(1))
@click.option("--json", "as_json", is_flag=True)
def main(runs: int, as_json: bool) -> None:
    """Time from `zmqengine up llm --detach` to ready, against a bare load of the same weights."""
    bare, up = measure(runs)
    ratio = statistics.median(up) / statistics.median(bare)
    table = Table("", "median s", "min s", "max s", box=None, header_style="bold")
    for name, seconds in (("bare load", bare), ("up to ready", up)):
        table.add_row(name, *(f"{f(seconds):.2f}" for f in (statistics.median, min, max)))
    checks = [at_most("up / bare load", ratio, GOAL)]
    sys.exit(report({"bare_s": bare, "up_s": up}, checks, table, as_json=as_json))


if __name__ == "__main__":
    main()
