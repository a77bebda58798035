"""The body of /v1/completions."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Discriminator, Field, Tag, model_validator

from . import limits
from .fields import FirstFault, TokenId, fault, unsupported
from .generation_request import GenerationRequest


def _prompt_tag(value: Any) -> str | None:
    """Four forms of a prompt, told apart by the first item."""
    if isinstance(value, str):
        return ":text"
    if not isinstance(value, list):
        return None
    first = value[0] if value else ""
    if isinstance(first, list):
        return ":token_lists"
    return ":tokens" if isinstance(first, int) else ":texts"


TokenIds = Annotated[list[TokenId], Field(min_length=1, max_length=limits.MAX_PROMPT_IDS), FirstFault()]
Several = Field(min_length=1, max_length=limits.MAX_PROMPTS)
Prompt = Annotated[
    Annotated[str, Tag(":text")]
    | Annotated[list[str], Several, FirstFault(), Tag(":texts")]
    | Annotated[TokenIds, Tag(":tokens")]
    | Annotated[list[TokenIds], Several, FirstFault(), Tag(":token_lists")],
    Discriminator(
        _prompt_tag,
        custom_error_type="fault",
        custom_error_message="must be a string, a list of strings, a list of token ids, or a list of those",
    ),
]


class CompletionRequest(GenerationRequest):
    """One or several prompts to go on with. Choices are numbered prompt by prompt: choice i of prompt p is p * n + i.

    best_of other than 1 and suffix are refused; so is logprobs together with echo, which would need the
    log-probabilities of the prompt. `user` is accepted and not used.
    """

    prompt: Prompt = Field(description="A string, token ids, or a list of either.")
    echo: bool | None = Field(None, description="Begin each text with the prompt's.")
    logprobs: int | None = Field(
        None, ge=0, le=limits.MAX_TOP_LOGPROBS, description="Alternatives to report with each token."
    )
    best_of: Annotated[Literal[1] | None, unsupported("choosing among completions", 1)] = None
    suffix: Annotated[str | None, unsupported("text behind the completion")] = None

    @model_validator(mode="after")
    def _echoed_logprobs(self) -> Self:
        if self.echo and self.logprobs is not None:
            raise fault("is not supported together with echo", param="logprobs", code="unsupported_parameter")
        return self

    @model_validator(mode="after")
    def _best_of_n(self) -> Self:
        if self.best_of is not None and self.best_of < self.choices_per_prompt:
            raise fault(f"must not be below n, which is {self.n}", param="best_of")
        return self

    @model_validator(mode="after")
    def _choices(self) -> Self:
        choices = len(self.prompts()) * self.choices_per_prompt
        if choices > limits.MAX_PROMPTS:
            raise fault(f"must be at most {limits.MAX_PROMPTS} over all prompts; it is {choices}", param="n")
        return self

    def prompts(self) -> list[str] | list[list[int]]:
        """The prompts, one or several: text each, or token ids [T] each."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        if isinstance(self.prompt[0], int):
            return [self.prompt]  # the first item tells the form
        return self.prompt

    def token_limit(self) -> int:
        return limits.COMPLETION_MAX_TOKENS if self.max_tokens is None else self.max_tokens

    @property
    def top_alternatives(self) -> int | None:
        return self.logprobs
