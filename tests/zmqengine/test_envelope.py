"""What is written is read back, plain msgpack to others, and whatever else comes is refused by one named error."""

from __future__ import annotations

import dataclasses
import datetime
import enum
from collections.abc import Callable
from typing import Any

import msgpack
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zmqengine import Message, envelope, wire
from zmqengine.envelope import OtherMajor, decode_message
from zmqengine.errors import LocalProtocolError, RemoteProtocolError
from zmqengine.wire import Kind

SINGLE = [kind for kind in Kind if kind is not Kind.BATCH]
CALL = envelope.encode(Kind.CALL, call_id=3, method="step", body={"token_ids": [1, 2, 3], "name": "x" * 40})

whole = st.integers(-(2**63), 2**64 - 1)
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
values = st.recursive(
    st.none() | st.booleans() | whole | st.floats(allow_nan=False) | text | st.binary(max_size=50),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
    max_leaves=12,
)
fields = st.fixed_dictionaries({
    "incarnation": text, "call_id": st.integers(0, 2**63 - 1), "method": text,
    "budget_ms": st.none() | st.integers(0, 2**40),
    "seq": st.integers(0, 2**40), "credit": st.none() | st.tuples(st.integers(0, 2**40), st.integers(0, 2**40)),
    "traceparent": st.none() | text, "body": values,
})  # fmt: skip


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Sampling(Message, array_like=True):
    top_p: float
    colour: Colour | None = None


class Chat(Message, tag="chat"):
    lines: list[str]


class Tokens(Message, tag="tokens"):
    token_ids: list[int]
    at: datetime.datetime | None = None


@dataclasses.dataclass(frozen=True)
class Usage:
    tokens: int


class Step(Message):
    prompt: Chat | Tokens
    sampling: Sampling
    blocks: dict[int, bytes]
    usage: Usage | None = None


moments = st.datetimes(datetime.datetime(1970, 1, 1), datetime.datetime(2200, 1, 1), timezones=st.just(datetime.UTC))
steps = st.builds(
    Step,
    prompt=st.builds(Chat, lines=st.lists(text, max_size=3))
    | st.builds(Tokens, token_ids=st.lists(st.integers(-(2**31), 2**31), max_size=5), at=st.none() | moments),
    sampling=st.builds(Sampling, top_p=st.floats(0, 1), colour=st.none() | st.sampled_from(Colour)),
    blocks=st.dictionaries(st.integers(0, 2**40), st.binary(max_size=20), max_size=3),
    usage=st.none() | st.builds(Usage, tokens=st.integers(0, 2**40)),
)


def read(frame: bytes) -> list[tuple[Kind, envelope.Envelope]]:
    return list(decode_message([frame]))


@given(st.sampled_from(SINGLE), fields)
def test_every_kind_is_read_back_as_it_was_written(kind: Kind, given_fields: dict[str, Any]) -> None:
    ((found, message),) = read(envelope.encode(kind, **given_fields))
    assert found is kind
    assert msgspec.msgpack.decode(message.body) == given_fields.pop("body")
    assert {name: getattr(message, name) for name in given_fields} == given_fields
    assert message.minor == wire.MINOR


@given(steps)
def test_a_typed_message_is_read_back_as_it_was_written(step: Step) -> None:
    ((_, message),) = read(envelope.encode(Kind.REPLY, call_id=1, body=step))
    assert envelope.decode_body(msgspec.msgpack.Decoder(Step), message.body, "worker/1") == step


@given(st.sampled_from(SINGLE), fields)
def test_another_codec_reads_what_is_written(kind: Kind, given_fields: dict[str, Any]) -> None:
    frame = envelope.encode(kind, **given_fields)
    assert frame[:4] == b"ZE" + bytes((wire.MAJOR, kind))
    read_by_it = msgpack.unpackb(frame[4:], strict_map_key=False)
    credit = given_fields["credit"]
    assert read_by_it == [
        wire.MINOR, given_fields["incarnation"], given_fields["call_id"], given_fields["method"],
        given_fields["budget_ms"], given_fields["seq"], None if credit is None else list(credit),
        given_fields["traceparent"], None, given_fields["body"],
    ]  # fmt: skip


@given(st.sampled_from(SINGLE), fields)
def test_what_another_codec_writes_is_read(kind: Kind, given_fields: dict[str, Any]) -> None:
    order = ("incarnation", "call_id", "method", "budget_ms", "seq", "credit", "traceparent")
    array = [0, *(given_fields[name] for name in order), None, given_fields["body"]]
    ((found, message),) = read(b"ZE" + bytes((wire.MAJOR, kind)) + msgpack.packb(array))
    assert found is kind
    assert [getattr(message, name) for name in order] == [given_fields[name] for name in order]


