"""`zmqengine models`: which models there are, and where."""

from __future__ import annotations

import json

import click

from .store import ModelStore
from .store_error import ModelStoreError


@click.group("models")
def models() -> None:
    """Models that can be served by name."""


@models.command("pull")
@click.argument("name")
def pull(name: str) -> None:
    """Fetch the model NAME into the cache, and verify it."""
    try:
        ModelStore().pull(name, report=lambda line: click.echo(line, err=True))
    except (ModelStoreError, OSError) as error:
        raise click.ClickException(str(error)) from error


@models.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_models(as_json: bool) -> None:
    """List the models, and whether each is in the cache."""
    store = ModelStore()
    rows = [
        {
            "name": entry.name, "pulled": store.is_pulled(entry.name), "path": str(store.path_of(entry.name)),
            "size_bytes": entry.size, "license": entry.license, "description": entry.description,
        }
        for entry in store.catalogue.values()
    ]  # fmt: skip
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    for entry in store.catalogue.values():
        state = str(store.path_of(entry.name)) if store.is_pulled(entry.name) else "not pulled"
        click.echo(f"{entry.name}  {entry.size / 1e6:.1f} MB  {entry.license}  {entry.description}  {state}")


@models.command("path")
@click.argument("name")
def path(name: str) -> None:
    """Print the path of the model NAME (also of a file or folder), if it can be served."""
    try:
        click.echo(ModelStore().resolve(name).path)
    except (ModelStoreError, OSError) as error:
        raise click.ClickException(str(error)) from error
