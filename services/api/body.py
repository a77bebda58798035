"""Reads a request's body, within its limits of size and time, and parses it as JSON.

What the standard JSON parser lets through and no peer could take is refused here, by the field that has it where there
is one: bytes that are not UTF-8, and halves of surrogate pairs. Numbers that are not finite are left to the models,
which know the field.
"""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request

from .errors import ApiError, ClientDisconnected, invalid

_DISCARD_FACTOR = 8
"""A body above the limit is read and dropped up to this many times the limit: a client that is still sending would
otherwise see its connection reset in place of the answer."""
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
_CLOSE = {"connection": "close"}


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """How large a body may be, and how long a client may take to send it."""

    max_bytes: int
    timeout_s: float


async def read_json(request: Request, limits: BodyLimits) -> Any:
    """The parsed body.

    Raises ApiError 400 (not JSON), 408 (too slow), 413 (too large), 415 (not declared as JSON: a page of another
    origin may send anything else without asking), and ClientDisconnected.
    """
    _check_type(request.headers.get("content-type", ""))
    try:
        async with asyncio.timeout(limits.timeout_s):
            raw = await _read(request, limits.max_bytes)
    except TimeoutError:
        message = f"the body was not sent within {limits.timeout_s:g} s"
        raise ApiError(408, message, code="request_timeout", headers=_CLOSE) from None
    return parse_json(raw)


def _check_type(content_type: str) -> None:
    media = content_type.partition(";")[0].strip().lower()
    if media != "application/json" and not (media.startswith("application/") and media.endswith("+json")):
        said = f"it is '{content_type[:80]}'" if content_type else "there is none"
        raise ApiError(
            415, f"the header Content-Type must be application/json; {said}", code="unsupported_media_type",
            headers=_CLOSE,
        )  # fmt: skip


async def _read(request: Request, max_bytes: int) -> bytes:
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > max_bytes * _DISCARD_FACTOR:
        raise _too_large(max_bytes)
    parts: list[bytes] = []
    size = 0
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnected
        part = message.get("body", b"")
        size += len(part)
        if size <= max_bytes:
            parts.append(part)
        else:
            parts.clear()
        if size > max_bytes * _DISCARD_FACTOR:
            raise _too_large(max_bytes)
        if not message.get("more_body", False):
            break
    if size > max_bytes:
        raise _too_large(max_bytes)
    return b"".join(parts)


def _too_large(max_bytes: int) -> ApiError:
    return ApiError(413, f"the body is larger than {max_bytes} bytes", code="body_too_large", headers=_CLOSE)


def parse_json(raw: bytes) -> Any:
    """Parse UTF-8 JSON. Raises ApiError 400."""
    text = raw.decode("utf-8", "surrogateescape")
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise ApiError(400, f"the body is not valid JSON: {error.msg} at {where}", code="invalid_json") from None
    except RecursionError:
        raise ApiError(400, "the body is nested too deeply", code="invalid_json") from None
    except ValueError:  # an integer of more digits than int() takes
        raise ApiError(400, "the body has a number with too many digits", code="invalid_json") from None
    if _SURROGATE_ESCAPE.search(text) or not _is_unicode(text):
        _check_unicode(data)
    return data


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_unicode(data: Any) -> None:
    fault = "has text that is not Unicode: bytes that are not UTF-8, or half of a surrogate pair"
    if not isinstance(data, dict):
        if not _is_unicode(json.dumps(data, ensure_ascii=False)):
            raise ApiError(400, f"the body {fault}", code="invalid_unicode")
        return
    for field, value in data.items():
        if not _is_unicode(field):
            raise ApiError(400, f"the name of a field {fault}", code="invalid_unicode")
        if not _is_unicode(json.dumps(value, ensure_ascii=False)):
            raise invalid(field, fault, "invalid_unicode")
