"""The service over real sockets, with a fake worker in a process of its own."""

from __future__ import annotations

import re
import time

import pytest

from services.protocols.engine import GenerateTokens, TokenChunk
from zmqengine import Client
from zmqengine.errors import Cancelled, DeadlineExceeded, InvalidArgument, Overloaded, Unavailable
from zmqengine.streams import Stream

from .fake_worker import POISON, UNSAMPLABLE, undisturbed
from .processes import Collected, Processes, collect, eventually
from .simulation import message


def long(request_id: str, first: int = 9, tokens: int = 200, **sampling: object) -> GenerateTokens:
    return message(request_id, [first, 0], tokens, ignore_eos=True, **sampling)  # type: ignore[arg-type]


def send(client: Client) -> None:
    """Have what was begun sent: a blocking client sends when it waits."""
    while client._connection.wants_write:
        client.turn(time.monotonic() + 0.1)


def begin(client: Client, asked: GenerateTokens) -> Stream[TokenChunk]:
    stream: Stream[TokenChunk] = client.begin.generate(asked)
    send(client)
    return stream


def first_chunk(client: Client, stream: Stream[TokenChunk]) -> TokenChunk:
    """The first chunk, or the error; without leaving the stream, as a `for` would."""
    got: list[TokenChunk] = []
    stream.subscribe(got.append)
    while not got and not stream.ended:
        client.turn()
    if stream.error is not None and not got:
        raise stream.error
    return got[0]


@pytest.mark.parametrize("pipeline", [1, 2])
def test_requests_in_flight_together_get_what_each_would_have_got_alone(processes: Processes, pipeline: int) -> None:
    processes.worker(num_blocks=24)
    processes.engine(pipeline=pipeline, prefill_chunk=8)
    client = processes.client()
    asked = [message(f"r{i}", [10 + i] * (1 + 3 * i), 12, stop_token_ids=[0], logprobs=0) for i in range(8)]
    streams = [begin(client, each) for each in asked]

    for each, stream in zip(asked, streams, strict=True):
        collected = Collected(each)
        for chunk in stream:
            collected.take(chunk)
            assert chunk.logprobs is not None
            assert [p.token_id for p in chunk.logprobs] == chunk.token_ids
        assert (collected.token_ids, collected.reason) == undisturbed(each.prompt_token_ids, each.sampling)
    assert processes.seen().violations == []
    stats = processes.stats()
    assert (stats.running, stats.waiting, stats.free_blocks, stats.total_blocks) == (0, 0, 24, 24)


def test_what_fits_nowhere_is_refused_with_its_field_and_the_engine_goes_on(processes: Processes) -> None:
    processes.worker(num_blocks=4)
    processes.engine()
    client = processes.client()
    client.info()

    with pytest.raises(InvalidArgument, match=r"holds 16 \(4 blocks of 4\)") as too_long:
        collect(client, message("a", [5] * 20, 1))
    with pytest.raises(InvalidArgument, match="token 50 at position 1") as unknown:
        collect(client, message("b", [5, 50], 1))
    assert too_long.value.field == "request.prompt_token_ids"
    assert unknown.value.field == "request.prompt_token_ids"
    assert collect(client, message("a", [5] * 14, 2, ignore_eos=True)).reason == "length"


def test_a_request_that_came_before_the_worker_is_refused_when_the_worker_shows_that_it_cannot_be(
    processes: Processes,
) -> None:
    processes.engine()
    client = processes.client()
    never, fits = begin(client, message("never", [5] * 20, 1)), begin(client, message("fits", [5], 1))
    eventually(lambda: processes.stats().waiting == 2)
    assert processes.stats().worker == "absent"
    processes.worker(num_blocks=4)

    with pytest.raises(InvalidArgument, match="holds 16"):
        first_chunk(client, never)
    assert first_chunk(client, fits).finish_reason is not None


def test_an_id_can_be_used_by_one_request_at_a_time(processes: Processes) -> None:
    processes.worker(step_s=0.01)
    processes.engine()
    client = processes.client()
    stream = begin(client, long("same"))
    first_chunk(client, stream)

    with pytest.raises(InvalidArgument, match="'same' is being generated already") as refused:
        collect(client, message("same", [5], 2))
    assert refused.value.field == "request.request_id"
    stream.cancel()
    eventually(lambda: processes.stats().running == 0)
    assert collect(client, message("same", [5], 2)).reason is not None


