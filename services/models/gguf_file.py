"""Reading a GGUF file: metadata, tensor table and tensor bytes, memory-mapped and decoded only when asked for.

The layout is that of the GGUF specification (ggml-org/ggml, docs/gguf.md), versions 2 and 3, little-endian. The `gguf`
library's own reader turns every array element into an object: 5.7 s for the vocabulary of the embedded model, where
walking over its 98 thousand strings takes 25 ms, and decoding them, which the worker never asks for, another 65. So
the header is walked here, and the library is left to the formats that the worker has no code for.
"""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Any

from .load_error import MalformedFile, MissingFile, MissingMetadata, NotAModel, TruncatedFile, UnknownTensorType

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
MAX_DIMENSIONS = 4
_STRING, _ARRAY = 8, 9
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""Metadata value type to its struct code."""

TENSOR_TYPES: Mapping[int, tuple[str, int, int]] = {
    0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20), 6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24), 8: ("Q8_0", 32, 34), 10: ("Q2_K", 256, 84), 11: ("Q3_K", 256, 110), 12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176), 14: ("Q6_K", 256, 210), 16: ("IQ2_XXS", 256, 66), 17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98), 19: ("IQ1_S", 256, 50), 20: ("IQ4_NL", 32, 18), 21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82), 23: ("IQ4_XS", 256, 136), 24: ("I8", 1, 1), 25: ("I16", 1, 2), 26: ("I32", 1, 4),
    27: ("I64", 1, 8), 28: ("F64", 1, 8), 29: ("IQ1_M", 256, 56), 30: ("BF16", 1, 2), 34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66), 39: ("MXFP4", 32, 17),
}  # fmt: skip
"""ggml type number to its name, weights in a block, and bytes of a block."""


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """Where a tensor lies in the file, and how it is stored."""

    name: str
    shape: tuple[int, ...]
    """Slowest dimension first, as torch and numpy count (the file has the fastest first): [out, in] for a matrix."""
    type: str
    """Storage format: F32, F16, Q4_1, ..."""
    offset: int
    """Bytes from the beginning of the file."""
    n_bytes: int


@dataclass(frozen=True, slots=True)
class _Value:
    """A metadata value not decoded yet: an array's elements, or a scalar, begin at `offset`."""

    type: int
    offset: int
    count: int | None
    """Elements of an array; None for a scalar."""


class GgufFile:
    """A GGUF file, mapped. It stays mapped as long as this object or a view of its bytes lives.

    Nothing is decoded by opening it but the tensor table; a metadata array costs when it is asked for.
    """

    def __init__(self, path: str, data: mmap.mmap) -> None:
        """Use `GgufFile.open`."""
        self.path = path
        self._data = data
        self.size = len(data)
        header = _HeaderWalk(path, data)
        self.version = header.version
        self._values = header.values
        self.alignment = self._read_alignment()
        self.tensors: Mapping[str, GgufTensor] = self._place(header)

    @classmethod
    def open(cls, path: str | PathLike[str]) -> GgufFile:
        """Map a file and read its header.

        Raises MissingFile, NotAModel (no GGUF magic, unknown version), TruncatedFile (ends within the header or before
        its last tensor), MalformedFile, UnknownTensorType.
        """
        name = fspath(path)
        try:
            with open(name, "rb") as file:
                if file.read(4) != MAGIC:
                    raise NotAModel(name, "not a GGUF file: it does not begin with 'GGUF'")
                # A private writable mapping: torch warns about views of read-only memory.
                data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        except OSError as error:
            raise MissingFile(name, f"cannot be read: {error.strerror or error}") from error
        return cls(name, data)

    def keys(self) -> Iterator[str]:
        """The metadata keys, in the file's order."""
        return iter(self._values)

    def metadata(self, key: str, *default: Any) -> Any:
        """Decode one metadata value: a str, int, float or bool, or a list of these.

        With a second argument, that is the answer for a key that is not there; without, MissingMetadata is raised.
        """
        value = self._values.get(key)
        if value is None:
            if default:
                return default[0]
            raise MissingMetadata(self.path, f"has no metadata key {key!r}")
        if value.count is None:
            return self._decode_array(key, value.type, value.offset, 1)[0][0]
        return self._decode_array(key, value.type, value.offset, value.count)[0]

    def metadata_length(self, key: str) -> int | None:
        """Number of elements of an array, without decoding it; None when there is no such key or it is no array."""
        value = self._values.get(key)
        return None if value is None else value.count

    def tensor_bytes(self, tensor: GgufTensor) -> memoryview:
        """A tensor's bytes as they are in the file, without a copy."""
        return memoryview(self._data)[tensor.offset : tensor.offset + tensor.n_bytes]

    def _read_alignment(self) -> int:
        alignment = self.metadata("general.alignment", DEFAULT_ALIGNMENT)
        if not isinstance(alignment, int) or alignment <= 0 or alignment % 8:
            raise MalformedFile(self.path, f"general.alignment is {alignment!r}, not a positive multiple of 8")
        return alignment

    def _place(self, header: _HeaderWalk) -> dict[str, GgufTensor]:
        """Resolve the tensor table's offsets, and check that the file holds every tensor's last byte."""
        base = math.ceil(header.end / self.alignment) * self.alignment
        tensors: dict[str, GgufTensor] = {}
        for name, shape, type_number, offset in header.tensors:
            if name in tensors:
                raise MalformedFile(self.path, f"has two tensors named {name!r}")
            if type_number not in TENSOR_TYPES:
                raise UnknownTensorType(self.path, f"tensor {name!r} is stored in the unknown ggml type {type_number}")
            type_name, block, block_bytes = TENSOR_TYPES[type_number]
            if shape and shape[-1] % block:
                raise MalformedFile(
                    self.path, f"tensor {name!r} has rows of {shape[-1]}, but {type_name} comes in blocks of {block}"
                )
            n_bytes = math.prod(shape) // block * block_bytes
            if base + offset + n_bytes > self.size:
                raise TruncatedFile(
                    self.path,
                    f"is truncated: tensor {name!r} ends at byte {base + offset + n_bytes}, but the file has "
                    f"{self.size}. Get the file again",
                )
            tensors[name] = GgufTensor(name, shape, type_name, base + offset, n_bytes)
        return tensors

    def _decode_array(self, key: str, value_type: int, offset: int, count: int) -> tuple[list[Any], int]:
        """Decode `count` elements, which `_HeaderWalk` has checked to lie in the file; answer them and their end."""
        if value_type in _SCALARS:
            layout = struct.Struct(f"<{count}{_SCALARS[value_type]}")
            return list(layout.unpack_from(self._data, offset)), offset + layout.size
        values: list[Any] = []
        if value_type == _ARRAY:
            for _ in range(count):
                inner_type, inner_count = struct.unpack_from("<IQ", self._data, offset)
                inner, offset = self._decode_array(key, inner_type, offset + 12, inner_count)
                values.append(inner)
            return values, offset
        data, unpack = self._data, struct.Struct("<Q").unpack_from
        try:
            for _ in range(count):
                begin = offset + 8
                offset = begin + unpack(data, offset)[0]
                values.append(data[begin:offset].decode())
        except UnicodeDecodeError as error:
            raise MalformedFile(self.path, f"element {len(values)} of {key!r} is not UTF-8: {error}") from None
        return values, offset


