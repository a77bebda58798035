"""A declaration is read once, and what is wrong with it, or with an argument, is said by name."""

from __future__ import annotations

import collections.abc
import datetime
import enum
import inspect
import json
import typing
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
import pytest

from zmqengine import Deferred, Interface, Message, Outlet, Service, call, event, stream, tell
from zmqengine.errors import InvalidArgument, UsageError, from_wire

from .in_memory import Served, error_of


class Seq(Message):
    start: int
    token_ids: list[int] = []


class Step(Message):
    seqs: list[Seq]


class Mode(enum.Enum):
    FAST = "fast"
    EXACT = "exact"


class Text(Message, tag="text"):
    text: str


class Image(Message, tag="image"):
    pixels: bytes


@dataclass(frozen=True)
class Usage:
    prompt: int
    completion: int = 0


class Worker(Interface, protocol="worker/1"):
    """Runs steps."""

    @call(idempotent=True, concurrency=2)
    def step(self, batch: Step, mode: Mode = Mode.FAST) -> dict[str, int]:
        """Run one step."""
        return {"seqs": len(batch.seqs)}

    @stream
    def tokens(self, limit: Annotated[int, msgspec.Meta(ge=1, le=10)]) -> Iterator[int]:
        yield from range(limit)

    @tell
    def forget(self, name: str) -> None: ...

    @event
    def load(self) -> float:
        return 0.5


class Steps(Interface, protocol="steps/1"):
    @call(idempotent=True)
    def step(self, batch: Step, mode: Mode = Mode.FAST) -> dict[str, int]: ...


def call_with(implementation: Interface, method: str, body: Any) -> Any:
    """What the service answers: the value, or the error as its caller raises it."""
    served = Served(implementation)
    try:
        ((_, message),) = served.raw().call(1, method, body)
        answer = msgspec.msgpack.decode(message.body)
        if isinstance(answer, dict) and "code" in answer:
            raise from_wire(msgspec.convert(answer, _error_body()), "")
        return answer
    finally:
        served.close()


def _error_body() -> type[Any]:
    from zmqengine.errors import ErrorBody

    return ErrorBody


# What a refused argument is told

STEP = {"seqs": [{"start": 0}, {"start": 1}, {"start": 2}, {"start": "x"}]}
IN_STEP = "batch.seqs[3].start"


@pytest.mark.parametrize(
    ("method", "body", "said", "field"),
    [
        ("step", {"batch": STEP}, "worker/1 step.batch.seqs[3].start: expected `int`, got `str`", IN_STEP),
        ("step", {}, "worker/1 step: Object missing required field `batch`", None),
        ("step", {"batch": {"seqs": {}}}, "worker/1 step.batch.seqs: expected `array`, got `object`", "batch.seqs"),
        ("step", {"batch": {"seqs": []}, "mode": "slow"}, "worker/1 step.mode: invalid enum value 'slow'", "mode"),
        ("tokens", {"limit": 11}, "worker/1 tokens.limit: expected `int` <= 10", "limit"),
        ("tokens", {"limit": True}, "worker/1 tokens.limit: expected `int`, got `bool`", "limit"),
        ("step", [STEP], "worker/1 step: Expected `object`, got `array`", None),
    ],
)  # fmt: skip
def test_a_refused_argument_is_named_with_its_path(method: str, body: Any, said: str, field: str | None) -> None:
    with pytest.raises(InvalidArgument) as caught:
        call_with(Worker(), method, body)
    assert str(caught.value) == said
    assert caught.value.field == field


def test_an_argument_of_a_newer_caller_is_ignored() -> None:
    body = {"batch": {"seqs": [{"start": 1, "priority": 9}]}, "deterministic": True}
    assert call_with(Worker(), "step", body) == {"seqs": 1}


def test_an_argument_that_is_not_given_has_its_default() -> None:
    class Defaults(Interface, protocol="defaults/1"):
        @call
        def which(self, mode: Mode = Mode.EXACT, names: list[str] | None = None) -> list[Any]:
            return [mode, names]

    assert call_with(Defaults(), "which", {}) == ["exact", None]


# Every kind of annotation

