"""`zmqengine apply [TABLE]`"""

from __future__ import annotations

import click

from ..broker_interface import BrokerInterface
from ..client import Client, connect
from ..errors import ZmqEngineError
from ..named_tables import find_table
from ..reconcile import Step
from .options import json_option, print_json, run_option

_WORDS = {"stop": ("-", "red"), "restart": ("~", "yellow"), "start": ("+", "green"), "update": ("=", "cyan")}


@click.command("apply")
@click.argument("table", required=False)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="As for `zmqengine up`.")
@click.option("--dry-run", is_flag=True, help="Print what would be done, and do nothing.")
@click.option("--timeout", default=900.0, show_default=True, metavar="SECONDS", help="How long it may take.")
@json_option
@run_option
def command(
    table: str | None, settings: tuple[str, ...], dry_run: bool, timeout: float, as_json: bool, run: str
) -> None:
    """Make a run as TABLE says: start, stop and restart only what changed.

    The plan is printed first. Returns when all that was started is READY; where one of them fails, the others serve on.
    """
    found = find_table(table, settings)
    with connect("broker", BrokerInterface, run=run) as broker:
        steps: list[Step] = broker.apply(table=found, dry_run=True)
        if as_json:
            print_json(steps)
        else:
            show(steps)
        if dry_run or not steps:
            return
        broker.apply(table=found)
        failures = settle(broker, steps, timeout)
    if failures:
        raise ZmqEngineError("\n".join(failures))
    if not as_json:
        click.echo("applied")


def show(steps: list[Step]) -> None:
    """Print the plan."""
    if not steps:
        click.echo("nothing differs")
    for step in steps:
        mark, colour = _WORDS[step.kind]
        why = f"  ({', '.join(step.changed)})" if step.changed else ""
        click.echo(f"{click.style(mark, fg=colour)} {step.kind:8} {step.name}{why}")


def settle(broker: Client, steps: list[Step], timeout: float) -> list[str]:
    """Wait for what was started; the failures, in words."""
    failures = []
    for step in steps:
        if step.kind in ("start", "restart"):
            try:
                broker.options(deadline_s=timeout).resolve(step.name, wait=True)
            except ZmqEngineError as error:
                failures.append(f"{step.name} is not READY: {error}")
    return failures
