"""The deltas of a request as server-sent events.

Per choice: in a chat a chunk with the role, then the text, then exactly one chunk with a finish_reason. Behind the last
choice, if asked for, one chunk with usage and no choices; then ``data: [DONE]``. An error in the middle is an event
whose data is ``{"error": ...}``, and the stream ends without [DONE]: OpenAI's clients raise on such an event, and
whoever counts on [DONE] sees that the answer is not whole.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from services.protocols.processor import TextDelta

from .answer_head import AnswerHead
from .errors import ErrorBody
from .logprob import ChatLogprobs, CompletionLogprobWriter, chat_logprobs
from .responses import ChatChunk, ChatChunkChoice, ChatDelta, CompletionChoice, CompletionResponse
from .tally import Tally, finish_reason

DONE = b"data: [DONE]\n\n"
_encode = msgspec.json.Encoder().encode


def event(data: Any) -> bytes:
    """One event. JSON has no raw line breaks, so it is always one line of data."""
    return b"data: " + _encode(data) + b"\n\n"


def error_event(body: ErrorBody) -> bytes:
    """The event that ends a stream which failed."""
    return event(body)


class EventWriter(Protocol):
    """Turns deltas into events."""

    def take(self, prompt: int, delta: TextDelta) -> bytes:
        """Events of one delta, joined; empty where it brought nothing to tell. Raises BackendError as Tally does."""
        ...

    def end(self) -> bytes:
        """The last events; BackendError "internal" if a completion has not ended."""
        ...


class ChatEvents:
    """Events of /v1/chat/completions."""

    def __init__(self, head: AnswerHead, tally: Tally, alternatives: int | None, include_usage: bool) -> None:
        self._head = head
        self._tally = tally
        self._alternatives = alternatives
        self._include_usage = include_usage
        self._begun: set[int] = set()

    def take(self, prompt: int, delta: TextDelta) -> bytes:
        choice = self._tally.take(prompt, delta)
        events = []
        if choice not in self._begun:
            self._begun.add(choice)
            events.append(self._chunk([self._choice(choice, {"role": "assistant", "content": ""})]))
        logprobs = None
        if self._alternatives is not None and delta.logprobs:
            logprobs = chat_logprobs(delta.logprobs, self._alternatives)
        if delta.text or logprobs is not None:
            events.append(self._chunk([self._choice(choice, {"content": delta.text}, logprobs)]))
        reason = finish_reason(delta)
        if reason is not None:
            last = self._choice(choice, {})
            last["finish_reason"], last["stop_reason"] = reason, delta.stop_reason
            events.append(self._chunk([last]))
        return b"".join(map(event, events))

    def end(self) -> bytes:
        self._tally.check_all_ended()
        if not self._include_usage:
            return DONE
        chunk = self._chunk([])
        chunk["usage"] = self._tally.usage()
        return event(chunk) + DONE

    def _choice(self, index: int, delta: ChatDelta, logprobs: ChatLogprobs | None = None) -> ChatChunkChoice:
        return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": None}

    def _chunk(self, choices: list[ChatChunkChoice]) -> ChatChunk:
        return {
            "id": self._head.id,
            "object": "chat.completion.chunk",
            "created": self._head.created,
            "model": self._head.model,
            "choices": choices,
        }


class CompletionEvents:
    """Events of /v1/completions."""

    def __init__(self, head: AnswerHead, tally: Tally, alternatives: int | None, include_usage: bool) -> None:
        self._head = head
        self._tally = tally
        self._include_usage = include_usage
        self._writers = (
            None if alternatives is None else [CompletionLogprobWriter(alternatives) for _ in range(tally.choices)]
        )

    def take(self, prompt: int, delta: TextDelta) -> bytes:
        index = self._tally.take(prompt, delta)
        logprobs = None
        if self._writers is not None and delta.logprobs:
            logprobs = self._writers[index].write(delta.logprobs)
        reason = finish_reason(delta)
        if not delta.text and logprobs is None and reason is None:
            return b""
        choice = CompletionChoice(index=index, text=delta.text, logprobs=logprobs, finish_reason=reason)
        if reason is not None:
            choice["stop_reason"] = delta.stop_reason
        return event(self._chunk([choice]))

    def end(self) -> bytes:
        self._tally.check_all_ended()
        if not self._include_usage:
            return DONE
        chunk = self._chunk([])
        chunk["usage"] = self._tally.usage()
        return event(chunk) + DONE

    def _chunk(self, choices: list[CompletionChoice]) -> CompletionResponse:
        return {
            "id": self._head.id,
            "object": "text_completion",
            "created": self._head.created,
            "model": self._head.model,
            "choices": choices,
        }
