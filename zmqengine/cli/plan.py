"""`zmqengine plan [TABLE]`"""

from __future__ import annotations

import click

from ..named_tables import find_table
from ..table_toml import to_toml
from .options import json_option, print_json


@click.command("plan")
@click.argument("table", required=False)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="As for `zmqengine up`.")
@click.option("--toml", "as_toml", is_flag=True, help="Print the table as a TOML file that `zmqengine up` takes.")
@json_option
@click.option("--run", hidden=True, help="Taken for the sake of scripts; a plan is of no run.")
def command(table: str | None, settings: tuple[str, ...], as_toml: bool, as_json: bool, run: str | None) -> None:
    """Show the services that `zmqengine up TABLE` would start, in order, without starting them."""
    found = find_table(table, settings)
    if as_json:
        print_json(found)
    elif as_toml:
        click.echo(to_toml(found), nl=False)
    else:
        click.secho(f"table {found.name}", bold=True)
        width = max(len(row.name) for row in found.rows)
        for number, row in enumerate(found.rows, 1):
            what = row.impl or " ".join(row.command) or "run by hand"
            options = " ".join(f"{key}={value!r}" for key, value in row.options.items())
            after = f"after {', '.join(row.after)}" if row.after else "first"
            click.echo(
                f"{number:3d}. {row.name:{width}}  {row.protocol or '-':14}  {after:24}  {what}  {options}".rstrip()
            )