@given(st.lists(st.tuples(st.sampled_from(SINGLE), fields), min_size=2, max_size=8))
def test_coalesced_messages_are_read_back_in_order(messages: list[tuple[Kind, dict[str, Any]]]) -> None:
    frames = [envelope.encode(kind, **given_fields) for kind, given_fields in messages]
    (batch,) = envelope.coalesce(frames)
    assert [(kind, m.call_id) for kind, m in read(batch)] == [(k, f["call_id"]) for k, f in messages]
    assert envelope.members(batch) == frames
    assert msgpack.unpackb(batch[4:]) == frames, "a batch is plain msgpack, too"


@given(st.lists(st.integers(0, wire.MAX_BATCH_BYTES + 10), max_size=30))
def test_a_batch_keeps_to_its_limits_and_a_lone_message_is_sent_as_it_is(sizes: list[int]) -> None:
    frames = [envelope.encode(Kind.TELL, body=bytes(size)) for size in sizes]
    out = list(envelope.coalesce(frames))
    assert [frame for sent in out for frame in envelope.members(sent)] == frames
    for sent in out:
        inside = envelope.members(sent)
        assert len(inside) == 1 or sum(map(len, inside)) <= wire.MAX_BATCH_BYTES
        assert len(inside) > 1 or sent == inside[0]


def test_more_small_messages_than_a_batch_may_have_become_several() -> None:
    frames = [envelope.encode(Kind.TELL, call_id=number) for number in range(wire.MAX_BATCH * 2 + 1)]
    assert [len(envelope.members(sent)) for sent in envelope.coalesce(frames)] == [wire.MAX_BATCH, wire.MAX_BATCH, 1]


# What is not ours

frames_of_some = st.binary(max_size=200) | st.binary(max_size=200).map(lambda rest: b"ZE\x01\x04" + rest)


@given(st.lists(frames_of_some, max_size=3))
@settings(max_examples=500)
def test_random_bytes_are_refused_by_one_error_or_are_a_message(frames: list[bytes]) -> None:
    expect_named_error_or_message(frames)


@given(st.integers(0, len(CALL) - 1))
@settings(max_examples=len(CALL))
def test_every_truncation_is_refused(length: int) -> None:
    with pytest.raises(RemoteProtocolError):
        list(decode_message([CALL[:length]]))


@given(st.lists(st.tuples(st.integers(0, len(CALL) - 1), st.integers(0, 255)), min_size=1, max_size=5))
@settings(max_examples=500)
def test_mutations_are_refused_by_one_error_or_are_a_message(changes: list[tuple[int, int]]) -> None:
    frame = bytearray(CALL)
    for index, value in changes:
        frame[index] = value
    expect_named_error_or_message([bytes(frame)])


@given(st.binary(max_size=60))
@settings(max_examples=500)
def test_a_body_of_random_bytes_is_refused_by_one_error_or_is_a_message(body: bytes) -> None:
    found: Step | str
    try:
        found = envelope.decode_body(msgspec.msgpack.Decoder(Step), msgspec.Raw(body), "worker/1 step")
    except RemoteProtocolError as error:
        found = str(error)
    assert isinstance(found, Step) or found.startswith("worker/1 step")


def expect_named_error_or_message(frames: list[bytes]) -> None:
    try:
        messages = list(decode_message(frames))
    except RemoteProtocolError:
        return  # any other exception fails the test
    assert all(isinstance(message, envelope.Envelope) for _, message in messages)


