"""What real sockets do where it is not obvious: what was sent last arrives, and who speaks another version is told."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from zmqengine import envelope
from zmqengine.connection import Connection
from zmqengine.errors import RemoteProtocolError
from zmqengine.health import Welcome
from zmqengine.transport import Link, Port, Sent, somebody_listens
from zmqengine.wire import Kind

from .conftest import wait_until


def connected(port: Port, link: Link) -> bytes:
    """The identity of a link, once its first message has come."""
    wait_until(lambda: link.send(b"hello"))
    received = wait_until(port.receive)
    assert received is not None
    identity: bytes = received[0]
    return identity


def lost(link: Link) -> bool:
    link.watch()
    return link.lost is not None


def test_what_a_peer_sent_before_it_closed_is_there_after_its_connection_broke(tmp_path: Path) -> None:
    for _ in range(20):  # it was lost in every second case while links had IMMEDIATE set
        port = Port(f"ipc://{tmp_path}/port")
        link = Link(port.endpoint, "peer")
        identity = connected(port, link)
        assert [port.send(identity, b"%d" % number) for number in range(100)] == [Sent.OK] * 100
        port.close()
        wait_until(lambda link=link: lost(link))
        received = [link.receive() for _ in range(100)]
        link.close()
        assert received == [[b"%d" % number] for number in range(100)]


LAST_WORDS = """
import sys, time
from zmqengine import transport
link = transport.Link(sys.argv[1], "peer")
for number in range(1000):
    while not link.send(b"x" * 10_000):
        time.sleep(0.001)
link.close()
transport.finish()
"""


def test_what_a_process_sent_last_arrives_though_it_ends_at_once(tmp_path: Path) -> None:
    port = Port(f"ipc://{tmp_path}/port")
    child = subprocess.Popen([sys.executable, "-c", LAST_WORDS, port.endpoint])
    for _ in range(1000):
        wait_until(port.receive)
    assert child.wait(10) == 0
    port.close()


def test_a_process_whose_peer_never_listened_still_ends_soon(tmp_path: Path) -> None:
    code = LAST_WORDS.replace("range(1000)", "range(1)")
    started = time.monotonic()
    assert subprocess.run([sys.executable, "-c", code, f"ipc://{tmp_path}/nobody"], timeout=30).returncode == 0
    assert time.monotonic() - started < 5


def test_a_peer_of_another_major_version_fails_all_calls_at_once(tmp_path: Path) -> None:
    port = Port(f"ipc://{tmp_path}/port")
    link = Link(port.endpoint, "peer")
    connection = Connection(link)
    answer = connection.ask(Kind.HEALTH, None, Welcome, None)
    received = wait_until(lambda: connection.turn() or port.receive())
    error = envelope.encode(Kind.ERROR, body={"code": "protocol_error", "message": "no"})
    port.send(received[0], error[:2] + b"\x09" + error[3:])
    wait_until(lambda: connection.turn() or answer.done)
    assert isinstance(answer.error, RemoteProtocolError)
    assert "protocol major 9 is not spoken here" in str(answer.error)
    connection.close()
    port.close()


def test_a_socket_file_is_told_from_one_that_is_served(tmp_path: Path) -> None:
    port = Port(f"ipc://{tmp_path}/port")
    path = tmp_path / "port"
    assert somebody_listens(str(path))
    (tmp_path / "other").hardlink_to(path)
    port.close()
    wait_until(lambda: not somebody_listens(str(tmp_path / "other")))
    assert not somebody_listens(str(tmp_path / "absent"))
