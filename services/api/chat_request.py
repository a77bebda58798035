"""The body of /v1/chat/completions."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from . import limits
from .fields import JsonObject, Metadata, fault, unsupported
from .generation_request import GenerationRequest
from .template_options import TemplateOptions

_TOOLS = "tool calling"


class ChatRequest(TemplateOptions, GenerationRequest):
    """A conversation to answer.

    Accepted and not used, for they change no token: user, metadata, safety_identifier, prompt_cache_key (the prefix
    cache needs no key), store=false, service_tier "auto" and "default". Accepted at the value that asks for nothing:
    modalities ["text"], parallel_tool_calls true, tool_choice "none" and "auto", tools [], functions [],
    function_call "none" and "auto", reasoning_effort "none", verbosity "medium", prompt_cache_retention "in_memory".
    Any other value of these, and any of the remaining fields of OpenAI's, is refused by name.
    """

    max_completion_tokens: int | None = Field(
        None, ge=1, le=limits.MAX_TOKENS, description="Newer name of max_tokens; both are allowed if they are equal."
    )
    logprobs: bool | None = Field(None, description="Report the log-probability of each token.")
    top_logprobs: int | None = Field(
        None, ge=0, le=limits.MAX_TOP_LOGPROBS, description="Alternatives to report with each token; needs logprobs."
    )

    metadata: Metadata | None = Field(None, description="Accepted, not used.")
    safety_identifier: str | None = Field(None, max_length=512, description="Accepted, not used.")
    prompt_cache_key: str | None = Field(None, max_length=512, description="Accepted, not used.")
    store: Annotated[Literal[False] | None, unsupported("storing of answers", False)] = None
    service_tier: Annotated[Literal["auto", "default"] | None, unsupported("tiers", "auto", "default")] = None

    tools: Annotated[list[Any] | None, unsupported(_TOOLS, [])] = None
    tool_choice: Annotated[Literal["none", "auto"] | None, unsupported(_TOOLS, "none", "auto")] = None
    parallel_tool_calls: Annotated[Literal[True] | None, unsupported(_TOOLS, True)] = None
    functions: Annotated[list[Any] | None, unsupported(_TOOLS, [])] = None
    function_call: Annotated[Literal["none", "auto"] | None, unsupported(_TOOLS, "none", "auto")] = None
    modalities: Annotated[list[Literal["text"]] | None, unsupported("other than text", ["text"])] = None
    audio: Annotated[JsonObject | None, unsupported("audio")] = None
    prediction: Annotated[JsonObject | None, unsupported("predicted outputs")] = None
    moderation: Annotated[JsonObject | None, unsupported("moderation")] = None
    prompt_cache_options: Annotated[JsonObject | None, unsupported("cache options")] = None
    prompt_cache_retention: Annotated[Literal["in_memory"] | None, unsupported("retention", "in_memory")] = None
    reasoning_effort: Annotated[Literal["none"] | None, unsupported("reasoning", "none")] = None
    verbosity: Annotated[Literal["medium"] | None, unsupported("verbosity", "medium")] = None
    web_search_options: Annotated[JsonObject | None, unsupported("web search")] = None

    @model_validator(mode="after")
    def _one_limit(self) -> Self:
        newer = self.max_completion_tokens
        if None not in (self.max_tokens, newer) and self.max_tokens != newer:
            raise fault(f"is {self.max_tokens}, but max_completion_tokens is {newer}; send one", param="max_tokens")
        return self

    @model_validator(mode="after")
    def _alternatives_without_logprobs(self) -> Self:
        if self.top_logprobs and not self.logprobs:
            raise fault("is only allowed when logprobs is true", param="top_logprobs")
        return self

    def token_limit(self) -> int | None:
        return self.max_completion_tokens if self.max_completion_tokens is not None else self.max_tokens

    @property
    def limit_field(self) -> str:
        return "max_completion_tokens" if self.max_completion_tokens is not None else "max_tokens"

    @property
    def prompt_field(self) -> str:
        return "messages"

    @property
    def top_alternatives(self) -> int | None:
        return (self.top_logprobs or 0) if self.logprobs else None

    @property
    def logprobs_field(self) -> str:
        return "top_logprobs" if self.top_logprobs else "logprobs"
