"""One completion: numbered tokens in, text out."""

from __future__ import annotations

from collections.abc import Sequence

from services.protocols.engine import FinishReason, TokenChunk
from services.protocols.processor import TextDelta, TextLogprob
from services.protocols.sampling import TokenLogprob

from .logprob_text import LogprobQueue, describe_logprob
from .stops import StopAutomaton, StopMatcher
from .tokenizer import Tokenizer


class NumberingError(ValueError):
    """The engine's tokens do not follow one another: some are missing, or differ from those it sent before."""


class Completion:
    """The state of one completion. It outlives the engine that generates it: `token_ids` is where to go on from."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        prompt_ids: Sequence[int],
        *,
        index: int = 0,
        stops: StopAutomaton,
        include_stop: bool = False,
        skip_special: bool = True,
        min_tokens: int = 0,
        echo: str = "",
    ) -> None:
        """stops: checked behind the first min_tokens tokens only, as end-of-sequence tokens are. echo: text that comes
        before the completion's own."""
        self.index = index
        self.token_ids: list[int] = []
        self.finish_reason: FinishReason | None = None
        self.cached_tokens = 0
        self._prompt_tokens = len(prompt_ids)
        self._echo = echo
        self._tokenizer = tokenizer
        self._detokenizer = tokenizer.detokenizer(prompt_ids, skip_special=skip_special)
        self._skip_special = skip_special
        self._include_stop = include_stop
        self._min_tokens = min_tokens
        self._stops = StopMatcher(stops, include_stop=include_stop)
        self._logprobs = LogprobQueue()
        self._decoded = 0
        """Characters that the tokens so far have made."""
        self._given = 0
        """Characters of them that were given out."""

    @property
    def finished(self) -> bool:
        """Whether its last delta has been made."""
        return self.finish_reason is not None

    def take(self, chunk: TokenChunk) -> TextDelta | None:
        """Take the engine's next tokens; the text that is certain by them, if there is any news.

        Raises NumberingError when tokens are missing before this chunk, or are not those that came under the same
        numbers before. What has come already (an engine resends when a request is handed to it anew) is skipped.
        """
        if self.finished:
            return None
        first = self._check_numbers(chunk)
        if chunk.logprobs is not None and len(chunk.logprobs) != len(chunk.token_ids):
            raise NumberingError(
                f"the engine sent {len(chunk.logprobs)} log-probabilities for {len(chunk.token_ids)} tokens"
            )
        self.cached_tokens = max(self.cached_tokens, chunk.cached_tokens)
        ends_by = len(chunk.token_ids) - 1 if _ends_by_token(chunk) else None
        pieces: list[str] = []
        for i in range(first, len(chunk.token_ids)):
            logprob = None if chunk.logprobs is None else chunk.logprobs[i]
            pieces.append(self._take_token(chunk.token_ids[i], logprob, ends=i == ends_by))
            if self._stops.matched is not None:
                return self._finish("".join(pieces), "stop", self._stops.matched)
        if chunk.finish_reason is not None:
            return self._finish("".join(pieces), chunk.finish_reason, chunk.stop_token_id, chunk.error)
        return self._delta("".join(pieces))

    def end(self, reason: FinishReason, error: str | None = None) -> TextDelta:
        """End it without the engine's word, giving out what was held back."""
        return self._finish("", reason, None, error)

    def _check_numbers(self, chunk: TokenChunk) -> int:
        """How many of the chunk's tokens have come already."""
        have = len(self.token_ids)
        if chunk.start > have:
            raise NumberingError(f"the engine sent token {chunk.start} where {have} was due: some are missing")
        if chunk.start < 0:
            raise NumberingError(f"the engine sent token {chunk.start}; they are numbered from 0")
        known = min(have - chunk.start, len(chunk.token_ids))
        before = self.token_ids[chunk.start : chunk.start + known]
        if before != chunk.token_ids[:known]:
            wrong = next(i for i in range(known) if before[i] != chunk.token_ids[i])
            raise NumberingError(
                f"the engine sent token {chunk.start + wrong} again, as {chunk.token_ids[wrong]}, not {before[wrong]}"
            )
        return known

    def _take_token(self, token_id: int, logprob: TokenLogprob | None, *, ends: bool) -> str:
        """The text that can be given out. ends: it is the stop token, which is text only if stops are."""
        self.token_ids.append(token_id)
        hidden = (self._skip_special and self._tokenizer.is_special(token_id)) or (ends and not self._include_stop)
        text = "" if hidden else self._detokenizer.feed(self._tokenizer.token_bytes(token_id))
        start = self._decoded
        self._decoded += len(text)
        if logprob is not None and not (ends and hidden):
            entry = describe_logprob(self._tokenizer, logprob)
            self._logprobs.add(entry, start, self._decoded, pending=self._detokenizer.pending)
        if len(self.token_ids) <= self._min_tokens:
            return self._stops.pass_by(text)
        return self._stops.feed(text)

    def _delta(self, text: str) -> TextDelta | None:
        self._given += len(text)
        logprobs = self._logprobs.release(self._given)
        if not text and not logprobs:
            return None
        return self._message(text, logprobs)

    def _finish(
        self, text: str, reason: FinishReason, stop_reason: str | int | None, error: str | None = None
    ) -> TextDelta:
        text += self._stops.flush()
        self._given += len(text)
        self.finish_reason = reason
        return self._message(text, self._logprobs.finish(self._given), stop_reason, error)

    def _message(
        self, text: str, logprobs: list[TextLogprob], stop_reason: str | int | None = None, error: str | None = None
    ) -> TextDelta:
        echo, self._echo = self._echo, ""
        return TextDelta(
            index=self.index, text=echo + text, token_count=len(self.token_ids), logprobs=logprobs or None,
            finish_reason=self.finish_reason, stop_reason=stop_reason, error=error,
            prompt_tokens=self._prompt_tokens, cached_tokens=self.cached_tokens,
        )  # fmt: skip


def _ends_by_token(chunk: TokenChunk) -> bool:
    """Whether the chunk's last token is the one that ended the sequence."""
    return (
        chunk.finish_reason == "stop"
        and chunk.stop_token_id is not None
        and chunk.token_ids[-1:] == [chunk.stop_token_id]
    )


def merge_deltas(earlier: TextDelta, later: TextDelta) -> TextDelta:
    """Two deltas of one completion as one, for a reader that is slower than the engine."""
    logprobs = [*(earlier.logprobs or ()), *(later.logprobs or ())]
    return TextDelta(
        index=later.index, text=earlier.text + later.text, token_count=later.token_count, logprobs=logprobs or None,
        finish_reason=later.finish_reason, stop_reason=later.stop_reason, error=later.error,
        prompt_tokens=later.prompt_tokens, cached_tokens=max(earlier.cached_tokens, later.cached_tokens),
    )  # fmt: skip
