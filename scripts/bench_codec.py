"""The codec of the wire: msgspec, which validates while it decodes, against msgpack and a conversion.

    python scripts/bench_codec.py [--json]

One step of a worker with 16 sequences, encoded and decoded to its validated class, alternating in one process. The
bytes are the same: both write plain msgpack.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import click
import msgpack
import msgspec
from benchmark import at_least, report
from rich.table import Table

from services.protocols.worker import Advance, StepBatch

BATCH = StepBatch(step=17, advance=[Advance(slot, 100 + slot, 1, [], True) for slot in range(16)])
ROUNDS, REPEATS = 30, 400


def microseconds(functions: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Median of each, over rounds that alternate."""
    samples: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(ROUNDS):
        for name, function in functions.items():
            started = time.perf_counter()
            for _ in range(REPEATS):
                function()
            samples[name].append((time.perf_counter() - started) / REPEATS * 1e6)
    return {name: statistics.median(values) for name, values in samples.items()}


@click.command()
@click.option("--json", "as_json", is_flag=True)
def main(as_json: bool) -> None:
    """msgspec against msgpack with a conversion to the validated class."""
    encoder, decoder = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(StepBatch)
    data = encoder.encode(BATCH)
    assert msgpack.unpackb(data) == msgspec.to_builtins(BATCH)
    us = microseconds({
        "msgspec encode": lambda: encoder.encode(BATCH),
        "msgpack encode": lambda: msgpack.packb(msgspec.to_builtins(BATCH)),
        "msgspec decode": lambda: decoder.decode(data),
        "msgpack decode": lambda: msgspec.convert(msgpack.unpackb(data), StepBatch),
    })  # fmt: skip
    table = Table("", "us", box=None, header_style="bold")
    for name, value in us.items():
        table.add_row(name, f"{value:.2f}")
    checks = [at_least(f"msgpack / msgspec, {what}", us[f"msgpack {what}"] / us[f"msgspec {what}"], 1.0)
              for what in ("encode", "decode")]  # fmt: skip
    sys.exit(report({"us": us, "bytes": len(data)}, checks, table, as_json=as_json))


if __name__ == "__main__":
    main()
