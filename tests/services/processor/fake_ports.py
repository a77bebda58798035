"""The outside of a sequence, in the test's hands: a scheduler, an engine, a clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from services.processor.sequence import Cancel, Retry, Verdict
from services.protocols.engine import GenerateTokens, TokenChunk
from services.protocols.scheduler import Placement, PlaceRequest


class PeerLost(Exception):
    """The peer is gone; whether it had begun is not known."""


class NotThere(Exception):
    """The peer is not there; it has not begun."""


class Full(Exception):
    """The peer has no room."""


class Refused(Exception):
    """The peer would refuse it again."""


class Broken(Exception):
    """The peer failed at it."""


class GivenUp(Exception):
    """What a reader is told of a peer that was lost for good."""


_VERDICTS = {
    PeerLost: Verdict(Retry.ALWAYS, begun=True), NotThere: Verdict(Retry.ALWAYS, begun=False),
    Full: Verdict(Retry.RESUMED, begun=False), Refused: Verdict(Retry.NEVER, begun=False),
}  # fmt: skip


@dataclass
class Placing:
    """A call of `place`."""

    request: PlaceRequest
    done: Callable[[Placement | None, BaseException | None], object]
    cancelled: bool = False

    def answer(self, engine: str = "engine", waited_s: float = 0.5) -> None:
        self.done(Placement(request_id=self.request.request_id, engine=engine, waited_s=waited_s), None)

    def refuse(self, error: BaseException) -> None:
        self.done(None, error)


@dataclass
class Generating:
    """A call of `generate`. Like a real stream, it ends when it is cancelled, and then says so."""

    engine: str
    request: GenerateTokens
    on_chunk: Callable[[TokenChunk], object]
    on_end: Callable[[BaseException | None], object]
    cancelled: bool = False
    ended: bool = False

    def send(self, start: int, tokens: bytes, **fields: object) -> None:
        """Send tokens; a finish reason among `fields` is the end of the stream."""
        self.on_chunk(TokenChunk(start=start, token_ids=list(tokens), **fields))  # type: ignore[arg-type]
        if "finish_reason" in fields:
            self.end()

    def end(self, error: BaseException | None = None) -> None:
        if not self.ended:
            self.ended = True
            self.on_end(error)

    def cancel(self) -> None:
        if not self.ended:
            self.cancelled = True
            self.end(Refused("cancelled"))


@dataclass
class Timer:
    due: float
    callback: Callable[[], object]
    cancelled: bool = False


@dataclass
class FakePorts:
    """Records what is asked, and checks that each place is released once."""

    at_once: bool = False
    """Answer `place` within the call itself."""
    now: float = 0.0
    placings: list[Placing] = field(default_factory=list)
    streams: list[Generating] = field(default_factory=list)
    released: list[str] = field(default_factory=list)
    timers: list[Timer] = field(default_factory=list)
    on_generate: Callable[[Generating], object] = lambda stream: None
    """Called within `generate`."""

    def place(self, request: PlaceRequest, done: Callable[[Placement | None, BaseException | None], object]) -> Cancel:
        placing = Placing(request, done)
        self.placings.append(placing)
        if self.at_once:
            placing.answer()
        return lambda: setattr(placing, "cancelled", True)

    def release(self, request_id: str) -> None:
        assert request_id not in self.released, "released twice"
        assert request_id in [placing.request.request_id for placing in self.placings], "released, but never asked for"
        self.released.append(request_id)

    def generate(
        self, engine: str, request: GenerateTokens, on_chunk: Callable[[TokenChunk], object],
        on_end: Callable[[BaseException | None], object],
    ) -> Cancel:  # fmt: skip
        stream = Generating(engine, request, on_chunk, on_end)
        self.streams.append(stream)
        self.on_generate(stream)
        return stream.cancel

    def later(self, delay_s: float, callback: Callable[[], object]) -> Cancel:
        timer = Timer(self.now + delay_s, callback)
        self.timers.append(timer)
        return lambda: setattr(timer, "cancelled", True)

    def judge(self, error: BaseException) -> Verdict:
        return _VERDICTS.get(type(error), Verdict(Retry.NEVER, begun=True))

    def final(self, error: BaseException) -> BaseException:
        return GivenUp(str(error)) if isinstance(error, PeerLost) else error

    def pass_time(self) -> float:
        """Let the next timer ring; how long that was."""
        before = self.now
        timer = min(self.pending_timers(), key=lambda each: each.due)
        self.timers.remove(timer)
        self.now = timer.due
        timer.callback()
        return self.now - before

    def pending_timers(self) -> list[Timer]:
        return [timer for timer in self.timers if not timer.cancelled]

    def asked(self) -> list[str]:
        """Ids of all placements asked for."""
        return [placing.request.request_id for placing in self.placings]

    def leaves_nothing(self) -> bool:
        """Whether no timer and no stream is left."""
        return not self.pending_timers() and all(s.ended or s.cancelled for s in self.streams)
