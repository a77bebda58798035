"""Who waits for a place, in which order: by priority, then fairly among tenants, then first come, first served.

Fairness is start-time fair queueing (Goyal et al. 1996) over tokens, as the virtual token counter does it for language
models (Sheng et al. 2024): of one priority's tenants, the one that was served the fewest tokens is next. One that
comes anew, or comes back, begins where the others are: nobody saves up turns by staying away.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator
from dataclasses import dataclass, field

from services.protocols.scheduler import PlaceRequest


@dataclass(frozen=True, slots=True)
class Waiting:
    """A request that waits, and since when."""

    request: PlaceRequest
    since_s: float
    number: int
    """Counts all that ever waited."""

    @property
    def tokens(self) -> int:
        """What it may take: its cost to its tenant, and its weight on an engine."""
        return self.request.prompt_tokens + self.request.max_tokens


@dataclass(slots=True)
class _Tenant:
    served: int
    """Tokens, on the scale of its line."""
    waiting: collections.deque[Waiting] = field(default_factory=collections.deque)


class _Line:
    """Those of one priority. It is dropped when it is empty: with nobody waiting, everybody begins alike again."""

    def __init__(self) -> None:
        self.tenants: dict[str, _Tenant] = {}
        self._virtual = 0
        """Where the tenant that was served last stood before."""

    def push(self, waiting: Waiting) -> None:
        tenant = self.tenants.setdefault(waiting.request.tenant, _Tenant(self._virtual))
        if not tenant.waiting:
            tenant.served = max(tenant.served, self._virtual)
        tenant.waiting.append(waiting)

    def pop(self) -> Waiting:
        active = [tenant for tenant in self.tenants.values() if tenant.waiting]
        tenant = min(active, key=lambda tenant: (tenant.served, tenant.waiting[0].number))
        self._virtual = max(self._virtual, tenant.served)
        waiting = tenant.waiting.popleft()
        tenant.served += waiting.tokens
        return waiting

    @property
    def empty(self) -> bool:
        return not any(tenant.waiting for tenant in self.tenants.values())


class FairQueue:
    """Waiting requests, each id at most once."""

    def __init__(self) -> None:
        self._lines: dict[int, _Line] = {}
        self._by_id: dict[str, Waiting] = {}
        self._count = 0

    def __len__(self) -> int:
        return len(self._by_id)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._by_id

    def __iter__(self) -> Iterator[Waiting]:
        """In order of arrival."""
        return iter(self._by_id.values())

    def push(self, request: PlaceRequest, now: float) -> None:
        """Let a request wait; its id must be new."""
        assert request.request_id not in self._by_id
        self._count += 1
        waiting = self._by_id[request.request_id] = Waiting(request, now, self._count)
        self._lines.setdefault(request.priority, _Line()).push(waiting)

    def pop(self) -> Waiting:
        """Take out the next one; there must be one."""
        priority = min(self._lines)
        waiting = self._lines[priority].pop()
        del self._by_id[waiting.request.request_id]
        self._drop_if_empty(priority)
        return waiting

    def remove(self, request_id: str) -> bool:
        """Take out a request, wherever it stands; False if it does not wait. Its tenant is charged nothing."""
        waiting = self._by_id.pop(request_id, None)
        if waiting is None:
            return False
        line = self._lines[waiting.request.priority]
        line.tenants[waiting.request.tenant].waiting.remove(waiting)
        self._drop_if_empty(waiting.request.priority)
        return True

    def _drop_if_empty(self, priority: int) -> None:
        if self._lines[priority].empty:
            del self._lines[priority]
