"""`zmqengine doctor`"""

from __future__ import annotations

import contextlib
import sys

import click

from ..doctor import Finding, examine
from ..errors import ConfigError
from ..machine import left_segments, machine_facts, remove_segment, stale_runs
from ..rundir import RunDirectory
from .options import json_option, print_json

_MARKS = {"ok": ("ok", "green"), "warning": ("warning", "yellow"), "error": ("error", "red")}


@click.command("doctor")
@click.option("--clean", is_flag=True, help="End what killed launchers left: processes, sockets, shared memory.")
@json_option
def command(clean: bool, as_json: bool) -> None:
    """Look at what may keep a system from running well on this machine, and say what to do. Exit code 1: an error."""
    if clean:
        for line in clean_up():
            click.echo(line, err=as_json)
    findings = examine(machine_facts())
    if as_json:
        print_json([{"check": f.check, "level": f.level, "found": f.found, "advice": f.advice} for f in findings])
    else:
        for finding in findings:
            _print(finding)
    sys.exit(1 if any(finding.level == "error" for finding in findings) else 0)


def clean_up() -> list[str]:
    """Clear stale runs and left shared memory; what was done, in words."""
    done = []
    for run in stale_runs():
        with contextlib.suppress(ConfigError):  # somebody took the name just now: it is not stale any more
            taken = RunDirectory.create(run.name)
            done.append(f"cleared what was left of run {run.name}")
            taken.close()
    for path in left_segments():
        if remove_segment(path):
            done.append(f"removed {path}")
    return done


def _print(finding: Finding) -> None:
    mark, colour = _MARKS[finding.level]
    click.echo(f"{click.style(f'{mark:8}', fg=colour)} {finding.check:16} {finding.found}")
    if finding.advice:
        click.echo(f"{'':26}{finding.advice}")
