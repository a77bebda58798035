"""How long calls take: a histogram that costs a call a fraction of a microsecond, and tells quantiles to a quarter."""

from __future__ import annotations

_SUB = 4
"""Buckets per power of two."""
_BUCKETS = 40 * _SUB


class Latencies:
    """Counts durations in buckets whose bounds are a quarter of a power of two of microseconds apart."""

    def __init__(self) -> None:
        self._counts = [0] * _BUCKETS

    def add(self, seconds: float) -> None:
        """Count one duration."""
        us = max(0, int(seconds * 1e6))
        bits = us.bit_length()
        # Below 4 us every microsecond has a bucket of its own.
        index = us if bits < 3 else (bits - 2) * _SUB + (us >> (bits - 3)) - _SUB
        self._counts[min(index, _BUCKETS - 1)] += 1

    def quantiles(self, *fractions: float) -> list[float | None]:
        """Durations in seconds below which these fractions of all lie; None while there are none."""
        counts = self._counts[:]
        total = sum(counts)
        return [None if total == 0 else self._quantile(counts, max(1.0, fraction * total)) for fraction in fractions]

    def forget(self) -> None:
        """Begin anew: what is told then is of the time since."""
        self._counts = [0] * _BUCKETS

    @staticmethod
    def _quantile(counts: list[int], rank: float) -> float:
        seen = 0
        for index, count in enumerate(counts):
            seen += count
            if seen >= rank:
                return upper_bound_us(index) / 1e6
        raise AssertionError("the rank is beyond the total")


def upper_bound_us(index: int) -> int:
    """The end of a bucket, exclusive, in microseconds."""
    if index < _SUB:
        return index + 1
    power, sub = divmod(index, _SUB)
    return (_SUB + sub + 1) << (power - 1)
