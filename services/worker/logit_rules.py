"""What a request's sampling parameters do to the logits of one position, before temperature."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import torch

from services.protocols.sampling import SamplingParams

from .tracked_sequence import TrackedSequence

_NEVER = float("-inf")


class UnusableParams(ValueError):
    """Sampling parameters that do not fit the model; the message names the parameter."""


def check_params(params: SamplingParams, vocab_size: int) -> None:
    """Check token ids against the vocabulary. Raises UnusableParams."""
    named: list[tuple[str, Iterable[int]]] = [
        ("logit_bias", params.logit_bias),
        ("allowed_token_ids", params.allowed_token_ids or ()),
        ("bad_words", (token for word in params.bad_words for token in word)),
    ]
    for name, tokens in named:
        for token in tokens:
            if not 0 <= token < vocab_size:
                raise UnusableParams(f"{name} has token id {token}, but the vocabulary ends at {vocab_size - 1}")
    if not all(params.bad_words):
        raise UnusableParams("bad_words has a word of no tokens")


def has_rules(sequence: TrackedSequence) -> bool:
    """Whether `apply_rules` would change anything."""
    params = sequence.params
    return bool(
        params.repetition_penalty != 1.0 or params.presence_penalty or params.frequency_penalty or params.logit_bias
        or params.bad_words or params.allowed_token_ids is not None or sequence.num_generated < params.min_tokens
    )  # fmt: skip


def apply_rules(logits_V: torch.Tensor, sequence: TrackedSequence, eos_token_ids: Collection[int]) -> None:
    """Change the logits in place: penalties, then bias, then what must not be sampled, which nothing can lift again.

    Raises UnusableParams.
    """
    params = sequence.params
    check_params(params, len(logits_V))
    _penalize(logits_V, sequence)
    if params.logit_bias:
        tokens = _ids(params.logit_bias.keys(), logits_V)
        logits_V[tokens] += torch.tensor(list(params.logit_bias.values()), dtype=torch.float32, device=logits_V.device)
    if params.allowed_token_ids is not None:
        hidden_V = torch.ones_like(logits_V, dtype=torch.bool)
        hidden_V[_ids(params.allowed_token_ids, logits_V)] = False
        logits_V.masked_fill_(hidden_V, _NEVER)
    banned = _completing(params.bad_words, sequence.token_ids)
    if sequence.num_generated < params.min_tokens:
        ends = (*eos_token_ids, *params.stop_token_ids)
        banned += [token for token in ends if token < len(logits_V)]
    if banned:
        logits_V[_ids(banned, logits_V)] = _NEVER


def _penalize(logits_V: torch.Tensor, sequence: TrackedSequence) -> None:
    """Repetition penalty of Keskar et al. 2019 (CTRL); presence and frequency penalty as OpenAI's API defines them."""
    params = sequence.params
    if params.repetition_penalty != 1.0:
        seen = _ids(set(sequence.token_ids), logits_V)
        values = logits_V[seen]
        penalty = params.repetition_penalty
        logits_V[seen] = torch.where(values > 0, values / penalty, values * penalty)
    if (params.presence_penalty or params.frequency_penalty) and sequence.num_generated:
        generated = _ids(sequence.token_ids[sequence.prompt_len :], logits_V)
        tokens, counts = torch.unique(generated, return_counts=True)
        logits_V[tokens] -= params.presence_penalty + params.frequency_penalty * counts


def _completing(bad_words: Iterable[list[int]], token_ids: list[int]) -> list[int]:
    """The tokens that would complete one of the words."""
    return [word[-1] for word in bad_words if len(word) == 1 or token_ids[1 - len(word) :] == word[:-1]]


def _ids(tokens: Iterable[int], like: torch.Tensor) -> torch.Tensor:
    return torch.tensor(list(tokens), dtype=torch.int64, device=like.device)
