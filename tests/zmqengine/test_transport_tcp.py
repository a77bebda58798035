"""tcp on real sockets: the right keys connect, and everyone else is told within a moment what is wrong."""

from __future__ import annotations

import asyncio
import json
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from zmqengine import Service, aconnect, call, connect, stream
from zmqengine.by_hand import build_command
from zmqengine.client import Client
from zmqengine.curve import CurveClient, CurveServer, KeyPair
from zmqengine.errors import ConfigError, HandshakeFailed, PeerLost, ZmqEngineError
from zmqengine.guarded_port import GuardedPort
from zmqengine.keys import KeyFolder
from zmqengine.peer import Location
from zmqengine.private_files import write_private
from zmqengine.retry import RETRY_CALL, may_call_again
from zmqengine.transport import Link, Port, Sent

from .by_hand_process import ByHand
from .conftest import wait_until

TOLD_WITHIN_S = 2.0
SERVICE = """
from collections.abc import Iterator
from zmqengine import Service, call, stream
class Counter(Service, protocol="counter/1"):
    @call(idempotent=True)
    def twice(self, x: int) -> int:
        return 2 * x
    @stream
    def endless(self) -> Iterator[int]:
        n = 0
        while True:
            n += 1
            yield n
Counter.main()
"""


class Counter(Service, protocol="counter/1"):
    @call(idempotent=True)
    def twice(self, x: int) -> int:
        return 2 * x

    @stream
    def endless(self) -> Iterator[int]:
        yield 1


SERVER, CLIENT, STRANGER = KeyPair.generate(), KeyPair.generate(), KeyPair.generate()


@pytest.fixture
def allowed() -> set[str]:
    return {CLIENT.public}


@pytest.fixture
def port(allowed: set[str]) -> Iterator[GuardedPort]:
    made = GuardedPort("tcp://127.0.0.1:0", CurveServer(SERVER, lambda key: key in allowed))
    yield made
    made.close()


def dialled(port: Port, pair: KeyPair | None, server_key: str = SERVER.public) -> Link:
    link = Link(port.endpoint, "counter", None if pair is None else CurveClient(server_key, pair))
    link.send(b"hello")
    return link


def why_lost(link: Link) -> str:
    """What the link says about its end, which has to come soon."""

    def lost() -> PeerLost | None:
        link.watch()
        return link.lost

    error = wait_until(lost, TOLD_WITHIN_S)
    link.close()
    return str(error)


# What is bound


@pytest.mark.parametrize("endpoint", ["tcp://10.0.0.5:0", "tcp://192.0.2.1:5555", "tcp://eth0:0", "tcp://[fe80::1]:0"])
def test_an_address_beyond_loopback_is_not_bound_without_keys(endpoint: str) -> None:
    with pytest.raises(ConfigError, match=r"CURVE keys and a list of who may connect.*zmqengine keys"):
        Port(endpoint)


@pytest.mark.parametrize("host", ["*", "0.0.0.0", "[::]"])
def test_all_interfaces_are_not_bound_unless_asked_for_and_then_only_with_keys(host: str, allowed: set[str]) -> None:
    server = CurveServer(SERVER, lambda key: key in allowed)
    with pytest.raises(ConfigError, match="all_interfaces"):
        Port(f"tcp://{host}:0", server)
    with pytest.raises(ConfigError, match="CURVE keys"):
        Port(f"tcp://{host}:0", all_interfaces=True)


def test_all_interfaces_that_are_asked_for_are_told_to_this_host_as_one_that_can_be_dialled(allowed: set[str]) -> None:
    port = GuardedPort("tcp://*:0", CurveServer(SERVER, lambda key: key in allowed), all_interfaces=True)
    assert port.endpoint.startswith("tcp://127.0.0.1:")
    link = dialled(port, CLIENT)
    assert wait_until(port.receive)[1] == [b"hello"]
    link.close()
    port.close()


def test_loopback_is_served_in_plain_where_it_is_named(tmp_path: Path) -> None:
    for host in ("127.0.0.1", "localhost"):
        port = Port(f"tcp://{host}:0")
        assert port.server_key == ""
        link = dialled(port, None)
        assert wait_until(port.receive)[1] == [b"hello"]
        link.close()
        port.close()


def test_a_port_that_is_taken_is_named_and_leaves_no_thread_behind(port: GuardedPort) -> None:
    before = threading.active_count()
    with pytest.raises(ConfigError, match=f"cannot bind {port.endpoint}: Address already in use"):
        GuardedPort(port.endpoint, CurveServer(SERVER, lambda key: True))
    assert threading.active_count() == before


