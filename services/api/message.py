"""The messages of a conversation, as a client sends them.

Text only. Images, audio, files, refusals, tool calls and tool results are refused by name: each would be lost on the
way to the model.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag

from . import limits
from .fields import FirstFault, StrictModel, fault, text_or_list, unsupported

_PARTS = {
    "image_url": "images", "input_image": "images", "input_audio": "audio", "video_url": "videos", "file": "files",
    "refusal": "refusals",
}  # fmt: skip
_ROLES = ("system", "developer", "user", "assistant")
_TOOL_ROLES = ("tool", "function")


def _check_part(part: Any) -> Any:
    kind = part.get("type") if isinstance(part, dict) else None
    if isinstance(kind, str) and kind in _PARTS:
        raise fault(f"has type {kind!r}: {_PARTS[kind]} are not supported, only text", code="unsupported_value")
    return part


class TextPart(StrictModel):
    """A part of a message's content."""

    type: Literal["text"] = Field(description="Only text is supported.")
    text: str = Field(description="The text.")


Content = Annotated[
    Annotated[str, Tag(":text")]
    | Annotated[
        list[Annotated[TextPart, BeforeValidator(_check_part)]],
        Field(min_length=1, max_length=limits.MAX_CONTENT_PARTS),
        FirstFault(),
        Tag(":list"),
    ],
    Discriminator(
        text_or_list, custom_error_type="fault", custom_error_message="must be a string or a list of text parts"
    ),
]


class _Message(StrictModel):
    content: Content = Field(description="A string, or text parts; parts are joined by a line break.")
    name: str | None = Field(None, min_length=1, max_length=256, description="Who speaks; used if the template does.")


class SystemMessage(_Message):
    """Instructions. `developer` is the same as `system`: the models served here know only the latter."""

    role: Literal["system", "developer"]


class UserMessage(_Message):
    """What the user said."""

    role: Literal["user"]


class AssistantMessage(_Message):
    """What the model answered earlier."""

    role: Literal["assistant"]
    refusal: Annotated[None, unsupported("refusals")] = None
    audio: Annotated[None, unsupported("audio")] = None
    tool_calls: Annotated[list[Any] | None, unsupported("tool calls", [])] = None
    function_call: Annotated[None, unsupported("function calls")] = None


def _check_role(message: Any) -> Any:
    if not isinstance(message, dict):
        raise fault("must be an object with a role and content", code="invalid_type")
    role = message.get("role")
    if role in _TOOL_ROLES:
        raise fault(f"has the role {role!r}: tools are not supported yet", code="unsupported_value")
    if role not in _ROLES:
        said = "has no role" if role is None else f"has the unknown role {str(role)[:40]!r}"
        raise fault(f"{said}; it must be one of {', '.join(_ROLES)}")
    return message


def _role_tag(message: Any) -> str:
    role = message["role"] if isinstance(message, dict) else message.role
    return {"user": ":user", "assistant": ":assistant"}.get(role, ":system")


ConversationMessage = Annotated[
    Annotated[SystemMessage, Tag(":system")]
    | Annotated[UserMessage, Tag(":user")]
    | Annotated[AssistantMessage, Tag(":assistant")],
    Discriminator(_role_tag),
    BeforeValidator(_check_role),
]
Conversation = Annotated[list[ConversationMessage], Field(min_length=1, max_length=limits.MAX_MESSAGES), FirstFault()]