def test_too_many_that_wait_are_refused_with_a_time(processes: Processes) -> None:
    processes.engine(max_waiting=2)
    client = processes.client()
    for name in ("a", "b"):
        begin(client, message(name, [5], 2))

    with pytest.raises(Overloaded, match="2 requests wait already") as refused:
        collect(client, message("c", [5], 2))
    assert refused.value.retry_after_s is not None
    assert refused.value.retry_after_s > 0


def test_a_cancelled_stream_frees_its_sequence_within_one_step(processes: Processes) -> None:
    processes.worker(step_s=0.02)
    processes.engine()
    client = processes.client()
    stays, leaves = begin(client, long("stays", 9)), begin(client, long("leaves", 8))
    first_chunk(client, stays)
    first_chunk(client, leaves)
    leaves.cancel()
    steps = processes.stats().steps
    eventually(lambda: processes.seen().live == 1)

    assert processes.stats().running == 1
    assert processes.stats().steps - steps <= 4  # the questions themselves take a step or two each


def test_a_reader_that_dies_frees_its_sequences(processes: Processes) -> None:
    processes.worker(step_s=0.01)
    processes.engine()
    client = processes.client()
    first_chunk(client, begin(client, long("r", tokens=1500)))
    client.close()

    eventually(lambda: processes.stats().running == 0)
    assert processes.stats().free_blocks == processes.stats().total_blocks


def test_a_deadline_ends_a_request_and_frees_it(processes: Processes) -> None:
    processes.worker(step_s=0.02)
    processes.engine()
    client = processes.client(deadline_s=0.3)

    with pytest.raises(DeadlineExceeded):
        collect(client, long("r", tokens=1500))
    eventually(lambda: processes.stats().running == 0)


def test_an_abort_ends_the_stream_and_is_idempotent(processes: Processes) -> None:
    processes.worker(step_s=0.01)
    processes.engine()
    client = processes.client()
    asked = long("r", tokens=1500)
    collected = Collected(asked)
    stream = begin(client, asked)
    stream.subscribe(collected.take)
    while not collected.chunks and not stream.ended:
        client.turn()

    assert client.abort("r") is True
    assert client.abort("r") is False
    assert client.abort("never heard of") is False
    while not stream.ended:
        client.turn(time.monotonic() + 1.0)
    assert stream.error is None
    assert collected.reason == "abort"
    assert collected.token_ids == undisturbed(asked.prompt_token_ids, asked.sampling)[0][: len(collected.token_ids)]


def test_a_reader_without_credit_gets_everything_later_in_one_and_stalls_nobody(processes: Processes) -> None:
    processes.worker()
    processes.engine()
    slow_client, client = processes.client(), processes.client()
    asked = long("slow", 9, tokens=500)
    stream = begin(slow_client, asked)  # it asks, and then does not come back to read
    eventually(lambda: processes.stats().generated_tokens >= 500)

    assert collect(client, long("quick", 8, tokens=20)).reason == "length"
    collected = Collected(asked)
    for chunk in stream:
        collected.take(chunk)
    assert collected.token_ids == undisturbed(asked.prompt_token_ids, asked.sampling)[0]
    assert max(len(chunk.token_ids) for chunk in collected.chunks) > 100


@pytest.mark.parametrize("pipeline", [1, 2])
def test_requests_outlive_a_worker_that_is_killed_three_times(processes: Processes, pipeline: int) -> None:
    worker = processes.worker(step_s=0.004)
    processes.engine(pipeline=pipeline)
    client = processes.client(deadline_s=60.0)
    asked = [long(f"r{i}", 9 + i, tokens=120) for i in range(4)]
    collected = [Collected(each) for each in asked]
    streams = [begin(client, each) for each in asked]
    for stream, each in zip(streams, collected, strict=True):
        stream.subscribe(each.take)
    for kill in range(3):
        while min(len(each.token_ids) for each in collected) < 20 * (kill + 1):
            client.turn(time.monotonic() + 1.0)
        processes.kill(worker)
        worker = processes.worker(step_s=0.004)
    while not all(stream.ended for stream in streams):
        client.turn(time.monotonic() + 1.0)

    for each in collected:
        assert (each.token_ids, each.reason) == undisturbed(each.asked.prompt_token_ids, each.asked.sampling)
    assert processes.seen().violations == []


def test_a_worker_that_is_killed_with_nothing_to_do_is_missed_at_once(processes: Processes) -> None:
    worker = processes.worker()
    processes.engine()
    client = processes.client()
    assert collect(client, message("a", [5], 2)).reason is not None
    assert processes.stats().worker == "ready"
    processes.kill(worker)
    eventually(lambda: processes.stats().worker == "restarting")
    processes.worker()
    eventually(lambda: processes.stats().worker == "ready")

    assert collect(client, message("a", [5, 6], 3, ignore_eos=True)).reason == "length"


