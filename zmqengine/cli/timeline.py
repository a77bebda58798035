"""`zmqengine timeline`"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..broker_interface import BrokerInterface, RunStatus
from ..client import connect
from ..errors import Unavailable
from ..timeline import PHASES, Phase, critical_chain, timeline
from .options import json_option, print_json, run_option

if TYPE_CHECKING:
    from rich.text import Text

_STYLES = {"spawn": "bright_black", "import": "blue", "wait": "dim", "setup": "green"}
_GLYPHS = {"spawn": "▒", "import": "▓", "wait": "·", "setup": "█"}


@click.command("timeline")
@click.option("--svg", type=click.Path(dir_okay=False, path_type=Path), help="Draw it into this file.")
@click.option("--html", type=click.Path(dir_okay=False, path_type=Path), help="Draw it into this file, as a page.")
@json_option
@run_option
def command(svg: Path | None, html: Path | None, as_json: bool, run: str) -> None:
    """Show where the time of the start went: per service and phase, with the chain that decided when all was ready."""
    with connect("broker", BrokerInterface, run=run) as broker:
        status: RunStatus = broker.status()
    phases = timeline(status.services)
    if not phases:
        raise Unavailable(f"no service of run {run} has become READY yet")
    title = f"start of run {run}" + (f": {status.ready_after_s:.2f} s" if status.ready_after_s is not None else "")
    if svg is not None or html is not None:
        from ..timeline_svg import to_html, to_svg

        if svg is not None:
            svg.write_text(to_svg(phases, title))
        if html is not None:
            html.write_text(to_html(phases, title))
    if as_json:
        print_json([{**_fields(phase)} for phase in phases])
    elif svg is None and html is None:
        chain = critical_chain([service for service in status.services if service.ready_at is not None])
        _print(phases, chain, title)


def _fields(phase: Phase) -> dict[str, object]:
    return {
        "service": phase.service, "phase": phase.name, "start_s": phase.start_s, "end_s": phase.end_s,
        "critical": phase.critical,
    }  # fmt: skip


def _print(phases: list[Phase], chain: list[tuple[str, str]], title: str) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    services = list(dict.fromkeys(phase.service for phase in phases))
    total = max(phase.end_s for phase in phases)
    name_width = max(map(len, services))
    width = max(20, console.width - name_width - 38)
    table = Table(box=None, header_style="bold", pad_edge=False, title=title, title_justify="left")
    table.add_column("service", no_wrap=True)
    table.add_column("", width=width, no_wrap=True)
    for name in PHASES:
        table.add_column(name, justify="right", no_wrap=True)
    for service in services:
        own = {phase.name: phase for phase in phases if phase.service == service}
        cells = [
            Text(f"{own[name].seconds:.2f}", style="bold red" if own[name].critical else "") for name in PHASES
        ]  # fmt: skip
        table.add_row(service, _bar(list(own.values()), total, width), *cells)
    console.print(table)
    console.print(Text("critical: " + " → ".join(f"{service} {phase}" for service, phase in chain), style="red"))


def _bar(phases: list[Phase], total: float, width: int) -> Text:
    from rich.text import Text

    bar = Text(" " * round(phases[0].start_s / total * width))
    for phase in phases:
        end = round(phase.end_s / total * width)
        bar.append(_GLYPHS[phase.name] * max(0, end - len(bar)), style=_STYLES[phase.name])
    return bar
