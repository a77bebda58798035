"""A processor that counts, as a process of its own.

A prompt that says "wait" gets one delta and no end; one that says "slow" is counted at ten deltas a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from services.api.errors import BackendError
from services.protocols.processor import (
    ChatPrompt,
    GenerateText,
    ModelCard,
    ProcessorInterface,
    TextDelta,
    TextPrompt,
    TokenPrompt,
)
from tests.services.api.fake_backend import CARD, counted, delta, prompt_text
from zmqengine import Service
from zmqengine.errors import InvalidArgument, Unavailable


class StandInProcessor(Service, ProcessorInterface):
    """Implements processor/1 without a model."""

    async def setup(self) -> None:
        self._open = 0

    async def generate(self, request: GenerateText) -> AsyncIterator[TextDelta]:  # type: ignore[override]
        self._open += 1
        try:
            if "wait" in prompt_text(request.prompt):
                yield delta(text="waiting")
                await asyncio.Event().wait()
            for item in counted(request):
                if "slow" in prompt_text(request.prompt):
                    await asyncio.sleep(0.1)
                yield item
        except BackendError as error:
            raise InvalidArgument(str(error), field=error.field) from None
        finally:
            self._open -= 1

    def model(self) -> ModelCard:
        return CARD

    def tokenize(self, prompt: ChatPrompt | TextPrompt | TokenPrompt, add_special_tokens: bool = True) -> list[int]:
        """The only token is how many generations are open."""
        return [self._open]

    def detokenize(self, token_ids: list[int]) -> str:
        raise Unavailable("processor: no text today")

    def check(self) -> str:
        raise Unavailable("worker is absent")


if __name__ == "__main__":
    StandInProcessor.main()
