"""Finds the table that a command means: a file, or a name that an installed package registered."""

from __future__ import annotations

import importlib.metadata
import inspect
import typing
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec

from .envelope import describe_fault
from .errors import ConfigError
from .message import Config
from .overrides import override_rows, parse_overrides, unknown
from .table import Table

GROUP = "zmqengine.tables"
DEFAULT_FILE = "zmqengine.toml"
DEFAULT_TABLE = "llm"


def find_table(given: str | None, settings: Iterable[str] = ()) -> Table:
    """The table with its overrides applied. Raises ConfigError that says where it looked and what there is.

    given: a file, or a registered name; None: ./zmqengine.toml if there is one, else "llm".
    """
    from .table_toml import load_table

    options, rows = parse_overrides(settings)
    name = given or (DEFAULT_FILE if Path(DEFAULT_FILE).is_file() else DEFAULT_TABLE)
    if name.endswith(".toml") or "/" in name or Path(name).is_file():
        table = load_table(Path(name))
        if options:
            raise ConfigError(f"--set {next(iter(options))}: a table from a file has no options of its own; "
                              "write service.key=value for one of a row")  # fmt: skip
    else:
        table = _named(name, options)
    return override_rows(table, rows)


def registered_tables() -> list[str]:
    """Names of the tables that installed packages registered."""
    return sorted(entry.name for entry in importlib.metadata.entry_points(group=GROUP))


def _named(name: str, options: dict[str, Any]) -> Table:
    for entry in importlib.metadata.entry_points(group=GROUP, name=name):
        return build_table(entry.load(), options, name)
    raise ConfigError(f"{unknown('table', name, registered_tables())}; a file's name ends in .toml")


def build_table(factory: Callable[[Any], Table], options: dict[str, Any], name: str) -> Table:
    """Call a table's factory, ``def llm(options: LlmOptions) -> Table``, with validated options."""
    (parameter,) = inspect.signature(factory).parameters
    config: type[Config] = typing.get_type_hints(factory)[parameter]
    known = [field.name for field in msgspec.structs.fields(config)]
    for key in options:
        if key not in known:
            raise ConfigError(f"--set {key}: {unknown(f'option of table {name}', key, known)}; "
                              "an option of one row is written service.key=value")  # fmt: skip
    try:
        return factory(msgspec.convert(options, config, strict=False))
    except msgspec.ValidationError as error:
        raise ConfigError(f"--set {describe_fault(error, name)}") from None
