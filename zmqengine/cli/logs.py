"""`zmqengine logs [SERVICE]...`"""

from __future__ import annotations

import select
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from ..errors import NotFound
from ..logs import Follower, LogLine, read_merged
from ..rundir import base_directory
from .options import interactive, run_option

FOLLOW_INTERVAL_S = 0.2
"""How often followed files are looked at. The kernel's file notification is not in Python's standard library, and a
log that a person reads needs no better."""
COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "bright_red", "bright_cyan", "bright_magenta")


@click.command("logs")
@click.argument("services", nargs=-1, metavar="[SERVICE]...")
@click.option("-f", "--follow", is_flag=True, help="Go on as more is written.")
@click.option("-n", "--lines", type=click.IntRange(0), help="Only the last N lines.")
@run_option
def command(services: tuple[str, ...], follow: bool, lines: int | None, run: str) -> None:
    """Show what the services wrote, merged in time order. Works on a run that has ended, too."""
    directory = base_directory() / run / "logs"
    names = find_logs(directory, services, run)
    width = max(len(name) for name in names)
    followers = [Follower(directory, name) for name in names]
    for follower in followers:
        follower.skip()
    shown: Iterable[LogLine] = read_merged(directory, names)
    if lines is not None:
        shown = list(shown)[-lines:] if lines else []
    try:
        for line in shown:
            show(line, names, width)
        if follow:
            for line in _follow(followers):
                show(line, names, width)
    except KeyboardInterrupt:
        pass
    finally:
        for follower in followers:
            follower.close()


def find_logs(directory: Path, services: Iterable[str], run: str) -> list[str]:
    """Names of the services that have a log. Raises NotFound for one that has none."""
    there = sorted(path.name.removesuffix(".log") for path in directory.glob("*.log"))
    if not there:
        raise NotFound(f"run {run!r} has no logs in {directory}")
    for name in services:
        if name not in there:
            raise NotFound(f"run {run!r} has no log of {name!r}; it has: {', '.join(there)}")
    return list(services) or there


def show(line: LogLine, names: list[str], width: int) -> None:
    """Print one line with its time and service."""
    stamp = time.strftime("%H:%M:%S", time.localtime(line.at)) + f".{int(line.at % 1 * 1000):03d}"
    name = f"{line.service:{width}}"
    if interactive():
        name = click.style(name, fg=COLOURS[names.index(line.service) % len(COLOURS)])
    click.echo(f"{stamp} {name} {line.text}")


def _follow(followers: list[Follower]) -> Iterator[LogLine]:
    while True:
        yield from sorted(line for follower in followers for line in follower.read())
        select.select([], [], [], FOLLOW_INTERVAL_S)
