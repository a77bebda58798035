"""`zmqengine down`"""

from __future__ import annotations

import contextlib
import os
import select

import click

from ..broker_interface import BrokerInterface
from ..client import connect
from ..errors import PeerLost, ZmqEngineError
from .options import run_option


@click.command("down")
@click.option("--force", is_flag=True, help="Kill instead of drain.")
@click.option("--timeout", default=120.0, show_default=True, metavar="SECONDS", help="How long it may take.")
@run_option
def command(force: bool, timeout: float, run: str) -> None:
    """Stop a run: each service finishes what is in flight, in reverse order. Returns when nothing of it is left."""
    with connect("broker", BrokerInterface, run=run) as broker:
        pid = broker.status().pid
        launcher = os.pidfd_open(pid)
        with contextlib.suppress(PeerLost):  # it may be gone before its answer is read
            broker.stop(force=force)
    try:
        ended, _, _ = select.select([launcher], [], [], timeout)
    finally:
        os.close(launcher)
    if not ended:
        raise ZmqEngineError(f"run {run} has not stopped within {timeout:g} s; `zmqengine down --force` kills it")
    click.echo(f"run {run} is down")
