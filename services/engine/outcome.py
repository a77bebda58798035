"""What a step, or a fault, meant for one request."""

from __future__ import annotations

from dataclasses import dataclass

from services.protocols.engine import FinishReason
from services.protocols.sampling import TokenLogprob

from .request import Request


@dataclass(frozen=True, slots=True)
class Ending:
    """Why a sequence is complete."""

    reason: FinishReason
    stop_token_id: int | None = None
    """The token that ended it, if one did."""
    error: str | None = None
    """Why, with reason "error"."""
    field: str | None = None
    """The argument at fault, where no worker can ever run the request."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A request gained a token, or has ended, or both."""

    request: Request
    token_id: int | None = None
    """None: it ended without another token. 0 is a token like any other."""
    logprob: TokenLogprob | None = None
    ending: Ending | None = None


def ending_of(request: Request, eos_token_ids: frozenset[int]) -> Ending | None:
    """Whether the last token ends the sequence. min_tokens is the worker's to keep: it samples no end before."""
    if request.num_generated == 0:
        return None
    last = request.token_ids[-1]
    if last in request.stop_ids or (last in eos_token_ids and not request.sampling.ignore_eos):
        return Ending("stop", stop_token_id=last)
    if request.num_generated >= request.sampling.max_tokens:
        return Ending("length")
    return None
