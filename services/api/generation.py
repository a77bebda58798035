"""The routes /v1/chat/completions and /v1/completions: one request's way from the body to the last byte."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import msgspec
from fastapi import APIRouter, Request, Response
from starlette.types import Receive, Scope, Send

from .answer_head import AnswerHead
from .backend import Backend
from .body import BodyLimits, read_json
from .chat_request import ChatRequest
from .collect import ChatCollector, Collector, CompletionCollector
from .completion_request import CompletionRequest
from .disconnect import unless_disconnected
from .errors import ApiError, BackendError, from_backend, internal_error
from .generation_request import GenerationRequest
from .merge import Source, merged
from .responses import ChatResponse, CompletionResponse
from .served_model import ServedModel
from .sse import ChatEvents, CompletionEvents, EventWriter, error_event
from .tally import Tally
from .translate import client_field, generate_requests
from .validation import validated

log = logging.getLogger(__name__)

_EVENT_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # nginx would hold events back
]


def generation_router(backend: Backend, served: ServedModel, limits: BodyLimits) -> APIRouter:
    """The two routes."""
    router = APIRouter(tags=["generation"])

    @router.post("/v1/chat/completions", response_model=None, responses={200: {"model": ChatResponse}})
    async def chat_completions(request: Request) -> Response:
        """Answer a conversation; with `stream`, in events of `chat.completion.chunk`."""
        body = validated(ChatRequest, await read_json(request, limits))
        source, head = await _start(backend, served, request, body, "chatcmpl-")
        tally = Tally(prompts=1, n=body.choices_per_prompt)
        if body.stream:
            events = ChatEvents(head, tally, body.top_alternatives, body.wants_usage)
            return EventStream(source, events, body)
        collector = ChatCollector(head, tally, body.top_alternatives)
        return await _whole(request, source, collector, body)

    @router.post("/v1/completions", response_model=None, responses={200: {"model": CompletionResponse}})
    async def completions(request: Request) -> Response:
        """Go on with one or several prompts; with `stream`, in events of the same shape."""
        body = validated(CompletionRequest, await read_json(request, limits))
        source, head = await _start(backend, served, request, body, "cmpl-")
        tally = Tally(prompts=len(body.prompts()), n=body.choices_per_prompt)
        if body.stream:
            writer = CompletionEvents(head, tally, body.top_alternatives, body.wants_usage)
            return EventStream(source, writer, body)
        collector = CompletionCollector(head, tally, body.top_alternatives)
        return await _whole(request, source, collector, body)

    return router


async def _start(
    backend: Backend, served: ServedModel, request: Request, body: GenerationRequest, prefix: str
) -> tuple[Source, AnswerHead]:
    """The deltas to come, and the head of the answer. Nothing is asked of the backend before the source is read."""
    card = await unless_disconnected(request.receive, served.named(body.model))
    head = AnswerHead(id=prefix + uuid.uuid4().hex, created=int(time.time()), model=card.name)
    requests = generate_requests(body, card, head.id)
    log.debug("request %s is %s", request.state.request_id, head.id)
    return merged([backend.generate(each) for each in requests]), head


async def _whole(request: Request, source: Source, collector: Collector[Any], body: GenerationRequest) -> Response:
    async def collected() -> bytes:
        async with aclosing(source):
            async for prompt, delta in source:
                collector.take(prompt, delta)
        return msgspec.json.encode(collector.response())

    try:
        content = await unless_disconnected(request.receive, collected())
    except BackendError as error:
        raise _answer(error, body, request.state.request_id) from error
    return Response(content, media_type="application/json")


def _answer(error: BackendError, body: GenerationRequest, request_id: str) -> ApiError:
    answer = from_backend(error, lambda field: client_field(field, body))
    if answer.status == 500:
        log.error("request %s: the backend failed: %s", request_id, error)
    return answer


class EventStream(Response):
    """Streams events. The status is decided by the first of them: an error before it is answered as without `stream`.

    A slow client makes `send` wait, and so pauses the streams behind by their credit.
    """

    def __init__(self, source: Source, writer: EventWriter, body: GenerationRequest) -> None:
        super().__init__()
        self._source = source
        self._writer = writer
        self._body = body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await unless_disconnected(receive, self._stream(scope, send))

    async def _stream(self, scope: Scope, send: Send) -> None:
        started = False
        request_id = scope["state"]["request_id"]
        async with aclosing(self._events()) as events:
            try:
                async for data in events:
                    if not started:
                        started = True
                        await send({"type": "http.response.start", "status": 200, "headers": _EVENT_HEADERS})
                    await send({"type": "http.response.body", "body": data, "more_body": True})
            except BackendError as error:
                answer = _answer(error, self._body, request_id)
                if not started:
                    raise answer from error
                await self._fail(scope, send, answer)
            except Exception:
                if not started:
                    raise
                log.exception("request %s failed in its stream", request_id)
                await self._fail(scope, send, internal_error())
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    @staticmethod
    async def _fail(scope: Scope, send: Send, answer: ApiError) -> None:
        scope["state"]["failed"] = True
        data = error_event(answer.body(scope["state"]["request_id"]))
        await send({"type": "http.response.body", "body": data, "more_body": True})

    async def _events(self) -> AsyncGenerator[bytes, None]:
        async with aclosing(self._source):
            async for prompt, delta in self._source:
                data = self._writer.take(prompt, delta)
                if data:
                    yield data
        yield self._writer.end()
