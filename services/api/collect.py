"""Collects the deltas of a request into its whole answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from services.protocols.processor import TextDelta

from .answer_head import AnswerHead
from .logprob import ChatTokenLogprob, CompletionLogprobs, CompletionLogprobWriter, chat_logprobs, extend_logprobs
from .responses import ChatChoice, ChatResponse, CompletionChoice, CompletionResponse, FinishReason
from .tally import Tally, finish_reason

Response_co = TypeVar("Response_co", covariant=True)


class Collector(Protocol, Generic[Response_co]):
    """Takes deltas, and makes a response of them."""

    def take(self, prompt: int, delta: TextDelta) -> None:
        """Add a delta of a prompt. Raises BackendError as Tally does."""
        ...

    def response(self) -> Response_co:
        """The whole, once all completions have ended; BackendError "internal" if one has not."""
        ...


@dataclass(slots=True)
class _Ended:
    """What both kinds of completion have."""

    texts: list[str] = field(default_factory=list)
    finish_reason: FinishReason = "stop"
    stop_reason: str | int | None = None

    def take(self, delta: TextDelta) -> None:
        self.texts.append(delta.text)
        reason = finish_reason(delta)
        if reason is not None:
            self.finish_reason, self.stop_reason = reason, delta.stop_reason


class ChatCollector:
    """The answer of /v1/chat/completions."""

    def __init__(self, head: AnswerHead, tally: Tally, alternatives: int | None) -> None:
        self._head = head
        self._tally = tally
        self._alternatives = alternatives
        self._choices = [_Ended() for _ in range(tally.choices)]
        self._logprobs: list[list[ChatTokenLogprob]] = [[] for _ in range(tally.choices)]

    def take(self, prompt: int, delta: TextDelta) -> None:
        choice = self._tally.take(prompt, delta)
        self._choices[choice].take(delta)
        if self._alternatives is not None and delta.logprobs:
            self._logprobs[choice] += chat_logprobs(delta.logprobs, self._alternatives)["content"]

    def response(self) -> ChatResponse:
        self._tally.check_all_ended()
        return {
            "id": self._head.id,
            "object": "chat.completion",
            "created": self._head.created,
            "model": self._head.model,
            "choices": [self._choice(index) for index in range(self._tally.choices)],
            "usage": self._tally.usage(),
        }

    def _choice(self, index: int) -> ChatChoice:
        ended = self._choices[index]
        return {
            "index": index,
            "message": {"role": "assistant", "content": "".join(ended.texts), "refusal": None},
            "logprobs": None if self._alternatives is None else {"content": self._logprobs[index], "refusal": None},
            "finish_reason": ended.finish_reason,
            "stop_reason": ended.stop_reason,
        }


class CompletionCollector:
    """The answer of /v1/completions."""

    def __init__(self, head: AnswerHead, tally: Tally, alternatives: int | None) -> None:
        self._head = head
        self._tally = tally
        self._choices = [_Ended() for _ in range(tally.choices)]
        self._writers = (
            None if alternatives is None else [CompletionLogprobWriter(alternatives) for _ in range(tally.choices)]
        )
        self._logprobs = [
            CompletionLogprobs(tokens=[], token_logprobs=[], top_logprobs=[], text_offset=[])
            for _ in range(tally.choices)
        ]

    def take(self, prompt: int, delta: TextDelta) -> None:
        choice = self._tally.take(prompt, delta)
        self._choices[choice].take(delta)
        if self._writers is not None and delta.logprobs:
            extend_logprobs(self._logprobs[choice], self._writers[choice].write(delta.logprobs))

    def response(self) -> CompletionResponse:
        self._tally.check_all_ended()
        return {
            "id": self._head.id,
            "object": "text_completion",
            "created": self._head.created,
            "model": self._head.model,
            "choices": [self._choice(index) for index in range(self._tally.choices)],
            "usage": self._tally.usage(),
        }

    def _choice(self, index: int) -> CompletionChoice:
        ended = self._choices[index]
        return {
            "index": index,
            "text": "".join(ended.texts),
            "logprobs": None if self._writers is None else self._logprobs[index],
            "finish_reason": ended.finish_reason,
            "stop_reason": ended.stop_reason,
        }
