"""Start of ten trivial services in a chain, against ten bare interpreters that import pyzmq and msgpack one by one.

    python scripts/bench_chain.py [--runs N] [--json]

Both are timed from outside and alternate. In a chain every service's setup waits for the one before it, while its
process is spawned and imports at once; side by side, none waits.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click
from benchmark import at_most, report
from rich.table import Table

SERVICES = 10
CHAIN_GOAL, SIDE_BY_SIDE_GOAL = 1.25, 1.0
BARE = "import zmq, msgpack"
TRIVIAL = """
from zmqengine import Service, call
class Trivial(Service, protocol="trivial/1"):
    @call
    def ping(self) -> None: ...
"""


def bare() -> float:
    """Seconds that ten interpreters take, one after another."""
    started = time.monotonic()
    for _ in range(SERVICES):
        subprocess.run([sys.executable, "-c", BARE], check=True)
    return time.monotonic() - started


def up(folder: Path, *, chain: bool) -> float:
    """Seconds from `zmqengine up` until all is READY."""
    rows = []
    for number in range(SERVICES):
        after = f'["s{number - 1}"]' if chain and number else "[]"
        rows.append(f'[[service]]\nname = "s{number}"\nimpl = "trivial:Trivial"\nafter = {after}\n')
    table = folder / f"{'chain' if chain else 'beside'}.toml"
    table.write_text("\n".join(rows))
    environ = {**os.environ, "ZMQENGINE_RUNTIME_DIR": str(folder), "PYTHONPATH": str(folder)}
    command = [sys.executable, "-m", "zmqengine.cli.main"]
    started = time.monotonic()
    try:
        subprocess.run([*command, "up", str(table), "--detach"], check=True, env=environ, stdout=subprocess.DEVNULL)
        return time.monotonic() - started
    finally:
        subprocess.run([*command, "down"], check=True, env=environ, stdout=subprocess.DEVNULL)


@click.command()
@click.option("--runs", default=5, show_default=True, type=click.IntRange(1))
@click.option("--json", "as_json", is_flag=True)
def main(runs: int, as_json: bool) -> None:
    """Start of ten trivial services, in a chain and side by side."""
    seconds: dict[str, list[float]] = {"ten bare interpreters": [], "chain": [], "side by side": []}
    with tempfile.TemporaryDirectory(prefix="ze-", dir="/tmp") as name:
        folder = Path(name)
        (folder / "trivial.py").write_text(TRIVIAL)
        for number in range(runs + 1):
            measured = (bare(), up(folder, chain=True), up(folder, chain=False))
            if number:  # the first fills the caches
                for values, value in zip(seconds.values(), measured, strict=True):
                    values.append(value)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    table = Table("", "median s", "min s", "max s", box=None, header_style="bold")
    for name, values in seconds.items():
        table.add_row(name, f"{medians[name]:.2f}", f"{min(values):.2f}", f"{max(values):.2f}")
    base = medians["ten bare interpreters"]
    checks = [
        at_most("chain / bare", medians["chain"] / base, CHAIN_GOAL),
        at_most("side by side / bare", medians["side by side"] / base, SIDE_BY_SIDE_GOAL),
    ]
    sys.exit(report({"seconds": seconds}, checks, table, as_json=as_json))


if __name__ == "__main__":
    main()
