"""Decides what is started, restarted and stopped, and when: events in, actions out. No process, socket or clock.

The shell around it (`launcher`) carries the actions out and tells what happened; every event comes with the time. At
each moment a service is in a state that ends by itself, is bounded by a deadline (`next_deadline`), or waits for a
service of which that is true.
"""

from __future__ import annotations

import collections
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from .lifecycle import ALIVE, SERVING, State, Trigger, next_state
from .spawn import new_incarnation
from .supervision import (
    Action,
    Changed,
    Down,
    Drain,
    DumpStacks,
    Event,
    Exited,
    FailureTold,
    HelloReceived,
    Kill,
    LifeSeen,
    ProgressSeen,
    ReadySeen,
    Release,
    RestartAsked,
    Spawn,
    Spawned,
    SpawnFailed,
    StartAsked,
    StartBroke,
    StopAsked,
    Terminate,
    Tick,
    Up,
)  # fmt: skip
from .table import Row, Table

STACKS_GRACE_S = 1.0
"""Between the request for the stacks of a stalled service and its SIGKILL."""


class Phase(StrEnum):
    """Where the run as a whole is."""

    NEW = "new"
    STARTING = "starting"
    UP = "up"
    STOPPING = "stopping"
    STOPPED = "stopped"


@dataclass(slots=True)
class Unit:
    """One service, over all its incarnations."""

    row: Row
    state: State = State.PENDING
    incarnation: str = ""
    pid: int | None = None
    imported: bool = False
    restarts: int = 0
    error: str | None = None
    """Why it failed last."""
    told: str | None = None
    """What it said itself about its failure."""
    doom: str | None = None
    """Why it is being killed; its exit is a failure for this cause."""
    stopping: bool = False
    """Its end is wanted."""
    again: bool = False
    """It is to be started again once it has ended."""
    misses: int = 0
    failures: collections.deque[float] = field(default_factory=collections.deque)
    ready_by: float | None = None
    progress_by: float | None = None
    term_at: float | None = None
    kill_at: float | None = None
    restart_at: float | None = None

    @property
    def name(self) -> str:
        return self.row.name

    @property
    def alive(self) -> bool:
        """Whether it has a process."""
        return self.state in ALIVE

    def deadlines(self) -> list[float]:
        """When something is due without news."""
        dues = (self.ready_by, self.progress_by, self.term_at, self.kill_at, self.restart_at)
        return [due for due in dues if due is not None]

    def clear_deadlines(self) -> None:
        self.ready_by = self.progress_by = self.term_at = self.kill_at = self.restart_at = None


