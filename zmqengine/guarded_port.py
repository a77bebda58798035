"""The bound end of a service that is served with CURVE: a key that is revoked is cut off in the middle of its calls.

libzmq asks who may connect once, at the handshake, and has no way to end a connection of a ROUTER. So each message is
looked at as well: it bears the key of its connection. That costs 5 us a message, beside what encrypting it costs.
"""

from __future__ import annotations

import collections
import logging

import zmq

from . import envelope
from .curve import CurveServer
from .errors import HandshakeFailed, to_wire
from .transport import Port, Sent
from .wire import Kind

log = logging.getLogger(__name__)

KNOWN_PEERS = 10_000
"""Connections whose key is remembered, those used last."""
REFUSED_AT_ONCE = 64
"""Messages of revoked peers that are taken in before others get their turn."""


class GuardedPort(Port):
    """A Port that is told, at each message, whether its peer's key is still allowed."""

    def __init__(self, endpoint: str, server: CurveServer, *, all_interfaces: bool = False) -> None:
        """Bind with CURVE. Raises ConfigError as Port does."""
        super().__init__(endpoint, server, all_interfaces=all_interfaces)
        self._allows = server.allows
        self._keys: collections.OrderedDict[bytes, str] = collections.OrderedDict()
        """Public key by identity."""
        self._answer = envelope.encode(
            Kind.ERROR,
            body=to_wire(HandshakeFailed("this client's key was revoked; its connection is not served any more")),
        )

    def receive_expected(self) -> tuple[bytes, list[bytes]] | None:
        for _ in range(REFUSED_AT_ONCE):
            try:
                first = self.socket.recv(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return None
            identity, public = first.bytes, str(first.get("User-Id"))  # set by the ZAP handler alone
            frames = self.socket.recv_multipart()
            if self._admits(public):
                self._keys[identity] = public
                self._keys.move_to_end(identity)
                if len(self._keys) > KNOWN_PEERS:
                    self._keys.popitem(last=False)
                return identity, frames
            assert self.guard is not None
            self.guard.refused += 1
            super().send(identity, self._answer)
        return None

    def send(self, identity: bytes, frame: bytes) -> Sent:
        public = self._keys.get(identity)
        if public is not None and not self._admits(public):
            super().send(identity, self._answer)
            sent = Sent.GONE  # whoever sends then ends all that goes on for that peer
        else:
            sent = super().send(identity, frame)
        if sent is Sent.GONE:
            self._keys.pop(identity, None)
        return sent

    def _admits(self, public: str) -> bool:
        try:
            return self._allows(public)
        except Exception:
            log.exception("a message was refused: the key of its sender could not be looked up")
            return False
