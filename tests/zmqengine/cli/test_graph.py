from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from zmqengine.cli import graph
from zmqengine.lifecycle import State

from .fake_run import FakeBroker, service, status, take_place

RUN = status(service("a"), service("b", State.BACKOFF, after=["a"]), service("c", after=["a", "b"]))


@pytest.fixture
def table(tmp_path: Path) -> str:
    path = tmp_path / "two.toml"
    path.write_text('[[service]]\nname = "x"\nimpl = "m:X"\n[[service]]\nname = "y"\nimpl = "m:Y"\nafter = ["x"]\n')
    return str(path)


def test_a_table_is_drawn_without_states(table: str) -> None:
    assert CliRunner().invoke(graph.command, [table]).output.splitlines() == ["x", "└─ y"]
    assert json.loads(CliRunner().invoke(graph.command, [table, "--json"]).output)["states"] is None


def test_a_run_is_drawn_with_the_state_of_each_service(monkeypatch: pytest.MonkeyPatch) -> None:
    take_place(monkeypatch, graph, FakeBroker(RUN))
    assert CliRunner().invoke(graph.command, ["--run", "r"]).output.splitlines() == [
        "a  p/1  READY",
        "├─ b  p/1  BACKOFF",
        "└─ c  p/1  READY  (and after b)",
    ]
    drawn = json.loads(CliRunner().invoke(graph.command, ["--run", "r", "--json"]).output)
    assert drawn["table"] == "t"
    assert drawn["edges"] == [["a", "b"], ["a", "c"], ["b", "c"]]
    assert drawn["states"]["b"] == "BACKOFF"
    dot = CliRunner().invoke(graph.command, ["--run", "r", "--dot"]).output
    assert '"b" [label="b\\np/1", color="red"];' in dot


def test_a_table_and_a_run_at_once_are_refused(table: str) -> None:
    done = CliRunner().invoke(graph.command, [table, "--run", "r"])
    assert done.exit_code == 2
    assert "either TABLE or --run" in done.output
