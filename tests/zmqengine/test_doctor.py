from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from zmqengine.doctor import Facts, examine
from zmqengine.transport import Library

FINE = Facts(
    python=(3, 12), system="Linux", library=Library("27.0", "4.3.5", True), open_files=65536, processes=None,
    base=Path("/tmp/z"), base_problem="", stale_runs=(), shm_free_bytes=1 << 30, segments=(), memory_bytes=8 << 30,
    cpus=4, clock_s=5e-8, loopback="",
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
        ({"processes": 10}, "processes", "error", "ulimit -u"),
        ({"processes": 200}, "processes", "warning", "--pids-limit"),
        ({"base": Path("/" + "x" * 60)}, "run directories", "error", "shorter"),
        ({"base": Path("/" + "x" * 33)}, "run directories", "warning", "shorter"),
        ({"base_problem": "it is another user's"}, "run directories", "error", "ZMQENGINE_RUNTIME_DIR"),
        ({"stale_runs": ("one",)}, "stale runs", "warning", "doctor --clean"),
        ({"shm_free_bytes": None}, "shared memory", "error", "tmpfs"),
        ({"shm_free_bytes": 1000}, "shared memory", "warning", "--shm-size"),
        ({"segments": ("zmqengine-x",)}, "shared memory", "warning", "doctor --clean"),
        ({"memory_bytes": 1000}, "memory", "warning", "free some"),
        ({"cpus": 0.5}, "CPUs", "warning", "--cpus"),
        ({"clock_s": 2e-6}, "clock", "warning", "clocksource"),
        ({"loopback": "127.0.0.1 cannot be bound: no"}, "loopback", "error", "lo"),
    ],
)
def test_each_fault_is_found_alone_with_what_to_do(
    fault: dict[str, object], check: str, level: str, advice: str
) -> None:
    found = [f for f in examine(dataclasses.replace(FINE, **fault)) if f.level != "ok"]  # type: ignore[arg-type]
    assert [(f.check, f.level) for f in found] == [(check, level)]
    assert advice in found[0].advice
