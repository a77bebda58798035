"""Reads an array that a library exports by DLPack (``__dlpack__``), without that library or numpy.

The structures are those of dlpack.h, version 0.x: what ``__dlpack__()`` gives to a consumer that asks for no other.
"""

from __future__ import annotations

import ctypes
import math
from typing import Any, ClassVar, NamedTuple

from .dtypes import DTYPES, DType

_CPU = (1, 3, 11)
"""Device types whose memory this process can read: kDLCPU, kDLCUDAHost, kDLROCMHost."""
_BY_CODE = {
    (0, 8): "int8", (0, 16): "int16", (0, 32): "int32", (0, 64): "int64", (1, 8): "uint8", (1, 16): "uint16",
    (1, 32): "uint32", (1, 64): "uint64", (2, 16): "float16", (2, 32): "float32", (2, 64): "float64",
    (4, 16): "bfloat16", (5, 64): "complex64", (5, 128): "complex128", (6, 8): "bool", (10, 8): "float8_e4m3fn",
    (12, 8): "float8_e5m2",
}  # fmt: skip
"""DLDataTypeCode and bits."""


class _Tensor(ctypes.Structure):
    _fields_: ClassVar = [
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]  # fmt: skip


_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)


class Exported(NamedTuple):
    """An array as its library exports it. The view holds the array."""

    view: memoryview
    """Its bytes, of one dimension, in C order."""
    dtype: DType
    shape: tuple[int, ...]


def read(array: Any) -> Exported:
    """Read an array of a library with ``__dlpack__``. Raises ValueError for memory that is not the host's, for strides
    other than those of C order, and for other element types."""
    device_type, device_id = array.__dlpack_device__()
    if device_type not in _CPU:
        raise ValueError(f"an array on device {int(device_type)}:{int(device_id)} cannot be sent: copy it to the host")
    # The capsule keeps the array, and gives it back when it is collected: nobody renames it to "used_dltensor".
    capsule = array.__dlpack__()
    tensor = _Tensor.from_address(_pointer_of(capsule, b"dltensor"))
    name = _BY_CODE.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
    if name is None:
        raise ValueError(f"a DLPack element type of code {tensor.code} and {tensor.bits} bits cannot be sent")
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    if tensor.strides and not _is_contiguous(shape, tuple(tensor.strides[i] for i in range(tensor.ndim))):
        raise ValueError("a DLPack array whose strides are not those of C order cannot be sent: copy it first")
    dtype = DTYPES[name]
    nbytes = math.prod(shape) * dtype.itemsize
    if not nbytes:
        return Exported(memoryview(b""), dtype, shape)
    held = _holder(nbytes).from_address(tensor.data + tensor.byte_offset)
    held.capsule = capsule
    return Exported(memoryview(held).cast("B"), dtype, shape)


def _holder(nbytes: int) -> Any:
    """A type of so many bytes whose objects can be given an attribute, unlike those of ctypes' own."""
    return type("Held", (ctypes.c_ubyte * nbytes,), {})


def _is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether elements follow one another in C order; strides: in elements."""
    expected = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size == 0:
            return True
        if size > 1 and stride != expected:
            return False
        expected *= size
    return True
