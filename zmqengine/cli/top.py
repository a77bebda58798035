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

if TYPE_CHECKING:
    from rich.console import RenderableType

COLUMNS = ("service", "state", "rst", "up", "cpu", "mem", "calls/s", "p50", "p99", "fly", "que")
"""rst: restarts; cpu: percent of one core; p50, p99: from a call to its answer; fly: calls in flight; que: queued."""
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

            Console().print(view(status, rows))
            return
        with contextlib.suppress(KeyboardInterrupt):
            watch(broker, rates, interval)


def watch(broker: Client, rates: Rates, interval: float) -> None:
    """Redraw in place until Ctrl-C, or until the run is gone."""
    from rich.live import Live

    with Live(view(*look(broker, rates)), screen=True, auto_refresh=False) as live:
        while True:
            broker.idle(interval)
            try:
                live.update(view(*look(broker, rates)), refresh=True)
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


def view(status: RunStatus, rows: list[dict[str, object]]) -> RenderableType:
    """What is shown: the table, which fits on 80 columns, and what is wrong with whom."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    up = sum(service.state.value == "READY" for service in status.services)
    title = f"run {status.run}: {status.phase}, {up} of {len(status.services)} services READY"
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1, 0, 0), title=title,
                  title_justify="left", title_style="bold")  # fmt: skip
    for name in COLUMNS:
        # The name alone gives way where it is narrow: half a number misleads.
        table.add_column(name, justify="left" if name in ("service", "state") else "right",
                         no_wrap=name != "service", overflow="fold")  # fmt: skip
    errors = []
    for service, row in zip(status.services, rows, strict=True):
        state = service.state.value
        table.add_row(
            service.name, Text(state, COLOURS.get(state, "dim")), str(service.restarts), ago(service.uptime_s),
            _number(row["cpu_percent"], "{:.0f}%"), size(service.rss_bytes), _number(row["calls_per_s"], "{:.0f}"),
            seconds(service.p50_s), seconds(service.p99_s), str(service.in_flight), str(service.queued),
        )  # fmt: skip
        if service.error and state not in ("READY", "STOPPED"):
            first = next(iter(service.error.splitlines()), "")
            errors.append(Text(f"{service.name}: {first}", "red", no_wrap=True, overflow="ellipsis"))
    return Group(table, *errors)


def ago(value: float | None) -> str:
    """``7s``, ``5m02``, ``2h05``, ``3d04``: five letters at most."""
    if value is None:
        return "-"
    whole = int(value)
    for unit, small, length, part in (("d", 3600, 86400, 24), ("h", 60, 3600, 60), ("m", 1, 60, 60)):
        if whole >= length:
            return f"{whole // length}{unit}{whole // small % part:02d}"
    return f"{whole}s"


def size(value: int | None) -> str:
    """``29M``, ``1.2G``."""
    if value is None:
        return "-"
    return f"{value / 1e9:.1f}G" if value >= 999.5e6 else f"{value / 1e6:.0f}M"


def seconds(value: float | None) -> str:
    """``28us``, ``3.1ms``, ``120ms``, ``2.0s``: five letters at most."""
    if value is None:
        return "-"
    if value < 999.5e-6:
        return f"{value * 1e6:.0f}us"
    if value < 9.95e-3:
        return f"{value * 1e3:.1f}ms"
    return f"{value * 1e3:.0f}ms" if value < 0.9995 else f"{value:.1f}s"


def _number(value: object, pattern: str) -> str:
    return "-" if value is None else pattern.format(value)
