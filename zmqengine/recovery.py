"""What one failure leads to: the budget of restarts, the pause before one, and who is taken along."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Mapping

from .lifecycle import State
from .table import Restart, Table
from .unit import Unit


def within_budget(failures: collections.deque[float], policy: Restart, now: float) -> bool:
    """Note a failure; whether one more restart is allowed: at most `intensity` within `period` (as Erlang's)."""
    failures.append(now)
    while failures[0] <= now - policy.period:
        failures.popleft()
    return len(failures) <= policy.intensity


def pause_s(failures: int, policy: Restart, jitter: float) -> float:
    """Seconds before the restart: doubled with each failure in the period, up to the longest, less up to a half.

    jitter: a number in [0, 1). Rows that failed together are so not restarted in step.
    """
    first, longest = policy.backoff
    doubled = first * 2.0 ** min(failures - 1, 64)  # past any pause that fits a float's range
    return min(longest, doubled) * (0.5 + jitter / 2)


def group_of(table: Table, unit: Unit) -> list[str]:
    """Names of the rows that live and die with this one, without it, last first."""
    group = unit.row.restart.group
    return [row.name for row in reversed(table.rows) if group and row.restart.group == group and row.name != unit.name]


def taken_along(table: Table, unit: Unit) -> list[str]:
    """Names of the rows that are restarted with one that failed, without it, last first."""
    names: set[str] = set(group_of(table, unit))
    if unit.row.restart.strategy == "rest_for_one":
        names |= set(table.dependents(unit.name))
    elif unit.row.restart.strategy == "one_for_all":
        names |= {row.name for row in table.rows}
    return [row.name for row in reversed(table.rows) if row.name in names and row.name != unit.name]


def blocker(table: Table, units: Mapping[str, Unit], unit: Unit) -> Unit | None:
    """A quarantined service without which this one cannot be started: one that it comes after, or of its group."""
    for name in _needs(table, unit):
        if units[name].state is State.QUARANTINED:
            return units[name]
    return None


def _needs(table: Table, unit: Unit) -> Iterable[str]:
    yield from group_of(table, unit)
    for row in table.rows:
        if unit.name in table.dependents(row.name):
            yield row.name
