"""Runs a service in a terminal: what ``python my_service.py`` and ``python -m services.worker`` do."""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import tomllib
import typing
from pathlib import Path
from typing import Any

import click
import msgspec

from . import transport
from .binding import Binding
from .bootstrap import keep_what_setup_made
from .errors import ConfigError, ZmqEngineError
from .host import Host, validated_config
from .logging_setup import configure_logging
from .message import Config
from .service import Service
from .spawn import SpawnInfo, new_incarnation

ENVIRONMENT_PREFIX = "ZMQENGINE_OPTION_"


def main(cls: type[Service], argv: list[str] | None = None) -> None:
    """Run a service class by its command line. Does not return."""
    try:
        code = build_command(cls).main(args=argv, standalone_mode=False)
    except click.exceptions.Abort:
        code = 130
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except ZmqEngineError as error:
        click.echo(f"error: {error}", err=True)
        code = 1
    transport.finish()
    sys.exit(code)


def default_name(cls: type[Service]) -> str:
    """The name of a service that is given none: its protocol's."""
    return cls.protocol.partition("/")[0]


def build_command(cls: type[Service]) -> click.Command:
    """The command line of a service, its options read off its Config."""
    config = cls.config_type()
    params: list[click.Parameter] = [_option(field) for field in msgspec.structs.fields(config)]
    params += [
        click.Option(["--name"], default=default_name(cls), show_default=True, help="Name to be served under."),
        click.Option(["--run"], envvar="ZMQENGINE_RUN", help="Join this run; without it the service runs alone."),
        click.Option(
            ["--bind"],
            metavar="ENDPOINT",
            help="Where to serve: ipc://PATH or tcp://ADDRESS:PORT. "
            "Beyond loopback tcp takes CURVE keys (zmqengine keys).",
        ),
        click.Option(["--curve"], is_flag=True, help="Serve with CURVE also on loopback."),
        click.Option(["--all-interfaces"], is_flag=True, help="--bind may stand for all interfaces of this machine."),
        click.Option(
            ["--peer"], multiple=True, metavar="NAME=ENDPOINT", help="Where a peer is, for a service that runs alone."
        ),
        click.Option(
            ["--peer-key"],
            multiple=True,
            metavar="NAME=KEY",
            help="CURVE public key of a --peer that is served with one.",
        ),
        click.Option(["--config"], type=click.Path(exists=True, dir_okay=False), help="TOML file with the options."),
    ]

    def run(
        name: str, run: str | None, bind: str | None, curve: bool, all_interfaces: bool, peer: tuple[str, ...],
        peer_key: tuple[str, ...], config: str | None, **given: Any,
    ) -> int:  # fmt: skip
        options = merge_options(cls.config_type(), config, given, os.environ)
        binding = Binding(endpoint=bind or "", curve=curve, all_interfaces=all_interfaces)
        peers = parse_peers(peer)
        keys = parse_peer_keys(peer_key, peers)
        return run_by_hand(cls, name=name, run=run, binding=binding, peers=peers, peer_keys=keys, options=options)

    return click.Command(
        default_name(cls), callback=run, params=params, help=(cls.__doc__ or "").strip(),
        context_settings={"help_option_names": ["-h", "--help"]},
    )  # fmt: skip


def _option(field: Any) -> click.Option:
    """One option of a Config as a command-line option. What is neither number, flag nor text is given as JSON."""
    base, description = _base_type(field.type)
    kinds: dict[Any, click.ParamType[Any]] = {int: click.INT, float: click.FLOAT, bool: click.BOOL}
    required = field.default is msgspec.NODEFAULT and field.default_factory is msgspec.NODEFAULT
    default = "required" if required else f"default: {_default(field)!r}"
    flag = "--" + field.encode_name.replace("_", "-")
    return click.Option(
        [flag, field.name], type=kinds.get(base, click.STRING), default=None, help=f"{description}  [{default}]".strip()
    )


def _default(field: Any) -> Any:
    return field.default if field.default is not msgspec.NODEFAULT else field.default_factory()


