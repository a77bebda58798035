"""What is placed on which engine."""

from __future__ import annotations

from collections.abc import Sequence


class Engines:
    """Engines, each with room for some requests at once."""

    def __init__(self, names: Sequence[str], max_placed: int) -> None:
        """max_placed: requests on one engine at most."""
        self._max_placed = max_placed
        self._placed: dict[str, dict[str, int]] = {name: {} for name in names}
        """Engine to request id to tokens."""
        self._tokens = dict.fromkeys(names, 0)
        self._engine_of: dict[str, str] = {}

    def __len__(self) -> int:
        """Requests that are placed."""
        return len(self._engine_of)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._engine_of

    def choose(self) -> str | None:
        """The engine with the fewest placed tokens that has room, the first of equals; None if none has."""
        free = [name for name, placed in self._placed.items() if len(placed) < self._max_placed]
        return min(free, key=lambda name: self._tokens[name]) if free else None

    def place(self, request_id: str, tokens: int, engine: str) -> None:
        """Put a request on an engine; its id must be new."""
        assert request_id not in self._engine_of
        self._engine_of[request_id] = engine
        self._placed[engine][request_id] = tokens
        self._tokens[engine] += tokens

    def release(self, request_id: str) -> bool:
        """A request has ended; False if it is not placed (any more)."""
        engine = self._engine_of.pop(request_id, None)
        if engine is None:
            return False
        self._tokens[engine] -= self._placed[engine].pop(request_id)
        return True
