"""A table is validated whole, and says what is wrong and where."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zmqengine.errors import ConfigError
from zmqengine.overrides import override_rows, parse_overrides, parse_value
from zmqengine.table import Row, Table, parse_cpus
from zmqengine.table_toml import load_table, parse_table, to_toml

GOOD = """
[[service]]
name = "a"
impl = "m:A"

[[service]]
name = "b"
command = ["./b", "--fast"]
replicas = 2
ready = { timeout = 5 }
cpus = "0-1,3"
[service.options]
depth = 3

[[service]]
name = "c"
impl = "m:C"
"""


def test_a_row_comes_after_the_row_above_and_after_all_its_replicas() -> None:
    table = parse_table(GOOD, "t.toml", "t")
    assert [row.name for row in table.rows] == ["a", "b", "b@1", "c"]
    assert table.row("b@1").after == ["a"]
    assert table.row("c").after == ["b", "b@1"]
    assert table.row("b").ready.timeout == 5
    assert table.dependents("a") == ["b", "b@1", "c"]


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ('impl = "m:A"', 'impl = "m:A"\nimp = 3', 5, "unknown key 'imp'"),
        ('impl = "m:A"', "", 2, "either impl"),
        ('command = ["./b", "--fast"]', 'command = ["./b"]\nimpl = "m:B"', 6, "not both"),
        ("timeout = 5", "timout = 5", 10, "unknown key 'ready.timout'"),
        ("timeout = 5", "timeout = -5", 10, "ready.timeout"),
        ("timeout = 5", 'timeout = "5"', 10, "Expected `float`, got `str`"),
        ('"0-1,3"', '"1-0"', 11, "cpus"),
        ('impl = "m:A"', 'impl = "m:A"\nbind = "tcp://*:5"', 5, "bind: endpoint 'tcp://*:5' stands for all"),
        ('impl = "m:A"', 'impl = "m:A"\nbind = "10.0.0.5:0"', 5, "expected tcp://ADDRESS:PORT"),
        ('impl = "m:A"', 'impl = "m:A"\nbind = "tcp://10.0.0.5"', 5, "expected tcp://ADDRESS:PORT"),
        ('impl = "m:A"', 'impl = "m:A"\nbind = "ipc:///tmp/x"', 5, "in the run directory"),
        ('impl = "m:A"', 'impl = "m:A"\ncurve = true', 2, "are for tcp"),
        ("replicas = 2", 'replicas = 2\nbind = "tcp://10.0.0.5:7"', 10, "2 replicas cannot share a port"),
        ('impl = "m:C"', 'external = true\nbind = "tcp://10.0.0.5:7"', 18, "run by hand, with --bind"),
        ('name = "c"', 'name = "a"', None, "stands twice"),
        ('name = "c"', 'name = "C!"', 15, "name is at most"),
        ('impl = "m:C"', 'impl = "m:C"\nafter = ["nobody"]', 18, "names 'nobody'"),
        ('impl = "m:C"', 'impl = "m:C"\nafter = ["c"]', 15, "after itself"),
        ('impl = "m:C"', 'impl = "m:C"\nexternal = true', 18, "run by hand"),
        ("replicas = 2", "replicas = 0", 9, "replicas"),
        ("[[service]]", "[service]", None, "two brackets"),
    ],
)
def test_a_fault_is_told_with_its_line_and_key(old: str, new: str, line: int | None, words: str) -> None:
    text = GOOD.replace(old, new, 1) if old != "[[service]]" else '[service]\nname = "x"'
    with pytest.raises(ConfigError) as caught:
        parse_table(text, "t.toml", "t")
    message = str(caught.value)
    assert words in message
    assert message.startswith("t.toml")
    if line is not None:
        assert message.startswith(f"t.toml:{line}:"), message


def test_an_unknown_key_of_the_file_itself_is_refused_with_its_line() -> None:
    with pytest.raises(ConfigError, match=r"t.toml:1: unknown key 'servces'"):
        parse_table('servces = "x"\n' + GOOD, "t.toml", "t")


def test_a_circle_is_named() -> None:
    rows = [Row(name="a", impl="m:A", after=["b"]), Row(name="b", impl="m:B", after=["a"])]
    with pytest.raises(ConfigError, match="circle: a, b"):
        Table.of("t", rows)


def test_a_row_may_come_after_a_later_one() -> None:
    rows = [Row(name="a", impl="m:A", after=["b"]), Row(name="b", impl="m:B", after=[])]
    assert [row.name for row in Table.of("t", rows).rows] == ["b", "a"]


def test_an_empty_table_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no \[\[service\]\]"):
        parse_table("", "t.toml", "t")
    with pytest.raises(ConfigError, match="No such file"):
        load_table(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("[[service]\n")
    with pytest.raises(ConfigError, match="line 1"):
        load_table(tmp_path / "bad.toml")


def test_a_table_written_as_toml_reads_back_the_same() -> None:
    table = parse_table(GOOD, "t.toml", "t")
    assert parse_table(to_toml(table), "again", "t") == table


@given(
    st.dictionaries(
        st.text(min_size=1, max_size=8),
        st.recursive(
            st.one_of(st.booleans(), st.integers(-(2**62), 2**62), st.floats(allow_nan=False), st.text(max_size=8)),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
            max_leaves=6,
        ),
        max_size=4,
    )
)
def test_any_options_survive_toml(options: dict[str, object]) -> None:
    table = Table.of("t", [Row(name="a", impl="m:A", options=options)])
    assert parse_table(to_toml(table), "again", "t").row("a").options == options


def test_cpus_are_read_as_the_kernel_writes_them() -> None:
    assert parse_cpus("0-2,5", "here") == {0, 1, 2, 5}
    assert parse_cpus("", "here") is None
    with pytest.raises(ConfigError, match="here: cpus"):
        parse_cpus("0-", "here")


@pytest.mark.parametrize(
    ("text", "value"),
    [("3", 3), ("0.5", 0.5), ("true", True), ("[1, 2]", [1, 2]), ('"3"', "3"), ("a/b.gguf", "a/b.gguf"), ("", "")],
)
def test_a_set_value_is_toml_where_it_can_be_and_else_text(text: str, value: object) -> None:
    assert parse_value(text) == value


def test_set_splits_the_options_of_the_table_from_those_of_its_rows() -> None:
    table, rows = parse_overrides(["model=x=y", "api.port=0", "api.port=1", "worker.deep.key=2"])
    assert table == {"model": "x=y"}
    assert rows == {"api": {"port": 1}, "worker": {"deep.key": 2}}


@pytest.mark.parametrize("bad", ["model", "=3", ".x=3", "x.=3"])
def test_a_set_without_key_or_value_is_refused(bad: str) -> None:
    with pytest.raises(ConfigError, match="form key=value"):
        parse_overrides([bad])


def test_an_override_of_a_service_reaches_its_replicas_and_a_typo_is_met_with_a_guess() -> None:
    table = parse_table(GOOD, "t.toml", "t")
    changed = override_rows(table, {"b": {"depth": 9}, "b@1": {"depth": 10}})
    assert changed.row("b").options == {"depth": 9}
    assert changed.row("b@1").options == {"depth": 10}
    with pytest.raises(ConfigError, match="did you mean 'a'"):
        override_rows(Table.of("t", [Row(name="a", impl="m:A")]), {"aa": {"x": 1}})
