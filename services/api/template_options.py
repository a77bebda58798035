"""How a conversation is rendered: shared by /v1/chat/completions and /tokenize. Templates come from the model only."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from . import limits
from .fields import JsonObject, StrictModel, fault, unsupported
from .message import AssistantMessage, Conversation

_OWN_FIELDS = {"messages", "tools", "add_generation_prompt", "continue_final_message", "chat_template", "tokenize"}
"""Template variables that have a field of their own, or none at all."""


class TemplateOptions(StrictModel):
    """A conversation and how to render it."""

    messages: Conversation = Field(description="The conversation so far.")
    add_generation_prompt: bool | None = Field(
        None, description="End the prompt with the head of an answer. Default true; false with continue_final_message."
    )
    continue_final_message: bool | None = Field(
        None, description="Go on with the last message, an assistant's, instead of beginning a new one."
    )
    chat_template_kwargs: JsonObject | None = Field(
        None, max_length=limits.MAX_TEMPLATE_KWARGS, description="Variables for the template."
    )
    chat_template: Annotated[str | None, unsupported("templates from clients")] = None

    @model_validator(mode="after")
    def _continued_message(self) -> Self:
        if not self.continue_final_message:
            return self
        if self.add_generation_prompt:
            raise fault("must not be true together with add_generation_prompt", param="continue_final_message")
        if not isinstance(self.messages[-1], AssistantMessage):
            raise fault("needs an assistant's message as the last one", param="continue_final_message")
        return self

    @model_validator(mode="after")
    def _own_fields(self) -> Self:
        taken = sorted(_OWN_FIELDS.intersection(self.chat_template_kwargs or ()))
        if taken:
            raise fault(f"must not set {taken[0]!r}", param="chat_template_kwargs")
        return self

    @property
    def generation_prompt(self) -> bool:
        """Whether the prompt ends with the head of an answer."""
        if self.add_generation_prompt is None:
            return not self.continue_final_message
        return self.add_generation_prompt
