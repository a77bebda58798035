"""What `zmqengine up` shows of a start: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import click

from ..broker_interface import Event
from ..lifecycle import State
from ..table import Table


class Renderer(Protocol):
    """Shows the events of a run."""

    def show(self, event: Event) -> None: ...
    def close(self) -> None: ...


def make_renderer(table: Table, interactive: bool, run: str) -> Renderer:
    """The renderer for a terminal or for a file."""
    return LiveRenderer(table, run) if interactive else PlainRenderer(table, run)


def final_text(event: Event, run: str) -> str:
    """The line that ends a start."""
    if event.kind == "up":
        where = f"; {event.text}" if event.text else ""
        return f"ready in {event.seconds:.2f} s{where} (run {run})"
    return event.text


class Phases:
    """How long a service took for each phase of its start, as its events tell."""

    NAMES: ClassVar[dict[State, str]] = {
        State.CONNECTED: "spawn", State.LOADING: "import and wait", State.READY: "setup",
    }  # fmt: skip
    """By the state that ends it."""

    def __init__(self) -> None:
        self._done: list[str] = []

    def enter(self, state: State, seconds: float | None) -> None:
        """A state begins; seconds: how long the phase before it took."""
        if state is State.SPAWNED:
            self._done.clear()
        elif state in self.NAMES:
            self._done.append(f"{self.NAMES[state]} {seconds or 0.0:.2f}")

    def __str__(self) -> str:
        return f"{', '.join(self._done)} s" if self._done else ""


class PlainRenderer:
    """One line per service when it is READY, and for everything out of order."""

    def __init__(self, table: Table, run: str) -> None:
        self._width = max(len(row.name) for row in table.rows)
        self._run = run
        self._phases: dict[str, Phases] = {}

    def show(self, event: Event) -> None:
        if event.kind == "state" and event.state is not None:
            self._state(event, event.state)
        elif event.kind == "up":
            click.echo(final_text(event, self._run))
        elif event.kind == "failed":
            click.echo(f"error: {event.text}", err=True)
        elif event.kind == "stopped":
            click.echo("stopped")

    def _state(self, event: Event, state: State) -> None:
        phases = self._phases.setdefault(event.service, Phases())
        phases.enter(state, event.seconds)
        if state is State.READY:
            click.echo(f"  {event.service:{self._width}}  ready  ({phases})")
        elif state in (State.FAILED, State.BACKOFF, State.QUARANTINED, State.DEGRADED) or (
            state is State.STOPPED and event.text
        ):
            click.echo(f"  {event.service:{self._width}}  {state.value.lower()}  {event.text}")

    def close(self) -> None:
        """Nothing is held."""


@dataclass(slots=True)
class _Shown:
    """One service of the live table."""

    state: State = State.PENDING
    text: str = ""
    """Its progress, or what went wrong."""
    spawned_at: float | None = None
    ready_at: float | None = None
    """Monotonic, as the launcher's events: both are on this machine."""
    phases: Phases = field(default_factory=Phases)

    def take(self, event: Event) -> None:
        self.text = event.text
        if event.state is None:
            return
        self.state = event.state
        self.phases.enter(event.state, event.seconds)
        if event.state is State.SPAWNED:
            self.spawned_at, self.ready_at = event.at, None
        elif event.state is State.READY:
            self.ready_at = event.at

    def seconds(self, now: float) -> str:
        if self.spawned_at is None:
            return ""
        return f"{(self.ready_at or now) - self.spawned_at:.1f} s"


class LiveRenderer:
    """A table of the services that is redrawn in place while they start; afterwards, lines for what happens."""

    COLOURS: ClassVar[dict[State, str]] = {
        State.READY: "green", State.FAILED: "red", State.QUARANTINED: "red", State.BACKOFF: "yellow",
        State.DEGRADED: "yellow", State.LOADING: "cyan",
    }  # fmt: skip

    def __init__(self, table: Table, run: str) -> None:
        self._run = run
        self._plain = PlainRenderer(table, run)
        self._rows = {row.name: _Shown() for row in table.rows}
        self._live: Any = None
        self._starting = True

    def show(self, event: Event) -> None:
        if not self._starting:
            self._plain.show(event)
            return
        if self._live is None:
            # After the first spawn: the import takes longer than the spawn.
            from rich.live import Live

            self._live = Live(get_renderable=self._table, refresh_per_second=10, transient=False)
            self._live.start()
        if event.service in self._rows:
            self._rows[event.service].take(event)
        if event.kind in ("up", "failed", "stopped"):
            self.close()
            if event.kind == "up":
                click.secho(final_text(event, self._run), bold=True)
            elif event.kind == "failed":
                click.secho(f"error: {event.text}", fg="red", err=True)

    def _table(self) -> Any:
        from rich.table import Table as RichTable
        from rich.text import Text

        table = RichTable(box=None, show_header=False, pad_edge=False)
        now = time.monotonic()
        for name, shown in self._rows.items():
            text = str(shown.phases) if shown.state is State.READY else next(iter(shown.text.splitlines()), "")
            table.add_row(
                Text(f"  {name}", no_wrap=True),
                Text(shown.state.value.lower(), self.COLOURS.get(shown.state, "dim"), no_wrap=True),
                Text(shown.seconds(now), justify="right", no_wrap=True),
                Text(text, "dim", no_wrap=True, overflow="ellipsis"),
            )
        return table

    def close(self) -> None:
        self._starting = False
        if self._live is not None:
            self._live.stop()
            self._live = None