MOMENT = datetime.datetime(2026, 3, 4, 5, 6, 7, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("hint", "good", "bad"),
    [
        (int, 3, "3"),
        (float, 2, "2"),
        (bool, True, 1),
        (str, "ä", b"a"),
        (bytes, b"\x00\xff", 7),
        (Mode, Mode.EXACT, "slow"),
        (Literal["a", "b"], "b", "c"),
        (int | None, None, "none"),
        (int | str, "x", 1.5),
        (Text | Image, Image(pixels=b"x"), {"type": "sound"}),
        (list[int], [1, 2], [1, "2"]),
        (dict[str, list[int]], {"a": [1]}, {"a": [None]}),
        (dict[int, str], {7: "x"}, {"7": "x"}),
        (tuple[int, str], (1, "x"), (1, "x", 2)),
        (set[int], {1, 2}, [1, "x"]),
        (Seq, Seq(start=1), {"start": None}),
        (Usage, Usage(prompt=1), {"completion": 1}),
        (datetime.datetime, MOMENT, "yesterday"),
        (Annotated[str, msgspec.Meta(pattern="^[a-z]+$")], "abc", "A"),
        (Any, {"x": [1, None]}, None),
    ],
    ids=str,
)
def test_an_argument_and_an_answer_of_each_type_cross_the_wire_and_a_wrong_one_does_not(
    hint: Any, good: Any, bad: Any
) -> None:
    def echo(self: Any, value: Any) -> Any:
        assert value == good
        return value

    echo.__annotations__ = {"value": hint, "return": hint}
    cls = type("Echo", (Interface,), {"echo": call(echo)}, protocol="echo/1")
    served = Served(cls())
    connection = served.connect()
    try:
        answer = connection.call(cls.methods["echo"], {"value": good}, None)
        refused = connection.call(cls.methods["echo"], {"value": bad}, None)
        connection.turn()
        served.turn()
        connection.turn()
        assert answer.value == good
        assert type(answer.value) is type(good) or hint is float
        if hint is not Any:
            assert isinstance(refused.error, InvalidArgument)
            assert str(refused.error).startswith("counter echo: echo/1 echo.value")
    finally:
        served.close()


# Schema and fingerprint


def test_the_schema_is_json_and_tells_all_that_a_foreign_caller_needs() -> None:
    schema = json.loads(json.dumps(Worker.schema()))
    assert (schema["protocol"], schema["doc"]) == ("worker/1", "Runs steps.")
    assert {name: method["kind"] for name, method in schema["methods"].items()} == {
        "step": "call", "tokens": "stream", "forget": "tell", "load": "event",
    }  # fmt: skip
    step = schema["methods"]["step"]
    assert (step["doc"], step["idempotent"]) == ("Run one step.", True)
    assert step["args"]["required"] == ["batch"]
    assert step["types"]["Seq"]["properties"]["start"] == {"type": "integer"}
    assert step["returns"] == {"type": "object", "additionalProperties": {"type": "integer"}}
    assert schema["methods"]["tokens"]["returns"] == {"type": "integer"}


def declared(annotations: dict[str, Any], mark: Any = call, name: str = "work", doc: str = "") -> type[Interface]:
    """An interface with one method that has these annotations."""

    def work(*args: Any) -> None: ...

    names = ["self", *(name for name in annotations if name != "return")]
    parameters = [inspect.Parameter(parameter, inspect.Parameter.POSITIONAL_OR_KEYWORD) for parameter in names]
    work.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    work.__annotations__, work.__doc__ = annotations, doc
    return typing.cast("type[Interface]", type("Fresh", (Interface,), {name: mark(work)}, protocol="fresh/1"))


BASE = declared({"value": Seq, "return": int})


def test_the_fingerprint_stays_where_only_words_and_class_names_differ() -> None:
    assert declared({"value": Seq, "return": int}, doc="Works.").fingerprint() == BASE.fingerprint()
    assert declared({"value": Seq, "return": Deferred[int]}).fingerprint() == BASE.fingerprint()


@pytest.mark.parametrize(
    "other",
    [
        declared({"value": Step, "return": int}),
        declared({"value": Seq, "return": float}),
        declared({"valu": Seq, "return": int}),
        declared({"value": Seq, "more": int, "return": int}),
        declared({"value": Seq, "return": Iterator[int]}, stream),
        declared({"value": Seq, "return": int}, call(idempotent=True)),
        declared({"value": Seq, "return": int}, name="job"),
        declared({"value": Seq | None, "return": int}),
    ],
)
def test_the_fingerprint_changes_with_whatever_a_caller_can_notice(other: type[Interface]) -> None:
    assert other.fingerprint() != BASE.fingerprint()


def test_a_field_deep_in_an_argument_changes_the_fingerprint_and_the_digest_of_its_method_alone() -> None:
    def made(kind: Any) -> type[Interface]:
        inner = msgspec.defstruct("Inner", [("number", kind)])
        outer = msgspec.defstruct("Outer", [("inner", list[inner])])

        class Two(Interface, protocol="two/1"):
            @call
            def same(self, value: int) -> int: ...

            def other(self, value: Any) -> int: ...

        Two.other.__annotations__["value"] = outer
        return typing.cast("type[Interface]", type("Both", (Two,), {"other": call(Two.other)}))

    one, two = made(int), made(float)
    assert one.fingerprint() != two.fingerprint()
    assert {n for n, d in one.method_digests().items() if two.method_digests()[n] != d} == {"other"}


def test_how_a_service_runs_a_method_is_no_part_of_its_fingerprint() -> None:
    class Implementation(Service, Steps):
        @call(idempotent=True, concurrency=1, thread=True)
        def step(self, batch: Step, mode: Mode = Mode.FAST) -> dict[str, int]:
            return {}

    assert Implementation.fingerprint() == Steps.fingerprint()
    assert Implementation.methods["step"].mark.thread


