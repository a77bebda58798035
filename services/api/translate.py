"""A request over HTTP as the processor's requests; and the processor's field names as the client's."""

from __future__ import annotations

import re
from typing import Any

from services.protocols.processor import ChatMessage, ChatPrompt, GenerateText, ModelCard, TextPrompt, TokenPrompt
from services.protocols.sampling import SamplingParams

from .chat_request import ChatRequest
from .completion_request import CompletionRequest
from .errors import invalid
from .generation_request import GenerationRequest
from .message import Content, ConversationMessage
from .template_options import TemplateOptions

Prompt = ChatPrompt | TextPrompt | TokenPrompt
_RENAMED = {
    "include_stop": "include_stop_str_in_output",
    "template_kwargs": "chat_template_kwargs",
    "token_ids": "prompt",
    "text": "prompt",
}
_NOT_CLIENTS = {"request_id", "max_tokens_default", "tenant"}
_CONTAINERS = {"request", "sampling"}


def generate_requests(request: GenerationRequest, card: ModelCard, response_id: str) -> list[GenerateText]:
    """One request to the processor for each prompt. Raises ApiError 400 where ids are not in the vocabulary."""
    _check_ids(request, card)
    limit = request.token_limit()
    stop = [request.stop] if isinstance(request.stop, str) else (request.stop or [])
    prompts = _prompts(request)
    common: dict[str, Any] = {
        "sampling": sampling_params(request, card.max_context if limit is None else limit),
        "max_tokens_default": request.max_tokens is None and request.limit_field == "max_tokens",
        "n": request.choices_per_prompt,
        "stop": stop,
        "include_stop": bool(request.include_stop_str_in_output),
        "skip_special_tokens": request.skip_special_tokens is not False,
        "echo": isinstance(request, CompletionRequest) and bool(request.echo),
        "priority": request.priority or 0,
    }
    ids = [response_id] if len(prompts) == 1 else [f"{response_id}-{i}" for i in range(len(prompts))]
    return [
        GenerateText(request_id=request_id, prompt=prompt, **common)
        for request_id, prompt in zip(ids, prompts, strict=True)
    ]


def sampling_params(request: GenerationRequest, max_tokens: int) -> SamplingParams:
    """Null is the default of SamplingParams; -1 as top_k is 0, which keeps all."""
    same = (
        "temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty", "logit_bias",
        "seed", "min_tokens", "stop_token_ids", "ignore_eos", "allowed_token_ids",
    )  # fmt: skip
    given = {name: value for name in same if (value := getattr(request, name)) is not None}
    return SamplingParams(
        max_tokens=max_tokens, top_k=max(0, request.top_k or 0), logprobs=request.top_alternatives, **given
    )


def chat_prompt(options: TemplateOptions) -> ChatPrompt:
    """The conversation as the template sees it."""
    return ChatPrompt(
        messages=[_chat_message(message) for message in options.messages],
        add_generation_prompt=options.generation_prompt,
        continue_final_message=bool(options.continue_final_message),
        template_kwargs=options.chat_template_kwargs or {},
    )


def check_token_ids(ids: list[int], card: ModelCard, param: str) -> None:
    """Raises ApiError 400 that names the first id that the vocabulary does not have."""
    if ids and max(ids) >= card.vocab_size:
        unknown = next(i for i in ids if i >= card.vocab_size)
        raise invalid(param, f"has the token id {unknown}; the model's ids are 0 to {card.vocab_size - 1}")


def client_field(field: str, request: GenerationRequest) -> str | None:
    """What the client calls a field of the processor's; None where it has no such field.

    `request.sampling.top_p` is top_p; `request.prompt` is messages in a chat.
    """
    steps = [step for step in re.split(r"[.\[\]]+", field) if step and step not in _CONTAINERS]
    if not steps or steps[0] in _NOT_CLIENTS:
        return None
    if steps[0] in ("prompt", "messages") and len(steps) > 1 and steps[1] in ("template_kwargs", "tools"):
        steps = steps[1:]
    name = _RENAMED.get(steps[0], steps[0])
    if name in ("prompt", "messages"):
        return request.prompt_field
    if name == "max_tokens":
        return request.limit_field
    if name == "logprobs":
        return request.logprobs_field
    return name if name in type(request).model_fields else None


def _prompts(request: GenerationRequest) -> list[Prompt]:
    if isinstance(request, ChatRequest):
        return [chat_prompt(request)]
    assert isinstance(request, CompletionRequest)
    return [
        TextPrompt(text=prompt) if isinstance(prompt, str) else TokenPrompt(token_ids=prompt)
        for prompt in request.prompts()
    ]


def _check_ids(request: GenerationRequest, card: ModelCard) -> None:
    check_token_ids(list(request.logit_bias or ()), card, "logit_bias")
    check_token_ids(request.stop_token_ids or [], card, "stop_token_ids")
    check_token_ids(request.allowed_token_ids or [], card, "allowed_token_ids")
    if isinstance(request, CompletionRequest):
        for prompt in request.prompts():
            if not isinstance(prompt, str):
                check_token_ids(prompt, card, "prompt")


def _chat_message(message: ConversationMessage) -> ChatMessage:
    role = "system" if message.role == "developer" else message.role
    return ChatMessage(role=role, content=_text(message.content), name=message.name)


def _text(content: Content) -> str:
    return content if isinstance(content, str) else "\n".join(part.text for part in content)
