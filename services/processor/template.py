"""Chat templates: a conversation as the one text that its model was trained on."""

from __future__ import annotations

import datetime
import json
import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import jinja2
from jinja2 import meta

from services.protocols.processor import ChatMessage, ChatPrompt

from .template_budget import Budget, spending
from .template_sandbox import LimitedEnvironment

MAX_SOURCE = 1_000_000
"""Characters of a template."""
MAX_RENDERED = 64_000_000
"""Characters that a rendering may print, concatenate and format in all."""
MAX_SECONDS = 2.0
_RESERVED = frozenset({"messages", "tools", "add_generation_prompt", "raise_exception", "strftime_now"})


class TemplateError(ValueError):
    """A conversation that cannot be rendered, or a template that cannot be used.

    `field` is the part of a chat prompt that is at fault.
    """

    def __init__(self, message: str, field: str = "messages") -> None:
        super().__init__(message)
        self.field = field


class _Refusal(jinja2.TemplateError):
    """The template called raise_exception."""


class ChatTemplate:
    """A compiled template. Rendering may be done on any thread."""

    def __init__(
        self, source: str, variables: Mapping[str, str], *, now: Callable[[], datetime.datetime] | None = None,
        clock: Callable[[], float] = time.monotonic, seconds: float = MAX_SECONDS, characters: int = MAX_RENDERED,
    ) -> None:  # fmt: skip
        """variables: what else the template sees, as bos_token. now: the time that strftime_now tells.

        Raises TemplateError when it is too long or does not compile.
        """
        if len(source) > MAX_SOURCE:
            raise TemplateError(f"the chat template has {len(source)} characters; {MAX_SOURCE} is the most")
        self._variables = dict(variables)
        self._now = now or datetime.datetime.now
        self._clock, self._seconds, self._characters = clock, seconds, characters
        environment = LimitedEnvironment()
        try:
            with spending(self._budget()):
                tree = environment.parse(source)
                self.variables = frozenset(meta.find_undeclared_variables(tree))
                self._template = environment.from_string(source)
        except (
            jinja2.TemplateError,
            ValueError,
            RecursionError,
            MemoryError,
        ) as error:  # ValueError: a number of 5000 digits
            raise TemplateError(f"the model's chat template does not compile: {_reason(error)}") from error

    @property
    def takes_tools(self) -> bool:
        """Whether the template mentions tools at all."""
        return "tools" in self.variables

    def render(self, prompt: ChatPrompt) -> str:
        """The conversation's text, special tokens written out. Raises TemplateError."""
        if prompt.tools and not self.takes_tools:
            raise TemplateError("the model's chat template knows no tools", "tools")
        taken = sorted(_RESERVED.intersection(prompt.template_kwargs))
        if taken:
            raise TemplateError(f"template_kwargs must not set {taken[0]!r}", "template_kwargs")
        messages = [message_variables(m, i) for i, m in enumerate(prompt.messages)]
        if prompt.continue_final_message:
            return self._render_to_be_continued(prompt, messages)
        return self._render(prompt, messages)

    def _render_to_be_continued(self, prompt: ChatPrompt, messages: list[dict[str, Any]]) -> str:
        """Up to the end of the last message's content, without what the template puts behind it."""
        if prompt.add_generation_prompt:
            raise TemplateError(
                "continue_final_message goes on with the last message, add_generation_prompt begins another: set "
                "add_generation_prompt to false", "continue_final_message",
            )  # fmt: skip
        last = messages[-1]
        if not isinstance(last.get("content"), str):
            raise TemplateError("the last message has no content to be continued", "continue_final_message")
        # A mark behind the content, rather than a search for the content: the content may occur twice, and templates
        # may trim it (the mark also keeps its last spaces, which belong to what is continued).
        mark = f"<{secrets.token_hex(16)}>"
        text = self._render(prompt, [*messages[:-1], {**last, "content": last["content"] + mark}])
        end = text.rfind(mark)
        if end < 0:
            raise TemplateError("the model's chat template does not print the last message", "continue_final_message")
        return text[:end].replace(mark, "")

    def _render(self, prompt: ChatPrompt, messages: Sequence[Mapping[str, Any]]) -> str:
        variables = {
            **self._variables, **prompt.template_kwargs, "messages": messages, "tools": prompt.tools or None,
            "add_generation_prompt": prompt.add_generation_prompt, "raise_exception": _refuse,
            "strftime_now": self._strftime_now,
        }  # fmt: skip
        budget = self._budget()
        try:
            with spending(budget):
                text = self._template.render(variables)
        except _Refusal as refusal:
            raise TemplateError(f"the model's chat template refuses the messages: {refusal}") from refusal
        except Exception as error:  # a template's mistakes are as many as Python's: every one is the request's failure
            raise TemplateError(f"the model's chat template failed: {_reason(error)}") from error
        if len(text) > self._characters:
            raise TemplateError(f"the rendered conversation has {len(text)} characters; {self._characters} is the most")
        return text

    def _budget(self) -> Budget:
        return Budget(self._clock() + self._seconds, self._characters, self._clock)

    def _strftime_now(self, layout: str) -> str:
        if len(layout) > 256 or re.search(r"\d{3}", layout):
            raise jinja2.TemplateError("strftime_now is given too long a format")
        return self._now().strftime(layout)


def message_variables(message: ChatMessage, number: int) -> dict[str, Any]:
    """A message as templates expect it: absent fields are absent, and tools' arguments are an object, not its JSON."""
    variables: dict[str, Any] = {"role": message.role}
    for name in ("content", "name", "tool_call_id"):
        value = getattr(message, name)
        if value is not None:
            variables[name] = value
    if message.tool_calls is not None:
        variables["tool_calls"] = [
            _tool_call(call, f"messages[{number}].tool_calls[{i}]") for i, call in enumerate(message.tool_calls)
        ]
    return variables


def _tool_call(call: Mapping[str, Any], where: str) -> dict[str, Any]:
    function = call.get("function")
    if not isinstance(function, Mapping) or not isinstance(function.get("arguments"), str):
        return dict(call)
    try:
        arguments = json.loads(function["arguments"] or "{}")
    except ValueError as error:
        raise TemplateError(f"{where}.function.arguments is not JSON: {error}") from None
    return {**call, "function": {**function, "arguments": arguments}}


def _refuse(message: str) -> NoReturn:
    raise _Refusal(message)


def _reason(error: BaseException) -> str:
    line = getattr(error, "lineno", None)
    where = f" (line {line})" if line is not None else ""
    text = str(error) or type(error).__name__
    kind = "" if isinstance(error, jinja2.TemplateError) else f"{type(error).__name__}: "
    return f"{kind}{text}{where}"
