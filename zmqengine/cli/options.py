"""Options that several commands share."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click
import msgspec

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_RUN = "default"


def run_option(function: F) -> F:
    """``--run NAME``."""
    return click.option(
        "--run", default=DEFAULT_RUN, show_default=True, envvar="ZMQENGINE_RUN", help="Name of the run."
    )(function)


def server_key_option(function: F) -> F:
    """``--server-key KEY``."""
    return click.option(
        "--server-key", default="", metavar="KEY", help="CURVE public key of an endpoint that is served with one."
    )(function)


def json_option(function: F) -> F:
    """``--json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(function)


def print_json(value: Any) -> None:
    """Print any value of ours as JSON; bytes become base64."""
    click.echo(json.dumps(msgspec.to_builtins(value, str_keys=True), indent=2, ensure_ascii=False))


def interactive() -> bool:
    """Whether a person looks at stdout."""
    return sys.stdout.isatty()
