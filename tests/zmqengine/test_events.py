"""Events: a snapshot, then every change by number; who does not read is told so, and delays nobody."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from zmqengine import Client, Interface, Message, Outlet, call, connect, event, wire
from zmqengine.errors import UsageError
from zmqengine.events import Event, Topic

from .by_hand_process import ByHand

SERVICE = """
from zmqengine import Message, Service, call, event

class Board(Message):
    scores: dict[str, int]

class Scores(Service, protocol="scores/1"):
    def setup(self) -> None:
        self.scores = {}
        self.publish("board", Board(scores={}))
    @event
    def board(self) -> Board:
        "Who has how many."
        return Board(scores=self.scores)
    @call
    def score(self, player: str, times: int = 1) -> int:
        for _ in range(times):
            self.scores[player] = self.scores.get(player, 0) + 1
            self.publish("board", Board(scores={player: self.scores[player]}))
        return self.scores[player]
    @call
    def wrong(self) -> None:
        self.publish("bored", None)
Scores.main()
"""


class Board(Message):
    scores: dict[str, int]


class ScoresInterface(Interface, protocol="scores/1"):
    @event
    def board(self) -> Board: ...
    @call
    def score(self, player: str, times: int = 1) -> int: ...
    @call
    def wrong(self) -> None: ...


@pytest.fixture
def scores(tmp_path: Path) -> Iterator[ByHand]:
    process = ByHand(tmp_path, SERVICE)
    yield process
    process.stop()


@pytest.fixture
def client(scores: ByHand) -> Iterator[Client]:
    with connect(scores.endpoint, ScoresInterface, deadline_s=10) as client:
        yield client


def test_a_listener_gets_the_state_then_each_change_by_number(client: Client) -> None:
    client.score("ada", 2)
    board = iter(client.board())
    first = next(board)
    assert (first.snapshot, first.value.scores) == (True, {"ada": 2})
    client.score("bob")
    client.score("ada")
    changes = [next(board), next(board)]
    assert [c.snapshot for c in changes] == [False, False]
    assert [c.seq - first.seq for c in changes] == [1, 2]
    assert [c.value.scores for c in changes] == [{"bob": 1}, {"ada": 3}]


def test_a_listener_that_does_not_read_costs_the_others_nothing_and_is_told_what_it_missed(
    client: Client, scores: ByHand
) -> None:
    with connect(scores.endpoint, ScoresInterface) as sleeper:
        asleep = iter(sleeper.board())
        start = next(asleep).seq
        total = 10 * wire.STREAM_ITEMS
        read: list[Event[Board]] = []

        def listen() -> None:
            with connect(scores.endpoint, ScoresInterface) as reader:
                for change in reader.board():
                    read.append(change)
                    listening.set()
                    if change.seq == start + total:
                        return

        listening = threading.Event()
        listener = threading.Thread(target=listen)
        listener.start()
        assert listening.wait(10)
        for _ in range(total // 64):
            client.score("ada", 64)
        listener.join(20)
        assert not listener.is_alive()
        seen, state = [], {}
        for change in asleep:
            seen.append(change)
            state = change.value.scores if change.snapshot else {**state, **change.value.scores}
            if change.seq == start + total:
                break
        assert state == {"ada": total}
        gaps = [b for a, b in itertools.pairwise(seen) if b.seq != a.seq + 1]
        assert gaps, "it slept through more than its credit"
        assert all(change.snapshot for change in gaps), "a gap is told by a snapshot"


def test_an_untyped_client_and_a_description_know_events(scores: ByHand) -> None:
    with connect(scores.endpoint) as client:
        assert client.describe()["methods"]["board"]["kind"] == "event"
        first = next(iter(client.board()))
        assert (first.snapshot, first.value) == (True, {"scores": {}})


def test_publishing_an_event_that_there_is_not_is_a_usage_error(client: Client) -> None:
    with pytest.raises(Exception, match=r"publish\('bored'\): it has no event of that name"):
        client.wrong()


def test_events_take_no_arguments_and_have_a_state() -> None:
    with pytest.raises(UsageError, match="takes no arguments"):

        class Filtered(Interface, protocol="filtered/1"):
            @event
            def board(self, player: str) -> Board: ...

    with pytest.raises(UsageError, match="returns the state"):

        class Stateless(Interface, protocol="stateless/1"):
            @event
            def board(self) -> None: ...


def test_a_topic_forgets_a_listener_that_went_away() -> None:
    sent: list[Event[int]] = []
    out: Outlet[Event[int]] = Outlet((4, 1000), lambda item: sent.append(item) or 1, lambda _: None, None)
    topic: Topic[int] = Topic(lambda: 7)
    topic.subscribe(out)
    topic.publish(8)
    assert topic.listeners == 1
    out.abandon(ConnectionError("gone"))
    topic.publish(9)
    assert topic.listeners == 0
    assert [(e.seq, e.snapshot, e.value) for e in sent] == [(0, True, 7), (1, False, 8)]