# Declarations that are refused


@pytest.mark.parametrize(
    ("mark", "annotations", "said"),
    [
        (call, {"value": int}, "its return type is not annotated"),
        (call, {"value": object(), "return": int}, ""),
        (call, {"value": list[int] | set[int], "return": int}, "more than one array-like"),
        (call, {"value": Text | Seq, "return": int}, ""),
        (tell, {"return": int}, "a tell has no answer"),
        (stream, {"return": int}, "a stream returns Iterator"),
        (stream, {"return": list[int]}, "a stream returns Iterator"),
        (event, {"value": int, "return": int}, "an event takes no arguments"),
        (event, {"return": None}, "an event returns the state"),
    ],
)
def test_a_declaration_that_cannot_be_served_is_refused_by_name(
    mark: Any, annotations: dict[str, Any], said: str
) -> None:
    with pytest.raises(UsageError, match="work") as caught:
        declared(annotations, mark)
    assert said in str(caught.value)


def untyped(self: Any, x) -> int: ...  # type: ignore[no-untyped-def]
def several(self: Any, *x: int) -> int: ...
def by_place(self: Any, x: int, /) -> int: ...
def named(self: Any, **x: int) -> int: ...


@pytest.mark.parametrize("function", [untyped, several, by_place, named])
def test_a_parameter_that_has_no_type_or_no_name_on_the_wire_is_named(function: Any) -> None:
    with pytest.raises(UsageError, match=r"Fresh\.work: parameter 'x'"):
        type("Fresh", (Interface,), {"work": call(function)}, protocol="fresh/1")


@pytest.mark.parametrize("protocol", ["", "worker", "worker/", "Worker/1", "worker/1.0", "worker/1 ", "1/1", "a b/1"])
def test_a_protocol_that_is_not_name_and_major_is_refused(protocol: str) -> None:
    with pytest.raises(UsageError, match="not of the form name/major"):
        type("Fresh", (Interface,), {}, protocol=protocol)


def test_an_override_may_not_change_what_its_interface_declares() -> None:
    with pytest.raises(UsageError, match=r"Changed\.step: its types differ"):

        class Changed(Service, Steps):
            def step(self, batch: Step, mode: str = "fast") -> dict[str, int]:
                return {}

    with pytest.raises(UsageError, match=r"Turned\.step is a stream; its interface declares a call"):

        class Turned(Service, Steps):
            @stream
            def step(self, batch: Step, mode: Mode = Mode.FAST) -> Iterator[dict[str, int]]:
                yield {}


def test_a_service_that_leaves_a_method_out_is_refused_by_name() -> None:
    class Declared(Interface, protocol="declared/1"):
        @call
        def one(self) -> int: ...

        @call
        def two(self) -> int: ...

    with pytest.raises(UsageError, match="Half does not implement 'two' of declared/1"):

        class Half(Service, Declared):
            def one(self) -> int:
                return 1


def test_two_interfaces_that_declare_one_method_each_its_own_way_are_refused_together() -> None:
    class Other(Interface, protocol="other/1"):
        @call
        def step(self, batch: int) -> int: ...

    with pytest.raises(UsageError, match=r"Both\.step: its types differ"):

        class Both(Steps, Other):
            pass

    class Same(Interface, protocol="same/1"):
        @call
        def step(self, batch: Step, mode: Mode = Mode.FAST) -> dict[str, int]: ...

    class Together(Steps, Same):
        pass

    assert list(Together.methods) == ["step"]


# What a handler may take and return beside its declaration


def test_an_outlet_is_given_by_the_loop_and_is_no_argument() -> None:
    class Pushing(Interface, protocol="pushing/1"):
        @stream
        def count(self, limit: int, out: Outlet[int]) -> None: ...

    assert Pushing.methods["count"].arg_names == ("limit",)


@pytest.mark.parametrize(
    ("hint", "returns"),
    [(Iterator[int], int), (AsyncIterator[Seq], Seq), (collections.abc.Generator[int, None, None], int)],
)
def test_a_streams_type_is_that_of_its_items(hint: Any, returns: Any) -> None:
    assert declared({"return": hint}, stream).methods["work"].returns is returns


def test_an_override_inherits_the_mark_of_what_it_overrides() -> None:
    class Implementation(Service, Steps):
        def step(self, batch: Step, mode: Mode = Mode.FAST) -> dict[str, int]:
            return {}

    assert Implementation.methods["step"].mark == Steps.methods["step"].mark


def test_an_error_of_a_handler_that_is_no_argument_has_no_field() -> None:
    served = Served(Worker())
    ((_, message),) = served.raw().call(1, "nothing")
    served.close()
    assert error_of(message)["code"] == "not_found"
    assert "it has step, tokens, forget, load" in error_of(message)["message"]
