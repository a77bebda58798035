"""Log-probabilities of tokens in the two shapes that OpenAI has for them."""

from __future__ import annotations

import codecs

from typing_extensions import TypedDict

from services.protocols.processor import TextLogprob, TopToken

LEAST = -9999.0
"""JSON has no infinity: a token of probability 0 gets this, as OpenAI has it."""


class ChatTopLogprob(TypedDict):
    token: str
    logprob: float
    bytes: list[int]


class ChatTokenLogprob(TypedDict):
    token: str
    logprob: float
    bytes: list[int]
    """The token's own bytes: of a token that is part of a character, its text has replacement characters."""
    top_logprobs: list[ChatTopLogprob]
    """Most probable first."""


class ChatLogprobs(TypedDict):
    content: list[ChatTokenLogprob]
    refusal: None


class CompletionLogprobs(TypedDict):
    """Four lists, an item for each token."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    """Token to log-probability; the chosen token is always among them, so there may be one more than asked for."""
    text_offset: list[int]
    """Characters of the completion before the token."""


def chat_logprobs(logprobs: list[TextLogprob], alternatives: int) -> ChatLogprobs:
    """The shape of /v1/chat/completions."""
    return {
        "content": [
            {
                "token": item.token,
                "logprob": _finite(item.logprob),
                "bytes": list(item.raw),
                "top_logprobs": [_chat_top(top) for top in item.top[:alternatives]],
            }
            for item in logprobs
        ],
        "refusal": None,
    }


def _chat_top(top: TopToken) -> ChatTopLogprob:
    return {"token": top.token, "logprob": _finite(top.logprob), "bytes": list(top.raw)}


class CompletionLogprobWriter:
    """The shape of /v1/completions, for one choice. Keeps count of the text's characters from one call to the next."""

    def __init__(self, alternatives: int) -> None:
        self._alternatives = alternatives
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._offset = 0

    def write(self, logprobs: list[TextLogprob]) -> CompletionLogprobs:
        """The next tokens. A token that ends within a character leaves that character to the next one's count."""
        written = CompletionLogprobs(tokens=[], token_logprobs=[], top_logprobs=[], text_offset=[])
        for item in logprobs:
            written["tokens"].append(_label(item.token, item.raw))
            written["token_logprobs"].append(_finite(item.logprob))
            written["top_logprobs"].append(self._top(item))
            written["text_offset"].append(self._offset)
            self._offset += len(self._decoder.decode(item.raw))
        return written

    def _top(self, item: TextLogprob) -> dict[str, float]:
        top: dict[str, float] = {}
        chosen = (item.token, item.token_id, item.logprob, item.raw)
        others = [(t.token, t.token_id, t.logprob, t.raw) for t in item.top[: self._alternatives]]
        if all(token_id != item.token_id for _, token_id, _, _ in others):
            others.append(chosen)
        for token, token_id, logprob, raw in others:
            label = _label(token, raw)
            top[f"token_id:{token_id}" if label in top else label] = _finite(logprob)
        return top


def extend_logprobs(whole: CompletionLogprobs, more: CompletionLogprobs) -> None:
    """Append the items of `more`."""
    whole["tokens"] += more["tokens"]
    whole["token_logprobs"] += more["token_logprobs"]
    whole["top_logprobs"] += more["top_logprobs"]
    whole["text_offset"] += more["text_offset"]


def _label(token: str, raw: bytes) -> str:
    """A token that is part of a character is labelled by its bytes, as OpenAI does: its text would not be unique."""
    try:
        raw.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)
    return token


def _finite(logprob: float) -> float:
    return logprob if logprob > LEAST else LEAST
