"""Services for the tests of launching: each behaves, or fails, in one way."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

from zmqengine import Config, Deferred, Interface, Service, call, stream


class Echo(Service, protocol="echo/1"):
    """Answers what it is told."""

    @call(idempotent=True)
    def echo(self, text: str) -> str:
        return text

    @call
    def hang(self) -> None:
        """Never returns."""
        threading.Event().wait()

    @stream
    def count(self, limit: int) -> Iterator[int]:
        yield from range(limit)


class Echo2(Echo):
    """Another implementation of the same protocol, which does more."""

    @call(idempotent=True)
    def echo(self, text: str) -> str:
        return text

    @call
    def twice(self, text: str) -> str:
        return text + text


class Greeting(Config):
    greeting: str = ""


class Configured(Echo):
    """Does what an option says."""

    config: Greeting

    @call(idempotent=True)
    def echo(self, text: str) -> str:
        return f"{self.config.greeting} {text}"


class OtherEcho(Service, protocol="echo/1"):
    """The same protocol by name; its methods differ."""

    @call(idempotent=True)
    def echo(self, text: int) -> int:
        return text

    @call
    def hang(self) -> None:
        """Never returns."""


class EchoInterface(Interface, protocol="echo/1"):
    @call(idempotent=True)
    def echo(self, text: str) -> str: ...
    @stream
    def count(self, limit: int) -> Iterator[int]: ...


class Relay(Service, protocol="relay/1"):
    """Asks the service `a`, on its loop."""

    @call
    def relay(self, text: str) -> Deferred[str]:
        answer: Deferred[str] = self.peer("a", EchoInterface).echo(text)
        return answer


class FaultConfig(Config):
    how: str = "raise"
    when: str = "setup"


class Faulty(Service, protocol="echo/1"):
    """Fails in the way and at the time that its options name."""

    config: FaultConfig

    def _fail(self, when: str) -> None:
        if when == self.config.when:
            fail(self.config.how)

    def setup(self) -> None:
        self._fail("setup")

    def selftest(self) -> None:
        self._fail("selftest")

    def drain(self, deadline_s: float) -> None:
        self._fail("drain")

    def teardown(self) -> None:
        self._fail("teardown")

    @call
    def fail(self, how: str) -> None:
        fail(how)


def fail(how: str) -> None:
    """End this process, or keep it from going on."""
    if how == "raise":
        raise RuntimeError("as it was told to")
    if how.startswith("exit"):
        print("last words", flush=True)
        os._exit(int(how.removeprefix("exit")))
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "segv":
        ctypes.string_at(0)
    if how == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    if how == "hang":
        threading.Event().wait()
    if how == "flood":
        for _ in range(20_000):
            print("x" * 200)
        raise RuntimeError("after a flood")
    if how == "child":
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        os._exit(1)
