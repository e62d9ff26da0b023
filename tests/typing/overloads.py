"""Functions that PyTorch's users write in several forms."""

from __future__ import annotations

from typing import assert_type

import rushlight as torch
from rushlight import Tensor, return_types
from rushlight.nn import functional as F


def reductions(x: Tensor) -> None:
    assert_type(torch.max(x), Tensor)
    assert_type(torch.max(x, x), Tensor)
    assert_type(torch.max(x, 0), return_types.max)
    assert_type(x.max(dim=1, keepdim=True).indices, Tensor)
    values, places = x.min(0)
    assert_type(values + places, Tensor)
    assert_type(x.sum(), Tensor)
    assert_type(x.sum(0), Tensor)
    assert_type(x.sum(dim=(0, 1), keepdim=True, dtype=torch.float64), Tensor)
    assert_type(x.var(), Tensor)
    assert_type(torch.var(x, 0, unbiased=False), Tensor)
    assert_type(torch.std_mean(x, 0), tuple[Tensor, Tensor])
    assert_type(torch.median(x), Tensor)
    assert_type(torch.median(x, 0).values, Tensor)
    assert_type(torch.sort(x, descending=True).indices, Tensor)
    assert_type(torch.topk(x, 1), return_types.topk)
    assert_type(torch.any(x > 0), Tensor)


def several(x: Tensor) -> None:
    assert_type(torch.split(x, 1), tuple[Tensor, ...])
    assert_type(x.split([1, 1], dim=1), tuple[Tensor, ...])
    assert_type(x.chunk(2), tuple[Tensor, ...])
    assert_type(x.unbind(), tuple[Tensor, ...])
    assert_type(torch.unique(x), Tensor)
    found, counts = torch.unique(x, return_counts=True)
    assert_type(found + counts, Tensor)
    assert_type(torch.nonzero(x), Tensor)
    assert_type(torch.nonzero(x, as_tuple=True), tuple[Tensor, ...])
    assert_type(torch.where(x > 0), tuple[Tensor, ...])
    assert_type(torch.cat([x, x], dim=0), Tensor)
    assert_type(torch.stack((x, x)), Tensor)
    assert_type(torch.einsum("ij,jk->ik", x, x), Tensor)


def written_to_out(x: Tensor) -> None:
    out = torch.empty(2, 2)
    assert_type(torch.mul(x, 2, out=out), Tensor)
    assert_type(torch.exp(x, out=out), Tensor)
    torch.sort(x, out=(torch.empty(0), torch.empty(0, dtype=torch.int64)))


def pages(x: Tensor) -> None:
    assert_type(torch.linalg.norm(x), Tensor)
    assert_type(torch.special.erfcx(x), Tensor)
    assert_type(F.softmax(x, dim=-1), Tensor)
    assert_type(F.max_pool1d(x, 2), Tensor)
    pooled, places = F.max_pool1d(x, 2, return_indices=True)
    assert_type(pooled + places, Tensor)
    assert_type(F.scaled_dot_product_attention(x, x, x, is_causal=True), Tensor)
    assert_type(F.pad(x, (1, 1), value=0.5), Tensor)
    assert_type(torch.relu_(x), Tensor)


if __name__ == "__main__":
    matrix = torch.arange(4.0).reshape(2, 2)
    reductions(matrix)
    several(matrix)
    written_to_out(matrix)
    pages(matrix.clone())
