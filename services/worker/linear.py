"""The matrix product that all of a decoder's projections are."""

from __future__ import annotations

import torch
import torch.nn.functional as F


def linear(x_TI: torch.Tensor, weight_OI: torch.Tensor, bias_O: torch.Tensor | None = None) -> torch.Tensor:
    """x weight^T + bias: [T, O]; of several rows on a CPU in float32, its memory is that of [O, T].

    Measured on 2 cores (AVX2, torch 2.13), all projections of SmolLM2-135M in ms, at 1, 2, 4, 8, 16, 32, 128 rows:
    F.linear 52, 101, 110, 198, 228, 304, 703; weight x^T 54, 60, 63, 96, 125, 184, 521. The product whose left side is
    the large matrix goes over it once, and the small one stays in the cache. But x has to be contiguous by rows: where
    x^T is, 2 rows take 196 and 8 rows 195.
    """
    if x_TI.shape[0] == 1 or x_TI.device.type != "cpu" or x_TI.dtype != torch.float32:
        return F.linear(x_TI, weight_OI, bias_O)
    product_OT = torch.mm(weight_OI, x_TI.contiguous().t())
    if bias_O is not None:
        product_OT += bias_O[:, None]
    return product_OT.t()
