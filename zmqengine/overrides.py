"""``--set key=value``: a bare key is an option of the table, ``service.key`` one of a row."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable
from typing import Any

import msgspec

from .errors import ConfigError
from .table import Table


def parse_value(text: str) -> Any:
    """A TOML value (3, 0.5, true, "text", [1, 2]); what is none of these is the text itself."""
    try:
        return tomllib.loads(f"value = {text}")["value"] if text and "\n" not in text else text
    except tomllib.TOMLDecodeError:
        return text


def parse_overrides(given: Iterable[str]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Split ``key=value`` strings into the table's options and those of its rows. A later one wins."""
    table: dict[str, Any] = {}
    rows: dict[str, dict[str, Any]] = {}
    for item in given:
        key, separator, text = item.partition("=")
        key = key.strip()
        if not separator or not key or key.startswith(".") or key.endswith("."):
            raise ConfigError(f"--set {item!r} is not of the form key=value or service.key=value")
        service, dot, option = key.partition(".")
        if dot:
            rows.setdefault(service, {})[option] = parse_value(text)
        else:
            table[key] = parse_value(text)
    return table, rows


def override_rows(table: Table, overrides: dict[str, dict[str, Any]]) -> Table:
    """The table with options of its rows replaced. ``worker.x`` goes to the replicas of worker, too."""
    names = {row.name.partition("@")[0] for row in table.rows} | {row.name for row in table.rows}
    for service in overrides:
        if service not in names:
            raise ConfigError(f"--set {service}.{next(iter(overrides[service]))}: {unknown('service', service, names)}")
    rows = []
    for row in table.rows:
        options = {**row.options, **overrides.get(row.name.partition("@")[0], {}), **overrides.get(row.name, {})}
        rows.append(msgspec.structs.replace(row, options=options))
    return Table(name=table.name, rows=tuple(rows))


def unknown(kind: str, given: str, known: Iterable[str]) -> str:
    """``no service 'worke'; did you mean 'worker'? There are: ...``"""
    names = sorted(known)
    close = difflib.get_close_matches(given, names, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"there is no {kind} {given!r}; {hint}there are: {', '.join(names) or 'none'}"
