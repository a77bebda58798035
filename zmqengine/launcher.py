"""Carries out what the supervisor decides (spawn, release, probe, watch, drain, kill), and tells it what happened."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import json
import logging
import os
import secrets
import time
from collections.abc import Callable

import msgspec

from . import transport
from .asyncio_loop import AsyncioLoop
from .connection import Connection
from .errors import ZmqEngineError
from .health import Drain as DrainBody
from .health import Health
from .lifecycle import State
from .logs import LogWriter, log_path
from .oom import OomKills
from .orphans import kill_all_with
from .peer import dial
from .process import ChildProcess, python_argv
from .registry import Entry, Registry
from .rundir import Process, RunDirectory, RunState, process_of
from .spawn import INCARNATION, SpawnInfo
from .standby import is_retired, service_name, standby_key
from .supervision import (
    Action,
    Changed,
    Drain,
    DumpStacks,
    Event,
    Exited,
    FailureTold,
    Flip,
    Kill,
    LifeSeen,
    ProgressSeen,
    ReadySeen,
    Release,
    Spawn,
    Spawned,
    SpawnFailed,
    Terminate,
    Tick,
)  # fmt: skip
from .supervisor import Supervisor
from .table import Row, parse_cpus
from .wire import Kind

log = logging.getLogger(__name__)

HEALTH_TIMEOUT_S = 2.0
"""Budget of one health call while a service starts; its control thread answers in under a millisecond when alive."""


class Member:
    """What the launcher holds for one incarnation."""

    def __init__(self, entry: Entry, log: LogWriter | None) -> None:
        self.entry = entry
        self.log = log
        self.process: ChildProcess | None = None
        self.pidfd: int | None = None
        self.control: Connection | None = None
        self.news = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        self.progress = ""


class Launcher:
    """Lives on the broker's loop, from the first spawn until everything is down."""

    def __init__(
        self,
        supervisor: Supervisor,
        registry: Registry,
        directory: RunDirectory,
        loop: AsyncioLoop,
        *,
        release: Callable[[Entry], object],
        observe: Callable[[Action | ProgressSeen], object],
        echo: Callable[[str, str, str], object] | None = None,
    ) -> None:
        """release: answer an entry's HELLO with WELCOME. observe: told of what there is to show. echo: given each
        (service, stream, line) that services write."""
        self.members: dict[str, Member] = {}
        self._supervisor = supervisor
        self._registry = registry
        self._directory = directory
        self._loop = loop
        self._release = release
        self._observe = observe
        self._echo = echo
        self._oom_kills = OomKills()
        self._logs: dict[str, LogWriter] = {}
        self._events: collections.deque[Event] = collections.deque()
        self._tick: asyncio.TimerHandle | None = None
        # The reading end goes to every child: it closes with this process, however it ends.
        self._death_read, self._death_write = os.pipe()

    def feed(self, event: Event) -> None:
        """Tell the supervisor what happened, and do what it decides."""
        self._events.append(event)
        if len(self._events) > 1:
            return  # an action of the event in progress told this one
        while self._events:
            try:
                actions = self._supervisor.handle(self._events[0], time.monotonic())
            except Exception:
                # A fault of ours in one event must not leave the run unsupervised.
                log.exception("could not handle %r", self._events[0])
                actions = []
            for action in actions:
                try:
                    self._do(action)
                except Exception:
                    log.exception("could not do %r", action)  # the others are not to be lost with it
            self._events.popleft()
        self._schedule_tick()

    def last_lines(self, name: str) -> tuple[str, ...]:
        """What a service wrote last."""
        log = self._logs.get(name)
        return () if log is None else log.last_lines

    def close(self) -> None:
        """Everything is down: free what is held."""
        if self._tick is not None:
            self._tick.cancel()
        for member in self.members.values():
            self._forget(member)
        for log in self._logs.values():
            log.close()
        os.close(self._death_read)
        os.close(self._death_write)

    def _schedule_tick(self) -> None:
        if self._tick is not None:
            self._tick.cancel()
            self._tick = None
        due = self._supervisor.next_deadline()
        if due is not None:
            delay = max(0.0, due - time.monotonic())
            self._tick = asyncio.get_running_loop().call_later(delay, self.feed, Tick())

    # Actions

    def _do(self, action: Action) -> None:
        if isinstance(action, Spawn):
            self._spawn(self._supervisor.units[action.name].row, action.incarnation)
        elif isinstance(action, (Release, Drain, Terminate, Kill, DumpStacks)):
            member = self.members.get(action.name)
            if member is not None and member.entry.incarnation == action.incarnation:
                self._act_on(member, action)
        else:
            if isinstance(action, Changed):
                self._changed(action)
            elif isinstance(action, Flip):
                self._flip(action)
            self._observe(action)

    def _act_on(self, member: Member, action: Release | Drain | Terminate | Kill | DumpStacks) -> None:
        if isinstance(action, Release):
            member.entry.setup_at = time.monotonic()
            self._release(member.entry)
            member.task = asyncio.create_task(self._accompany(member))
        elif isinstance(action, Drain):
            self._registry.withdraw(member.entry)
            with contextlib.suppress(ZmqEngineError):  # one that cannot be told is ended by SIGTERM next
                drain = DrainBody(deadline_s=action.deadline_s, superseded=is_retired(action.name))
                self._control(member).notify(Kind.DRAIN, drain)
        elif member.process is not None:
            if isinstance(action, Terminate):
                member.process.terminate()
            elif isinstance(action, Kill):
                member.process.kill()
            elif self._supervisor.units[action.name].row.impl:
                member.process.dump_stacks()

    def _flip(self, action: Flip) -> None:
        old, new = self.members.pop(action.name), self.members.pop(standby_key(action.name))
        self._registry.flip(action.name, action.retired)
        self.members[action.name], self.members[action.retired] = new, old
        self._save_state()

    def _changed(self, action: Changed) -> None:
        member = self.members.get(action.name)
        if member is None:
            return
        if action.state is State.READY:
            self._registry.serve(member.entry)
        elif action.state not in (State.DEGRADED, State.CONNECTED, State.LOADING):
            self._registry.withdraw(member.entry)
        if action.state is State.QUARANTINED:
            self._registry.fail_waiting(action.name, f"{action.name} is quarantined: {action.text}")
        if action.state in (State.STOPPED, State.FAILED):
            self._forget(member)
            self._save_state()

    def _spawn(self, row: Row, incarnation: str) -> None:
        token = secrets.token_hex(16)
        name = service_name(row.name)
        log = self._logs.get(name)
        if log is None:
            echo = self._echo
            log = LogWriter(
                log_path(self._directory.logs, name),
                echo=None if echo is None else lambda stream, line: echo(name, stream, line),
            )
            self._logs[name] = log
        log.forget()
        info = SpawnInfo(
            name=name, incarnation=incarnation, run=self._directory.name, run_dir=str(self._directory.path),
            broker=self._directory.broker, token=token, options=json.dumps(row.options), death_fd=self._death_read,
            bind=msgspec.json.encode(row.binding).decode() if row.bind else "",
        )  # fmt: skip
        entry = self._registry.register(row.name, incarnation, token, None)
        member = Member(entry, log)
        self.members[row.name] = member
        argv = row.command or python_argv(row.impl)
        try:
            member.process = ChildProcess(
                argv, _environment(row, info), self._death_read, log,
                lambda code, how: self._exited(entry, how, code == 0), self._oom_kills,
                cpus=parse_cpus(row.cpus, row.name),
            )  # fmt: skip
        except (OSError, ValueError) as error:
            self.feed(SpawnFailed(row.name, incarnation, f"cannot run {argv[0]!r}: {error}"))
            return
        entry.pid = member.process.pid
        self._save_state()
        self.feed(Spawned(row.name, incarnation, member.process.pid))

    def adopt(self, entry: Entry, pid: int) -> None:
        """A service that somebody runs by hand said HELLO: its death is seen like a child's."""
        member = Member(entry, None)
        old = self.members.get(entry.name)
        if old is not None:
            self._forget(old)
        self.members[entry.name] = member
        member.pidfd = os.pidfd_open(pid)
        asyncio.get_running_loop().add_reader(member.pidfd, self._exited, entry, "its process ended", False)

    def _exited(self, entry: Entry, how: str, clean: bool) -> None:
        """entry: known by another key, perhaps, than when it was started."""
        # What it left in sessions of its own has to go before it is started anew.
        kill_all_with(f"{INCARNATION}={entry.incarnation}")
        self.feed(Exited(entry.name, entry.incarnation, how, clean))

    def _forget(self, member: Member) -> None:
        """An incarnation has ended."""
        if member.task is not None:
            member.task.cancel()
        if member.control is not None:
            self._loop.remove_connection(member.control)
            member.control = None
        if member.pidfd is not None:
            asyncio.get_running_loop().remove_reader(member.pidfd)
            os.close(member.pidfd)
            member.pidfd = None
        if member.process is not None:
            # Sockets of a process that was killed stay behind as files.
            for role in ("data", "control"):
                path = self._directory.path / f"{service_name(member.entry.name)}-{member.entry.incarnation}.{role}"
                path.unlink(missing_ok=True)

    def _save_state(self) -> None:
        launcher = process_of("launcher", os.getpid())
        assert launcher is not None
        services: list[Process] = []
        for name, member in self.members.items():
            if member.process is not None and member.process.alive:
                found = process_of(name, member.process.pid)
                if found is not None:
                    services.append(found)
        state = RunState(
            run=self._directory.name, launcher=launcher, guard=self._directory.guard, services=services
        )  # fmt: skip
        try:
            self._directory.write_state(state)
        except OSError as error:  # a full disk; the guard finds the processes without it
            log.error("cannot write state.json: %s", error)

    # Health

    def health_told(self, health: Health) -> None:
        """A service told its health without being asked: its state has changed."""
        found = [m for m in self.members.values() if m.entry.incarnation == health.incarnation]
        if not found or service_name(found[0].entry.name) != health.name:
            return
        member = found[0]
        member.entry.health = health
        member.news.set()
        if health.state is State.FAILED:
            self.feed(FailureTold(member.entry.name, health.incarnation, health.error or "it does not say why"))

    def _control(self, member: Member) -> Connection:
        if member.control is None or member.control.broken is not None:
            hello = member.entry.hello
            assert hello is not None
            if member.control is not None:
                self._loop.remove_connection(member.control)
            link = transport.Link(hello.control, member.entry.name)
            member.control = Connection(link, incarnation=member.entry.incarnation, touched=self._loop.touch)
            self._loop.add_connection(member.control)
        return member.control

    async def _ask(self, connection: Connection, timeout_s: float) -> Health:
        health: Health = await connection.ask(Kind.HEALTH, None, Health, timeout_s)
        return health

    async def _accompany(self, member: Member) -> None:
        """From its release to its end: probe until it is READY, then watch over its life."""
        entry = member.entry
        if await self._probe(member):
            self.feed(ReadySeen(entry.name, entry.incarnation))
            await self._watch(member)

    async def _probe(self, member: Member) -> bool:
        """Whether it became READY. Its deadlines, its exit and its own word of failure are the supervisor's to judge:
        they end this task."""
        from .retry import PROBE_READY, NotYet, retry_not_yet  # 0.1 s to import: after the spawns, not before them

        entry = member.entry

        async def attempt() -> bool:
            member.news.clear()
            try:
                health = entry.health = await self._ask(self._control(member), HEALTH_TIMEOUT_S)
            except ZmqEngineError as error:
                raise NotYet(str(error)) from None
            if health.state is State.READY:
                return await self._answers_on_data(entry)
            if health.state is State.FAILED:
                self.feed(FailureTold(entry.name, entry.incarnation, health.error or "it does not say why"))
                return False
            if health.progress is not None:
                done = health.progress
                text = f"{done.what} {done.done / done.total:.0%}" if done.total else done.what
                self._progressed(member, text)
            raise NotYet(f"{entry.name} is {health.state}")

        async def wait(seconds: float) -> None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(member.news.wait(), seconds)

        return await retry_not_yet(attempt, PROBE_READY, sleep=wait, deadline=float("inf"), clock=time.monotonic)

    def _progressed(self, member: Member, text: str) -> None:
        """Only what is new is progress."""
        if text != member.progress:
            member.progress = text
            event = ProgressSeen(member.entry.name, member.entry.incarnation, text)
            self._observe(event)
            self.feed(event)

    async def _answers_on_data(self, entry: Entry) -> bool:
        from .retry import NotYet

        assert entry.hello is not None
        try:
            link = dial(entry.location(), entry.name, str(self._directory.path))
        except ZmqEngineError as error:  # keys that are gone may come back within the start's deadline
            raise NotYet(str(error)) from None
        connection = Connection(link, incarnation=entry.incarnation, touched=self._loop.touch)
        self._loop.add_connection(connection)
        try:
            health = await self._ask(connection, HEALTH_TIMEOUT_S)
        except ZmqEngineError as error:
            raise NotYet(str(error)) from None
        finally:
            self._loop.remove_connection(connection)
        if health.incarnation != entry.incarnation:
            raise NotYet(f"{entry.hello.data} is answered by incarnation {health.incarnation}")
        entry.health = health
        return True

    async def _watch(self, member: Member) -> None:
        """One health call every live.interval, for as long as it serves."""
        entry = member.entry
        while (unit := self._supervisor.units.get(entry.name)) is not None:
            live = unit.row.live  # anew each time: a table may be applied that changes it
            started = time.monotonic()
            try:
                health = entry.health = await self._ask(self._control(member), live.interval)
            except ZmqEngineError:
                self.feed(LifeSeen(entry.name, entry.incarnation, False))
            else:
                self.feed(LifeSeen(entry.name, entry.incarnation, True, health.busy_s, health.busy_allowed_s))
            # The next call is due at the interval, whatever this one took.
            timer = asyncio.Event()
            left = max(0.0, started + live.interval - time.monotonic())
            handle = asyncio.get_running_loop().call_later(left, timer.set)
            try:
                await timer.wait()
            finally:
                handle.cancel()


def _environment(row: Row, info: SpawnInfo) -> dict[str, str]:
    """What the child sees: ours without what a launcher told us, the row's, and what it is told itself."""
    own = {key: value for key, value in os.environ.items() if key not in SpawnInfo.variables()}
    return {**own, "PYTHONUNBUFFERED": "1", **row.env, **info.to_environ()}
