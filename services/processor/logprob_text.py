"""Log-probabilities in step with the text they belong to."""

from __future__ import annotations

import collections
from dataclasses import dataclass

from services.protocols.processor import TextLogprob, TopToken
from services.protocols.sampling import TokenLogprob

from .tokenizer import Tokenizer


def describe_logprob(tokenizer: Tokenizer, logprob: TokenLogprob) -> TextLogprob:
    """A token's log-probability with its own and its alternatives' text and bytes."""
    return TextLogprob(
        token=tokenizer.token_text(logprob.token_id), token_id=logprob.token_id, logprob=logprob.logprob,
        raw=tokenizer.token_bytes(logprob.token_id),
        top=[
            TopToken(token=tokenizer.token_text(i), token_id=i, logprob=value, raw=tokenizer.token_bytes(i))
            for i, value in logprob.top
        ],
    )  # fmt: skip


@dataclass(slots=True)
class _Held:
    entry: TextLogprob
    start: int
    end: int | None
    """Characters of the completion's text before the token, and with it; None while it ends within a character."""


class LogprobQueue:
    """Holds each token's log-probability back until its text is given out, and drops those of a stop string."""

    def __init__(self) -> None:
        self._queue: collections.deque[_Held] = collections.deque()
        self._unsettled: list[_Held] = []

    def add(self, entry: TextLogprob, start: int, end: int, *, pending: bool) -> None:
        """A token has been decoded: the text has grown from `start` to `end` characters by it. pending: and it ends
        within a character."""
        if end > start:
            # The text grew, so whatever character was unfinished before is finished.
            for held in self._unsettled:
                held.end = end
            self._unsettled.clear()
        held = _Held(entry, start, None if pending else end)
        self._queue.append(held)
        if pending:
            self._unsettled.append(held)

    def release(self, given: int) -> list[TextLogprob]:
        """Of the tokens whose text lies wholly within the first `given` characters."""
        released = []
        while self._queue and (end := self._queue[0].end) is not None and end <= given:
            released.append(self._queue.popleft().entry)
        return released

    def finish(self, given: int) -> list[TextLogprob]:
        """The text ends at `given` characters: of the tokens with a part in it, or without any text before its end."""
        released = [held.entry for held in self._queue if held.start < given or (held.end or held.start) <= given]
        self._queue.clear()
        self._unsettled.clear()
        return released
