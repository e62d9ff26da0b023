"""`embedding`, with the rescaling of long rows that the operator leaves to its caller."""

from __future__ import annotations

from typing import Any

import rushlight
from rushlight import Tensor
from rushlight._surface import nn_function

__all__ = ["embedding"]

_operator = nn_function("embedding")


def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Rows of `weight` (rows, size) named by the integers `input` (*); gives (*, size).

    The row `padding_idx` gets no gradient. With `max_norm`, rows that are looked up and longer than that (in the norm
    `norm_type`) are first shortened in place. An index out of range raises `IndexError`.

    Example: `F.embedding(torch.tensor([[1, 2], [4, 3]]), torch.randn(10, 3)).shape  # (2, 2, 3)`
    """
    if max_norm is not None:
        _shorten(weight.detach(), input, max_norm, norm_type)
    return _operator(input, weight, padding_idx, None, norm_type, scale_grad_by_freq, sparse)


def _shorten(weight: Any, indices: Any, max_norm: float, norm_type: float) -> None:
    named = sorted(set(indices.reshape(-1).tolist()))
    if not named:
        return
    places = rushlight.tensor(named, dtype=rushlight.int64)
    with rushlight.no_grad():
        rows = weight.index_select(0, places)
        lengths = rows.norm(norm_type, dim=1, keepdim=True)
        shortened = rows * (max_norm / (lengths + 1e-7))
        weight.index_copy_(0, places, rushlight.where(lengths > max_norm, shortened, rows))
