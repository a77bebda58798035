"""The handler that libzmq asks: it answers whatever comes, lets nobody in by mistake, and ends with its last socket."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pytest
import zmq
from hypothesis import given, settings
from hypothesis import strategies as st
from zmq.utils import z85

from zmqengine.curve import KeyPair
from zmqengine.zap import ENDPOINT, KEPT, Guard, ZapHandler

from .conftest import wait_until

KEY = KeyPair.generate().public
RAW = z85.decode(KEY)


@pytest.fixture
def context() -> Iterator[zmq.Context[zmq.Socket[bytes]]]:
    made = zmq.Context()
    yield made
    made.term()


@pytest.fixture
def handler(context: zmq.Context[zmq.Socket[bytes]]) -> ZapHandler:
    return ZapHandler(context)


def request(guard: Guard, key: bytes = RAW, *, mechanism: bytes = b"CURVE", domain: str | None = None) -> list[bytes]:
    return [b"1.0", b"7", (domain or guard.domain).encode(), b"10.0.0.9", b"", mechanism, key]


class Asker:
    """In libzmq's place."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]]) -> None:
        self.socket = context.socket(zmq.REQ)
        self.socket.linger = 0
        self.socket.rcvtimeo = 5000
        self.socket.connect(ENDPOINT)

    def ask(self, frames: list[bytes]) -> list[bytes]:
        self.socket.send_multipart(frames)
        return self.socket.recv_multipart()


@pytest.fixture
def guard(handler: ZapHandler) -> Iterator[Guard]:
    made = handler.guard(lambda key: key == KEY)
    yield made
    made.close()


@pytest.fixture
def asker(context: zmq.Context[zmq.Socket[bytes]], guard: Guard) -> Iterator[Asker]:
    made = Asker(context)
    yield made
    made.socket.close()


def zap_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "zap"]


def test_an_allowed_key_is_admitted_and_becomes_the_user_of_its_messages(asker: Asker, guard: Guard) -> None:
    assert asker.ask(request(guard)) == [b"1.0", b"7", b"200", b"", KEY.encode(), b""]
    assert (guard.admitted, guard.refused) == (1, 0)


def test_an_unknown_key_is_answered_400_and_counted(asker: Asker, guard: Guard) -> None:
    other = KeyPair.generate().public
    assert asker.ask(request(guard, z85.decode(other)))[:4] == [b"1.0", b"7", b"400", b"this key is not allowed"]
    assert (guard.admitted, guard.refused) == (0, 1)
    assert guard.recent[-1] == (other, "10.0.0.9")


@pytest.mark.parametrize("mechanism", [b"NULL", b"PLAIN", b"GSSAPI", b"", b"curve"])
def test_any_other_mechanism_is_refused(asker: Asker, guard: Guard, mechanism: bytes) -> None:
    assert asker.ask(request(guard, mechanism=mechanism))[2] == b"400"
    assert guard.admitted == 0


def test_a_key_is_admitted_to_its_own_socket_alone(handler: ZapHandler, asker: Asker, guard: Guard) -> None:
    strict = handler.guard(lambda key: False)
    assert strict.domain != guard.domain
    assert asker.ask(request(guard, domain=strict.domain))[2] == b"400"
    assert asker.ask(request(guard))[2] == b"200"
    strict.close()
    assert asker.ask(request(guard, domain=strict.domain))[2] == b"400", "a socket that is closing takes nobody"
    assert asker.ask(request(guard, domain="no such socket"))[2] == b"400"


def test_a_fault_in_looking_up_a_key_refuses_it_and_ends_nothing(
    handler: ZapHandler, asker: Asker, guard: Guard, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: str) -> bool:
        raise OSError("the disk is gone")

    broken = handler.guard(fail)
    assert asker.ask(request(broken))[2:4] == [b"500", b"the server could not look up the key"]
    assert broken.refused == 1
    assert "the disk is gone" in caplog.text
    assert asker.ask(request(guard))[2] == b"200"
    broken.close()


@given(frames=st.lists(st.binary(max_size=40), min_size=1, max_size=9))
@settings(max_examples=200)
def test_whatever_is_asked_is_answered_and_nobody_is_admitted_by_it(frames: list[bytes]) -> None:
    context = zmq.Context.instance()
    handler = ZapHandler(context)
    reply = handler._answer(frames)
    assert len(reply) == 6
    assert reply[2] in (b"400", b"500")
    assert reply[4] == b""


def test_refusals_are_logged_once_a_second_and_kept_within_bounds(
    context: zmq.Context[zmq.Socket[bytes]], caplog: pytest.LogCaptureFixture
) -> None:
    now = [0.0]
    handler = ZapHandler(context, clock=lambda: now[0])
    guard = handler.guard(lambda key: False)
    asker = Asker(context)
    with caplog.at_level(logging.WARNING, "zmqengine.zap"):
        for _ in range(100):
            asker.ask(request(guard))
        assert len(caplog.records) == 1
        assert f"zmqengine keys allow '{KEY}'" in caplog.text
        now[0] += 1.0
        asker.ask(request(guard))
    assert "(and 99 more that were not logged)" in caplog.records[-1].getMessage()
    assert guard.refused == 101
    assert len(guard.recent) == KEPT
    asker.socket.close()
    guard.close()


def test_the_thread_ends_with_the_last_socket_and_comes_back_with_the_next(handler: ZapHandler) -> None:
    before = len(zap_threads())
    for _ in range(20):  # the name inproc://zeromq.zap.01 has to be free again at once
        first, second = handler.guard(lambda key: True), handler.guard(lambda key: True)
        assert len(zap_threads()) == before + 1
        first.close()
        first.close()
        assert len(zap_threads()) == before + 1, "one socket still needs it"
        second.close()
        assert len(zap_threads()) == before


def test_the_end_of_the_context_ends_the_thread_and_a_socket_closed_later_is_no_fault() -> None:
    context = zmq.Context()
    before = len(zap_threads())
    guard = ZapHandler(context).guard(lambda key: True)
    context.term()
    wait_until(lambda: len(zap_threads()) == before)
    guard.close()


def test_a_second_handler_of_one_context_is_refused_and_the_first_answers_on(
    context: zmq.Context[zmq.Socket[bytes]], asker: Asker, guard: Guard
) -> None:
    with pytest.raises(zmq.ZMQError):
        ZapHandler(context).guard(lambda key: True)
    assert asker.ask(request(guard))[2] == b"200"
