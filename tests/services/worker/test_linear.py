from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from services.worker.linear import linear


@pytest.mark.parametrize("rows", [0, 1, 2, 7])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("biased", [False, True])
def test_the_product_is_that_of_torch_for_any_number_of_rows(rows: int, dtype: torch.dtype, biased: bool) -> None:
    x, weight = torch.randn(rows, 12).to(dtype), torch.randn(30, 12).to(dtype)
    bias = torch.randn(30).to(dtype) if biased else None
    torch.testing.assert_close(linear(x, weight, bias), F.linear(x, weight, bias))
    transposed = torch.empty(12, rows, dtype=dtype).t().copy_(x)
    torch.testing.assert_close(linear(transposed, weight, bias), F.linear(x, weight, bias))