def test_a_unix_socket_is_its_users_alone_also_in_a_directory_that_is_open(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    port = Port(f"ipc://{tmp_path}/port")
    assert stat.S_IMODE((tmp_path / "port").stat().st_mode) == 0o600
    port.close()


def test_a_name_that_is_no_file_is_not_bound_for_it_has_no_owner() -> None:
    with pytest.raises(ConfigError, match="every user could call it"):
        Port("ipc://@zmqengine-test")


# Who gets in


def test_the_right_keys_connect_in_both_directions(port: GuardedPort) -> None:
    link = dialled(port, CLIENT)
    identity, frames = wait_until(port.receive)
    assert frames == [b"hello"]
    assert port.send(identity, b"welcome") is Sent.OK
    assert wait_until(link.receive) == [b"welcome"]
    assert link.lost is None
    assert port.guard is not None
    assert (port.guard.admitted, port.guard.refused) == (1, 0)
    link.close()


def test_an_unknown_key_is_told_so_with_the_command_that_allows_it(port: GuardedPort) -> None:
    why = why_lost(dialled(port, STRANGER))
    assert f"counter: no connection to {port.endpoint}: it does not allow this client's key" in why
    assert f"zmqengine keys allow '{STRANGER.public}'" in why
    assert port.guard is not None
    assert (port.guard.admitted, port.guard.refused) == (0, 1)
    assert port.receive() is None


def test_a_client_without_keys_is_told_that_it_needs_the_servers(port: GuardedPort) -> None:
    assert "it speaks CURVE, and this client has no key of it" in why_lost(dialled(port, None))
    assert port.receive() is None


def test_a_client_with_the_wrong_key_of_the_server_is_told_so(port: GuardedPort) -> None:
    assert f"perhaps {STRANGER.public} is not its public key" in why_lost(dialled(port, CLIENT, STRANGER.public))
    assert port.receive() is None


def test_a_client_with_keys_sends_nothing_to_a_server_that_has_none() -> None:
    plain = Port("tcp://127.0.0.1:0")
    assert "it does not speak CURVE" in why_lost(dialled(plain, CLIENT))
    assert plain.receive() is None
    plain.close()


def test_where_keys_cannot_be_looked_up_nobody_gets_in() -> None:
    def fail(_: str) -> bool:
        raise OSError("the disk is gone")

    port = GuardedPort("tcp://127.0.0.1:0", CurveServer(SERVER, fail))
    assert "it refused this client (ZAP status 500)" in why_lost(dialled(port, CLIENT))
    port.close()


def test_another_host_is_not_dialled_in_plain() -> None:
    with pytest.raises(ConfigError, match=r"counter: tcp://192\.0\.2\.1:5 is beyond loopback.*server_key"):
        Link("tcp://192.0.2.1:5", "counter")


def test_a_server_key_that_is_none_is_refused_before_anything_is_dialled() -> None:
    with pytest.raises(ConfigError, match="not a CURVE key"):
        Link("tcp://127.0.0.1:5", "counter", CurveClient("x", CLIENT))


def test_a_refused_client_does_not_disturb_those_that_are_in(port: GuardedPort) -> None:
    link = dialled(port, CLIENT)
    wait_until(port.receive)
    for _ in range(20):
        why_lost(dialled(port, STRANGER))
    link.send(b"still here")
    assert wait_until(port.receive)[1] == [b"still here"]
    link.close()


# A key that is revoked


def test_a_revoked_key_is_refused_from_the_next_connection_on(port: GuardedPort, allowed: set[str]) -> None:
    dialled(port, CLIENT).close()
    wait_until(port.receive)
    allowed.clear()
    assert "does not allow this client's key" in why_lost(dialled(port, CLIENT))


def test_an_open_connection_whose_key_is_revoked_is_not_heard_any_more(port: GuardedPort, allowed: set[str]) -> None:
    allowed.add(STRANGER.public)
    link, other = dialled(port, CLIENT), dialled(port, STRANGER)
    identities = {wait_until(port.receive)[0] for _ in range(2)}
    assert len(identities) == 2
    allowed.remove(CLIENT.public)
    link.send(b"unheard")
    other.send(b"heard")
    assert wait_until(port.receive)[1] == [b"heard"]
    assert port.receive() is None
    assert b"key was revoked" in wait_until(link.receive)[0]
    link.close()
    other.close()


def test_an_open_connection_whose_key_is_revoked_is_told_nothing_more(port: GuardedPort, allowed: set[str]) -> None:
    link = dialled(port, CLIENT)
    identity, _ = wait_until(port.receive)
    allowed.clear()
    assert port.send(identity, b"secret") is Sent.GONE
    received = wait_until(link.receive)[0]
    assert b"key was revoked" in received
    assert b"secret" not in received
    assert link.receive() is None
    link.close()


# A service with keys on disk


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KeyFolder:
    """The user's keys, on this host both of the service and of its clients."""
    monkeypatch.setenv("ZMQENGINE_HOME", str(tmp_path / "home"))
    folder = KeyFolder(tmp_path / "home/keys")
    folder.generate()
    folder.allow(CLIENT.public, "laptop")
    return folder


@pytest.fixture
def served(tmp_path: Path, home: KeyFolder) -> Iterator[Location]:
    service = ByHand(tmp_path, SERVICE, "--bind", "tcp://127.0.0.1:0", "--curve")
    line: str = wait_until(lambda: next((line for line in service.lines if "zmqengine describe" in line), ""))
    endpoint, _, key = line.split("describe ")[1].strip().partition(" --server-key ")
    yield Location(name="counter", incarnation="", endpoint=endpoint, server_key=key.strip("'"))
    service.stop()


def laptop(tmp_path: Path) -> str:
    """The directory of a run, as on another host, that has the client's keys."""
    keys = tmp_path / "laptop" / "keys"
    keys.mkdir(parents=True)
    pair = json.dumps({"public": CLIENT.public, "secret": CLIENT.secret})
    write_private(keys / "pair.json", pair, replace=False)
    return str(tmp_path / "laptop")


def test_a_service_by_hand_is_called_by_who_is_given_its_key(served: Location, home: KeyFolder) -> None:
    assert served.server_key == home.pair().public
    with connect(served.endpoint, Counter, server_key=served.server_key) as client:
        assert client.twice(21) == 42


def test_an_asyncio_client_calls_it_and_is_told_the_same_where_it_may_not(served: Location) -> None:
    async def calls() -> None:
        async with aconnect(served.endpoint, Counter, server_key=served.server_key) as client:
            assert await client.twice(x=4) == 8
        async with aconnect(served.endpoint, Counter) as client:
            with pytest.raises(PeerLost, match="it speaks CURVE"):
                await client.twice(x=4)

    asyncio.run(calls())


def test_a_call_with_a_key_that_is_not_allowed_fails_at_once_and_is_not_made_again(
    served: Location, home: KeyFolder, tmp_path: Path
) -> None:
    started = time.monotonic()
    home.revoke("laptop")
    home.allow(STRANGER.public, "another")
    with (
        Client(served, Counter, deadline_s=30, run_dir=laptop(tmp_path)) as client,
        pytest.raises(HandshakeFailed, match="does not allow this client's key") as failed,
    ):
        client.options(retry=RETRY_CALL).twice(1)
    assert time.monotonic() - started < TOLD_WITHIN_S
    assert not may_call_again(failed.value, idempotent=True)


def test_keys_revoke_ends_the_calls_that_are_in_flight(served: Location, home: KeyFolder, tmp_path: Path) -> None:
    with Client(served, Counter, run_dir=laptop(tmp_path)) as client, Client(served, Counter) as own:
        items = iter(client.endless())
        assert [next(items) for _ in range(1000)] == list(range(1, 1001))
        home.revoke("laptop")
        with pytest.raises(PeerLost, match="key was revoked"):
            for _ in items:
                pass
        with pytest.raises(PeerLost):
            client.twice(1)
        assert own.twice(2) == 4


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--bind", "tcp://10.0.0.5:0"], "needs CURVE keys.*zmqengine keys generate"),
        (["--bind", "tcp://127.0.0.1:0", "--curve"], "needs CURVE keys"),
        (["--bind", "tcp://*:0"], "all-interfaces"),
        (["--bind", "tcp://*:0", "--all-interfaces"], "needs CURVE keys"),
        (["--bind", "ipc:///tmp/x", "--curve"], "are for tcp"),
        (["--bind", "tcp://127.0.0.1"], "expected tcp://ADDRESS:PORT"),
    ],
)
def test_by_hand_tcp_is_refused_without_keys_and_the_message_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: list[str], words: str
) -> None:
    monkeypatch.setenv("ZMQENGINE_HOME", str(tmp_path / "empty"))
    with pytest.raises(ZmqEngineError, match=words):
        build_command(Counter).main(args=args, standalone_mode=False)


def test_keys_without_a_list_do_not_serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZMQENGINE_HOME", str(tmp_path / "home"))
    KeyFolder(tmp_path / "home/keys").generate()
    with pytest.raises(ConfigError, match=r"tcp://10\.0\.0\.5:0 needs a list of who may connect.*keys allow"):
        build_command(Counter).main(args=["--bind", "tcp://10.0.0.5:0"], standalone_mode=False)
