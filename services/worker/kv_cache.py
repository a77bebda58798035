"""The KV cache: one tensor of blocks, each of which holds some tokens' keys and values of all layers.

Paged as in vLLM (Kwon et al. 2023), but with the layers within a block, so that a block moves in one piece.

Shape suffixes: B blocks, L layers, K key and value heads, P tokens of a block, E head; T tokens of a step.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from .decoder_config import DecoderConfig


def block_bytes(config: DecoderConfig, block_size: int, itemsize: int) -> int:
    """Bytes of one block of `block_size` tokens."""
    return config.num_layers * 2 * config.kv_size * block_size * itemsize


class KVCache:
    """Blocks of keys and values: data [B, L, 2, K, P, E]."""

    def __init__(self, data: torch.Tensor) -> None:
        """data: contiguous [B, L, 2, K, P, E], finite (zeros)."""
        self.data = data
        self.num_blocks, self.num_layers, _, self.num_kv_heads, self.block_size, self.head_dim = data.shape
        self._pages = data.view(-1, self.block_size * self.head_dim)
        """[B L 2 K, P E]: one head's keys, or values, of one block and layer."""
        self.pages_per_layer = 2 * self.num_kv_heads
        self.pages_per_block = self.num_layers * self.pages_per_layer

    @classmethod
    def allocate(
        cls, config: DecoderConfig, num_blocks: int, block_size: int, dtype: torch.dtype, device: torch.device
    ) -> KVCache:
        """Zeros. On a CPU they cost address space only, and memory page by page as blocks are first written."""
        shape = (num_blocks, config.num_layers, 2, config.num_kv_heads, block_size, config.head_dim)
        if device.type != "cpu":
            return cls(torch.zeros(shape, dtype=dtype, device=device))
        # numpy's zeros are calloc's, which leaves the pages untouched; torch's are written.
        size = num_blocks * block_bytes(config, block_size, dtype.itemsize)
        return cls(torch.from_numpy(np.zeros(size, dtype=np.uint8)).view(dtype).view(shape))

    def clear(self, blocks: Sequence[int]) -> None:
        """Zero blocks that enter a sequence empty: what an earlier holder left, a NaN say, must reach no other."""
        for block in blocks:
            self.data[block].zero_()

    def write(
        self, layer: int, block_T: torch.Tensor, offset_T: torch.Tensor, k_TKE: torch.Tensor, v_TKE: torch.Tensor
    ) -> None:
        """Store one layer's keys and values of tokens, each at its block and its offset within it."""
        self.data[:, layer, 0][block_T, :, offset_T] = k_TKE
        self.data[:, layer, 1][block_T, :, offset_T] = v_TKE

    def page_index(self, tables_SN: torch.Tensor) -> torch.Tensor:
        """Where block tables lie, for `gather`: [2, S, K, N] flat, the same for every layer."""
        heads = torch.arange(self.pages_per_layer, device=tables_SN.device).view(2, 1, self.num_kv_heads, 1)
        return (tables_SN[None, :, None, :] * self.pages_per_block + heads).flatten()

    def gather(self, layer: int, page_index: torch.Tensor, num_seqs: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Copies of one layer's keys and values of block tables: each [S, K, N P, E]."""
        pages = self._pages[layer * self.pages_per_layer :].index_select(0, page_index)
        k, v = pages.view(2, num_seqs, self.num_kv_heads, -1, self.head_dim)
        return k, v
