"""One step's tokens laid flat, prefill chunks and decode rows together, and what attention needs to know of them.

Tokens are ordered by sequence: decode rows first, the longest context first, so that those of like length are
neighbours and are attended to in one call; then the prefill chunks.

Shape suffixes: T tokens of the step, S sequences, N blocks of a table, C tokens of a context.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import torch

from .attention import Group
from .kv_cache import KVCache

_PADDING_RATIO = 2
"""In a group of decode rows, the longest context is at most this many times the shortest (in blocks)."""
_SMALL_BLOCKS = 8
"""... unless it has no more blocks than this: a call costs more than so much padding."""
GROUP_TOKENS = 64 * 1024
"""Context tokens in a group at most, padding included: bounds the memory of the copy that attention reads."""


@dataclass(frozen=True, slots=True)
class Row:
    """What a step does for one sequence: compute tokens [start, start + len(token_ids))."""

    token_ids: Sequence[int]
    start: int
    blocks: Sequence[int]
    """Block table: at least as many as the tokens up to the last one computed need."""
    sample: bool

    @property
    def end(self) -> int:
        return self.start + len(self.token_ids)

    def table(self, block_size: int) -> Sequence[int]:
        """The blocks that are read."""
        return self.blocks[: -(-self.end // block_size)]


@dataclass(frozen=True, slots=True)
class FlatStep:
    """int64 tensors on the model's device."""

    token_ids_T: torch.Tensor
    positions_T: torch.Tensor
    block_T: torch.Tensor
    """Block that each token's keys and values go to."""
    offset_T: torch.Tensor
    """And its place in the block."""
    sample_index_S: torch.Tensor
    """Which of the T to sample behind, in the order of the rows that were given."""
    groups: list[Group]
    """Cover the T tokens in their order."""

    @classmethod
    def of(cls, rows: Sequence[Row], cache: KVCache) -> FlatStep:
        """Lay out rows, each with at least one token."""
        size = cache.block_size
        order = sorted(range(len(rows)), key=lambda i: (len(rows[i].token_ids) > 1, -rows[i].end))
        ordered = [rows[i] for i in order]
        ends = list(accumulate(len(row.token_ids) for row in ordered))
        last_of = {i: end - 1 for i, end in zip(order, ends, strict=True)}
        positions = np.concatenate([np.arange(row.start, row.end) for row in ordered])
        tables = [np.asarray(row.table(size), dtype=np.int64) for row in ordered]
        blocks = [table[np.arange(row.start, row.end) // size] for row, table in zip(ordered, tables, strict=True)]
        device = cache.data.device

        def tensor(values: object) -> torch.Tensor:
            return torch.as_tensor(values, dtype=torch.int64).to(device)

        return cls(
            token_ids_T=tensor([token for row in ordered for token in row.token_ids]),
            positions_T=tensor(positions), block_T=tensor(np.concatenate(blocks)), offset_T=tensor(positions % size),
            sample_index_S=tensor([last_of[i] for i, row in enumerate(rows) if row.sample]),
            groups=_groups(ordered, tables, cache),
        )  # fmt: skip


def _groups(rows: Sequence[Row], tables: Sequence[np.ndarray], cache: KVCache) -> list[Group]:
    groups: list[Group] = []
    decode = sum(len(row.token_ids) == 1 for row in rows)
    begin = 0
    while begin < decode:
        end = _group_end(tables, begin, decode, cache.block_size)
        groups.append(_decode_group(begin, rows[begin:end], tables[begin:end], cache))
        begin = end
    for row, table in zip(rows[decode:], tables[decode:], strict=True):
        groups.append(_prefill_group(begin, row, table, cache))
        begin += len(row.token_ids)
    return groups


def _group_end(tables: Sequence[np.ndarray], begin: int, limit: int, block_size: int) -> int:
    """How far a group of decode rows goes that begins with the longest context."""
    longest = len(tables[begin])
    most = max(1, GROUP_TOKENS // (longest * block_size))
    shortest = 0 if longest <= _SMALL_BLOCKS else longest / _PADDING_RATIO
    end = begin + 1
    while end < min(limit, begin + most) and len(tables[end]) >= shortest:
        end += 1
    return end


def _decode_group(begin: int, rows: Sequence[Row], tables: Sequence[np.ndarray], cache: KVCache) -> Group:
    """Sequences of one new token each, padded to the longest with the sequence's own first block, masked."""
    device, context = cache.data.device, rows[0].end
    longest = len(tables[0])
    padded_SN = np.stack([np.pad(t, (0, longest - len(t)), constant_values=t[0]) for t in tables])
    mask = None
    if any(row.end != context for row in rows):
        ends_S = torch.tensor([row.end for row in rows], device=device)
        hidden_SC = torch.arange(context, device=device) >= ends_S[:, None]
        mask = _additive(hidden_SC, cache.data.dtype)[:, None, None, :]
    index = cache.page_index(torch.from_numpy(padded_SN).to(device))
    return Group(begin, len(rows), 1, context, index, mask, causal=False)


def _prefill_group(begin: int, row: Row, table: np.ndarray, cache: KVCache) -> Group:
    """One sequence of several new tokens, each of which sees those before it."""
    device, count = cache.data.device, len(row.token_ids)
    mask = None
    if row.start:
        seen_T = torch.arange(row.start, row.end, device=device)
        hidden_TC = torch.arange(row.end, device=device) > seen_T[:, None]
        mask = _additive(hidden_TC, cache.data.dtype)[None, None]
    index = cache.page_index(torch.from_numpy(table)[None].to(device))
    return Group(begin, 1, count, row.end, index, mask, causal=not row.start)


def _additive(hidden: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return torch.zeros(hidden.shape, dtype=dtype, device=hidden.device).masked_fill_(hidden, float("-inf"))
