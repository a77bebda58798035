"""What a rendering may use: time, text, and how large the values are that it makes.

A list may hold another many times over, so a short template can build, level by level, a value of 2^30 members that
takes no room, and that writing, comparing or hashing it would walk through without an end. So the size that a value has
as a tree is reckoned as it is built, from the sizes of its members, and has a limit, as its depth has (CPython hashes
nested tuples by recursion, without a check).
"""

from __future__ import annotations

import contextvars
import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from jinja2.exceptions import SecurityError

MAX_SIZE = 64_000_000
"""Characters of a value, written out."""
MAX_DEPTH = 64
LEAF = 8
"""Characters that a number, or a member's place in a list, counts for."""
_CONTAINERS = (list, tuple, dict, set, frozenset)


class TemplateLimit(SecurityError):
    """The template does more than it may."""


@dataclass(slots=True)
class Budget:
    """What one rendering may still use."""

    deadline: float
    characters: int
    clock: Callable[[], float] = time.monotonic
    _measured: dict[int, tuple[object, int, int]] = field(default_factory=dict)
    """Id of a container to itself (so that the id stays its own), its size and its depth. Templates change none."""

    def spend(self, characters: int) -> None:
        """Use some; raises TemplateLimit when the time or the characters are used up."""
        self.characters -= characters
        if self.characters < 0:
            raise TemplateLimit("it makes more text than it may")
        if self.clock() > self.deadline:
            raise TemplateLimit("it runs longer than it may")

    def measure(self, value: object, level: int = 0) -> tuple[int, int]:
        """Size and depth of a value as a tree. Raises TemplateLimit where either is beyond its limit."""
        if isinstance(value, str):
            return len(value) + 1, 0
        if not isinstance(value, _CONTAINERS):
            return LEAF, 0
        known = self._measured.get(id(value))
        if known is not None:
            return known[1], known[2]
        if level > MAX_DEPTH:
            raise TemplateLimit("a value is nested deeper than it may be")
        members: Iterable[object] = itertools.chain(value, value.values()) if isinstance(value, dict) else value
        size, depth = LEAF, 0
        for member in members:
            of_member, below = self.measure(member, level + 1)
            size += of_member
            depth = max(depth, below)
        if depth >= MAX_DEPTH:
            raise TemplateLimit("a value is nested deeper than it may be")
        if size > MAX_SIZE:
            raise TemplateLimit("a value is larger than it may be")
        self._measured[id(value)] = (value, size, depth + 1)
        return size, depth + 1


_budget: contextvars.ContextVar[Budget | None] = contextvars.ContextVar("template budget", default=None)


@contextmanager
def spending(budget: Budget) -> Iterator[None]:
    """Charge what is compiled or rendered within to a budget."""
    token = _budget.set(budget)
    try:
        yield
    finally:
        _budget.reset(token)


def charge(characters: int) -> None:
    """Charge the rendering in progress."""
    budget = _budget.get()
    if budget is not None:
        budget.spend(characters)


def measure(value: object) -> int:
    """Characters of a value as a tree, about. Raises TemplateLimit for one that is too large or too deep."""
    budget = _budget.get()
    return 0 if budget is None else budget.measure(value)[0]


def made(value: Any) -> Any:
    """A value that the template has just made: charged for the room that it takes, and its size checked."""
    if isinstance(value, str):
        charge(len(value))
    elif isinstance(value, _CONTAINERS):
        charge(LEAF * len(value))
        measure(value)
    return value
