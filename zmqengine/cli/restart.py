"""`zmqengine restart SERVICE`"""

from __future__ import annotations

import click

from ..broker_interface import BrokerInterface, RunStatus
from ..client import connect
from .options import run_option


@click.command("restart")
@click.argument("service")
@click.option("--timeout", default=900.0, show_default=True, metavar="SECONDS", help="How long it may take.")
@run_option
def command(service: str, timeout: float, run: str) -> None:
    """Restart SERVICE: drain it, start it anew, and wait until it is READY."""
    with connect("broker", BrokerInterface, run=run) as broker:
        status: RunStatus = broker.status()  # not resolve: also one that is quarantined can be restarted
        before = next((s.incarnation for s in status.services if s.name == service), "")
        broker.restart(service)
        after = broker.options(deadline_s=timeout).resolve(service, wait=True)
    click.echo(f"{service}: incarnation {before} is replaced by {after.incarnation}")
