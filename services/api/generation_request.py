"""What /v1/chat/completions and /v1/completions have in common: sampling, ends, streaming, and what is refused.

An optional field may be null, which is the same as leaving it out. Fields of OpenAI's that ask for what this server
does not do are declared here and in the two subclasses, and refused by name unless they carry their default; a field
that is declared nowhere is refused as unknown.
"""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from . import limits
from .errors import summary
from .fields import FirstFault, JsonObject, LogitBias, StopStrings, StrictModel, TokenId, fault, unsupported

_GUIDED = "guided decoding"
Fraction = Annotated[float, Field(ge=0, le=1)]
Penalty = Annotated[float, Field(ge=-2, le=2)]


class StreamOptions(StrictModel):
    """Options of a streamed answer."""

    include_usage: bool | None = Field(None, description="Send usage in a last chunk, whose choices are empty.")
    include_obfuscation: Annotated[bool | None, unsupported("padding of chunks", False)] = Field(
        None, description="Padding against side channels: only false."
    )
    continuous_usage_stats: Annotated[bool | None, unsupported("usage in every chunk", False)] = Field(
        None, description="Usage in every chunk: only false."
    )


class ResponseFormat(StrictModel):
    """Form of the answer."""

    type: str = Field(description="Only 'text'.")

    @model_validator(mode="before")
    @classmethod
    def _type(cls, data: Any) -> Any:
        kind = data.get("type") if isinstance(data, dict) else None
        if kind in ("json_object", "json_schema"):
            raise fault(f"of type {kind!r} is not supported yet ({_GUIDED})", code="unsupported_parameter")
        if kind != "text":
            said = f"; its type is {summary(kind)}" if kind is not None else ""
            raise fault(f"must be an object whose type is 'text'{said}")
        return data


class GenerationRequest(StrictModel):
    """Fields of both endpoints. Ranges are OpenAI's, and where a field is not OpenAI's, vLLM's."""

    model: str = Field(min_length=1, max_length=256, description="Name of a served model, as /v1/models lists it.")
    stream: bool | None = Field(None, description="Answer in server-sent events.")
    stream_options: StreamOptions | None = Field(None, description="Only with stream.")
    n: int | None = Field(None, ge=1, le=limits.MAX_CHOICES, description="Completions of each prompt. Default 1.")
    max_tokens: int | None = Field(None, ge=1, le=limits.MAX_TOKENS, description="Tokens to generate at most.")
    min_tokens: int | None = Field(None, ge=0, le=limits.MAX_TOKENS, description="No end before this many tokens.")

    temperature: float | None = Field(None, ge=0, le=2, description="Divides the logits; 0 is greedy. Default 1.")
    top_p: float | None = Field(None, gt=0, le=1, description="Nucleus sampling. Default 1.")
    top_k: int | None = Field(None, ge=-1, le=2**31 - 1, description="Keep the k most probable; 0 and -1 keep all.")
    min_p: Fraction | None = Field(None, description="Drop what is less probable than this part of the best.")
    presence_penalty: Penalty | None = Field(None, description="Subtracted once from each token in the output.")
    frequency_penalty: Penalty | None = Field(None, description="Subtracted for each time a token is in the output.")
    repetition_penalty: float | None = Field(None, gt=0, le=100, description="Over prompt and output. Default 1.")
    logit_bias: LogitBias | None = Field(None, description="Token id to what is added to its logit.")
    allowed_token_ids: Annotated[list[TokenId], FirstFault()] | None = Field(
        None, min_length=1, max_length=limits.MAX_ALLOWED_IDS, description="Sample from these only."
    )
    seed: int | None = Field(
        None, ge=-(2**63), lt=2**63, description="Makes the answer repeatable; choice i is sampled with seed + i."
    )

    stop: StopStrings | None = Field(None, description="Strings that end a completion.")
    stop_token_ids: Annotated[list[TokenId], FirstFault()] | None = Field(
        None, max_length=limits.MAX_STOP_TOKEN_IDS, description="Tokens that end it, beside the model's own."
    )
    include_stop_str_in_output: bool | None = Field(None, description="Keep the stop string in the text.")
    ignore_eos: bool | None = Field(None, description="Go on after the model's end-of-sequence tokens.")
    skip_special_tokens: bool | None = Field(None, description="Leave special tokens out of the text. Default true.")
    priority: int | None = Field(None, ge=-1000, le=1000, description="Lower is served first. Default 0.")

    user: str | None = Field(None, max_length=512, description="Accepted, not used: nothing is kept of a request.")

    response_format: ResponseFormat | None = Field(None, description="Only {'type': 'text'}.")
    guided_json: Annotated[JsonObject | str | None, unsupported(_GUIDED)] = None
    guided_regex: Annotated[str | None, unsupported(_GUIDED)] = None
    guided_choice: Annotated[list[str] | None, unsupported(_GUIDED)] = None
    guided_grammar: Annotated[str | None, unsupported(_GUIDED)] = None
    structured_outputs: Annotated[JsonObject | None, unsupported(_GUIDED)] = None
    bad_words: Annotated[list[str] | None, unsupported("banned words", [])] = None
    prompt_logprobs: Annotated[int | None, unsupported("log-probabilities of the prompt")] = None

    @model_validator(mode="after")
    def _options_without_stream(self) -> Self:
        if self.stream_options is not None and not self.stream:
            raise fault("is only allowed when stream is true", param="stream_options")
        return self

    @model_validator(mode="after")
    def _min_above_max(self) -> Self:
        limit = self.token_limit()
        if limit is not None and (self.min_tokens or 0) > limit:
            raise fault(f"must not be above the limit of {limit} tokens; it is {self.min_tokens}", param="min_tokens")
        return self

    def token_limit(self) -> int | None:
        """Tokens to generate at most, or None for as many as the context has room for."""
        return self.max_tokens

    @property
    def limit_field(self) -> str:
        """The field by which the client limits the tokens."""
        return "max_tokens"

    @property
    def prompt_field(self) -> str:
        """The field that has the prompt."""
        return "prompt"

    @property
    def choices_per_prompt(self) -> int:
        return self.n or 1

    @property
    def top_alternatives(self) -> int | None:
        """How many alternatives to report for each token; None reports no log-probabilities."""
        return None

    @property
    def logprobs_field(self) -> str:
        """The field that says how many alternatives to report."""
        return "logprobs"

    @property
    def wants_usage(self) -> bool:
        """Whether a stream ends with a chunk of usage."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)
