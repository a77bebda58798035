from __future__ import annotations

from services.engine.outcome import Ending, Outcome
from services.engine.reader import Reader
from services.engine.request import Request
from services.protocols.engine import TokenChunk
from services.protocols.sampling import TokenLogprob

from .simulation import message


class Outlet:
    """Takes as many items as it has credit for."""

    def __init__(self, credit: int) -> None:
        self.credit = credit
        self.items: list[TokenChunk] = []
        self.ends = 0

    def send(self, item: TokenChunk) -> None:
        assert self.credit > 0
        assert not self.ends
        self.credit -= 1
        self.items.append(item)

    def end(self) -> None:
        self.ends += 1


REQUEST = Request("r", [5], 1, message("r", [5]).sampling, 0, 0.0, 0)


def token(number: int, ending: Ending | None = None) -> Outcome:
    logprob = TokenLogprob(token_id=number, logprob=-1.0, top=[])
    return Outcome(REQUEST, number, logprob, ending)


def told(out: Outlet) -> list[tuple[int, list[int], str | None]]:
    return [(chunk.start, chunk.token_ids, chunk.finish_reason) for chunk in out.items]


def test_a_reader_that_keeps_up_gets_each_token_at_once() -> None:
    out = Outlet(credit=9)
    reader = Reader(out, 0, logprobs=False)
    for number in (0, 7):
        reader.put(token(number))
    reader.put(token(8, Ending("length")))

    assert told(out) == [(0, [0], None), (1, [7], None), (2, [8], "length")]
    assert [chunk.logprobs for chunk in out.items] == [None] * 3
    assert out.ends == 1


def test_a_slow_reader_gets_what_came_meanwhile_in_one() -> None:
    out = Outlet(credit=1)
    reader = Reader(out, 4, logprobs=True)
    for number in range(5):
        reader.put(token(number))
    out.credit = 1
    reader.serve()
    reader.put(token(5, Ending("stop", stop_token_id=5)))
    assert out.ends == 0
    out.credit = 1
    reader.serve()

    assert told(out) == [(4, [0], None), (5, [1, 2, 3, 4], None), (9, [5], "stop")]
    assert [[p.token_id for p in chunk.logprobs or []] for chunk in out.items] == [[0], [1, 2, 3, 4], [5]]
    assert out.items[-1].stop_token_id == 5
    assert out.ends == 1


def test_an_end_without_a_token_is_told_with_what_was_left() -> None:
    out = Outlet(credit=0)
    reader = Reader(out, 0, logprobs=False)
    reader.put(token(3))
    reader.put(Outcome(REQUEST, ending=Ending("error", error="it broke")))
    out.credit = 1
    reader.serve()

    assert told(out) == [(0, [3], "error")]
    assert out.items[0].error == "it broke"


def test_an_end_is_told_once() -> None:
    out = Outlet(credit=5)
    reader = Reader(out, 0, logprobs=False)
    reader.end(Ending("abort"))
    out.credit = 0  # what a closed outlet says
    reader.serve()

    assert told(out) == [(0, [], "abort")]
    assert out.ends == 1


def test_credit_with_nothing_to_tell_sends_nothing() -> None:
    out = Outlet(credit=5)
    Reader(out, 0, logprobs=False).serve()

    assert out.items == []
