"""Counts what a request's completions have gained, and holds the backend to its word: each ends, and ends once."""

from __future__ import annotations

from services.protocols.processor import TextDelta

from .errors import BackendError
from .responses import FinishReason, Usage


class Tally:
    """The choices of one request: n for each of its prompts."""

    def __init__(self, prompts: int, n: int) -> None:
        self._n = n
        self._completion_tokens = [0] * (prompts * n)
        self._prompt_tokens = [0] * prompts
        self._cached_tokens = [0] * prompts
        self._open = set(range(prompts * n))

    @property
    def choices(self) -> int:
        return len(self._completion_tokens)

    def take(self, prompt: int, delta: TextDelta) -> int:
        """Count a delta of a prompt; return the number of its choice.

        Raises BackendError: "aborted" and "internal" for a completion that ended so, "internal" for a delta that there
        cannot be.
        """
        if not 0 <= delta.index < self._n:
            raise BackendError("internal", f"the backend sent completion {delta.index} of {self._n}")
        choice = prompt * self._n + delta.index
        if choice not in self._open:
            raise BackendError("internal", f"the backend went on with completion {delta.index} after its end")
        if delta.finish_reason == "abort":
            raise BackendError("aborted", delta.error or "the completion was aborted")
        if delta.finish_reason == "error":
            raise BackendError("internal", delta.error or "the completion failed")
        self._completion_tokens[choice] = delta.token_count
        self._prompt_tokens[prompt] = delta.prompt_tokens
        self._cached_tokens[prompt] = max(self._cached_tokens[prompt], delta.cached_tokens)
        if delta.finish_reason is not None:
            self._open.discard(choice)
        return choice

    def check_all_ended(self) -> None:
        """Raises BackendError "internal" if the backend's stream ended before its completions did."""
        if self._open:
            raise BackendError("internal", f"the backend left completion {min(self._open)} without an end")

    def usage(self) -> Usage:
        """Tokens so far."""
        prompt, completion = sum(self._prompt_tokens), sum(self._completion_tokens)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": sum(self._cached_tokens)},
        }


def finish_reason(delta: TextDelta) -> FinishReason | None:
    """OpenAI's finish_reason of a delta that a Tally has taken, so that it is neither "abort" nor "error"."""
    if delta.finish_reason is None:
        return None
    return "stop" if delta.finish_reason == "stop" else "length"
