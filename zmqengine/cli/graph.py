"""`zmqengine graph [TABLE]`"""

from __future__ import annotations

import click

from ..broker_interface import BrokerInterface, RunStatus
from ..client import connect
from ..graph import layers, to_dot, to_text
from ..named_tables import find_table
from ..table import Row
from .options import json_option, print_json


@click.command("graph")
@click.argument("table", required=False)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="As for `zmqengine up`.")
@click.option("--dot", is_flag=True, help="Print Graphviz's DOT.")
@json_option
@click.option("--run", help="Draw what this run has, with the state of each service, instead of a table.")
def command(table: str | None, settings: tuple[str, ...], dot: bool, as_json: bool, run: str | None) -> None:
    """Draw who comes after whom in TABLE, or, with --run, in a run."""
    states = None
    if run is not None:
        if table is not None:
            raise click.UsageError("give either TABLE or --run")
        with connect("broker", BrokerInterface, run=run) as broker:
            status: RunStatus = broker.status()
        name, states = status.table, {service.name: service.state for service in status.services}
        rows = [Row(name=s.name, protocol=s.protocol, after=s.after, external=True) for s in status.services]
    else:
        found = find_table(table, settings)
        name, rows = found.name, list(found.rows)
    if as_json:
        print_json({
            "table": name, "layers": [[row.name for row in layer] for layer in layers(rows)],
            "edges": [[other, row.name] for row in rows for other in row.after or ()], "states": states,
        })  # fmt: skip
    elif dot:
        click.echo(to_dot(name, rows, states))
    else:
        click.echo("\n".join(to_text(rows, states)))
