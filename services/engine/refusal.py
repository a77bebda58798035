"""Why a request is not taken.

    Refusal
    |- NeverFits         the worker can never run it; `field` says which argument is at fault
    |- DuplicateRequest  a request with its id is being generated
    `- QueueFull         too many wait already

`service` maps each to the error of engine/1.
"""

from __future__ import annotations


class Refusal(ValueError):
    """A request is not taken; nothing was changed."""


class NeverFits(Refusal):
    """The worker can never run it."""

    def __init__(self, message: str, *, field: str) -> None:
        super().__init__(message)
        self.field = field


class DuplicateRequest(Refusal):
    """A request with its id is being generated."""


class QueueFull(Refusal):
    """Too many wait already."""
