"""What the control groups (version 2) that this process is in leave to it: a container's limits are there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")


def folders(root: Path = ROOT, own: Path = OWN) -> list[Path]:
    """This process's group and those around it, from the inside out; empty where there are none of version 2."""
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return []
    path = next((line[3:].strip("/") for line in lines if line.startswith("0::")), None)
    if path is None:
        return []
    # In a container the path may be the host's, which is not to be seen: what is left is the root.
    inner = root / path
    return [folder for folder in (inner, *inner.parents) if folder.is_relative_to(root) and folder.is_dir()]


def left(groups: Sequence[Path], what: str) -> int | None:
    """What of ``memory`` (bytes) or ``pids`` (threads) the tightest group has left; None: there is no limit."""
    rooms = []
    for group in groups:
        limit, used = _number(group / f"{what}.max"), _number(group / f"{what}.current")
        if limit is not None and used is not None:
            rooms.append(max(0, limit - used))
    return min(rooms, default=None)


def cpu_quota(groups: Sequence[Path]) -> float | None:
    """CPUs' worth of time that the tightest group grants; None: there is no limit."""
    quotas = []
    for group in groups:
        quota, _, period = _text(group / "cpu.max").partition(" ")
        if quota.isdecimal() and period.isdecimal():
            quotas.append(int(quota) / int(period))
    return min(quotas, default=None)


def _number(path: Path) -> int | None:
    text = _text(path)
    return int(text) if text.isdecimal() else None


def _text(path: Path) -> str:
    """Empty where the group does not have it, as where a controller is off."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""
