from __future__ import annotations

from pathlib import Path

import pytest

from services.worker import memory
from services.worker.memory import NotEnoughMemory, available_bytes, plan_blocks

GB = 10**9
ROOMY = {"available": 10 * GB, "step": GB, "block": 10**6, "useful": 10**6, "utilization": 0.5}


def test_a_measured_plan_takes_its_share_of_what_a_largest_step_leaves() -> None:
    plan = plan_blocks(requested=None, **ROOMY)
    assert plan.num_blocks == 4500
    for number in ("10.00 GB", "1.00 GB", "9.00 GB", "0.5", "4.50 GB", "1.00 MB", "4500"):
        assert number in plan.arithmetic


def test_no_more_blocks_are_taken_than_all_slots_can_use() -> None:
    plan = plan_blocks(requested=None, **(ROOMY | {"useful": 12}))
    assert plan.num_blocks == 12
    assert "can use 12" in plan.arithmetic


def test_what_is_asked_for_is_given_where_it_fits_whatever_the_share() -> None:
    assert plan_blocks(requested=9000, **ROOMY).num_blocks == 9000


def test_asking_for_more_than_there_is_gives_the_numbers() -> None:
    with pytest.raises(NotEnoughMemory, match=r"num_kv_blocks=9001 needs 9\.00 GB.*room for 9000: 10\.00 GB available"):
        plan_blocks(requested=9001, **ROOMY)


@pytest.mark.parametrize(
    "change", [{"available": GB}, {"available": GB // 2}, {"block": 10 * GB}, {"utilization": 1e-9}]
)
def test_too_little_for_one_block_gives_the_numbers(change: dict[str, float]) -> None:
    with pytest.raises(NotEnoughMemory, match=r"too little memory for one KV block: .*= 0 blocks"):
        plan_blocks(requested=None, **(ROOMY | change))


def test_this_process_can_take_some_memory() -> None:
    assert 10**6 < available_bytes() < 10**15


def test_an_address_space_limit_bounds_what_is_available(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory.resource, "getrlimit", lambda _: (1000, 1000))
    assert available_bytes() == 0


@pytest.mark.parametrize(
    ("membership", "files", "rooms"),
    [
        ("0::/job\n", {"job/memory.max": "1000\n", "job/memory.current": "300\n"}, [700]),
        ("0::/not/here\n", {"memory.max": "500\n", "memory.current": "100\n"}, [400]),
        ("0::/job\n", {"job/memory.max": "max\n", "job/memory.current": "300\n"}, []),
        (
            "5:memory:/job\n",
            {"memory/job/memory.limit_in_bytes": "90", "memory/job/memory.usage_in_bytes": "100"},
            [-10],
        ),
        ("0::/\n", {}, []),
    ],
)
def test_a_control_group_bounds_what_is_available(
    tmp_path: Path, membership: str, files: dict[str, str], rooms: list[int]
) -> None:
    (tmp_path / "membership").write_text(membership)
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    assert sorted(set(memory._cgroup_rooms(tmp_path / "membership", tmp_path))) == rooms


def test_a_system_without_control_groups_is_not_bounded(tmp_path: Path) -> None:
    assert list(memory._cgroup_rooms(tmp_path / "none", tmp_path)) == []
