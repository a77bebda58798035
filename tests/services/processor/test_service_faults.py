"""The processor when engines are killed, are not there, or are others than before, and when clients leave."""

from __future__ import annotations

import time

import pytest

from zmqengine import Client
from zmqengine.errors import Unavailable

from ..engine.processes import eventually
from .chain import Chain, collect, follow, text, turn_until


def test_a_client_that_leaves_frees_all_its_completions(chain: Chain) -> None:
    client = chain.all(token_s=0.005)
    _, collected = follow(client, text("ab", 5000, n=3))
    turn_until(client, lambda: len(collected.texts) == 3)
    assert len(chain.engine_seen().running) == 3
    client.close()

    eventually(chain.is_idle)


def test_a_request_in_the_queue_that_is_cancelled_leaves_it(chain: Chain) -> None:
    chain.scheduler(max_placed=1)
    chain.stand_in(token_s=0.01)
    chain.processor()
    client = chain.asker()
    first, collected = follow(client, text("a", 5000, "first"))
    turn_until(client, lambda: collected.texts)
    queued, _ = follow(client, text("a", 5000, "queued"))
    turn_until(client, lambda: chain.placed().queued == 1)
    queued.cancel()
    turn_until(client, lambda: chain.placed().queued == 0)
    first.cancel()
    turn_until(client, chain.is_idle)
    assert [asked.request_id for asked in chain.engine_seen().requests] == ["first/0"]


@pytest.mark.parametrize("n", [1, 3])
def test_requests_outlive_an_engine_that_is_killed_again_and_again(chain: Chain, n: int) -> None:
    chain.scheduler()
    engine = chain.stand_in(token_s=0.005)
    chain.processor()
    client = chain.asker(deadline_s=60.0)
    stream, collected = follow(client, text("ab🌍", 300, n=n))
    for kill in range(3):
        turn_until(client, lambda kill=kill: len(collected.last) == n or (collected.deltas
                   and min(d.token_count for d in collected.deltas[-n:]) > 20 * (kill + 1)))  # fmt: skip
        chain.kill(engine)
        engine = chain.stand_in(token_s=0.005)
    turn_until(client, lambda: stream.ended)

    assert stream.error is None
    assert collected.texts == dict.fromkeys(range(n), "ab🌍" * 50)
    assert {last.token_count for last in collected.last.values()} == {300}
    resumed = [asked for asked in chain.engine_seen().requests if asked.generated_token_ids]
    assert len(resumed) == n
    eventually(chain.is_idle)


def test_a_request_right_behind_an_engine_s_death_goes_to_the_next(chain: Chain) -> None:
    chain.scheduler()
    engine = chain.stand_in()
    chain.processor()
    client = chain.asker()
    assert collect(client, text("ab", 4)).texts == {0: "abab"}
    for _ in range(3):
        chain.kill(engine)
        engine = chain.stand_in()
        assert collect(client, text("ab", 4)).texts == {0: "abab"}


def test_an_engine_that_does_not_come_back_ends_its_requests_when_the_attempts_are_used_up(chain: Chain) -> None:
    chain.scheduler()
    engine = chain.stand_in(token_s=0.01)
    chain.processor(retries=2)
    client = chain.asker()
    stream, collected = follow(client, text("ab", 5000))
    turn_until(client, lambda: collected.texts)
    chain.kill(engine)
    lost = time.monotonic()
    turn_until(client, lambda: stream.ended)

    assert isinstance(stream.error, Unavailable)
    assert "given up: " in str(stream.error)
    assert stream.error.retry_after_s is not None
    assert time.monotonic() - lost < 5.0
    eventually(lambda: chain.placed().placed == 0)


def test_without_an_engine_a_request_waits_for_it_and_then_is_told(chain: Chain) -> None:
    chain.scheduler()
    chain.processor(engine_timeout_s=0.5)
    client = chain.asker()
    with pytest.raises(Unavailable, match="is not there"):
        collect(client, text("ab", 4))
    with pytest.raises(Unavailable, match="is not there"):
        client.model()


def test_a_request_that_came_before_the_engine_is_served_when_it_comes(chain: Chain) -> None:
    chain.scheduler()
    chain.processor()
    client = chain.asker()
    stream, collected = follow(client, text("ab", 4))
    while client._connection.wants_write:
        client.turn(time.monotonic() + 0.1)
    chain.stand_in()
    turn_until(client, lambda: stream.ended)
    assert (stream.error, collected.texts) == (None, {0: "abab"})


def test_another_engine_s_limits_are_asked_of_it(chain: Chain) -> None:
    chain.scheduler()
    engine = chain.stand_in(max_context=100)
    chain.processor()
    client = chain.asker()
    assert client.model().max_context == 100
    chain.kill(engine)
    chain.stand_in(max_context=50)
    eventually(lambda: client.model().max_context == 50)


def test_the_check_names_what_is_missing(chain: Chain) -> None:
    scheduler = chain.scheduler()
    engine = chain.stand_in()
    chain.processor(check_timeout_s=0.5)
    client = chain.asker()
    assert client.check() == "ok"
    chain.kill(engine)
    engine = chain.stand_in(worker="restarting")
    eventually(lambda: _unavailable(client).find("the engine's worker is restarting") >= 0)
    chain.kill(engine)
    assert "engine is not there" in _unavailable(client)
    chain.stand_in()
    eventually(lambda: _unavailable(client) == "")
    chain.kill(scheduler)
    assert "scheduler is not there" in _unavailable(client)


def _unavailable(client: Client) -> str:
    """What the check says is missing; empty if nothing is."""
    try:
        client.check()
    except Unavailable as error:
        return str(error)
    return ""
