"""One tree, one mapping: every error that crosses the wire is the same error on the other side."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import msgspec
import pytest

from zmqengine import errors
from zmqengine.errors import (
    ConfigError,
    ErrorBody,
    HandlerFailed,
    HandshakeFailed,
    Overloaded,
    PeerLost,
    ProtocolError,
    RemoteError,
    RemoteProtocolError,
    ZmqEngineError,
    from_wire,
    to_wire,
)

ALL = [
    cls
    for cls in vars(errors).values()
    if isinstance(cls, type) and issubclass(cls, ZmqEngineError) and cls.__module__ == errors.__name__
]
ROOT = Path(errors.__file__).parents[1]
REMOTE = [cls for cls in ALL if issubclass(cls, RemoteError) and cls is not RemoteError]


def crossed(error: BaseException, peer: str = "worker/1 step") -> ZmqEngineError:
    """The error as a peer raises it, after the wire."""
    frame = msgspec.msgpack.encode(to_wire(error))
    return from_wire(msgspec.msgpack.decode(frame, type=ErrorBody), peer)


def drawn_tree() -> dict[str, str]:
    """Class to base, as the module's docstring draws them."""
    found: dict[str, str] = {}
    path: list[tuple[int, str]] = []
    for line in (errors.__doc__ or "").splitlines():
        match = re.match(r"^(?P<lead>[ |`-]+)(?P<name>[A-Z]\w+)( |$)", line)
        if match is None:
            continue
        depth, name = len(match["lead"]), match["name"]
        while path and path[-1][0] >= depth:
            path.pop()
        if path:
            found[name] = path[-1][1]
        path.append((depth, name))
    return found


def test_the_tree_that_the_docstring_draws_is_the_tree_that_is() -> None:
    bases = {cls.__name__: cls.__base__.__name__ for cls in ALL if cls is not ZmqEngineError}  # type: ignore[union-attr]
    assert drawn_tree() == bases


@pytest.mark.parametrize("cls", REMOTE)
def test_an_answer_with_an_error_is_raised_as_the_same_error_with_its_details(cls: type[RemoteError]) -> None:
    raised = crossed(cls("no room", field="request.n", retry_after_s=0.5))
    assert type(raised) is cls
    assert isinstance(raised, RemoteError)
    assert str(raised) == "worker/1 step: no room"
    assert (raised.field, raised.retry_after_s) == ("request.n", 0.5)


@pytest.mark.parametrize(
    ("cls", "arrives_as"),
    [
        (errors.DeadlineExceeded, errors.DeadlineExceeded),
        (errors.Cancelled, errors.Cancelled),
        (errors.PeerLost, errors.PeerLost),
        (errors.StartFailed, errors.StartFailed),
        (errors.LocalProtocolError, RemoteProtocolError),  # whose fault it was turns with the side
        (errors.RemoteProtocolError, RemoteProtocolError),
        (HandshakeFailed, PeerLost),  # of a peer's peer: the asker's own keys are fine
        (ConfigError, HandlerFailed),
        (errors.UsageError, HandlerFailed),
    ],
)
def test_every_other_error_of_ours_arrives_as_one_that_says_whose_fault_it_was(
    cls: type[ZmqEngineError], arrives_as: type[ZmqEngineError]
) -> None:
    assert type(crossed(cls("what happened"))) is arrives_as
    assert "what happened" in str(crossed(cls("what happened")))


def test_every_class_is_mapped_by_one_of_these_tests() -> None:
    abstract = {ZmqEngineError, RemoteError, ProtocolError}
    tried = next(
        mark for mark in test_every_other_error_of_ours_arrives_as_one_that_says_whose_fault_it_was.pytestmark
    ).args[1]
    assert set(ALL) - abstract == set(REMOTE) | {cls for cls, _ in tried}


def test_each_code_belongs_to_one_class() -> None:
    codes = [cls.code for cls in REMOTE]
    assert len(codes) == len(set(codes))
    assert not {"protocol_error", "deadline_exceeded", "cancelled", "peer_lost", "start_failed"} & set(codes)


def test_a_handlers_own_exception_is_told_with_its_type_and_text() -> None:
    raised = crossed(KeyError("seq 7"))
    assert type(raised) is HandlerFailed
    assert str(raised) == "worker/1 step: KeyError: 'seq 7'"


def test_a_code_of_a_newer_peer_is_a_remote_error_that_keeps_its_text() -> None:
    raised = from_wire(ErrorBody(code="quota_exceeded", message="come back tomorrow", retry_after_s=3.0), "api")
    assert type(raised) is RemoteError
    assert str(raised) == "api: come back tomorrow"
    assert raised.retry_after_s == 3.0


def test_details_that_are_absent_take_no_room_on_the_wire() -> None:
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(to_wire(Overloaded("full")))) == {
        "code": "overloaded", "message": "full",
    }  # fmt: skip


class _Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")


@pytest.mark.parametrize(
    "error",
    [FileNotFoundError(2, "No such file", "/tmp/\udcff"), Overloaded("\ud800"), ValueError("x" * 10_000_000)],
    ids=["surrogate", "surrogate of ours", "endless"],
)
def test_a_text_that_has_no_utf8_or_no_end_is_told_all_the_same(error: BaseException) -> None:
    frame = msgspec.msgpack.encode(to_wire(error))
    assert len(frame) < 100_000
    assert msgspec.msgpack.decode(frame, type=ErrorBody).message


def test_an_exception_whose_text_cannot_be_had_is_told_by_its_type() -> None:
    assert "_Unprintable" in str(crossed(_Unprintable()))


def test_exceptions_are_mapped_to_codes_in_one_place() -> None:
    # Codes are strings that a peer relies on: a second place that spells one would drift.
    codes = {cls.code for cls in ALL}
    spelled = {
        f"{path.relative_to(ROOT)}: {code}"
        for path in (ROOT / "zmqengine").rglob("*.py")
        for code in codes - {"internal", "cancelled"}  # words of other meanings, too
        if path.name != "errors.py" and f'"{code}"' in path.read_text()
    }
    assert spelled == set()


def test_every_error_says_what_it_means() -> None:
    assert [cls.__name__ for cls in ALL if not inspect.getdoc(cls)] == []
