"""Writes at indices, masks and diagonals, made of simpler operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight._base.lazy import numpy as np
from rushlight._engine.core import convert
from rushlight._engine.core.creation import from_numpy
from rushlight._engine.core.tensor import Tensor
from rushlight._surface.composites.measures import into
from rushlight._surface.registry import SPACES, composite, function_of, reads_elements
from rushlight._types.dtype import BOOL, INT32, INT64
from rushlight._types.layout import broadcast_shapes, extent, numel, overlaps_itself, wrap_dim

__all__: list[str] = []

T = SPACES["torch"]


# ***** writing *****


@composite("masked_scatter", method=True, once=True)
@reads_elements
def masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """`input` with the first elements of source where the mask holds, in order."""
    if mask._spec.dtype is not BOOL:
        raise RuntimeError(f"masked_scatter_ only supports boolean masks, but got mask with dtype {mask.dtype}")
    if input._spec.dtype is not source._spec.dtype:
        raise RuntimeError(
            f"masked_scatter: expected self and source to have same dtypes but got {input.dtype} and {source.dtype}"
        )
    if not source._spec.numel:
        shape = broadcast_shapes(input._spec.shape, mask._spec.shape)
        if numel(shape) and mask.any():
            raise _too_few()
        return convert.clone(input.expand(shape))
    found, count = function_of("masked_scatter_core")(input, mask, source)
    if count._storage is not None and convert.item(count) > source._spec.numel:
        raise _too_few()
    return found


def _too_few() -> RuntimeError:
    return RuntimeError("Number of elements of source < number of ones in mask")


def _masked_scatter_(self: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """`masked_scatter` in place."""
    return self.copy_(masked_scatter(self, mask, source))


Tensor.masked_scatter_ = _masked_scatter_  # type: ignore[attr-defined]


def _fill_diagonal_(self: Tensor, fill_value: Any, wrap: bool = False) -> Tensor:
    """Write one number on the main diagonal, in place; with `wrap` a tall matrix's diagonal starts again below each block.

    RuntimeError for fewer than two dims, and for more than two of unequal sizes.
    """
    shape = self._spec.shape
    if len(shape) < 2:
        raise RuntimeError("dimensions must larger than 1")
    if len(shape) > 2 and len(set(shape)) > 1:
        raise RuntimeError("all dimensions of input must be of equal length")
    starts = range(0, shape[0], shape[1] + 1) if wrap and len(shape) == 2 else (0,)
    for start in starts:
        line: Any = self.narrow(0, start, shape[0] - start) if start else self
        while line.ndim > 1:
            line = line.diagonal(0, 0, -1)
        line.fill_(fill_value)
    return self


Tensor.fill_diagonal_ = _fill_diagonal_  # type: ignore[attr-defined]


@composite("index_reduce", method=True, refuses="bc", cached=True)
def index_reduce(
    input: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True, out: Any = None
) -> Tensor:
    """`input` reduced with source at the places listed along dim: "prod", "mean", "amax" or "amin"."""
    if reduce not in ("prod", "mean", "amax", "amin"):
        raise RuntimeError(f"index_reduce(): Expected reduce to be one of prod, mean, amax or amin but got {reduce}.")
    if index._spec.dtype not in (INT32, INT64):
        raise RuntimeError(f"index_reduce_(): Expected dtype int32/int64 for index but got: {index._spec.dtype.scalar}")
    if input._spec.dtype is not source._spec.dtype:
        raise RuntimeError(
            f"index_reduce_(): self ({input._spec.dtype.scalar}) and source ({source._spec.dtype.scalar}) must have the same scalar type"
        )
    if index._spec.ndim > 1:
        raise IndexError(
            f"index_reduce_(): Index is supposed to be a vector, but got dim: {index._spec.ndim} with type: {index._spec.dtype.scalar} "
            f"and size: {list(index.shape)}"
        )
    at = wrap_dim(dim, input._spec.ndim)
    if index._spec.numel != (source._spec.shape[at] if source._spec.ndim else 1):
        raise RuntimeError(
            f"index_reduce_(): Number of indices ({index._spec.numel}) should be equal to source.size(dim): "
            f"({source._spec.shape[at] if source._spec.ndim else 1}), for dim: {at}"
        )
    wanted = (*input._spec.shape[:at], index._spec.numel, *input._spec.shape[at + 1 :]) if input._spec.ndim else ()
    if tuple(source._spec.shape) != wanted:
        raise RuntimeError(
            f"index_reduce_(): source tensor shape must match self tensor shape, excluding the specified dimension. Got self.shape = "
            f"{list(input.shape)} source.shape = {list(source.shape)}"
        )
    shape = [1] * max(source._spec.ndim, 1)
    shape[at] = index._spec.numel
    places = index.to(INT64).reshape(shape).expand(source._spec.shape or (1,))
    whole = input if input._spec.ndim else input.reshape(1)
    source = source.reshape(places._spec.shape)
    found = function_of("scatter_reduce")(whole, at, places, source, reduce, include_self=include_self)
    found = found if input._spec.ndim else found.reshape(())
    return into(out, found, "index_reduce", exact=True)


def _index_reduce_(
    self: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """`index_reduce` in place."""
    reduced = index_reduce(convert.clone(self), dim, index, source, reduce, include_self=include_self)
    return self.copy_(reduced)


Tensor.index_reduce_ = _index_reduce_  # type: ignore[attr-defined]


@composite("as_strided_scatter", method=True)  # no plan is kept: where the input begins decides
def as_strided_scatter(
    input: Tensor, src: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Tensor:
    """`input` with src where `as_strided` with this size, stride and offset would look."""
    held = input._spec
    if overlaps_itself(held.shape, held.strides):  # then it means the memory of a copy
        found = input.clone()
        found.as_strided(size, stride, storage_offset).copy_(src)
        return found
    window = input.detach().as_strided(size, stride, storage_offset)
    shape, strides = window._spec.shape, window._spec.strides
    if tuple(shape) != tuple(src._spec.shape):
        raise RuntimeError(
            "expected src to have a size equal to the slice of self. "
            f"src size = {list(src._spec.shape)}, slice size = {list(shape)}"
        )
    start, span = window.storage_offset() - input.storage_offset(), extent(held.shape, held.strides)
    places, values = _memory_places(shape, strides) + start, src.to(input.dtype)
    if not held.contiguous or start < 0 or start + extent(shape, strides) > span:
        elements = np.full(span + 1, -1)  # the last stands for what lies outside
        elements[_memory_places(held.shape, held.strides)] = np.arange(held.numel)
        places = elements[np.where((places >= 0) & (places < span), places, span)]
        seen = np.flatnonzero(places >= 0)
        places, values = places[seen], values.reshape(-1)[from_numpy(seen).to(input.device)]
    return function_of("as_strided_scatter_core")(input, from_numpy(places).to(input.device), values)


def _memory_places(shape: Sequence[int], strides: Sequence[int]) -> Any:
    """Where in memory each element is, counted from the first, row-major: an array."""
    rows = np.ix_(*[np.arange(size) * stride for size, stride in zip(shape, strides, strict=True)])
    return np.broadcast_to(sum(rows, np.zeros((), np.int64)), tuple(shape)).reshape(-1)


# ***** order statistics *****


# ***** slopes of sampled functions *****


# ***** histograms, places of a known number *****


# ***** normalisation with its statistics *****
