"""What one step is to compute."""

from __future__ import annotations

from dataclasses import dataclass, field

from .request import Request


@dataclass(slots=True)
class Row:
    """Compute tokens [start, start + count) of a request."""

    request: Request
    start: int
    count: int
    blocks: list[int]
    """To append to its block table before."""
    sample: bool
    """Sample the token behind."""
    admitted: bool
    """It is new to the worker."""
    slot: int = -1
    """The worker's name for it in this step; `Steps` sets it."""

    @property
    def end(self) -> int:
        return self.start + self.count


@dataclass(slots=True)
class Plan:
    """One step: rows in order of rank."""

    rows: list[Row] = field(default_factory=list)
    preempted: list[Request] = field(default_factory=list)
    """They leave the worker: their blocks are free from this step on, and they wait again."""
