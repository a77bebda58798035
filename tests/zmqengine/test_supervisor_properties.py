"""Whatever the processes of a run do, in whatever order: what the supervisor holds at each moment and in the end."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from zmqengine.lifecycle import SERVING, State
from zmqengine.supervision import (
    Action,
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
    TableChanged,
    Terminate,
    Tick,
    Up,
)
from zmqengine.supervisor import Phase, Supervisor
from zmqengine.table import Live, Ready, Restart, Row, Stop, Table
from zmqengine.unit import Unit

NAMES = "abcde"
SETTLED = SERVING | {State.STOPPED, State.FAILED, State.QUARANTINED}


@dataclass
class Process:
    """A process of the imagined machine."""

    incarnation: str
    alive: bool = True
    released: bool = False
    by_hand: bool = False
    signals: list[str] = field(default_factory=list)


class World:
    """Carries out what a supervisor decides on imagined processes, and checks each decision as it is taken."""

    def __init__(self, rows: list[Row]) -> None:
        counter = itertools.count(1)
        self.supervisor = Supervisor(Table.of("t", rows), incarnations=lambda: f"i{next(counter)}", jitter=lambda: 0.5)
        self.now = 0.0
        self.processes: dict[str, Process] = {}
        self.ended: list[tuple[str, str]] = []
        self.actions: list[Action] = []
        self.ending = False

    def unit(self, name: str) -> Unit:
        return self.supervisor.units[name]

    def feed(self, event: Event) -> None:
        for action in self.supervisor.handle(event, self.now):
            self.actions.append(action)
            self.do(action)
        self.check()

    def do(self, action: Action) -> None:
        if isinstance(action, Spawn):
            old = self.processes.get(action.name)
            let_go = old is not None and old.by_hand and bool(old.signals)
            assert old is None or not old.alive or let_go, "a second process of one name"
            assert not self.ending, "it starts a process while the run stops"
            self.processes[action.name] = Process(action.incarnation)
        elif isinstance(action, (Release, Drain, Terminate, Kill, DumpStacks)):
            self.signal(action)
        elif isinstance(action, StartBroke):
            self.ending = True
        elif isinstance(action, Up):
            assert not self.ending
        elif isinstance(action, Down):
            assert not any(p.alive for p in self.processes.values() if not p.by_hand)

    def signal(self, action: Release | Drain | Terminate | Kill | DumpStacks) -> None:
        process = self.processes[action.name]
        assert process.incarnation == action.incarnation, f"{action} is for an earlier incarnation"
        assert process.alive, f"{action} is for a process that has ended"
        unit = self.unit(action.name)
        if isinstance(action, Release):
            assert not process.released, "it is released once"
            process.released = True
            for name in unit.row.after or ():
                assert self.unit(name).state is State.READY, f"released before {name} is READY"
            return
        assert not unit.row.external or isinstance(action, Drain), "what somebody runs by hand is not killed"
        if isinstance(action, (Drain, Terminate)) and self.supervisor.phase is Phase.STOPPING and not process.signals:
            for name in self.supervisor.table.dependents(action.name):
                assert not self.unit(name).alive, f"{action.name} is stopped before {name}, which comes after it"
        process.signals.append(type(action).__name__)

    def check(self) -> None:
        for unit in self.supervisor.units.values():
            assert self.has_end(unit, frozenset()), f"{unit.name} is {unit.state} for ever"
            assert len(unit.failures) <= unit.row.restart.intensity + 1
            process = self.processes.get(unit.name)
            if process is not None and process.alive and not process.by_hand:
                assert unit.alive, f"{unit.name} is {unit.state} while its process runs"

    def has_end(self, unit: Unit, seen: frozenset[str]) -> bool:
        """Whether it is settled, has a deadline, or waits for one of which that is true."""
        if unit.name in seen:
            return False
        if unit.row.external or unit.deadlines():
            return True
        if self.supervisor.phase is Phase.STOPPING and unit.alive:
            waits = [self.unit(n) for n in self.supervisor.table.dependents(unit.name) if self.unit(n).alive]
            return any(self.has_end(other, seen | {unit.name}) for other in waits)
        if unit.state is State.CONNECTED and unit.imported:
            waits = [self.unit(n) for n in unit.row.after or () if self.unit(n).state is not State.READY]
            blocked = any(w.state is State.QUARANTINED for w in waits)
            return bool(waits) and not blocked and all(self.has_end(other, seen | {unit.name}) for other in waits)
        return unit.state in SETTLED or self.supervisor.phase is Phase.NEW

    # What may happen

    def exits(self, name: str, how: str = "exit code 1", clean: bool = False) -> None:
        process = self.processes[name]
        process.alive = False
        self.ended.append((name, process.incarnation))
        self.feed(Exited(name, process.incarnation, how, clean))

    def hello_by_hand(self, name: str, incarnation: str) -> None:
        self.processes[name] = Process(incarnation, by_hand=True)
        self.feed(HelloReceived(name, incarnation, True))

    def happens(self, what: str, name: str, seconds: float) -> None:
        process = self.processes.get(name)
        alive = process is not None and process.alive
        inc = process.incarnation if process is not None else "none"
        by_hand = self.unit(name).row.external
        if what == "wait":
            self.now += seconds
            self.feed(Tick())
        elif what == "restart":
            self.feed(RestartAsked(name))
        elif what == "stale" and self.ended:
            self.feed_stale(*self.ended[int(seconds) % len(self.ended)])
        elif by_hand and not alive:
            if what == "imported" and not self.ending:
                self.hello_by_hand(name, f"{inc}+")
        elif alive:
            self.process_does(what, name, inc)

    def process_does(self, what: str, name: str, inc: str) -> None:
        events: dict[str, Event] = {
            "spawned": Spawned(name, inc, 1), "hello": HelloReceived(name, inc, False),
            "imported": HelloReceived(name, inc, True), "progress": ProgressSeen(name, inc, "x"),
            "fail": FailureTold(name, inc, "x"), "miss": LifeSeen(name, inc, False),
            "life": LifeSeen(name, inc, True), "stall": LifeSeen(name, inc, True, 1000.0),
        }  # fmt: skip
        process = self.processes[name]
        if what in ("exit", "clean"):
            self.exits(name, clean=what == "clean")
        elif what == "unspawnable" and not process.released and not self.unit(name).row.external:
            process.alive = False
            self.feed(SpawnFailed(name, inc, "no such program"))
        elif what == "ready":
            if process.released:
                self.feed(ReadySeen(name, inc))
        elif what in events:
            self.feed(events[what])

    def feed_stale(self, name: str, inc: str) -> None:
        """News of an incarnation that has ended come late."""
        before = len(self.actions), self.unit(name).state
        events: list[Event] = [
            Exited(name, inc, "x", False), SpawnFailed(name, inc, "x"), ReadySeen(name, inc),
            FailureTold(name, inc, "x"), LifeSeen(name, inc, False), ProgressSeen(name, inc, "x"),
        ]  # fmt: skip
        if not self.unit(name).row.external or self.unit(name).incarnation == inc:
            # Any other incarnation of a service run by hand is news: the broker looks whether its process lives.
            events.append(HelloReceived(name, inc, True))
        for event in events:
            due = self.supervisor.next_deadline()
            if due is None or due > self.now:
                self.feed(event)
        assert (len(self.actions), self.unit(name).state) == before, "news of an earlier incarnation changed something"

    # How it ends

    def cooperate(self, obey: str) -> None:
        """From now on each process does what it is asked, and time passes, until nothing is due.

        obey: the gentlest signal at which a process ends.
        """
        for _ in range(3000):
            if not (self.someone_acts(obey) or self.time_passes()):
                return
        raise AssertionError("the run does not come to rest")

    def someone_acts(self, obey: str) -> bool:
        ends = {"drain": {"Drain", "Terminate", "Kill"}, "term": {"Terminate", "Kill"}, "kill": {"Kill"}}[obey]
        for name, process in list(self.processes.items()):
            if not process.alive:
                continue
            unit = self.supervisor.units.get(name)
            if unit is None:  # one run by hand, told to end, whose row is gone
                assert process.by_hand
                process.alive = False
                continue
            if ends & set(process.signals) or (unit.row.external and process.signals):
                self.exits(name, "SIGTERM")
            elif unit.state in (State.SPAWNED, State.CONNECTED) and not unit.imported:
                self.feed(HelloReceived(name, process.incarnation, True))
            elif unit.state is State.LOADING and not unit.doomed:
                self.feed(ReadySeen(name, process.incarnation))
            elif unit.state is State.DEGRADED and not unit.doomed:
                self.feed(LifeSeen(name, process.incarnation, True))
            else:
                continue
            return True
        return False

    def time_passes(self) -> bool:
        due = self.supervisor.next_deadline()
        if due is None:
            return False
        self.now = max(self.now, due)
        self.feed(Tick())
        return True


@st.composite
def tables(draw: st.DrawFn) -> list[Row]:
    """Rows in any order of dependence, some in a group, at most one run by hand."""
    count = draw(st.integers(1, len(NAMES)))
    by_hand = draw(st.sampled_from([None, *NAMES[:count]]))
    rows = []
    for index, name in enumerate(NAMES[:count]):
        after = draw(st.lists(st.sampled_from(NAMES[:index]), unique=True, max_size=2)) if index else []
        strategy = draw(st.sampled_from(["one_for_one", "one_for_one", "rest_for_one", "one_for_all"]))
        restart = Restart(
            strategy=strategy, intensity=draw(st.integers(0, 2)), period=60.0, backoff=(0.1, 5.0),
            group=draw(st.sampled_from(["", "", "g"])),
        )  # fmt: skip
        kind: dict[str, object] = {"external": True} if name == by_hand else {"impl": "m:C"}
        rows.append(
            Row(
                name=name, after=after, restart=restart, ready=Ready(timeout=9, progress_timeout=4),
                stop=Stop(drain=draw(st.sampled_from([0.0, 2.0])), term=1.0), live=Live(misses=2), **kind,  # type: ignore[arg-type]
            )
        )  # fmt: skip
    return rows


STEPS = st.tuples(
    st.sampled_from(
        ["spawned", "hello", "imported", "imported", "ready", "ready", "ready", "progress", "exit", "clean", "fail",
         "unspawnable", "miss", "life", "stall", "restart", "wait", "stale"]
    ),
    st.integers(0, len(NAMES) - 1),
    st.floats(0, 12),
)  # fmt: skip


def run_script(rows: list[Row], up_first: bool, script: list[tuple[str, int, float]]) -> World:
    world = World(rows)
    world.feed(StartAsked())
    if up_first:
        for row in world.supervisor.table.rows:
            if row.external:
                world.hello_by_hand(row.name, "hand")
        world.cooperate("term")
        assert world.supervisor.phase is Phase.UP
    for what, index, seconds in script:
        world.happens(what, NAMES[index % len(rows)], seconds)
    return world


@settings(max_examples=400, deadline=None)
@given(tables(), st.booleans(), st.lists(STEPS, max_size=50), st.sampled_from(["drain", "term", "kill"]))
def test_every_service_comes_to_rest_and_a_stop_leaves_nothing(
    rows: list[Row], up_first: bool, script: list[tuple[str, int, float]], obey: str
) -> None:
    world = run_script(rows, up_first, script)
    world.cooperate(obey)
    waits_for_hand = any(row.external and world.unit(row.name).state not in SERVING for row in rows)
    for unit in world.supervisor.units.values():
        assert unit.state in SETTLED or waits_for_hand, f"{unit.name} ended in {unit.state}"
    world.ending = True
    world.feed(StopAsked("end"))
    world.cooperate(obey)
    assert world.supervisor.phase is Phase.STOPPED
    assert sum(isinstance(action, Down) for action in world.actions) == 1
    assert world.supervisor.next_deadline() is None


@settings(max_examples=150, deadline=None)
@given(tables(), st.booleans(), st.lists(STEPS, max_size=30), st.lists(STEPS, max_size=10))
def test_a_forced_stop_kills_all_at_once_also_in_the_middle_of_a_stop(
    rows: list[Row], up_first: bool, script: list[tuple[str, int, float]], meanwhile: list[tuple[str, int, float]]
) -> None:
    world = run_script(rows, up_first, script)
    world.ending = True
    world.feed(StopAsked("asked"))
    for what, index, seconds in meanwhile:
        world.happens(what, NAMES[index % len(rows)], seconds)
    world.feed(StopAsked("again", force=True))
    for name, process in world.processes.items():
        if process.alive and not world.unit(name).row.external:
            assert "Kill" in process.signals
    world.cooperate("kill")
    assert world.supervisor.phase is Phase.STOPPED


@settings(max_examples=150, deadline=None)
@given(tables(), st.lists(STEPS, max_size=40))
def test_the_start_fails_once_and_only_for_a_reason_that_it_names(
    rows: list[Row], script: list[tuple[str, int, float]]
) -> None:
    world = run_script(rows, False, script)
    broke = [action for action in world.actions if isinstance(action, StartBroke)]
    assert len(broke) <= 1
    if broke:
        assert broke[0].cause
        assert world.supervisor.phase in (Phase.STOPPING, Phase.STOPPED)
        assert not any(isinstance(action, Up) for action in world.actions)


@settings(max_examples=100, deadline=None)
@given(tables(), st.lists(STEPS, max_size=40))
def test_a_process_that_no_signal_ends_is_left_behind_and_holds_up_nobody(
    rows: list[Row], script: list[tuple[str, int, float]]
) -> None:
    world = run_script(rows, True, script)
    world.check = lambda: None  # type: ignore[method-assign]  # its processes are alive to the end
    world.ending = True
    before = world.now
    world.do = lambda action: None  # type: ignore[method-assign]
    world.feed(StopAsked("end", force=True))
    while world.supervisor.phase is not Phase.STOPPED:
        assert world.time_passes(), "nothing is due, and it is not down"
    assert world.now - before < 200


@settings(max_examples=300, deadline=None)
@given(tables(), tables(), st.lists(STEPS, max_size=30), st.sampled_from(["drain", "term", "kill"]))
def test_a_run_becomes_what_another_table_says(
    rows: list[Row], other: list[Row], script: list[tuple[str, int, float]], obey: str
) -> None:
    world = run_script(rows, True, script)
    if world.supervisor.phase is not Phase.UP:
        return
    table = Table.of("t", other)
    before = {row.name: row for row in world.supervisor.table.rows}
    same = {
        row.name: world.processes[row.name].incarnation
        for row in table.rows
        if before.get(row.name) == row and world.unit(row.name).state is State.READY
        and not world.unit(row.name).restart_at
    }  # fmt: skip
    world.feed(TableChanged(table))
    world.cooperate(obey)
    assert list(world.supervisor.units)[: len(other)] == [row.name for row in table.rows]
    assert set(world.supervisor.units) == {row.name for row in table.rows}, "what is not in the table is gone"
    for row in table.rows:
        unit = world.unit(row.name)
        assert unit.row == row
        assert unit.next_row is None
        process = world.processes.get(row.name)
        if row.name in same and unit.restarts == 0 and not unit.failures and process is not None:
            assert process.incarnation == same[row.name], "what did not change was restarted"
        if not row.external:
            assert unit.state in SETTLED or any(u.row.external for u in world.supervisor.units.values())
    world.ending = True
    world.feed(StopAsked("end"))
    world.cooperate(obey)
    assert world.supervisor.phase is Phase.STOPPED
    assert not any(process.alive for process in world.processes.values())
