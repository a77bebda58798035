"""One service of a run over all its incarnations: what the supervisor remembers of it."""

from __future__ import annotations

import collections
from dataclasses import dataclass, field

from .lifecycle import ALIVE, State
from .table import Row


@dataclass(slots=True)
class Unit:
    """State, budget and deadlines of one row. Times are monotonic seconds."""

    row: Row
    state: State = State.PENDING
    incarnation: str = ""
    pid: int | None = None
    imported: bool = False
    was_ready: bool = False
    """Whether any incarnation of it was READY in this run: its first start is over."""
    restarts: int = 0
    error: str | None = None
    """Why it failed last."""
    told: str | None = None
    """What it said itself about its failure."""
    doom: str | None = None
    """Why it is being killed; its exit is a failure for this cause."""
    stopping: bool = False
    """Its end is wanted."""
    next_row: Row | None = None
    """What it is started from once its present process has ended."""
    becomes: Row | None = None
    """It stands by; once it is READY it takes the place of the service of this row's name."""
    fallback: Row | None = None
    """What is started again if a swap that stopped it first fails."""
    leaving: bool = False
    """Its row is gone from the table: it is stopped, and then forgotten."""
    again: bool = False
    """It is to be started again once it has ended."""
    misses: int = 0
    failures: collections.deque[float] = field(default_factory=collections.deque)
    """When it failed, within `restart.period`."""
    ready_by: float | None = None
    progress_by: float | None = None
    term_at: float | None = None
    kill_at: float | None = None
    killed_at: float | None = None
    """When the first SIGKILL was sent."""
    restart_at: float | None = None

    @property
    def name(self) -> str:
        return self.row.name

    @property
    def alive(self) -> bool:
        """Whether it has a process."""
        return self.state in ALIVE

    @property
    def doomed(self) -> bool:
        """Whether its end is decided: what it may still say of itself changes nothing."""
        return self.stopping or self.doom is not None

    def begin(self, incarnation: str) -> None:
        """Nothing of an earlier incarnation goes over into the next one."""
        self.clear_deadlines()
        self.incarnation = incarnation
        self.pid, self.imported, self.told, self.doom = None, False, None, None
        self.stopping = self.again = False
        self.misses = 0

    def take_next_row(self) -> None:
        """What it was started as does not matter any more."""
        if self.next_row is not None:
            self.row, self.next_row = self.next_row, None

    def deadlines(self) -> list[float]:
        """When something is due without news."""
        dues = (self.ready_by, self.progress_by, self.term_at, self.kill_at, self.restart_at)
        return [due for due in dues if due is not None]

    def clear_deadlines(self) -> None:
        """Nothing is due any more."""
        self.ready_by = self.progress_by = self.term_at = self.kill_at = self.killed_at = self.restart_at = None
