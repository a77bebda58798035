"""What every chunk of an answer, and the whole one, begins with."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AnswerHead:
    """Identity of an answer."""

    id: str
    created: int
    """Epoch seconds."""
    model: str
