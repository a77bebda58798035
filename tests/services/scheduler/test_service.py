"""The service over real sockets."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from services.protocols.scheduler import Placement, SchedulerInterface
from zmqengine import Client, Deferred, connect
from zmqengine.errors import Cancelled, DeadlineExceeded, InvalidArgument, Overloaded, Unavailable

from .asking import ask

ROOT = Path(__file__).parents[3]


class Running:
    """A scheduler in a process of its own."""

    def __init__(self, base: Path) -> None:
        self.endpoint = f"ipc://{base}/scheduler"
        self.process: subprocess.Popen[str]
        self._clients: list[Client] = []

    def start(self, *options: str) -> Client:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "services.scheduler", "--bind", self.endpoint, *options],
            cwd=ROOT, env=os.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        assert "is ready" in self.process.stdout.readline()
        return self.client()

    def client(self) -> Client:
        client = connect(self.endpoint, SchedulerInterface, deadline_s=10.0)
        self._clients.append(client)
        return client

    def close(self) -> None:
        for client in self._clients:
            client.close()
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def running() -> Iterator[Running]:
    base = Path(tempfile.mkdtemp(prefix="ze-", dir="/tmp"))  # short: paths of unix sockets have at most 107 bytes
    made = Running(base)
    yield made
    made.close()
    shutil.rmtree(base)


def begin(client: Client, request_id: str, **options: str) -> Deferred[Placement]:
    answer: Deferred[Placement] = client.begin.place(ask(request_id, **options))  # type: ignore[arg-type]
    client.stats()  # answered behind it
    return answer


def eventually(condition: Callable[[], bool], within_s: float = 5.0) -> None:
    until = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < until, "it never came"
        time.sleep(0.01)


def test_a_place_is_given_at_once_while_there_is_room_and_then_on_release(running: Running) -> None:
    client = running.start("--max-placed", "2", "--engines", '["engine"]')
    assert [client.place(ask(name)).engine for name in "ab"] == ["engine", "engine"]
    waiting = begin(client, "c")
    assert not waiting.done
    assert (client.stats().queued, client.stats().placed) == (1, 2)
    client.release("a")
    client.release("a")
    client.release("never heard of")

    placement = client.wait(waiting)

    assert placement.request_id == "c"
    assert placement.waited_s > 0
    assert (client.stats().queued, client.stats().placed, client.stats().admitted_total) == (0, 2, 3)


def test_a_full_queue_is_answered_with_a_time(running: Running) -> None:
    client = running.start("--max-placed", "1", "--max-queued", "1")
    client.place(ask("a"))
    begin(client, "b")

    with pytest.raises(Overloaded, match="1 requests are queued") as refused:
        client.place(ask("c"))
    assert refused.value.retry_after_s is not None
    assert refused.value.retry_after_s > 0
    assert client.stats().refused_total == 1


def test_an_id_cannot_be_placed_twice(running: Running) -> None:
    client = running.start()
    client.place(ask("a"))

    with pytest.raises(InvalidArgument, match="'a' is placed already") as refused:
        client.place(ask("a"))
    assert refused.value.field == "request.request_id"


def test_cancelling_or_a_deadline_takes_a_request_out_of_the_queue(running: Running) -> None:
    client = running.start("--max-placed", "1")
    client.place(ask("a"))
    cancelled, last = begin(client, "b"), begin(client, "d")
    with pytest.raises(DeadlineExceeded):
        client.options(deadline_s=0.1).place(ask("c"))
    cancelled.cancel()
    eventually(lambda: client.stats().queued == 1)
    client.release("a")

    assert client.wait(last).request_id == "d"
    assert client.stats().placed == 1


def test_releasing_one_that_is_queued_answers_it(running: Running) -> None:
    client = running.start("--max-placed", "1")
    client.place(ask("a"))
    waiting = begin(client, "b")
    client.release("b")

    with pytest.raises(Cancelled, match="released while it was queued"):
        client.wait(waiting)


def test_a_new_incarnation_of_the_owner_gets_the_places_of_the_old(running: Running) -> None:
    old = running.start("--max-placed", "1")
    old.place(ask("a", incarnation="1"))
    waiting = begin(old, "b", incarnation="1")
    new = running.client()

    assert new.place(ask("a", incarnation="2")).request_id == "a"
    with pytest.raises(Cancelled, match="processor has been started anew"):
        old.wait(waiting)
    assert (new.stats().queued, new.stats().placed) == (0, 1)


def test_what_was_placed_for_an_owner_that_had_died_is_free_for_its_successor(running: Running) -> None:
    first = running.start("--max-placed", "1")
    first.place(ask("a", incarnation="1"))
    begin(first, "b", incarnation="1")
    first.close()
    client = running.client()
    client.release("a")  # whoever comes next is placed: that it is gone cannot be seen before something is sent to it

    assert client.place(ask("c", incarnation="2")).request_id == "c"
    client.release("c")
    eventually(lambda: (client.stats().queued, client.stats().placed) == (0, 0))


def test_those_who_wait_are_answered_when_it_stops(running: Running) -> None:
    client = running.start("--max-placed", "1")
    client.place(ask("a"))
    waiting = begin(client, "b")
    running.process.terminate()

    with pytest.raises(Unavailable):
        client.wait(waiting)
    assert running.process.wait(timeout=5) == 0
