"""The element types that a buffer may have: an allow-list, named as numpy and torch name them."""

from __future__ import annotations

import msgspec


class DType(msgspec.Struct, frozen=True):
    """One element type."""

    name: str
    """Also its name in torch, and in numpy where that has it."""
    itemsize: int
    """Bytes of one element."""
    in_numpy: bool = True
    """Whether numpy has it by itself; else the package ml_dtypes teaches it to numpy."""


_ALL = (
    DType("bool", 1), DType("uint8", 1), DType("uint16", 2), DType("uint32", 4), DType("uint64", 8), DType("int8", 1),
    DType("int16", 2), DType("int32", 4), DType("int64", 8), DType("float16", 2), DType("float32", 4),
    DType("float64", 8), DType("complex64", 8), DType("complex128", 16), DType("bfloat16", 2, in_numpy=False),
    DType("float8_e4m3fn", 1, in_numpy=False), DType("float8_e5m2", 1, in_numpy=False),
)  # fmt: skip
DTYPES = {dtype.name: dtype for dtype in _ALL}
"""By name."""

_BY_FORMAT = {
    "?": "bool", "c": "uint8", "B": "uint8", "b": "int8", "e": "float16", "f": "float32", "d": "float64",
    "Zf": "complex64", "Zd": "complex128",
}  # fmt: skip
_INTEGERS = {"h": "int", "H": "uint", "i": "int", "I": "uint", "l": "int", "L": "uint", "q": "int", "Q": "uint"}
"""Their size depends on the machine."""


def dtype_named(name: object) -> DType:
    """The element type of that name. Raises ValueError that lists those there are."""
    found = DTYPES.get(name) if isinstance(name, str) else None
    if found is None:
        raise ValueError(f"dtype {str(name)[:80]!r} is not one of {', '.join(DTYPES)}")
    return found


def dtype_of_format(text: str, itemsize: int) -> DType:
    """The element type of a format of the buffer protocol (`struct`'s letters). Raises ValueError for big-endian ones,
    Python objects, text and records."""
    letters = text.lstrip("@=<>!")
    if text[:1] in (">", "!") and itemsize > 1:
        raise ValueError(f"big-endian elements (format {text!r}) cannot be sent: convert them, as a.astype('<f4')")
    if letters == "O":
        raise ValueError("dtype 'object' cannot be sent: its elements are addresses in this process")
    name = f"{_INTEGERS[letters]}{itemsize * 8}" if letters in _INTEGERS else _BY_FORMAT.get(letters)
    if name is None:
        raise ValueError(f"elements of format {text[:80]!r} cannot be sent; those of {', '.join(DTYPES)} can")
    return DTYPES[name]
