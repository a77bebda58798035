"""The sandbox that chat templates run in: jinja2's immutable one, with limits on time and on the size of what is made.

A template comes with the model's files, so it is not to be trusted. jinja2's sandbox keeps it from Python's internals
and from changing its arguments; it does not keep it from looping for ever or from making a string of a terabyte. So:

- every turn of a loop, every call of a macro or function is counted, and the time looked at (`Budget.spend`);
- everything printed or concatenated is charged by its size, and so is constant text in loops;
- operators and methods that make much of little (`'a' * n`, replace, ljust, format widths, powers) are checked first;
- filters that expand by a number are not there. No filter, test or function reaches files, network or environment.

What a single such step does is bounded by these checks, so a budget of time is overrun by little. Not bounded: the time
of jinja2's compiler, which is linear in the template's own length; that length has a limit instead.
"""

from __future__ import annotations

import contextvars
import json
import re
import string
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.filters import do_round
from jinja2.parser import Parser
from jinja2.runtime import Context, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment

MAX_NUMBER = 100_000
"""Counts, widths and repetitions."""
MAX_BITS = 1024
"""Size of an integer."""
MAX_INDENT = 100
_REMOVED_FILTERS = (
    "batch", "center", "filesizeformat", "forceescape", "format", "pprint", "random", "slice", "urlize", "wordwrap",
    "xmlattr",
)  # fmt: skip
_REMOVED_GLOBALS = ("lipsum",)
_REFUSED_METHODS = frozenset({"encode", "expandtabs", "translate"})
"""Methods of str: bytes have expanding methods of their own, and the others expand by a number or a table."""
_PADDING_METHODS = frozenset({"center", "ljust", "rjust", "zfill"})
_WIDE_CONVERSION = re.compile(r"%[^a-zA-Z%]*(\d{5}|\*)")
_MAX_DEPTH = 64


class TemplateLimit(SecurityError):
    """The template does more than it may."""


@dataclass(slots=True)
class Budget:
    """What one rendering may still use."""

    deadline: float
    characters: int
    clock: Callable[[], float] = time.monotonic

    def spend(self, characters: int) -> None:
        """Use some; raises TemplateLimit when the time or the characters are used up."""
        self.characters -= characters
        if self.characters < 0:
            raise TemplateLimit("it makes more text than it may")
        if self.clock() > self.deadline:
            raise TemplateLimit("it runs longer than it may")


_budget: contextvars.ContextVar[Budget | None] = contextvars.ContextVar("template budget", default=None)


@contextmanager
def spending(budget: Budget) -> Iterator[None]:
    """Charge what is rendered within to a budget."""
    token = _budget.set(budget)
    try:
        yield
    finally:
        _budget.reset(token)


def charge(characters: int) -> None:
    """Charge the rendering in progress; a no-op while a template is compiled."""
    budget = _budget.get()
    if budget is not None:
        budget.spend(characters)


