"""api/1: how the HTTP server is doing. Spoken by tools; what the server is for, clients ask over HTTP."""

from zmqengine import Interface, Message, call


class ApiStatus(Message):
    """Requests of generation and tokenizing since the start; questions about the server's state are not counted."""

    url: str
    """Where it listens, as http://127.0.0.1:8000."""
    in_flight: int
    served: int
    refused: int
    """Answered 4xx."""
    failed: int
    """Answered 5xx, or a stream that ended with an error."""
    disconnected: int
    """The client went away before its answer was complete."""
    draining: bool


class ApiInterface(Interface, protocol="api/1"):
    """The HTTP server."""

    @call(idempotent=True)
    def status(self) -> ApiStatus:
        """Where it listens, and what it has answered."""
