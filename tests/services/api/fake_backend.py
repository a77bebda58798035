"""A backend with scripted answers: it counts ("0, 1, 2, ..."), or plays the deltas it is given."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from typing import Any

from services.api.errors import BackendError
from services.protocols.engine import FinishReason
from services.protocols.processor import (
    ChatPrompt,
    GenerateText,
    ModelCard,
    TextDelta,
    TextLogprob,
    TextPrompt,
    TokenPrompt,
    TopToken,
)

CARD = ModelCard(
    name="smollm2", path="/models/smollm2.gguf", max_context=2048, vocab_size=49152, has_chat_template=True,
    created=1700000000,
)  # fmt: skip
NEVER = object()
"""A step of a script: waits until it is closed."""


def delta(index: int = 0, text: str = "", *, finish: Any = None, count: int = 1, **fields: Any) -> TextDelta:
    """A delta of a prompt of 7 tokens."""
    return TextDelta(index=index, text=text, token_count=count, finish_reason=finish, prompt_tokens=7, **fields)


class FakeBackend:
    """Implements `services.api.backend.Backend`."""

    def __init__(self, *script: Any) -> None:
        """script: deltas, exceptions to raise, NEVER, or awaitables to wait for; without one it counts."""
        self.card = CARD
        self.script = script
        self.requests: list[GenerateText] = []
        self.open = 0
        """Generators that have begun and have not ended."""
        self.begun = asyncio.Event()
        self.closed = asyncio.Event()
        self.down: BackendError | None = None

    async def generate(self, request: GenerateText) -> AsyncGenerator[TextDelta, None]:
        self.requests.append(request)
        self.open += 1
        self.begun.set()
        try:
            for step in self.script or counted(request):
                if isinstance(step, TextDelta):
                    yield step
                elif isinstance(step, Exception):
                    raise step
                elif step is NEVER:
                    await asyncio.Event().wait()
                else:
                    await step
                await asyncio.sleep(0)
        finally:
            self.open -= 1
            self.closed.set()

    async def model(self) -> ModelCard:
        if self.down is not None:
            raise self.down
        return self.card

    async def check(self) -> str:
        if self.down is not None:
            raise self.down
        return "ok"

    async def tokenize(self, prompt: ChatPrompt | TextPrompt | TokenPrompt, add_special_tokens: bool) -> list[int]:
        text = prompt_text(prompt)
        return [1] * add_special_tokens + [ord(c) % self.card.vocab_size for c in text]

    async def detokenize(self, token_ids: list[int]) -> str:
        return "".join(map(chr, token_ids))


def prompt_text(prompt: ChatPrompt | TextPrompt | TokenPrompt) -> str:
    """What a prompt says."""
    if isinstance(prompt, ChatPrompt):
        return "".join(f"{message.role}: {message.content}\n" for message in prompt.messages)
    return prompt.text if isinstance(prompt, TextPrompt) else "".join(map(chr, prompt.token_ids))


def counted(request: GenerateText) -> Iterator[TextDelta]:
    """Deltas as a processor would send them: tokens "0, ", "1, ", ... until max_tokens or a stop string."""
    prompt_tokens = len(prompt_text(request.prompt).split())
    if prompt_tokens > CARD.max_context - 1:
        message = f"prompt: {prompt_tokens} tokens do not fit into the context of {CARD.max_context}"
        raise BackendError("invalid_argument", message, field="prompt")
    common: dict[str, Any] = {"prompt_tokens": prompt_tokens}
    texts = {index: prompt_text(request.prompt) if request.echo else "" for index in range(request.n)}
    limit = 12 if request.max_tokens_default else request.sampling.max_tokens
    for number in range(limit):
        for index, held in list(texts.items()):
            token = f"{number}, "
            stop = next((s for s in request.stop if s in token), None)
            text = held + (token if stop is None else token[: token.index(stop)])
            last = number == limit - 1
            finish: FinishReason | None = "stop" if stop is not None else "length" if last else None
            yield TextDelta(
                index=index, text=text, token_count=number + 1, finish_reason=finish, stop_reason=stop,
                logprobs=_logprobs(token, number, request.sampling.logprobs), **common,
            )  # fmt: skip
            texts[index] = ""
            if finish is not None:
                del texts[index]


def _logprobs(token: str, token_id: int, alternatives: int | None) -> list[TextLogprob] | None:
    if alternatives is None:
        return None
    top = [
        TopToken(token=token if rank == 0 else f"alt{rank}", token_id=token_id + rank, logprob=-0.5 - rank,
                 raw=(token if rank == 0 else f"alt{rank}").encode())
        for rank in range(alternatives)
    ]  # fmt: skip
    return [TextLogprob(token=token, token_id=token_id, logprob=-0.5, raw=token.encode(), top=top)]
