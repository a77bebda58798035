"""Asks a server's /health over its real port, without an HTTP client library."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit


class HealthError(Exception):
    """The server did not answer as it should."""

    expected = True
    """Its message says all: no traceback is logged with it."""


async def probe_health(url: str, *, timeout_s: float) -> None:
    """Return when the server at `url` has answered GET /health with 200. Raises HealthError."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
            try:
                writer.write(f"GET /health HTTP/1.1\r\nHost: {parts.netloc}\r\nConnection: close\r\n\r\n".encode())
                await writer.drain()
                status_line = await reader.readline()
            finally:
                writer.close()
                await writer.wait_closed()
    except TimeoutError:
        raise HealthError(f"{url}/health did not answer within {timeout_s:g} s") from None
    except OSError as error:
        raise HealthError(f"{url}/health cannot be reached: {error}") from None
    if status_line.split()[1:2] != [b"200"]:
        raise HealthError(f"{url}/health answered {status_line.decode('latin-1').strip()!r}")
