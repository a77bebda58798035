"""The routes /tokenize and /detokenize."""

from __future__ import annotations

from fastapi import APIRouter, Request

from services.protocols.processor import ChatPrompt, TextPrompt

from .backend import Backend
from .body import BodyLimits, read_json
from .disconnect import unless_disconnected
from .errors import BackendError, from_backend
from .served_model import ServedModel
from .tokenize_request import (
    DetokenizeRequest,
    DetokenizeResponse,
    TokenizeChatRequest,
    TokenizeResponse,
    TokenizeTextRequest,
)
from .translate import chat_prompt, check_token_ids
from .validation import validated


def tokenization_router(backend: Backend, served: ServedModel, limits: BodyLimits) -> APIRouter:
    """The two routes."""
    router = APIRouter(tags=["tokens"])

    @router.post("/tokenize")
    async def tokenize(request: Request) -> TokenizeResponse:
        """Token ids of a text (`prompt`) or of a conversation (`messages`)."""
        data = await read_json(request, limits)
        is_chat = isinstance(data, dict) and "messages" in data
        body: TokenizeChatRequest | TokenizeTextRequest
        prompt: ChatPrompt | TextPrompt
        if is_chat:
            body = validated(TokenizeChatRequest, data)
            prompt = chat_prompt(body)
        else:
            body = validated(TokenizeTextRequest, data)
            prompt = TextPrompt(text=body.prompt)

        async def tokens() -> TokenizeResponse:
            card = await (served.card() if body.model is None else served.named(body.model))
            ids = await backend.tokenize(prompt, body.add_special_tokens)
            return TokenizeResponse(count=len(ids), max_model_len=card.max_context, tokens=ids)

        try:
            return await unless_disconnected(request.receive, tokens())
        except BackendError as error:
            raise from_backend(error, lambda _: "messages" if is_chat else "prompt") from error

    @router.post("/detokenize")
    async def detokenize(request: Request) -> DetokenizeResponse:
        """Text of token ids, special tokens included."""
        body = validated(DetokenizeRequest, await read_json(request, limits))

        async def text() -> DetokenizeResponse:
            card = await (served.card() if body.model is None else served.named(body.model))
            check_token_ids(body.tokens, card, "tokens")
            return DetokenizeResponse(prompt=await backend.detokenize(body.tokens))

        try:
            return await unless_disconnected(request.receive, text())
        except BackendError as error:
            raise from_backend(error, lambda _: "tokens") from error

    return router
