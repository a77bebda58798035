"""zmqengine: actor services over ZeroMQ, launched in order, supervised, and swapped while they serve."""

from .async_client import aconnect
from .client import Client, connect
from .deferred import Deferred
from .errors import ZmqEngineError
from .interface import Interface, call, stream, tell
from .message import Config, Message
from .service import Service
from .stream import Outlet, Stream

__all__ = [
    "Client", "Config", "Deferred", "Interface", "Message", "Outlet", "Service", "Stream", "ZmqEngineError", "aconnect",
    "call", "connect", "stream", "tell",
]  # fmt: skip