class GenerationTag(Extension):
    """`{% generation %}...{% endgeneration %}` marks what an assistant said, for training; rendered as it stands."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """Its body."""
        next(parser.stream)
        return list(parser.parse_statements(("name:endgeneration",), drop_needle=True))


class LimitedEnvironment(ImmutableSandboxedEnvironment):
    """The sandbox with limits; what templates are compiled and rendered in."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, loopcontrols], finalize=printed
        )
        for name in _REMOVED_FILTERS:
            del self.filters[name]
        for name in _REMOVED_GLOBALS:
            del self.globals[name]
        self.filters.update(
            replace=_replace, indent=_indent, join=_join, string=printed, tojson=_to_json, sum=_sum, round=_round
        )

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        """Where jinja2 turns text into a tree: the counting of loops and concatenations is put into it here."""
        tree = super()._parse(source, name, filename)
        found: Any = tree.find_all((nodes.For, nodes.Macro, nodes.CallBlock))
        for loop in found:
            constant = sum(len(text.data) for text in loop.find_all(nodes.TemplateData))
            turn = _call(loop.lineno, "limit_turn", nodes.Const(constant, lineno=loop.lineno))
            loop.body.insert(0, nodes.ExprStmt(turn, lineno=loop.lineno))
        rewritten: nodes.Template = _rewrite_concatenations(tree)
        rewritten.set_environment(self)
        return rewritten

    def limit_turn(self, constant: int) -> None:
        """Charge a turn of a loop or macro, with the constant text in its body."""
        charge(1 + constant)

    def concatenate(self, *values: Any) -> str:
        """The operator `~`."""
        return "".join(map(printed, values))

    def call(self, context: Context, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Every call that a template makes."""
        charge(1)
        owner = getattr(function, "__self__", None)
        if isinstance(owner, str):
            if function.__name__ == "join" and len(args) == 1:
                return _join(args[0], owner)
            if function.__name__ == "replace":
                return _replace(owner, *args, **kwargs)
            _check_method(function.__name__, args)
        elif isinstance(owner, int | float | complex | bytes | bytearray):
            raise TemplateLimit(f"methods of {type(owner).__name__} are not for templates")
        result = super().call(context, function, *args, **kwargs)
        if isinstance(result, str):
            charge(len(result))
        return result

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """The operators of `intercepted_binops`."""
        _check_operands(operator, left, right)
        result = super().call_binop(context, operator, left, right)
        if isinstance(result, str | list | tuple):
            charge(len(result))
        return result

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """`str.format` of the sandbox, its widths bounded."""
        wrapped = super().wrap_str_format(value)
        if wrapped is None:
            return None
        text, checked = value.__self__, wrapped

        def limited(*args: Any, **kwargs: Any) -> str:
            _check_format(text)
            return checked(*args, **kwargs)

        return limited


def printed(value: Any) -> Any:
    """What `{{ value }}` prints, charged; jinja2's `finalize`."""
    if not isinstance(value, str):
        if isinstance(value, Undefined):
            return str(value)  # empty, or the error of a stricter kind
        _charge_nodes(value)
        value = str(value)
    charge(len(value))
    return value


def _charge_nodes(value: Any, depth: int = 0) -> None:
    """Lists may hold one another many times over, so a small structure can be long when written."""
    if depth > _MAX_DEPTH:
        raise TemplateLimit("a value is nested deeper than it may be")
    if isinstance(value, str):
        charge(len(value))
    elif isinstance(value, Mapping):
        for key, member in value.items():
            _charge_nodes(key, depth + 1)
            _charge_nodes(member, depth + 1)
    elif isinstance(value, list | tuple | set | frozenset):
        for member in value:
            _charge_nodes(member, depth + 1)
    else:
        charge(8)


def _check_number(value: Any, limit: int) -> None:
    if isinstance(value, int) and abs(value) > limit:
        raise TemplateLimit(f"a width, count or precision of {value} is beyond {limit}")


def _check_method(name: str, args: tuple[Any, ...]) -> None:
    """A method of a string, about to be called."""
    if name in _REFUSED_METHODS:
        raise TemplateLimit(f"str.{name} is not for templates")
    if name in _PADDING_METHODS and args:
        _check_number(args[0], MAX_NUMBER)


def _check_format(text: str) -> None:
    """The widths in a `str.format` string."""
    for _, _, spec, _ in string.Formatter().parse(text):
        if spec and ("{" in spec or re.search(r"\d{5}", spec)):
            raise TemplateLimit("a format asks for a width that is larger than it may be")


def _check_operands(operator: str, left: Any, right: Any) -> None:
    if operator == "*":
        for sequence, count in ((left, right), (right, left)):
            if isinstance(sequence, str | list | tuple) and isinstance(count, int):
                charge(len(sequence) * max(0, count))
    if operator == "%" and isinstance(left, str) and _WIDE_CONVERSION.search(left):
        raise TemplateLimit("a format asks for a width that is larger than it may be")
    if isinstance(left, int) and isinstance(right, int):
        if operator == "*" and left.bit_length() + right.bit_length() > MAX_BITS:
            raise TemplateLimit("a product is larger than it may be")
        if operator == "**" and left.bit_length() * max(0, right) > MAX_BITS:
            raise TemplateLimit("a power is larger than it may be")


def _replace(value: Any, old: str, new: str, count: int | None = None) -> str:
    text, old, new = str(value), str(old), str(new)
    found = text.count(old) if count is None or count < 0 else min(count, text.count(old))
    charge(len(text) + found * len(new))
    return text.replace(old, new, -1 if count is None else count)


def _join(values: Any, separator: Any = "", attribute: Any = None) -> str:
    members = list(values)
    if attribute is not None:
        members = [m.get(attribute, "") if isinstance(m, Mapping) else "" for m in members]
    between = str(separator)
    charge(len(between) * len(members))
    return between.join(printed(member) for member in members)


def _indent(text: Any, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    _check_number(width, MAX_INDENT)
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
    _check_number(indent, MAX_INDENT)
    _charge_nodes(value)
    text = json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    charge(len(text))
    return text


def _sum(values: Any, attribute: str | None = None, start: float = 0) -> Any:
    """Of numbers: the sum of lists would copy them over and over."""
    if not isinstance(start, int | float):
        raise TemplateLimit("sum is for numbers")
    return sum((v[attribute] for v in values) if attribute is not None else values, start)


def _round(value: float, precision: int = 0, method: str = "common") -> float:
    _check_number(precision, MAX_INDENT)
    return do_round(value, precision, method)  # type: ignore[arg-type]


def _call(lineno: int, method: str, *args: nodes.Expr) -> nodes.Call:
    return nodes.Call(nodes.EnvironmentAttribute(method, lineno=lineno), list(args), [], None, None, lineno=lineno)


def _rewrite_concatenations(tree: Any) -> Any:
    """`a ~ b` compiles to a join that nothing can come between; make it a call."""
    for field, value in tree.iter_fields():
        if isinstance(value, list):
            setattr(tree, field, [_rewrite_concatenations(v) if isinstance(v, nodes.Node) else v for v in value])
        elif isinstance(value, nodes.Node):
            setattr(tree, field, _rewrite_concatenations(value))
    return _call(tree.lineno, "concatenate", *tree.nodes) if isinstance(tree, nodes.Concat) else tree
