"""The served model's card, kept for a moment: each request asks for it, and it changes when a model is swapped."""

from __future__ import annotations

from collections.abc import Callable

from services.protocols.processor import ModelCard

from .backend import Backend
from .errors import ApiError

_KEEP_S = 1.0


class ServedModel:
    """Answers which model is served, from the backend or from what it said less than a second ago."""

    def __init__(self, backend: Backend, clock: Callable[[], float]) -> None:
        self._backend = backend
        self._clock = clock
        self._card: ModelCard | None = None
        self._read_at = 0.0

    async def card(self) -> ModelCard:
        """The card. Raises BackendError."""
        if self._card is None or self._clock() - self._read_at > _KEEP_S:
            return await self._read()
        return self._card

    async def named(self, name: str) -> ModelCard:
        """The card of the model that a client names. Raises ApiError 404, BackendError."""
        card = await self.card()
        if card.name != name:
            card = await self._read()  # it may have been swapped just now
        if card.name != name:
            message = f"the model '{name}' is not served; 'model' must be '{card.name}'"
            raise ApiError(404, message, param="model", code="model_not_found")
        return card

    async def _read(self) -> ModelCard:
        self._card = await self._backend.model()
        self._read_at = self._clock()
        return self._card
