"""The bodies of /tokenize and /detokenize, in vLLM's shape, and their answers."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field

from . import limits
from .fields import FirstFault, StrictModel, TokenId
from .template_options import TemplateOptions


class TokenizeTextRequest(StrictModel):
    """A text to tokenize."""

    model: str | None = Field(None, description="Name of the served model.")
    prompt: str = Field(description="The text.")
    add_special_tokens: bool = Field(True, description="Add the tokens that the model's texts begin with.")


class TokenizeChatRequest(TemplateOptions):
    """A conversation to render and tokenize, as /v1/chat/completions would."""

    model: str | None = Field(None, description="Name of the served model.")
    add_special_tokens: bool = Field(False, description="Add special tokens beside those of the template.")


class TokenizeResponse(BaseModel):
    """Token ids of a prompt."""

    count: int
    max_model_len: int = Field(description="Tokens that a prompt and its output may have together.")
    tokens: list[int] = Field(description="[T]")


class DetokenizeRequest(StrictModel):
    """Token ids to turn into text."""

    model: str | None = Field(None, description="Name of the served model.")
    tokens: Annotated[list[TokenId], FirstFault()] = Field(max_length=limits.MAX_PROMPT_IDS, description="[T]")


class DetokenizeResponse(BaseModel):
    """Text of token ids, special tokens included."""

    prompt: str
