"""Calls and streams between two processes: raw pyzmq, this toolkit, and the peers that are installed.

    python scripts/bench_transport.py [--rounds N] [--json]

All systems run side by side and are measured in turns, round by round: the machine drifts by a quarter, so only ratios
within one run count. Raw pyzmq is ROUTER and DEALER over ipc with blocking sockets, one message a call, msgpack of the
same dict that the toolkit sends typed and validated.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections import defaultdict

import click
from benchmark import Check, at_least, at_most, report
from rich.table import Table
from transport_systems import Raw, System, Toolkit, ToolkitAsync, opened

CALLS, PIPELINED, IN_FLIGHT, ITEMS = 2000, 6400, 64, 10_000
Figures = dict[str, dict[str, float]]


def latencies(system: System, calls: int) -> list[float]:
    """Seconds of each call."""
    if isinstance(system, ToolkitAsync):
        return system.latencies(calls)
    found = []
    for _ in range(calls):
        started = time.perf_counter()
        system.call()
        found.append(time.perf_counter() - started)
    return found


def per_second(work: object, count: int) -> float:
    """How many a second."""
    assert callable(work)
    started = time.perf_counter()
    work()
    return count / (time.perf_counter() - started)


def measure(systems: list[System], rounds: int) -> Figures:
    """Medians over rounds that alternate between the systems."""
    samples: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for number in range(rounds + 1):
        for system in systems:
            seconds = sorted(latencies(system, CALLS))
            found = {
                "p50_us": seconds[len(seconds) // 2] * 1e6,
                "p99_us": seconds[len(seconds) * 99 // 100] * 1e6,
                "calls_per_s": per_second(lambda s=system: s.pipelined(PIPELINED, IN_FLIGHT), PIPELINED),
                "items_per_s": per_second(lambda s=system: s.stream(ITEMS), ITEMS),
            }
            if number:  # the first round warms up
                for key, value in found.items():
                    samples[system.name][key].append(value)
    return {
        name: {key: statistics.median(values) for key, values in figures.items()} for name, figures in samples.items()
    }


def checks_of(figures: Figures) -> list[Check]:
    """The goals against raw pyzmq in the same run."""
    raw, ours, aio = (figures[kind.name] for kind in (Raw, Toolkit, ToolkitAsync))
    return [
        at_most("call p50 / raw", ours["p50_us"] / raw["p50_us"], 1.35),
        at_most("call p99 / raw", ours["p99_us"] / raw["p99_us"], 1.5),
        at_least("64 in flight / raw", ours["calls_per_s"] / raw["calls_per_s"], 1.5),
        at_most("asyncio call p50 / raw", aio["p50_us"] / raw["p50_us"], 1.6),
        at_least("stream items / raw PUSH/PULL", ours["items_per_s"] / raw["items_per_s"], 1.0),
    ]


@click.command()
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(1))
@click.option("--json", "as_json", is_flag=True)
def main(rounds: int, as_json: bool) -> None:
    """Calls and streams between two processes."""
    with opened([Raw, Toolkit, ToolkitAsync]) as systems:
        figures = measure(systems, rounds)
    table = Table("", "p50 us", "p99 us", f"{IN_FLIGHT} in flight, k calls/s", "k items/s", box=None)
    for name, found in figures.items():
        table.add_row(
            name, f"{found['p50_us']:.0f}", f"{found['p99_us']:.0f}", f"{found['calls_per_s'] / 1e3:.1f}",
            f"{found['items_per_s'] / 1e3:.0f}",
        )  # fmt: skip
    sys.exit(report({"systems": figures}, checks_of(figures), table, as_json=as_json))


if __name__ == "__main__":
    main()
