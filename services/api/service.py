"""api: the OpenAI-compatible HTTP server, in front of the processor.

It speaks HTTP to clients (routes: `app`), processor/1 to the processor, and api/1 to tools:

| method | kind | answer |
|---|---|---|
| status | call, idempotent | where it listens; requests in flight, served, refused, failed, disconnected |

setup binds the port first, so that one that is taken fails the start at once, and then accepts; READY comes when its
own /health has answered over that port. drain refuses new requests with 503 and waits for those in flight; teardown
ends what is left with an error the client can see, and closes the port.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager
from typing import Annotated, Any, TypeVar, cast

from msgspec import Meta

from services.protocols.api import ApiInterface, ApiStatus
from services.protocols.processor import (
    ChatPrompt,
    GenerateText,
    ModelCard,
    ProcessorInterface,
    TextDelta,
    TextPrompt,
    TokenPrompt,
)
from zmqengine import Config, Deferred, Service
from zmqengine.errors import ConfigError, DeadlineExceeded, RemoteError, ZmqEngineError
from zmqengine.peer import Peer
from zmqengine.streams import Stream
from zmqengine.version import VERSION

from . import limits
from .app import AppSettings, create_app
from .errors import BackendError
from .gate import Gate
from .health_probe import probe_health
from .listener import ListenError, listening_socket, url_of
from .server import HttpServer

T = TypeVar("T")
_STOP_S = 2.0
"""What is still unanswered this long after its backend was cut is cut itself."""


class ApiConfig(Config):
    """Options of the HTTP server."""

    host: Annotated[str, Meta(min_length=1, description="Address to listen on.")] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535, description="Port to listen on; 0 takes a free one.")] = 8000
    processor: Annotated[str, Meta(min_length=1, description="Name of the processor.")] = "processor"
    max_body_bytes: Annotated[int, Meta(ge=1024, description="Largest body of a request.")] = limits.MAX_BODY_BYTES
    body_timeout_s: Annotated[float, Meta(gt=0, description="Time for a client to send its body.")] = 60.0
    request_timeout_s: Annotated[float, Meta(gt=0, description="Time for a whole generation.")] = 3600.0
    control_timeout_s: Annotated[float, Meta(gt=0, description="Time for the processor's other answers.")] = 5.0
    keep_alive_s: Annotated[int, Meta(ge=1, description="How long an idle connection is kept.")] = 75


class Api(Service, ApiInterface):
    """The OpenAI-compatible HTTP server."""

    config: ApiConfig
    _server: HttpServer | None = None

    async def setup(self) -> None:
        config = self.config
        self._gate = Gate()
        self._url = ""
        self._backend = ProcessorBackend(
            self.peer(config.processor, ProcessorInterface),
            config.processor,
            request_timeout_s=config.request_timeout_s,
            control_timeout_s=config.control_timeout_s,
        )
        try:
            listener = listening_socket(config.host, config.port, self.name)
        except ListenError as error:
            raise ConfigError(str(error)) from None
        settings = AppSettings(VERSION, config.max_body_bytes, config.body_timeout_s)
        app = create_app(self._backend, settings, self._gate)
        self._server = HttpServer(app, listener, keep_alive_s=config.keep_alive_s)
        await self._server.start()
        self._url = url_of(config.host, listener)
        self.log.info("listening on %s", self._url)
        self.announce(url=self._url)

    async def selftest(self) -> None:
        await probe_health(self._url, timeout_s=self.config.control_timeout_s)

    async def drain(self, deadline_s: float) -> None:
        self._gate.drain()
        if not await self._gate.idle(deadline_s):
            self.log.warning("%d requests are cut: they did not end within %g s", self._gate.in_flight, deadline_s)

    async def teardown(self) -> None:
        if self._server is None:  # setup failed before there was one
            return
        self._gate.drain()
        self._backend.cut()
        await self._server.stop(_STOP_S)

    def status(self) -> ApiStatus:
        counts = self._gate.counts
        return ApiStatus(
            url=self._url,
            in_flight=self._gate.in_flight,
            served=counts.served,
            refused=counts.refused,
            failed=counts.failed,
            disconnected=counts.disconnected,
            draining=self._gate.draining,
        )


class ProcessorBackend:
    """The processor, as the HTTP application sees it: plain values, and BackendError for every error."""

    def __init__(self, peer: Peer, name: str, *, request_timeout_s: float, control_timeout_s: float) -> None:
        self._name = name
        self._origin = re.compile(rf"{re.escape(name)}( \w+)?: ")
        self._control_timeout_s = control_timeout_s
        self._generating = peer.options(deadline_s=request_timeout_s)
        self._asking = peer.options(deadline_s=control_timeout_s)
        self._open: set[Stream[Any] | Deferred[Any]] = set()

    async def generate(self, request: GenerateText) -> AsyncGenerator[TextDelta, None]:
        with self._mapped_errors():
            stream = self._generating.generate(request)
            self._open.add(stream)
            try:
                async with aclosing(cast("AsyncGenerator[TextDelta, None]", aiter(stream))) as deltas:
                    async for delta in deltas:
                        yield delta
            finally:
                self._open.discard(stream)

    async def model(self) -> ModelCard:
        return await self._ask(self._asking.model)

    async def check(self) -> str:
        return await self._ask(self._asking.check)

    async def tokenize(self, prompt: ChatPrompt | TextPrompt | TokenPrompt, add_special_tokens: bool) -> list[int]:
        return await self._ask(lambda: self._asking.tokenize(prompt, add_special_tokens))

    async def detokenize(self, token_ids: list[int]) -> str:
        return await self._ask(lambda: self._asking.detokenize(token_ids))

    def cut(self) -> None:
        """End what is in flight: each request fails with "cancelled"."""
        for call in list(self._open):
            call.cancel("the server is stopping")

    async def _ask(self, call: Callable[[], Awaitable[T]]) -> T:
        """A call that should be answered at once: no answer in time means that the processor is not there."""
        with self._mapped_errors():
            answer = cast("Deferred[T]", call())
            self._open.add(answer)
            try:
                return await answer
            except DeadlineExceeded:
                message = f"{self._name} did not answer within {self._control_timeout_s:g} s"
                raise BackendError("unavailable", message) from None
            finally:
                self._open.discard(answer)

    @contextmanager
    def _mapped_errors(self) -> Iterator[None]:
        try:
            yield
        except RemoteError as error:
            text = str(error)
            if error.code == "invalid_argument":  # the client's fault: which service found it is of no use to it
                text = self._origin.sub("", text, count=1)
            raise BackendError(error.code, text, field=error.field, retry_after_s=error.retry_after_s) from error
        except ZmqEngineError as error:
            raise BackendError(error.code, str(error)) from error
