"""The base class of a service: what a user subclasses."""

from __future__ import annotations

import inspect
import logging
import typing
from collections.abc import Callable
from typing import Any

from .errors import UsageError
from .interface import Interface
from .message import Config

if typing.TYPE_CHECKING:
    from .host import Host
    from .loop import Loop
    from .peer import Peer
    from .tracer import Tracer


class Service(Interface):
    """A standalone process that serves an interface.

    Subclasses are declared with their protocol, ``class Counter(Service, protocol="counter/1")``, or inherit it from
    an `Interface`. An annotation ``config: CounterConfig`` names the class of the options. Hooks and handlers run on
    one thread; those that take long are declared ``thread=True`` or are `async def`.
    """

    config: Config = Config()

    if typing.TYPE_CHECKING:
        _host: Host

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name, method in cls.methods.items():
            if getattr(cls, name, None) is None or _declared_only(cls, name):
                raise UsageError(f"{cls.__qualname__} does not implement {method.name!r} of {cls.protocol}")

    # Hooks

    @classmethod
    def preload(cls) -> None:
        """Import what takes long to import. It runs while those that the service comes after still start, so it must
        not need them, nor its options. What it raises fails the start."""

    def tracer(self) -> Tracer | None:
        """What makes spans of the calls that are served; asked once, after setup. None: nothing does."""
        return None

    def queued(self) -> int:
        """How much waits in it, for those who watch. Asked by the control thread: to be read off one value."""
        return 0

    def setup(self) -> Any:
        """Load what is needed (state LOADING). What it raises fails the start. May be `async def`."""

    def selftest(self) -> Any:
        """Check that it works; READY comes behind it. What it raises fails the start. May be `async def`."""

    def drain(self, deadline_s: float) -> Any:
        """New calls are refused from now on; end what would not end by itself. May be `async def`."""

    def teardown(self) -> Any:
        """Free what setup took; called also when setup failed. May be `async def`."""

    # What a service may use

    @property
    def name(self) -> str:
        """The name it is served under."""
        return self._host.info.name

    @property
    def incarnation(self) -> str:
        """This run of it."""
        return self._host.info.incarnation

    @property
    def log(self) -> logging.Logger:
        """Its logger."""
        return logging.getLogger(type(self).__module__)

    @property
    def loop(self) -> Loop:
        """The loop that it runs on."""
        return self._host.loop

    def publish(self, event: str, value: Any) -> None:
        """Tell the listeners of an event method that its state has changed. During setup nobody listens yet."""
        self._host.publish(event, value)

    def peer(self, name: str, interface: type[Interface]) -> Peer:
        """Another service of the run, resolved when it is first called, and followed to its new incarnations."""
        return self._host.peer(name, interface)

    def progress(self, done: float, total: float, what: str) -> None:
        """Say how far a long setup is; this renews the launcher's progress timeout."""
        self._host.progress(done, total, what)

    def busy(self, seconds: float) -> None:
        """Say that the current turn may take this long: it is not taken for a stall meanwhile."""
        self._host.loop.busy_until = self._host.loop.clock() + seconds

    def announce(self, **what: str) -> None:
        """Say what is offered beside the protocol, as ``url="http://127.0.0.1:8000"``."""
        self._host.announce(what)

    @classmethod
    def config_type(cls) -> type[Config]:
        """The class of the options."""
        return typing.cast("type[Config]", typing.get_type_hints(cls)["config"])

    @classmethod
    def is_asynchronous(cls) -> bool:
        """Whether it needs asyncio: it has a handler or a hook that is `async def`."""
        names = [*cls.methods, "setup", "selftest", "drain", "teardown"]
        return any(_is_async(getattr(cls, name)) for name in names)

    @classmethod
    def main(cls) -> None:
        """Run it in this terminal: what ``if __name__ == "__main__"`` calls. Does not return."""
        from .by_hand import main

        main(cls)


def _declared_only(cls: type, name: str) -> bool:
    """Whether `name` stands in an interface alone, and no Service class implements it."""
    owner = next((c for c in cls.__mro__ if name in vars(c)), None)
    return owner is not None and not issubclass(owner, Service)


def _is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
