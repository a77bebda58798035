"""Who is served where: soft state of the broker, built from HELLOs, and rebuilt from them after a restart."""

from __future__ import annotations

import time
from collections.abc import Callable

from .deferred import Deferred
from .errors import NotFound, Unavailable
from .health import Health, Hello
from .peer import Location
from .standby import service_name, standby_key


class Entry:
    """What is known of one incarnation of a service."""

    def __init__(self, name: str, incarnation: str, token: str, pid: int | None, now: float) -> None:
        self.name = name
        self.incarnation = incarnation
        self.token = token
        self.pid = pid
        self.peer: bytes | None = None
        """The connection that it said HELLO on first."""
        self.hello: Hello | None = None
        self.health: Health | None = None
        self.ready = False
        self.spawned_at = now
        self.hello_at: float | None = None
        self.imported_at: float | None = None
        self.setup_at: float | None = None
        self.ready_at: float | None = None

    def location(self) -> Location:
        """Where its calls go."""
        assert self.hello is not None
        hello = self.hello
        return Location(
            name=service_name(self.name), incarnation=self.incarnation, endpoint=hello.data, protocol=hello.protocol,
            schema=hello.schema, server_key=hello.server_key,
        )  # fmt: skip


class Registry:
    """Name to current incarnation; and those who wait for a name to be served."""

    def __init__(self, known: Callable[[], list[str]], clock: Callable[[], float] = time.monotonic) -> None:
        """known: the names that there may be an incarnation of; others are refused rather than waited for."""
        self._known = known
        self._clock = clock
        self._current: dict[str, Entry] = {}
        self._waiting: dict[str, list[Deferred[Location]]] = {}

    def get(self, name: str) -> Entry | None:
        """The current incarnation of a name."""
        return self._current.get(name)

    def of(self, name: str, incarnation: str) -> Entry | None:
        """This very incarnation, if it is the current one."""
        entry = self._current.get(name)
        return entry if entry is not None and entry.incarnation == incarnation else None

    def register(self, name: str, incarnation: str, token: str, pid: int | None) -> Entry:
        """A new incarnation takes the name. It is not served before `serve`."""
        entry = Entry(name, incarnation, token, pid, self._clock())
        self._current[name] = entry
        return entry

    def serve(self, entry: Entry) -> None:
        """It is READY: whoever waits for it is told."""
        entry.ready = True
        entry.ready_at = entry.ready_at or self._clock()
        for answer in self._waiting.pop(entry.name, []):
            answer.resolve(entry.location())

    def withdraw(self, entry: Entry) -> None:
        """It is not to be called any more."""
        entry.ready = False

    def resolve(self, name: str, wait: bool, why_not: Callable[[str], str]) -> Deferred[Location]:
        """Where `name` is served; with wait, when it is. why_not: says in words how a service is that is not READY."""
        answer: Deferred[Location] = Deferred()
        entry = self._current.get(name)
        if entry is not None and entry.ready:
            answer.resolve(entry.location())
        elif name not in self._known():
            names = ", ".join(sorted(self._known())) or "none"
            answer.reject(NotFound(f"this run has no service {name!r}; it has: {names}"))
        elif wait:
            waiting = self._waiting.setdefault(name, [])
            waiting.append(answer)
            answer.on_cancel(lambda: waiting.remove(answer) if answer in waiting else None)
        else:
            answer.reject(Unavailable(f"{name} is {why_not(name)}", retry_after_s=1.0))
        return answer

    def flip(self, name: str, retired: str) -> None:
        """The candidate of a name serves it from now on; the one that did is known by another key."""
        old, new = self._current[name], self._current.pop(standby_key(name))
        old.name, new.name, old.ready = retired, name, False
        self._current[retired], self._current[name] = old, new
        self.serve(new)

    def forget(self, name: str) -> None:
        """There is no service of that name any more."""
        self._current.pop(name, None)
        self.fail_waiting(name, f"{name} is not a service of this run any more")

    def fail_waiting(self, name: str, reason: str) -> None:
        """A name will not be served any more: tell those who wait for it."""
        for answer in self._waiting.pop(name, []):
            answer.reject(Unavailable(reason))
