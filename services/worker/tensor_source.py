"""Where weights are read from: a GGUF file, or the safetensors files of a Hugging Face folder."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError, safe_open

from services.models.gguf_file import GgufFile
from services.models.load_error import (
    MalformedFile,
    MissingFile,
    MissingMetadata,
    TruncatedFile,
    UnknownTensorType,
)

from .dequantize import UnknownFormat, dequantize_into
from .hf_config import read_json

_FLOATS = {"F64", "F32", "F16", "BF16"}


class TensorSource(Protocol):
    """Named tensors, read one at a time."""

    path: str
    """For messages: the file or folder."""

    def names(self) -> Iterable[str]:
        """What there is."""

    def shape(self, name: str) -> tuple[int, ...]:
        """A tensor's shape."""

    def n_bytes(self, name: str) -> int:
        """Bytes that it takes in its file."""

    def read_into(self, name: str, out: torch.Tensor) -> None:
        """Fill `out` with a tensor's weights in row order. Raises UnknownTensorType."""


class GgufTensors:
    """The tensors of a GGUF file, dequantized as they are read."""

    def __init__(self, file: GgufFile) -> None:
        self.path = file.path
        self._file = file

    def names(self) -> Iterable[str]:
        return self._file.tensors.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        return self._file.tensors[name].shape

    def n_bytes(self, name: str) -> int:
        return self._file.tensors[name].n_bytes

    def read_into(self, name: str, out: torch.Tensor) -> None:
        tensor = self._file.tensors[name]
        try:
            dequantize_into(out, tensor.type, self._file.tensor_bytes(tensor))
        except UnknownFormat:
            raise UnknownTensorType(
                self.path, f"tensor {name!r} is stored as {tensor.type}, which cannot be read"
            ) from None


class SafetensorsFolder:
    """The tensors of a Hugging Face folder: one model.safetensors, or shards listed in an index."""

    def __init__(self, folder: Path) -> None:
        """Raises MissingFile, TruncatedFile, MalformedFile, UnknownTensorType, MissingMetadata."""
        self.path = os.fspath(folder)
        self._open_files = ExitStack()
        self._tensors: dict[str, Any] = {}
        self._headers: dict[str, dict[str, Any]] = {}
        for path in _weight_files(folder):
            headers = read_safetensors_header(path)
            try:
                handle = self._open_files.enter_context(safe_open(path, framework="pt"))
            except SafetensorError as error:
                raise MalformedFile(path, f"is no valid safetensors file: {error}") from error
            self._headers |= headers
            self._tensors |= dict.fromkeys(headers, handle)

    def close(self) -> None:
        """Unmap the files."""
        self._open_files.close()

    def names(self) -> Iterable[str]:
        return self._headers.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._headers[name]["shape"])

    def n_bytes(self, name: str) -> int:
        begin, end = self._headers[name]["data_offsets"]
        return int(end - begin)

    def read_into(self, name: str, out: torch.Tensor) -> None:
        storage = self._headers[name]["dtype"]
        if storage not in _FLOATS:
            raise UnknownTensorType(self.path, f"tensor {name!r} is stored as {storage}, which cannot be read")
        out.copy_(self._tensors[name].get_tensor(name).view(out.shape))


def read_safetensors_header(path: Path) -> dict[str, dict[str, Any]]:
    """Name to {dtype, shape, data_offsets}, checked against the file's size.

    The format: 8 bytes little-endian length, that many bytes of JSON, the tensors. The library checks it too, but says
    the same of a file that is cut off as of one that is something else. Raises MissingFile, TruncatedFile,
    MalformedFile.
    """
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            length = int.from_bytes(file.read(8), "little")
            header = file.read(length) if size >= 8 + length else b""
    except OSError as error:
        raise MissingFile(path, f"cannot be read: {error.strerror or error}") from error
    if size < 8 + length or size < 8:
        raise TruncatedFile(path, f"is truncated: it ends within its header, at byte {size}. Get the file again")
    try:
        tensors: dict[str, dict[str, Any]] = json.loads(header)
        tensors.pop("__metadata__", None)
        end = max((t["data_offsets"][1] for t in tensors.values()), default=0)
        for tensor in tensors.values():
            math.prod(tensor["shape"])
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise MalformedFile(path, f"is no safetensors file: its header cannot be understood ({error})") from error
    end += 8 + length
    if end > size:
        raise TruncatedFile(
            path, f"is truncated: its last tensor ends at byte {end}, but it has {size}. Get the file again"
        )
    return tensors


def weight_files(path: Path) -> list[Path]:
    """The files that hold a model's weights. Raises MissingFile, MissingMetadata."""
    return _weight_files(path) if path.is_dir() else [path]


def _weight_files(folder: Path) -> list[Path]:
    index = folder / "model.safetensors.index.json"
    if not index.exists():
        single = folder / "model.safetensors"
        if not single.exists():
            raise MissingFile(single, "there is no such file, nor a model.safetensors.index.json beside it")
        return [single]
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise MissingMetadata(index, "has no 'weight_map'")
    files = [folder / name for name in sorted(set(weight_map.values()))]
    if any(file.parent != folder for file in files):
        raise MalformedFile(index, "names weight files outside its own folder")
    return files
