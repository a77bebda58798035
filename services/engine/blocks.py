"""Who has which block of the KV cache. Every block is free, or owned exactly once."""

from __future__ import annotations

from collections.abc import Sequence


class BlockFault(ValueError):
    """A block was freed twice, or is none of the pool's: a fault of the caller. Nothing was changed."""


class BlockPool:
    """Blocks 0 to num_blocks - 1. The one that was freed last is given first: its memory is the warmest."""

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self._free = list(range(num_blocks - 1, -1, -1))
        self._owned = [False] * num_blocks

    @property
    def num_free(self) -> int:
        return len(self._free)

    def can_allocate(self, count: int) -> bool:
        """Whether so many are free."""
        return count <= len(self._free)

    def allocate(self, count: int) -> list[int]:
        """Take blocks. Raises BlockFault if there are too few: ask `can_allocate` before."""
        if not 0 <= count <= len(self._free):
            raise BlockFault(f"{count} blocks were asked for, but {len(self._free)} of {self.num_blocks} are free")
        blocks = [self._free.pop() for _ in range(count)]
        for block in blocks:
            self._owned[block] = True
        return blocks

    def free(self, blocks: Sequence[int]) -> None:
        """Give blocks back. Raises BlockFault for one that is not owned, or is named twice."""
        for block in blocks:
            if not 0 <= block < self.num_blocks or not self._owned[block]:
                raise BlockFault(f"block {block} is freed, but nobody owns it")
        if len(set(blocks)) != len(blocks):
            raise BlockFault(f"a block is freed twice in one: {sorted(blocks)}")
        for block in reversed(blocks):
            self._owned[block] = False
            self._free.append(block)
