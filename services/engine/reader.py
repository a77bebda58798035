"""Gives a sequence's tokens to its reader, merged where the reader is slower than the worker."""

from __future__ import annotations

from typing import Protocol

from services.protocols.engine import TokenChunk
from services.protocols.sampling import TokenLogprob

from .outcome import Ending, Outcome


class TokenOutlet(Protocol):
    """Where chunks go (zmqengine.Outlet)."""

    @property
    def credit(self) -> int: ...
    def send(self, item: TokenChunk) -> None: ...
    def end(self) -> None: ...


class Reader:
    """One reader, and what it has not been told yet: at most what max_tokens allows, for the sequence does not wait."""

    def __init__(self, out: TokenOutlet, start: int, *, logprobs: bool) -> None:
        """start: number of the first token to come. logprobs: whether the reader asked for them."""
        self._out = out
        self._start = start
        self.started = False
        """Whether there was a token to tell."""
        self._token_ids: list[int] = []
        self._logprobs: list[TokenLogprob] | None = [] if logprobs else None
        self._ending: Ending | None = None

    def put(self, outcome: Outcome) -> None:
        """Tell what the request gained, or how it ended, now or with the next credit."""
        if outcome.token_id is not None:
            self.started = True
            self._token_ids.append(outcome.token_id)
            if self._logprobs is not None and outcome.logprob is not None:
                self._logprobs.append(outcome.logprob)
        self._ending = outcome.ending
        self.serve()

    def end(self, ending: Ending) -> None:
        """Tell that no more tokens come."""
        self._ending = ending
        self.serve()

    def serve(self) -> None:
        """Tell all that there is in one chunk, if the reader takes something now."""
        ending = self._ending
        if not self._out.credit or not (self._token_ids or ending):
            return
        chunk = TokenChunk(
            start=self._start, token_ids=self._token_ids, logprobs=self._logprobs,
            finish_reason=None if ending is None else ending.reason,
            stop_token_id=None if ending is None else ending.stop_token_id,
            error=None if ending is None else ending.error,
        )  # fmt: skip
        self._start += len(self._token_ids)
        self._token_ids = []
        self._logprobs = None if self._logprobs is None else []
        self._out.send(chunk)
        if ending is not None:
            self._out.end()
