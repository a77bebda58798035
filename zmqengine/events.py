"""Events: what a service publishes to whoever listens, numbered, from a snapshot on.

An event method gives the state of now, ``@event def price(self) -> Price``, and ``self.publish("price", value)`` tells
a change. To a listener it is a stream of `Event`: first a snapshot, then each change with the next number. One who does
not read misses changes, never silently: when it reads again it is given a snapshot, whose number tells how much it
missed. Nothing is queued for it, and nobody else waits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from .message import Message
from .streams import Outlet

T = TypeVar("T")


class Event(Message, Generic[T], array_like=True):
    """One event."""

    seq: int
    """Counts the changes since the incarnation began. The next change has the next number."""
    snapshot: bool
    """Whether `value` is the state with all changes up to `seq`, rather than change number `seq`."""
    value: T


class Topic(Generic[T]):
    """One event method of a service: its listeners, and what each has been told. It belongs to the service's loop."""

    def __init__(self, state: Callable[[], T]) -> None:
        """state: gives the state of now."""
        self._state = state
        self._seq = 0
        self._behind: dict[Outlet[Event[T]], bool] = {}
        """Listeners, and whether they have missed a change."""

    @property
    def listeners(self) -> int:
        """How many listen."""
        return len(self._behind)

    def publish(self, change: T) -> None:
        """Tell a change to all who read."""
        self._seq += 1
        for out, behind in self._behind.items():
            if behind or not out.credit:
                self._behind[out] = True
            else:
                out.send(Event(seq=self._seq, snapshot=False, value=change))

    def subscribe(self, out: Outlet[Event[T]]) -> None:
        """Serve a listener from now on."""
        self._behind[out] = True
        out.on_cancel(lambda: self._behind.pop(out, None))
        out.on_credit(lambda: self._catch_up(out))
        self._catch_up(out)

    def _catch_up(self, out: Outlet[Event[T]]) -> None:
        if self._behind.get(out) and out.credit:
            self._behind[out] = False
            out.send(Event(seq=self._seq, snapshot=True, value=self._state()))
