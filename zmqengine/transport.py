"""Sockets: how they are made, bound and dialled, and the three small objects that the rest of the library uses.

`Port` is the service's end (ROUTER), `Link` the client's (DEALER), `Waiter` waits for several of them. Neither
is thread-safe: each belongs to the thread that made it.
"""

from __future__ import annotations

import enum
import os
import select
import socket as unix
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import zmq

from . import curve, wire
from .binding import check_reach, parse_tcp
from .errors import ConfigError, PeerLost

if TYPE_CHECKING:
    from . import zap

LINGER_MS = 500
"""How long closing a socket waits for what is still to be sent."""
CONNECT_RETRIES = 10
"""Dials, 20 ms apart, after which nobody is taken to listen. Endpoints are published once they are bound, so a refusal
is final, but for a burst of dials that overflows the listener's backlog."""
SOON_S = 0.01
"""How long a blocking client waits for the answer alone."""
MAX_IPC_PATH = 107
"""Length of a unix socket's path on Linux, in bytes."""

# pyzmq's constants are enums, whose arithmetic costs microseconds on the path of every call: plain numbers here.
_EVENTS = int(zmq.EVENTS)
_POLLIN = int(zmq.POLLIN)
_POLLOUT = int(zmq.POLLOUT)
_RCVMORE = int(zmq.RCVMORE)
_NOBLOCK = int(zmq.NOBLOCK)
_SNDMORE_NOBLOCK = int(zmq.SNDMORE) | _NOBLOCK

_contexts: dict[int, zmq.Context[zmq.Socket[bytes]]] = {}


def context() -> zmq.Context[zmq.Socket[bytes]]:
    """This process's ZeroMQ context; a forked child gets its own."""
    pid = os.getpid()
    if pid not in _contexts:
        _contexts.clear()
        _contexts[pid] = zmq.Context(io_threads=1)
    return _contexts[pid]


class Library(NamedTuple):
    """What is installed."""

    pyzmq: str
    libzmq: str
    curve: bool
    """Whether connections can be encrypted."""


def library() -> Library:
    """The versions of pyzmq and libzmq."""
    return Library(zmq.pyzmq_version(), zmq.zmq_version(), bool(zmq.has("curve")))


def finish() -> None:
    """What a process does last: wait until what its closed sockets have still to send is sent, at most LINGER_MS.

    A process that just ends takes its last answers along, for the thread that sends them ends with it.
    """
    ending = _contexts.pop(os.getpid(), None)
    if ending is not None:
        # A socket that was left open would make it wait for ever, so it is waited for elsewhere.
        thread = threading.Thread(target=ending.term, name="finish", daemon=True)
        thread.start()
        thread.join(LINGER_MS / 1000 + 0.1)


class Sent(enum.Enum):
    """What became of a message given to a Port."""

    OK = "ok"
    FULL = "full"
    GONE = "gone"


def _new_socket(kind: int) -> zmq.Socket[bytes]:
    socket = context().socket(kind)
    socket.linger = LINGER_MS
    socket.sndhwm = socket.rcvhwm = wire.HIGH_WATER_MARK
    socket.maxmsgsize = wire.MAX_MESSAGE_BYTES
    socket.handshake_ivl = 5000
    return socket


def _prepare_tcp(socket: zmq.Socket[bytes], endpoint: str) -> None:
    if endpoint.startswith("tcp://"):
        socket.ipv6 = parse_tcp(endpoint).is_v6
        socket.heartbeat_ivl = 2000
        socket.heartbeat_timeout = 6000


def _rest(socket: zmq.Socket[bytes], frame: bytes) -> list[bytes]:
    """The frames of the message that begins with `frame`."""
    frames = [frame]
    while socket.getsockopt(_RCVMORE):
        frames.append(socket.recv())
    return frames


