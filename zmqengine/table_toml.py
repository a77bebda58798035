"""Launch tables as TOML files: read with the line of each fault, and written back."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import msgspec

from .errors import ConfigError
from .table import Row, Table


def load_table(path: Path) -> Table:
    """Read and validate a table. Raises ConfigError with file, line and key."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from None
    return parse_table(text, str(path), path.stem)


def parse_table(text: str, where: str, name: str) -> Table:
    """Validate a table's text."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{where}: {error}") from None
    unknown = set(document) - {"service", "name"}
    if unknown:
        key = sorted(unknown)[0]
        raise ConfigError(
            f"{where}:{_line_of_key(text, 0, key)}: unknown key {key!r}; a table has [[service]] and name"
        )
    services = document.get("service", [])
    if not isinstance(services, list):
        raise ConfigError(f"{where}: write [[service]] with two brackets: each is one row of a list")
    lines = [n for n, line in enumerate(text.splitlines(), 1) if re.match(r"\s*\[\[\s*service\s*\]\]", line)]
    rows = [_row(entry, text, where, lines[i] if i < len(lines) else 1) for i, entry in enumerate(services)]
    try:
        return Table.of(document.get("name", name), rows, where)
    except ConfigError as error:
        raise ConfigError(_with_line(str(error), text, where, rows, lines)) from None


def _row(entry: Any, text: str, where: str, line: int) -> Row:
    try:
        return msgspec.convert(entry, Row)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at `$")
        unknown = re.search(r"unknown field `(\w+)`", message)
        keys = [k for k in path.rstrip("`").split(".") if k and "[" not in k]
        key = unknown[1] if unknown else keys[-1] if keys else ""
        name = entry.get("name", "?") if isinstance(entry, dict) else "?"
        spot = f"{where}:{_line_of_key(text, line, key)}: service {name!r}"
        if unknown:
            raise ConfigError(f"{spot}: unknown key {'.'.join([*keys, key])!r}") from None
        raise ConfigError(f"{spot}: {'.'.join(keys) + ': ' if keys else ''}{message}") from None


def _line_of_key(text: str, start: int, key: str) -> int:
    """Line of the first `key =` (or ``[...key]``, or inline ``{ key =``) from the row's line on; the row's if none."""
    pattern = re.compile(rf"(^|[\s{{,.]){re.escape(key)}\s*=|^\s*\[+[\w.]*\b{re.escape(key)}\s*\]")
    for number, line in enumerate(text.splitlines()[start:], start + 1):
        if number > start + 1 and re.match(r"\s*\[\[\s*service", line):
            break
        if key and pattern.search(line):
            return number
    return max(start, 1)


def _with_line(message: str, text: str, where: str, rows: list[Row], lines: list[int]) -> str:
    """Put the line of the row, and of its key, that a message names behind the file's name."""
    found = re.search(r"service '([^']*)'(?:: (\w+)\b)?", message)
    indices = [i for i, row in enumerate(rows) if found and row.name == found[1]]
    if not indices or indices[-1] >= len(lines):
        return message
    line = lines[indices[-1]]
    if found is not None and found[2] in Row.__struct_fields__:
        line = _line_of_key(text, line, found[2])
    return message.replace(where, f"{where}:{line}", 1)


def to_toml(table: Table) -> str:
    """A table as TOML that reads back as the same table."""
    parts = [f"name = {json.dumps(table.name)}"]
    bases = [row for row in table.rows if "@" not in row.name]
    for row in bases:
        replicas = sum(other.name.partition("@")[0] == row.name for other in table.rows)
        after = [name for name in row.after or () if "@" not in name]
        whole = msgspec.to_builtins(msgspec.structs.replace(row, replicas=replicas, after=after))
        fields = {key: value for key, value in whole.items() if value != {}}
        options = fields.pop("options", {})
        parts.append("[[service]]\n" + "\n".join(f"{key} = {_value(value)}" for key, value in fields.items()))
        if options:
            parts[-1] += "\n[service.options]\n" + "\n".join(f"{_key(k)} = {_value(v)}" for k, v in options.items()
                                                             if v is not None)  # fmt: skip
    return "\n\n".join(parts) + "\n"


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _value(key)


def _value(value: Any) -> str:
    """One TOML value. JSON's strings and numbers are TOML's own, but for DEL, which json.dumps leaves bare."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_value(v) for v in value) + "]"
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
