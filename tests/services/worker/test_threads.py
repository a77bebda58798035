from __future__ import annotations

import pytest

from services.worker.memory import physical_cores
from services.worker.threads import prepare_threads


def test_threads_are_one_per_core_and_wait_passively() -> None:
    environ: dict[str, str] = {}
    assert prepare_threads(None, environ) == physical_cores()
    assert environ["OMP_NUM_THREADS"] == str(physical_cores())
    assert environ["OMP_WAIT_POLICY"] == "PASSIVE"


@pytest.mark.parametrize(
    ("option", "from_user", "count"), [(None, "3", 3), (5, "3", 5), (None, "many", physical_cores())]
)
def test_an_option_goes_before_the_environment(option: int | None, from_user: str, count: int) -> None:
    environ = {"OMP_NUM_THREADS": from_user, "OMP_WAIT_POLICY": "ACTIVE"}
    assert prepare_threads(option, environ) == count
    assert environ["OMP_NUM_THREADS"] == str(count)
    assert environ["OMP_WAIT_POLICY"] == "ACTIVE"
