"""What has to be done to a running system so that it is as an edited table says: no more than what changed."""

from __future__ import annotations

from typing import Literal

from .message import Message
from .table import Row, Table

StepKind = Literal["stop", "restart", "start", "update"]
PROCESS_FIELDS = ("impl", "command", "protocol", "external", "env", "cpus", "options", "bind", "curve",
                  "all_interfaces")  # fmt: skip
"""What a process was started with: a change takes a restart. All else is the supervisor's own, and changes at once."""


class Step(Message):
    """One thing to do."""

    kind: StepKind
    """stop: its row is gone; restart: what it is started with changed; start: its row is new; update: only how it is
    kept changed, which its process does not notice."""
    name: str
    changed: list[str] = []
    """Fields of the row that differ."""


def reconcile(old: Table, new: Table) -> list[Step]:
    """The steps, in order: stops (dependents first), then the others in the order of the new table."""
    before, after = {row.name: row for row in old.rows}, {row.name: row for row in new.rows}
    steps = [Step(kind="stop", name=row.name) for row in reversed(old.rows) if row.name not in after]
    for name, row in after.items():
        if name not in before:
            steps.append(Step(kind="start", name=name))
            continue
        changed = changed_fields(before[name], row)
        if changed:
            kind: StepKind = "restart" if set(changed) & set(PROCESS_FIELDS) else "update"
            steps.append(Step(kind=kind, name=name, changed=changed))
    return steps


def changed_fields(old: Row, new: Row) -> list[str]:
    """Fields in which two rows of one name differ."""
    return [field for field in Row.__struct_fields__ if getattr(old, field) != getattr(new, field)]
