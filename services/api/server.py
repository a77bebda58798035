"""uvicorn, driven inside a loop that is not its own: it starts, and ends, when it is told."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Iterator

import uvicorn
from starlette.types import ASGIApp

log = logging.getLogger(__name__)


class _Server(uvicorn.Server):
    """Without signal handlers (the process has its own), and with an event for when it accepts."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.accepting = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.accepting.set()


class HttpServer:
    """Serves an application on a listening socket, which it closes in the end."""

    def __init__(self, app: ASGIApp, listener: socket.socket, *, keep_alive_s: int) -> None:
        """keep_alive_s: how long an idle connection is kept."""
        config = uvicorn.Config(
            app, http="auto", ws="none", lifespan="off", log_config=None, log_level="warning", access_log=False,
            server_header=False, proxy_headers=False, timeout_keep_alive=keep_alive_s, timeout_graceful_shutdown=1,
        )  # fmt: skip
        self._server = _Server(config)
        self._listener = listener
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Accept connections; returns when it does. Raises what the start failed with."""
        self._task = asyncio.create_task(self._server.serve(sockets=[self._listener]))
        accepting = asyncio.create_task(self._server.accepting.wait())
        try:
            await asyncio.wait({self._task, accepting}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            accepting.cancel()
        if self._task.done():
            self._task.result()
            raise RuntimeError("the HTTP server ended while it was starting")

    async def stop(self, timeout_s: float) -> None:
        """Close the listening socket and the connections; what still runs after timeout_s is cut."""
        if self._task is None:
            self._listener.close()
            return
        self._server.config.timeout_graceful_shutdown = max(1, round(timeout_s))
        self._server.should_exit = True
        await self._task
        cut = list(self._server.server_state.tasks)
        if cut:
            await asyncio.wait(cut, timeout=timeout_s)
