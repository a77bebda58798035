"""A service's control thread: answers health, drain and stop while the main thread imports, loads or computes.

It owns the control socket and the link to the broker, and runs a `PollLoop` of its own.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable

import msgspec

from . import envelope, parent, transport
from .connection import Connection
from .deferred import Deferred
from .dispatcher import Dispatcher
from .envelope import Envelope
from .errors import PeerLost, RemoteProtocolError, ZmqEngineError
from .health import Drain, Hello, Welcome
from .poll_loop import PollLoop
from .vitals import Vitals
from .wire import Kind

log = logging.getLogger(__name__)

_drain_decoder = msgspec.msgpack.Decoder(Drain)


class ControlThread:
    """Runs until `stop`. Its callbacks are called on the control thread."""

    def __init__(
        self,
        vitals: Vitals,
        data_endpoint: str,
        control_endpoint: str,
        *,
        server_key: str = "",
        on_drain: Callable[[Drain], object],
        on_stop: Callable[[str], object],
    ) -> None:
        self.vitals = vitals
        self.welcome: Deferred[Welcome] | None = None
        self.refused: ZmqEngineError | None = None
        self.released = threading.Event()
        self.options = vitals.info.options
        self.endpoint = ""
        self._data_endpoint = data_endpoint
        self._server_key = server_key
        self._control_endpoint = control_endpoint
        self._on_drain = on_drain
        self._on_stop = on_stop
        self._broker: Connection | None = None
        self._dials = 0
        self._started = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="control", daemon=True)

    def start(self) -> None:
        """Start, and return once the control socket is bound. Raises what kept it from that."""
        self._thread.start()
        self._started.wait()
        if self._failure is not None:
            raise self._failure

    def announce(self) -> None:
        """The vitals have changed: tell the broker at once rather than at its next probe. From any thread."""
        if self._thread.is_alive():
            self._loop.call_threadsafe(self._tell_health)

    def say_hello(self) -> None:
        """The code is imported: say so, and ask for the release to setup. From any thread."""
        self._loop.call_threadsafe(self._hello)

    def stop(self) -> None:
        """Say BYE to the broker, close the sockets, and end the thread."""
        if self._thread.is_alive():
            self._loop.call_threadsafe(self._bye)
            self._thread.join(timeout=2.0)

    def _run(self) -> None:
        try:
            port, loop = self._open()
        except BaseException as error:
            self._failure = error
            return
        finally:
            self._started.set()
        loop.run()
        loop.close()
        port.close()

    def _open(self) -> tuple[transport.Port, PollLoop]:
        """Bind, and dial the broker."""
        port = transport.Port(self._control_endpoint)
        self._loop = loop = PollLoop()
        self.endpoint = port.endpoint
        info = self.vitals.info
        dispatcher = Dispatcher(
            port, loop, {}, where=f"{info.name} control", incarnation=info.incarnation, describe=lambda: None
        )
        dispatcher.lifecycle = {
            Kind.HEALTH: lambda identity, m: dispatcher.reply_to(identity, Kind.REPLY, m.call_id, self.vitals.health()),
            Kind.DRAIN: lambda identity, m: self._drain(dispatcher, identity, m),
            Kind.BYE: lambda identity, m: self._stop_asked(dispatcher, identity, m),
        }
        loop.serve(dispatcher)
        if info.death_fd >= 0:
            os.set_blocking(info.death_fd, False)
            loop.watch_fd(info.death_fd, self._launcher_gone)
        if info.broker:
            self._dial()
        return port, loop

    def _launcher_gone(self) -> None:
        """Readable means closed: nobody ever writes into this pipe."""
        parent.kill_own_group()

    def _dial(self) -> None:
        link = transport.Link(self.vitals.info.broker, "broker")
        self._broker = Connection(link, touched=self._loop.touch)
        self._loop.add_connection(self._broker)
        self._hello()

    def _hello(self) -> None:
        vitals, info = self.vitals, self.vitals.info
        if self._broker is None:
            self.released.set()  # nobody to ask: a service that runs alone
            return
        hello = Hello(
            name=info.name, pid=os.getpid(), incarnation=info.incarnation, token=info.token, data=self._data_endpoint,
            control=self.endpoint, protocol=vitals.protocol, schema=vitals.schema, methods=vitals.methods,
            config=vitals.config_digest, server_key=self._server_key,
        )  # fmt: skip
        self._broker.ask(Kind.HELLO, hello, Welcome, None).add_done_callback(self._welcomed)

    def _welcomed(self, answer: Deferred[Welcome]) -> None:
        error = answer.error
        if error is None:
            self._dials = 0
            if answer.value.released:
                self.options = answer.value.options or self.options
                self.released.set()
        elif self._broker is not None and self._broker.broken is error and isinstance(error, PeerLost):
            # The broker is gone. A service with a death pipe ends with it; any other goes on serving, and dials again.
            self._loop.remove_connection(self._broker)
            self._dials += 1
            from .retry import REDIAL_BROKER  # tenacity takes 0.1 s to import, and most services never need it here

            self._loop.call_later(REDIAL_BROKER.delay_s(self._dials), self._dial)
        else:
            self.refused = error if isinstance(error, ZmqEngineError) else RemoteProtocolError(str(error))
            self.released.set()

    def _tell_health(self) -> None:
        if self._broker is not None and self._broker.broken is None:
            self._broker.notify(Kind.HEALTH, self.vitals.health())

    def _drain(self, dispatcher: Dispatcher, identity: bytes, message: Envelope) -> None:
        drain = envelope.decode_body(_drain_decoder, message.body, "DRAIN")
        dispatcher.reply_to(identity, Kind.REPLY, message.call_id, None)
        self._on_drain(drain)

    def _stop_asked(self, dispatcher: Dispatcher, identity: bytes, message: Envelope) -> None:
        dispatcher.reply_to(identity, Kind.REPLY, message.call_id, None)
        self._on_stop("the launcher asked it to stop")

    def _bye(self) -> None:
        if self._broker is not None and self._broker.broken is None:
            self._broker.notify(Kind.BYE, self.vitals.health())
            self._broker.flush()
        self._loop.stopping = True
