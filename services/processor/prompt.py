"""A prompt of any kind as token ids."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from services.protocols.processor import ChatPrompt, TextPrompt, TokenPrompt

from .request_checks import Limits, RequestError, check_ids, too_long
from .template import TemplateError
from .text_model import TextModel
from .tokenizer import Tokenizer, TokenizerError

Prompt = ChatPrompt | TextPrompt | TokenPrompt


@dataclass(frozen=True, slots=True)
class ReadPrompt:
    """A prompt's tokens, and its text where it was one."""

    token_ids: list[int]
    """[T], not empty."""
    given: str | None
    """The text as the client gave it; None for a conversation or token ids."""


def characters_in(prompt: Prompt) -> int:
    """How long a prompt is, for estimating what reading it takes."""
    if isinstance(prompt, TextPrompt):
        return len(prompt.text)
    if isinstance(prompt, TokenPrompt):
        return 0
    texts = [message.content or "" for message in prompt.messages]
    calls = [message.tool_calls for message in prompt.messages if message.tool_calls]
    return _characters(texts, calls, prompt.tools, prompt.template_kwargs)


def read_prompt(
    model: TextModel, prompt: Prompt, limits: Limits, *, field: str = "request.prompt", add_special_tokens: bool = True
) -> ReadPrompt:
    """Render and tokenize a prompt. May run on any thread.

    A template writes its own special tokens, so a conversation gets none in addition. Raises RequestError; field: where
    the prompt stands, for it to tell.
    """
    if isinstance(prompt, TokenPrompt):
        check_ids(prompt.token_ids, limits.vocab_size, field)
        return ReadPrompt(prompt.token_ids, None)
    text = _text_of(model, prompt, field)
    bound = model.tokenizer.at_least(text)
    if bound > limits.max_context:  # not worth the time that tokenizing it would take
        raise RequestError(too_long(f"at least {bound}", limits), field)
    add_bos = add_special_tokens and isinstance(prompt, TextPrompt)
    try:
        token_ids = model.tokenizer.encode(text, add_bos=add_bos)
    except TokenizerError as error:
        raise RequestError(str(error), field) from error
    if not token_ids:
        raise RequestError("the prompt is empty: there is nothing to go on from", field)
    return ReadPrompt(token_ids, text if isinstance(prompt, TextPrompt) else None)


def echo_of(tokenizer: Tokenizer, prompt: ReadPrompt, *, skip_special: bool) -> str:
    """A prompt as text to be echoed: what was given, or else its tokens', up to its last whole character."""
    if prompt.given is not None:
        return prompt.given
    return tokenizer.detokenizer().feed(tokenizer.join(prompt.token_ids, skip_special=skip_special))


def _characters(*values: Any) -> int:
    """Characters of all texts in values as JSON has them."""
    found, left = 0, list(values)
    while left:
        value = left.pop()
        if isinstance(value, str):
            found += len(value)
        elif isinstance(value, list):
            left.extend(value)
        elif isinstance(value, dict):
            left.extend(value)
            left.extend(value.values())
    return found


def _text_of(model: TextModel, prompt: ChatPrompt | TextPrompt, field: str) -> str:
    if isinstance(prompt, TextPrompt):
        return prompt.text
    try:
        return model.render(prompt)
    except TemplateError as error:
        raise RequestError(str(error), f"{field}.{error.field}") from error
