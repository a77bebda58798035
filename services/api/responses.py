"""The answers of the two endpoints, whole and in chunks, in OpenAI's shapes.

finish_reason is "stop" or "length". A completion that the engine ended with "abort" or "error" is not complete: its
request is answered with an error, or its stream is ended by an error event, never with a finish_reason that OpenAI's
clients do not know.
"""

from __future__ import annotations

from typing import Literal, NotRequired

from typing_extensions import TypedDict

from .logprob import ChatLogprobs, CompletionLogprobs

FinishReason = Literal["stop", "length"]


class PromptTokensDetails(TypedDict):
    cached_tokens: int
    """Prompt tokens that were found in the prefix cache."""


class Usage(TypedDict):
    """Counted in tokens. The prompt counts once, however many completions it gets."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails


class AnswerMessage(TypedDict):
    role: Literal["assistant"]
    content: str
    refusal: None


class ChatChoice(TypedDict):
    index: int
    message: AnswerMessage
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason
    stop_reason: str | int | None
    """The stop string or stop token id that ended it."""


class ChatResponse(TypedDict):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage


class ChatDelta(TypedDict):
    role: NotRequired[Literal["assistant"]]
    content: NotRequired[str]


class ChatChunkChoice(TypedDict):
    index: int
    delta: ChatDelta
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason | None
    stop_reason: NotRequired[str | int | None]


class ChatChunk(TypedDict):
    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    choices: list[ChatChunkChoice]
    usage: NotRequired[Usage]
    """In the last chunk only, whose choices are empty."""


class CompletionChoice(TypedDict):
    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: FinishReason | None
    """Null in all chunks of a choice but its last."""
    stop_reason: NotRequired[str | int | None]


class CompletionResponse(TypedDict):
    """A whole completion, or a chunk of one."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: NotRequired[Usage]


class ModelObject(TypedDict):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    max_model_len: int
    """Tokens that a prompt and its output may have together."""


class ModelList(TypedDict):
    object: Literal["list"]
    data: list[ModelObject]


class StatusText(TypedDict):
    status: str


class VersionText(TypedDict):
    version: str
