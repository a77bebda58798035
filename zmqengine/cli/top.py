"""`zmqengine top`"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

import click
import psutil

from ..broker_interface import BrokerInterface, RunStatus, ServiceStatus
from ..client import Client, connect
from ..errors import ZmqEngineError
from .options import interactive, json_option, print_json, run_option
from .ps import duration, memory

if TYPE_CHECKING:
    from rich.table import Table

COLOURS = {"READY": "green", "DEGRADED": "yellow", "LOADING": "cyan", "BACKOFF": "yellow", "DRAINING": "yellow",
           "FAILED": "red", "QUARANTINED": "red"}  # fmt: skip


class Rates:
    """What is told by two looks: calls a second, and the share of a core that each process took."""

    def __init__(self) -> None:
        self._calls: dict[str, tuple[str, int, float]] = {}
        self._processes: dict[int, psutil.Process] = {}

    def calls_per_s(self, service: ServiceStatus, now: float) -> float | None:
        """Calls a second since the last look; None at the first look at an incarnation."""
        before = self._calls.get(service.name)
        self._calls[service.name] = (service.incarnation, service.calls, now)
        if before is None or before[0] != service.incarnation or now <= before[2]:
            return None
        return (service.calls - before[1]) / (now - before[2])

    def cpu_percent(self, pid: int | None) -> float | None:
        """Percent of one core since the last look; None at the first look at a process, and without one."""
        if pid is None:
            return None
        try:
            if pid not in self._processes:
                self._processes[pid] = psutil.Process(pid)
                self._processes[pid].cpu_percent()
                return None
            return float(self._processes[pid].cpu_percent())
        except psutil.NoSuchProcess:
            self._processes.pop(pid, None)
            return None


@click.command("top")
@click.option("--interval", default=1.0, show_default=True, type=click.FloatRange(0.1), metavar="SECONDS")
@click.option("--once", is_flag=True, help="Print one look, after one interval, and end.")
@json_option
@run_option
def command(interval: float, once: bool, as_json: bool, run: str) -> None:
    """Watch the services of a run: state, restarts, CPU, memory, calls, latency, queues. Ctrl-C ends it."""
    with connect("broker", BrokerInterface, run=run) as broker:
        rates = Rates()
        look(broker, rates)
        broker.idle(interval)
        if once or as_json or not interactive():
            status, rows = look(broker, rates)
            if as_json:
                print_json([{"name": s.name, **row} for s, row in zip(status.services, rows, strict=True)])
                return
            from rich.console import Console

            Console().print(table_of(status, rows))
            return
        with contextlib.suppress(KeyboardInterrupt):
            watch(broker, rates, interval)


def watch(broker: Client, rates: Rates, interval: float) -> None:
    """Redraw in place until Ctrl-C, or until the run is gone."""
    from rich.live import Live

    with Live(table_of(*look(broker, rates)), screen=True, auto_refresh=False) as live:
        while True:
            broker.idle(interval)
            try:
                live.update(table_of(*look(broker, rates)), refresh=True)
            except ZmqEngineError as error:
                live.stop()
                raise click.ClickException(f"the run is gone: {error}") from None


def look(broker: Client, rates: Rates) -> tuple[RunStatus, list[dict[str, object]]]:
    """The run now, and what is shown of each service."""
    status: RunStatus = broker.status()
    now = time.monotonic()
    rows: list[dict[str, object]] = [
        {
            "state": service.state, "pid": service.pid, "restarts": service.restarts, "uptime_s": service.uptime_s,
            "cpu_percent": rates.cpu_percent(service.pid), "rss_bytes": service.rss_bytes,
            "calls_per_s": rates.calls_per_s(service, now), "p50_s": service.p50_s, "p99_s": service.p99_s,
            "in_flight": service.in_flight, "queued": service.queued, "error": service.error,
        }
        for service in status.services
    ]  # fmt: skip
    return status, rows


def table_of(status: RunStatus, rows: list[dict[str, object]]) -> Table:
    """What is shown."""
    from rich.table import Table
    from rich.text import Text

    up = sum(service.state.value == "READY" for service in status.services)
    title = f"run {status.run}: {status.phase}, {up} of {len(status.services)} services READY"
    table = Table(box=None, header_style="bold", pad_edge=False, title=title, title_justify="left")
    for name in ("service", "state", "rst", "up", "cpu", "mem", "calls/s", "p50", "p99", "fly", "que"):
        table.add_column(name, justify="left" if name in ("service", "state") else "right", no_wrap=True)
    for service, row in zip(status.services, rows, strict=True):
        state = service.state.value
        table.add_row(
            service.name, Text(state, COLOURS.get(state, "dim")), str(service.restarts), duration(service.uptime_s),
            _number(row["cpu_percent"], "{:.0f}%"), memory(service.rss_bytes), _number(row["calls_per_s"], "{:.0f}"),
            seconds(service.p50_s), seconds(service.p99_s), str(service.in_flight), str(service.queued),
        )  # fmt: skip
        if service.error and state not in ("READY", "STOPPED"):
            table.add_row("", Text(service.error, "red", overflow="ellipsis"))
    return table


def seconds(value: float | None) -> str:
    """``28 us``, ``3.1 ms``, ``2.0 s``."""
    if value is None:
        return "-"
    if value < 1e-3:
        return f"{value * 1e6:.0f} us"
    return f"{value * 1e3:.1f} ms" if value < 1 else f"{value:.1f} s"


def _number(value: object, pattern: str) -> str:
    return "-" if value is None else pattern.format(value)
