"""The sandbox that chat templates run in: jinja2's immutable one, with limits on time and on the size of what is made.

A template comes with the model's files, so it is not to be trusted. jinja2's sandbox keeps it from Python's internals
and from changing its arguments; it does not keep it from looping for ever or from making a string of a terabyte. So:

- every turn of a loop, every call of a macro, function, filter or test is counted, and the time looked at;
- everything printed or concatenated is charged by its size, and so is constant text in loops;
- every list, tuple and mapping is measured as it is made, and so are the arguments of calls (`template_budget`);
- operators and methods that make much of little (`'a' * n`, replace, ljust, format widths, powers) are checked first;
- filters that expand by a number are not there. No filter, test or function reaches files, network or environment.

What a single such step does is bounded by these checks, so a budget of time is overrun by little. Not bounded: the time
of jinja2's compiler, which is linear in the template's own length; that length has a limit instead.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, ItemsView, KeysView, ValuesView
from typing import Any

from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from .template_budget import LEAF, MAX_SIZE, TemplateLimit, charge, made, measure
from .template_filters import REMOVED_FILTERS, REPLACED_FILTERS, check_number, counted, join, limited, printed, replace

MAX_NUMBER = 100_000
"""Counts, widths and repetitions."""
MAX_BITS = 1024
"""Size of an integer."""
_REMOVED_GLOBALS = ("lipsum",)
_REFUSED_METHODS = frozenset({"encode", "expandtabs", "translate"})
"""Methods of str: bytes have expanding methods of their own, and the others expand by a number or a table."""
_PADDING_METHODS = frozenset({"center", "ljust", "rjust", "zfill"})
_WIDE_CONVERSION = re.compile(r"%[^a-zA-Z%]*(\d{5}|\*)")
_WIDTH = re.compile(r"\d+")


class GenerationTag(Extension):
    """`{% generation %}...{% endgeneration %}` marks what an assistant said, for training; rendered as it stands."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """Its body."""
        next(parser.stream)
        return list(parser.parse_statements(("name:endgeneration",), drop_needle=True))


class OpaqueNamespace(Namespace):
    """A namespace that does not write out what it holds, which may be itself: its members change, so it is measured as
    a leaf."""

    def __repr__(self) -> str:
        return "<Namespace>"


class LimitedEnvironment(ImmutableSandboxedEnvironment):
    """The sandbox with limits; what templates are compiled and rendered in."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, loopcontrols], finalize=printed
        )
        for name in REMOVED_FILTERS:
            del self.filters[name]
        for name in _REMOVED_GLOBALS:
            del self.globals[name]
        self.filters.update(REPLACED_FILTERS)
        self.filters = {name: limited(function) for name, function in self.filters.items()}
        tests: Any = self.tests
        self.tests = {name: counted(function) for name, function in tests.items()}
        self.globals["namespace"] = OpaqueNamespace

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        """Where jinja2 turns text into a tree: what counts loops, concatenations and literals is put into it here."""
        tree = super()._parse(source, name, filename)
        found: Any = tree.find_all((nodes.For, nodes.Macro, nodes.CallBlock))
        for loop in found:
            constant = sum(len(text.data) for text in loop.find_all(nodes.TemplateData))
            turn = _call(loop.lineno, "limit_turn", nodes.Const(constant, lineno=loop.lineno))
            loop.body.insert(0, nodes.ExprStmt(turn, lineno=loop.lineno))
        rewritten: nodes.Template = _rewrite(tree)
        rewritten.set_environment(self)
        return rewritten

    def limit_turn(self, constant: int) -> None:
        """Charge a turn of a loop or macro, with the constant text in its body."""
        charge(1 + constant)

    def concatenate(self, *values: Any) -> str:
        """The operator `~`."""
        return "".join(map(printed, values))

    def build(self, value: Any) -> Any:
        """A list, tuple or mapping that is written in the template."""
        return made(value)

    def call(self, context: Context, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Every call that a template makes."""
        charge(1)
        if sum(map(measure, (*args, *kwargs.values()))) > MAX_SIZE:
            raise TemplateLimit("a call is given more than it may be")
        owner = getattr(function, "__self__", None)
        if isinstance(owner, str):
            if function.__name__ == "join" and len(args) == 1:
                return join(args[0], owner)
            if function.__name__ == "replace":
                return replace(owner, *args, **kwargs)
            _check_method(function.__name__, args)
        elif isinstance(owner, int | float | complex | bytes | bytearray):
            raise TemplateLimit(f"methods of {type(owner).__name__} are not for templates")
        result = super().call(context, function, *args, **kwargs)
        if isinstance(result, KeysView | ValuesView | ItemsView):  # it has no size of its own
            result = list(result)
        return made(result)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """The operators of `intercepted_binops`."""
        _check_operands(operator, left, right)
        return made(super().call_binop(context, operator, left, right))

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """`str.format` of the sandbox, its widths bounded."""
        wrapped = super().wrap_str_format(value)
        if wrapped is None:
            return None
        text, checked = value.__self__, wrapped

        def limited(*args: Any, **kwargs: Any) -> str:
            _check_format(text, max(map(measure, (*args, *kwargs.values())), default=0))
            return checked(*args, **kwargs)

        return limited


def _check_method(name: str, args: tuple[Any, ...]) -> None:
    """A method of a string, about to be called."""
    if name in _REFUSED_METHODS:
        raise TemplateLimit(f"str.{name} is not for templates")
    if name in _PADDING_METHODS and args:
        check_number(args[0], MAX_NUMBER)


def _check_format(text: str, largest: int) -> None:
    """A `str.format` string: the widths in it, and its fields, each of which may be the largest argument."""
    fields = widest = 0
    for _, name, spec, _ in string.Formatter().parse(text):
        if spec and ("{" in spec or re.search(r"\d{5}", spec)):
            raise TemplateLimit("a format asks for a width that is larger than it may be")
        fields += name is not None
        widest = max(widest, _widest(spec or ""))
    charge(fields * (largest + widest))


def _check_conversions(text: str, values: Any) -> None:
    """A `%` format string: the widths in it, and its conversions, each of which may be of the same member."""
    if _WIDE_CONVERSION.search(text):
        raise TemplateLimit("a format asks for a width that is larger than it may be")
    conversions = text.count("%")
    charge(conversions * _widest(text) + measure(values) * (conversions if isinstance(values, dict) else 1))


def _widest(text: str) -> int:
    """The largest number in a text."""
    return max((int(digits[:9]) for digits in _WIDTH.findall(text)), default=0)


def _check_operands(operator: str, left: Any, right: Any) -> None:
    if operator == "*":
        for sequence, count in ((left, right), (right, left)):
            if isinstance(sequence, str | list | tuple) and isinstance(count, int):
                charge(len(sequence) * max(0, count) * (1 if isinstance(sequence, str) else LEAF))
    if operator == "%" and isinstance(left, str):
        _check_conversions(left, right)
    if isinstance(left, int) and isinstance(right, int):
        if operator == "*" and left.bit_length() + right.bit_length() > MAX_BITS:
            raise TemplateLimit("a product is larger than it may be")
        if operator == "**" and left.bit_length() * max(0, right) > MAX_BITS:
            raise TemplateLimit("a power is larger than it may be")


def _call(lineno: int, method: str, *args: nodes.Expr) -> nodes.Call:
    return nodes.Call(nodes.EnvironmentAttribute(method, lineno=lineno), list(args), [], None, None, lineno=lineno)


def _rewrite(tree: Any) -> Any:
    """`a ~ b` compiles to a join, and `[a, b]` to a list, that nothing can come between; make them calls."""
    for field, value in tree.iter_fields():
        if isinstance(value, list):
            setattr(tree, field, [_rewrite(v) if isinstance(v, nodes.Node) else v for v in value])
        elif isinstance(value, nodes.Node):
            setattr(tree, field, _rewrite(value))
    if isinstance(tree, nodes.Concat):
        return _call(tree.lineno, "concatenate", *tree.nodes)
    if isinstance(tree, nodes.List | nodes.Tuple | nodes.Dict) and getattr(tree, "ctx", "load") == "load":
        return tree if all(isinstance(item, nodes.Const) for item in tree.items) else _call(tree.lineno, "build", tree)
    return tree
