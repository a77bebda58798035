"""The supervisor decides with no process, socket or clock: events in, actions out."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zmqengine.lifecycle import ALIVE, SERVING, State
from zmqengine.supervision import (
    Changed,
    Down,
    Drain,
    DumpStacks,
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
)
from zmqengine.supervisor import Phase, Supervisor
from zmqengine.table import Live, Ready, Restart, Row, Stop, Table


class Driver:
    """Feeds a supervisor, and keeps what it decided."""

    def __init__(self, *rows: Row, start: bool = True) -> None:
        counter = itertools.count(1)
        self.supervisor = Supervisor(
            Table.of("t", rows), incarnations=lambda: f"i{next(counter)}", jitter=lambda: 0.999999
        )
        self.now = 0.0
        self.actions: list[object] = []
        if start:
            self.feed(StartAsked())

    def feed(self, event: object) -> list[object]:
        new = self.supervisor.handle(event, self.now)
        self.actions += new
        return new

    def advance(self, seconds: float) -> list[object]:
        """Let time pass, with a Tick at each deadline on the way."""
        until = self.now + seconds
        new: list[object] = []
        while (due := self.supervisor.next_deadline()) is not None and due <= until:
            self.now = max(self.now, due)
            new += self.feed(Tick())
        self.now = until
        return new

    def incarnation(self, name: str) -> str:
        return self.supervisor.units[name].incarnation

    def state(self, name: str) -> State:
        return self.supervisor.units[name].state

    def imported(self, name: str) -> list[object]:
        return self.feed(HelloReceived(name, self.incarnation(name), True))

    def ready(self, name: str) -> list[object]:
        return self.feed(ReadySeen(name, self.incarnation(name)))

    def exits(self, name: str, how: str = "exit code 1", clean: bool = False) -> list[object]:
        return self.feed(Exited(name, self.incarnation(name), how, clean))

    def bring_up(self) -> None:
        for row in self.supervisor.table.rows:
            self.imported(row.name)
        for row in self.supervisor.table.rows:
            self.ready(row.name)
        assert self.supervisor.phase is Phase.UP


def row(name: str, **fields: object) -> Row:
    return Row(name=name, impl="m:C", **fields)  # type: ignore[arg-type]


def of_kind(actions: list[object], kind: type) -> list:
    return [action for action in actions if isinstance(action, kind)]


def test_all_processes_are_spawned_at_once_and_setup_is_released_in_order() -> None:
    run = Driver(row("a"), row("b"), row("c"))
    assert [a.name for a in of_kind(run.actions, Spawn)] == ["a", "b", "c"]
    run.imported("c")
    run.imported("b")
    assert of_kind(run.actions, Release) == []
    run.imported("a")
    assert [a.name for a in of_kind(run.actions, Release)] == ["a"]
    run.ready("a")
    assert [a.name for a in of_kind(run.actions, Release)] == ["a", "b"]
    run.ready("b")
    run.ready("c")
    assert of_kind(run.actions, Up)


def test_rows_that_do_not_depend_on_each_other_load_side_by_side() -> None:
    run = Driver(row("a"), row("b", after=["a"]), row("c", after=["a"]))
    for name in "abc":
        run.imported(name)
    run.ready("a")
    assert {a.name for a in of_kind(run.actions, Release)} == {"a", "b", "c"}


def test_a_child_that_dies_while_the_system_starts_ends_the_start_and_stops_the_rest_in_reverse() -> None:
    run = Driver(row("a"), row("b"), row("c"))
    run.imported("a")
    run.ready("a")
    new = run.exits("c", "SIGSEGV")
    (broke,) = of_kind(new, StartBroke)
    assert (broke.name, broke.phase, broke.cause) == ("c", State.SPAWNED, "SIGSEGV")
    assert [a.name for a in of_kind(new, Kill)] == ["b"], "it imports; and a is stopped only when b is gone"
    new = run.exits("b")
    assert [a.name for a in of_kind(new, Drain)] == ["a"]
    assert of_kind(run.exits("a", "exit code 0", clean=True), Down)


def test_what_a_service_says_of_its_failure_is_the_cause_and_ends_the_start_before_its_exit() -> None:
    run = Driver(row("a"))
    run.imported("a")
    (broke,) = of_kind(run.feed(FailureTold("a", run.incarnation("a"), "no such model")), StartBroke)
    assert broke.cause == "no such model"


def test_a_service_that_hangs_after_it_said_why_it_fails_is_killed() -> None:
    run = Driver(row("a", stop=Stop(term=2.0)))
    run.imported("a")
    run.feed(FailureTold("a", run.incarnation("a"), "no such model"))
    assert of_kind(run.advance(5.0), Kill)


def test_a_spawn_that_is_impossible_names_the_reason() -> None:
    run = Driver(row("a"))
    (broke,) = of_kind(run.feed(SpawnFailed("a", run.incarnation("a"), "no such file")), StartBroke)
    assert broke.cause == "no such file"
    assert of_kind(run.actions, Down)


@pytest.mark.parametrize("imported", [False, True])
def test_the_total_deadline_is_not_renewed_by_progress(imported: bool) -> None:
    run = Driver(row("a", ready=Ready(timeout=10.0, progress_timeout=4.0)))
    if imported:
        run.imported("a")
    for step in range(3):
        assert not of_kind(run.advance(2.9), StartBroke)
        run.feed(ProgressSeen("a", run.incarnation("a"), f"{step}"))
    (broke,) = of_kind(run.advance(2.9), StartBroke)
    assert "ready.timeout = 10 s" in broke.cause
    assert of_kind(run.actions, DumpStacks)
    assert of_kind(run.advance(3.0), Kill)


def test_a_setup_without_progress_is_late_before_the_total_deadline() -> None:
    run = Driver(row("a", ready=Ready(timeout=100.0, progress_timeout=4.0)))
    run.imported("a")
    (broke,) = of_kind(run.advance(4.1), StartBroke)
    assert "progress_timeout" in broke.cause


def test_waiting_for_another_service_is_not_counted_against_ones_own_deadline() -> None:
    run = Driver(row("a", ready=Ready(timeout=100.0)), row("b", ready=Ready(timeout=5.0)))
    run.imported("a")
    run.imported("b")
    assert not of_kind(run.advance(50.0), StartBroke)


def test_a_crash_after_the_start_is_restarted_after_a_pause_and_its_dependents_are_left_alone() -> None:
    run = Driver(row("a", restart=Restart(backoff=(1.0, 8.0))), row("b"))
    run.bring_up()
    first = run.incarnation("a")
    run.exits("a")
    assert run.state("a") is State.BACKOFF
    assert run.state("b") is State.READY
    assert not of_kind(run.advance(0.4), Spawn)
    assert [a.name for a in of_kind(run.advance(0.7), Spawn)] == ["a"]
    assert run.incarnation("a") != first


def test_exit_code_0_of_a_service_that_should_run_is_a_failure() -> None:
    run = Driver(row("a"))
    run.bring_up()
    run.exits("a", "exit code 0", clean=True)
    assert run.state("a") is State.BACKOFF
    assert "by itself" in (run.supervisor.units["a"].error or "")


def test_too_many_failures_within_the_period_quarantine_it_and_old_ones_are_forgotten() -> None:
    run = Driver(row("a", restart=Restart(intensity=2, period=60.0, backoff=(0.0, 0.0))))
    run.bring_up()

    def crash_and_recover() -> None:
        run.exits("a")
        run.advance(0.1)
        if run.state("a") is State.SPAWNED:
            run.imported("a")
            run.ready("a")

    crash_and_recover()
    crash_and_recover()
    run.advance(61.0)
    crash_and_recover()
    assert run.state("a") is State.READY
    crash_and_recover()
    crash_and_recover()
    assert run.state("a") is State.QUARANTINED
    assert not of_kind(run.advance(1000.0), Spawn)


def test_an_operators_restart_takes_a_service_out_of_quarantine() -> None:
    run = Driver(row("a", restart=Restart(intensity=0)))
    run.bring_up()
    run.exits("a")
    assert run.state("a") is State.QUARANTINED
    assert of_kind(run.feed(RestartAsked("a")), Spawn)


@pytest.mark.parametrize(
    ("strategy", "taken"), [("one_for_one", []), ("rest_for_one", ["c", "b"]), ("one_for_all", ["c", "b", "z"])]
)
def test_a_strategy_takes_along_what_it_names(strategy: str, taken: list[str]) -> None:
    rows = [row("z"), row("a", restart=Restart(strategy=strategy)), row("b"), row("c")]  # type: ignore[arg-type]
    run = Driver(*rows)
    run.bring_up()
    new = run.exits("a")
    assert [a.name for a in of_kind(new, Terminate)] == taken
    for name in taken:
        assert of_kind(run.exits(name, "exit code 0", clean=True), Spawn), "it is started again at once"
        assert run.state(name) is State.SPAWNED


def test_a_group_lives_and_dies_together() -> None:
    run = Driver(
        row("w", restart=Restart(group="tp")), row("w2", restart=Restart(group="tp"), after=[]), row("x", after=[])
    )
    run.bring_up()
    assert [a.name for a in of_kind(run.exits("w2"), Terminate)] == ["w"]


def test_a_dependent_that_is_restarted_waits_for_its_dependency() -> None:
    run = Driver(row("a", restart=Restart(strategy="rest_for_one", backoff=(5.0, 5.0))), row("b"))
    run.bring_up()
    run.exits("a")
    run.exits("b", "exit code 0", clean=True)
    run.imported("b")
    assert run.state("b") is State.CONNECTED
    run.advance(6.0)
    run.imported("a")
    run.ready("a")
    assert run.state("b") is State.LOADING


def test_missed_health_calls_degrade_and_then_kill_and_an_answer_between_restores() -> None:
    run = Driver(row("a", live=Live(misses=3)))
    run.bring_up()
    life = lambda answered: run.feed(LifeSeen("a", run.incarnation("a"), answered))  # noqa: E731
    life(False)
    assert run.state("a") is State.DEGRADED
    life(True)
    assert run.state("a") is State.READY
    life(False)
    life(False)
    assert of_kind(life(False), Kill)
    run.exits("a", "SIGKILL")
    assert "did not answer 3 health calls" in (run.supervisor.units["a"].error or "")


def test_a_stalled_loop_has_its_stacks_dumped_before_it_is_killed() -> None:
    run = Driver(row("a", live=Live(stall=30.0)))
    run.bring_up()
    inc = run.incarnation("a")
    assert not of_kind(run.feed(LifeSeen("a", inc, True, 60.0, 5.0)), DumpStacks), "it said that it is busy"
    new = run.feed(LifeSeen("a", inc, True, 31.0, 0.0))
    assert of_kind(new, DumpStacks)
    assert not of_kind(new, Kill)
    assert of_kind(run.advance(2.0), Kill)


def test_stall_0_never_takes_a_long_turn_for_a_stall() -> None:
    run = Driver(row("a", live=Live(stall=0)))
    run.bring_up()
    assert run.feed(LifeSeen("a", run.incarnation("a"), True, 1e6, 0.0)) == []


def test_a_stop_drains_then_terms_then_kills() -> None:
    run = Driver(row("a", stop=Stop(drain=3.0, term=2.0)))
    run.bring_up()
    assert of_kind(run.feed(StopAsked("test")), Drain) == [Drain("a", run.incarnation("a"), 3.0)]
    assert not of_kind(run.advance(3.0), Terminate)
    assert of_kind(run.advance(1.0), Terminate)
    assert of_kind(run.advance(2.0), Kill)
    assert of_kind(run.exits("a", "SIGKILL"), Down)


@pytest.mark.parametrize(
    ("how", "clean", "said"),
    [
        ("exit code 0", True, ""),
        ("killed by SIGTERM", False, ""),
        ("exit code 1", False, "it failed while it was stopping: exit code 1"),
        ("killed by SIGSEGV", False, "it failed while it was stopping: killed by SIGSEGV"),
    ],
)
def test_a_stop_that_is_not_in_order_says_how_it_ended(how: str, clean: bool, said: str) -> None:
    run = Driver(row("a"))
    run.bring_up()
    run.feed(StopAsked("test"))
    assert of_kind(run.exits("a", how, clean), Changed) == [Changed("a", State.STOPPED, said)]


def test_a_stop_that_took_a_sigkill_says_so() -> None:
    run = Driver(row("a", stop=Stop(drain=3.0, term=2.0)))
    run.bring_up()
    run.feed(StopAsked("test"))
    run.advance(6.0)
    (stopped,) = of_kind(run.exits("a", "killed by SIGKILL"), Changed)
    assert stopped.text == "it had to be killed: it did not end within stop.drain and stop.term (killed by SIGKILL)"


def test_a_failure_that_is_told_while_it_stops_is_said_and_the_cause_of_a_failed_start_is_not_said_twice() -> None:
    run = Driver(row("a"), row("b"))
    for name in "ab":
        run.imported(name)
    run.ready("a")
    run.feed(FailureTold("b", run.incarnation("b"), "no such file"))
    assert of_kind(run.exits("b"), Changed)[0] == Changed("b", State.STOPPED, "")
    run.feed(FailureTold("a", run.incarnation("a"), "its teardown failed"))
    assert of_kind(run.exits("a"), Changed) == [
        Changed("a", State.STOPPED, "it failed while it was stopping: its teardown failed")
    ]


def test_a_forced_stop_kills_everything_at_once() -> None:
    run = Driver(row("a"), row("b"))
    run.bring_up()
    assert {a.name for a in of_kind(run.feed(StopAsked("again", force=True)), Kill)} == {"a", "b"}


def test_an_operators_stop_is_no_crash() -> None:
    run = Driver(row("a"))
    run.bring_up()
    run.feed(StopAsked("test"))
    run.exits("a", "SIGTERM")
    assert run.state("a") is State.STOPPED
    assert run.supervisor.cause is None


def test_events_of_an_earlier_incarnation_change_nothing() -> None:
    run = Driver(row("a", restart=Restart(backoff=(0.0, 0.0))))
    run.bring_up()
    old = run.incarnation("a")
    run.exits("a")
    run.advance(0.1)
    for event in (
        Exited("a", old, "exit code 1", False),
        ReadySeen("a", old),
        HelloReceived("a", old, True),
        FailureTold("a", old, "x"),
        LifeSeen("a", old, False),
        ProgressSeen("a", old, "x"),
        Spawned("a", old, 1),
    ):
        assert run.feed(event) == []
    assert run.state("a") is State.SPAWNED


def test_a_service_run_by_hand_is_waited_for_and_never_killed() -> None:
    run = Driver(Row(name="a", external=True), row("b"))
    assert [a.name for a in of_kind(run.actions, Spawn)] == ["b"]
    run.imported("b")
    assert not run.advance(10_000.0)
    run.feed(HelloReceived("a", "hand", True))
    run.feed(ReadySeen("a", "hand"))
    run.ready("b")
    assert run.supervisor.phase is Phase.UP
    for _ in range(50):
        run.feed(LifeSeen("a", "hand", False))
    assert run.state("a") is State.DEGRADED
    assert not of_kind(run.actions, Kill)
    run.feed(Exited("a", "hand", "its process ended", False))
    assert run.state("a") is State.STOPPED
    run.feed(HelloReceived("a", "hand2", True))
    assert run.state("a") is State.LOADING


EVENTS = st.sampled_from(["hello", "imported", "ready", "exit", "clean", "fail", "miss", "stall", "restart", "wait"])


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(EVENTS, st.integers(0, 3), st.floats(0, 20)), max_size=60),
    st.sampled_from(["one_for_one", "rest_for_one", "one_for_all"]),
    st.booleans(),
)
def test_whatever_happens_every_service_can_end_and_a_stop_ends_all(
    script: list[tuple[str, int, float]], strategy: str, force: bool
) -> None:
    names = ["a", "b", "c", "d"]
    rows = [
        row(n, restart=Restart(strategy=strategy, intensity=2), ready=Ready(timeout=9), stop=Stop(drain=1, term=1))  # type: ignore[arg-type]
        for n in names
    ]
    run = Driver(*rows)
    spawned = {a.name for a in of_kind(run.actions, Spawn)}
    assert spawned == set(names)
    for what, index, seconds in script:
        name = names[index]
        inc = run.incarnation(name)
        event = {
            "hello": HelloReceived(name, inc, False),
            "imported": HelloReceived(name, inc, True),
            "ready": ReadySeen(name, inc),
            "exit": Exited(name, inc, "exit code 1", False),
            "clean": Exited(name, inc, "exit code 0", True),
            "fail": FailureTold(name, inc, "x"),
            "miss": LifeSeen(name, inc, False),
            "stall": LifeSeen(name, inc, True, 1000.0),
            "restart": RestartAsked(name),
            "wait": Tick(),
        }[what]
        run.now += seconds if what == "wait" else 0.0
        for action in run.feed(event):
            if isinstance(action, Release):
                after = run.supervisor.units[action.name].row.after or ()
                assert all(run.state(other) in SERVING for other in after), "released before what it comes after"
            if isinstance(action, (Spawn, Release, Drain, Terminate, Kill, DumpStacks)):
                assert action.incarnation == run.incarnation(action.name)
        for unit in run.supervisor.units.values():
            waits_for_others = unit.state is State.CONNECTED and unit.imported
            if unit.alive and unit.state not in SERVING and not waits_for_others:
                assert unit.deadlines(), f"{unit.name} is {unit.state} without a deadline"
            assert len(unit.failures) <= unit.row.restart.intensity + 1
    run.feed(StopAsked("end", force))
    for _ in range(100):
        if run.supervisor.phase is Phase.STOPPED:
            break
        run.advance(5.0)
        for unit in run.supervisor.units.values():
            killed = Kill(unit.name, unit.incarnation) in run.actions
            if unit.state in ALIVE and killed:
                run.exits(unit.name, "SIGKILL")
    assert run.supervisor.phase is Phase.STOPPED
    assert sum(isinstance(a, Down) for a in run.actions) == 1
