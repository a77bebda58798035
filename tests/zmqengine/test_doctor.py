from __future__ import annotations

import dataclasses
import os
import secrets
import shutil
import tempfile
from pathlib import Path

import pytest

from zmqengine.doctor import SHARED_MEMORY, Facts, examine, left_segments, machine_facts, stale_runs
from zmqengine.rundir import RunDirectory, RunState, process_of
from zmqengine.transport import Library

FINE = Facts(
    python=(3, 12), system="Linux", library=Library("27.0", "4.3.5", True), open_files=65536, base=Path("/tmp/z"),
    base_problem="", stale_runs=(), shm_free_bytes=1 << 30, segments=(), memory_bytes=8 << 30, cpus=4, loopback="",
)  # fmt: skip


def test_a_machine_without_fault_has_no_finding_but_ok() -> None:
    findings = examine(FINE)
    assert {finding.level for finding in findings} == {"ok"}
    assert not any(finding.advice for finding in findings)


@pytest.mark.parametrize(
    ("fault", "check", "level", "advice"),
    [
        ({"system": "Darwin"}, "system", "error", "run it there"),
        ({"python": (3, 10)}, "python", "error", "3.11"),
        ({"library": Library("20", "4.1.9", True)}, "libzmq", "error", "wheel"),
        ({"library": Library("27", "4.3.5", False)}, "libzmq", "warning", "wheel"),
        ({"open_files": 100}, "open files", "error", "ulimit -n"),
        ({"open_files": 1024}, "open files", "warning", "ulimit -n"),
        ({"base": Path("/" + "x" * 60)}, "run directories", "error", "shorter"),
        ({"base": Path("/" + "x" * 33)}, "run directories", "warning", "shorter"),
        ({"base_problem": "it is another user's"}, "run directories", "error", "ZMQENGINE_RUNTIME_DIR"),
        ({"stale_runs": ("one",)}, "stale runs", "warning", "doctor --clean"),
        ({"shm_free_bytes": None}, "shared memory", "error", "tmpfs"),
        ({"shm_free_bytes": 1000}, "shared memory", "warning", "--shm-size"),
        ({"segments": ("zmqengine-x",)}, "shared memory", "warning", "doctor --clean"),
        ({"memory_bytes": 1000}, "memory", "warning", "free some"),
        ({"loopback": "127.0.0.1 cannot be bound: no"}, "loopback", "error", "lo"),
    ],
)
def test_each_fault_is_found_alone_with_what_to_do(
    fault: dict[str, object], check: str, level: str, advice: str
) -> None:
    found = [f for f in examine(dataclasses.replace(FINE, **fault)) if f.level != "ok"]  # type: ignore[arg-type]
    assert [(f.check, f.level) for f in found] == [(check, level)]
    assert advice in found[0].advice


def test_the_facts_of_this_machine_can_be_gathered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZMQENGINE_RUNTIME_DIR", str(tmp_path / "none"))
    facts = machine_facts()
    assert facts.system == "Linux"
    assert facts.base_problem == ""
    assert facts.stale_runs == ()
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


def test_a_segment_of_ours_that_nobody_maps_is_left_over() -> None:
    path = SHARED_MEMORY / f"zmqengine-test-{secrets.token_hex(4)}"
    path.touch(mode=0o600)
    try:
        assert path in left_segments()
    finally:
        path.unlink()
