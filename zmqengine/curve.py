"""CURVE: key pairs, and how they are put on a socket. Every connection is encrypted, and both ends prove who they are.

Keys are written as ZeroMQ does, in Z85: 40 characters of printable ASCII.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import NamedTuple

import zmq

from .errors import ConfigError, HandshakeFailed, PeerLost

_Z85 = {
    character: value
    for value, character in enumerate(
        "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
    )
}
KEY_LENGTH = 40

FAILURES = zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
"""What a socket's monitor has to be asked for."""
_OTHER_MECHANISM = 0x11000002
"""ZMQ_PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH: one end speaks CURVE and the other does not."""
_NO_CURVE = "it does not speak CURVE, and this client was given a public key of it"


class KeyPair:
    """Who one end is. The secret key is in no message and no log: not even in the text of this object."""

    __slots__ = ("public", "secret")

    def __init__(self, public: str, secret: str) -> None:
        """Raises ConfigError where they are no pair."""
        check_key(public)
        check_key(secret)
        if zmq.curve_public(secret.encode()).decode() != public:
            raise ConfigError(f"the secret key does not belong to the public key {public}")
        self.public = public
        self.secret = secret

    def __repr__(self) -> str:
        return f"KeyPair({self.public})"

    @classmethod
    def generate(cls) -> KeyPair:
        """A fresh pair, from the system's random numbers. Its public key begins with a letter or digit: a command line
        would take a leading - for an option."""
        while True:
            public, secret = (key.decode() for key in zmq.curve_keypair())
            if public[0].isalnum():
                return cls(public, secret)


class CurveServer(NamedTuple):
    """What a bound end needs."""

    pair: KeyPair
    allows: Callable[[str], bool]
    """Whether a client with this public key may connect, and call. Asked by the service's loop, and by the thread of
    the ZAP handler."""


class CurveClient(NamedTuple):
    """What a dialling end needs."""

    server_key: str
    """The public key that the server has to prove to have."""
    pair: KeyPair


def check_key(key: str) -> None:
    """Raises ConfigError where `key` cannot be one. It may be a secret, so it is not repeated."""
    if len(key) != KEY_LENGTH or any(character not in _Z85 for character in key):
        raise ConfigError(f"not a CURVE key: it has {KEY_LENGTH} characters of Z85, as `zmqengine keys show` prints it")
    for start in range(0, KEY_LENGTH, 5):
        value = 0
        for character in key[start : start + 5]:
            value = value * 85 + _Z85[character]
        if value >> 32:
            raise ConfigError("not a CURVE key: five of its characters stand for more than 32 bits")


def fingerprint(public: str) -> str:
    """A short name of a public key, for people and for file names."""
    return hashlib.blake2b(public.encode(), digest_size=6).hexdigest()


def serve_with(socket: zmq.Socket[bytes], server: CurveServer, domain: str) -> None:
    """Before it is bound: take only clients that the ZAP handler admits to `domain`."""
    socket.curve_server = True
    socket.curve_secretkey = server.pair.secret.encode()
    socket.zap_domain = domain.encode()
    # Without this, libzmq takes every client where no handler answers.
    socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)


def dial_with(socket: zmq.Socket[bytes], client: CurveClient) -> None:
    """Before it is connected: talk to that server alone, as this client."""
    socket.curve_serverkey = client.server_key.encode()
    socket.curve_publickey = client.pair.public.encode()
    socket.curve_secretkey = client.pair.secret.encode()


def failure(event: int, value: int, client: CurveClient | None, where: str) -> PeerLost | None:
    """What a monitor's event of a failed handshake means, and what to do. where: who was dialled, for the message.

    None where nothing can be said but that the connection broke.
    """
    if event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
        if client is None or value != 400:
            return HandshakeFailed(f"{where}: it refused this client (ZAP status {value}); its log says why")
        return HandshakeFailed(
            f"{where}: it does not allow this client's key {client.pair.public}; "
            f"allow it there with `zmqengine keys allow '{client.pair.public}'`"
        )
    plain = "it speaks CURVE, and this client has no key of it; give its public key (server_key, --server-key)"
    if event == zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL:
        if value != _OTHER_MECHANISM:
            return HandshakeFailed(f"{where}: it does not speak ZMTP as this end does (libzmq's error {value:#x})")
        return HandshakeFailed(f"{where}: {_NO_CURVE + '; nothing was sent' if client is not None else plain}")
    if event == zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL and "tcp://" in where:
        # So looks also a server that stops at this moment, hence no HandshakeFailed: it may be tried again.
        if client is None:
            return PeerLost(f"{where}: it ended the handshake; perhaps {plain}")
        return PeerLost(
            f"{where}: it ended the handshake; perhaps {client.server_key} is not its public key, or {_NO_CURVE}"
        )
    return None
