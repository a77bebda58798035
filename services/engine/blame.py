"""Which request a worker was lost over."""

from __future__ import annotations

from collections.abc import Iterable

from .plan import Row
from .request import Request, Status

POISON = (
    "the worker was lost twice while it computed this request, the second time with no other suspect beside it:"
    " it is not tried again; the worker's log has the reason"
)


def poisonous(blamed: Iterable[Row]) -> list[Request]:
    """Whose fault the loss of a worker is. Those of whom that is not certain become suspects, or closer ones.

    Workers are also lost for no request's fault, and then nobody may be failed. So requests are suspects until they
    have got past the point at which a worker was lost. One that was alone there, or had no token yet, is tried again
    with no other suspect beside it: if a worker is lost over it once more, it is poison. The others, which had been
    going on well, are first tried together, and in isolation only if that fails as well.
    """
    ends: dict[Request, int] = {}
    for row in blamed:
        if row.request.status is not Status.ENDED:
            ends[row.request] = max(row.end, ends.get(row.request, 0))
    suspects = [request for request in ends if request.suspect]
    poison = [request for request in suspects if request.isolate]
    for request in suspects:
        request.isolate = True
    if not suspects:
        for request, end in ends.items():
            request.suspect_until = end
            request.isolate = len(ends) == 1 or not request.proven
    return poison