def _base_type(hint: Any) -> tuple[Any, str]:
    """The plain type under Annotated and Optional, and the description that a Meta in it gives."""
    description = ""
    while True:
        origin = typing.get_origin(hint)
        if origin is typing.Annotated:
            hint, *metas = typing.get_args(hint)
            description = next((m.description for m in metas if getattr(m, "description", None)), description)
            continue
        members = [a for a in typing.get_args(hint) if a is not type(None)]
        if len(members) == 1 and type(None) in typing.get_args(hint):
            hint = members[0]
            continue
        return hint, description


def merge_options(cls: type[Config], path: str | None, given: dict[str, Any], environ: typing.Mapping[str, str]) -> str:
    """Options as JSON: from the file, over it the environment (ZMQENGINE_OPTION_X=8), over it the command line."""
    merged: dict[str, Any] = {}
    if path is not None:
        try:
            merged.update(tomllib.loads(Path(path).read_text()))
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"{path}: {error}") from None
    for field in msgspec.structs.fields(cls):
        value = environ.get(ENVIRONMENT_PREFIX + field.name.upper())
        if value is not None:
            merged[field.name] = _from_text(field, value)
    for field in msgspec.structs.fields(cls):
        if given.get(field.name) is not None:
            value = given[field.name]
            merged[field.name] = _from_text(field, value) if isinstance(value, str) else value
    return json.dumps(merged)


def _from_text(field: Any, text: str) -> Any:
    if _base_type(field.type)[0] is str or typing.get_origin(_base_type(field.type)[0]) is typing.Literal:
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def parse_peers(given: tuple[str, ...]) -> dict[str, str]:
    """``name=endpoint`` pairs as a mapping."""
    peers = {}
    for item in given:
        name, separator, endpoint = item.partition("=")
        if not separator or "://" not in endpoint:
            raise click.BadParameter(f"--peer {item!r} is not of the form name=ipc://PATH")
        peers[name] = endpoint
    return peers


def parse_peer_keys(given: tuple[str, ...], peers: dict[str, str]) -> dict[str, str]:
    """``name=key`` pairs, each of a peer that is given, as a mapping."""
    keys = {}
    for item in given:
        name, _, key = item.partition("=")
        if name not in peers:
            raise click.BadParameter(
                f"--peer-key {item!r} is not of the form name=KEY, with --peer name=ENDPOINT beside it"
            )
        keys[name] = key
    return keys


def run_by_hand(
    cls: type[Service], *, name: str, run: str | None, options: str, binding: Binding | None = None,
    peers: dict[str, str] | None = None, peer_keys: dict[str, str] | None = None,
) -> int:  # fmt: skip
    """Serve in this process until it is stopped; the exit code. Prints where, once it is ready."""
    if not re.fullmatch(r"[a-z][a-z0-9_-]*(@[0-9]+)?", name):
        raise ConfigError(f"--name {name!r}: a name is lower-case letters, digits, - and _, beginning with a letter")
    validated_config(cls.config_type(), options, name)  # refuse a wrong option before anything is bound
    with tempfile.TemporaryDirectory(prefix="zmqengine-") as alone:
        broker, run_dir = "", alone
        if run is not None:
            from .discovery import broker_of, run_directory

            broker, run_dir = broker_of(run).endpoint, str(run_directory(run))
        info = SpawnInfo(
            name=name, incarnation=new_incarnation(), run=run or "", run_dir=run_dir, broker=broker, options=options,
            peers=json.dumps(peers or {}), peer_keys=json.dumps(peer_keys or {}),
            bind="" if binding is None else msgspec.json.encode(binding).decode(),
        )  # fmt: skip
        configure_logging(name, info.incarnation)
        host = Host(info, lambda: cls)

        def ready() -> None:
            keep_what_setup_made()
            click.echo(f"{cls.protocol} {name} is ready at {host.endpoint}")
            key = f" --server-key '{host.server_key}'" if host.server_key else ""
            click.echo(f"  zmqengine describe {host.endpoint}{key}")

        return host.run(ready)
