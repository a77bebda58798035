"""Interfaces: what a protocol's methods are called, take, answer, and how each may be used.

An interface is read off ordinary annotated methods. The same declaration serves the service (dispatch and
validation), the client (which method answers once, which streams), ``zmqengine describe`` and the schema fingerprint.
"""

from __future__ import annotations

import collections.abc
import hashlib
import inspect
import json
import re
import types
import typing
from collections.abc import Callable
from typing import Any, Literal, TypeVar

import msgspec

from .errors import UsageError

MethodKind = Literal["call", "stream", "tell", "event"]
_F = TypeVar("_F", bound=Callable[..., Any])
_PROTOCOL = re.compile(r"[a-z][a-z0-9_-]*/[0-9]+")
_MARK = "__zmqengine_method__"
_STREAMS = (collections.abc.Iterator, collections.abc.AsyncIterator, collections.abc.Iterable)
_DEFERRED_ORIGINS: set[Any] = set()
_INJECTED: set[Any] = set()
_INCOMING: set[Any] = set()


class Mark(msgspec.Struct, frozen=True):
    """What a decorator says of a method."""

    kind: MethodKind
    idempotent: bool
    concurrency: int | None
    thread: bool


class Incoming(msgspec.Struct, frozen=True):
    """The stream that a caller sends along with its call."""

    name: str
    """Of the parameter; it is given by name."""
    item: Any
    """Type of its items."""
    decoder: Any = None
    """msgspec's decoder of a message of items; None: of whatever comes."""


class Method(msgspec.Struct, frozen=True):
    """One method of an interface, ready for dispatch."""

    name: str
    mark: Mark
    args: type[msgspec.Struct]
    """Struct of the arguments, by keyword."""
    arg_names: tuple[str, ...]
    returns: Any
    """Type of the answer, or of each item of a stream."""
    doc: str
    decoder: Any = None
    """msgspec's decoder of an answer, or of a message of items; None: of whatever comes."""
    inlet: Incoming | None = None
    """The stream that the caller sends along, if it has one."""

    @property
    def kind(self) -> MethodKind:
        return self.mark.kind


def injected(cls: type) -> type:
    """Class decorator: a handler parameter annotated with `cls` is given by the loop, and is no argument."""
    _INJECTED.add(cls)
    return cls


def incoming(cls: type) -> type:
    """Class decorator: a handler parameter annotated with ``cls[T]`` is a stream of T that the caller sends along."""
    _INCOMING.add(cls)
    return cls


def deferring(cls: type) -> type:
    """Class decorator: a call that returns ``cls[T]`` answers with a T later."""
    _DEFERRED_ORIGINS.add(cls)
    return cls


@typing.overload
def call(function: _F) -> _F: ...
@typing.overload
def call(*, idempotent: bool = False, concurrency: int | None = None, thread: bool = False) -> Callable[[_F], _F]: ...
def call(
    function: _F | None = None, *, idempotent: bool = False, concurrency: int | None = None, thread: bool = False
) -> Any:
    """Mark a method that answers once.

    idempotent: doing it twice is the same as once, so a client may retry it when the outcome is unknown.
    concurrency: how many may be in progress; the next is answered `overloaded`. thread: run it in the service's
    thread pool rather than on its loop.
    """
    return _mark(function, Mark("call", idempotent, concurrency, thread))


@typing.overload
def tell(function: _F) -> _F: ...
@typing.overload
def tell() -> Callable[[_F], _F]: ...
def tell(function: _F | None = None) -> Any:
    """Mark a method that is not answered. A failure in it is logged and counted by the service."""
    return _mark(function, Mark("tell", False, None, False))


@typing.overload
def stream(function: _F) -> _F: ...
@typing.overload
def stream(*, concurrency: int | None = None) -> Callable[[_F], _F]: ...
def stream(function: _F | None = None, *, concurrency: int | None = None) -> Any:
    """Mark a method that answers with a stream of items: a generator, or one that pushes into an `Outlet`."""
    return _mark(function, Mark("stream", False, concurrency, False))


def event(function: _F) -> _F:
    """Mark a method that gives a state whose changes are published: see `zmqengine.events`."""
    return typing.cast("_F", _mark(function, Mark("event", True, None, False)))


def _mark(function: Any, mark: Mark) -> Any:
    def apply(f: Any) -> Any:
        setattr(f, _MARK, mark)
        return f

    return apply if function is None else apply(function)