def check_endpoint(endpoint: str) -> None:
    """Raises ConfigError for an endpoint that must not be bound or cannot be dialled."""
    scheme, separator, rest = endpoint.partition("://")
    if not separator or scheme not in ("ipc", "tcp") or not rest:
        raise ConfigError(f"endpoint {endpoint!r}: expected ipc://PATH or tcp://HOST:PORT")
    if scheme == "tcp":
        parse_tcp(endpoint)
    if scheme == "ipc" and len(os.fsencode(rest)) > MAX_IPC_PATH:
        raise ConfigError(f"endpoint {endpoint!r}: a unix socket's path has at most {MAX_IPC_PATH} bytes")


class Port:
    """The bound end of a service: receives from and sends to many peers, each known by its identity frame."""

    def __init__(self, endpoint: str, server: curve.CurveServer | None = None, *, all_interfaces: bool = False) -> None:
        """Bind. ``tcp://127.0.0.1:0`` takes a free port. server: the keys; without them tcp is bound on loopback only.

        Raises ConfigError where it cannot be bound, or must not be (`binding`).
        """
        check_endpoint(endpoint)
        if endpoint.startswith("ipc://"):
            _refuse_to_steal(endpoint)
        elif check_reach(endpoint, all_interfaces=all_interfaces) != "loopback" and server is None:
            raise ConfigError(
                f"endpoint {endpoint!r}: tcp beyond loopback takes CURVE keys and a list of who may connect; "
                "see `zmqengine keys --help`"
            )
        self.socket = _new_socket(zmq.ROUTER)
        self.socket.router_mandatory = True
        _prepare_tcp(self.socket, endpoint)
        self.server_key = "" if server is None else server.pair.public
        """The public key by which peers know that it is this service; empty: served in plain."""
        self.guard: zap.Guard | None = None
        try:
            if server is not None:
                from . import zap  # with tcp's own imports, 5 ms that services on ipc do without

                self.guard = zap.handler_of(context()).guard(server.allows)
                curve.serve_with(self.socket, server, self.guard.domain)
            self.socket.bind(endpoint)
        except zmq.ZMQError as error:
            self._close(0)
            raise ConfigError(f"cannot bind {endpoint}: {error.strerror}") from None
        self.endpoint = _as_dialled(self.socket.getsockopt_string(zmq.LAST_ENDPOINT))
        if self.endpoint.startswith("ipc://"):
            Path(self.endpoint.removeprefix("ipc://")).chmod(0o600)  # also where its directory is open to others

    def receive(self) -> tuple[bytes, list[bytes]] | None:
        """The next message as (identity, frames); None if none is pending."""
        # Asking first costs 4 us, an exception for "nothing there" 9.
        if not self.socket.getsockopt(_EVENTS) & _POLLIN:  # type: ignore[operator]
            return None
        return self.receive_expected()

    def receive_expected(self) -> tuple[bytes, list[bytes]] | None:
        """The same without asking first: for a caller who was just told that there is something."""
        socket = self.socket
        try:
            identity = socket.recv(_NOBLOCK)
        except zmq.Again:
            return None
        return identity, _rest(socket, socket.recv())  # a message that a ROUTER gives has an identity and more

    def send(self, identity: bytes, frame: bytes) -> Sent:
        """Send one frame to a peer, without blocking."""
        try:
            self.socket.send(identity, _SNDMORE_NOBLOCK)
            self.socket.send(frame, _NOBLOCK)
        except zmq.Again:
            return Sent.FULL
        except zmq.ZMQError as error:
            if error.errno == zmq.EHOSTUNREACH:
                return Sent.GONE
            raise
        return Sent.OK

    def close(self) -> None:
        """Close, after at most LINGER_MS for what is still to be sent, and unlink an ipc path."""
        self._close(None)
        if self.endpoint.startswith("ipc://"):
            Path(self.endpoint.removeprefix("ipc://")).unlink(missing_ok=True)

    def _close(self, linger_ms: int | None) -> None:
        self.socket.close(linger_ms)
        if self.guard is not None:
            self.guard.close()


