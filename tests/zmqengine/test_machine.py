from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from zmqengine.doctor import SHARED_MEMORY
from zmqengine.machine import left_segments, machine_facts, remove_segment, stale_runs
from zmqengine.rundir import RunDirectory, RunState, process_of


def test_the_facts_of_this_machine_can_be_gathered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZMQENGINE_RUNTIME_DIR", str(tmp_path / "none"))
    facts = machine_facts()
    assert facts.system == "Linux"
    assert facts.base_problem == ""
    assert facts.stale_runs == ()
    assert 0 < facts.clock_s < 1e-3
    assert 0 < facts.cpus <= (os.cpu_count() or 1)
    (tmp_path / "file").touch()
    monkeypatch.setenv("ZMQENGINE_RUNTIME_DIR", str(tmp_path / "file"))
    assert machine_facts().base_problem == "it is not a directory"


def test_a_run_whose_launcher_is_gone_is_stale_and_one_that_is_held_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    base = Path(tempfile.mkdtemp(prefix="ze-", dir="/tmp"))
    monkeypatch.setenv("ZMQENGINE_RUNTIME_DIR", str(base))
    me = process_of("launcher", os.getpid())
    assert me is not None
    held = RunDirectory.create("held")
    held.write_state(RunState(run="held", launcher=me, services=[]))
    left = RunDirectory.create("left")
    left.close()
    left.write_state(RunState(run="left", launcher=me, services=[]))
    assert [run.name for run in stale_runs()] == ["left"]
    held.close()
    shutil.rmtree(base)


@pytest.fixture
def segment() -> Iterator[Path]:
    """A file that is named as a segment of ours."""
    path = SHARED_MEMORY / f"zmqengine-test-{secrets.token_hex(4)}"
    path.touch(mode=0o600)
    yield path
    path.unlink(missing_ok=True)


def test_a_segment_of_ours_that_nobody_maps_is_left_over_and_can_be_removed(segment: Path) -> None:
    assert segment in left_segments()
    assert remove_segment(segment)
    assert not segment.exists()
    assert not remove_segment(segment)


def test_a_segment_whose_owner_has_just_made_it_stays(segment: Path) -> None:
    with segment.open("rb") as owner:
        fcntl.flock(owner, fcntl.LOCK_EX)
        assert not remove_segment(segment)
    assert segment.exists()


def test_run_directories_that_are_no_directory_of_ours_hold_no_stale_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    for base in (tmp_path / "none", tmp_path / "file"):
        monkeypatch.setenv("ZMQENGINE_RUNTIME_DIR", str(base))
        assert stale_runs() == []
