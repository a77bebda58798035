"""What `zmqengine up` shows of a start: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

from typing import Any, Protocol

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


class PlainRenderer:
    """One line per service when it is READY, and for everything out of order."""

    def __init__(self, table: Table, run: str) -> None:
        self._width = max(len(row.name) for row in table.rows)
        self._run = run
        self._phases: dict[str, list[str]] = {}

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
        names = {State.CONNECTED: "spawn", State.LOADING: "import and wait", State.READY: "setup"}
        phases = self._phases.setdefault(event.service, [])
        if state is State.SPAWNED:
            phases.clear()
        elif state in names:
            phases.append(f"{names[state]} {event.seconds:.2f}")
        if state is State.READY:
            click.echo(f"  {event.service:{self._width}}  ready  ({', '.join(phases)} s)")
            phases.clear()
        elif state in (State.FAILED, State.BACKOFF, State.QUARANTINED, State.DEGRADED) or (
            state is State.STOPPED and event.text
        ):
            click.echo(f"  {event.service:{self._width}}  {state.value.lower()}  {event.text}")

    def close(self) -> None:
        """Nothing is held."""


class LiveRenderer:
    """A table of the services that is redrawn in place while they start; afterwards, lines for what happens."""

    COLOURS = {State.READY: "green", State.FAILED: "red", State.QUARANTINED: "red", State.BACKOFF: "yellow",
               State.DEGRADED: "yellow", State.LOADING: "cyan"}  # fmt: skip

    def __init__(self, table: Table, run: str) -> None:
        self._run = run
        self._plain = PlainRenderer(table, run)
        self._rows: dict[str, tuple[State, str, float]] = {row.name: (State.PENDING, "", 0.0) for row in table.rows}
        self._live: Any = None
        self._starting = True

    def show(self, event: Event) -> None:
        if not self._starting:
            self._plain.show(event)
            return
        if self._live is None:
            # After the first spawn: the import takes longer than the spawn.
            from rich.live import Live

            self._live = Live(self._table(), refresh_per_second=10, transient=False)
            self._live.start()
        if event.service in self._rows:
            state, _, at = self._rows[event.service]
            self._rows[event.service] = (event.state or state, event.text, event.at if event.kind == "state" else at)
        self._live.update(self._table())
        if event.kind in ("up", "failed", "stopped"):
            self.close()
            if event.kind == "up":
                click.secho(final_text(event, self._run), bold=True)
            elif event.kind == "failed":
                click.secho(f"error: {event.text}", fg="red", err=True)

    def _table(self) -> Any:
        from rich.table import Table as RichTable

        table = RichTable(box=None, show_header=False, pad_edge=False)
        for name, (state, text, _) in self._rows.items():
            colour = self.COLOURS.get(state, "dim")
            table.add_row(
                f"  {name}", f"[{colour}]{state.value.lower()}[/]", f"[dim]{text.splitlines()[0] if text else ''}[/]"
            )
        return table

    def close(self) -> None:
        self._starting = False
        if self._live is not None:
            self._live.stop()
            self._live = None