def _as_dialled(bound: str) -> str:
    """Where a peer on this host reaches what was bound: an address of all interfaces is none to dial."""
    if bound.startswith("tcp://"):
        read = parse_tcp(bound)
        if read.reach == "all interfaces":
            return f"tcp://{'[::1]' if read.is_v6 else '127.0.0.1'}:{read.port}"
    return bound


def _refuse_to_steal(endpoint: str) -> None:
    """libzmq unlinks whatever is at an ipc path before it binds: a second bind would silently steal a live one."""
    if somebody_listens(endpoint.removeprefix("ipc://")):
        raise ConfigError(f"cannot bind {endpoint}: another process listens there")
    if endpoint.startswith("ipc://@"):
        raise ConfigError(f"cannot bind {endpoint}: a name that is no file has no owner, and every user could call it")


def somebody_listens(path: str) -> bool:
    """Whether a unix socket is in use, rather than a file that was left behind."""
    with unix.socket(unix.AF_UNIX, unix.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except BlockingIOError:
            return True  # its backlog is full
        except OSError:
            return False
    return True


class Link:
    """The dialling end: one connection to one peer."""

    def __init__(self, endpoint: str, peer: str, client: curve.CurveClient | None = None) -> None:
        """Dial. client: the keys, without which tcp is dialled on loopback alone. Raises ConfigError."""
        check_endpoint(endpoint)
        if client is not None:
            curve.check_key(client.server_key)
        elif endpoint.startswith("tcp://") and parse_tcp(endpoint).reach != "loopback":
            raise ConfigError(
                f"{peer}: {endpoint} is beyond loopback, and dialled with CURVE alone; give the service's public key "
                "(server_key, --server-key), which `zmqengine keys show` prints there"
            )
        self.endpoint = endpoint
        self.peer = peer
        self.socket = _new_socket(zmq.DEALER)
        # With IMMEDIATE, libzmq throws away what has come and is not read yet when the peer closes: the last answers of
        # a service that stops (measured: a stream's end was lost in every second stop). That a peer is gone is told by
        # the monitor, and fails what was queued.
        self.socket.immediate = False
        self.socket.reconnect_ivl = 20
        self.socket.rcvtimeo = int(SOON_S * 1000)
        _prepare_tcp(self.socket, endpoint)
        self._client = client
        if client is not None:
            curve.dial_with(self.socket, client)
        self.monitor: zmq.Socket[bytes] = self.socket.get_monitor_socket(
            zmq.EVENT_CONNECTED | zmq.EVENT_CONNECT_RETRIED | zmq.EVENT_DISCONNECTED | curve.FAILURES
        )
        self.connected = False
        self._retries = 0
        self.lost: PeerLost | None = None
        self.socket.connect(endpoint)

    def receive(self) -> list[bytes] | None:
        """The next message's frames; None if none is pending."""
        if not self.socket.getsockopt(_EVENTS) & _POLLIN:  # type: ignore[operator]
            return None
        return _rest(self.socket, self.socket.recv())

    def receive_soon(self) -> list[bytes] | None:
        """The next message's frames, waited for at most SOON_S; None if none came.

        For a blocking client: one call of libzmq where waiting for all that can happen takes four, which is a fifth of
        the time of a small call. What else happens meanwhile (the peer dies) is seen SOON_S later.
        """
        try:
            frame = self.socket.recv()
        except zmq.Again:
            return None
        return _rest(self.socket, frame)

    def send(self, frame: bytes) -> bool:
        """Send one frame without blocking; False if it must wait (not connected yet, or the peer's queue is full)."""
        try:
            self.socket.send(frame, _NOBLOCK)
        except zmq.Again:
            return False
        return True

    def watch(self) -> None:
        """Take in what the monitor saw: sets `connected`, and `lost` once an established connection broke."""
        while True:
            try:
                # First frame: event number as uint16, then its value. (zmq.utils.monitor would import asyncio.)
                event, value = struct.unpack_from("=HI", self.monitor.recv_multipart(_NOBLOCK)[0])
            except zmq.Again:
                return
            if event == zmq.EVENT_CONNECTED:
                self.connected = True
            elif event == zmq.EVENT_CONNECT_RETRIED:
                self._retries += 1
                if self._retries > CONNECT_RETRIES and not self.connected:
                    self.lost = self.lost or PeerLost(f"{self.peer}: nobody listens at {self.endpoint}")
            elif event == zmq.EVENT_DISCONNECTED:
                self.lost = self.lost or PeerLost(f"{self.peer}: the connection to {self.endpoint} broke")
            else:  # of the handshake; what it says is more than the DISCONNECTED that follows
                where = f"{self.peer}: no connection to {self.endpoint}"
                self.lost = self.lost or curve.failure(event, value, self._client, where)

    def close(self) -> None:
        """Close both sockets. What was not sent within LINGER_MS is lost."""
        if not self.socket.closed:
            self.socket.disable_monitor()
            self.monitor.close(0)
            self.socket.close()


class Waiter:
    """Waits until a socket or file can be read (or written, where asked for), or the time is over.

    It polls the sockets' descriptors itself: one system call, and none of the rebuilding that zmq.Poller does for each
    (measured on a 100-byte call with two sockets: 40 us less). A socket's descriptor is edge-triggered and any use of
    the socket may take the edge, so its events are asked for before each wait. That costs 4 us (pyzmq makes an enum of
    the option), so it is not done for `edge` sources: those that nobody uses but to read them until they are empty.
    """

    def __init__(self) -> None:
        self._poll = select.poll()
        self._sockets: dict[int, tuple[Any, int]] = {}
        self._callbacks: dict[int, Callable[[], object]] = {}

    def add(self, source: Any, callback: Callable[[], object], *, writable: bool = False, edge: bool = False) -> None:
        """Call back when `source` (zmq socket or file descriptor) is readable, or with writable, either. edge: the
        callback reads it until it is empty, and nobody else uses it."""
        fd: int = source if isinstance(source, int) else source.fd
        self._poll.register(fd, select.POLLIN)
        self._callbacks[fd] = callback
        if not isinstance(source, int) and not edge:
            self._sockets[fd] = (source, _POLLIN | _POLLOUT if writable else _POLLIN)

    def remove(self, source: Any) -> None:
        """Forget a source; an unknown one is a no-op."""
        fd: int = source if isinstance(source, int) else source.fd
        if self._callbacks.pop(fd, None) is not None:
            self._sockets.pop(fd, None)
            self._poll.unregister(fd)

    def wait(self, timeout_s: float | None) -> bool:
        """Wait at most timeout_s (None: without limit) and call back for each source that is ready, or may be.

        Whether it slept: nothing was there already.
        """
        found = [fd for fd, (socket, wanted) in self._sockets.items() if socket.getsockopt(_EVENTS) & wanted]
        if found:
            timeout_ms: int | None = 0  # files get their turn also while sockets are busy
        else:
            # poll takes whole milliseconds; rounding down to 0 would turn the last millisecond into a busy loop.
            timeout_ms = None if timeout_s is None else max(0, int(timeout_s * 1000 + 0.999))
        # A socket's descriptor tells only that something is new: whether it can be read, its reader asks.
        found += [fd for fd, _ in self._poll.poll(timeout_ms)]
        for fd in found:
            callback = self._callbacks.get(fd)
            if callback is not None:  # an earlier callback may have removed it
                callback()
        return timeout_ms != 0


def has_news(socket: zmq.Socket[bytes], wants_write: bool) -> bool:
    """Whether a socket can be read (or, where that is wanted, written): asking takes the edge of its descriptor, so
    whoever waits on that has to ask for all that it waits for."""
    events: int = socket.getsockopt(_EVENTS)  # type: ignore[assignment]
    return bool(events & (_POLLIN | _POLLOUT if wants_write else _POLLIN))
