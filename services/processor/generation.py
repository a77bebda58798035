"""A request's n completions on their way to one reader."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from services.protocols.processor import GenerateText, TextDelta
from services.protocols.sampling import SamplingParams

from .completion import Completion, merge_deltas
from .request_checks import sampling_of
from .sequence import Ask, Ports, RetryPolicy
from .sequence import Sequence as Run
from .stops import StopAutomaton
from .tokenizer import Tokenizer


class Reader(Protocol):
    """Who takes the deltas."""

    @property
    def credit(self) -> int: ...

    def send(self, item: TextDelta) -> None: ...

    def end(self) -> None: ...

    def fail(self, error: BaseException) -> None: ...


class Generation:
    """Runs all completions of a request at once, each with a place of its own, so that n of them count as n.

    A reader without credit gets each completion's text in one delta once it has some. The first completion that fails
    fails the request, and ends the others.
    """

    def __init__(
        self, request: GenerateText, prompt_ids: Sequence[int], sampling: SamplingParams, *,
        tokenizer: Tokenizer, ports: Ports, reader: Reader, owner: tuple[str, str], echo: str = "",
        policy: RetryPolicy | None = None, on_done: Callable[[], object] = lambda: None,
    ) -> None:  # fmt: skip
        """sampling: the request's, fitted to the context. owner: name and incarnation of who asks. echo: text to begin
        each completion with. on_done: called once when nothing is under way any more."""
        self._reader = reader
        self._on_done = on_done
        self._waiting: dict[int, TextDelta] = {}
        """Deltas that the reader has no credit for, by completion; the one that waits longest first."""
        self._unfinished = request.n
        self._closed = False
        stops = StopAutomaton(request.stop)
        self._runs = [
            Run(
                Ask(f"{request.request_id}/{i}", list(prompt_ids), sampling_of(sampling, i), request.priority,
                    request.tenant, *owner),
                Completion(
                    tokenizer, prompt_ids, index=i, stops=stops, include_stop=request.include_stop,
                    skip_special=request.skip_special_tokens, min_tokens=sampling.min_tokens, echo=echo,
                ),
                ports, policy or RetryPolicy(), self._delta, self._fail,
            )
            for i in range(request.n)
        ]  # fmt: skip

    def start(self) -> None:
        """Begin all of them."""
        for run in self._runs:
            if not self._closed:
                run.start()

    def credit(self) -> None:
        """The reader takes more."""
        while self._waiting and not self._closed and self._reader.credit > 0:
            self._reader.send(self._waiting.pop(next(iter(self._waiting))))
        if not self._unfinished and not self._waiting and self._close():
            self._reader.end()

    def cancel(self) -> None:
        """The reader is gone: end all of them at once."""
        if self._close():
            self._abort_runs()

    def _delta(self, delta: TextDelta) -> None:
        if self._closed:
            return
        earlier = self._waiting.get(delta.index)
        self._waiting[delta.index] = delta if earlier is None else merge_deltas(earlier, delta)
        if delta.finish_reason is not None:
            self._unfinished -= 1
        self.credit()

    def _fail(self, error: BaseException) -> None:
        if self._close():
            self._abort_runs()
            self._reader.fail(error)

    def _close(self) -> bool:
        if self._closed:
            return False
        self._closed = True
        self._waiting.clear()
        self._on_done()
        return True

    def _abort_runs(self) -> None:
        for run in self._runs:
            run.abort()
