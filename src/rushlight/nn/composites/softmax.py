"""The softmax family with PyTorch's Python signature, where the dimension may be left out."""

from __future__ import annotations

import warnings
from typing import Any

import rushlight
from rushlight import Tensor

__all__ = ["log_softmax", "softmax", "softmin"]


def _dim(name: str, input: Any, dim: int | None, stacklevel: int) -> int:
    if dim is not None:
        return dim
    warnings.warn(
        f"Implicit dimension choice for {name} has been deprecated. Change the call to include dim=X as an argument.",
        stacklevel=stacklevel + 1,
    )
    return 0 if input.dim() in (0, 1, 3) else 1


def softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: rushlight.dtype | None = None) -> Tensor:
    """exp(x) / sum(exp(x)) along `dim`; with `dtype` the input is converted first.

    Example: `F.softmax(torch.randn(2, 3), dim=-1)`
    """
    return rushlight.softmax(input, _dim("softmax", input, dim, _stacklevel), dtype=dtype)


def log_softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: rushlight.dtype | None = None) -> Tensor:
    """log(softmax(x)) along `dim`, without overflow."""
    return rushlight.log_softmax(input, _dim("log_softmax", input, dim, _stacklevel), dtype=dtype)


def softmin(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: rushlight.dtype | None = None) -> Tensor:
    """softmax(-x) along `dim`."""
    return rushlight.softmax(-input, _dim("softmin", input, dim, _stacklevel), dtype=dtype)
