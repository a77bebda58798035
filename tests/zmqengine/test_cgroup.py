from __future__ import annotations

from pathlib import Path

import pytest

from zmqengine.cgroup import cpu_quota, folders, left


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A tree of control groups: /box/inner."""
    root = tmp_path / "cgroup"
    (root / "box" / "inner").mkdir(parents=True)
    return root


def own(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "self"
    path.write_text(text)
    return path


def test_the_groups_of_a_process_are_its_own_and_those_around_it(root: Path, tmp_path: Path) -> None:
    found = folders(root, own(tmp_path, "1:cpu:/old\n0::/box/inner\n"))
    assert found == [root / "box" / "inner", root / "box", root]


def test_a_path_of_the_host_that_a_container_cannot_see_leaves_the_root(root: Path, tmp_path: Path) -> None:
    assert folders(root, own(tmp_path, "0::/host/docker/1234\n")) == [root]


def test_without_version_2_there_are_no_groups(root: Path, tmp_path: Path) -> None:
    assert folders(root, own(tmp_path, "1:cpu:/old\n")) == []
    assert folders(root, tmp_path / "none") == []


def test_the_tightest_group_decides(root: Path) -> None:
    inner, box = root / "box" / "inner", root / "box"
    (inner / "pids.max").write_text("max\n")
    (inner / "pids.current").write_text("3\n")
    assert left([inner, box], "pids") is None
    (box / "pids.max").write_text("100\n")
    (box / "pids.current").write_text("40\n")
    assert left([inner, box], "pids") == 60
    (inner / "pids.max").write_text("10\n")
    assert left([inner, box], "pids") == 7
    (inner / "pids.max").write_text("2\n")  # lowered under what is there
    assert left([inner, box], "pids") == 0


def test_the_quota_is_in_cpus(root: Path) -> None:
    (root / "cpu.max").write_text("max 100000\n")
    assert cpu_quota([root / "box", root]) is None
    (root / "box" / "cpu.max").write_text("150000 100000\n")
    assert cpu_quota([root / "box", root]) == 1.5
