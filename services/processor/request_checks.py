"""What a request must be, given the model that is served: checked before anything is asked of another service."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from services.protocols.processor import GenerateText
from services.protocols.sampling import SamplingParams

MIN_SEED, MAX_SEED = -(2**63), 2**64 - 1


class RequestError(ValueError):
    """A request that cannot be served; `field` is the path of what is at fault."""

    def __init__(self, message: str, field: str) -> None:
        super().__init__(message)
        self.field = field


@dataclass(frozen=True, slots=True)
class Limits:
    """What a request is held to."""

    max_context: int
    """Tokens that a prompt and its output may have together."""
    vocab_size: int
    max_stop_strings: int = 16
    max_stop_characters: int = 1000
    """In one stop string."""


def check_request(request: GenerateText, limits: Limits) -> None:
    """Check what does not depend on the prompt. Raises RequestError."""
    _check_stops(request.stop, limits)
    sampling = request.sampling
    _check_finite(sampling)
    vocabulary = limits.vocab_size
    check_ids(sampling.stop_token_ids, vocabulary, "request.sampling.stop_token_ids")
    check_ids(sampling.logit_bias, vocabulary, "request.sampling.logit_bias")
    for words in sampling.bad_words:
        check_ids(words, vocabulary, "request.sampling.bad_words")
    allowed, field = sampling.allowed_token_ids, "request.sampling.allowed_token_ids"
    if allowed is not None:
        if not allowed:
            raise RequestError("allowed_token_ids is empty: no token could be sampled", field)
        check_ids(allowed, vocabulary, field)
    if sampling.seed is not None and not MIN_SEED <= sampling.seed <= MAX_SEED:
        raise RequestError(f"seed is {sampling.seed}; it has 64 bits at most", "request.sampling.seed")


def check_ids(token_ids: Iterable[int], vocab_size: int, field: str) -> None:
    """Each id must be in the vocabulary. Raises RequestError that names the first that is not."""
    for token_id in token_ids:
        if not 0 <= token_id < vocab_size:
            name = field.rpartition(".")[2]
            raise RequestError(f"{name} has the token id {token_id}; the model's ids are 0 to {vocab_size - 1}", field)


def fit_sampling(request: GenerateText, prompt_tokens: int, limits: Limits) -> SamplingParams:
    """The sampling parameters, with max_tokens cut to the context where it is a default.

    Raises RequestError with the numbers where the context is too short, or min_tokens cannot be reached.
    """
    sampling, room = request.sampling, limits.max_context - prompt_tokens
    if room < 1:
        raise RequestError(too_long(f"{prompt_tokens}", limits), "request.prompt")
    if sampling.max_tokens > room:
        if not request.max_tokens_default:
            raise RequestError(
                f"max_tokens is {sampling.max_tokens} and the prompt has {prompt_tokens} tokens, together "
                f"{prompt_tokens + sampling.max_tokens}; the model's context is {limits.max_context} tokens",
                "request.sampling.max_tokens",
            )
        sampling = msgspec.structs.replace(sampling, max_tokens=room)
    if sampling.min_tokens > sampling.max_tokens:
        raise RequestError(
            f"min_tokens is {sampling.min_tokens}, but at most {sampling.max_tokens} tokens are generated",
            "request.sampling.min_tokens",
        )
    return sampling


def too_long(tokens: str, limits: Limits) -> str:
    """What to say of a prompt without room for one token behind it."""
    return (
        f"the prompt has {tokens} tokens; the model's context is {limits.max_context} tokens, at least one of them for "
        "the output"
    )


def sampling_of(sampling: SamplingParams, index: int) -> SamplingParams:
    """The parameters of completion `index`: with a seed, each has its own, wrapped around at 64 bits."""
    if sampling.seed is None or index == 0:
        return sampling
    seed = sampling.seed + index
    return msgspec.structs.replace(sampling, seed=seed if seed <= MAX_SEED else seed - 2**64)


def _check_stops(stops: Sequence[str], limits: Limits) -> None:
    if len(stops) > limits.max_stop_strings:
        raise RequestError(f"stop has {len(stops)} strings; {limits.max_stop_strings} is the most", "request.stop")
    for stop in stops:
        if not stop:
            raise RequestError("stop has an empty string, which would end every completion", "request.stop")
        if len(stop) > limits.max_stop_characters:
            raise RequestError(
                f"stop has a string of {len(stop)} characters; {limits.max_stop_characters} is the most", "request.stop"
            )


def _check_finite(sampling: SamplingParams) -> None:
    for field in msgspec.structs.fields(sampling):
        value = getattr(sampling, field.name)
        values = value.values() if isinstance(value, dict) else (value,)
        if any(isinstance(v, float) and not math.isfinite(v) for v in values):
            raise RequestError(f"{field.name} is not a finite number", f"request.sampling.{field.name}")
