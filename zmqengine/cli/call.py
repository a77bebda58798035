"""`zmqengine call SERVICE METHOD key=value...`"""

from __future__ import annotations

import json
from typing import Any

import click

from ..client import connect, untyped_methods
from ..errors import UsageError
from ..streams import Stream
from .options import print_json, run_option, server_key_option


@click.command("call")
@click.argument("service")
@click.argument("method")
@click.argument("arguments", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--timeout", default=60.0, show_default=True, metavar="SECONDS", help="Budget of the call.")
@server_key_option
@run_option
def command(
    service: str, method: str, arguments: tuple[str, ...], timeout: float, server_key: str, run: str
) -> None:  # fmt: skip
    """Call METHOD of SERVICE (a name in the run, or an endpoint) and print the answer as JSON.

    A value is JSON where it parses as such (3, true, [1,2], {"a": 1}), and else a string. The items of a stream are
    printed one a line, as they come.
    """
    with connect(service, run=run, deadline_s=timeout, server_key=server_key) as client:
        schema = client.describe()
        found = untyped_methods(schema).get(method)
        if found is None:
            raise UsageError(f"{service} has no method {method!r}; it has {', '.join(sorted(schema['methods']))}")
        properties = schema["methods"][method]["args"].get("properties", {})
        values = dict(parse_argument(a, properties) for a in arguments)
        result = getattr(client, method)(**values)
        if isinstance(result, Stream):
            for item in result:
                click.echo(json.dumps(item, ensure_ascii=False, default=repr))
        elif found.kind == "call":
            print_json(result)


def parse_argument(argument: str, properties: dict[str, Any]) -> tuple[str, Any]:
    """``key=value`` as (key, value). A parameter that is a string takes its text as it is."""
    key, separator, text = argument.partition("=")
    if not separator:
        raise click.BadParameter(f"{argument!r} is not of the form key=value")
    if properties.get(key, {}).get("type") == "string":
        return key, text
    try:
        return key, json.loads(text)
    except ValueError:
        return key, text
