from __future__ import annotations

from pathlib import Path

import torch

from services.worker.kv_cache import KVCache, block_bytes
from services.worker.loading import load_model


def test_what_is_written_at_a_block_and_offset_is_gathered_by_block_table() -> None:
    cache = KVCache(torch.zeros(6, 2, 2, 3, 4, 8))
    k, v = torch.randn(5, 3, 8), torch.randn(5, 3, 8)
    table = [4, 1]
    cache.write(1, torch.tensor([4, 4, 4, 4, 1]), torch.tensor([0, 1, 2, 3, 0]), k, v)
    gathered_k, gathered_v = cache.gather(1, cache.page_index(torch.tensor([table, [0, 4]])), 2)
    assert gathered_k.shape == (2, 3, 8, 8)
    assert torch.equal(gathered_k[0, :, :5], k.transpose(0, 1))
    assert torch.equal(gathered_v[0, :, :5], v.transpose(0, 1))
    assert torch.equal(gathered_v[1, :, 4:], v[:4].transpose(0, 1))
    assert not gathered_k[1, :, :4].any()
    assert not cache.gather(0, cache.page_index(torch.tensor([table])), 1)[0].any()


def test_clearing_touches_the_named_blocks_alone() -> None:
    cache = KVCache(torch.ones(4, 1, 2, 1, 2, 2))
    cache.clear([2, 0])
    assert [bool(block.any()) for block in cache.data] == [False, True, False, True]


def test_an_allocated_cache_is_zero_and_as_large_as_it_says(tiny_folder: Path) -> None:
    decoder = load_model(tiny_folder, "float32", "cpu")
    for dtype in (torch.float32, torch.bfloat16):
        cache = KVCache.allocate(decoder.config, 5, 4, dtype, decoder.device)
        assert cache.data.shape == (5, 2, 2, 2, 4, 16)
        assert cache.data.dtype == dtype
        assert cache.data.nbytes == 5 * block_bytes(decoder.config, 4, dtype.itemsize)
        assert not cache.data.any()
