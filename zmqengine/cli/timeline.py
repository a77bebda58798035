"""`zmqengine timeline`"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..broker_interface import BrokerInterface, RunStatus
from ..client import connect
from ..errors import Unavailable
from ..timeline import PHASES, Phase, critical_chain, of_the_start, timeline
from .options import json_option, print_json, run_option

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

_STYLES = {"spawn": "bright_black", "import": "blue", "wait": "dim", "setup": "green"}
_GLYPHS = {"spawn": "▒", "import": "▓", "wait": "·", "setup": "█"}
_NUMBERS = 38
"""Columns that the phases' seconds take, with the space before each."""
LONGEST_NAME = 24


@click.command("timeline")
@click.option("--svg", type=click.Path(dir_okay=False, path_type=Path), help="Draw it into this file.")
@click.option("--html", type=click.Path(dir_okay=False, path_type=Path), help="Draw it into this file, as a page.")
@json_option
@run_option
def command(svg: Path | None, html: Path | None, as_json: bool, run: str) -> None:
    """Show where the time of the start went: per service and phase, with the chain that decided when all was ready."""
    with connect("broker", BrokerInterface, run=run) as broker:
        status: RunStatus = broker.status()
    shown = of_the_start(status.services, up_at(status))
    phases = timeline(shown)
    if not phases:
        raise Unavailable(
            f"no service of run {run} has become READY yet" if status.ready_after_s is None
            else f"every service of run {run} was started anew since the run's start"
        )  # fmt: skip
    title = title_of(status)
    if svg is not None or html is not None:
        from ..timeline_svg import to_html, to_svg

        if svg is not None:
            svg.write_text(to_svg(phases, title))
        if html is not None:
            html.write_text(to_html(phases, title))
    if as_json:
        print_json([_fields(phase) for phase in phases])
    elif svg is None and html is None:
        from rich.console import Console

        left_out = [service.name for service in status.services if service not in shown]
        console = Console()
        console.print(view(phases, critical_chain(shown), left_out, title, console.width))


def up_at(status: RunStatus) -> float | None:
    """When all was READY first, in monotonic seconds; None before that."""
    if status.started_at is None or status.ready_after_s is None:
        return None
    return status.started_at + status.ready_after_s


def title_of(status: RunStatus) -> str:
    """What was started, and how long that took."""
    seconds = f": {status.ready_after_s:.2f} s" if status.ready_after_s is not None else ", which is not over yet"
    return f"start of run {status.run}{seconds}"


def view(
    phases: Sequence[Phase], chain: Sequence[tuple[str, str]], left_out: Sequence[str], title: str, width: int
) -> RenderableType:
    """The chart, and the chain in words. The header is the legend; `*` marks what is critical."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    services = list(dict.fromkeys(phase.service for phase in phases))
    total = max(phase.end_s for phase in phases)
    name_width = min(LONGEST_NAME, max(7, *map(len, services)))
    bar_width = max(10, width - name_width - _NUMBERS)
    table = Table(box=None, pad_edge=False, title=title, title_justify="left", title_style="bold", padding=(0, 2, 0, 0))
    table.add_column("service", width=name_width, no_wrap=True, overflow="ellipsis", header_style="bold")
    table.add_column("", width=bar_width, no_wrap=True)
    for name in PHASES:
        table.add_column(Text(f"{_GLYPHS[name]} {name}", _STYLES[name]), justify="right", no_wrap=True)
    for service in services:
        own = {phase.name: phase for phase in phases if phase.service == service}
        table.add_row(service, _bar(list(own.values()), total, bar_width), *(_cell(own[name]) for name in PHASES))
    took = {(phase.service, phase.name): phase.seconds for phase in phases}
    lines = [Text(f"* critical, one after the other: {_in_words(chain, took)}", style="red")]
    if left_out:
        lines.append(Text(f"left out, for they were started later or are not READY: {', '.join(left_out)}", "dim"))
    return Group(table, *lines)


def _fields(phase: Phase) -> dict[str, object]:
    return {
        "service": phase.service, "phase": phase.name, "start_s": phase.start_s, "end_s": phase.end_s,
        "critical": phase.critical,
    }  # fmt: skip


def _in_words(chain: Sequence[tuple[str, str]], took: dict[tuple[str, str], float]) -> str:
    """``a: spawn 0.40, import 0.01, setup 0.08 → c: setup 2.10 s``"""
    parts = []
    for service, steps in groupby(chain, key=lambda step: step[0]):
        parts.append(f"{service}: " + ", ".join(f"{step[1]} {took[step]:.2f}" for step in steps))
    return " → ".join(parts) + " s"


def _cell(phase: Phase) -> Text:
    from rich.text import Text

    return Text(f"{'*' if phase.critical else ''}{phase.seconds:.2f}", style="bold red" if phase.critical else "")


def _bar(phases: Sequence[Phase], total: float, width: int) -> Text:
    from rich.text import Text

    per_s = width / total if total else 0.0
    bar = Text(" " * round(phases[0].start_s * per_s))
    for phase in phases:
        end = round(phase.end_s * per_s)
        bar.append(_GLYPHS[phase.name] * max(0, end - len(bar)), style=_STYLES[phase.name])
    return bar
