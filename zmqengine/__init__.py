"""zmqengine: actor services over ZeroMQ, launched in order, supervised, and swapped while they serve."""

import importlib
from typing import TYPE_CHECKING, Any

from .deferred import Deferred
from .interface import Interface, call, event, stream, tell
from .message import Config, Message
from .service import Service
from .streams import Inlet, Outlet

if TYPE_CHECKING:
    from .async_client import aconnect
    from .client import Client, connect

__all__ = [
    "Client", "Config", "Deferred", "Inlet", "Interface", "Message", "Outlet", "Service", "aconnect", "call", "connect",
    "event", "stream", "tell",
]  # fmt: skip

_LATER = {"Client": ".client", "connect": ".client", "aconnect": ".async_client"}
"""What callers use: a service that calls nobody starts faster without it."""


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_LATER[name], __name__), name)
