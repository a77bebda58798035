"""The filters and tests of chat templates: jinja2's, with what they make charged, and some replaced or left out."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from typing import Any

from jinja2.filters import do_round
from jinja2.runtime import Undefined

from .template_budget import LEAF, MAX_DEPTH, TemplateLimit, charge, made, measure

MAX_INDENT = 100
REMOVED_FILTERS = (
    "batch", "center", "filesizeformat", "forceescape", "format", "pprint", "random", "slice", "striptags", "urlize",
    "wordwrap", "xmlattr",
)  # fmt: skip
"""Those that expand by a number, and striptags, which takes quadratic time."""


def limited(function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter whose calls are counted, and whose results are measured."""

    @functools.wraps(function)  # with jinja2's marks of the arguments that it takes
    def filtered(*args: Any, **kwargs: Any) -> Any:
        charge(1)
        return made(function(*args, **kwargs))

    return filtered


def counted(function: Callable[..., Any]) -> Callable[..., Any]:
    """A test whose calls are counted."""

    @functools.wraps(function)
    def tested(*args: Any, **kwargs: Any) -> Any:
        charge(1)
        return function(*args, **kwargs)

    return tested


def check_number(value: Any, limit: int) -> None:
    """Raises TemplateLimit for an integer beyond the limit."""
    if isinstance(value, int) and abs(value) > limit:
        raise TemplateLimit(f"a width, count or precision of {value} is beyond {limit}")


def printed(value: Any) -> Any:
    """What `{{ value }}` prints, charged; jinja2's `finalize`."""
    if not isinstance(value, str):
        if isinstance(value, Undefined):
            return str(value)  # empty, or the error of a stricter kind
        charge(measure(value))
        value = str(value)
    charge(len(value))
    return value


def replace(value: Any, old: str, new: str, count: int | None = None) -> str:
    text, old, new = str(value), str(old), str(new)
    found = text.count(old) if count is None or count < 0 else min(count, text.count(old))
    charge(len(text) + found * len(new))
    return text.replace(old, new, -1 if count is None else count)


def join(values: Any, separator: Any = "", attribute: Any = None) -> str:
    members = list(values)
    if attribute is not None:
        members = [m.get(attribute, "") if isinstance(m, Mapping) else "" for m in members]
    between = str(separator)
    charge(len(between) * len(members))
    return between.join(printed(member) for member in members)


def _indent(text: Any, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    check_number(width, MAX_INDENT)
    margin = width if isinstance(width, str) else " " * width
    lines = str(text).splitlines(keepends=True)
    charge(sum(map(len, lines)) + len(margin) * len(lines))
    return "".join(
        margin + line if (number or first) and (blank or line.strip()) else line for number, line in enumerate(lines)
    )


def _to_json(
    value: Any, ensure_ascii: bool = False, indent: int | None = None,
    separators: tuple[str, str] | None = None, sort_keys: bool = False,
) -> str:  # fmt: skip
    """As transformers has it: characters are not escaped, neither for ASCII nor for HTML."""
    around = sum(map(len, separators or ()))
    if around > MAX_INDENT:
        raise TemplateLimit(f"separators of {around} characters are beyond {MAX_INDENT}")
    if indent is not None:
        if not isinstance(indent, int):
            raise TemplateLimit("indent is a number of spaces")
        check_number(indent, MAX_INDENT)
        around += max(0, indent) * MAX_DEPTH // 4 + LEAF * LEAF  # it takes json's slow way, too
    charge(measure(value) * (1 + around // LEAF))
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _sum(values: Any, attribute: str | None = None, start: float = 0) -> Any:
    """Of numbers: the sum of lists would copy them over and over."""
    if not isinstance(start, int | float):
        raise TemplateLimit("sum is for numbers")
    return sum((v[attribute] for v in values) if attribute is not None else values, start)


def _round(value: float, precision: int = 0, method: str = "common") -> float:
    check_number(precision, MAX_INDENT)
    return do_round(value, precision, method)  # type: ignore[arg-type]


REPLACED_FILTERS: Mapping[str, Callable[..., Any]] = {
    "replace": replace, "indent": _indent, "join": join, "string": printed, "tojson": _to_json, "sum": _sum,
    "round": _round,
}  # fmt: skip
