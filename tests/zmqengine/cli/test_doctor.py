from __future__ import annotations

import dataclasses
import json

import pytest
from click.testing import CliRunner

from tests.zmqengine.test_doctor import FINE
from zmqengine.cli import doctor
from zmqengine.doctor import Facts


def on(monkeypatch: pytest.MonkeyPatch, facts: Facts) -> None:
    monkeypatch.setattr(doctor, "machine_facts", lambda: facts)


def test_a_warning_is_told_with_its_advice_and_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    on(monkeypatch, dataclasses.replace(FINE, open_files=1024))
    done = CliRunner().invoke(doctor.command)
    lines = done.output.splitlines()
    warned = next(index for index, line in enumerate(lines) if line.startswith("warning"))
    assert lines[warned].split()[1:] == ["open", "files", "at", "most", "1024"]
    assert "ulimit -n" in lines[warned + 1]
    assert done.exit_code == 0


def test_an_error_is_exit_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    on(monkeypatch, dataclasses.replace(FINE, open_files=10))
    done = CliRunner().invoke(doctor.command, ["--json"])
    assert done.exit_code == 1
    assert {f["check"]: f["level"] for f in json.loads(done.output)}["open files"] == "error"


def test_a_machine_without_fault_is_exit_code_0(monkeypatch: pytest.MonkeyPatch) -> None:
    on(monkeypatch, FINE)
    done = CliRunner().invoke(doctor.command)
    assert done.exit_code == 0
    assert all(line.startswith("ok ") for line in done.output.splitlines())
