"""Looking at a run from the command line: top, timeline, graph, doctor."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from zmqengine.rundir import Process, RunDirectory, RunState, process_of

from .runs import Runs, wait_until

ECHO = {"name": "a", "impl": "Echo", "live": {"interval": 0.1}}


def test_a_run_can_be_looked_at_from_every_side(runs: Runs, tmp_path: Path) -> None:
    table = runs.table(ECHO, ECHO | {"name": "b"}, ECHO | {"name": "c", "after": ["a"]})
    runs.run("up", table, "--detach")
    for _ in range(3):
        runs.run("call", "b", "echo", "text=x")

    def b() -> dict[str, object]:
        top = json.loads(runs.run("top", "--json", "--interval", "0.2").stdout)
        return next(row for row in top if row["name"] == "b" and row["p50_s"] is not None)

    assert 0 < float(str(wait_until(b)["p50_s"])) < 1
    shown = runs.run("top", "--once", "--interval", "0.2").stdout
    assert "3 of 3 services READY" in shown

    phases = json.loads(runs.run("timeline", "--json").stdout)
    assert {p["service"] for p in phases} == {"a", "b", "c"}
    assert any(p["critical"] for p in phases)
    runs.run("timeline", "--svg", str(tmp_path / "t.svg"), "--html", str(tmp_path / "t.html"))
    assert (tmp_path / "t.svg").read_text() in (tmp_path / "t.html").read_text()
    assert "* critical, one after the other: " in runs.run("timeline").stdout

    assert "├─ b  echo/1  READY" in runs.run("graph", "--run", "default").stdout
    assert json.loads(runs.run("graph", table, "--json").stdout)["layers"] == [["a"], ["b", "c"]]
    assert "digraph" in runs.run("graph", table, "--dot").stdout
    runs.run("down")


def test_the_doctor_clears_what_a_killed_launcher_and_its_guard_left(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZMQENGINE_RUNTIME_DIR", str(runs.base))
    left = RunDirectory.create("left")
    left.close()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stray:
        service, gone = process_of("a", stray.pid), Process(name="launcher", pid=stray.pid, started=0.0)
        assert service is not None
        left.write_state(RunState(run="left", launcher=gone, services=[service]))
        findings = {f["check"]: f for f in json.loads(runs.run("doctor", "--json").stdout)}
        assert (findings["stale runs"]["level"], findings["stale runs"]["found"]) == ("warning", "left")
        assert "cleared what was left of run left" in runs.run("doctor", "--clean").stdout
        assert stray.wait(5) == -signal.SIGKILL
    findings = {f["check"]: f for f in json.loads(runs.run("doctor", "--json").stdout)}
    assert findings["stale runs"]["level"] == "ok"
