"""Takes one incarnation of a service through its life: bind, HELLO, import, setup, selftest, serve, drain, stop."""

from __future__ import annotations

import hashlib
import inspect
import json
import logging
import signal
import threading
from collections.abc import Callable
from typing import Any, NoReturn

import msgspec

from . import transport
from .control import ControlThread
from .deferred import Deferred
from .dispatcher import Dispatcher, Handler
from .envelope import Envelope, describe_fault
from .errors import ConfigError, StaleIncarnation, Unavailable, UsageError, ZmqEngineError
from .events import Topic
from .health import Drain, Progress
from .interface import Interface
from .lifecycle import State
from .loop import Loop
from .message import Config
from .peer import Peer
from .peers import Peers
from .poll_loop import PollLoop
from .service import Service
from .spawn import SpawnInfo
from .vitals import Vitals
from .wire import Kind

log = logging.getLogger(__name__)

REDIRECT_S = 1.0
"""How long one that was replaced stays, so that those who call it all the time are sent to the next one, rather than
find it gone with their call. Who calls less often looks first whether it is there."""
EXIT_FAILED = 1
EXIT_STOPPED = 0


class StopAsked(BaseException):
    """A stop was asked for while the main thread was importing or loading: unwinds it."""


def validated_config(cls: type[Config], options: str, service: str) -> Config:
    """A service's options. Raises ConfigError that names the service and the key."""
    try:
        return msgspec.convert(json.loads(options), cls, strict=False)
    except (msgspec.ValidationError, ValueError) as error:
        raise ConfigError(f"options of {describe_fault(error, service)}") from None