class Supervisor:
    """The decisions of one run."""

    def __init__(
        self,
        table: Table,
        *,
        incarnations: Callable[[], str] = new_incarnation,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """jitter: a number in [0, 1) for each backoff."""
        self.table = table
        self.phase = Phase.NEW
        self.units = {row.name: Unit(row) for row in table.rows}
        self.cause: StartBroke | None = None
        self._incarnations = incarnations
        self._jitter = jitter
        self._force = False
        self._actions: list[Action] = []
        self._handlers: dict[type, Callable[..., None]] = {
            StartAsked: self._start, StopAsked: self._stop, RestartAsked: self._restart, Spawned: self._spawned,
            SpawnFailed: self._spawn_failed, HelloReceived: self._hello, ProgressSeen: self._progress,
            ReadySeen: self._ready, FailureTold: self._failure_told, LifeSeen: self._life, Exited: self._exited,
            Tick: lambda event, now: None,
        }  # fmt: skip

    def handle(self, event: Event, now: float) -> list[Action]:
        """What is to be done about an event. Events of earlier incarnations are no-ops."""
        self._handlers[type(event)](event, now)
        self._due(now)
        actions, self._actions = self._actions, []
        return actions

    def next_deadline(self) -> float | None:
        """When a Tick is due without news."""
        return min((due for unit in self.units.values() for due in unit.deadlines()), default=None)

    def admit(self, row: Row) -> None:
        """A service that is run by hand joins, beside the table's rows."""
        self.units[row.name] = Unit(row)

    # Starting

    def _start(self, event: StartAsked, now: float) -> None:
        self.phase = Phase.STARTING
        for unit in self.units.values():
            if not unit.row.external:
                self._spawn(unit, now)

    def _spawn(self, unit: Unit, now: float) -> None:
        """Begin an incarnation. Its code is imported while others load; setup waits for its release."""
        unit.clear_deadlines()
        unit.incarnation = self._incarnations()
        unit.pid, unit.imported, unit.told, unit.doom = None, False, None, None
        unit.stopping = unit.again = False
        unit.misses = 0
        unit.ready_by = now + unit.row.ready.timeout
        self._move(unit, Trigger.SPAWN)
        self._actions.append(Spawn(unit.name, unit.incarnation))

    def _spawned(self, event: Spawned, now: float) -> None:
        unit = self._unit(event.name, event.incarnation)
        if unit is not None:
            unit.pid = event.pid

    def _spawn_failed(self, event: SpawnFailed, now: float) -> None:
        unit = self._unit(event.name, event.incarnation)
        if unit is not None and unit.alive:
            self._ended(unit, event.reason, False, now)

    def _hello(self, event: HelloReceived, now: float) -> None:
        unit = self.units.get(event.name)
        if unit is None:
            return
        if unit.row.external and not unit.alive and self.phase in (Phase.STARTING, Phase.UP):
            if unit.state is not State.PENDING:
                self._move(unit, Trigger.RESET)
            unit.incarnation, unit.imported, unit.misses = event.incarnation, False, 0
            unit.told = unit.doom = None
        if unit.incarnation != event.incarnation or unit.state not in (State.PENDING, State.SPAWNED, State.CONNECTED):
            return
        self._move(unit, Trigger.HELLO)
        if event.imported:
            unit.imported = True
            unit.ready_by = None  # it waits for others now, whose own deadlines bound that
            self._release_if_due(unit, now)

    def _release_if_due(self, unit: Unit, now: float) -> None:
        if unit.state is not State.CONNECTED or not unit.imported or unit.stopping:
            return
        if all(self.units[name].state in SERVING for name in unit.row.after or ()):
            self._move(unit, Trigger.RELEASE)
            unit.ready_by = now + unit.row.ready.timeout
            unit.progress_by = now + unit.row.ready.progress_timeout
            self._actions.append(Release(unit.name, unit.incarnation))

    def _progress(self, event: ProgressSeen, now: float) -> None:
        unit = self._unit(event.name, event.incarnation)
        if unit is not None and unit.state is State.LOADING:
            unit.progress_by = now + unit.row.ready.progress_timeout

    def _ready(self, event: ReadySeen, now: float) -> None:
        unit = self._unit(event.name, event.incarnation)
        if unit is None or unit.state is not State.LOADING:
            return
        unit.ready_by = unit.progress_by = None
        unit.error = None
        self._move(unit, Trigger.READY)
        for other in self.units.values():
            self._release_if_due(other, now)
        if self.phase is Phase.STARTING and all(self.units[row.name].state in SERVING for row in self.table.rows):
            self.phase = Phase.UP
            self._actions.append(Up())

    # Life and death

    def _failure_told(self, event: FailureTold, now: float) -> None:
        unit = self._unit(event.name, event.incarnation)
        if unit is None or not unit.alive:
            return
        unit.told = event.error
        if unit.kill_at is None:  # its exit is due now: a process that hangs in its teardown is not waited for
            unit.kill_at = now + unit.row.stop.term
        if self.phase is Phase.STARTING:
            self._break_start(unit, event.error, now)

    def _life(self, event: LifeSeen, now: float) -> None:
        unit = self._unit(event.name, event.incarnation)
        if unit is None or unit.state not in SERVING or unit.doom is not None:
            return
        live = unit.row.live
        if not event.answered:
            unit.misses += 1
            self._move(unit, Trigger.MISS)
            if unit.misses >= live.misses and not unit.row.external:
                self._doom(unit, f"it did not answer {unit.misses} health calls in a row", now)
            return
        unit.misses = 0
        if unit.state is State.DEGRADED:
            self._move(unit, Trigger.ANSWER)
        if unit.row.external:
            return  # somebody has it in a debugger, perhaps: it is shown as it is, and left alone
        if live.stall and event.busy_s is not None and event.busy_s > live.stall and event.busy_allowed_s <= 0:
            self._actions.append(DumpStacks(unit.name, unit.incarnation))
            cause = f"its loop has been in one turn for {event.busy_s:.1f} s (live.stall = {live.stall:g})"
            self._doom(unit, cause, now, grace=STACKS_GRACE_S)

    def _doom(self, unit: Unit, cause: str, now: float, grace: float = 0.0) -> None:
        """It has to be killed, for this cause."""
        unit.doom = cause
        unit.ready_by = unit.progress_by = None
        unit.kill_at = now + grace

    def _exited(self, event: Exited, now: float) -> None:
        unit = self._unit(event.name, event.incarnation)
        if unit is not None and unit.alive:
            self._ended(unit, event.how, event.clean, now)

    def _ended(self, unit: Unit, how: str, clean: bool, now: float) -> None:
        phase = unit.state
        unit.clear_deadlines()
        unit.pid = None
        if unit.stopping:
            self._move(unit, Trigger.STOP)
            if unit.again and self.phase in (Phase.UP, Phase.STARTING):
                self._move(unit, Trigger.RESET)
                self._spawn(unit, now)
            self._go_on_stopping(now)
            return
        if unit.row.external:
            self._move(unit, Trigger.STOP, f"it ended ({how}); it is run by hand")
            return
        cause = unit.doom or unit.told or (f"it ended by itself ({how})" if clean else how)
        if unit.told is not None and not clean:
            cause = unit.told
        unit.error = cause
        self._move(unit, Trigger.FAIL, cause)
        if self.phase is Phase.STARTING:
            self._break_start(unit, cause, now, phase)
        elif self.phase is Phase.UP:
            self._recover(unit, now)
        self._go_on_stopping(now)

    def _recover(self, unit: Unit, now: float) -> None:
        """Restart what failed and what its strategy takes along, or quarantine it."""
        policy = unit.row.restart
        unit.failures.append(now)
        while unit.failures and unit.failures[0] <= now - policy.period:
            unit.failures.popleft()
        if len(unit.failures) > policy.intensity:
            self._move(
                unit,
                Trigger.GIVE_UP,
                f"{len(unit.failures)} failures within {policy.period:g} s; the last: {unit.error}",
            )
            return
        first, longest = policy.backoff
        pause = min(longest, first * 2 ** (len(unit.failures) - 1)) * (0.5 + self._jitter() / 2)
        unit.restart_at = now + pause
        self._move(unit, Trigger.WAIT, f"restart in {pause:.1f} s")
        for name in self._taken_along(unit):
            if self.units[name].alive:
                self.units[name].restarts += 1
                self._stop_unit(self.units[name], now, again=True, drain=False)

    def _taken_along(self, unit: Unit) -> list[str]:
        policy = unit.row.restart
        names = {row.name for row in self.table.rows if policy.group and row.restart.group == policy.group}
        if policy.strategy == "rest_for_one":
            names |= set(self.table.dependents(unit.name))
        elif policy.strategy == "one_for_all":
            names |= set(self.units)
        return [row.name for row in reversed(self.table.rows) if row.name in names and row.name != unit.name]

    def _restart(self, event: RestartAsked, now: float) -> None:
        unit = self.units.get(event.name)
        if unit is None or self.phase is not Phase.UP:
            return
        if unit.alive:
            self._stop_unit(unit, now, again=True, drain=True)
        else:
            unit.failures.clear()
            if unit.state is not State.PENDING:
                self._move(unit, Trigger.RESET)
            if not unit.row.external:
                self._spawn(unit, now)
        unit.restarts += 1

    # Stopping

    def _break_start(self, unit: Unit, cause: str, now: float, phase: State | None = None) -> None:
        """The first failure ends the start: name it, and stop what was started."""
        self.cause = StartBroke(unit.name, phase or unit.state, cause)
        self._actions.append(self.cause)
        self._begin_stop(now, force=False)

    def _stop(self, event: StopAsked, now: float) -> None:
        if self.phase is Phase.STOPPED:
            return
        self._begin_stop(now, event.force)

    def _begin_stop(self, now: float, force: bool) -> None:
        self._force = self._force or force
        self.phase = Phase.STOPPING
        for unit in self.units.values():
            unit.again = False
            if not unit.alive:
                unit.clear_deadlines()
                if unit.state is not State.STOPPED:
                    self._move(unit, Trigger.STOP)
            elif self._force:
                unit.stopping = True
                unit.kill_at = now
        self._go_on_stopping(now)

    def _go_on_stopping(self, now: float) -> None:
        """Stop each service whose dependents have stopped; when none is left, the run is down."""
        if self.phase is not Phase.STOPPING:
            return
        for unit in self.units.values():
            if (
                unit.alive
                and not unit.stopping
                and not any(self.units[name].alive for name in self.table.dependents(unit.name))
            ):
                self._stop_unit(unit, now, again=False, drain=True)
        if not any(unit.alive for unit in self.units.values()):
            self.phase = Phase.STOPPED
            self._actions.append(Down())

    def _stop_unit(self, unit: Unit, now: float, *, again: bool, drain: bool) -> None:
        """Drain (if it serves), then SIGTERM, then SIGKILL. A service run by hand is told to drain, and no more."""
        if not unit.alive:
            return
        unit.again = unit.again or again
        if unit.stopping:
            return
        unit.stopping = True
        unit.ready_by = unit.progress_by = None
        stop = unit.row.stop
        if unit.row.external:
            self._actions.append(Drain(unit.name, unit.incarnation, stop.drain))
            self._move(unit, Trigger.STOP, "it is run by hand, and was told to end")
            return
        if unit.state in SERVING and drain and stop.drain > 0:
            self._move(unit, Trigger.DRAIN)
            self._actions.append(Drain(unit.name, unit.incarnation, stop.drain))
            # The service ends by itself at the deadline; the SIGTERM behind it is for one that does not.
            unit.term_at = now + stop.drain + 0.5
        else:
            unit.term_at = now

    # Time

    def _due(self, now: float) -> None:
        for unit in reversed(self.units.values()):  # what is stopped together is stopped in reverse order
            if unit.restart_at is not None and unit.restart_at <= now and unit.state is State.BACKOFF:
                unit.restarts += 1
                self._move(unit, Trigger.RESET)
                self._spawn(unit, now)
            if unit.ready_by is not None and unit.ready_by <= now:
                waited = (
                    "did not say HELLO with its code imported" if unit.state is not State.LOADING else "was not ready"
                )
                self._late(unit, f"it {waited} within ready.timeout = {unit.row.ready.timeout:g} s", now)
            elif unit.progress_by is not None and unit.progress_by <= now:
                limit = unit.row.ready.progress_timeout
                self._late(unit, f"its setup showed no progress for ready.progress_timeout = {limit:g} s", now)
            if unit.term_at is not None and unit.term_at <= now:
                unit.term_at = None
                kill_at = now + unit.row.stop.term
                unit.kill_at = kill_at if unit.kill_at is None else min(unit.kill_at, kill_at)
                self._actions.append(Terminate(unit.name, unit.incarnation))
            if unit.kill_at is not None and unit.kill_at <= now:
                # Once more after a while: an exit that is not reported must not leave the run waiting for ever.
                unit.kill_at = now + 1.0
                self._actions.append(Kill(unit.name, unit.incarnation))

    def _late(self, unit: Unit, cause: str, now: float) -> None:
        self._actions.append(DumpStacks(unit.name, unit.incarnation))
        self._doom(unit, cause, now, grace=STACKS_GRACE_S)
        if self.phase is Phase.STARTING:
            self._break_start(unit, cause, now)

    # Small parts

    def _unit(self, name: str, incarnation: str) -> Unit | None:
        unit = self.units.get(name)
        return unit if unit is not None and unit.incarnation == incarnation else None

    def _move(self, unit: Unit, trigger: Trigger, text: str = "") -> None:
        state = next_state(unit.state, trigger)
        if state is not unit.state:
            unit.state = state
            self._actions.append(Changed(unit.name, state, text))
