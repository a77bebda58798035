"""Whose requests they are: what an owner held is given up when its next incarnation speaks."""

from __future__ import annotations

import collections

_REMEMBERED = 64
"""Incarnations of one owner that are known to be superseded. An older one that still spoke would be taken for new."""


class Owners:
    """Request ids by owner and incarnation."""

    def __init__(self) -> None:
        self._current: dict[str, str] = {}
        self._superseded: dict[str, collections.deque[str]] = {}
        self._held: dict[tuple[str, str], set[str]] = {}
        self._holder: dict[str, tuple[str, str]] = {}

    def speaks(self, owner: str, incarnation: str) -> list[str]:
        """An owner asks: what its earlier incarnation held, if this is the first word of a new one.

        In a swap two incarnations live for a while, so one that is known to be superseded supersedes nobody again.
        """
        current = self._current.get(owner)
        superseded = self._superseded.setdefault(owner, collections.deque(maxlen=_REMEMBERED))
        if incarnation == current or incarnation in superseded:
            return []
        self._current[owner] = incarnation
        if current is None:
            return []
        superseded.append(current)
        return sorted(self._held.get((owner, current), ()))

    def hold(self, request_id: str, owner: str, incarnation: str) -> None:
        """A request is this owner's."""
        self._holder[request_id] = (owner, incarnation)
        self._held.setdefault((owner, incarnation), set()).add(request_id)

    def forget(self, request_id: str) -> None:
        """A request is nobody's any more; an unknown id is a no-op."""
        holder = self._holder.pop(request_id, None)
        if holder is not None:
            held = self._held[holder]
            held.discard(request_id)
            if not held:
                del self._held[holder]
