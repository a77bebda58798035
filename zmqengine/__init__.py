"""zmqengine: actor services over ZeroMQ, launched in order, supervised, and swapped while they serve."""

from typing import TYPE_CHECKING, Any

from .client import Client, connect
from .deferred import Deferred
from .interface import Interface, call, event, stream, tell
from .message import Config, Message
from .service import Service
from .stream import Inlet, Outlet

if TYPE_CHECKING:
    from .async_client import aconnect

__all__ = [
    "Client", "Config", "Deferred", "Inlet", "Interface", "Message", "Outlet", "Service", "aconnect", "call", "connect",
    "event", "stream", "tell",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "aconnect":  # needs asyncio, which most services never import
        from .async_client import aconnect

        return aconnect
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
