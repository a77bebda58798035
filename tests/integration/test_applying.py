"""`zmqengine apply`: a running system becomes what an edited table says, and what did not change is not touched."""

from __future__ import annotations

import json
from typing import Any

from .runs import Runs

A, B, C = ({"name": name, "impl": "Echo", "after": []} for name in "abc")


def incarnations(runs: Runs) -> dict[str, str]:
    return {name: service["incarnation"] for name, service in runs.services().items()}


def test_only_what_changed_is_started_stopped_and_restarted(runs: Runs) -> None:
    runs.run("up", runs.table(A, B, C), "--detach")
    before = incarnations(runs)
    changed: dict[str, Any] = B | {"env": {"X": "1"}}
    edited = runs.table(A | {"live": {"stall": 7.0}}, changed, {"name": "d", "impl": "Echo", "after": ["b"]})

    planned = runs.run("apply", edited, "--dry-run").stdout.split()
    assert planned == ["-", "stop", "c", "=", "update", "a", "(live)", "~", "restart", "b", "(env)", "+", "start", "d"]
    assert incarnations(runs) == before

    assert "applied" in runs.run("apply", edited).stdout
    services = runs.services()
    assert set(services) == {"a", "b", "d"}
    assert {service["state"] for service in services.values()} == {"READY"}
    after = incarnations(runs)
    assert after["a"] == before["a"]
    assert after["b"] != before["b"]
    assert services["b"]["ready_at"] <= services["d"]["setup_at"]
    assert runs.run("call", "d", "echo", "text=hi").stdout == '"hi"\n'
    assert "has no service 'c'" in runs.run("call", "c", "echo", "text=hi", ok=False).stderr

    assert json.loads(runs.run("apply", edited, "--json").stdout) == []
    runs.run("apply", runs.table(A, B, C))
    assert set(runs.services()) == {"a", "b", "c"}
    runs.run("down")


def test_a_new_row_that_fails_is_named_and_the_others_serve_on(runs: Runs) -> None:
    runs.run("up", runs.table(A, B), "--detach")
    before = incarnations(runs)
    restart = {"intensity": 1, "backoff": [0.01, 0.01]}
    edited = runs.table(A, B, {"name": "bad", "impl": "Faulty", "after": [], "restart": restart})
    done = runs.run("apply", edited, ok=False)
    assert done.returncode == 1
    assert "bad is not READY" in done.stderr
    assert "as it was told to" in done.stderr
    after = incarnations(runs)
    assert (after["a"], after["b"]) == (before["a"], before["b"])
    assert runs.run("call", "a", "echo", "text=hi").stdout == '"hi"\n'
    runs.run("apply", runs.table(A, B))
    assert set(runs.services()) == {"a", "b"}
    runs.run("down")


def test_a_table_is_validated_before_anything_is_done(runs: Runs) -> None:
    runs.run("up", runs.table(A), "--detach")
    before = incarnations(runs)
    assert "stands twice" in runs.run("apply", runs.table(A, A), ok=False).stderr
    assert incarnations(runs) == before
    runs.run("down")
