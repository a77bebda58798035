from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from services.models.catalogue import CATALOGUE
from services.models.cli import models


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ZMQENGINE_HOME", str(tmp_path))
    return tmp_path


def test_list_as_json_says_what_is_there_and_where(home: Path) -> None:
    rows = json.loads(CliRunner().invoke(models, ["list", "--json"]).stdout)
    assert {row["name"]: row["pulled"] for row in rows} == dict.fromkeys(CATALOGUE, False)
    assert all(row["path"].startswith(str(home)) for row in rows)


def test_path_of_a_model_that_is_not_pulled_fails_with_what_to_do(home: Path) -> None:
    result = CliRunner().invoke(models, ["path", "smollm2"])
    assert result.exit_code == 1
    assert "zmqengine models pull smollm2" in result.stderr


def test_path_of_a_file_is_the_file(home: Path) -> None:
    file = home / "x.gguf"
    file.write_bytes(b"GGUF")
    assert CliRunner().invoke(models, ["path", str(file)]).stdout.strip() == str(file)


def test_pull_of_an_unknown_name_fails_and_names_the_known(home: Path) -> None:
    result = CliRunner().invoke(models, ["pull", "gpt-7"])
    assert result.exit_code == 1
    assert "smollm2" in result.stderr
    assert "Traceback" not in result.output
