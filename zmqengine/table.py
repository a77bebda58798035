"""The launch table: which services a run has, in which order they start, and how each is kept alive.

A table is validated whole before anything starts; each error names the row and the key.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from .binding import Binding, parse_tcp
from .errors import ConfigError
from .message import Config, Message

NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}(@[0-9]+)?")
Seconds = Annotated[float, Meta(ge=0)]


class _Section(Config, omit_defaults=True):
    """Part of a row; an unknown key is an error."""


class Ready(_Section):
    """How long a start may take, in seconds."""

    timeout: Annotated[float, Meta(gt=0)] = 900.0
    """For the import of the code, and then for setup and selftest; nothing renews it."""
    progress_timeout: Annotated[float, Meta(gt=0)] = 120.0
    """For setup between two signs of progress."""


class Live(_Section):
    """When a service that was READY is taken for dead or stalled."""

    interval: Annotated[float, Meta(gt=0)] = 1.0
    """Seconds between health calls."""
    misses: Annotated[int, Meta(ge=1)] = 5
    """Health calls in a row without an answer, after which it is dead."""
    stall: Seconds = 30.0
    """Seconds that one turn of its loop may take, unless it said that it is busy; 0: any time."""


class Restart(_Section):
    """What happens when it fails after the system is up."""

    strategy: Literal["one_for_one", "rest_for_one", "one_for_all"] = "one_for_one"
    """Restart it alone; or with those that come after it; or with all."""
    intensity: Annotated[int, Meta(ge=0)] = 3
    """Restarts within `period`; at the next failure it is quarantined."""
    period: Annotated[float, Meta(gt=0)] = 60.0
    backoff: tuple[Seconds, Seconds] = (0.1, 30.0)
    """Pause before the first restart, and the longest."""
    group: str = ""
    """Rows of one group live and die together."""


class Stop(_Section):
    """How long a stop may take, in seconds."""

    drain: Seconds = 30.0
    """To finish what is in flight."""
    term: Seconds = 5.0
    """After SIGTERM, before SIGKILL."""


class Swap(_Section):
    """How it is replaced while it serves."""

    mode: Literal["start_first", "stop_first"] = "start_first"


class Row(_Section):
    """One service of a table."""

    name: str
    impl: str = ""
    """package.module:Class of a Python service."""
    command: list[str] = []
    """Command line of any program that speaks the protocol."""
    protocol: str = ""
    """What it has to speak, as worker/1; empty: whatever it says."""
    after: list[str] | None = None
    """Rows that are READY before this one is set up; None: the row above."""
    replicas: Annotated[int, Meta(ge=1, le=1024)] = 1
    external: bool = False
    """Somebody runs it by hand; the start waits for it."""
    bind: str = ""
    """Where it serves others than this host's, as tcp://10.0.0.5:0 (0: a free port); empty: in the run directory."""
    curve: bool = False
    """Whether `bind` is served with CURVE also on loopback; elsewhere it always is."""
    all_interfaces: bool = False
    """Whether `bind` may stand for all interfaces of this machine."""
    ready: Ready = Ready()
    live: Live = Live()
    restart: Restart = Restart()
    stop: Stop = Stop()
    swap: Swap = Swap()
    env: dict[str, str] = {}
    cpus: str = ""
    """CPUs that it may use, as "0-1,3"; empty: all."""
    options: dict[str, Any] = {}
    """Options of the service itself."""

    @property
    def binding(self) -> Binding:
        """Where it serves."""
        return Binding(endpoint=self.bind, curve=self.curve, all_interfaces=self.all_interfaces)


def parse_cpus(text: str, where: str) -> frozenset[int] | None:
    """``0-1,3`` as a set; None for an empty text. Raises ConfigError."""
    if not text:
        return None
    cpus: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
        if match is None or (match[2] is not None and int(match[2]) < int(match[1])):
            raise ConfigError(f"{where}: cpus {text!r} is not of the form 0-1,3")
        cpus.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return frozenset(cpus)


