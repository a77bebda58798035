"""The broker of a run: registry and supervisor behind broker/1, in the process of `zmqengine up`.

It is off the data path: services call each other directly, and go on serving without it.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import signal
import time
from collections.abc import Callable
from typing import Any

import msgspec
import psutil

from . import envelope, transport
from .asyncio_loop import AsyncioLoop
from .broker_interface import BrokerInterface, Event, RunStatus, ServiceStatus, Swapped, SwapRequest
from .deferred import Deferred
from .dispatcher import Dispatcher, Handler
from .envelope import Envelope
from .errors import InvalidArgument, NotFound, RemoteError, Unavailable, to_wire
from .health import Health, Hello, Welcome
from .launcher import Launcher
from .lifecycle import ALIVE, SERVING, State
from .peer import Location
from .reconcile import Step, reconcile
from .registry import Entry, Registry
from .rundir import RunDirectory
from .standby import standby_key
from .streams import Outlet
from .supervision import (
    Action,
    Changed,
    Down,
    HelloReceived,
    ProgressSeen,
    RestartAsked,
    StartAsked,
    StartBroke,
    StopAsked,
    SwapAsked,
    SwapEnded,
    TableChanged,
    Up,
)  # fmt: skip
from .supervisor import Phase, Supervisor
from .table import Row, Table
from .wire import Kind

_hello_decoder = msgspec.msgpack.Decoder(Hello)
_health_decoder = msgspec.msgpack.Decoder(Health)

EVENTS_KEPT = 1000
"""Events that a slow watcher may lag behind before the oldest are dropped for it."""


class Broker(BrokerInterface):
    """One run, from start to stop. `run` returns when everything is down."""

    def __init__(
        self,
        table: Table,
        directory: RunDirectory,
        *,
        report: Callable[[Event], object] = lambda event: None,
        echo: Callable[[str, str, str], object] | None = None,
    ) -> None:
        """report: given each event. echo: given each (service, stream, line) that a service writes."""
        self.table = table
        self.directory = directory
        self.supervisor = Supervisor(table)
        self.registry = Registry(lambda: list(self.supervisor.units))
        self.failure: str | None = None
        self._report = report
        self._echo = echo
        self._watchers: dict[Outlet[Event], list[Event]] = {}
        self._awaiting: dict[tuple[str, str], tuple[bytes, int]] = {}
        self._progress: dict[str, str] = {}
        self._contracts: dict[str, tuple[str, dict[str, str]]] = {}
        """Protocol and methods' digests of the first incarnation of each service."""
        self._swaps: dict[str, tuple[Deferred[Swapped], str, float]] = {}
        """Under way: whom to answer, the incarnation that served, and since when (monotonic)."""
        self._state_since: dict[str, float] = {}
        self._down = asyncio.Event()
        self._started_at = time.monotonic()
        self._up_at: float | None = None
        self._launcher: Launcher
        self._dispatcher: Dispatcher

    async def run(self) -> int:
        """Start, supervise, stop. 0 if it was stopped on purpose, 1 if the start failed."""
        loop = AsyncioLoop()
        port = transport.Port(self.directory.broker)
        handlers = {name: Handler(method, getattr(self, name)) for name, method in self.methods.items()}
        self._dispatcher = dispatcher = Dispatcher(
            port, loop, handlers, where=self.protocol, incarnation="", describe=BrokerInterface.schema,
            touched=loop.touch,
        )  # fmt: skip
        dispatcher.lifecycle = {Kind.HELLO: self._hello, Kind.HEALTH: self._health, Kind.BYE: self._health}
        self._launcher = Launcher(
            self.supervisor, self.registry, self.directory, loop, release=self._welcome, observe=self._observe,
            echo=self._echo,
        )  # fmt: skip
        loop.serve(dispatcher)
        self._take_signals()
        serving = asyncio.create_task(loop.run())
        self._launcher.feed(StartAsked())
        await self._down.wait()
        dispatcher.abandon_all("the run has stopped")
        self._launcher.close()
        loop.stop()
        await serving
        await loop.close()
        port.close()
        return 1 if self.failure else 0

    def ask_stop(self, reason: str, force: bool = False) -> None:
        """Stop the run; a second time, or with force: kill it."""
        again = self.supervisor.phase is Phase.STOPPING
        self._launcher.feed(StopAsked(reason, force or again))

    def _take_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self.ask_stop, signal.Signals(number).name)

    # HELLO, HEALTH

    def _hello(self, identity: bytes, message: Envelope) -> None:
        hello: Hello = envelope.decode_body(_hello_decoder, message.body, "HELLO")
        try:
            entry = self._admit(hello, identity)
        except RemoteError as error:
            self._dispatcher.reply_to(identity, Kind.ERROR, message.call_id, to_wire(error))
            return
        now = time.monotonic()
        entry.hello = hello
        entry.hello_at = entry.hello_at or now
        if hello.imported:
            entry.imported_at = now
            self._awaiting[entry.name, entry.incarnation] = (identity, message.call_id)
        else:
            welcome = Welcome(run=self.directory.name, released=False)
            self._dispatcher.reply_to(identity, Kind.WELCOME, message.call_id, welcome)
        self._launcher.feed(HelloReceived(entry.name, hello.incarnation, hello.imported))

    def _admit(self, hello: Hello, peer: bytes) -> Entry:
        """The entry of an incarnation that says HELLO, or the reason why it is refused. peer: its connection."""
        unit = self.supervisor.units.get(hello.name)
        candidate = self.registry.of(standby_key(hello.name), hello.incarnation)
        entry = candidate or self.registry.of(hello.name, hello.incarnation)
        if entry is not None:
            _check_token(entry, hello, peer)
        elif hello.token:
            raise InvalidArgument(
                f"HELLO of {hello.name}: incarnation {hello.incarnation} is not expected", field="incarnation"
            )
        elif unit is not None and (unit.state in ALIVE or not unit.row.external):
            raise InvalidArgument(
                f"HELLO of {hello.name}: the name is taken by pid {unit.pid}; use --name for another", field="name"
            )
        else:
            entry = self._admit_by_hand(hello)
        wanted = self.supervisor.units[entry.name].row.protocol
        if hello.imported and wanted and hello.protocol != wanted:
            raise InvalidArgument(
                f"HELLO of {hello.name}: it speaks {hello.protocol}; its row wants {wanted}", field="protocol"
            )
        if hello.imported and candidate is not None:
            self._check_fits(hello)
        elif hello.imported:
            self._contracts.setdefault(hello.name, (hello.protocol, hello.methods))
        return entry

    def _check_fits(self, hello: Hello) -> None:
        """A candidate must do all that the first incarnation did, for others count on that; what it does beyond is its
        own affair."""
        protocol, wants = self._contracts.get(hello.name, (hello.protocol, {}))
        has = hello.methods
        missing = [f"has no {name}" for name in sorted(wants.keys() - has.keys())]
        other = [f"{name} has other types" for name in sorted(wants.keys() & has.keys()) if has[name] != wants[name]]
        spoken = [f"it speaks {hello.protocol}, not {protocol}"] if hello.protocol != protocol else []
        if spoken or missing or other:
            differences = "; ".join([*spoken, *missing, *other])
            raise InvalidArgument(f"it does not fit in the place of {hello.name}: {differences}", field="schema")

    def _admit_by_hand(self, hello: Hello) -> Entry:
        if self.supervisor.phase not in (Phase.STARTING, Phase.UP):
            raise Unavailable("the run is stopping")
        if not psutil.pid_exists(hello.pid):
            raise InvalidArgument(f"HELLO of {hello.name}: there is no process {hello.pid}", field="pid")
        if hello.name not in self.supervisor.units:
            self.supervisor.admit(Row(name=hello.name, external=True, after=[]))
        entry = self.registry.register(hello.name, hello.incarnation, "", hello.pid)
        self._launcher.adopt(entry, hello.pid)
        return entry

    def _welcome(self, entry: Entry) -> None:
        identity, call_id = self._awaiting.pop((entry.name, entry.incarnation))
        row = self.supervisor.units[entry.name].row
        options = "" if row.external else msgspec.json.encode(row.options).decode()
        welcome = Welcome(run=self.directory.name, released=True, options=options)
        self._dispatcher.reply_to(identity, Kind.WELCOME, call_id, welcome)

    def _health(self, identity: bytes, message: Envelope) -> None:
        health: Health = envelope.decode_body(_health_decoder, message.body, "HEALTH")
        self._launcher.health_told(health)

    # Events

    def _observe(self, action: Action | ProgressSeen) -> None:
        now = time.monotonic()
        since = now - self._started_at
        if isinstance(action, ProgressSeen):
            self._progress[action.name] = action.text
            self._emit(Event(at=now, kind="progress", service=action.name, text=action.text, seconds=since))
        elif isinstance(action, Changed):
            self._progress.pop(action.name, None)
            if action.state is State.STOPPED and action.name not in self.supervisor.units:
                self.registry.forget(action.name)
            before = self._state_since.get(action.name, now)
            self._state_since[action.name] = now
            self._emit(Event(at=now, kind="state", service=action.name, state=action.state, text=action.text,
                             seconds=now - before))  # fmt: skip
        elif isinstance(action, SwapEnded):
            self._swap_ended(action)
        elif isinstance(action, Up):
            self._up_at = now
            urls = [u for m in self._launcher.members.values() if (u := url_of(m.entry))]
            self._emit(Event(at=now, kind="up", text="\n".join(urls), seconds=since))
        elif isinstance(action, StartBroke):
            self.failure = self._describe_failure(action)
            self._emit(Event(at=now, kind="failed", service=action.name, state=action.phase, text=self.failure,
                             seconds=since))  # fmt: skip
        elif isinstance(action, Down):
            self._emit(Event(at=now, kind="stopped", seconds=since))
            for outlet in list(self._watchers):
                self._flush_watcher(outlet)
                outlet.end()
            self._watchers.clear()
            self._down.set()

    def _describe_failure(self, broke: StartBroke) -> str:
        lines = [f"{broke.name} did not start ({broke.phase.value.lower()}): {broke.cause}"]
        unit = self.supervisor.units[broke.name]
        entry = self.registry.of(broke.name, unit.incarnation)
        if self._dispatcher.malformed and (entry is None or entry.hello is None):
            # Nobody knows who it was, but it was perhaps this one's way of saying HELLO.
            lines.append(f"  the broker was sent what is no message of its protocol: {self._dispatcher.last_malformed}")
        if unit.told is None:  # what it says itself is enough where it says it
            lines += [f"  {broke.name}| {line}" for line in self._launcher.last_lines(broke.name)]
        return "\n".join(lines)

    def _emit(self, event: Event) -> None:
        self._report(event)
        for outlet, queue in self._watchers.items():
            queue.append(event)
            del queue[:-EVENTS_KEPT]
            self._flush_watcher(outlet)

    def _flush_watcher(self, outlet: Outlet[Event]) -> None:
        queue = self._watchers[outlet]
        while queue and outlet.credit:
            outlet.send(queue.pop(0))

    # broker/1

    def status(self) -> RunStatus:
        services = [self._service_status(name) for name in self.supervisor.units]
        return RunStatus(
            run=self.directory.name, pid=os.getpid(), phase=self.supervisor.phase.value, table=self.table.name,
            ready_after_s=None if self._up_at is None else self._up_at - self._started_at, services=services,
            started_at=self._started_at,
        )  # fmt: skip

    def _service_status(self, name: str) -> ServiceStatus:
        unit = self.supervisor.units[name]
        entry = self.registry.of(name, unit.incarnation)
        hello = None if entry is None else entry.hello
        alive = unit.alive
        pid = None if entry is None or not alive else entry.pid
        times: dict[str, Any] = {}
        if entry is not None:
            names = ("hello_at", "imported_at", "setup_at", "ready_at")
            times = {key: getattr(entry, key) for key in names}
            times["spawned_at"] = None if unit.row.external else entry.spawned_at
        ready_at = times.get("ready_at")
        return ServiceStatus(
            name=name, state=unit.state, pid=pid, incarnation=unit.incarnation,
            protocol=(hello.protocol if hello else "") or unit.row.protocol,
            endpoint=hello.data if hello and alive else None, control=hello.control if hello and alive else None,
            restarts=unit.restarts, uptime_s=time.monotonic() - ready_at if ready_at is not None and alive else None,
            rss_bytes=None if pid is None else rss_of(pid), url=None if entry is None or not alive else url_of(entry),
            error=unit.error, progress=self._progress.get(name), after=list(unit.row.after or ()), **times,
            **self._load(entry),
        )  # fmt: skip

    @staticmethod
    def _load(entry: Entry | None) -> dict[str, Any]:
        """What a service has to do, by its last health."""
        if entry is None or entry.health is None:
            return {}
        keys = ("calls", "in_flight", "queued", "refused", "p50_s", "p99_s")
        return {key: getattr(entry.health, key) for key in keys}

    def resolve(self, name: str, wait: bool = False) -> Deferred[Location]:
        unit = self.supervisor.units.get(name)
        hopeless = unit is not None and unit.state is State.QUARANTINED  # nobody waits for it to come back by itself
        return self.registry.resolve(name, wait and not hopeless, self._why_not)

    def _why_not(self, name: str) -> str:
        unit = self.supervisor.units[name]
        return f"{unit.state.value}" + (f": {unit.error}" if unit.error else "")

    def stop(self, force: bool = False) -> None:
        asyncio.get_running_loop().call_soon(self.ask_stop, "zmqengine down", force)

    def restart(self, name: str) -> None:
        if name not in self.supervisor.units:
            raise NotFound(f"this run has no service {name!r}; it has: {', '.join(self.supervisor.units)}")
        if self.supervisor.phase is not Phase.UP:
            raise Unavailable(f"the run is {self.supervisor.phase.value}")
        self._launcher.feed(RestartAsked(name))

    def swap(self, request: SwapRequest) -> Deferred[Swapped]:
        name = request.name
        unit = self.supervisor.units.get(name)
        if unit is None:
            raise NotFound(f"this run has no service {name!r}; it has: {', '.join(self.supervisor.units)}")
        if unit.row.external:
            raise InvalidArgument(f"{name} is run by hand: end it, and start another", field="request.name")
        if self.supervisor.swapping(name):
            raise InvalidArgument(f"{name} is being swapped already", field="request.name")
        if self.supervisor.phase is not Phase.UP:
            raise Unavailable(f"the run is {self.supervisor.phase.value}")
        mode = request.mode or unit.row.swap.mode
        if mode not in ("start_first", "stop_first"):
            raise InvalidArgument(f"mode {mode!r} is neither start_first nor stop_first", field="request.mode")
        row = msgspec.structs.replace(unit.row, options={**unit.row.options, **request.options})
        if request.impl or request.command:
            row = msgspec.structs.replace(row, impl=request.impl, command=request.command)
        # Where nothing serves, there is nothing to keep serving meanwhile.
        stop_first = mode == "stop_first" or unit.state not in SERVING
        answer: Deferred[Swapped] = Deferred()
        self._swaps[name] = (answer, unit.incarnation, time.monotonic())
        self._launcher.feed(SwapAsked(name, row, stop_first))
        return answer

    def _swap_ended(self, action: SwapEnded) -> None:
        self.table = self.supervisor.table
        answer, old, since = self._swaps.pop(action.name)
        if action.failure:
            serves = self.supervisor.units[action.name].incarnation == old
            then = f"incarnation {old} serves on" if serves else "what was there before is started again"
            answer.reject(Unavailable(f"{action.name} was not swapped, and {then}: {action.failure}"))
        else:
            new = self.supervisor.units[action.name].incarnation
            answer.resolve(Swapped(old=old, new=new, seconds=time.monotonic() - since))

    def apply(self, table: Table, dry_run: bool = False) -> list[Step]:
        names = [row.name for row in table.rows]
        for index, row in enumerate(table.rows):
            if names.index(row.name) != index or not set(row.after or ()) <= set(names[:index]):
                raise InvalidArgument(
                    f"row {row.name!r}: its name, or one it comes after, is wrong", field="table.rows"
                )
        if self.supervisor.phase is not Phase.UP:
            raise Unavailable(f"the run is {self.supervisor.phase.value}")
        steps = reconcile(self.table, table)
        if not dry_run:
            self.table = table
            self._launcher.feed(TableChanged(table))
        return steps

    def events(self, out: Outlet[Event]) -> None:
        self._watchers[out] = []
        out.on_credit(lambda: self._flush_watcher(out))
        out.on_cancel(lambda: self._watchers.pop(out, None))


def _check_token(entry: Entry, hello: Hello, peer: bytes) -> None:
    """A token is good for one connection: the children of a service inherit it, and are not the service."""
    if not hmac.compare_digest(entry.token.encode(), hello.token.encode()):  # of str it would take ASCII only
        raise InvalidArgument(f"HELLO of {hello.name}: wrong token", field="token")
    if entry.token and entry.peer not in (None, peer):
        raise InvalidArgument(f"HELLO of {hello.name}: its token is used up, by another connection", field="token")
    entry.peer = peer


def url_of(entry: Entry) -> str | None:
    """Where a service serves HTTP, if it said so."""
    return None if entry.health is None else entry.health.announced.get("url")


def rss_of(pid: int) -> int | None:
    """Resident memory of a process, in bytes; None if it is gone."""
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.NoSuchProcess:
        return None
