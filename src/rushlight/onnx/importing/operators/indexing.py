"""Operators that read or write elements by index: gather, scatter, top-k, unique, non-zero, accumulate."""

from __future__ import annotations

import math
from typing import Any

import rushlight as torch
from rushlight.onnx.importing.operators.shapes import as_list
from rushlight.onnx.importing.table import Numbers, Value, operator
from rushlight.onnx.importing.values import numpy, tensor

__all__: list[str] = []


def _wrapped(indices: Any, size: int) -> Any:
    """Indices from 0 to size - 1 as int64; negative ones count from the end, others are refused by the reader."""
    indices = indices.to(torch.int64)
    return torch.where(indices < 0, indices + size, indices)


@operator("Gather", moves=True)
def gather(x: Value, indices: Any, *, axis: int = 0) -> Value:
    x = tensor(x)
    if isinstance(x, numpy.ndarray):
        return numpy.take(x, indices.numpy(), axis)
    axis = axis + x.ndim if axis < 0 else axis
    if indices.ndim == 0:
        return x.select(axis, int(indices.item()))
    flat = _wrapped(indices, x.shape[axis]).reshape(-1)
    taken = torch.index_select(x, axis, flat)
    return taken.reshape(*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])


@operator("GatherElements", since=11, moves=True)
def gather_elements(x: Any, indices: Any, *, axis: int = 0) -> Any:
    return torch.gather(x, axis, _wrapped(indices, x.shape[axis]))


@operator("GatherND", since=11, moves=True)
def gather_nd(x: Any, indices: Any, *, batch_dims: int = 0) -> Any:
    depth, lead = indices.shape[-1], indices.shape[:-1]
    parts = [_wrapped(indices[..., i], x.shape[batch_dims + i]) for i in range(depth)]
    batch = [
        torch.arange(x.shape[i]).reshape([-1 if j == i else 1 for j in range(len(lead))]) for i in range(batch_dims)
    ]
    return x[tuple(batch + parts)] if batch or parts else x.expand(*lead, *x.shape)


@operator("ScatterElements", since=11)
@operator("Scatter", since=9)
def scatter_elements(x: Any, indices: Any, updates: Any, *, axis: int = 0, reduction: str = "none") -> Any:
    indices = _wrapped(indices, x.shape[axis])
    if reduction in ("none", ""):
        return torch.scatter(x, axis, indices, updates)
    kinds = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}
    return torch.scatter_reduce(x, axis, indices, updates, kinds[reduction])


@operator("ScatterND", since=11)
def scatter_nd(x: Any, indices: Any, updates: Any, *, reduction: str = "none") -> Any:
    depth = indices.shape[-1]
    sizes = x.shape[:depth]
    flat = torch.zeros(indices.shape[:-1], dtype=torch.int64)
    for i, size in enumerate(sizes):
        part = _wrapped(indices[..., i], size)
        if part.numel() and bool(((part < 0) | (part >= size)).any()):
            raise IndexError(f"an index of dim {i} is outside its size {size}")
        flat = flat * size + part
    rows = x.reshape(math.prod(sizes), -1)
    index = flat.reshape(-1, 1).expand(-1, rows.shape[1])
    changed = scatter_elements(rows, index, updates.reshape(index.shape), axis=0, reduction=reduction)
    return changed.reshape(x.shape)


@operator("TensorScatter", since=24)
def tensor_scatter(cache: Any, update: Any, starts: Any = None, *, axis: int = -2, mode: str = "linear") -> Any:
    """Write `update` into a cache along `axis`, for each item of the batch from its start; circular ones wrap round."""
    axis, size, count = axis % cache.ndim, cache.shape[axis % cache.ndim], update.shape[axis % cache.ndim]
    batch = cache.shape[0]
    starts = torch.zeros(batch, dtype=torch.int64) if starts is None else starts.to(torch.int64)
    places = starts.reshape(-1, 1) + torch.arange(count)
    if mode == "circular":
        places = places % size
    sizes = [1] * cache.ndim
    sizes[0], sizes[axis] = places.shape[0], count
    return torch.scatter(cache, axis, places.reshape(sizes).expand(update.shape), update)


@operator("Compress", since=9)
def compress(x: Any, condition: Any, *, axis: int | None = None) -> Any:
    if axis is None:
        x, axis = x.reshape(-1), 0
    chosen = torch.nonzero(condition.reshape(-1)[: x.shape[axis]]).reshape(-1)
    return torch.index_select(x, axis, chosen)


@operator("NonZero", since=9)
def non_zero(x: Any) -> Any:
    return torch.nonzero(x.reshape(1) if x.ndim == 0 else x).T.contiguous()


@operator("TopK")
def top_k_by_attribute(x: Any, *, k: int, axis: int = -1) -> Any:
    return top_k(x, k, axis=axis)


@operator("TopK", since=10)
def top_k(x: Any, k: Numbers, *, axis: int = -1, largest: int = 1, sorted: int = 1) -> Any:
    """The k largest or smallest; among equals the lower index comes first."""
    values, indices = torch.sort(x, dim=axis, descending=bool(largest), stable=True)
    count = as_list(k)[0]
    return values.narrow(axis, 0, count), indices.narrow(axis, 0, count)


@operator("Unique", since=11)
def unique(x: Any, *, axis: int | None = None, sorted: int = 1) -> Any:
    """Distinct elements, where each first stands, which one each is, and how many there are."""
    values, inverse, counts = torch.unique(x, sorted=True, return_inverse=True, return_counts=True, dim=axis)
    inverse = inverse.reshape(-1)
    places = torch.arange(inverse.numel())
    count = counts.numel()
    first = torch.full((count,), inverse.numel(), dtype=torch.int64)
    first = torch.scatter_reduce(first, 0, inverse, places, "amin")
    if not sorted:
        order = torch.argsort(first)
        back = torch.scatter(torch.zeros_like(order), 0, order, torch.arange(count))
        values = torch.index_select(values, 0 if axis is None else axis, order)
        first, counts, inverse = first[order], counts[order], back[inverse]
    return values, first, inverse, counts


def _accumulated(function: Any, first: float, x: Any, axis: Any, exclusive: int, reverse: int) -> Any:
    axis = int(as_list(axis)[0])
    if reverse:
        x = torch.flip(x, [axis])
    y = function(x, axis).to(x.dtype)
    if exclusive:
        start = torch.full_like(y.narrow(axis, 0, 1), first)
        y = torch.cat([start, y.narrow(axis, 0, y.shape[axis] - 1)], axis)
    return torch.flip(y, [axis]) if reverse else y


@operator("CumSum", since=11)
def cumulative_sum(x: Any, axis: Numbers, *, exclusive: int = 0, reverse: int = 0) -> Any:
    return _accumulated(torch.cumsum, 0, x, axis, exclusive, reverse)


@operator("CumProd", since=26)
def cumulative_product(x: Any, axis: Numbers, *, exclusive: int = 0, reverse: int = 0) -> Any:
    return _accumulated(torch.cumprod, 1, x, axis, exclusive, reverse)
