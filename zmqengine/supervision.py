"""What the supervisor is told (events) and what it wants done (actions). Plain values; times are monotonic seconds."""

from __future__ import annotations

from msgspec import Struct

from .lifecycle import State
from .table import Row, Table

# Events


class StartAsked(Struct, frozen=True):
    """Start every row."""


class StopAsked(Struct, frozen=True):
    """Stop the run; force: without drain."""

    reason: str
    force: bool = False


class RestartAsked(Struct, frozen=True):
    """An operator wants one service restarted."""

    name: str


class TableChanged(Struct, frozen=True):
    """An operator wants the run to be as another table says."""

    table: Table


class SwapAsked(Struct, frozen=True):
    """An operator wants a service replaced while it serves. row: what takes its place, under the same name."""

    name: str
    row: Row
    stop_first: bool = False


class Spawned(Struct, frozen=True):
    """The process of an incarnation runs."""

    name: str
    incarnation: str
    pid: int


class SpawnFailed(Struct, frozen=True):
    """It could not be started at all."""

    name: str
    incarnation: str
    reason: str


class HelloReceived(Struct, frozen=True):
    """An incarnation said HELLO; imported: its code is there, and it awaits its release."""

    name: str
    incarnation: str
    imported: bool


class ProgressSeen(Struct, frozen=True):
    """Setup goes forward."""

    name: str
    incarnation: str
    text: str


class ReadySeen(Struct, frozen=True):
    """It answered on its real endpoint, after its selftest."""

    name: str
    incarnation: str


class FailureTold(Struct, frozen=True):
    """The service itself says why it fails; its exit follows."""

    name: str
    incarnation: str
    error: str


class LifeSeen(Struct, frozen=True):
    """The outcome of one health call of a service that was READY."""

    name: str
    incarnation: str
    answered: bool
    busy_s: float | None = None
    busy_allowed_s: float = 0.0


class Exited(Struct, frozen=True):
    """A process ended. how: in words, as ``exit code 1``; clean: by exit code 0."""

    name: str
    incarnation: str
    how: str
    clean: bool


class Tick(Struct, frozen=True):
    """Time has passed."""


Event = (
    StartAsked | StopAsked | RestartAsked | SwapAsked | TableChanged | Spawned | SpawnFailed | HelloReceived
    | ProgressSeen | ReadySeen | FailureTold | LifeSeen | Exited | Tick
)  # fmt: skip

# Actions


class Spawn(Struct, frozen=True):
    """Start a process for the row."""

    name: str
    incarnation: str


class Release(Struct, frozen=True):
    """Let it set itself up: answer its HELLO with WELCOME, and probe it until it is READY."""

    name: str
    incarnation: str


class Drain(Struct, frozen=True):
    """Have it finish what is in flight, within deadline_s, and end."""

    name: str
    incarnation: str
    deadline_s: float


class Terminate(Struct, frozen=True):
    """SIGTERM to its group."""

    name: str
    incarnation: str


class Kill(Struct, frozen=True):
    """SIGKILL to its whole tree."""

    name: str
    incarnation: str


class DumpStacks(Struct, frozen=True):
    """Have it write the stacks of its threads into its log."""

    name: str
    incarnation: str


class Changed(Struct, frozen=True):
    """A service changed its state: tell whoever looks. text: why, where there is a reason."""

    name: str
    state: State
    text: str = ""


class Flip(Struct, frozen=True):
    """From now on this incarnation serves the name, and the one that did goes by another key."""

    name: str
    incarnation: str
    retired: str
    """Key of the one that served before."""


class SwapEnded(Struct, frozen=True):
    """A swap is over. failure: why the old incarnation serves on; empty if the new one serves."""

    name: str
    failure: str = ""


class Up(Struct, frozen=True):
    """All is READY."""


class StartBroke(Struct, frozen=True):
    """The start failed; what was started is being stopped."""

    name: str
    phase: State
    cause: str


class Down(Struct, frozen=True):
    """Nothing runs any more."""


Action = Spawn | Release | Drain | Terminate | Kill | DumpStacks | Changed | Flip | SwapEnded | Up | StartBroke | Down
