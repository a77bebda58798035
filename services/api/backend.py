"""What the HTTP server needs behind it. `service` implements it by the processor; tests, by scripted answers."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol

from services.protocols.processor import ChatPrompt, GenerateText, ModelCard, TextDelta, TextPrompt, TokenPrompt


class Backend(Protocol):
    """Text generation. Every method raises `errors.BackendError` and no other."""

    def generate(self, request: GenerateText) -> AsyncGenerator[TextDelta, None]:
        """Generate; closing the generator frees everything behind it."""
        ...

    async def model(self) -> ModelCard:
        """What is served."""
        ...

    async def check(self) -> str:
        """Answers when the whole chain is there; unavailable, with the name of what is missing, when it is not."""
        ...

    async def tokenize(self, prompt: ChatPrompt | TextPrompt | TokenPrompt, add_special_tokens: bool) -> list[int]:
        """Token ids of a prompt, [T]."""
        ...

    async def detokenize(self, token_ids: list[int]) -> str:
        """Text of token ids."""
        ...