def test_a_request_right_behind_a_death_that_nobody_noticed_goes_to_the_next_worker(processes: Processes) -> None:
    worker = processes.worker()
    processes.engine()
    client = processes.client()
    for attempt in range(3):
        assert collect(client, message("a", [5, 6], 3, ignore_eos=True)).reason == "length"
        processes.kill(worker)
        worker = processes.worker(num_blocks=64 + attempt)
    asked = message("a", [5, 6], 3, ignore_eos=True)

    assert collect(client, asked).token_ids == undisturbed([5, 6], asked.sampling)[0]
    assert client.info().num_blocks == 66


def test_poison_fails_alone_with_a_clear_error(processes: Processes) -> None:
    worker = processes.worker()
    processes.engine()
    client = processes.client(deadline_s=60.0)
    poison, innocent = Collected(message("poison", [POISON], 5)), Collected(long("innocent"))
    streams = [begin(client, each.asked) for each in (poison, innocent)]
    for stream, each in zip(streams, (poison, innocent), strict=True):
        stream.subscribe(each.take)
    deaths = 0
    while not all(stream.ended for stream in streams):
        client.turn(time.monotonic() + 0.05)
        if worker.poll() is not None:
            deaths += 1
            worker = processes.worker()

    assert deaths == 2
    assert poison.reason == "error"
    assert "the worker was lost twice" in str(poison.chunks[-1].error)
    assert innocent.reason == "length"
    assert len(innocent.token_ids) == 200


@pytest.mark.parametrize("pipeline", [1, 2])
def test_a_sequence_that_cannot_be_sampled_fails_alone(processes: Processes, pipeline: int) -> None:
    processes.worker()
    processes.engine(pipeline=pipeline)
    client = processes.client()
    broken, other = message("broken", [UNSAMPLABLE, 5], 9, ignore_eos=True), long("other")
    streams = [begin(client, each) for each in (broken, other)]
    collected = [Collected(each) for each in (broken, other)]
    for stream, each in zip(streams, collected, strict=True):
        for chunk in stream:
            each.take(chunk)

    assert (len(collected[0].token_ids), collected[0].reason) == (3, "error")
    assert collected[0].chunks[-1].error == "no token is left to sample"
    assert collected[1].token_ids == undisturbed(other.prompt_token_ids, other.sampling)[0]


def test_a_step_that_fails_in_a_living_worker_is_made_again(processes: Processes) -> None:
    processes.worker(fail_step=5)
    processes.engine()
    asked = long("r", tokens=20)

    collected = collect(processes.client(), asked)

    assert (collected.token_ids, collected.reason) == undisturbed(asked.prompt_token_ids, asked.sampling)


def test_a_refused_step_fails_its_requests_loudly_and_the_engine_goes_on(processes: Processes) -> None:
    processes.worker(refuse_step=3)
    processes.engine()
    client = processes.client()

    collected = collect(client, long("r", tokens=20))

    assert (len(collected.token_ids), collected.reason) == (3, "error")
    assert re.search("engine fault.*refused, as it was told to", str(collected.chunks[-1].error))
    assert collect(client, message("s", [5], 2, ignore_eos=True)).reason == "length"


def test_info_waits_for_the_worker_within_the_deadline(processes: Processes) -> None:
    processes.engine(max_seqs=5)
    client = processes.client()
    with pytest.raises(DeadlineExceeded):
        client.options(deadline_s=0.2).info()
    waiting = client.begin.info()
    send(client)
    processes.worker(num_blocks=100, max_context=300)

    info = client.wait(waiting)

    assert (info.max_context, info.num_blocks, info.block_size, info.max_seqs) == (300, 100, 4, 5)
    assert info.eos_token_ids == [1]
    assert client.abort("engine goes on") is False


def test_stopping_ends_what_waits_for_a_worker_that_is_not_there(processes: Processes) -> None:
    engine = processes.engine()
    client = processes.client()
    stream, info = begin(client, message("r", [5], 2)), client.begin.info()
    send(client)
    eventually(lambda: client.stats().waiting == 1)
    engine.terminate()

    with pytest.raises((Unavailable, Cancelled)):
        first_chunk(client, stream)
    with pytest.raises(Unavailable):
        client.wait(info)
    assert engine.wait(timeout=5) == 0