class Interface:
    """Base of a protocol's declaration: ``class EngineInterface(Interface, protocol="engine/1")``."""

    protocol: typing.ClassVar[str] = ""
    methods: typing.ClassVar[dict[str, Method]] = {}

    def __init_subclass__(cls, *, protocol: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if protocol is not None:
            if not _PROTOCOL.fullmatch(protocol):
                raise UsageError(
                    f"{cls.__qualname__}: protocol {protocol!r} is not of the form name/major, as 'echo/1'"
                )
            cls.protocol = protocol
        inherited: dict[str, Method] = {}
        for base in reversed(cls.__mro__[1:]):
            for name, method in base.__dict__.get("methods", {}).items():
                if name in inherited and inherited[name].args is not method.args:
                    _check_override(cls, inherited[name], method)  # two interfaces declare it: not each its own way
                inherited[name] = method
        for name, declared in inherited.items():
            override = vars(cls).get(name)
            if override is not None and not hasattr(override, _MARK):
                setattr(override, _MARK, declared.mark)  # an override needs no decorator of its own
        own = {
            name: read_method(f"{cls.__qualname__}.{name}", name, function)
            for name, function in vars(cls).items()
            if hasattr(function, _MARK)
        }
        for name in set(inherited) & set(own):
            _check_override(cls, inherited[name], own[name])
        # What the interface declares is the protocol; an override adds only how it is run.
        cls.methods = own | {
            n: msgspec.structs.replace(m, mark=own[n].mark if n in own else m.mark) for n, m in inherited.items()
        }

    @classmethod
    def fingerprint(cls) -> str:
        """Hex digest over the methods' names, kinds, argument and answer types: equal for compatible peers."""
        methods = {name: {k: v for k, v in _describe(m).items() if k != "doc"} for name, m in cls.methods.items()}
        text = json.dumps(methods, sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()

    @classmethod
    def method_digests(cls) -> dict[str, str]:
        """Hex digest of each method's kind and types: what differs between two versions can be named."""
        described = {name: {k: v for k, v in _describe(m).items() if k != "doc"} for name, m in cls.methods.items()}
        return {
            name: hashlib.blake2b(json.dumps(method, sort_keys=True).encode(), digest_size=4).hexdigest()
            for name, method in described.items()
        }

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """A JSON-able description: methods with kind, argument and answer types, and the JSON schema of each type."""
        methods = {name: _describe(method) for name, method in sorted(cls.methods.items())}
        return {"protocol": cls.protocol, "doc": inspect.cleandoc(cls.__doc__ or ""), "methods": methods}


def read_method(where: str, name: str, function: Any) -> Method:
    """Read a decorated function's signature. Raises UsageError that names the parameter without a usable type."""
    mark: Mark = getattr(function, _MARK)
    hints = typing.get_type_hints(function, include_extras=True)
    fields: list[Any] = []
    inlet: Incoming | None = None
    for parameter in list(inspect.signature(function).parameters.values())[1:]:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise UsageError(f"{where}: parameter {parameter.name!r} cannot be passed by name")
        if parameter.name not in hints:
            raise UsageError(f"{where}: parameter {parameter.name!r} has no type annotation")
        hint = hints[parameter.name]
        if (typing.get_origin(hint) or hint) in _INJECTED:
            continue
        if (typing.get_origin(hint) or hint) in _INCOMING:
            if inlet is not None or mark.kind == "tell" or mark.thread or not typing.get_args(hint):
                raise UsageError(
                    f"{where}: a call or a stream on the loop takes one Inlet, as {parameter.name}: Inlet[T]"
                )
            item = typing.get_args(hint)[0]
            inlet = Incoming(parameter.name, item, msgspec.msgpack.Decoder(types.GenericAlias(list, (item,))))
            continue
        if parameter.default is parameter.empty:
            fields.append((parameter.name, hint))
        else:
            fields.append((parameter.name, hint, parameter.default))
    if mark.kind == "event" and fields:
        raise UsageError(f"{where}: an event takes no arguments: all its listeners are told the same")
    if "return" not in hints:
        raise UsageError(f"{where}: its return type is not annotated")
    try:
        args = msgspec.defstruct(f"{name}_args", fields, kw_only=True, frozen=True)
        returns = _answer_type(where, mark.kind, hints["return"])
        msgspec.msgpack.Decoder(args)
        item_or_answer: Any = types.GenericAlias(list, (returns,)) if mark.kind in ("stream", "event") else returns
        decoder: Any = msgspec.msgpack.Decoder(item_or_answer)
    except (TypeError, NameError) as error:
        raise UsageError(f"{where}: {error}") from None
    doc = inspect.cleandoc(function.__doc__ or "")
    return Method(name, mark, args, tuple(f[0] for f in fields), returns, doc, decoder, inlet)


def _answer_type(where: str, kind: MethodKind, hint: Any) -> Any:
    origin = typing.get_origin(hint)
    if kind == "tell":
        if hint not in (None, types.NoneType):
            raise UsageError(f"{where}: a tell has no answer, so it returns None")
        return None
    if kind == "stream":
        if hint in (None, types.NoneType):
            return Any  # it pushes into an Outlet: the Outlet's parameter, or the interface, has the type
        if origin not in _STREAMS and origin not in (collections.abc.Generator, collections.abc.AsyncGenerator):
            raise UsageError(f"{where}: a stream returns Iterator[T] or AsyncIterator[T]")
        return typing.get_args(hint)[0]
    if kind == "event":
        if hint in (None, types.NoneType):
            raise UsageError(f"{where}: an event returns the state that its listeners begin with")
        from .events import Event

        return Event[hint]
    if origin in _DEFERRED_ORIGINS:
        return typing.get_args(hint)[0]
    return hint


def _check_override(cls: type, declared: Method, own: Method) -> None:
    """A service's handler must take and answer what its interface declares."""
    if own.kind != declared.kind:
        raise UsageError(f"{cls.__qualname__}.{own.name} is a {own.kind}; its interface declares a {declared.kind}")
    ours, theirs = _describe(own), _describe(declared)
    pushed = own.kind == "stream" and own.returns is Any
    if ours["args"] != theirs["args"] or (ours["returns"] != theirs["returns"] and not pushed):
        raise UsageError(f"{cls.__qualname__}.{own.name}: its types differ from those that {declared.name} declares")


def _describe(method: Method) -> dict[str, Any]:
    kinds = [method.args, method.returns, *([method.inlet.item] if method.inlet is not None else [])]
    (args, returns, *sent), definitions = msgspec.json.schema_components(kinds, ref_template="{name}")
    described = {"inlet": {"name": method.inlet.name, "items": sent[0]}} if method.inlet is not None else {}
    return {
        **described,
        "kind": method.kind,
        "idempotent": method.mark.idempotent,
        "args": args if "$ref" not in args else definitions[args["$ref"]],
        "returns": returns,
        "types": definitions,
        "doc": method.doc,
    }
