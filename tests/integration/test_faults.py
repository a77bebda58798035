"""The fault matrix in a smaller form: each phase and each fault at least once. All of it: ``scripts/chaos.py``."""

from __future__ import annotations

import pytest

from .fault_matrix import FAULTS, PHASES, Case, Trial
from .runs import Runs

CASES = [
    Case("hello", "exit1"), Case("hello", "wrong-version"), Case("importing", "exception"),
    Case("importing", "wrong-protocol"), Case("loading", "segv"), Case("loading", "wrong-token"),
    Case("selftest", "abort"), Case("selftest", "flood"), Case("idle", "exit0"), Case("idle", "hang-loop"),
    Case("busy", "sigkill"), Case("busy", "name-taken"), Case("draining", "sigstop"), Case("draining", "child"),
    Case("stopping", "hang-all"), Case("stopping", "garbage-hello"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.phase}-{case.fault}")
def test_a_fault_is_named_in_time_touches_its_dependents_alone_and_leaves_nothing(runs: Runs, case: Case) -> None:
    assert Trial(runs, case).run().faults == []


def test_each_phase_and_each_fault_is_met() -> None:
    assert {case.phase for case in CASES} == set(PHASES)
    assert {case.fault for case in CASES} == set(FAULTS)
