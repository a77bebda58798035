"""Buffers: arrays that travel beside a message rather than within it, and arrive as a view without a copy.

A field, an argument or an answer is annotated with `Buffer`, by itself, in a list or a map, as ``Buffer | None``, or
as a field of a message that is a member of a union (msgspec has no unions of a class like this with plain types).
"""

from __future__ import annotations

import math
import sys
from typing import Any

from . import exporter
from .dtypes import DType, dtype_named
from .errors import UsageError


class Buffer:
    """Elements of one type in C order, with a shape.

    ``Buffer(data)`` is one to be sent: of bytes, a numpy array, a torch tensor on the CPU, or any object with the buffer
    protocol or DLPack. What is not contiguous is copied once. All else is not copied, so it must not be changed until
    the call has its answer; an answer's or an item's, until it has arrived: pass ``copy=True`` for data that goes on
    changing. Raises UsageError for big-endian elements, Python objects, other devices, and types that are not allowed.

    One that has arrived is this side's own: it may be written, which nobody else sees. Its memory is given back when
    it and all that was taken from it are collected; `close` lets go of it earlier.
    """

    __slots__ = ("__weakref__", "_dtype", "_view", "shape")

    def __init__(self, data: Any, *, copy: bool = False) -> None:
        if isinstance(data, Buffer):
            view, dtype, shape = data.memoryview(), data._dtype, data.shape
        else:
            view, dtype, shape = exporter.read(data)
        self._view: memoryview | None = memoryview(bytearray(view)) if copy else view
        self._dtype = dtype
        self.shape: tuple[int, ...] = shape
        """Elements along each dimension; () for a single one."""

    @classmethod
    def of_memory(cls, view: memoryview, dtype: str, shape: tuple[int, ...]) -> Buffer:
        """A buffer of bytes that are known to be such elements in C order, without a copy. Raises ValueError where
        dtype is not allowed, or the size is not that of the shape."""
        found = dtype_named(dtype)
        if any(size < 0 for size in shape) or math.prod(shape) * found.itemsize != view.nbytes:
            raise ValueError(f"{view.nbytes} bytes are not those of shape {list(shape)} of {dtype}")
        made = cls.__new__(cls)
        made._view, made._dtype, made.shape = view, found, shape
        return made

    @property
    def dtype(self) -> str:
        """Name of the element type, as numpy and torch call it: ``"float32"``."""
        return self._dtype.name

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self._dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return math.prod(self.shape) * self._dtype.itemsize

    def memoryview(self) -> memoryview:
        """The bytes, of one dimension. Raises UsageError once it is closed."""
        if self._view is None:
            raise UsageError(f"{self!r} is closed: its memory was given back")
        return self._view

    def __buffer__(self, flags: int) -> memoryview:
        """``memoryview(buffer)``, from Python 3.12 on."""
        return self.memoryview()

    def __bytes__(self) -> bytes:
        return bytes(self.memoryview())

    def numpy(self) -> Any:
        """A numpy array of this memory. Raises UsageError for types that numpy has not (see `DType.in_numpy`)."""
        import numpy

        name, view = self._dtype.name, self.memoryview()
        if self._dtype.in_numpy:
            dtype = numpy.dtype(name)
        elif (taught := getattr(sys.modules.get("ml_dtypes"), name, None)) is not None:
            dtype = numpy.dtype(taught)
        else:
            raise UsageError(f"numpy has no {name}: take torch() or memoryview(), or import ml_dtypes first")
        if not view.nbytes:
            return numpy.empty(self.shape, dtype)
        return numpy.frombuffer(view, dtype).reshape(self.shape)

    def torch(self) -> Any:
        """A torch tensor of this memory, on the CPU; of a copy where the memory is read-only, which torch cannot keep
        from being written."""
        import torch

        dtype, view = getattr(torch, self._dtype.name), self.memoryview()
        if not view.nbytes:
            return torch.empty(self.shape, dtype=dtype)
        if view.readonly:
            view = memoryview(bytearray(view))
        return torch.frombuffer(view, dtype=dtype).reshape(self.shape)

    def close(self) -> None:
        """Let go of the memory. Arrays that were taken from it stay as they are, and keep it until they end."""
        self._view = None

    def __enter__(self) -> Buffer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Buffer(dtype={self._dtype.name}, shape={list(self.shape)})"
