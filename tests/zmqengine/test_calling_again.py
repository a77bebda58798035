"""Calls that outlive the service they were made to: found again, made again, or failed with the reason."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from zmqengine import Client, Interface, call
from zmqengine.asyncio_loop import AsyncioLoop
from zmqengine.errors import DeadlineExceeded, Overloaded, PeerLost, StaleIncarnation, Unavailable
from zmqengine.peer import Location
from zmqengine.peers import Peers
from zmqengine.retry import RETRY_CALL, Policy, call_again, may_call_again

SERVICE = """
import os
from zmqengine import Service, call
class Keeper(Service, protocol="keeper/1"):
    @call(idempotent=True)
    def pid(self) -> int:
        return os.getpid()
    @call
    def die(self) -> None:
        os._exit(3)
    @call(idempotent=True)
    def die_once(self, path: str) -> int:
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return os.getpid()
        os._exit(3)
Keeper.main()
"""


class KeeperInterface(Interface, protocol="keeper/1"):
    @call(idempotent=True)
    def pid(self) -> int: ...
    @call
    def die(self) -> None: ...
    @call(idempotent=True)
    def die_once(self, path: str) -> int: ...


class Keepers:
    """Incarnations of one service, each started when it is looked up while none lives."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[subprocess.Popen[str]] = []
        (folder / "keeper.py").write_text(SERVICE)

    def locate(self) -> Location:
        if not self.started or self.started[-1].poll() is not None:
            self.start()
        return Location(name="keeper", incarnation="", endpoint=f"ipc://{self.folder}/{len(self.started)}")

    def start(self) -> None:
        endpoint = f"ipc://{self.folder}/{len(self.started) + 1}"
        process = subprocess.Popen(
            [sys.executable, str(self.folder / "keeper.py"), "--bind", endpoint], stdout=subprocess.PIPE, text=True
        )
        self.started.append(process)
        assert process.stdout is not None
        assert "ready" in process.stdout.readline()

    def kill(self) -> None:
        self.started[-1].kill()
        self.started[-1].wait()

    def close(self) -> None:
        for process in self.started:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


@pytest.fixture
def keepers(tmp_path: Path) -> Iterator[Keepers]:
    made = Keepers(tmp_path)
    try:
        yield made
    finally:
        made.close()


def client_of(keepers: Keepers) -> Client:
    return Client(keepers.locate(), KeeperInterface, relocate=keepers.locate, deadline_s=10.0)


def test_a_service_that_died_between_two_calls_is_found_again(keepers: Keepers) -> None:
    with client_of(keepers) as client:
        first = client.pid()
        keepers.kill()
        client.idle(0.2)
        assert client.pid() == keepers.started[-1].pid != first


def test_a_call_in_flight_fails_with_the_name_of_the_dead_and_the_next_one_works(keepers: Keepers) -> None:
    with client_of(keepers) as client:
        with pytest.raises(PeerLost, match="keeper"):
            client.die()
        keepers.started[-1].wait()
        assert client.pid() == keepers.started[-1].pid
        assert len(keepers.started) == 2


def test_an_idempotent_call_is_made_again_when_its_peer_was_lost(keepers: Keepers) -> None:
    with client_of(keepers) as client:
        client.pid()
        again = client.options(retry=RETRY_CALL)
        assert again.die_once(str(keepers.folder / "once")) == keepers.started[1].pid


def test_a_call_that_is_not_idempotent_is_not_made_again(keepers: Keepers) -> None:
    with client_of(keepers) as client:
        with pytest.raises(PeerLost):
            client.options(retry=RETRY_CALL).die()
        assert len(keepers.started) == 1


def test_a_client_of_an_endpoint_does_not_look_for_a_successor(keepers: Keepers) -> None:
    with Client(keepers.locate(), KeeperInterface) as client:
        client.pid()
        keepers.kill()
        for _ in range(2):
            with pytest.raises(PeerLost):
                client.pid()
        assert len(keepers.started) == 1


@pytest.mark.anyio
async def test_a_peer_on_a_loop_makes_an_idempotent_call_again(keepers: Keepers, anyio_backend: str) -> None:
    loop = AsyncioLoop()
    given = {"keeper": keepers.locate().endpoint}
    peer = Peers(loop, given=given).peer("keeper", KeeperInterface)
    try:
        assert await peer.pid() == keepers.started[0].pid
        waiting = peer.options(retry=RETRY_CALL, deadline_s=20).die_once(str(keepers.folder / "once"))
        while keepers.started[0].poll() is None:
            await asyncio.wait([asyncio.ensure_future(asyncio.to_thread(keepers.started[0].wait))])
        given["keeper"] = (await asyncio.to_thread(keepers.locate)).endpoint
        assert await waiting == keepers.started[1].pid
    finally:
        await loop.close()


@pytest.mark.parametrize(
    ("error", "any_call", "idempotent"),
    [
        (StaleIncarnation("x"), True, True),
        (PeerLost("x"), False, True),
        (Unavailable("x"), False, True),
        (Overloaded("x"), False, True),
        (DeadlineExceeded("x"), False, False),
        (ValueError("x"), False, False),
    ],
)
def test_what_may_be_called_again(error: Exception, any_call: bool, idempotent: bool) -> None:
    assert may_call_again(error, idempotent=False) is any_call
    assert may_call_again(error, idempotent=True) is idempotent


class Clock:
    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def test_a_retry_waits_as_long_as_the_peer_asks_and_gives_up_within_the_budget() -> None:
    clock, policy = Clock(), Policy(initial_s=0.1, max_s=0.2, jitter_s=0.0)
    left: list[float] = []

    def attempt(left_s: float) -> None:
        left.append(left_s)
        raise Overloaded("full", retry_after_s=3.0)

    with pytest.raises(Overloaded):
        call_again(attempt, policy, idempotent=True, budget_s=10.0, sleep=clock.sleep, clock=clock)
    assert clock.slept == [3.0, 3.0, 3.0]
    assert left == [10.0, 7.0, 4.0, 1.0]
