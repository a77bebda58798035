"""`zmqengine run SERVICE`"""

from __future__ import annotations

import json

import click

from ..bootstrap import load_implementation
from ..by_hand import build_command, run_by_hand
from ..errors import ConfigError
from ..named_tables import find_table


@click.command("run", context_settings={"ignore_unknown_options": True})
@click.argument("service")
@click.option("--table", help="Table that SERVICE is a row of.  [default: as for `zmqengine up`]")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="As for `zmqengine up`.")
@click.option("--run", "run", default=None, envvar="ZMQENGINE_RUN", help="Join this run; without it, run alone.")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def command(
    ctx: click.Context, service: str, table: str | None, settings: tuple[str, ...], run: str | None,
    arguments: tuple[str, ...],
) -> None:  # fmt: skip
    """Run one service in this terminal, by hand.

    SERVICE is a row of the table, or package.module:Class. Further ARGUMENTS are the service's own options
    (`zmqengine run worker --help-options` is `python -m services.worker --help`).
    """
    if ":" in service:
        cls = load_implementation(service)
        ctx.exit(build_command(cls).main(args=[*arguments, *_joined(run)], standalone_mode=False))
    row = find_table(table, settings).row(service)
    if not row.impl:
        raise ConfigError(f"row {service!r} is a command of its own: {' '.join(row.command)}; run that")
    cls = load_implementation(row.impl)
    if arguments:
        ctx.exit(build_command(cls).main(args=["--name", service, *arguments, *_joined(run)], standalone_mode=False))
    ctx.exit(run_by_hand(cls, name=service, run=run, binding=row.binding, options=json.dumps(row.options)))


def _joined(run: str | None) -> list[str]:
    return ["--run", run] if run else []
