"""The listening socket: bound before the server is built, so that a port that is taken is found out at once."""

from __future__ import annotations

import errno
import socket

BACKLOG = 2048


class ListenError(Exception):
    """The address cannot be listened on; the message says why and which option to change."""


def listening_socket(host: str, port: int, option: str) -> socket.socket:
    """A socket that listens on host and port; port 0 takes a free one.

    option: prefix of the options' names, as "api", for messages. SO_REUSEADDR is set: on Linux it lets a restarted
    server take its port over from connections in TIME_WAIT, and never from one that listens; two sockets can be bound
    together with it, but only one of them can listen, hence the listen right here. SO_REUSEPORT, which would share the
    port silently, is not set. Raises ListenError.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror as error:
        raise ListenError(f"{option}.host: {host!r} is not an address of this machine: {error.strerror}") from None
    family, kind, protocol, _, address = found[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise ListenError(_why(error, host, port, option)) from None
    listener.setblocking(False)
    return listener


def _why(error: OSError, host: str, port: int, option: str) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"{option}.port: port {port} on {host} is in use by another program; "
            f"choose another with --set {option}.port=PORT, or a free one with --set {option}.port=0"
        )
    if error.errno == errno.EACCES:
        return f"{option}.port: port {port} may not be bound by this user; choose one above 1023"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{option}.host: {host!r} is not an address of this machine"
    return f"{option}.host, {option}.port: cannot listen on {host} port {port}: {error.strerror}"


def url_of(host: str, listener: socket.socket) -> str:
    """Where to reach it from this machine: a wildcard address is given as the loopback one."""
    port = listener.getsockname()[1]
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)
    return f"http://[{reachable}]:{port}" if ":" in reachable else f"http://{reachable}:{port}"
