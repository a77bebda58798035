"""Validates a parsed body against a request model, and says a fault in plain words, with the field that has it.

pydantic finds the fault; its first error becomes OpenAI's error object: `param` is the top-level field, the message
names the path within it, and `code` is what OpenAI calls that kind of fault.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from .errors import ApiError, invalid, summary

RequestModel = TypeVar("RequestModel", bound=BaseModel)
Context = dict[str, Any]


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


_WORDS: dict[str, tuple[str, Callable[[Context], str]]] = {
    "missing": ("missing_required_parameter", lambda c: "is required"),
    "string_type": ("invalid_type", lambda c: "must be a string"),
    "int_type": ("invalid_type", lambda c: "must be an integer"),
    "float_type": ("invalid_type", lambda c: "must be a number"),
    "bool_type": ("invalid_type", lambda c: "must be true or false"),
    "list_type": ("invalid_type", lambda c: "must be a list"),
    "dict_type": ("invalid_type", lambda c: "must be an object"),
    "model_type": ("invalid_type", lambda c: "must be an object"),
    "finite_number": ("invalid_value", lambda c: "must be a finite number"),
    "greater_than": ("invalid_value", lambda c: f"must be above {c['gt']:g}"),
    "greater_than_equal": ("invalid_value", lambda c: f"must be at least {_number(c['ge'])}"),
    "less_than": ("invalid_value", lambda c: f"must be below {_number(c['lt'])}"),
    "less_than_equal": ("invalid_value", lambda c: f"must be at most {_number(c['le'])}"),
    "too_short": ("empty_array", lambda c: f"must have at least {_plural(c['min_length'], 'item')}"),
    "too_long": ("array_above_max_length", lambda c: f"must have at most {_plural(c['max_length'], 'item')}"),
    "string_too_short": (
        "string_below_min_length",
        lambda c: "must not be empty" if c["min_length"] == 1 else f"must have at least {c['min_length']} characters",
    ),
    "string_too_long": ("string_above_max_length", lambda c: f"must have at most {c['max_length']} characters"),
    "literal_error": ("invalid_value", lambda c: f"must be {c['expected']}"),
}


def validated(model: type[RequestModel], data: object) -> RequestModel:
    """The request in `data`, parsed JSON. Raises ApiError 400 that names the field and its fault."""
    if not isinstance(data, dict):
        raise ApiError(400, f"the body must be a JSON object, not {summary(data)}", code="invalid_type")
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise _answer(error.errors(include_url=False)[0]) from None


def _answer(error: ErrorDetails) -> ApiError:
    kind, context = error["type"], error.get("ctx", {})
    path = [step for step in error["loc"] if not (isinstance(step, str) and step.startswith(":"))]
    if kind == "unknown_field":
        return _unknown([*path, context["field"]])
    if context.get("param"):
        path = [context["param"]]
    param = str(path[0]) if path else None
    where = _path_text(path)
    if kind == "fault":
        return _at(where, param, error["msg"], context.get("code", "invalid_type"))
    if kind not in _WORDS:
        return _at(where, param, f"is invalid: {error['msg']}", "invalid_value")
    code, words = _WORDS[kind]
    message = words(context)
    value = error["input"]
    if kind not in ("missing", "too_short", "too_long", "string_too_short", "string_too_long"):
        message += f"; it is {summary(value)}"
    return _at(where, param, message, code)


def _at(where: str, param: str | None, message: str, code: str) -> ApiError:
    return ApiError(400, f"'{where}' {message}" if where else message, param=param, code=code)


def _unknown(path: list[Any]) -> ApiError:
    field = str(path[-1])
    path[-1] = field if len(field) <= 100 else field[:100] + "..."
    error = invalid(None, f"'{_path_text(path)}' is not a field that this server knows", "unknown_parameter")
    error.param = str(path[0])
    return error


def _path_text(path: list[Any]) -> str:
    """As a programmer writes it: messages[0].content."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else str(step)
    return text


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:g}"
