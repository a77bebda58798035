"""The fault matrix on real runs: each fault in each phase of a service's life, and whether the launcher copes.

    python scripts/chaos.py [--phase PHASE] [--fault FAULT] [--jobs N] [--json]

For each: the cause is named in time, only dependents are touched, each call in flight has its answer, nothing survives
the stop, and the run can be started again at once. Exit code 1 if any of that does not hold.
"""

from __future__ import annotations

import concurrent.futures
import json
import shutil
import sys
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.integration.fault_matrix import FAULTS, PHASES, Case, Result, Trial, trial_directory
from tests.integration.runs import Runs


def run_case(case: Case) -> Result:
    """One case in a base directory of its own, which is kept if it fails."""
    base = trial_directory()
    runs = Runs(base)
    try:
        result = Trial(runs, case).run()
    finally:
        runs.close()
    if result.faults:
        result.faults.append(f"kept: {base}")
    else:
        shutil.rmtree(base)
    return result


def show(results: list[Result]) -> Table:
    """A row for each fault, a column for each phase: how soon it was named; `on` where the service goes on."""
    phases = [phase for phase in PHASES if any(r.case.phase == phase for r in results)]
    table = Table("fault", *phases, title="seconds until the cause was named; on: it goes on, and nothing is disturbed")
    found = {(r.case.fault, r.case.phase): r for r in results}
    for fault in (f for f in FAULTS if any(r.case.fault == f for r in results)):
        cells = []
        for phase in phases:
            result = found.get((fault, phase))
            if result is None:
                cells.append("")
            elif result.faults:
                cells.append("[red]FAILED[/]")
            else:
                cells.append("[green]on[/]" if result.named_s is None else f"[green]{result.named_s:.2f}[/]")
        table.add_row(fault, *cells)
    return table


def as_json(result: Result) -> dict[str, object]:
    """One result."""
    return {
        "phase": result.case.phase, "fault": result.case.fault, "ok": not result.faults, "named_s": result.named_s,
        "limit_s": result.case.named_within_s if result.case.ends_it else None, "cause": result.cause,
        "total_s": round(result.total_s, 2), "faults": result.faults,
    }  # fmt: skip


@click.command()
@click.option("--phase", "phases", multiple=True, type=click.Choice(PHASES), help="Only this phase. Repeatable.")
@click.option("--fault", "faults", multiple=True, type=click.Choice(FAULTS), help="Only this fault. Repeatable.")
@click.option("--jobs", default=2, show_default=True, help="Runs at the same time.")
@click.option("--json", "json_wanted", is_flag=True, help="Print JSON.")
def main(phases: tuple[str, ...], faults: tuple[str, ...], jobs: int, json_wanted: bool) -> None:
    """Run the fault matrix, and print what came of it."""
    cases = [Case(phase, fault) for phase in phases or PHASES for fault in faults or FAULTS]
    results: list[Result] = []
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for result in pool.map(run_case, cases):
            results.append(result)
            if result.faults or not json_wanted:
                word = "FAILED" if result.faults else "ok"
                click.echo(f"{word:6} {result.case.phase:9} {result.case.fault:15} {result.total_s:5.1f} s  "
                           f"{result.cause[:100]}", err=True)  # fmt: skip
            for fault in result.faults:
                click.echo(f"       {fault}", err=True)
    failed = sum(bool(result.faults) for result in results)
    if json_wanted:
        click.echo(json.dumps({"ok": failed == 0, "results": [as_json(result) for result in results]}, indent=2))
    else:
        Console(width=120).print(show(results))
        click.echo(f"{len(results) - failed} of {len(results)} passed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
