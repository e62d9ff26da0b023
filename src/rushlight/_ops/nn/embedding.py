"""Rows of a weight by index, reductions of such rows, and one-hot vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight._ops.bodies import lowest, narrow, pad_dim, take_slice, wide
from rushlight._ops.index_arguments import from_zero
from rushlight._ops.table import operator
from rushlight._prims import build, prim
from rushlight._types.dtype import INT32, INT64
from rushlight._types.symbols import as_double

__all__: list[str] = []


@operator("embedding(Tensor input, Tensor weight, int? padding_idx=None, float? max_norm=None, float norm_type=2.0, "
          "bool scale_grad_by_freq=False, bool sparse=False) -> Tensor", spaces=("nn.functional",), method=False)  # fmt: skip
def embedding(
    x: Any,
    weight: Any,
    padding_idx: int | None,
    max_norm: float | None,
    norm_type: float,
    scale_grad_by_freq: bool,
    sparse: bool,
) -> Any:
    """out[..., :] = weight[input[...], :]: rows of `weight`.  The row `padding_idx` gets no gradient."""
    _padding_row(weight, padding_idx)
    if len(weight.shape) != 2:
        raise RuntimeError("'weight' must be 2-D")
    if max_norm is not None:
        raise NotImplementedError(
            "embedding(max_norm=...) renormalises the weight in place: it is done before this operator"
        )
    if sparse:
        raise NotImplementedError("embedding(sparse=True): sparse gradients")
    if x.dtype not in (INT32, INT64):
        raise RuntimeError(
            f"Expected tensor for argument #1 'indices' to have one of the following scalar types: Long, Int; but got torch.{x.dtype.scalar}Tensor instead "
            "(while checking arguments for embedding)"
        )
    return prim.index(weight, from_zero(x))


def _padding_row(weight: Any, padding_idx: int | None) -> int | None:
    if padding_idx is None:
        return None
    rows = weight.shape[0]
    if not -rows <= padding_idx < rows:
        raise AssertionError("Padding_idx must be within num_embeddings")
    return padding_idx + rows if padding_idx < 0 else padding_idx


@embedding.gradient
def _(
    ct: Any,
    out: Any,
    x: Any,
    weight: Any,
    padding_idx: int | None,
    max_norm: float | None,
    norm_type: float,
    scale_grad_by_freq: bool,
    sparse: bool,
) -> Any:
    indices = build.convert(x, INT64)
    grad = wide(ct)
    row = _padding_row(weight, padding_idx)
    if scale_grad_by_freq:
        ones = build.full(indices.shape, 1.0, grad.dtype)
        counts = prim.index_put(build.full((weight.shape[0],), 0, grad.dtype), ones, indices, accumulate=True)
        grad = grad / _over_rows(prim.index(counts, indices), grad.shape)
    if row is not None:
        grad = build.select(_over_rows(build.eq(indices, row), grad.shape), 0, grad)
    zeros = build.full(weight.shape, 0, grad.dtype)
    return None, narrow(prim.index_put(zeros, grad, indices, accumulate=True), weight.dtype)


def _over_rows(values: Any, shape: Sequence[int]) -> Any:
    return prim.broadcast(values, shape=tuple(shape), dims=tuple(range(len(shape) - 1)))


@operator("embedding_bag_core(Tensor input, Tensor weight, Tensor? starts, Tensor? ends, Tensor? per_sample_weights, int width, int padding_idx, "
          "str mode) -> Tensor", spaces=(), method=False, node="EmbeddingBagBackward0", tags=("sized",))  # fmt: skip
def embedding_bag_core(
    x: Any, weight: Any, starts: Any, ends: Any, per_sample_weights: Any, width: int, padding_idx: int, mode: str
) -> Any:
    """out[b, :] = sum, mean or max over j of weight[input[b, j], :], without those of the row `padding_idx` (-1: with
    all).

    With `starts` bag b is input[starts[b] : ends[b]], of at most `width` elements; without `ends` it ends where the
    next one starts.
    """
    indices, counted, scales = build.convert(x, INT64), None, per_sample_weights
    if starts is not None:
        shape = (starts.shape[0], width)
        if ends is None:
            ends = pad_dim(take_slice(starts, 0, 1, starts.shape[0]), 0, 0, 1, x.shape[0])
        first, after = (prim.broadcast(build.convert(v, INT64), shape=shape, dims=(0,)) for v in (starts, ends))
        at = first + prim.iota(shape=shape, dim=1, dtype=INT64)
        counted = at < after
        at = build.select(counted, at, 0)
        indices = prim.index(indices, at)
        scales = None if scales is None else prim.index(scales, at)
    if padding_idx >= 0:
        real = build.ne(indices, padding_idx)
        counted = real if counted is None else counted & real
    rows = wide(prim.index(weight, from_zero(indices)))
    if scales is not None:
        rows = rows * _over_rows(wide(scales), rows.shape)
    return narrow(_bags(rows, counted, mode), weight.dtype)


def _bags(rows: Any, counted: Any, mode: str) -> Any:
    """Rows (bags, slots, columns) reduced over the counted slots (None: all); an empty bag gives zeros."""
    if counted is not None:
        rows = build.select(_over_rows(counted, rows.shape), rows, lowest(rows.dtype) if mode == "max" else 0.0)
    if mode == "max":  # the gradient goes to the first of equal elements
        best = prim.argmax(rows, dim=1)
        best_rows = prim.gather(rows, build.reshape(best, (rows.shape[0], 1, rows.shape[2])), dim=1)
        best_rows = build.reshape(best_rows, (rows.shape[0], rows.shape[2]))
        if counted is None:
            return best_rows
        some = prim.amax(counted, dims=(1,))
        return build.select(prim.broadcast(some, shape=best_rows.shape, dims=(0,)), best_rows, 0.0)
    total = prim.sum(rows, dims=(1,))
    if mode == "sum":
        return total
    if counted is None:
        return total / as_double(rows.shape[1])
    count = prim.sum(build.convert(counted, rows.dtype), dims=(1,))
    return total / prim.broadcast(prim.maximum(count, build.full_like(count, 1.0)), shape=total.shape, dims=(0,))


@operator("one_hot_core(Tensor input, int num_classes) -> Tensor", spaces=(), method=False, tags=("sized",))
def one_hot_core(x: Any, num_classes: int) -> Any:
    """1 at the class that each element names, 0 elsewhere, along a new last dim (see `one_hot`)."""
    shape = (*x.shape, num_classes)
    classes = prim.broadcast(build.convert(x, INT64), shape=shape, dims=tuple(range(len(x.shape))))
    return build.convert(prim.eq(classes, prim.iota(shape=shape, dim=len(x.shape), dtype=INT64)), INT64)
