"""Random tensors; a seed in the node gives the same numbers in every run, without one the default generator counts."""

from __future__ import annotations

from typing import Any

import rushlight as torch
from rushlight.onnx.importing.table import operator
from rushlight.onnx.importing.values import dtype_of

__all__: list[str] = []


def _generator(seed: float | None) -> Any:
    return None if seed is None else torch.Generator().manual_seed(int(seed))


def _kind(dtype: int | None, x: Any) -> Any:
    return dtype_of(dtype) if dtype is not None else x.dtype if x.is_floating_point() else torch.float32


@operator("RandomNormal")
def random_normal(
    *, shape: list[int], dtype: int = 1, mean: float = 0.0, scale: float = 1.0, seed: float | None = None
) -> Any:
    return torch.randn(shape, generator=_generator(seed), dtype=dtype_of(dtype)) * scale + mean


@operator("RandomUniform")
def random_uniform(
    *, shape: list[int], dtype: int = 1, high: float = 1.0, low: float = 0.0, seed: float | None = None
) -> Any:
    return torch.rand(shape, generator=_generator(seed), dtype=dtype_of(dtype)) * (high - low) + low


@operator("RandomNormalLike")
def random_normal_like(
    x: Any, *, dtype: int | None = None, mean: float = 0.0, scale: float = 1.0, seed: float | None = None
) -> Any:
    return torch.randn(x.shape, generator=_generator(seed), dtype=_kind(dtype, x)) * scale + mean


@operator("RandomUniformLike")
def random_uniform_like(
    x: Any, *, dtype: int | None = None, high: float = 1.0, low: float = 0.0, seed: float | None = None
) -> Any:
    return torch.rand(x.shape, generator=_generator(seed), dtype=_kind(dtype, x)) * (high - low) + low


@operator("Bernoulli", since=15)
def bernoulli(x: Any, *, dtype: int | None = None, seed: float | None = None) -> Any:
    drawn = torch.rand(x.shape, generator=_generator(seed), dtype=x.dtype) < x
    return drawn.to(x.dtype if dtype is None else dtype_of(dtype))


@operator("Multinomial", since=7)
def multinomial(x: Any, *, dtype: int = 6, sample_size: int = 1, seed: float | None = None) -> Any:
    """Draws of each row of unnormalised log probabilities, with replacement."""
    chances = torch.softmax(x.to(torch.float32), -1)
    return torch.multinomial(chances, sample_size, replacement=True, generator=_generator(seed)).to(dtype_of(dtype))
