"""The errors of zmqengine, and their one mapping to codes on the wire.

    ZmqEngineError
    |- UsageError              this program called the library wrongly
    |- ConfigError             a table or an option is wrong; names the key and where it stands
    |- ProtocolError           a frame broke the protocol
    |  |- LocalProtocolError   ... and it would have been ours: nothing was sent
    |  `- RemoteProtocolError  ... and it was the peer's
    |- DeadlineExceeded        the budget of a call or a wait is spent
    |- Cancelled               the caller, or its death, cancelled it
    |- PeerLost                the peer went away with the call's outcome unknown; names it, and the reason if known
    |  `- HandshakeFailed      ... or was never reached, for one end does not take the other's keys: nothing was begun
    |- StartFailed             a service did not become ready; names it, the phase and the cause
    `- RemoteError             the peer answered with an error
       |- InvalidArgument      an argument was refused; `field` says which
       |- NotFound             no such method, service or object
       |- Overloaded           refused at once for want of room; `retry_after_s` says when to try again
       |- Unavailable          the service is not ready, draining or stopping; the call was not begun
       |- StaleIncarnation     the call was meant for an earlier incarnation; it was not begun
       |- Unsupported          the peer does not do this
       `- HandlerFailed        the handler raised; the message is the exception's

A service raises any RemoteError to answer with it; every other exception is answered as HandlerFailed.
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec


class ZmqEngineError(Exception):
    """Root of all errors of this library."""

    code: ClassVar[str] = "internal"


class UsageError(ZmqEngineError):
    """This program called the library wrongly."""


class ConfigError(ZmqEngineError):
    """A table or an option is wrong."""


class ProtocolError(ZmqEngineError):
    """A frame broke the protocol."""

    code = "protocol_error"


class LocalProtocolError(ProtocolError):
    """What was to be sent would break the protocol; nothing was sent."""


class RemoteProtocolError(ProtocolError):
    """What the peer sent breaks the protocol."""


class DeadlineExceeded(ZmqEngineError):
    """The budget of a call or a wait is spent."""

    code = "deadline_exceeded"


class Cancelled(ZmqEngineError):
    """The caller cancelled the call, or went away."""

    code = "cancelled"


class PeerLost(ZmqEngineError):
    """The peer went away while the call was in flight: its outcome is unknown."""

    code = "peer_lost"


class HandshakeFailed(PeerLost):
    """The peer and this end do not take one another (CURVE keys, or one of them has none). Nothing was begun, and the
    same again would fail again."""


class StartFailed(ZmqEngineError):
    """A service did not become ready."""

    code = "start_failed"

    def __init__(self, message: str, *, service: str = "", phase: str = "", last_lines: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.service = service
        self.phase = phase
        self.last_lines = last_lines


class RemoteError(ZmqEngineError):
    """The peer answered with an error."""

    def __init__(self, message: str, *, field: str | None = None, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.field = field
        self.retry_after_s = retry_after_s


class InvalidArgument(RemoteError):
    """An argument was refused; `field` is its path, as ``request.sampling.top_p``."""

    code = "invalid_argument"


class NotFound(RemoteError):
    """No such method, service or object."""

    code = "not_found"


class Overloaded(RemoteError):
    """Refused at once for want of room."""

    code = "overloaded"


class Unavailable(RemoteError):
    """The service is not ready, draining or stopping; the call was not begun."""

    code = "unavailable"


class StaleIncarnation(RemoteError):
    """The call was addressed to an earlier incarnation of the service; it was not begun."""

    code = "stale_incarnation"


class Unsupported(RemoteError):
    """The peer does not do this."""

    code = "unsupported"


class HandlerFailed(RemoteError):
    """The handler raised."""

    code = "internal"


MAX_MESSAGE_CHARACTERS = 8192
"""Longer messages are cut before they are sent."""


class ErrorBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Body of an ERROR envelope."""

    code: str
    message: str
    field: str | None = None
    retry_after_s: float | None = None


_BY_CODE: dict[str, type[ZmqEngineError]] = {
    cls.code: cls
    for cls in (
        RemoteProtocolError, DeadlineExceeded, Cancelled, PeerLost, StartFailed, InvalidArgument, NotFound, Overloaded,
        Unavailable, StaleIncarnation, Unsupported, HandlerFailed,
    )
}  # fmt: skip


def to_wire(error: BaseException) -> ErrorBody:
    """The one mapping from an exception to what a peer is told."""
    text = _sendable_text(error)
    if isinstance(error, RemoteError):
        return ErrorBody(code=error.code, message=text, field=error.field, retry_after_s=error.retry_after_s)
    if isinstance(error, ZmqEngineError):
        return ErrorBody(code=error.code, message=text)
    return ErrorBody(code=HandlerFailed.code, message=f"{type(error).__name__}: {text}")


def _sendable_text(error: BaseException) -> str:
    """Its message as it can be sent: an ERROR is the last word on a call, so nothing in it may keep it from going."""
    try:
        text = str(error)
    except Exception as unprintable:
        return f"(its message cannot be had: {type(unprintable).__name__})"
    if len(text) > MAX_MESSAGE_CHARACTERS:
        text = f"{text[:MAX_MESSAGE_CHARACTERS]}... ({len(text)} characters)"
    return text.encode("utf-8", "backslashreplace").decode()  # file names may hold what is no UTF-8


def from_wire(body: ErrorBody, peer: str) -> ZmqEngineError:
    """The exception to raise for a peer's ERROR. An unknown code of a newer peer becomes a RemoteError."""
    cls = _BY_CODE.get(body.code, RemoteError)
    message = f"{peer}: {body.message}" if peer else body.message
    if issubclass(cls, RemoteError):
        details: dict[str, Any] = {"field": body.field, "retry_after_s": body.retry_after_s}
        return cls(message, **details)
    return cls(message)
