"""Decides what is started, restarted and stopped, and when: events in, actions out. No process, socket or clock.

The shell around it (`launcher`) carries the actions out and tells what happened; every event comes with the time. At
each moment a service is in a state that ends by itself, is bounded by a deadline (`next_deadline`), or waits for a
service of which that is true.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from enum import StrEnum

import msgspec

from .lifecycle import SERVING, State, Trigger, next_state
from .reconcile import reconcile
from .recovery import blocker, group_of, pause_s, taken_along, within_budget
from .spawn import new_incarnation
from .standby import retired_key, standby_key
from .supervision import (
    Action,
    Changed,
    Down,
    Drain,
    DumpStacks,
    Event,
    Exited,
    FailureTold,
    Flip,
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
    SwapAsked,
    SwapEnded,
    TableChanged,
    Terminate,
    Tick,
    Up,
)  # fmt: skip
from .table import Restart, Row, Table
from .unit import Unit

STACKS_GRACE_S = 1.0
"""Between the request for the stacks of a stalled service and its SIGKILL."""
DRAIN_GRACE_S = 0.5
"""Between the deadline of a drain, at which a service ends by itself, and the SIGTERM for one that does not."""
KILL_AGAIN_S = 1.0
"""Between one SIGKILL and the next, while no exit is reported."""
UNKILLABLE_S = 60.0
"""After the first SIGKILL, a process that is still there (it hangs in the kernel) is left behind, and named. Generous:
to give back the memory of a large worker takes seconds."""


class Phase(StrEnum):
    """Where the run as a whole is."""

    NEW = "new"
    STARTING = "starting"
    UP = "up"
    STOPPING = "stopping"
    STOPPED = "stopped"


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
            TableChanged: self._apply, SwapAsked: self._swap, Tick: lambda event, now: None,
        }  # fmt: skip

    def handle(self, event: Event, now: float) -> list[Action]:
        """What is to be done about an event. Events of earlier incarnations are no-ops."""
        self._handlers[type(event)](event, now)
        self._due(now)
        self._fail_blocked(now)
        self._go_on_leaving(now)
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
        if self.phase is not Phase.NEW:
            return
        self.phase = Phase.STARTING
        for unit in self.units.values():
            if not unit.row.external:
                self._spawn(unit, now)

    def _spawn(self, unit: Unit, now: float) -> None:
        """Begin an incarnation. Its code is imported while others load; setup waits for its release."""
        unit.take_next_row()
        if unit.row.external:
            return  # somebody will start it
        blocked_by = blocker(self.table, self.units, unit)
        if blocked_by is not None:
            unit.error = _blocked(blocked_by)
            self._move(unit, Trigger.FAIL, unit.error)
            self._quarantine(unit, unit.error, now)
            return
        unit.begin(self._incarnations())
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
        if unit.row.external and not unit.alive:
            if unit.incarnation == event.incarnation or self.phase not in (Phase.STARTING, Phase.UP):
                return  # one that was told to end does not come back
            if unit.state is not State.PENDING:
                self._move(unit, Trigger.RESET)
            unit.begin(event.incarnation)
        if unit.incarnation != event.incarnation or unit.state not in (State.PENDING, State.SPAWNED, State.CONNECTED):
            return
        self._move(unit, Trigger.HELLO)
        if event.imported:
            unit.imported = True
            unit.ready_by = None  # it waits for others now, whose own deadlines bound that
            self._release_if_due(unit, now)

    def _release_if_due(self, unit: Unit, now: float) -> None:
        if unit.state is not State.CONNECTED or not unit.imported or unit.doomed:
            return
        if all(self.units[name].state is State.READY for name in unit.row.after or ()):
            self._move(unit, Trigger.RELEASE)
            if not unit.row.external:  # a breakpoint in the setup of a service run by hand is no fault
                unit.ready_by = now + unit.row.ready.timeout
                unit.progress_by = now + unit.row.ready.progress_timeout
            self._actions.append(Release(unit.name, unit.incarnation))

    def _release_others(self, now: float) -> None:
        """One more is READY: whoever waited for it alone is released."""
        for other in self.units.values():
            self._release_if_due(other, now)

    def _progress(self, event: ProgressSeen, now: float) -> None:
        unit = self._unit(event.name, event.incarnation)
        if unit is not None and unit.progress_by is not None:
            unit.progress_by = now + unit.row.ready.progress_timeout

    def _ready(self, event: ReadySeen, now: float) -> None:
        unit = self._unit(event.name, event.incarnation)
        if unit is None or unit.state is not State.LOADING or unit.doomed:
            return
        unit.ready_by = unit.progress_by = None
        unit.error = None
        unit.was_ready = True
        self._move(unit, Trigger.READY)
        if unit.becomes is not None:
            self._flip(unit, unit.becomes)
        elif unit.fallback is not None:
            unit.fallback = None
            self._actions.append(SwapEnded(unit.name))
        self._release_others(now)
        if self.phase is Phase.STARTING and all(self.units[row.name].state in SERVING for row in self.table.rows):
            self.phase = Phase.UP
            self._actions.append(Up())

    # Life and death

    def _failure_told(self, event: FailureTold, now: float) -> None:
        unit = self._unit(event.name, event.incarnation)
        if unit is None or not unit.alive:
            return
        unit.told = event.error
        if unit.kill_at is None and not unit.row.external:
            # Its exit is due now: a process that hangs in its teardown is not waited for.
            unit.kill_at = now + unit.row.stop.term
        if self._first_start(unit):
            self._break_start(unit, event.error, now)

    def _life(self, event: LifeSeen, now: float) -> None:
        unit = self._unit(event.name, event.incarnation)
        if unit is None or unit.state not in SERVING or unit.doomed:
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
            self._release_others(now)
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
        phase, by_hand = unit.state, unit.row.external
        disorder = self._disorder(unit, how, clean)
        unit.clear_deadlines()
        unit.pid = None
        unit.take_next_row()
        if unit.stopping:
            self._move(unit, Trigger.STOP, disorder)
            if unit.again and self.phase in (Phase.UP, Phase.STARTING):
                self._move(unit, Trigger.RESET)
                self._spawn(unit, now)
            self._go_on_stopping(now)
            return
        if by_hand:
            self._move(unit, Trigger.STOP, f"it ended ({how}); it is run by hand")
            return
        cause = unit.doom or unit.told or (f"it ended by itself ({how})" if clean else how)
        if unit.told is not None and not clean:
            cause = unit.told
        unit.error = cause
        self._move(unit, Trigger.FAIL, cause)
        if self._first_start(unit):
            self._break_start(unit, cause, now, phase)
        elif self.phase in (Phase.STARTING, Phase.UP):
            self._recover(unit, now)
        self._go_on_stopping(now)

    def _disorder(self, unit: Unit, how: str, clean: bool) -> str:
        """How a service that was asked to stop has ended otherwise than in order; empty if in order."""
        if self._force or clean or (unit.told is None and unit.killed_at is None and how.endswith("SIGTERM")):
            return ""
        if self.cause is not None and self.cause.name == unit.name:
            return ""  # it is stopped because it failed, which was said
        if unit.killed_at is not None and unit.told is None:
            return f"it had to be killed: it did not end within stop.drain and stop.term ({how})"
        return f"it failed while it was stopping: {unit.told or how}"

    def _first_start(self, unit: Unit) -> bool:
        """Whether a failure of it is a failure of the start of the run. One that was READY is restarted also then:
        who comes after it waits."""
        return self.phase is Phase.STARTING and not unit.was_ready

    def _recover(self, unit: Unit, now: float) -> None:
        """Restart what failed and what its strategy takes along, or quarantine it."""
        if unit.fallback is not None and unit.row is not unit.fallback:
            self._fall_back(unit, now)
            return
        policy = unit.row.restart
        allowed = within_budget(unit.failures, policy, now)
        blocked_by = blocker(self.table, self.units, unit)
        if blocked_by is not None:
            self._quarantine(unit, _blocked(blocked_by), now)
        elif not allowed:
            count = len(unit.failures)
            self._quarantine(unit, f"{count} failures within {policy.period:g} s; the last: {unit.error}", now)
        else:
            pause = pause_s(len(unit.failures), policy, self._jitter())
            unit.restart_at = now + pause
            self._move(unit, Trigger.WAIT, f"restart in {pause:.1f} s")
            for name in taken_along(self.table, unit):
                if self.units[name].alive:
                    self.units[name].restarts += 1
                    self._stop_unit(self.units[name], now, again=True, drain=False)

    def _quarantine(self, unit: Unit, why: str, now: float) -> None:
        unit.restart_at = None
        self._move(unit, Trigger.GIVE_UP, why)
        if self.phase is Phase.STARTING:
            self._break_start(unit, why, now)

    def _fail_blocked(self, now: float) -> None:
        """Who waits for a service that is quarantined fails at once, and its group dies with it. Those that serve
        already go on: whether they can do without it is for them to say."""
        # Each one that is quarantined may block others. While the run starts, a quarantine ends the start.
        while self.phase is Phase.UP:
            unit = next((unit for unit in self.units.values() if self._is_blocked(unit)), None)
            if unit is None:
                return
            by = blocker(self.table, self.units, unit)
            assert by is not None
            unit.error = _blocked(by)
            if unit.alive:
                unit.clear_deadlines()
                unit.stopping = unit.again = False
                self._doom(unit, unit.error, now)
                self._kill(unit, now)
            else:
                self._quarantine(unit, unit.error, now)

    def _is_blocked(self, unit: Unit) -> bool:
        """Whether it cannot go on, for want of a service that is quarantined."""
        waits = unit.state in (State.SPAWNED, State.CONNECTED, State.BACKOFF)
        if unit.row.external or unit.doom is not None or not (waits or unit.alive):
            return False
        by = blocker(self.table, self.units, unit)
        return by is not None and (waits or by.name in group_of(self.table, unit))

    def _restart(self, event: RestartAsked, now: float) -> None:
        """What an operator asks for is no failure. A group is restarted as one."""
        asked = self.units.get(event.name)
        if asked is None or self.phase is not Phase.UP:
            return
        units = [self.units[name] for name in [*group_of(self.table, asked), asked.name]]
        for unit in units:
            if not unit.alive and unit.state is not State.PENDING:
                unit.failures.clear()
                unit.clear_deadlines()
                self._move(unit, Trigger.RESET)
        for unit in units:
            unit.restarts += 1
            if unit.alive:
                self._stop_unit(unit, now, again=True, drain=True)
            elif not unit.row.external:
                self._spawn(unit, now)

    # Swap

    def _swap(self, event: SwapAsked, now: float) -> None:
        """Have another incarnation stand by, or, stop_first, take the place of one that is stopped for it."""
        unit = self.units.get(event.name)
        if unit is None or self.phase is not Phase.UP or self.swapping(event.name):
            return
        if event.stop_first:
            unit.fallback, unit.next_row = unit.row, event.row
            self._replace_row(event.row)
            unit.failures.clear()
            self._begin_anew(unit, now)
            return
        # Its first failure is its last: the one that serves is better than any number of attempts.
        key, once = standby_key(event.name), Restart(intensity=0)
        row = msgspec.structs.replace(event.row, name=key, restart=once, after=unit.row.after)
        candidate = self.units[key] = Unit(row)
        candidate.becomes = event.row
        self._spawn(candidate, now)

    def swapping(self, name: str) -> bool:
        """Whether a swap of it is under way."""
        unit = self.units.get(name)
        return standby_key(name) in self.units or (unit is not None and unit.fallback is not None)

    def _flip(self, unit: Unit, row: Row) -> None:
        """The candidate is READY: it takes the name, and the one that served it leaves."""
        old = self.units[row.name]
        del self.units[unit.name]
        unit.row, unit.becomes, unit.restarts = row, None, old.restarts
        retired = retired_key(row.name, old.incarnation)
        old.row = msgspec.structs.replace(old.row, name=retired)
        old.leaving, old.again, old.next_row, old.restart_at = True, False, None, None
        self.units = {key: unit if key == row.name else other for key, other in self.units.items()}
        self.units[retired] = old
        self._replace_row(row)
        self._actions += [Flip(row.name, unit.incarnation, retired), SwapEnded(row.name)]

    def _replace_row(self, row: Row) -> None:
        rows = tuple(row if other.name == row.name else other for other in self.table.rows)
        self.table = msgspec.structs.replace(self.table, rows=rows)

    def _drop_failed_candidate(self, unit: Unit) -> None:
        assert unit.becomes is not None
        del self.units[unit.name]
        self._actions.append(SwapEnded(unit.becomes.name, unit.error or "it was stopped"))

    def _fall_back(self, unit: Unit, now: float) -> None:
        """What took its place after a stop did not become READY: start what was there before."""
        assert unit.fallback is not None
        unit.row, unit.fallback, unit.next_row = unit.fallback, None, None
        self._replace_row(unit.row)
        self._actions.append(SwapEnded(unit.name, unit.error or "it failed"))
        self._move(unit, Trigger.WAIT, "what was there before is started again")
        unit.restart_at = now

    # Another table

    def _apply(self, event: TableChanged, now: float) -> None:
        """Start, stop and restart what differs, and nothing else."""
        if self.phase is not Phase.UP:
            return
        steps = reconcile(self.table, event.table)
        kinds = {step.name: step.kind for step in steps}
        before, self.table = self.units, event.table
        self.units = {row.name: before.pop(row.name) if row.name in before else Unit(row) for row in self.table.rows}
        for unit in before.values():  # those of the old table alone; and those run by hand beside it, which stay
            unit.leaving = unit.leaving or kinds.get(unit.name) == "stop"
            if unit.leaving:
                unit.again, unit.next_row, unit.restart_at = False, None, None
        self.units.update(before)
        for row in self.table.rows:
            unit, kind = self.units[row.name], kinds.get(row.name)
            anew = kind == "restart" or unit.leaving
            unit.leaving = False
            if anew and unit.alive:
                unit.next_row = row  # until then it is stopped as what it was started as
            else:
                unit.row, unit.next_row = row, None
            if anew:
                unit.failures.clear()
                self._begin_anew(unit, now)
            elif kind == "start":
                self._spawn(unit, now)
            elif kind == "update":
                unit.failures.clear()  # they were counted against another budget
        self._release_others(now)

    def _begin_anew(self, unit: Unit, now: float) -> None:
        if unit.alive:
            unit.restarts += 1
            self._stop_unit(unit, now, again=True, drain=True)
        if not unit.alive:  # also one that was run by hand, which is only told to end
            unit.clear_deadlines()
            if unit.state is not State.PENDING:
                self._move(unit, Trigger.RESET)
            self._spawn(unit, now)

    def _go_on_leaving(self, now: float) -> None:
        """Stop each service that is leaving once those that came after it, and leave too, have stopped."""
        over = (State.QUARANTINED, State.STOPPED, State.FAILED)
        for unit in [u for u in self.units.values() if u.becomes is not None and u.state in over]:
            self._drop_failed_candidate(unit)
        leaving = [unit for unit in self.units.values() if unit.leaving]
        for unit in leaving:
            if not unit.alive:
                del self.units[unit.name]
                if unit.state is not State.STOPPED:
                    self._move(unit, Trigger.STOP)
            elif not any(other.alive and unit.name in (other.row.after or ()) for other in leaving):
                self._stop_unit(unit, now, again=False, drain=True)

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
            elif self._force and not unit.row.external:
                unit.clear_deadlines()
                unit.stopping = True
                unit.kill_at = now
        self._go_on_stopping(now)

    def _go_on_stopping(self, now: float) -> None:
        """Stop each service whose dependents have stopped; when none is left, the run is down."""
        if self.phase is not Phase.STOPPING:
            return
        for unit in reversed(self.units.values()):  # dependents first: one run by hand is let go of at once
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
        if unit.state in (State.SPAWNED, State.CONNECTED):
            # It imports, and has nothing to give back: in the middle of a large library it would hear a SIGTERM late.
            unit.kill_at = now
            return
        unit.term_at = now
        if unit.state in SERVING:
            self._move(unit, Trigger.DRAIN)  # also without a drain: no new calls are sent to it
            if drain and stop.drain > 0:
                self._actions.append(Drain(unit.name, unit.incarnation, stop.drain))
                unit.term_at = now + stop.drain + DRAIN_GRACE_S

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
                self._kill(unit, now)

    def _kill(self, unit: Unit, now: float) -> None:
        if unit.killed_at is None:
            unit.killed_at = now
        if now < unit.killed_at + UNKILLABLE_S:
            # Once more after a while: a signal that was lost must not leave the run waiting.
            unit.kill_at = now + KILL_AGAIN_S
            self._actions.append(Kill(unit.name, unit.incarnation))
        else:
            self._leave_behind(unit, now)

    def _leave_behind(self, unit: Unit, now: float) -> None:
        """SIGKILL does not end it. It is not started again: two of it would hold the same memory and devices."""
        unit.error = f"pid {unit.pid} is left behind: it is still there {UNKILLABLE_S:g} s after its SIGKILL"
        unit.clear_deadlines()
        self._move(unit, Trigger.FAIL, unit.error)
        if self.phase is Phase.UP:
            self._quarantine(unit, unit.error, now)
        self._go_on_stopping(now)

    def _late(self, unit: Unit, cause: str, now: float) -> None:
        self._actions.append(DumpStacks(unit.name, unit.incarnation))
        self._doom(unit, cause, now, grace=STACKS_GRACE_S)
        if self._first_start(unit):
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


def _blocked(by: Unit) -> str:
    return f"{by.name}, which it needs, is quarantined: {by.error}"
