"""`zmqengine ps`"""

from __future__ import annotations

import click

from ..broker_interface import BrokerInterface, RunStatus, ServiceStatus
from ..client import connect
from .options import json_option, print_json, run_option


@click.command("ps")
@json_option
@run_option
def command(as_json: bool, run: str) -> None:
    """Show the services of a run: state, pid, restarts, memory, and where they listen."""
    with connect("broker", BrokerInterface, run=run) as broker:
        status: RunStatus = broker.status()
    if as_json:
        print_json(status.services)
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    # What fits on 80 columns; --json has all of it.
    for column in ("name", "state", "pid", "restarts", "up", "memory", "where"):
        right = column in ("pid", "restarts", "up", "memory")
        table.add_column(column, justify="right" if right else "left", no_wrap=column != "where", overflow="fold")
    for service in status.services:
        table.add_row(*row(service))
    Console().print(table)


def row(service: ServiceStatus) -> list[str]:
    """One line of the table."""
    return [
        service.name, service.state.value, str(service.pid or "-"), str(service.restarts), duration(service.uptime_s),
        memory(service.rss_bytes), service.error or service.url or "",
    ]  # fmt: skip


def duration(seconds: float | None) -> str:
    """``3.2 s``, ``5 m 02 s``, ``2 h 05 m``."""
    if seconds is None:
        return "-"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} m {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} m"


def memory(size: int | None) -> str:
    """Bytes in MB."""
    return "-" if size is None else f"{size / 1e6:.0f} MB"
