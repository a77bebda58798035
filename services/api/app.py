"""The HTTP application: its routes over a backend, and an OpenAI error object for whatever goes wrong.

| route | |
|---|---|
| POST /v1/chat/completions, /v1/completions | generation, also streamed |
| GET /v1/models, /v1/models/{id} | the served model |
| POST /tokenize, /detokenize | token ids of a text or conversation; text of token ids |
| GET /health | 200 while the process serves, whatever is behind it |
| GET /ready | 200 if the whole chain is there; else 503, which names what is missing |
| GET /version, /docs, /openapi.json | |

There is no CORS header: a page of another origin cannot read an answer, and cannot send JSON.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from . import limits
from .backend import Backend
from .body import BodyLimits
from .errors import ApiError, BackendError, ErrorBody, from_backend
from .gate import Gate, GateMiddleware
from .generation import generation_router
from .openapi import with_bodies
from .responses import ModelList, ModelObject, StatusText, VersionText
from .served_model import ServedModel
from .tokenization import tokenization_router

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AppSettings:
    """What the application can be told."""

    version: str
    max_body_bytes: int = limits.MAX_BODY_BYTES
    body_timeout_s: float = 60.0
    """Time that a client has for sending its body."""


def create_app(
    backend: Backend, settings: AppSettings, gate: Gate, *, clock: Callable[[], float] = time.monotonic
) -> FastAPI:
    """The application. clock: monotonic seconds."""
    app = FastAPI(
        title="zmqengine",
        description="An OpenAI-compatible server.",
        version=settings.version,
        redoc_url=None,
        responses={code: {"model": ErrorBody} for code in ("4XX", "5XX")},
        redirect_slashes=False,
    )
    served = ServedModel(backend, clock)
    body_limits = BodyLimits(settings.max_body_bytes, settings.body_timeout_s)
    app.include_router(generation_router(backend, served, body_limits))
    app.include_router(tokenization_router(backend, served, body_limits))
    _add_model_routes(app, served)
    _add_status_routes(app, backend, gate, settings.version)
    app.add_exception_handler(ApiError, _answer_api_error)
    app.add_exception_handler(BackendError, _answer_backend_error)
    app.add_exception_handler(HTTPException, _answer_http_exception)
    app.add_middleware(GateMiddleware, gate=gate)
    app.openapi = with_bodies(app)  # type: ignore[method-assign]  # FastAPI's documented way to extend the document
    return app


def _add_model_routes(app: FastAPI, served: ServedModel) -> None:
    @app.get("/v1/models", tags=["models"])
    async def models() -> ModelList:
        """The served model."""
        return {"object": "list", "data": [await described()]}

    @app.get("/v1/models/{model_id:path}", tags=["models"])
    async def model(model_id: str) -> ModelObject:
        """The served model, if it has this name."""
        return await described(model_id)

    async def described(name: str | None = None) -> ModelObject:
        card = await (served.card() if name is None else served.named(name))
        return {
            "id": card.name,
            "object": "model",
            "created": card.created,
            "owned_by": "zmqengine",
            "max_model_len": card.max_context,
        }


def _add_status_routes(app: FastAPI, backend: Backend, gate: Gate, version: str) -> None:
    @app.get("/health", tags=["status"])
    async def health() -> StatusText:
        """200 while the process serves."""
        return {"status": "ok"}

    @app.get("/ready", tags=["status"])
    async def ready() -> StatusText:
        """200 if a request would be served now."""
        if gate.draining:
            raise ApiError(503, "the server is stopping", code="draining")
        try:
            await backend.check()
        except BackendError as error:
            raise ApiError(503, str(error), code="not_ready", headers={"retry-after": "1"}) from error
        return {"status": "ready"}

    @app.get("/version", tags=["status"])
    async def the_version() -> VersionText:
        """Version of the server."""
        return {"version": version}


async def _answer_api_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return JSONResponse(error.body(request.state.request_id), status_code=error.status, headers=error.headers)


async def _answer_backend_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, BackendError)
    answer = from_backend(error)
    if answer.status == 500:
        log.error("request %s: the backend failed: %s", request.state.request_id, error)
    return await _answer_api_error(request, answer)


async def _answer_http_exception(request: Request, error: Exception) -> Response:
    """The framework's own: no such route, no such method."""
    assert isinstance(error, HTTPException)
    where = f"{request.method} {request.url.path}"
    code = {404: "unknown_url", 405: "method_not_allowed"}.get(error.status_code)
    message = {404: f"there is no {where}", 405: f"{where}: the method is not allowed here"}.get(
        error.status_code, str(error.detail)
    )
    answer = ApiError(error.status_code, message, code=code, headers=dict(error.headers or {}))
    return await _answer_api_error(request, answer)
