"""An answer that comes later. One class for both ends: a handler returns one, and a call on a peer is one."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar

from . import trace
from .errors import Cancelled, UsageError
from .interface import deferring

T = TypeVar("T")


@deferring
class Deferred(Generic[T]):
    """A value or an error that arrives once. It belongs to the thread of the loop that it was made on."""

    __slots__ = ("_callbacks", "_cancel_callbacks", "_error", "_value", "done")

    def __init__(self) -> None:
        self.done = False
        self._value: T | None = None
        self._error: BaseException | None = None
        # Tuples: most have one callback or none, and empty lists would cost each call two allocations.
        self._callbacks: tuple[Callable[[Deferred[T]], object], ...] = ()
        self._cancel_callbacks: tuple[Callable[[], object], ...] = ()

    def resolve(self, value: T) -> None:
        """Answer with a value. After the answer (a cancellation is one) it is a no-op."""
        if not self.done:
            self._value = value
            self._finish()

    def reject(self, error: BaseException) -> None:
        """Answer with an error. After the answer it is a no-op."""
        if not self.done:
            self._error = error
            self._finish()

    def cancel(self, reason: str = "cancelled") -> None:
        """End it with Cancelled, and tell whoever works on it. After the answer it is a no-op."""
        self.abandon(Cancelled(reason))

    def abandon(self, error: BaseException) -> None:
        """End it with an error from the asking side (its deadline, its death), and tell whoever works on it."""
        if not self.done:
            callbacks = self._cancel_callbacks
            self.reject(error)
            for callback in callbacks:
                callback()

    def on_cancel(self, callback: Callable[[], object]) -> None:
        """Have `callback` called if the asking side gives up before the answer."""
        self._cancel_callbacks += (callback,)

    def add_done_callback(self, callback: Callable[[Deferred[T]], object]) -> None:
        """Have `callback` called with this object when it is done; at once if it is."""
        if self.done:
            callback(self)
        else:
            self._callbacks += (trace.carried(callback),)

    @property
    def error(self) -> BaseException | None:
        """The error, or None if there is none (yet)."""
        return self._error

    @property
    def value(self) -> T:
        """The value. Raises the error if that is the answer, UsageError if there is none yet."""
        if self._error is not None:
            raise self._error
        if not self.done:
            raise UsageError("the value of a Deferred was read before it was done")
        return self._value  # type: ignore[return-value]  # None is a T where it is the answer

    def _finish(self) -> None:
        self.done = True
        callbacks = self._callbacks
        self._callbacks = self._cancel_callbacks = ()
        for callback in callbacks:
            callback(self)

    def __await__(self) -> Generator[Any, None, T]:
        import asyncio  # whoever awaits has it; a service of plain handlers never does

        if not self.done:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.add_done_callback(lambda _: None if future.done() else future.set_result(None))
            try:
                yield from future
            except asyncio.CancelledError:
                self.cancel("the awaiting task was cancelled")
                raise
        return self.value
