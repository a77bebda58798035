"""One completion's way: a place from the scheduler, tokens from the engine, and again if the engine is lost.

    placing ---placed---> generating ---last token---> done
       ^  \\                  |
       |   `--lost or absent--+--lost---> waiting ---delay---> placing

Each attempt has an id of its own, so that what an engine or scheduler still knows of an earlier one is never taken for
it. An attempt's place is released exactly once, however it ends; only a place that was refused is not.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from services.protocols.engine import GenerateTokens, TokenChunk
from services.protocols.processor import TextDelta
from services.protocols.sampling import SamplingParams
from services.protocols.scheduler import Placement, PlaceRequest

from .completion import Completion, NumberingError

Cancel = Callable[[], object]


class EngineFault(RuntimeError):
    """The engine or the scheduler broke its protocol."""


class Retry(enum.Enum):
    """When it is worth trying again after an error."""

    ALWAYS = "the peer is gone or not there for the moment"
    RESUMED = "it was refused for want of room; who has begun has waited before, and is not turned away"
    NEVER = "it would fail again"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an error of a peer means."""

    retry: Retry
    begun: bool
    """Whether the call may have had an effect."""


class Ports(Protocol):
    """What a sequence needs of the outside. Answers may come within the call itself."""

    def place(
        self, request: PlaceRequest, done: Callable[[Placement | None, BaseException | None], object]
    ) -> Cancel: ...

    def release(self, request_id: str) -> None: ...

    def generate(
        self,
        engine: str,
        request: GenerateTokens,
        on_chunk: Callable[[TokenChunk], object],
        on_end: Callable[[BaseException | None], object],
    ) -> Cancel: ...

    def later(self, delay_s: float, callback: Callable[[], object]) -> Cancel: ...

    def judge(self, error: BaseException) -> Verdict: ...

    def final(self, error: BaseException) -> BaseException:
        """What to tell the reader of an error after which it is not tried again."""
        ...


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often, and after how long, a request is handed in again."""

    attempts: int = 8
    """Without a new token between them."""
    first_s: float = 0.05
    most_s: float = 2.0

    def delay_s(self, failures: int) -> float:
        """Before the next attempt, after so many failures in a row."""
        return float(min(self.most_s, self.first_s * 2 ** min(failures - 1, 16)))


@dataclass(frozen=True, slots=True)
class Ask:
    """What is the same in every attempt."""

    request_id: str
    prompt_ids: list[int]
    """[T]"""
    sampling: SamplingParams
    priority: int
    tenant: str
    owner: str
    owner_incarnation: str


class Sequence:
    """Drives one completion to its end."""

    def __init__(
        self,
        ask: Ask,
        completion: Completion,
        ports: Ports,
        policy: RetryPolicy,
        on_delta: Callable[[TextDelta], object],
        on_failed: Callable[[BaseException], object],
    ) -> None:
        """on_delta: the last delta has a finish reason. on_failed: called instead of it, at most once."""
        self._ask = ask
        self._completion = completion
        self._ports = ports
        self._policy = policy
        self._on_delta = on_delta
        self._on_failed = on_failed
        self._attempt = 0
        self._failures = 0
        self._held: str | None = None
        """The attempt whose place is to be released."""
        self._cancel: Cancel | None = None
        self._done = False

    def start(self) -> None:
        """Ask for a place."""
        sampling, have = self._ask.sampling, len(self._completion.token_ids)
        self._attempt += 1
        attempt, number = self._attempt, f".{self._attempt}" if self._attempt > 1 else ""
        self._held = f"{self._ask.request_id}{number}"
        request = PlaceRequest(
            request_id=self._held, prompt_tokens=len(self._ask.prompt_ids) + have,
            max_tokens=sampling.max_tokens - have, owner=self._ask.owner, owner_incarnation=self._ask.owner_incarnation,
            priority=self._ask.priority, tenant=self._ask.tenant,
        )  # fmt: skip
        cancel = self._ports.place(request, lambda placed, error: self._placed(attempt, placed, error))
        self._keep(attempt, request.request_id, cancel)

    def abort(self) -> None:
        """Nobody waits for it any more: cancel what is under way, and give the place back."""
        if not self._done:
            self._done = True
            self._stop()

    def _keep(self, attempt: int, held: str, cancel: Cancel) -> None:
        """Remember how to cancel what was just begun. Its answer may have come within the call, and led further."""
        if self._done or self._attempt != attempt or self._held != held:
            cancel()
        elif self._cancel is None:
            self._cancel = cancel

    def _stop(self) -> None:
        cancel, self._cancel = self._cancel, None
        if cancel is not None:
            cancel()
        held, self._held = self._held, None
        if held is not None:
            self._ports.release(held)

    def _placed(self, attempt: int, placement: Placement | None, error: BaseException | None) -> None:
        if self._done or attempt != self._attempt:
            return
        self._cancel = None
        if placement is None:
            error = error or EngineFault("the scheduler answered without a placement")
            if not self._ports.judge(error).begun:
                self._held = None
            self._failed(error)
            return
        if placement.request_id != self._held:
            self._fail(EngineFault(f"request {self._held}: the scheduler placed {placement.request_id!r} for it"))
            return
        request = GenerateTokens(
            request_id=placement.request_id, prompt_token_ids=self._ask.prompt_ids, sampling=self._ask.sampling,
            generated_token_ids=list(self._completion.token_ids), priority=self._ask.priority,
            arrival_s=placement.waited_s,
        )  # fmt: skip
        cancel = self._ports.generate(
            placement.engine, request, lambda chunk: self._chunk(attempt, chunk), lambda end: self._ended(attempt, end)
        )
        self._keep(attempt, placement.request_id, cancel)

    def _chunk(self, attempt: int, chunk: TokenChunk) -> None:
        if self._done or attempt != self._attempt:
            return
        had = len(self._completion.token_ids)
        try:
            delta = self._completion.take(chunk)
        except NumberingError as error:
            self._fail(EngineFault(f"request {self._held}: {error}"))
            return
        if len(self._completion.token_ids) > had:
            self._failures = 0
        if self._completion.finished:
            self._done = True
            if chunk.finish_reason is not None:
                self._cancel = None  # the engine has ended it by itself
            self._stop()
        if delta is not None:
            self._on_delta(delta)

    def _ended(self, attempt: int, error: BaseException | None) -> None:
        if self._done or attempt != self._attempt:
            return
        self._cancel = None
        self._failed(error or EngineFault(f"request {self._held}: the engine's stream ended without a finish reason"))

    def _failed(self, error: BaseException) -> None:
        """An attempt has failed: try again, if that is of use."""
        have = len(self._completion.token_ids)
        if have >= self._ask.sampling.max_tokens:  # lost between its last token and the word that it was the last
            self._done = True
            self._stop()
            self._on_delta(self._completion.end("length"))
            return
        retry = self._ports.judge(error).retry
        self._failures += 1
        if retry is Retry.NEVER or (retry is Retry.RESUMED and not have) or self._failures > self._policy.attempts:
            self._fail(self._ports.final(error))
            return
        self._stop()
        self._cancel = self._ports.later(self._policy.delay_s(self._failures), self._again)

    def _again(self) -> None:
        if not self._done:
            self._cancel = None
            self.start()

    def _fail(self, error: BaseException) -> None:
        self._done = True
        self._stop()
        self._on_failed(error)
