from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from zmqengine.reconcile import PROCESS_FIELDS, reconcile
from zmqengine.table import Live, Row, Table


def table(*rows: Row) -> Table:
    return Table.of("t", rows)


def row(name: str, impl: str = "m:A", after: list[str] | None = None, **fields: object) -> Row:
    return Row(name=name, impl=impl, after=after or [], **fields)  # type: ignore[arg-type]


def test_what_did_not_change_is_left_alone() -> None:
    assert reconcile(table(row("a"), row("b")), table(row("a"), row("b"))) == []


def test_new_rows_start_in_order_and_those_that_are_gone_stop_dependents_first() -> None:
    old = table(row("a"), row("b", after=["a"]), row("c", after=["b"]))
    new = table(row("a"), row("d", after=["a"]), row("e", after=["d"]))
    assert [(s.kind, s.name) for s in reconcile(old, new)] == [
        ("stop", "c"), ("stop", "b"), ("start", "d"), ("start", "e"),
    ]  # fmt: skip


def test_what_a_process_was_started_with_takes_a_restart_and_all_else_does_not() -> None:
    old = table(row("a"), row("b"), row("c"))
    new = table(row("a", impl="m:B"), row("b", live=Live(stall=5.0)), row("c", options={"x": 1}, live=Live(stall=5.0)))
    assert [(s.kind, s.name, s.changed) for s in reconcile(old, new)] == [
        ("restart", "a", ["impl"]), ("update", "b", ["live"]), ("restart", "c", ["live", "options"]),
    ]  # fmt: skip


def test_every_field_of_a_process_is_a_field_of_a_row() -> None:
    assert set(PROCESS_FIELDS) <= set(Row.__struct_fields__)


NAMES = st.lists(st.sampled_from("abcdefgh"), unique=True, min_size=1)
IMPLS = st.sampled_from(["m:A", "m:B"])


@given(st.data())
def test_applying_the_steps_to_the_old_rows_gives_the_new_ones(data: st.DataObject) -> None:
    old, new = (
        table(*(row(name, data.draw(IMPLS), live=Live(stall=data.draw(st.sampled_from([1.0, 2.0])))) for name in names))
        for names in (data.draw(NAMES), data.draw(NAMES))
    )
    have = {r.name: r for r in old.rows}
    for step in reconcile(old, new):
        if step.kind == "stop":
            del have[step.name]
        else:
            assert (step.kind == "start") is (step.name not in have)
            have[step.name] = new.row(step.name)
    assert have == {r.name: r for r in new.rows}
    assert reconcile(new, new) == []
