"""Measures of error between two tensors."""

from __future__ import annotations

from typing import Any

import rushlight as torch

__all__ = ["compute_cosine_similarity", "compute_normalized_l2_error", "compute_sqnr"]


def _floats(*tensors: Any) -> list[Any]:
    return [(t.dequantize() if t.is_quantized else t).float() for t in tensors]


def compute_sqnr(x: Any, y: Any) -> Any:
    """Signal to noise in dB: the power of `x` over that of the difference.

    >>> import rushlight as torch
    >>> compute_sqnr(torch.ones(4), torch.full((4,), 1.1)).round()
    tensor(20.)
    """
    x, y = _floats(x, y)
    return 20 * torch.log10(torch.norm(x) / torch.norm(x - y))


def compute_normalized_l2_error(x: Any, y: Any) -> Any:
    """The length of the difference over that of `x`."""
    x, y = _floats(x, y)
    return torch.sqrt(((x - y) ** 2).sum() / (x**2).sum())


def compute_cosine_similarity(x: Any, y: Any) -> Any:
    """The cosine of the angle between two tensors as vectors."""
    x, y = _floats(x, y)
    return torch.nn.functional.cosine_similarity(x.reshape(1, -1), y.reshape(1, -1))
