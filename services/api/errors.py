"""Errors as a client sees them: OpenAI's error object, its status and headers; and the one mapping of a peer's errors.

    ApiError          an answer with a status and an error object
    BackendError      what the backend refused or failed with, by zmqengine's code
    ClientDisconnected  the client went away: there is nobody to answer

| code of the backend | status | told |
|---|---|---|
| invalid_argument | 400 | the message, under the field of the request that it is about |
| not_found | 404 | the message |
| overloaded | 429 | the message, Retry-After |
| unavailable, stale_incarnation, peer_lost | 503 | the message, Retry-After |
| cancelled, aborted | 503 | that it was ended by the server; `x-should-retry: false`, for someone wanted it ended |
| unsupported | 501 | the message |
| deadline_exceeded | 504 | that it took too long |
| anything else | 500 | only that it failed, with the request id; the cause is logged |
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NotRequired

from typing_extensions import TypedDict

_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_DEFAULT_RETRY_S = 1.0


class ErrorObject(TypedDict):
    """OpenAI's error object."""

    message: str
    type: str
    param: str | None
    """The top-level field of the request that it is about."""
    code: str | None
    request_id: NotRequired[str]
    """Also in the header x-request-id."""


class ErrorBody(TypedDict):
    """Body of every answer that is not a success."""

    error: ErrorObject


class ApiError(Exception):
    """An answer other than success."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.headers = headers or {}

    def body(self, request_id: str) -> ErrorBody:
        """The JSON to answer with."""
        kind = "server_error" if self.status >= 500 else _TYPES.get(self.status, "invalid_request_error")
        error = ErrorObject(message=_encodable(self.message), type=kind, param=self.param, code=self.code)
        if self.status >= 500:
            error["request_id"] = request_id
        return {"error": error}


class ClientDisconnected(Exception):
    """The client went away before its answer was complete."""


class BackendError(Exception):
    """What a backend raises. `code` is one of zmqengine's; `field` is a path into the backend's own request."""

    def __init__(
        self, code: str, message: str, *, field: str | None = None, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.field = field
        self.retry_after_s = retry_after_s


def invalid(param: str | None, message: str, code: str = "invalid_value") -> ApiError:
    """400: the field and what is wrong with it."""
    return ApiError(400, f"'{param}' {message}" if param else message, param=param, code=code)


def from_backend(error: BackendError, client_field: Callable[[str], str | None] = lambda field: None) -> ApiError:
    """The answer to a request that the backend refused or failed.

    client_field: the request's own name of a backend's field, or None.
    """
    text = str(error)
    if error.code == "invalid_argument":
        param = client_field(error.field) if error.field else None
        message = text if param is None or param in text else f"'{param}': {text}"
        return ApiError(400, message, param=param, code="invalid_value")
    if error.code == "not_found":
        return ApiError(404, text, code="not_found")
    if error.code == "unsupported":
        return ApiError(501, text, code="unsupported", headers={"x-should-retry": "false"})
    if error.code == "overloaded":
        return ApiError(429, text, code="overloaded", headers=_retry_after(error))
    if error.code in ("unavailable", "stale_incarnation", "peer_lost"):
        return ApiError(503, text, code="unavailable", headers=_retry_after(error))
    if error.code in ("cancelled", "aborted"):
        message = "the request was ended by the server before it was complete"
        return ApiError(503, message, code="aborted", headers={"x-should-retry": "false"})
    if error.code == "deadline_exceeded":
        return ApiError(504, "the request took longer than the server allows", code="deadline_exceeded")
    return internal_error()


def internal_error() -> ApiError:
    """500: says nothing of the cause, which is in the log under the request id."""
    return ApiError(500, "the server failed to process the request; the cause is in its log", code="internal")


def _retry_after(error: BackendError) -> dict[str, str]:
    seconds = _DEFAULT_RETRY_S if error.retry_after_s is None else error.retry_after_s
    return {"retry-after": str(max(1, math.ceil(seconds)))}


def _encodable(text: str) -> str:
    """Text that quotes a client's lone surrogate could not be sent."""
    return text.encode("utf-8", "backslashreplace").decode()


def summary(value: Any) -> str:
    """A value as it may be quoted in a message: short, and of scalars only."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, int | float):
        if isinstance(value, int) and abs(value) >= 10**20:
            return "a huge number"
        return str(value)
    if isinstance(value, str):
        return f"'{value}'" if len(value) <= 40 else f"'{value[:40]}...'"
    return "an object" if isinstance(value, dict) else "a list"
