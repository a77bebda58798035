"""From the storage formats of GGUF to floats: bit for bit what `gguf.quants.dequantize` computes.

The embedded model takes 0.25 s on 2 cores (1.6 s with the library). Formats: ggml-common.h of ggml. A block of 32
weights is, in Q8_0, a float16 scale d and 32 int8 q, w = d q; in Q4_1, d, a float16 minimum m and 16 bytes, whose low
halves are the weights 0 to 15 and whose high halves are 16 to 31, w = d q + m; in Q4_0, d and 16 such bytes,
w = d (q - 8). Formats without code here are left to the `gguf` library, where it knows them.

Shape suffixes: N blocks, B bytes of a block, W weights of a block.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch

_CHUNK_BLOCKS = 16 * 1024
"""Blocks converted at a time: 2 MB of floats, so that the passes over a chunk meet it in the CPU's cache."""


class UnknownFormat(ValueError):
    """A storage format that cannot be read."""


def dequantize_into(out: torch.Tensor, storage: str, data: memoryview) -> None:
    """Fill `out` (any float dtype, any strides; CPU or not) with a tensor's weights, in row order.

    storage: F32, F16, BF16, Q8_0, ... data: the tensor's bytes. Raises UnknownFormat.
    """
    if storage in _PLAIN:
        out.copy_(torch.frombuffer(data, dtype=_PLAIN[storage]).view(out.shape))
        return
    fill = _BLOCKS.get(storage)
    if fill is None:
        out.copy_(torch.from_numpy(_dequantize_by_library(storage, data)).view(out.shape))
        return
    block_bytes, unpack = fill
    direct = out.is_contiguous() and out.dtype == torch.float32 and out.device.type == "cpu"
    weights = out if direct else torch.empty(out.shape, dtype=torch.float32)
    blocks_NB = torch.frombuffer(data, dtype=torch.uint8).view(-1, block_bytes)
    weights_NW = weights.view(-1, 32)
    for begin in range(0, len(blocks_NB), _CHUNK_BLOCKS):
        unpack(blocks_NB[begin : begin + _CHUNK_BLOCKS], weights_NW[begin : begin + _CHUNK_BLOCKS])
    if not direct:
        out.copy_(weights)


def _half_at(blocks_NB: torch.Tensor, byte: int) -> torch.Tensor:
    """The float16 at a byte of each block, as float32 [N, 1]."""
    return blocks_NB[:, byte : byte + 2].contiguous().view(torch.float16).float()


def _unpack_q8_0(blocks_NB: torch.Tensor, out_NW: torch.Tensor) -> None:
    out_NW.copy_(blocks_NB[:, 2:].view(torch.int8)).mul_(_half_at(blocks_NB, 0))


def _unpack_nibbles(packed_NB: torch.Tensor, out_NW: torch.Tensor) -> None:
    out_NW[:, :16].copy_(packed_NB & 15)
    out_NW[:, 16:].copy_(packed_NB >> 4)


def _unpack_q4_0(blocks_NB: torch.Tensor, out_NW: torch.Tensor) -> None:
    _unpack_nibbles(blocks_NB[:, 2:], out_NW)
    out_NW.sub_(8).mul_(_half_at(blocks_NB, 0))


def _unpack_q4_1(blocks_NB: torch.Tensor, out_NW: torch.Tensor) -> None:
    _unpack_nibbles(blocks_NB[:, 4:], out_NW)
    out_NW.mul_(_half_at(blocks_NB, 0)).add_(_half_at(blocks_NB, 2))


_PLAIN: Mapping[str, torch.dtype] = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
_BLOCKS: Mapping[str, tuple[int, Callable[[torch.Tensor, torch.Tensor], None]]] = {
    "Q8_0": (34, _unpack_q8_0), "Q4_0": (18, _unpack_q4_0), "Q4_1": (20, _unpack_q4_1),
}  # fmt: skip


def _dequantize_by_library(storage: str, data: memoryview) -> np.ndarray:
    # Imported here: the library costs 0.1 s, and most files do without it.
    from gguf import GGMLQuantizationType
    from gguf.quants import dequantize

    try:
        return dequantize(np.frombuffer(data, dtype=np.uint8), GGMLQuantizationType[storage])
    except (NotImplementedError, KeyError):
        raise UnknownFormat(storage) from None