@pytest.mark.parametrize(
    ("frames", "said"),
    [
        ([], "0 frames where one is expected"),
        ([CALL, b""], "2 frames where one is expected"),
        ([b""], "does not begin with 'ZE'"),
        ([b"ZE\x01\x04"], "does not begin with 'ZE'"),
        ([b"GET / HTTP/1.1"], "does not begin with 'ZE'"),
        ([b"ZE\x01\x63\x90"], "unknown message kind 99"),
        ([b"ZE\x01\x04\x90"], "malformed CALL envelope"),
        ([b"ZE\x01\x04" + msgpack.packb([0] * 10)], "malformed CALL envelope: Expected `str`"),
        ([CALL + b"\x00"], "malformed CALL envelope"),
        ([b"ZE\x01\x0f\x01"], "malformed BATCH"),
        ([b"ZE\x01\x0f" + msgpack.packb([b"ZE\x01\x0f\x90"])], "a BATCH within a BATCH"),
        ([envelope.encode_batch([CALL] * (wire.MAX_BATCH + 1))], "a BATCH of 257; at most 256"),
        ([b"ZE\x01\x04\xdd\xff\xff\xff\xff"], "malformed CALL envelope"),
        ([b"ZE\x01\x0f\xdd\xff\xff\xff\xff"], "malformed BATCH"),
        ([b"ZE\x01\x04" + b"\x91" * 100_000 + b"\xc0"], "malformed CALL envelope"),
        ([b"ZE\x01\x04" + msgpack.packb([0, b"\xff", 1, "m", None, 0, None, None, None, None])], "malformed CALL"),
        ([b"ZE\x01\x04\x9a\x00\xa1\xff" + msgpack.packb([1, "m", None, 0, *[None] * 4])[1:]], "malformed CALL"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_the_error_says_what_is_wrong(frames: list[bytes], said: str) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        list(decode_message(frames))
    assert said in str(caught.value)


def test_another_major_is_told_from_garbage_and_another_minor_is_read() -> None:
    with pytest.raises(OtherMajor, match="protocol major 2 is not spoken here, but 1"):
        list(decode_message([b"ZE\x02" + CALL[3:]]))
    array = msgpack.unpackb(CALL[4:])
    array[0] = 9
    ((kind, message),) = read(CALL[:4] + msgpack.packb([*array, "a field of a newer minor"]))
    assert (kind, message.minor, message.method) == (Kind.CALL, 9, "step")


def test_the_members_before_a_malformed_one_are_good() -> None:
    messages = iter(decode_message([envelope.encode_batch([CALL, b"ZE\x01\x04\x90", CALL])]))
    assert next(messages)[1].method == "step"
    with pytest.raises(RemoteProtocolError, match="malformed CALL"):
        next(messages)


def test_a_body_nested_100000_deep_is_refused_by_name() -> None:
    nest = b"\x91" * 100_000 + b"\xc0"
    with pytest.raises(RemoteProtocolError, match="worker/1 step"):
        envelope.decode_body(msgspec.msgpack.Decoder(), msgspec.Raw(nest), "worker/1 step")


# What cannot be sent


def nested(depth: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(depth):
        found = [found]
    return found


@pytest.mark.parametrize(
    "body",
    [object(), {"n": 2**64}, {"n": -(2**63) - 1}, "\ud800", nested(100_000), {1j: 2}, lambda: None],
    ids=["object", "too large", "too small", "surrogate", "deep", "complex", "function"],
)
@pytest.mark.parametrize(
    "write",
    [
        lambda body: envelope.encode(Kind.CALL, method="step", body=body),
        lambda body: envelope.encode_call("", 1, "step", None, None, body),
        lambda body: envelope.encode_reply(1, body, "step"),
        lambda body: envelope.encode_item(body, "step"),
    ],
    ids=["message", "call", "reply", "item"],
)
def test_what_has_no_form_on_the_wire_is_refused_with_the_methods_name(
    write: Callable[[Any], object], body: Any
) -> None:
    with pytest.raises(LocalProtocolError, match=r"step: .*cannot be sent"):
        write(body)


@pytest.mark.parametrize(
    "write", [
        lambda body: envelope.encode(Kind.CALL, method="step", body=body),
        lambda body: envelope.encode_reply(1, body, "step"),
        lambda body: envelope.encode_item(body, "step"),
    ],
)  # fmt: skip
def test_what_is_larger_than_a_message_may_be_is_refused(
    monkeypatch: pytest.MonkeyPatch, write: Callable[[bytes], Any]
) -> None:
    monkeypatch.setattr(wire, "MAX_MESSAGE_BYTES", 10_000)
    assert write(bytes(9_000))
    with pytest.raises(LocalProtocolError, match=r"bytes; .*at most"):
        write(bytes(10_001))


def test_every_item_that_is_let_through_fits_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "MAX_MESSAGE_BYTES", 10_000)
    for size in range(9_800, 10_001):
        try:
            item = envelope.encode_item(bytes(size), "step")
        except LocalProtocolError:
            continue
        assert len(envelope.encode_items(2**62, 2**62, [item])) <= 10_000


# What the messages of a fault say


@pytest.mark.parametrize(
    ("value", "said", "field"),
    [
        ({"seqs": [0, 0, 0, {"start": "x"}]}, "worker/1 step.seqs[0]: expected `object`, got `int`", "seqs[0]"),
        ({"seqs": [{"start": "x"}]}, "worker/1 step.seqs[0].start: expected `int`, got `str`", "seqs[0].start"),
        ({"seqs": [{}]}, "worker/1 step.seqs[0]: object missing required field `start`", "seqs[0]"),
        ({"seqs": []}, "worker/1 step.seqs: expected `array` of length >= 1", "seqs"),
        (7, "worker/1 step: Expected `object`, got `int`", None),
    ],
)  # fmt: skip
def test_a_fault_is_told_with_its_path(value: Any, said: str, field: str | None) -> None:
    from typing import Annotated

    class Seq(Message):
        start: int

    args = msgspec.defstruct("args", [("seqs", Annotated[list[Seq], msgspec.Meta(min_length=1)])])
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.msgpack.decode(msgspec.msgpack.encode(value), type=args)
    assert envelope.describe_fault(caught.value, "worker/1 step") == said
    assert envelope.fault_field(caught.value) == field


@given(st.lists(st.binary(max_size=30), min_size=1, max_size=40))
def test_the_size_of_items_is_what_their_bodies_take(items: list[bytes]) -> None:
    raw = [envelope.encode_item(item, "count") for item in items]
    ((_, message),) = read(envelope.encode_items(1, 0, raw))
    assert envelope.size_of_items(message.body, len(items)) == sum(len(item) for item in raw)
