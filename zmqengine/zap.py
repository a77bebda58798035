"""The ZAP handler (ZeroMQ RFC 27): libzmq asks it, by messages within the process, whom a CURVE socket may take.

One thread answers for all sockets of the process, so a service that computes or loads still takes connections. It is
there while a guarded socket is. Where it should ever not answer, libzmq refuses (`curve.serve_with`).
"""

from __future__ import annotations

import collections
import itertools
import logging
import os
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

import zmq
from zmq.utils import z85

log = logging.getLogger(__name__)

ENDPOINT = "inproc://zeromq.zap.01"
KEPT = 16
"""Refusals that are kept for those who ask."""
LOG_EVERY_S = 1.0
"""Refusals are logged at most so often, for whoever can reach the port can cause them."""
_STOP = b"stop"
_FRAMES = 7
"""version, request id, domain, address, identity, mechanism, and CURVE's one credential: the public key"""


class Refusal(NamedTuple):
    """A client that was not taken."""

    public: str
    address: str


class Guard:
    """Who may connect to one socket, and how many were refused."""

    def __init__(self, handler: ZapHandler, domain: str, allows: Callable[[str], bool]) -> None:
        self._handler = handler
        self.domain = domain
        self.allows = allows
        self.admitted = 0
        self.refused = 0
        self.recent: collections.deque[Refusal] = collections.deque(maxlen=KEPT)

    def close(self) -> None:
        """Its socket is closed."""
        self._handler.release(self)


class ZapHandler:
    """Answers for the guarded sockets of one context, on a thread of its own."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], clock: Callable[[], float] = time.monotonic) -> None:
        self._context = context
        self._clock = clock
        self._guards: dict[str, Guard] = {}
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._logged_at = -LOG_EVERY_S
        self._unlogged = 0

    def guard(self, allows: Callable[[str], bool]) -> Guard:
        """Answer for one more socket, whose ZAP domain is the guard's. allows: called on the handler's thread."""
        with self._lock:
            guard = Guard(self, f"zmqengine-{next(self._numbers)}", allows)
            self._guards[guard.domain] = guard
            if self._thread is None:
                socket = self._context.socket(zmq.REP)
                socket.linger = 0
                try:
                    socket.bind(ENDPOINT)
                except zmq.ZMQError:
                    socket.close()
                    del self._guards[guard.domain]
                    raise
                self._thread = threading.Thread(target=self._serve, args=(socket,), name="zap", daemon=True)
                self._thread.start()
            return guard

    def release(self, guard: Guard) -> None:
        """Its socket is closed. With the last one the thread ends."""
        with self._lock:
            if self._guards.pop(guard.domain, None) is None or self._guards or self._thread is None:
                return
            thread, self._thread = self._thread, None
            try:
                with self._context.socket(zmq.REQ) as asking:
                    asking.connect(ENDPOINT)
                    asking.send(_STOP)
                    thread.join()
            except zmq.ZMQError:  # the context has ended, and the thread with it
                thread.join()

    def _serve(self, socket: zmq.Socket[bytes]) -> None:
        with socket:
            while True:
                try:
                    frames = socket.recv_multipart()
                    if frames == [_STOP]:
                        socket.unbind(ENDPOINT)  # closing alone frees the name later, on another thread
                        return
                    socket.send_multipart(self._answer(frames))
                except zmq.ContextTerminated:
                    return

    def _answer(self, frames: list[bytes]) -> list[bytes]:
        """The reply to a request, whatever it is: nobody is admitted by a fault of ours."""
        request_id = frames[1] if len(frames) > 1 else b""
        status, text, user = b"500", b"the server could not look up the key", b""
        try:
            status, text, user = self._judge(frames)
        except Exception:
            log.exception("a connection was refused: its key could not be looked up")
        return [b"1.0", request_id, status, text, user, b""]

    def _judge(self, frames: list[bytes]) -> tuple[bytes, bytes, bytes]:
        if len(frames) != _FRAMES or frames[0] != b"1.0" or frames[5] != b"CURVE" or len(frames[6]) != 32:
            return b"400", b"only CURVE is spoken here", b""
        guard = self._guards.get(frames[2].decode("utf-8", "replace"))
        public = z85.encode(frames[6])
        if guard is None:
            return b"400", b"this socket is closing", b""
        try:
            allowed = guard.allows(public.decode())
        except Exception:
            guard.refused += 1
            raise
        if allowed:
            guard.admitted += 1
            return b"200", b"", public
        self._note(guard, Refusal(public.decode(), frames[3].decode("utf-8", "replace")))
        return b"400", b"this key is not allowed", b""

    def _note(self, guard: Guard, refusal: Refusal) -> None:
        guard.refused += 1
        guard.recent.append(refusal)
        now = self._clock()
        if now - self._logged_at < LOG_EVERY_S:
            self._unlogged += 1
            return
        more = f" (and {self._unlogged} more that were not logged)" if self._unlogged else ""
        log.warning(
            "refused a connection from %s: its key is not allowed%s. To allow it: zmqengine keys allow '%s'",
            refusal.address, more, refusal.public,
        )  # fmt: skip
        self._logged_at, self._unlogged = now, 0


_making = threading.Lock()
_handlers: dict[int, tuple[zmq.Context[zmq.Socket[bytes]], ZapHandler]] = {}


def handler_of(context: zmq.Context[zmq.Socket[bytes]]) -> ZapHandler:
    """The handler of a context: libzmq looks for one, by its one name, in each. A forked child gets its own."""
    pid = os.getpid()
    with _making:
        found = _handlers.get(pid)
        if found is None or found[0] is not context:
            _handlers.clear()
            found = _handlers[pid] = (context, ZapHandler(context))
        return found[1]
