"""The fault matrix: each fault in each phase of a service's life, what has to come of it, and one run that shows it.

Four rows: `before`; `faulty` after it, which takes along what depends on it; `after`, which does; and `aside`.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from zmqengine import Client, Deferred
from zmqengine.broker_interface import BrokerInterface, Event, ServiceStatus
from zmqengine.errors import ZmqEngineError
from zmqengine.lifecycle import State
from zmqengine.peer import Location

from .faulty import Faulty
from .runs import Runs, wait_until

PHASES = ("hello", "importing", "loading", "selftest", "idle", "busy", "draining", "stopping")
STARTING = PHASES[:4]
EXITS = {
    "exit0": "exit code 0", "exit1": "exit code 1", "sigkill": "SIGKILL", "segv": "SIGSEGV", "abort": "SIGABRT",
}  # fmt: skip
HANGS = ("sigstop", "hang-loop", "hang-all")
SPOKEN = {
    "wrong-protocol": "it speaks other/1; its row wants faulty/1",
    "wrong-version": "is not spoken here, but",
    "wrong-token": "wrong token",
    "name-taken": "the name is taken by",
    "garbage-hello": "not a zmqengine message",  # said by the broker, in its answer and of a start that failed
}
FAULTS = (*EXITS, "exception", *HANGS, "flood", "child", *SPOKEN)
RAISED = "RuntimeError: as it was told to"

EXIT_NAMED_S = 0.5
"""A child's exit is named within this."""
INTERPRETER_S = 1.0
"""To start or to end one, on a machine that is busy."""
READY_TIMEOUT_S = 6.0
"""Of a service that hangs in its start: long enough for a busy machine to get it to where it hangs."""
LONGEST_START_S = 30.0
"""Then it hangs, which is what must not be."""
STOP_S = {"drain": 0.5, "term": 0.5}
STALL_S = 0.5
HELD_CALLS = 8
HOLD_S = 0.4
TERMINAL_ANSWER_S = 5.0
SLACK_S = 0.5
"""For a machine that is busy with something else."""


@dataclass(frozen=True, slots=True)
class Case:
    """One cell of the matrix."""

    phase: str
    fault: str

    @property
    def ends_it(self) -> bool:
        """Whether the service cannot go on after it."""
        if self.fault == "exit0" and self.phase in ("draining", "stopping"):
            return False  # it was to end, and did
        if self.fault in EXITS or self.fault in HANGS:
            return True
        if self.fault == "exception":  # of a handler, a timer or the drain hook: the service answers, and goes on
            return self.phase in STARTING or self.phase == "stopping"
        return self.fault in SPOKEN and self.phase == "hello"

    @property
    def waits_for_deadline(self) -> bool:
        """Whether only the deadline of its start can end it."""
        return self.phase in STARTING and (
            self.fault in HANGS or (self.fault == "garbage-hello" and self.phase == "hello")
        )

    @property
    def words(self) -> str:
        """What has to be in what is said about it (of one that goes on: in its log)."""
        if self.fault in EXITS:
            return EXITS[self.fault]
        if self.fault == "exception":
            return RAISED
        if self.fault == "flood":
            return "39999"
        if self.fault == "child":
            return "two children stay"
        if self.fault in HANGS:
            return self._hang_words
        if self.fault == "wrong-protocol" and self.phase != "hello":
            return "HELLO of faulty: it"  # its protocol, or its token, which is good for its own connection alone
        return SPOKEN.get(self.fault, "")

    @property
    def _hang_words(self) -> str:
        if self.phase in STARTING:
            return f"ready.timeout = {READY_TIMEOUT_S:g} s"
        if self.phase in ("idle", "busy"):
            return "its loop has been in one turn" if self.fault == "hang-loop" else "did not answer 3 health calls"
        if self.phase == "stopping" and self.fault == "hang-loop":
            return ""  # SIGTERM gets it out of its teardown
        return "SIGKILL"

    @property
    def named_within_s(self) -> float:
        """From the fault until it is named."""
        if self.waits_for_deadline:
            return READY_TIMEOUT_S + SLACK_S
        if self.fault in HANGS:
            if self.phase in ("idle", "busy"):
                return STALL_S + 1.0 + 2 * SLACK_S  # its stacks are waited for
            return STOP_S["drain"] + 0.5 + STOP_S["term"] + 2 * SLACK_S
        if self.fault in EXITS:
            return EXIT_NAMED_S
        # An interpreter that ends of an exception takes its time; one whose HELLO is refused first imports its code.
        return EXIT_NAMED_S + (INTERPRETER_S if self.fault == "exception" else 2 * INTERPRETER_S)


