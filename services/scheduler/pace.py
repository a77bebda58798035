"""How fast places come free, measured."""

from __future__ import annotations

import collections

_SAMPLES = 128
_UNKNOWN_S = 1.0
"""Between two of them, while nothing is known."""
_LEAST_S, _MOST_S = 0.1, 60.0


class Pace:
    """The mean time between the last releases."""

    def __init__(self) -> None:
        self._times: collections.deque[float] = collections.deque(maxlen=_SAMPLES)

    def count(self, now: float) -> None:
        """A place has come free."""
        self._times.append(now)

    def wait_s(self, places: int, now: float) -> float:
        """Seconds until so many more have come free, as things go; an advice, so within bounds."""
        interval = (now - self._times[0]) / len(self._times) if self._times else _UNKNOWN_S
        return min(_MOST_S, max(_LEAST_S, places * interval))
