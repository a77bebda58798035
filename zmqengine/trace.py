"""W3C trace context: which trace the work in progress belongs to (https://www.w3.org/TR/trace-context/).

A call carries its caller's `traceparent`; while the handler runs, also later in its callbacks, coroutines and
threads, it is `current`, and every call that the handler makes carries it on. Nothing is recorded here: a `Tracer` that
a service returns from its `tracer` hook makes spans of its calls, with OpenTelemetry for instance. Without one, and
without a traceparent, a call pays for a comparison.
"""

from __future__ import annotations

import contextvars
import functools
import re
import secrets
from collections.abc import Callable
from typing import Any, TypeVar

from .errors import UsageError

_F = TypeVar("_F", bound=Callable[..., Any])
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")

current: contextvars.ContextVar[str | None] = contextvars.ContextVar("zmqengine.traceparent", default=None)
"""The traceparent of the work in progress."""


def new_traceparent() -> str:
    """A trace of its own, sampled."""
    return f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-01"


def check(traceparent: str) -> str:
    """Raises UsageError for one that is not of the form of the standard."""
    if not _TRACEPARENT.fullmatch(traceparent):
        raise UsageError(f"traceparent {traceparent[:80]!r} is not VERSION-TRACEID-PARENTID-FLAGS in hexadecimal")
    return traceparent


def is_valid(traceparent: str) -> bool:
    """Whether a peer's is of the form of the standard: what is not is not carried on."""
    return _TRACEPARENT.fullmatch(traceparent) is not None


def carried(callback: _F) -> _F:
    """The callback, to be called later in the trace of now; the very same where there is none."""
    if current.get() is None:
        return callback
    return functools.partial(contextvars.copy_context().run, callback)  # type: ignore[return-value]