class _HeaderWalk:
    """One pass over the header: finds every value and the tensor table, and where the header ends."""

    def __init__(self, path: str, data: mmap.mmap) -> None:
        self._path = path
        self._data = data
        self.end = len(MAGIC)
        self.values: dict[str, _Value] = {}
        self.tensors: list[tuple[str, tuple[int, ...], int, int]] = []
        """Name, shape, type number, offset behind the header."""
        self.version: int = self._take("I")[0]
        if self.version not in VERSIONS:
            swapped = int.from_bytes(self.version.to_bytes(4, "little"), "big") in VERSIONS
            what = "is big-endian" if swapped else f"has version {self.version}"
            raise NotAModel(path, f"a GGUF file that {what}; versions 2 and 3, little-endian, can be read")
        n_tensors, n_values = self._take("QQ")
        for _ in range(n_values):
            self._walk_value()
        for _ in range(n_tensors):
            self._walk_tensor()

    def _take(self, codes: str) -> tuple[Any, ...]:
        layout = struct.Struct("<" + codes)
        self._advance(layout.size)
        return layout.unpack_from(self._data, self.end - layout.size)

    def _advance(self, n_bytes: int) -> None:
        if self.end + n_bytes > len(self._data):
            raise TruncatedFile(
                self._path, f"is truncated: it ends within its header, at byte {len(self._data)}. Get the file again"
            )
        self.end += n_bytes

    def _take_name(self) -> str:
        (length,) = self._take("Q")
        self._advance(length)
        try:
            return self._data[self.end - length : self.end].decode()
        except UnicodeDecodeError as error:
            raise MalformedFile(self._path, f"a name in its header is not UTF-8: {error}") from None

    def _walk_value(self) -> None:
        key = self._take_name()
        (value_type,) = self._take("I")
        count: int | None = None
        if value_type == _ARRAY:
            value_type, count = self._take("IQ")
        if key in self.values:
            raise MalformedFile(self._path, f"has the metadata key {key!r} twice")
        self.values[key] = _Value(value_type, self.end, count)
        self._skip(key, value_type, 1 if count is None else count)

    def _skip(self, key: str, value_type: int, count: int, depth: int = 1) -> None:
        if value_type in _SCALARS:
            self._advance(struct.calcsize("<" + _SCALARS[value_type]) * count)
        elif value_type == _STRING:
            self._skip_strings(count)
        elif value_type == _ARRAY and depth < MAX_DIMENSIONS:
            for _ in range(count):
                inner_type, inner_count = self._take("IQ")
                self._skip(key, inner_type, inner_count, depth + 1)
        else:
            raise MalformedFile(self._path, f"metadata key {key!r} has the unknown value type {value_type}")

    def _skip_strings(self, count: int) -> None:
        # The one hot loop of the header: a vocabulary and its merges are a hundred thousand strings.
        data, end, unpack = self._data, self.end, struct.Struct("<Q").unpack_from
        try:
            for _ in range(count):
                end += 8 + unpack(data, end)[0]
        except (struct.error, OverflowError):
            end = len(data) + 1  # a length led out of the file; beyond 2^63 it is not even an offset
        self._advance(end - self.end)

    def _walk_tensor(self) -> None:
        name = self._take_name()
        (n_dims,) = self._take("I")
        if n_dims > MAX_DIMENSIONS:
            raise MalformedFile(self._path, f"tensor {name!r} has {n_dims} dimensions; {MAX_DIMENSIONS} is the most")
        dims = self._take("Q" * n_dims)
        type_number, offset = self._take("IQ")
        self.tensors.append((name, tuple(reversed(dims)), type_number, offset))
