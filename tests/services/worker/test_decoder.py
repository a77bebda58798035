"""The decoder over its paged cache against a naive forward pass."""

from __future__ import annotations

from pathlib import Path

import gguf
import pytest
import torch

from services.worker.decoder import Decoder
from services.worker.flat_step import FlatStep, Row
from services.worker.kv_cache import KVCache
from services.worker.loading import load_model

from .tiny_models import Tensors, Tiny, naive_logits, write_folder, write_gguf

FAMILIES = {
    "llama": Tiny(),
    "tied": Tiny(tied=True),
    "multi_head": Tiny(kv_heads=4),
    "multi_query": Tiny(kv_heads=1),
    "wide_heads": Tiny(head_dim=32, theta=500.0),
    "biases": Tiny(attention_bias=True, mlp_bias=True),
    "mistral": Tiny(architecture="MistralForCausalLM", extra={"sliding_window": None}),
    "qwen2": Tiny(architecture="Qwen2ForCausalLM", tied=True, extra={"use_sliding_window": False}),
}
TOKENS = [5, 0, 96, 17, 17, 3, 44, 80, 1, 2, 60]


def cache_for(decoder: Decoder, num_blocks: int = 32) -> KVCache:
    return KVCache.allocate(decoder.config, num_blocks, 4, decoder.dtype, decoder.device)


def run(decoder: Decoder, cache: KVCache, *rows: Row) -> torch.Tensor:
    return decoder.forward(FlatStep.of(rows, cache), cache)


@pytest.mark.parametrize("name", FAMILIES)
def test_each_family_computes_the_naive_logits(tmp_path: Path, name: str) -> None:
    tiny = FAMILIES[name]
    tensors = write_folder(tmp_path, tiny)
    decoder = load_model(tmp_path, "float32", "cpu")
    cache = cache_for(decoder)
    expected = naive_logits(tiny, tensors, TOKENS)
    for length in (1, 2, len(TOKENS)):
        logits = run(decoder, cache, Row(TOKENS[:length], 0, [7, 3, 9], True))
        torch.testing.assert_close(logits[0], expected[length - 1], atol=1e-4, rtol=1e-4)


def test_a_gguf_file_computes_the_naive_logits(tmp_path: Path, tiny: Tiny, tiny_tensors: Tensors) -> None:
    path = tmp_path / "m.gguf"
    seen = write_gguf(path, tiny, tiny_tensors, gguf.GGMLQuantizationType.Q4_1)
    decoder = load_model(path, "float32", "cpu")
    logits = run(decoder, cache_for(decoder), Row(TOKENS, 0, [0, 1, 2], True))
    torch.testing.assert_close(logits[0], naive_logits(tiny, seen, TOKENS)[-1], atol=1e-4, rtol=1e-4)


def test_prefill_chunks_and_decode_rows_mix_in_one_step(tiny_folder: Path, tiny: Tiny, tiny_tensors: Tensors) -> None:
    decoder = load_model(tiny_folder, "float32", "cpu")
    cache = cache_for(decoder)
    expected = naive_logits(tiny, tiny_tensors, TOKENS)
    first, second, third = [3, 1, 8], [20, 4, 11], [30, 2, 5]
    run(decoder, cache, Row(TOKENS[:4], 0, first, False), Row(TOKENS[:9], 0, second, False))
    logits = run(
        decoder, cache,
        Row(TOKENS[4:9], 4, first, True),  # a later chunk
        Row(TOKENS[9:10], 9, second, True),  # a decode row
        Row(TOKENS[:3], 0, third, False),  # a first chunk that is not sampled
        Row(TOKENS[:1], 0, [12], True),  # a prompt of one token
    )  # fmt: skip
    torch.testing.assert_close(logits, expected[[8, 9, 0]], atol=1e-4, rtol=1e-4)
    logits = run(decoder, cache, Row(TOKENS[3:11], 3, third, True), Row(TOKENS[10:], 10, second, True))
    torch.testing.assert_close(logits, expected[[10, 10]], atol=1e-4, rtol=1e-4)


def test_decode_rows_of_very_different_lengths_do_not_see_each_others_padding(
    tiny_folder: Path, tiny: Tiny, tiny_tensors: Tensors
) -> None:
    decoder = load_model(tiny_folder, "float32", "cpu")
    cache = cache_for(decoder, 64)
    lengths = [60, 1, 11, 33, 2, 59]
    tokens = [(i * 37 + 11) % 97 for i in range(61)]
    tables, begin = [], 0
    for length in lengths:
        count = -(-(length + 1) // 4)
        tables.append(list(range(begin, begin + count)))
        begin += count
    run(decoder, cache, *(Row(tokens[:n], 0, table, False) for n, table in zip(lengths, tables, strict=True)))
    step = [Row(tokens[n : n + 1], n, table, True) for n, table in zip(lengths, tables, strict=True)]
    expected = naive_logits(tiny, tiny_tensors, tokens)[lengths]
    torch.testing.assert_close(run(decoder, cache, *step), expected, atol=1e-4, rtol=1e-4)


def test_sequences_may_share_the_blocks_of_a_prefix(tiny_folder: Path, tiny: Tiny, tiny_tensors: Tensors) -> None:
    decoder = load_model(tiny_folder, "float32", "cpu")
    cache = cache_for(decoder)
    other = [*TOKENS[:8], 33, 34]
    run(decoder, cache, Row(TOKENS, 0, [0, 1, 2], False))
    logits = run(decoder, cache, Row(other[8:], 8, [0, 1, 9], True), Row(TOKENS[10:], 10, [0, 1, 2], True))
    expected = torch.stack([naive_logits(tiny, tiny_tensors, other)[-1], naive_logits(tiny, tiny_tensors, TOKENS)[-1]])
    torch.testing.assert_close(logits, expected, atol=1e-4, rtol=1e-4)


def test_bfloat16_comes_near_float32(tiny_folder: Path, tiny: Tiny, tiny_tensors: Tensors) -> None:
    decoder = load_model(tiny_folder, "bfloat16", "cpu")
    logits = run(decoder, cache_for(decoder), Row(TOKENS, 0, [0, 1, 2], True))
    expected = naive_logits(tiny, tiny_tensors, TOKENS)[-1]
    assert logits.dtype == torch.float32
    assert torch.nn.functional.cosine_similarity(logits[0], expected, dim=0) > 0.99


def test_a_step_that_samples_nothing_gives_no_logits(tiny_folder: Path) -> None:
    decoder = load_model(tiny_folder, "float32", "cpu")
    assert run(decoder, cache_for(decoder), Row(TOKENS, 0, [0, 1, 2], False)).shape == (0, 97)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU that torch can use")
def test_a_gpu_computes_what_the_cpu_does(tiny_folder: Path, tiny: Tiny, tiny_tensors: Tensors) -> None:
    decoder = load_model(tiny_folder, "float32", "cuda")
    cache = cache_for(decoder)
    run(decoder, cache, Row(TOKENS[:5], 0, [4, 1], False))
    logits = run(decoder, cache, Row(TOKENS[5:], 5, [4, 1, 3], True), Row(TOKENS[:1], 0, [9], True))
    expected = naive_logits(tiny, tiny_tensors, TOKENS)[[10, 0]]
    torch.testing.assert_close(logits.cpu(), expected, atol=1e-3, rtol=1e-3)
