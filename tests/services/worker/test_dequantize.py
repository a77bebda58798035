from __future__ import annotations

import gguf
import numpy as np
import pytest
import torch

from services.worker import dequantize
from services.worker.dequantize import UnknownFormat, dequantize_into

VALUES = np.random.default_rng(0).standard_normal((40, 256)).astype(np.float32)
FORMATS = ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"]


def packed(storage: str) -> tuple[memoryview, np.ndarray]:
    """Bytes, and what the gguf library reads from them."""
    kind = gguf.GGMLQuantizationType[storage]
    data = gguf.quants.quantize(VALUES, kind)
    return memoryview(bytearray(data.tobytes())), gguf.quants.dequantize(data, kind).reshape(VALUES.shape)


@pytest.mark.parametrize("storage", FORMATS)
def test_each_format_gives_exactly_what_the_gguf_library_gives(storage: str) -> None:
    data, expected = packed(storage)
    out = torch.full(VALUES.shape, float("nan"))
    dequantize_into(out, storage, data)
    assert np.array_equal(out.numpy(), expected)


def test_chunks_meet_without_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dequantize, "_CHUNK_BLOCKS", 7)
    data, expected = packed("Q4_1")
    out = torch.full(VALUES.shape, float("nan"))
    dequantize_into(out, "Q4_1", data)
    assert np.array_equal(out.numpy(), expected)


@pytest.mark.parametrize("storage", ["F32", "Q8_0", "Q5_0"])
def test_a_transposed_destination_is_filled_in_row_order(storage: str) -> None:
    data, expected = packed(storage)
    out = torch.zeros(256, 40).t()
    dequantize_into(out, storage, data)
    assert np.array_equal(out.numpy(), expected)


def test_bfloat16_is_rounded_from_float32() -> None:
    data, expected = packed("Q4_1")
    out = torch.empty(VALUES.shape, dtype=torch.bfloat16)
    dequantize_into(out, "Q4_1", data)
    assert torch.equal(out, torch.from_numpy(expected).bfloat16())


@pytest.mark.parametrize("storage", ["I8", "F64", "NONSENSE"])
def test_a_format_that_nobody_can_read_is_named(storage: str) -> None:
    with pytest.raises(UnknownFormat, match=storage):
        dequantize_into(torch.empty(4), storage, memoryview(bytearray(32)))
