"""A table as a graph: who comes after whom, as a tree of text and as Graphviz's DOT."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from .lifecycle import SERVING, State
from .table import Row


def layers(rows: Sequence[Row]) -> list[list[Row]]:
    """Rows by the length of the longest chain before them: those of one layer start side by side."""
    depth: dict[str, int] = {}
    for row in rows:  # in table order, so that whoever a row comes after is there already
        depth[row.name] = 1 + max((depth[name] for name in row.after or ()), default=-1)
    return [[row for row in rows if depth[row.name] == n] for n in range(max(depth.values(), default=-1) + 1)]


def to_text(rows: Sequence[Row], states: Mapping[str, State] | None = None) -> list[str]:
    """A tree: each service below the first one that it comes after; its others stand beside it."""
    lines: list[str] = []
    children: dict[str | None, list[Row]] = {}
    for row in rows:
        children.setdefault((row.after or [None])[0], []).append(row)  # type: ignore[list-item]

    def visit(row: Row, prefix: str, last: bool, top: bool) -> None:
        branch = "" if top else ("└─ " if last else "├─ ")
        others = f"  (and after {', '.join((row.after or [])[1:])})" if len(row.after or []) > 1 else ""
        protocol = f"  {row.protocol}" if row.protocol else ""
        state = f"  {states[row.name].value}" if states is not None and row.name in states else ""
        lines.append(f"{prefix}{branch}{row.name}{protocol}{state}{others}")
        below = children.get(row.name, [])
        for index, child in enumerate(below):
            visit(child, prefix + ("" if top else "   " if last else "│  "), index == len(below) - 1, False)

    for row in children.get(None, []):
        visit(row, "", True, True)
    return lines


def to_dot(name: str, rows: Sequence[Row], states: Mapping[str, State] | None = None) -> str:
    """Graphviz: an arrow leads from a service to whoever comes after it."""
    parts = [f"digraph {json.dumps(name)} {{", "  rankdir=LR;", "  node [shape=box, style=rounded];"]
    for row in rows:
        label = "\\n".join([row.name, *([row.protocol] if row.protocol else [])])
        state = None if states is None else states.get(row.name)
        colour = "" if state is None else f', color="{"green" if state in SERVING else "red"}"'
        parts.append(f'  {json.dumps(row.name)} [label="{label}"{colour}];')
    parts += [f"  {json.dumps(other)} -> {json.dumps(row.name)};" for row in rows for other in row.after or ()]
    return "\n".join([*parts, "}"])
