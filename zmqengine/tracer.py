"""What a service returns from its `tracer` hook: an object that makes a span of each call that is served."""

from __future__ import annotations

from typing import Protocol


class Span(Protocol):
    """One call being served."""

    @property
    def traceparent(self) -> str:
        """What the calls carry that are made on behalf of it."""

    def end(self, error: BaseException | None) -> None:
        """The call has got its terminal answer."""


class Tracer(Protocol):
    """Makes spans of the calls that a service serves."""

    def begin(self, method: str, traceparent: str | None) -> Span:
        """A call begins. traceparent: its caller's, if it sent one."""
