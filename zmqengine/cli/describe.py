"""`zmqengine describe SERVICE`"""

from __future__ import annotations

from typing import Any

import click

from ..client import connect
from .options import json_option, print_json, run_option, server_key_option


@click.command("describe")
@click.argument("service")
@json_option
@server_key_option
@run_option
def command(service: str, as_json: bool, server_key: str, run: str) -> None:
    """Show the methods of SERVICE (a name in the run, or an endpoint), their types and docs."""
    with connect(service, run=run, server_key=server_key) as client:
        schema = client.describe()
    if as_json:
        print_json(schema)
        return
    click.secho(schema["protocol"], bold=True)
    if schema["doc"]:
        click.echo(schema["doc"])
    for name, method in schema["methods"].items():
        click.echo(f"\n{signature(name, method)}")
        for line in method["doc"].splitlines():
            click.echo(f"    {line}")


def signature(name: str, method: dict[str, Any]) -> str:
    """A method as one line: ``call add(amount: integer) -> integer``."""
    required = set(method["args"].get("required", ()))
    parameters = ", ".join(
        f"{key}: {type_name(schema)}" + ("" if key in required else " = ...")
        for key, schema in method["args"].get("properties", {}).items()
    )
    once = " (idempotent)" if method["idempotent"] else ""
    return f"{method['kind']} {name}({parameters}) -> {type_name(method['returns'])}{once}"


def type_name(schema: dict[str, Any]) -> str:
    """A JSON schema in a few words."""
    if "$ref" in schema:
        return str(schema["$ref"])
    if "anyOf" in schema:
        return " | ".join(type_name(option) for option in schema["anyOf"])
    kind = schema.get("type", "any")
    if kind == "array" and isinstance(schema.get("items"), dict):
        return f"list[{type_name(schema['items'])}]"
    return str(kind)
