"""The outermost layer of the HTTP server: request ids, counts, refusal while draining, the last resort on failures."""

from __future__ import annotations

import asyncio
import logging
import re
import uuid
from dataclasses import dataclass
from typing import Any

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .errors import ApiError, ClientDisconnected, internal_error

log = logging.getLogger(__name__)

_REQUEST_ID = re.compile(rb"[\x21-\x7e]{1,128}")
_ALWAYS_ANSWERED = ("/health", "/ready", "/version", "/v1/models")
"""Asked by whoever watches the server; what is in flight is not these."""


@dataclass(slots=True)
class Counts:
    """Requests since the start, by how they ended; those of _ALWAYS_ANSWERED are not counted."""

    served: int = 0
    refused: int = 0
    """Answered 4xx."""
    failed: int = 0
    """Answered 5xx, or a stream that ended with an error event."""
    disconnected: int = 0
    """The client went away before its answer was complete."""


class Gate:
    """What the service knows of the requests in flight."""

    def __init__(self) -> None:
        self.counts = Counts()
        self.draining = False
        self.in_flight = 0
        self._idle = asyncio.Event()
        self._idle.set()

    def drain(self) -> None:
        """Refuse new requests from now on with 503."""
        self.draining = True

    async def idle(self, timeout_s: float) -> bool:
        """Wait until no request is in flight; whether that came within timeout_s."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    def enter(self) -> None:
        """A request begins."""
        self.in_flight += 1
        self._idle.clear()

    def leave(self, outcome: str) -> None:
        """A request has ended; outcome: the count that it goes to."""
        self.in_flight -= 1
        setattr(self.counts, outcome, getattr(self.counts, outcome) + 1)
        if not self.in_flight:
            self._idle.set()


class GateMiddleware:
    """Passes requests through a gate.

    Each answer carries x-request-id: the client's own, if it is 1 to 128 visible ASCII characters, or a new one.
    `scope["state"]` gets "request_id"; a stream that ends with an error event sets "failed" there.
    """

    def __init__(self, app: ASGIApp, gate: Gate) -> None:
        self._app = app
        self._gate = gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _request_id(scope)
        state = scope.setdefault("state", {})
        state["request_id"] = request_id
        answer = _Answer(send, request_id, self._gate)
        if scope["path"] in _ALWAYS_ANSWERED:
            await self._guarded(scope, receive, answer)
            return
        self._gate.enter()
        outcome = "failed"
        try:
            if self._gate.draining:
                await answer.send_error(_draining())
            else:
                outcome = await self._guarded(scope, receive, answer)
            outcome = outcome if outcome == "disconnected" else _outcome(answer.status, state)
        finally:
            self._gate.leave(outcome)

    async def _guarded(self, scope: Scope, receive: Receive, answer: _Answer) -> str:
        """Run the application; what it does not handle ends here. "disconnected", or ""."""
        try:
            await self._app(scope, receive, answer)
        except ClientDisconnected:
            return "disconnected"
        except Exception:
            log.exception("request %s failed: %s %s", answer.request_id, scope["method"], scope["path"])
            if answer.status is not None:
                raise  # the server cuts the connection: nothing else tells the client that the answer is not whole
            await answer.send_error(internal_error())
        return ""


class _Answer:
    """The `send` of one request: adds the header, remembers the status."""

    def __init__(self, send: Send, request_id: str, gate: Gate) -> None:
        self._send = send
        self._gate = gate
        self.request_id = request_id
        self.status: int | None = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = [*message.get("headers", ()), (b"x-request-id", self.request_id.encode())]
            if self._gate.draining and not any(name.lower() == b"connection" for name, _ in headers):
                headers.append((b"connection", b"close"))
            message = {**message, "headers": headers}
        await self._send(message)

    async def send_error(self, error: ApiError) -> None:
        body = msgspec.json.encode(error.body(self.request_id))
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        headers += [(name.encode(), value.encode()) for name, value in error.headers.items()]
        await self({"type": "http.response.start", "status": error.status, "headers": headers})
        await self({"type": "http.response.body", "body": body, "more_body": False})


def _request_id(scope: Scope) -> str:
    given = next((value for name, value in scope["headers"] if name == b"x-request-id"), b"")
    return given.decode() if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex


def _draining() -> ApiError:
    return ApiError(503, "the server is stopping", code="draining", headers={"retry-after": "1"})


def _outcome(status: int | None, state: dict[str, Any]) -> str:
    if status is None or status >= 500 or state.get("failed"):
        return "failed"
    return "refused" if status >= 400 else "served"
