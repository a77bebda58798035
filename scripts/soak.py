"""Up and down again and again, and the launcher killed at random moments: nothing is left, and nothing hangs.

    python scripts/soak.py [--cycles N] [--kills N] [--seed N] [--json]

All in one run directory, so that each start is also one right after a stop, or after a kill. One of the services leaves
children of its own: one in its group, one in a session of its own. Exit code 1 at the first thing that is not so.
"""

from __future__ import annotations

import json
import random
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import click

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.integration.fault_matrix import trial_directory
from tests.integration.runs import Runs

GONE_S = 2.0
"""After the launcher's death, within which everything is gone."""
LONGEST_LIFE_S = 2.5
"""A launcher is killed at a moment up to this after its start: it takes about 1 s until all is READY."""


class Soak:
    """One run directory, used again and again."""

    def __init__(self, runs: Runs, seed: int) -> None:
        self.up_s: list[float] = []
        self.down_s: list[float] = []
        self.gone_s: list[float] = []
        self._runs = runs
        self._random = random.Random(seed)
        environ = {"FAULT": "loading:child", "FAULT_MARK": str(runs.base / "mark")}
        self._table = runs.table(
            {"name": "a", "impl": "Echo"},
            {"name": "b", "impl": "tests.integration.faulty:Faulty", "env": environ, "stop": {"drain": 2.0}},
            {"name": "c", "impl": "Echo"},
        )

    def cycle(self) -> None:
        """Up until all is READY, and down. Raises AssertionError."""
        started = time.monotonic()
        self._runs.run("up", self._table, "--detach")
        up = time.monotonic()
        self._runs.run("down")
        self.up_s.append(up - started)
        self.down_s.append(time.monotonic() - up)
        self._runs.assert_nothing_left(GONE_S)

    def kill(self) -> float:
        """SIGKILL the launcher at a random moment of its life; that moment. Raises AssertionError."""
        moment = self._random.uniform(0.0, LONGEST_LIFE_S)
        launcher = self._runs.start("up", self._table)
        try:
            launcher.wait(moment)
            raise AssertionError(f"it ended by itself:\n{launcher.communicate()[0]}")
        except subprocess.TimeoutExpired:
            pass  # it still runs, as it should
        launcher.kill()
        killed = time.monotonic()
        launcher.communicate()
        self._runs.launchers.remove(launcher)
        self._runs.assert_nothing_left(GONE_S)
        self.gone_s.append(time.monotonic() - killed)
        return moment


def plan(cycles: int, kills: int, seed: int) -> list[str]:
    """Both kinds in random order; the last is a cycle, to show that a start after any kill works."""
    steps = ["cycle"] * (cycles - 1) + ["kill"] * kills
    random.Random(seed).shuffle(steps)
    return [*steps, "cycle"]


@click.command()
@click.option("--cycles", default=500, show_default=True, type=click.IntRange(min=1), help="Times up and down.")
@click.option("--kills", default=50, show_default=True, type=click.IntRange(min=0), help="Kills of the launcher.")
@click.option("--seed", default=0, show_default=True, help="Of the order, and of the moments of the kills.")
@click.option("--json", "json_wanted", is_flag=True, help="Print JSON.")
def main(cycles: int, kills: int, seed: int, json_wanted: bool) -> None:
    """Cycle and kill."""
    base = trial_directory()
    runs = Runs(base)
    soak = Soak(runs, seed)
    failure = ""
    try:
        for number, step in enumerate(plan(cycles, kills, seed), 1):
            what = f"{number}: {step}"
            if step == "kill":
                what += f" at {soak.kill():.2f} s"
            else:
                soak.cycle()
            if number % 10 == 0 and not json_wanted:
                click.echo(f"{what}, ok so far", err=True)
    except (AssertionError, subprocess.TimeoutExpired) as error:
        failure = f"step {number}, {step}: {error} (kept: {base})"
    finally:
        runs.close()
    if not failure:
        shutil.rmtree(base)
    summary = {
        "ok": not failure, "failure": failure, "cycles": len(soak.up_s), "kills": len(soak.gone_s),
        "up_s": spread(soak.up_s), "down_s": spread(soak.down_s), "gone_after_kill_s": spread(soak.gone_s),
    }  # fmt: skip
    click.echo(json.dumps(summary, indent=2) if json_wanted else "\n".join(f"{k}: {v}" for k, v in summary.items()))
    sys.exit(1 if failure else 0)


def spread(values: list[float]) -> dict[str, float]:
    """Median and longest, in seconds."""
    return {"median": round(statistics.median(values), 3), "max": round(max(values), 3)} if values else {}


if __name__ == "__main__":
    main()
