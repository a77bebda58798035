from __future__ import annotations

from zmqengine.graph import layers, to_dot, to_text
from zmqengine.lifecycle import State
from zmqengine.table import Row, Table

TABLE = Table.of("t", [
    Row(name="a", impl="m:A", protocol="a/1", after=[]), Row(name="b", impl="m:B", after=["a"]),
    Row(name="c", impl="m:C", after=["a"]), Row(name="d", impl="m:D", after=["b", "c"]),
    Row(name="e", impl="m:E", after=[]),
])  # fmt: skip


def test_layers_start_side_by_side() -> None:
    assert [[row.name for row in layer] for layer in layers(TABLE.rows)] == [["a", "e"], ["b", "c"], ["d"]]
    assert layers([]) == []


def test_the_tree_has_every_service_once_below_the_first_it_comes_after() -> None:
    assert to_text(TABLE.rows) == [
        "a  a/1",
        "├─ b",
        "│  └─ d  (and after c)",
        "└─ c",
        "e",
    ]


def test_the_tree_shows_states_where_they_are_known() -> None:
    lines = to_text(TABLE.rows, {"a": State.READY, "b": State.FAILED})
    assert lines[:2] == ["a  a/1  READY", "├─ b  FAILED"]


def test_dot_has_an_arrow_for_every_edge_and_quotes_names() -> None:
    dot = to_dot('my "table"', TABLE.rows, {"a": State.READY, "b": State.FAILED})
    assert dot.startswith('digraph "my \\"table\\"" {')
    assert [line.strip() for line in dot.splitlines() if "->" in line] == [
        '"a" -> "b";', '"a" -> "c";', '"b" -> "d";', '"c" -> "d";',
    ]  # fmt: skip
    assert '"a" [label="a\\na/1", color="green"];' in dot
    assert '"b" [label="b", color="red"];' in dot
