"""Encoding and decoding of messages: bytes in, values out, no sockets. The layout stands in `wire`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from . import wire
from .errors import LocalProtocolError, RemoteProtocolError
from .wire import Kind

# msgspec rather than the msgpack package: it decodes straight into the validated type. Measured on a worker's step of
# 16 sequences (scripts/bench_codec.py): encode 1.5 against 11.1 us, decode and validate 4.5 against 8.9 us.
_encoder = msgspec.msgpack.Encoder()
_PREAMBLE = {kind: wire.MAGIC + bytes((wire.MAJOR, kind)) for kind in Kind}
_CALL, _REPLY = _PREAMBLE[Kind.CALL], _PREAMBLE[Kind.REPLY]
_ITEM_ENVELOPE_BYTES = 64  # more than the fields of an ITEM take around its body
_KINDS: dict[bytes, Kind] = {preamble: kind for kind, preamble in _PREAMBLE.items()}


class Envelope(msgspec.Struct, frozen=True, array_like=True):
    """The envelope of one message; the fields are explained in `wire`."""

    minor: int
    incarnation: str
    call_id: int
    method: str
    budget_ms: int | None
    seq: int
    credit: tuple[int, int] | None
    traceparent: str | None
    buffers: list[Any] | None
    body: msgspec.Raw


class OtherMajor(RemoteProtocolError):
    """The peer speaks another major version."""


_envelope_decoder = msgspec.msgpack.Decoder(Envelope)
_batch_decoder = msgspec.msgpack.Decoder(list[bytes])


def encode(
    kind: Kind,
    *,
    incarnation: str = "",
    call_id: int = 0,
    method: str = "",
    budget_ms: int | None = None,
    seq: int = 0,
    credit: tuple[int, int] | None = None,
    traceparent: str | None = None,
    body: Any = None,
) -> bytes:
    """The envelope frame of a message. Raises LocalProtocolError where the body has no msgpack form."""
    fields = (wire.MINOR, incarnation, call_id, method, budget_ms, seq, credit, traceparent, None, body)
    return _frame(_PREAMBLE[kind], fields, method or kind.name)


def encode_call(
    incarnation: str, call_id: int, method: str, budget_ms: int | None, traceparent: str | None, body: Any
) -> bytes:
    """`encode` of a CALL, which is on the path of every call."""
    return _frame(
        _CALL, (wire.MINOR, incarnation, call_id, method, budget_ms, 0, None, traceparent, None, body), method
    )


def encode_reply(call_id: int, body: Any, method: str) -> bytes:
    """`encode` of a REPLY; method: for the message of an error."""
    return _frame(_REPLY, (wire.MINOR, "", call_id, "", None, 0, None, None, None, body), method)


def _frame(preamble: bytes, fields: tuple[Any, ...], what: str) -> bytes:
    try:
        frame = preamble + _encoder.encode(fields)
    except (TypeError, ValueError, OverflowError, RecursionError, NotImplementedError) as error:
        raise LocalProtocolError(f"{what}: cannot be sent: {error}") from None
    if len(frame) > wire.MAX_MESSAGE_BYTES:
        raise LocalProtocolError(f"{what}: {len(frame)} bytes; a message has at most {wire.MAX_MESSAGE_BYTES}")
    return frame


def encode_item(item: Any, method: str) -> msgspec.Raw:
    """One item of a stream, to be sent by `encode_items`. Raises LocalProtocolError where it has no msgpack form, or is
    too large for a message: its producer is to hear of it, for the end of the turn that sends it has nobody to tell.
    """
    try:
        raw = _encoder.encode(item)
    except (TypeError, ValueError, OverflowError, RecursionError, NotImplementedError) as error:
        raise LocalProtocolError(f"{method}: an item cannot be sent: {error}") from None
    most = wire.MAX_MESSAGE_BYTES - _ITEM_ENVELOPE_BYTES
    if len(raw) > most:
        raise LocalProtocolError(f"{method}: an item of {len(raw)} bytes; it has at most {most}")
    return msgspec.Raw(raw)


def encode_items(call_id: int, seq: int, items: list[msgspec.Raw]) -> bytes:
    """The envelope frame of consecutive items of a stream, the first of them numbered `seq`."""
    return encode(Kind.ITEM, call_id=call_id, seq=seq, body=items)


def encode_batch(frames: list[bytes]) -> bytes:
    """One frame for several envelope frames."""
    return _PREAMBLE[Kind.BATCH] + _encoder.encode(frames)


def coalesce(frames: list[bytes]) -> Iterator[bytes]:
    """Group envelope frames that are pending for one peer into as few frames as the limits allow, in order."""
    group: list[bytes] = []
    size = 0
    for frame in frames:
        if group and (len(group) == wire.MAX_BATCH or size + len(frame) > wire.MAX_BATCH_BYTES):
            yield group[0] if len(group) == 1 else encode_batch(group)
            group, size = [], 0
        group.append(frame)
        size += len(frame)
    if group:
        yield group[0] if len(group) == 1 else encode_batch(group)


def kind_of(frame: bytes) -> Kind:
    """Check the preamble. Raises RemoteProtocolError (OtherMajor for another major version)."""
    kind = _KINDS.get(frame[:4])
    if kind is not None and len(frame) > 4:
        return kind
    if len(frame) < 5 or frame[:2] != wire.MAGIC:
        raise RemoteProtocolError("not a zmqengine message: it does not begin with 'ZE'")
    if frame[2] != wire.MAJOR:
        raise OtherMajor(f"protocol major {frame[2]} is not spoken here, but {wire.MAJOR}")
    raise RemoteProtocolError(f"unknown message kind {frame[3]}")


def decode(frame: bytes) -> tuple[Kind, Envelope]:
    """Decode one envelope frame (not a BATCH). Raises RemoteProtocolError that says what is wrong."""
    kind = _KINDS.get(frame[:4])
    if kind is None:
        kind = kind_of(frame)  # says what is wrong
    elif kind is Kind.BATCH:
        raise RemoteProtocolError("a BATCH within a BATCH")
    return kind, _decode_envelope(kind, frame)


def _decode_envelope(kind: Kind, frame: bytes) -> Envelope:
    try:
        # A slice of a small message is faster than a view of it.
        return _envelope_decoder.decode(frame[4:] if len(frame) < 4096 else memoryview(frame)[4:])
    except (msgspec.DecodeError, RecursionError) as error:
        raise RemoteProtocolError(f"malformed {kind.name} envelope: {error}") from None


def decode_message(frames: list[bytes]) -> Iterable[tuple[Kind, Envelope]]:
    """Decode a message into the one or, for a BATCH, several that it stands for. A malformed member of a BATCH raises
    when its turn comes: those before it are good."""
    if len(frames) != 1:
        raise RemoteProtocolError(f"{len(frames)} frames where one is expected")
    frame = frames[0]
    kind = kind_of(frame)
    if kind is not Kind.BATCH:
        return ((kind, _decode_envelope(kind, frame)),)
    return map(decode, split_batch(frame))


def members(frame: bytes) -> list[bytes]:
    """The envelope frames that a frame stands for: those of a BATCH, or itself."""
    return split_batch(frame) if kind_of(frame) is Kind.BATCH else [frame]


def split_batch(frame: bytes) -> list[bytes]:
    """The envelope frames in a BATCH frame. Raises RemoteProtocolError where it is malformed or too long."""
    try:
        members = _batch_decoder.decode(memoryview(frame)[4:])
    except (msgspec.DecodeError, RecursionError) as error:
        raise RemoteProtocolError(f"malformed BATCH: {error}") from None
    if len(members) > wire.MAX_BATCH:
        raise RemoteProtocolError(f"a BATCH of {len(members)}; at most {wire.MAX_BATCH} are allowed")
    return members


def decode_body(decoder: msgspec.msgpack.Decoder[Any], body: msgspec.Raw, where: str) -> Any:
    """Decode and validate a body. Raises RemoteProtocolError naming the field: ``worker/1 step.batch.step: ...``."""
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise RemoteProtocolError(describe_fault(error, where)) from None


def describe_fault(error: Exception, where: str) -> str:
    """msgspec's message with its path put first: ``Expected `int` - at `$.a[3].b``` is ``where.a[3].b: ...``."""
    message, path, in_key = _split_fault(str(error))
    if path is None:
        return f"{where}: {message}"
    return f"{where}{path}{' (a key)' if in_key else ''}: {message[:1].lower()}{message[1:]}"


def fault_field(error: Exception) -> str | None:
    """The path of the field that msgspec refused, as ``request.sampling.top_p``; None where it names none."""
    _, path, _ = _split_fault(str(error))
    return path.lstrip(".") or None if path is not None else None


def _split_fault(text: str) -> tuple[str, str | None, bool]:
    """What is wrong; where, or None where msgspec names no place; and whether it is a key of the map there."""
    for place, in_key in ((" - at `key` in `$", True), (" - at `$", False)):
        message, separator, path = text.rpartition(place)
        if separator:
            return message, path.rstrip("`"), in_key
    return text, None, False


def size_of_items(body: msgspec.Raw, count: int) -> int:
    """What the items cost of their stream's credit: their bytes, without the array's header."""
    return len(body) - (1 if count < 16 else 3 if count < 65536 else 5)
