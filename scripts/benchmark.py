"""What every benchmark of this folder prints: one JSON object with its `checks`, or a table for people."""

from __future__ import annotations

import json
import platform
from dataclasses import asdict, dataclass
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True)
class Check:
    """A figure that has a goal."""

    name: str
    value: float
    unit: str
    goal: str
    """As people read it: "<= 1.3"."""
    ok: bool


def at_most(name: str, value: float, limit: float, unit: str = "ratio") -> Check:
    """A figure that is to be at most `limit`."""
    return Check(name, value, unit, f"<= {limit:g}", value <= limit)


def at_least(name: str, value: float, limit: float, unit: str = "ratio") -> Check:
    """A figure that is to be at least `limit`."""
    return Check(name, value, unit, f">= {limit:g}", value >= limit)


def machine() -> dict[str, Any]:
    """Where it was measured."""
    return {
        "cpus": psutil.cpu_count(), "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "python": platform.python_version(), "load_1m": round(psutil.getloadavg()[0], 2),
    }  # fmt: skip


def report(measured: dict[str, Any], checks: list[Check], rows: Table | None, *, as_json: bool) -> int:
    """Print it; the exit code: 0 if every goal is reached."""
    if as_json:
        print(json.dumps({"machine": machine(), **measured, "checks": [asdict(check) for check in checks]}, indent=2))
    else:
        console = Console()
        if rows is not None:
            console.print(rows)
        table = Table("check", "value", "goal", "", box=None, header_style="bold")
        for check in checks:
            mark = "[green]ok[/]" if check.ok else "[red]missed[/]"
            table.add_row(check.name, f"{check.value:.3g} {check.unit}", check.goal, mark)
        console.print(table)
    return 0 if all(check.ok for check in checks) else 1