@dataclass(slots=True)
class Result:
    """What came of one case."""

    case: Case
    named_s: float | None = None
    """From the fault until it was named."""
    cause: str = ""
    total_s: float = 0.0
    faults: list[str] = field(default_factory=list)
    """What was not as it has to be; empty: it passed."""


class Trial:
    """One case, run for real."""

    def __init__(self, runs: Runs, case: Case) -> None:
        self.runs = runs
        self.case = case
        self.result = Result(case)
        self._mark = runs.base / "mark"
        self._watch_error: Exception | None = None

    def run(self) -> Result:
        """Never raises for what the system under test does wrong: that is in the result."""
        started = time.monotonic()
        try:
            if self.case.phase in STARTING:
                self._in_the_start()
            else:
                self._after_the_start()
            self.runs.assert_nothing_left()
            self._again()
        except (AssertionError, ZmqEngineError, OSError, subprocess.TimeoutExpired) as error:
            self.result.faults.append(f"{type(error).__name__}: {error}")
        self.result.total_s = time.monotonic() - started
        return self.result

    def _check(self, holds: object, what: str) -> None:
        if not holds:
            self.result.faults.append(what)

    def _table(self) -> str:
        case = self.case
        row: dict[str, Any] = {"name": "faulty", "protocol": "faulty/1", "after": ["before"]}
        if case.phase == "hello":
            row["command"] = [sys.executable, "-m", "tests.integration.faulty"]
        else:
            row["impl"] = "tests.integration.faulty:Faulty"
        row["env"] = {"FAULT": f"{case.phase}:{case.fault}", "FAULT_MARK": str(self._mark)}
        if case.waits_for_deadline:
            row["ready"] = {"timeout": READY_TIMEOUT_S}
        row["live"] = {"interval": 0.25, "misses": 3, "stall": STALL_S}
        row["stop"] = STOP_S
        row["restart"] = {"strategy": "rest_for_one", "backoff": [0.05, 0.1]}
        echo = {"impl": "Echo"}
        return self.runs.table(
            {"name": "before", **echo}, row, {"name": "after", "after": ["faulty"], **echo},
            {"name": "aside", "after": [], **echo},
        )  # fmt: skip

    # In the start

    def _in_the_start(self) -> None:
        launcher = self.runs.start("up", self._table(), "--detach")
        assert launcher.stdout is not None
        lines = []
        named_at = None
        watchdog = threading.Timer(LONGEST_START_S, launcher.kill)
        watchdog.start()
        for line in launcher.stdout:
            if named_at is None and "faulty did not start" in line:
                named_at = time.monotonic()
            lines.append(line)
        code = launcher.wait(10)
        watchdog.cancel()
        output = "".join(lines)
        self._check(self._mark.exists(), "the fault never came")
        if not self.case.ends_it:
            self._check(code == 0, f"the start failed: {output}")
            self._check_undisturbed(None)
            self._down()
            return
        self._check(code == 1, f"the start ended with code {code}: {output}")
        self._named(named_at, output)

    def _named(self, at: float | None, text: str) -> None:
        """It was said at this time that it failed, in these words."""
        self.result.cause = next((line.strip() for line in text.splitlines() if self.case.words in line), "")
        self._check(self.result.cause, f"{self.case.words!r} is not in what was said: {text!r}")
        if at is None:
            self._check(False, "it was not named")
            return
        self.result.named_s = at - float(self._mark.read_text())
        self._check(
            self.result.named_s <= self.case.named_within_s,
            f"it was named after {self.result.named_s:.2f} s; the limit is {self.case.named_within_s:g} s",
        )

    # After the start

    def _after_the_start(self) -> None:
        self.runs.run("up", self._table(), "--detach")
        before = self._services()
        with self._watched() as events, self._load(before["faulty"]) as calls:
            if self.case.phase in ("idle", "busy"):
                self._strike(before["faulty"])
                self._settled(events, before)
            self._down()
        if self.case.phase in ("draining", "stopping"):
            self._check_stop(events)
        self._check(self._mark.exists(), "the fault never came")
        self._check(calls and all(call.done for call in calls), "a call that was in flight has no terminal answer")

    def _strike(self, status: ServiceStatus) -> None:
        method = "arm" if self.case.phase == "idle" else "strike"
        with self._client(status) as client, contextlib.suppress(ZmqEngineError):
            getattr(client.options(deadline_s=0.3), method)()

    def _settled(self, events: list[Event], before: dict[str, ServiceStatus]) -> None:
        wait_until(self._mark.exists, what="the fault comes")
        if not self.case.ends_it:
            self._check_undisturbed(before)
            return

        def restarted() -> bool:
            now = self._services()
            return all(s.state is State.READY for s in now.values()) and now["after"].restarts == 1

        wait_until(restarted, timeout_s=15.0, what="faulty and what depends on it are READY again")
        failed = [event for event in events if event.service == "faulty" and event.state is State.FAILED]
        self._named(failed[0].at if failed else None, failed[0].text if failed else "")
        now = self._services()
        for name in ("before", "aside"):
            self._check(now[name].incarnation == before[name].incarnation, f"{name} was restarted")
        self._check(now["faulty"].restarts == 1, f"faulty was restarted {now['faulty'].restarts} times")

    def _check_undisturbed(self, before: dict[str, ServiceStatus] | None) -> None:
        """Everything serves as before, and what the service met is in its log."""
        words = self.case.words
        written = lambda: any(words in line.text for line in self.runs.log_lines() if line.service == "faulty")  # noqa: E731
        wait_until(written, what=f"{words!r} in the log of faulty")
        self.result.cause = words
        now = self._services()
        for name, status in now.items():
            self._check(status.state is State.READY and status.restarts == 0, f"{name} is {status.state}")
            if before is not None:
                self._check(status.incarnation == before[name].incarnation, f"{name} was replaced")

    def _check_stop(self, events: list[Event]) -> None:
        self._check(
            events and events[-1].kind == "stopped",
            f"the events do not end with the stop of the run, but with {events[-1:]} and {self._watch_error!r}",
        )
        stopped = [event for event in events if event.service == "faulty" and event.state is State.STOPPED]
        if not self.case.ends_it:
            self._check(stopped and not stopped[0].text, f"a stop in order is reported as {stopped}")
        elif self.case.words:
            self._named(stopped[0].at if stopped else None, stopped[0].text if stopped else "")

    # Small parts

    @property
    def _broker(self) -> Location:
        return Location(name="broker", incarnation="", endpoint=f"ipc://{self.runs.base}/default/broker")

    def _services(self) -> dict[str, ServiceStatus]:
        with Client(self._broker, BrokerInterface, deadline_s=5.0) as broker:
            return {status.name: status for status in broker.status().services}

    def _client(self, status: ServiceStatus) -> Client:
        assert status.endpoint is not None
        return Client(Location(name=status.name, incarnation=status.incarnation, endpoint=status.endpoint), Faulty)

    @contextlib.contextmanager
    def _load(self, status: ServiceStatus) -> Iterator[list[Deferred[Any]]]:
        """Calls in flight, but for a service that has to be idle; at the end each has its answer, or its error."""
        calls: list[Deferred[Any]] = []
        with self._client(status) as client:
            if self.case.phase != "idle":
                calls += [client.begin.hold(HOLD_S) for _ in range(HELD_CALLS)]
                client.idle(0.02)  # sent, and in the service's hands
            yield calls
            for call in calls:
                with contextlib.suppress(ZmqEngineError):
                    client.wait(call, TERMINAL_ANSWER_S)
        if not calls:
            done: Deferred[Any] = Deferred()
            done.resolve(None)
            calls.append(done)

    @contextlib.contextmanager
    def _watched(self) -> Iterator[list[Event]]:
        """What the broker tells, until it is down."""
        seen: list[Event] = []
        subscribed = threading.Event()

        def watch() -> None:
            try:
                with Client(self._broker, BrokerInterface) as broker:
                    stream = broker.events()
                    broker.status()  # its answer comes after the stream was begun
                    subscribed.set()
                    for event in stream:
                        seen.append(event)
            except ZmqEngineError as error:
                self._watch_error = error

        watcher = threading.Thread(target=watch)
        watcher.start()
        subscribed.wait(5.0)
        try:
            yield seen
        finally:
            watcher.join(10.0)

    def _down(self) -> None:
        self.runs.run("down", timeout=20.0)

    def _again(self) -> None:
        """The same run, at once."""
        done = self.runs.run("up", self.runs.table({"name": "before", "impl": "Echo"}), "--detach", ok=False)
        self._check(done.returncode == 0, f"it cannot be started again: {done.stderr}")
        if done.returncode == 0:
            self._down()
        self.runs.assert_nothing_left()


def trial_directory() -> Path:
    """A new base directory; short, for paths of unix sockets have at most 107 bytes."""
    import tempfile

    return Path(tempfile.mkdtemp(prefix="ze-", dir="/tmp"))
