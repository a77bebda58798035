"""The messages of the lifecycle: HELLO, WELCOME, HEALTH, DRAIN and BYE bodies."""

from __future__ import annotations

from .lifecycle import State
from .message import Message


class Hello(Message):
    """A service says who it is. Sent once its sockets are bound, and again (with a schema) once its code is imported.

    Answered by WELCOME when it may set itself up, or by ERROR if it is refused (wrong token, name taken, protocol that
    differs from the row's). May be sent again.
    """

    name: str
    pid: int
    incarnation: str
    token: str
    """One-time: given by the launcher to this incarnation alone; empty for a service run by hand."""
    data: str
    """Endpoint of the data socket."""
    control: str
    protocol: str = ""
    """Empty until the code is imported."""
    schema: str = ""
    """Fingerprint of the interface; empty until the code is imported."""
    methods: dict[str, str] = {}
    """Digest of each method's types; empty until the code is imported."""
    config: str = ""
    """Digest of the options."""
    server_key: str = ""
    """CURVE public key of the data socket; empty: served in plain."""

    @property
    def imported(self) -> bool:
        """Whether the service awaits its release to setup."""
        return bool(self.protocol)


class Welcome(Message):
    """The service is known. The first HELLO is answered at once; the one that says that the code is imported is
    answered when the service may set itself up."""

    run: str
    released: bool
    """Whether it may set itself up now."""
    options: str = ""
    """The row's options, as JSON; empty for a service run by hand, which has its own."""


class Progress(Message):
    """How far a long setup is."""

    done: float
    total: float
    what: str


class Health(Message):
    """State of a service, answered by its control thread whatever the main loop does."""

    name: str
    pid: int
    incarnation: str
    state: State
    protocol: str = ""
    schema: str = ""
    progress: Progress | None = None
    turns: int = 0
    """Turns of the main loop so far: a loop that is alive and has work counts on."""
    busy_s: float | None = None
    """How long the current turn has run; None while the loop waits."""
    busy_allowed_s: float = 0.0
    """How much longer the service itself said that this turn may take."""
    in_flight: int = 0
    calls: int = 0
    queued: int = 0
    """What waits in the service, as it says itself (`Service.queued`)."""
    p50_s: float | None = None
    p99_s: float | None = None
    """From a call to its terminal answer, over the last minute or so; None without any."""
    refused: int = 0
    """Connections, and messages of keys that were revoked since, that it did not take."""
    error: str | None = None
    """Why it failed."""
    announced: dict[str, str] = {}
    """What it offers beside its protocol, as ``{"url": "http://127.0.0.1:8000"}``."""


class Drain(Message):
    """Finish what is in flight, take nothing new, then stop. Answered at once; BYE follows when it is done."""

    deadline_s: float
    superseded: bool = False
    """Another incarnation serves the name by now: new calls are answered so, and asked again there."""
