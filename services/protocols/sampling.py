"""Sampling parameters, as they travel from the api to the worker.

The api validates ranges and sizes and answers 400; the bounds here are the last line, so that a value that cannot
be sampled with cannot be constructed by any other client either.
"""

from typing import Annotated

from msgspec import Meta

from zmqengine import Message

TokenId = Annotated[int, Meta(ge=0, lt=2**31)]
"""An index into the vocabulary. 0 is a token like any other."""


class SamplingParams(Message):
    """How the next token is chosen, and when a sequence ends."""

    max_tokens: Annotated[int, Meta(ge=1)]
    """Tokens to generate at most."""
    temperature: Annotated[float, Meta(ge=0.0, le=100.0)] = 1.0
    """Divides the logits; 0 is greedy."""
    top_k: Annotated[int, Meta(ge=0)] = 0
    """Keep the k most probable tokens; 0 keeps all."""
    top_p: Annotated[float, Meta(gt=0.0, le=1.0)] = 1.0
    """Keep the smallest set of most probable tokens whose probability reaches this (nucleus sampling)."""
    min_p: Annotated[float, Meta(ge=0.0, le=1.0)] = 0.0
    """Drop tokens less probable than this fraction of the most probable one."""
    presence_penalty: Annotated[float, Meta(ge=-2.0, le=2.0)] = 0.0
    """Subtracted from the logit of each token that was generated."""
    frequency_penalty: Annotated[float, Meta(ge=-2.0, le=2.0)] = 0.0
    """Subtracted from a token's logit once per time that it was generated."""
    repetition_penalty: Annotated[float, Meta(gt=0.0, le=100.0)] = 1.0
    """Divides positive and multiplies negative logits of tokens in the prompt or the output."""
    logit_bias: dict[int, float] = {}
    """Token id to what is added to its logit."""
    seed: int | None = None
    """Any 64-bit integer. Makes this sequence's samples repeatable, whatever else is in the batch."""
    min_tokens: Annotated[int, Meta(ge=0)] = 0
    """End-of-sequence and stop tokens are not sampled before this many tokens."""
    stop_token_ids: list[TokenId] = []
    """Tokens that end the sequence, in addition to the model's own."""
    ignore_eos: bool = False
    """Go on after the model's end-of-sequence tokens."""
    bad_words: list[list[TokenId]] = []
    """Token sequences that are never completed."""
    allowed_token_ids: list[TokenId] | None = None
    """Sample from these only."""
    logprobs: Annotated[int, Meta(ge=0, le=100)] | None = None
    """How many alternatives to report with each token, beside the chosen one; nil reports none at all."""


class TokenLogprob(Message, array_like=True):
    """The log-probability of a chosen token, and of the most probable ones at its position (of the raw logits)."""

    token_id: int
    logprob: float
    top: list[tuple[int, float]]
    """(token id, log-probability), most probable first."""
