"""`zmqengine keys`"""

from __future__ import annotations

import click

from ..errors import ConfigError
from ..keys import KeyFolder, folder_of, user_folder
from ..rundir import keys_of_run
from .options import json_option, print_json

run_keys = click.option(
    "--run", metavar="NAME", help="Keys of this run alone, which need not be up.  [default: the user's, for all runs]"
)


def folder(run: str | None, *, make: bool = False) -> KeyFolder:
    """The folder that a command works on."""
    return user_folder() if run is None else KeyFolder(keys_of_run(run, make=make), run)


@click.group("keys")
def command() -> None:
    """Make CURVE keys, and say who may connect from other hosts.

    A service that listens on tcp proves who it is with its key pair, and takes only clients whose public key is
    allowed. So on each of two hosts `keys generate`; `keys show` on the client's; and its output to `keys allow` on the
    service's. Changes hold at once: a key that is revoked is cut off.
    """


@command.command("generate")
@click.option("--replace", is_flag=True, help="Also where there are keys: every client has to be given the new one.")
@json_option
@run_keys
def generate(replace: bool, as_json: bool, run: str | None) -> None:
    """Make a key pair, and print its public key."""
    where = folder(run, make=True)
    pair = where.generate(replace=replace)
    if as_json:
        print_json({"public": pair.public, "path": str(where.path)})
        return
    click.echo(pair.public)
    click.echo(f"the secret key is in {where.path}, and is shown to nobody", err=True)


@command.command("show")
@json_option
@run_keys
def show(as_json: bool, run: str | None) -> None:
    """Print the public key. With --run, of the keys that the run would use: its own, or the user's."""
    where = user_folder() if run is None else folder_of(keys_of_run(run).parent)
    pair = where.pair()
    if as_json:
        print_json({"public": pair.public, "path": str(where.path)})
    else:
        click.echo(pair.public)


@command.command("allow")
@click.argument("public_key")
@click.option("--name", default="", help="To revoke it by.  [default: made of the key]")
@json_option
@run_keys
def allow(public_key: str, name: str, as_json: bool, run: str | None) -> None:
    """Let whoever has the secret key to PUBLIC_KEY connect. Quote it: keys are full of what shells take for theirs."""
    where = folder(run)
    if not where.has_pair:
        raise ConfigError(
            f"there are no keys in {where.path}; make them first, with `zmqengine keys generate{where.flag}`"
        )
    allowed = where.allow(public_key.strip(), name)
    if as_json:
        print_json(allowed)
    else:
        click.echo(f"allowed {allowed.name}")


@command.command("revoke")
@click.argument("key", metavar="NAME|PUBLIC_KEY")
@json_option
@run_keys
def revoke(key: str, as_json: bool, run: str | None) -> None:
    """Let a key no longer connect."""
    revoked = folder(run).revoke(key.strip())
    if as_json:
        print_json(revoked)
        return
    for allowed in revoked:
        click.echo(f"revoked {allowed.name}")


@command.command("list")
@json_option
@run_keys
def list_allowed(as_json: bool, run: str | None) -> None:
    """List the keys that may connect."""
    found = folder(run).allowed()
    if as_json:
        print_json(found)
        return
    for allowed in found:
        click.echo(f"{allowed.public}  {allowed.name}")
