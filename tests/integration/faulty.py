"""A stand-in service that meets one fault in one phase of its life, for the fault matrix.

``FAULT`` in its environment names both, as ``loading:exit1``. As a program (``python -m tests.integration.faulty``)
it meets the faults of the phase before HELLO, and is an ordinary child of the launcher from then on.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from zmqengine import Deferred, Service, bootstrap, call, envelope, transport, wire
from zmqengine.health import Hello
from zmqengine.spawn import SpawnInfo
from zmqengine.wire import Kind

FLOOD_LINES = 40_000
ANSWER_TIMEOUT_S = 5.0
OTHER_MAJOR = wire.MAJOR + 8

SPOKEN = ("wrong-protocol", "wrong-version", "wrong-token", "name-taken", "garbage-hello")
PHASE, _, FAULT = os.environ.get("FAULT", ":").partition(":")
PROTOCOL = "other/1" if PHASE == "hello" and FAULT == "wrong-protocol" else "faulty/1"


def meet(phase: str) -> None:
    """Meet the fault, if this is its phase; when it happened is written down, to measure how soon it is named."""
    if phase == PHASE:
        met = Path(os.environ["FAULT_MARK"])
        met.with_suffix(".new").write_text(str(time.monotonic()))
        met.with_suffix(".new").replace(met)
        if phase == "hello" and FAULT in SPOKEN:
            speak_wrongly()
        else:
            ACTS[FAULT]()


def hang_everything() -> None:
    """Deaf to SIGTERM, and no thread of it gets the interpreter again: its control thread is dead too."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    pause = ctypes.PyDLL(None).pause  # called without letting go of the interpreter's lock
    while True:
        pause()


def raise_it() -> None:
    raise RuntimeError("as it was told to")


def flood() -> None:
    for number in range(FLOOD_LINES):
        print(f"{number:<200}")


def leave_children() -> None:
    """Two that outlive a signal to it alone: one in its group, one in a session of its own."""
    code = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('here', flush=True); signal.pause()"
    for new_session in (False, True):
        child = subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=new_session, text=True
        )
        assert child.stdout is not None
        assert child.stdout.readline() == "here\n"
        child.stdout.close()
    print("two children stay", flush=True)


def say_wrong_hello(what: str) -> None:
    """Beside its own connection, say a HELLO that has to be refused; the answer is printed."""
    info = SpawnInfo.from_environ()
    assert info is not None
    frame = _wrong_hello(info, what)
    link = transport.Link(info.broker, "broker")
    until = time.monotonic() + ANSWER_TIMEOUT_S
    try:
        while not link.send(frame):
            assert time.monotonic() < until, "the broker cannot be reached"
        answer = None
        while answer is None:
            assert time.monotonic() < until, "the broker does not answer"
            answer = link.receive_soon()
        if PHASE == "hello":
            return  # a program that does not look at answers, and waits
        kind, body = envelope.decode(answer[0])
        print(f"{what}: {kind.name} {bytes(body.body)!r}", flush=True)
    finally:
        link.close()


def _wrong_hello(info: SpawnInfo, what: str) -> bytes:
    if what == "garbage-hello":
        return b"\x00garbage" * 100
    mine = Hello(
        name=info.name, pid=os.getpid(), incarnation=info.incarnation, token=info.token, data=info.endpoint("data"),
        control=info.endpoint("control"), protocol="faulty/1",
    )  # fmt: skip
    wrong = {
        "wrong-protocol": {"protocol": "other/1"},
        "wrong-token": {"token": "0" * 32},
        "name-taken": {"name": "before", "token": "", "incarnation": "0" * 12},
    }
    frame = envelope.encode(Kind.HELLO, call_id=1, body=msgspec.structs.replace(mine, **wrong.get(what, {})))
    return frame[:2] + bytes((OTHER_MAJOR,)) + frame[3:] if what == "wrong-version" else frame


ACTS: dict[str, Callable[[], object]] = {
    "exit0": lambda: os._exit(0),
    "exit1": lambda: os._exit(1),
    "exception": raise_it,
    "sigkill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "segv": lambda: ctypes.string_at(0),
    "abort": os.abort,
    "sigstop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "hang-loop": lambda: threading.Event().wait(),
    "hang-all": hang_everything,
    "flood": flood,
    "child": leave_children,
    **{fault: lambda: say_wrong_hello(FAULT) for fault in SPOKEN},
}


def speak_wrongly() -> None:
    """The faults of the HELLO itself: what this process will say of itself is wrong."""
    if FAULT == "wrong-token":
        os.environ["ZMQENGINE_TOKEN"] = "0" * 32
    elif FAULT == "name-taken":
        os.environ.update(ZMQENGINE_NAME="before", ZMQENGINE_TOKEN="")
    elif FAULT == "wrong-version":
        wire.MAJOR = OTHER_MAJOR
        for kind in Kind:
            envelope._PREAMBLE[kind] = wire.MAGIC + bytes((OTHER_MAJOR, kind))
        envelope._KINDS.clear()
        envelope._KINDS.update({preamble: kind for kind, preamble in envelope._PREAMBLE.items()})
    elif FAULT == "garbage-hello":
        say_wrong_hello(FAULT)
        threading.Event().wait()


class Faulty(Service, protocol=PROTOCOL):
    """Serves calls that take a while, until its fault comes."""

    def setup(self) -> None:
        meet("loading")

    def selftest(self) -> None:
        meet("selftest")

    def drain(self, deadline_s: float) -> None:
        meet("draining")

    def teardown(self) -> None:
        meet("stopping")

    @call(idempotent=True)
    def hold(self, seconds: float) -> Deferred[bool]:
        """Answers after a while; others are served meanwhile."""
        answer: Deferred[bool] = Deferred()
        self.loop.call_later(seconds, lambda: answer.resolve(True))
        return answer

    @call
    def arm(self) -> None:
        """The fault comes once this is answered, and nothing is in flight."""
        self.loop.call_later(0.05, lambda: meet("idle"))

    @call
    def strike(self) -> None:
        """The fault comes now."""
        meet("busy")


if __name__ == "__main__":
    meet("hello")
    sys.argv = [sys.argv[0], "tests.integration.faulty:Faulty"]
    sys.exit(bootstrap.main())
else:
    meet("importing")