class Table(Message):
    """Rows in start order, with every `after` spelled out and every replica a row of its own."""

    name: str
    rows: tuple[Row, ...]

    @classmethod
    def of(cls, name: str, rows: Iterable[Row], where: str = "") -> Table:
        """Validate rows, expand replicas, and order them. where: put before each error, as ``my.toml``."""
        checked = [_check_row(row, where or f"table {name}") for row in rows]
        if not checked:
            raise ConfigError(f"{where or f'table {name}'}: it has no [[service]]")
        spelled = _spell_out_after(checked, where or f"table {name}")
        return cls(name=name, rows=tuple(_ordered(_expand(spelled), where or f"table {name}")))

    def row(self, name: str) -> Row:
        """The row of a name. Raises ConfigError that lists the names there are."""
        for row in self.rows:
            if row.name == name:
                return row
        raise ConfigError(f"table {self.name} has no row {name!r}; it has: {', '.join(r.name for r in self.rows)}")

    def dependents(self, name: str) -> list[str]:
        """Names of the rows that come after `name`, directly or not, in start order."""
        found: set[str] = {name}
        for row in self.rows:
            if found & set(row.after or ()):
                found.add(row.name)
        return [row.name for row in self.rows if row.name in found and row.name != name]


def _check_row(row: Row, where: str) -> Row:
    at = f"{where}: service {row.name!r}"
    if not NAME.fullmatch(row.name) or "@" in row.name:
        raise ConfigError(f"{at}: a name is at most 40 lower-case letters, digits, - and _, and begins with a letter")
    given = bool(row.impl) + bool(row.command)
    if row.external and given:
        raise ConfigError(f"{at}: external = true is run by hand, so it has neither impl nor command")
    if not row.external and given != 1:
        raise ConfigError(f'{at}: it needs either impl = "module:Class" or command = [...], and not both')
    _check_binding(row, at)
    parse_cpus(row.cpus, at)
    if row.restart.backoff[0] > row.restart.backoff[1]:
        raise ConfigError(
            f"{at}: restart.backoff {list(row.restart.backoff)}: the first pause is longer than the longest"
        )
    return row


def _check_binding(row: Row, at: str) -> None:
    try:
        row.binding.check()
    except ConfigError as error:
        raise ConfigError(f"{at}: bind: {error}") from None
    if not row.bind:
        return
    if not row.bind.startswith("tcp://"):
        raise ConfigError(
            f"{at}: bind {row.bind!r}: expected tcp://ADDRESS:PORT; without it, it is on ipc in the run directory"
        )
    if row.external:
        raise ConfigError(f"{at}: bind: external = true is run by hand, with --bind {row.bind}")
    if row.replicas > 1 and parse_tcp(row.bind).port:
        raise ConfigError(f"{at}: bind {row.bind!r}: {row.replicas} replicas cannot share a port; 0 takes free ones")


def _spell_out_after(rows: list[Row], where: str) -> list[Row]:
    names = [row.name for row in rows]
    spelled = []
    for index, row in enumerate(rows):
        if names.index(row.name) != index:
            raise ConfigError(f"{where}: service {row.name!r} stands twice; replicas = N makes several of one")
        after = row.after if row.after is not None else names[max(0, index - 1) : index]
        for other in after:
            if other == row.name:
                raise ConfigError(f"{where}: service {row.name!r}: it cannot come after itself")
            if other not in names:
                raise ConfigError(f"{where}: service {row.name!r}: after names {other!r}, which is no row: {names}")
        spelled.append(msgspec.structs.replace(row, after=list(after)))
    return spelled


def _expand(rows: list[Row]) -> list[Row]:
    """Replica 0 keeps the name; the others are name@1, name@2, ... Who comes after a name comes after all of them."""
    replicas = {row.name: [row.name, *(f"{row.name}@{i}" for i in range(1, row.replicas))] for row in rows}
    return [
        msgspec.structs.replace(row, name=name, replicas=1, after=[r for a in row.after or () for r in replicas[a]])
        for row in rows
        for name in replicas[row.name]
    ]


def _ordered(rows: list[Row], where: str) -> list[Row]:
    """Table order, but for rows that name a later one in `after`. Raises ConfigError for a cycle, with its names."""
    placed: dict[str, Row] = {}
    waiting = list(rows)
    while waiting:
        row = next((r for r in waiting if all(a in placed for a in r.after or ())), None)
        if row is None:
            raise ConfigError(f"{where}: these services come after one another in a circle: {_names(waiting)}")
        placed[row.name] = row
        waiting.remove(row)
    return list(placed.values())


def _names(rows: list[Row]) -> str:
    return ", ".join(row.name for row in rows)