class Host:
    """Runs one service incarnation in this process. `run` returns its exit code."""

    def __init__(self, info: SpawnInfo, load: Callable[[], type[Service]]) -> None:
        """load: imports and returns the implementation; called once the launcher knows that this process lives."""
        self.info = info
        self.vitals = Vitals(info)
        self._load = load
        self._stop_reason: str | None = None
        self._ending = False
        self._drain_timer: Any = None
        self._service: Service | None = None
        self._peers: Peers | None = None
        self._superseded = False
        self._redirect_until = 0.0
        self._topics: dict[str, Topic[Any]] = {}
        self._on_ready: Callable[[], object] = lambda: None
        self.loop: Loop
        self.control: ControlThread
        self.endpoint = ""
        self.server_key = ""

    # Life

    def run(self, on_ready: Callable[[], object] = lambda: None) -> int:
        """Serve until stopped or failed; the exit code. on_ready is called once, when it is READY."""
        self._on_ready = on_ready
        port = self._open_port()
        self.endpoint, self.server_key = port.endpoint, port.server_key
        self.control = ControlThread(
            self.vitals, port.endpoint, self.info.endpoint("control"), server_key=port.server_key,
            on_drain=self._drain_asked, on_stop=self.stop,
        )  # fmt: skip
        previous = self._take_signals()
        try:
            self.control.start()
            cls = self._import()
            if cls.is_asynchronous():
                import asyncio

                asyncio.run(self._live_on_asyncio(cls, port))
            else:
                self._live_on_poller(cls, port)
            return EXIT_STOPPED
        except StopAsked as stop:
            self._ending = True
            self._become(State.STOPPED)
            log.info("stopped while it was starting: %s", stop)
            return EXIT_STOPPED
        except Exception as error:
            self._failed(error)
            return EXIT_FAILED
        finally:
            self.control.stop()
            port.close()
            for number, handler in previous.items():
                signal.signal(number, handler)

    def _open_port(self) -> transport.Port:
        binding = self.info.binding
        binding.check()
        if not binding.needs_keys:
            if binding.endpoint.startswith("tcp://"):
                log.warning("%s is served in plain: every user of this machine can call it", binding.endpoint)
            return transport.Port(binding.endpoint)
        from .guarded_port import GuardedPort
        from .keys import folder_of  # most services have no need of keys

        server = folder_of(self.info.run_dir).server(binding.endpoint)
        port = GuardedPort(binding.endpoint, server, all_interfaces=binding.all_interfaces)
        guard = port.guard
        assert guard is not None
        self.vitals.refused = lambda: guard.refused
        return port

    def stop(self, reason: str) -> None:
        """Stop now: calls in flight are answered `unavailable`. From any thread."""
        self._stop_reason = self._stop_reason or reason
        if self.vitals.state in (State.READY, State.DRAINING):
            self.loop.stop()
        elif threading.current_thread() is not threading.main_thread():
            signal.raise_signal(signal.SIGTERM)  # the main thread unwinds from wherever it is

    def _import(self) -> type[Service]:
        cls = self._load()
        self.vitals.protocol = cls.protocol
        self.vitals.schema, self.vitals.methods = cls.fingerprint(), cls.method_digests()
        self.control.say_hello()
        self.progress(0, 0, "importing")
        cls.preload()
        self.vitals.progress = None
        self.control.released.wait()
        if self.control.refused is not None:
            raise self.control.refused
        return cls

    def _configured(self, cls: type[Service]) -> Service:
        options = self.control.options
        self.vitals.config_digest = hashlib.blake2b(options.encode(), digest_size=8).hexdigest()
        service = cls()
        service._host = self
        service.config = validated_config(cls.config_type(), options, self.info.name)
        self._service = service
        return service

    def _live_on_poller(self, cls: type[Service], port: transport.Port) -> None:
        loop = PollLoop()
        self.loop = self.vitals.loop = loop
        try:
            service = self._configured(cls)
            self._become(State.LOADING)
            try:
                service.setup()
                service.selftest()
                self._serve(service, port)
                loop.run()
                self._leave()
            finally:
                service.teardown()
        finally:
            loop.close()

    async def _live_on_asyncio(self, cls: type[Service], port: transport.Port) -> None:
        import asyncio

        from .asyncio_loop import AsyncioLoop

        loop = AsyncioLoop()
        self.loop = self.vitals.loop = loop
        main = asyncio.current_task()
        assert main is not None
        try:
            service = self._configured(cls)
            self._become(State.LOADING)
            try:
                await _maybe(service.setup())
                await _maybe(service.selftest())
                self._serve(service, port)
                await loop.run()
                self._leave()
            finally:
                await _maybe(service.teardown())
        finally:
            await loop.close()

    def _serve(self, service: Service, port: transport.Port) -> None:
        cls = type(service)
        self._topics = {n: Topic(getattr(service, n)) for n, method in cls.methods.items() if method.kind == "event"}
        handlers = {
            name: Handler(method, self._topics[name].subscribe if name in self._topics else getattr(service, name))
            for name, method in cls.methods.items()
        }
        dispatcher = Dispatcher(
            port, self.loop, handlers, where=cls.protocol, incarnation=self.info.incarnation, describe=cls.schema,
            touched=self.loop.touch,
        )  # fmt: skip
        dispatcher.refusal = self._refusal
        dispatcher.tracer = service.tracer()
        self.vitals.queued = service.queued
        dispatcher.lifecycle[Kind.HEALTH] = lambda identity, m: self._answer_health(dispatcher, identity, m)
        self.loop.serve(dispatcher)
        if self._stop_reason is not None:
            raise StopAsked(self._stop_reason)
        self._become(State.READY)
        self._on_ready()

    def _answer_health(self, dispatcher: Dispatcher, identity: bytes, message: Envelope) -> None:
        dispatcher.reply_to(identity, Kind.REPLY, message.call_id, self.vitals.health())

    def _refusal(self) -> ZmqEngineError | None:
        if self.vitals.state is State.READY:
            return None
        if self._superseded:
            return StaleIncarnation(f"another incarnation serves {self.info.name} by now")
        return Unavailable(f"{self.info.name} is {self.vitals.state.value.lower()}", retry_after_s=1.0)

    def _leave(self) -> None:
        if self.loop.dispatcher is not None:
            self.loop.dispatcher.abandon_all(f"{self.info.name} stops: {self._stop_reason or 'it was asked to'}")
        self._become(State.STOPPED)

    def _failed(self, error: Exception) -> None:
        self._ending = True
        self.vitals.error = f"{type(error).__name__}: {error}"
        self._become(State.FAILED)
        expected = isinstance(error, ZmqEngineError)
        log.error("failed: %s", self.vitals.error, exc_info=None if expected else error)

    def _become(self, state: State) -> None:
        self.vitals.state = state
        self.control.announce()

    # Drain and signals

    def _drain_asked(self, drain: Drain) -> None:
        """On the control thread."""
        self._superseded = drain.superseded
        if self.vitals.state is State.READY:
            self.loop.call_threadsafe(lambda: self._drain(drain.deadline_s))
        else:
            self.stop("it was asked to drain before it was ready")

    def _drain(self, deadline_s: float) -> None:
        if self.vitals.state is not State.READY or self._service is None:
            return
        self._become(State.DRAINING)
        self._stop_reason = "drained"
        hook: Deferred[None] = Deferred()
        hook.add_done_callback(_log_failed_drain)
        try:
            result = self._service.drain(deadline_s)
        except Exception as error:
            hook.reject(error)
        else:
            if inspect.iscoroutine(result):
                self.loop.run_coroutine(result, hook)
            else:
                hook.resolve(None)
        now = self.loop.clock()
        self._redirect_until = now + (min(REDIRECT_S, deadline_s) if self._superseded else 0.0)
        self._check_drained(now + deadline_s, hook)

    def _check_drained(self, until: float, hook: Deferred[None]) -> None:
        """Stop once the hook is done and nothing is in flight, or at the deadline."""
        dispatcher = self.loop.dispatcher
        assert dispatcher is not None
        quiet = hook.done and dispatcher.in_flight == 0 and not dispatcher.blocked
        quiet = quiet and self.loop.clock() >= self._redirect_until
        if quiet or self.loop.clock() >= until:
            self.loop.stop()
        else:
            # Calls end in many places; looking 50 times a second while draining costs less than a hook in each.
            self.loop.call_later(0.02, lambda: self._check_drained(until, hook))

    def _take_signals(self) -> dict[int, Any]:
        if threading.current_thread() is not threading.main_thread():
            return {}
        return {
            number: signal.signal(number, self._on_signal) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        }

    def _on_signal(self, number: int, _frame: Any) -> None:
        if self._ending:
            return  # it ends by itself: to unwind that would lose what it has still to say
        reason = self._stop_reason or f"signal {signal.Signals(number).name}"
        self._stop_reason = reason
        if self.vitals.state in (State.READY, State.DRAINING):
            self.loop.stop()
        else:
            self._unwind(reason)

    @staticmethod
    def _unwind(reason: str) -> NoReturn:
        raise StopAsked(reason)

    # For the service

    def progress(self, done: float, total: float, what: str) -> None:
        """Say how far setup is."""
        self.vitals.progress = Progress(done=done, total=total, what=what)

    def announce(self, what: dict[str, str]) -> None:
        """Say what is offered beside the protocol."""
        self.vitals.announced = {**self.vitals.announced, **what}
        self.control.announce()

    def publish(self, name: str, value: Any) -> None:
        """Tell a change of an event's state."""
        topic = self._topics.get(name)
        if topic is not None:
            topic.publish(value)
        elif self._service is None or name not in type(self._service).methods:
            raise UsageError(f"publish({name!r}): it has no event of that name")

    def peer(self, name: str, interface: type[Interface]) -> Peer:
        """A peer, by name; all peers of one name share a connection."""
        if self._peers is None:
            info = self.info
            self._peers = Peers(
                self.loop, broker=info.broker, given=json.loads(info.peers), owner=info.name,
                keys=json.loads(info.peer_keys), run_dir=info.run_dir,
            )  # fmt: skip
        return self._peers.peer(name, interface)


async def _maybe(result: Any) -> None:
    if inspect.isawaitable(result):
        await result


def _log_failed_drain(hook: Deferred[None]) -> None:
    if hook.error is not None:
        log.error("drain failed", exc_info=hook.error)
