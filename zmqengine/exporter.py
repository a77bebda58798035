"""What can be sent as a buffer: reads memory, element type and shape off bytes, numpy arrays, torch tensors, and
whatever else has the buffer protocol or DLPack. numpy and torch are looked at, never imported: who gives an object of
theirs has imported them."""

from __future__ import annotations

import sys
from typing import Any

from .dtypes import DType, dtype_named, dtype_of_format
from .errors import UsageError

Read = tuple[memoryview, DType, tuple[int, ...]]
"""Bytes of one dimension in C order, element type, shape. The view holds what it was read from."""


def read(data: Any) -> Read:
    """Read an object, without a copy where its elements lie in C order. Raises UsageError that says why it cannot be
    sent."""
    try:
        torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
        if torch is not None and isinstance(data, torch.Tensor):
            return _read_tensor(data, torch)
        if numpy is not None and isinstance(data, numpy.ndarray):
            return _read_array(data, numpy)
        try:
            view = memoryview(data)
        except TypeError:
            if hasattr(data, "__dlpack__"):
                from . import dlpack  # ctypes: 3 ms of a start

                return dlpack.read(data)
            raise ValueError("it has neither the buffer protocol nor DLPack") from None
        return _read_memory(view)
    except ValueError as error:
        raise UsageError(f"Buffer({type(data).__name__}): {error}") from None


def _read_memory(view: memoryview) -> Read:
    dtype = dtype_of_format(view.format, view.itemsize)
    shape = view.shape
    if not view.nbytes:
        return memoryview(b""), dtype, shape
    if not view.c_contiguous:
        view = memoryview(view.tobytes())
    return view.cast("B"), dtype, shape


def _read_array(array: Any, numpy: Any) -> Read:
    if array.dtype.hasobject:
        raise ValueError("dtype 'object' cannot be sent: its elements are addresses in this process")
    if array.dtype.byteorder not in "=|" and not array.dtype.isnative:
        raise ValueError(f"big-endian elements (dtype {array.dtype.str!r}) cannot be sent: convert them, as "
                         f"a.astype({array.dtype.name!r})")  # fmt: skip
    dtype = dtype_named(array.dtype.name)
    shape = tuple(array.shape)
    if not array.size:
        return memoryview(b""), dtype, shape
    if not array.flags.c_contiguous:
        array = array.copy(order="C")
    # As plain bytes: numpy exports no element types by the buffer protocol that ml_dtypes has taught it.
    return memoryview(array.view(numpy.ndarray).reshape(-1).view(numpy.uint8)), dtype, shape


def _read_tensor(tensor: Any, torch: Any) -> Read:
    if tensor.device.type != "cpu":
        raise ValueError(f"a tensor on {tensor.device} cannot be sent: copy it to the host, as t.cpu()")
    if tensor.layout != torch.strided:
        raise ValueError(f"a tensor of layout {tensor.layout} cannot be sent: make it dense, as t.to_dense()")
    dtype = dtype_named(str(tensor.dtype).removeprefix("torch."))
    shape = tuple(tensor.shape)
    if not tensor.numel():
        return memoryview(b""), dtype, shape
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    return memoryview(plain.view(torch.uint8).numpy()), dtype, shape
