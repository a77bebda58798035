"""What the supervisor is told (events) and what it wants done (actions). Plain values; times are monotonic seconds."""

from __future__ import annotations

from dataclasses import dataclass

from .lifecycle import State
from .table import Table

# Events


@dataclass(frozen=True, slots=True)
class StartAsked:
    """Start every row."""


@dataclass(frozen=True, slots=True)
class StopAsked:
    """Stop the run; force: without drain."""

    reason: str
    force: bool = False


@dataclass(frozen=True, slots=True)
class RestartAsked:
    """An operator wants one service restarted."""

    name: str


@dataclass(frozen=True, slots=True)
class TableChanged:
    """An operator wants the run to be as another table says."""

    table: Table


@dataclass(frozen=True, slots=True)
class Spawned:
    """The process of an incarnation runs."""

    name: str
    incarnation: str
    pid: int


@dataclass(frozen=True, slots=True)
class SpawnFailed:
    """It could not be started at all."""

    name: str
    incarnation: str
    reason: str


@dataclass(frozen=True, slots=True)
class HelloReceived:
    """An incarnation said HELLO; imported: its code is there, and it awaits its release."""

    name: str
    incarnation: str
    imported: bool


@dataclass(frozen=True, slots=True)
class ProgressSeen:
    """Setup goes forward."""

    name: str
    incarnation: str
    text: str


@dataclass(frozen=True, slots=True)
class ReadySeen:
    """It answered on its real endpoint, after its selftest."""

    name: str
    incarnation: str


@dataclass(frozen=True, slots=True)
class FailureTold:
    """The service itself says why it fails; its exit follows."""

    name: str
    incarnation: str
    error: str


@dataclass(frozen=True, slots=True)
class LifeSeen:
    """The outcome of one health call of a service that was READY."""

    name: str
    incarnation: str
    answered: bool
    busy_s: float | None = None
    busy_allowed_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Exited:
    """A process ended. how: in words, as ``exit code 1``; clean: by exit code 0."""

    name: str
    incarnation: str
    how: str
    clean: bool


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


Event = (
    StartAsked | StopAsked | RestartAsked | TableChanged | Spawned | SpawnFailed | HelloReceived | ProgressSeen
    | ReadySeen | FailureTold | LifeSeen | Exited | Tick
)  # fmt: skip

# Actions


@dataclass(frozen=True, slots=True)
class Spawn:
    """Start a process for the row."""

    name: str
    incarnation: str


@dataclass(frozen=True, slots=True)
class Release:
    """Let it set itself up: answer its HELLO with WELCOME, and probe it until it is READY."""

    name: str
    incarnation: str


@dataclass(frozen=True, slots=True)
class Drain:
    """Have it finish what is in flight, within deadline_s, and end."""

    name: str
    incarnation: str
    deadline_s: float


@dataclass(frozen=True, slots=True)
class Terminate:
    """SIGTERM to its group."""

    name: str
    incarnation: str


@dataclass(frozen=True, slots=True)
class Kill:
    """SIGKILL to its whole tree."""

    name: str
    incarnation: str


@dataclass(frozen=True, slots=True)
class DumpStacks:
    """Have it write the stacks of its threads into its log."""

    name: str
    incarnation: str


@dataclass(frozen=True, slots=True)
class Changed:
    """A service changed its state: tell whoever looks. text: why, where there is a reason."""

    name: str
    state: State
    text: str = ""


@dataclass(frozen=True, slots=True)
class Up:
    """All is READY."""


@dataclass(frozen=True, slots=True)
class StartBroke:
    """The start failed; what was started is being stopped."""

    name: str
    phase: State
    cause: str


@dataclass(frozen=True, slots=True)
class Down:
    """Nothing runs any more."""


Action = Spawn | Release | Drain | Terminate | Kill | DumpStacks | Changed | Up | StartBroke | Down
