"""`zmqengine swap SERVICE`"""

from __future__ import annotations

import shlex
from typing import Any

import click

from ..broker_interface import BrokerInterface, Swapped, SwapRequest
from ..client import connect
from ..errors import ConfigError
from ..overrides import parse_value
from .options import json_option, print_json, run_option


@click.command("swap")
@click.argument("service")
@click.option("--impl", default="", metavar="MODULE:CLASS", help="Another implementation.  [default: the same, anew]")
@click.option("--command", "program", default="", help="Any program that speaks the protocol, instead of a class.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="An option of the service. Repeatable.")
@click.option("--mode", type=click.Choice(["start_first", "stop_first"]), help="[default: the row's swap.mode]")
@click.option("--timeout", default=900.0, show_default=True, metavar="SECONDS", help="How long it may take.")
@json_option
@run_option
def command(
    service: str, impl: str, program: str, settings: tuple[str, ...], mode: str | None, timeout: float, as_json: bool,
    run: str,
) -> None:  # fmt: skip
    """Replace SERVICE by another incarnation, of the same or another implementation, while the system serves.

    start_first: the new one stands by until it is READY, then takes over at once, and the old one ends what it has in
    flight. stop_first: the old one ends first, and calls wait meanwhile. Whatever goes wrong before the new one is
    READY leaves (or brings back) the old one, and is told.
    """
    if impl and program:
        raise click.UsageError("give either --impl or --command")
    options: dict[str, Any] = {}
    for item in settings:
        key, separator, value = item.partition("=")
        if not separator or not key:
            raise ConfigError(f"--set {item!r} is not of the form key=value")
        options[key.removeprefix(f"{service}.")] = parse_value(value)
    with connect("broker", BrokerInterface, run=run, deadline_s=timeout) as broker:
        request = SwapRequest(
            name=service, impl=impl, command=shlex.split(program), options=options, mode=mode or ""
        )  # fmt: skip
        swapped: Swapped = broker.swap(request)
    if as_json:
        print_json(swapped)
    else:
        click.echo(f"{service}: {swapped.old} is replaced by {swapped.new}, after {swapped.seconds:.2f} s")
