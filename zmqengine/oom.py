"""How often the kernel has killed a process for want of memory: a SIGKILL says nothing of who sent it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
WHOLE_MACHINE = Path("/proc/vmstat")


class OomKills:
    """Tells of each exit by SIGKILL whether an out-of-memory kill may explain it. Each kill explains one exit."""

    def __init__(self, counters: Sequence[Path] | None = None) -> None:
        """counters: files with an ``oom_kill N`` line, the best first; None: those of this process."""
        self._counters = _counters() if counters is None else counters
        self._explained = self._count()

    def explains_one(self) -> bool:
        """Whether there was a kill that no exit was explained with yet."""
        more = self._count() > self._explained
        self._explained += more
        return more

    def _count(self) -> int:
        for path in self._counters:
            try:
                lines = path.read_text().splitlines()
            except OSError:
                continue  # no such cgroup file here
            for line in lines:
                key, _, value = line.partition(" ")
                if key == "oom_kill":
                    return int(value)
        return 0


def _counters() -> list[Path]:
    """That of the own cgroup (version 2, or 1), which the services are in too; else the machine's."""
    found = []
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            found.append(CGROUPS / path.lstrip("/") / "memory.events")
        elif "memory" in controllers.split(","):
            found.append(CGROUPS / "memory" / path.lstrip("/") / "memory.oom_control")
    return [*found, WHOLE_MACHINE]
