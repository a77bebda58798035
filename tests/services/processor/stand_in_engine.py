"""An engine without a model, as a process: ``python -m tests.services.processor.stand_in_engine``.

It goes on with the prompt's own tokens, over and over: token i is prompt[i mod T]. So what a request gives is known,
and is the same for every incarnation.
"""

from __future__ import annotations

from services.protocols.engine import EngineInfo, EngineInterface, EngineStats, GenerateTokens, TokenChunk
from zmqengine import Config, Outlet, Service, call
from zmqengine.errors import InvalidArgument


class StandInConfig(Config):
    """Options of the stand-in."""

    max_context: int = 10_000
    vocab_size: int = 262
    token_s: float = 0.0
    """From one token to the next."""
    worker: str = "ready"
    refuse: bool = False
    """Refuse every request."""
    finish: str = "length"
    """Reason of the last chunk."""


class Seen(Config):
    """What it has been asked."""

    requests: list[GenerateTokens]
    running: list[str]


class StandInEngine(Service, EngineInterface):
    """Repeats prompts."""

    config: StandInConfig

    def setup(self) -> None:
        self._requests: list[GenerateTokens] = []
        self._running: dict[str, Outlet[TokenChunk]] = {}

    def generate(self, request: GenerateTokens, out: Outlet[TokenChunk]) -> None:
        self._requests.append(request)
        if self.config.refuse:
            raise InvalidArgument("refused, as it was told to", field="request.prompt_token_ids")
        if request.request_id in self._running:
            raise InvalidArgument(f"{request.request_id!r} is running already", field="request.request_id")
        self._running[request.request_id] = out
        out.on_cancel(lambda: self._running.pop(request.request_id, None))
        self._go_on(request, out, len(request.generated_token_ids))

    def _go_on(self, request: GenerateTokens, out: Outlet[TokenChunk], number: int) -> None:
        """Send token `number`, and the next ones a little later."""
        if out.closed:
            return
        if not out.credit:
            out.on_credit(lambda: self._go_on(request, out, number))
            return
        out.on_credit(lambda: None)
        last = number + 1 == request.sampling.max_tokens
        token = request.prompt_token_ids[number % len(request.prompt_token_ids)]
        reason = self.config.finish if last else None
        error = "failed, as it was told to" if reason == "error" else None
        out.send(TokenChunk(start=number, token_ids=[token], finish_reason=reason, error=error))  # type: ignore[arg-type]
        if last:
            del self._running[request.request_id]
            out.end()
        else:
            self.loop.call_later(self.config.token_s, lambda: self._go_on(request, out, number + 1))

    def abort(self, request_id: str) -> bool:
        return False

    def info(self) -> EngineInfo:
        config = self.config
        return EngineInfo(
            model="stand-in", max_context=config.max_context, num_blocks=100, block_size=16,
            vocab_size=config.vocab_size, max_seqs=8, eos_token_ids=[],
        )  # fmt: skip

    def stats(self) -> EngineStats:
        return EngineStats(
            running=len(self._running), waiting=0, free_blocks=0, total_blocks=0, steps=0, preemptions=0,
            prompt_tokens=0, generated_tokens=0, worker=self.config.worker,
        )  # fmt: skip

    @call(idempotent=True)
    def seen(self) -> Seen:
        """What it has been asked."""
        return Seen(requests=self._requests, running=list(self._running))


if __name__ == "__main__":
    StandInEngine.main()
