"""Sorting, the first elements in order, the element of one rank, and binary search."""

from __future__ import annotations

from typing import Any

from rushlight._ops.bodies import (
    common,
    dims_of,
    finish,
    flat,
    like_input,
    lowest,
    narrow,
    not_implemented,
    refuse,
    wide,
)
from rushlight._ops.index_arguments import lines_of
from rushlight._ops.reductions.reduce import shared_evenly
from rushlight._ops.table import operator
from rushlight._prims import build, prim
from rushlight._types.dtype import INT32, INT64
from rushlight._types.layout import numel

__all__: list[str] = []


def _sorted(x: Any, dim: int, descending: bool, stable: bool) -> tuple[Any, Any]:
    refuse(x, "sort", "c")
    lines, dim = lines_of(x, dim)
    values, indices = prim.sort(wide(lines), dim=dim, descending=descending, stable=stable)
    return narrow(build.reshape(values, x.shape), x.dtype), build.reshape(indices, x.shape)


@operator(
    "sort(Tensor input, int dim=-1, bool descending=False, bool? stable=False) -> (Tensor values, Tensor indices)",
    node=lambda input, dim, descending, stable: f"SortBackward{int(stable is not False)}",
    out="exact",
    like=like_input,
)
def sort(x: Any, dim: int, descending: bool, stable: bool) -> Any:
    """values[i] <= values[i + 1] and values[i] = input[indices[i]] along dim (>= with `descending`); NaN counts as
    greatest."""
    return _sorted(x, dim, descending, stable)


@operator("argsort(Tensor input, int dim=-1, bool descending=False, bool stable=False) -> Tensor", like="operands")
def argsort(x: Any, dim: int, descending: bool, stable: bool) -> Any:
    """indices with input[indices[i]] <= input[indices[i + 1]] along dim: the source of each sorted value."""
    return _sorted(x, dim, descending, stable)[1]


@operator("msort(Tensor input) -> Tensor", out="exact", node="SortBackward0", like="operands")
def msort(x: Any) -> Any:
    """out[i] <= out[i + 1]: values in order along the first dim."""
    return _sorted(x, 0, False, True)[0]


@operator(
    "topk(Tensor input, int k, int dim=-1, bool largest=True, bool sorted=True) -> (Tensor values, Tensor indices)",
    out="exact",
    tags=("sized",),
)
def topk(x: Any, k: int, dim: int, largest: bool, sorted: bool) -> Any:
    """values[0] >= ... >= values[k - 1], values[i] = input[indices[i]]: the k greatest (or least) along dim, and their
    indices."""
    refuse(x, "topk", "c")
    lines, dim = lines_of(x, dim)
    if not 0 <= k <= lines.shape[dim]:
        raise RuntimeError(
            f"selected index k out of range: topk() of {lines.shape[dim]} elements along dim {dim}, but k is {k}"
        )
    values, indices = prim.topk(wide(lines), k=k, dim=dim, largest=largest, sorted=sorted)
    shape = values.shape if x.shape else (() if k else (0,))
    return narrow(build.reshape(values, shape), x.dtype), build.reshape(indices, shape)


def _kth(lines: Any, rank: int, wrapped_dim: int, ties: str) -> tuple[Any, Any]:
    """The value of a rank (from 0) along a dim, and its index."""
    values, indices = prim.kth(wide(lines), rank=rank, dim=wrapped_dim, ties=ties)
    return narrow(values, lines.dtype), indices


def _one_each(x: Any, dim: int, keepdim: bool, results: tuple[Any, Any]) -> tuple[Any, ...]:
    """A result with one element of each line, in the shape of a reduction."""
    lines, wrapped_dim = lines_of(x, dim)
    shape = lines.shape if x.shape else ()
    each = [build.squeeze(v, (wrapped_dim,)) for v in results]
    return tuple(finish(build.reshape(v, v.shape if x.shape else ()), shape, dims_of(x, dim), keepdim) for v in each)


@operator(
    "kthvalue(Tensor input, int k, int dim=-1, bool keepdim=False) -> (Tensor values, Tensor indices)",
    out="exact",
    tags=("apart", "sized"),
)
def kthvalue(x: Any, k: int, dim: int, keepdim: bool) -> Any:
    """The k-th least value along dim, and its index."""
    refuse(x, "kthvalue_cpu", "bc")
    lines, wrapped_dim = lines_of(x, dim)
    if not lines.shape[wrapped_dim]:
        raise IndexError(f"kthvalue(): Expected reduction dim {wrapped_dim} to have non-zero size.")
    if not 1 <= k <= lines.shape[wrapped_dim]:
        raise RuntimeError("kthvalue(): selected number k out of range for dimension " + str(wrapped_dim))
    return _one_each(x, dim, keepdim, _kth(lines, k - 1, wrapped_dim, "hoare"))


@operator("median(Tensor input, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)", name="median_dim", spaces=(), method=False,
          out="exact", node="MedianBackward1")  # fmt: skip
def median_dim(x: Any, dim: int, keepdim: bool) -> Any:
    """sorted(input)[(n - 1) // 2] along a dim of size n (the lower of two middles), and its index; NaN if there is one."""
    refuse(x, "median", "bc")
    lines, wrapped_dim = lines_of(x, dim)
    if lines.shape[wrapped_dim] == 0:
        raise IndexError(f"median(): Expected reduction dim {wrapped_dim} to have non-zero size.")
    values, indices = _kth(lines, (lines.shape[wrapped_dim] - 1) // 2, wrapped_dim, "order")
    if x.dtype.is_floating_point:
        missing = build.convert(prim.ne(wide(lines), wide(lines)), INT32)
        marks = prim.amax(missing, dims=(wrapped_dim,)) > 0, prim.argmax(missing, dim=wrapped_dim)
        any_nan, first_nan = (build.reshape(v, indices.shape) for v in marks)
        values = prim.select(any_nan, prim.gather(lines, first_nan, dim=wrapped_dim), values)
        indices = prim.select(any_nan, first_nan, indices)
    return _one_each(x, dim, keepdim, (values, indices))


@operator(
    "median(Tensor input) -> Tensor", name="median_all", spaces=(), method=False, out=True, node="MedianBackward0"
)
def median_all(x: Any) -> Any:
    """sorted(input)[(n - 1) // 2] of all n values (the lower of two middles); NaN for none, or if there is one."""
    refuse(x, "median", "bc")
    if numel(x.shape) == 0:
        return build.full((), float("nan") if x.dtype.is_floating_point else lowest(x.dtype), x.dtype)
    line = wide(flat(x))
    value = build.squeeze(prim.kth(line, rank=(numel(x.shape) - 1) // 2, dim=0, ties="order")[0], (0,))
    if x.dtype.is_floating_point:
        missing = prim.amax(build.convert(prim.ne(line, line), INT32), dims=(0,)) > 0
        value = build.select(missing, float("nan"), value)
    return narrow(value, x.dtype)


median_all.gradient(shared_evenly)


@operator(
    "nanmedian(Tensor input) -> Tensor",
    name="nanmedian_all",
    spaces=(),
    method=False,
    out=True,
    node="NanmedianBackward0",
)
def nanmedian_all(x: Any) -> Any:
    """sorted(input)[(n - 1) // 2] of the n values that are not NaN; NaN where there are none."""
    refuse(x, "median", "bc")
    if numel(x.shape) == 0 or not x.dtype.is_floating_point:
        return median_all.body(x)
    line = wide(flat(x))
    ordered, _ = prim.sort(line, dim=0, descending=False, stable=False)  # NaN comes last
    count = prim.sum(build.convert(prim.eq(line, line), INT64), dims=(0,))
    rank = build.reshape(build.select(count > 0, build.binary("div_trunc", count - 1, 2), 0), (1,))
    return narrow(build.squeeze(prim.gather(ordered, rank, dim=0), (0,)), x.dtype)


nanmedian_all.gradient(shared_evenly)


@operator("bucketize_core(Tensor input, Tensor boundaries, bool right) -> Tensor", spaces=(), method=False)
def bucketize_core(x: Any, boundaries: Any, right: bool) -> Any:
    """the number of i with boundaries[i] < x (<= x with `right`), for each element x: by bisection."""
    if len(boundaries.shape) != 1 and (len(boundaries.shape) != len(x.shape) or boundaries.shape[:-1] != x.shape[:-1]):
        raise RuntimeError(f"boundaries tensor must be 1 dimension, but got dim({len(boundaries.shape)})")
    x, boundaries = (wide(v) for v in common([x, boundaries]))
    if x.dtype.kind == "b":
        raise not_implemented("searchsorted_out_cpu", x.dtype)
    size = boundaries.shape[-1]
    low, left = build.full(x.shape, 0, INT64), size
    while left:  # the number is at least `low` and at most `low + left`; each half has as many left
        half = (left + 1) // 2
        middle = low + (half - 1)
        boundary = (
            prim.index(boundaries, middle)
            if len(boundaries.shape) == 1
            else prim.gather(boundaries, middle, dim=len(x.shape) - 1)
        )
        goes_up = ~(boundary > x if right else boundary >= x)  # NaN is greater than all numbers
        low, left = build.select(goes_up, low + half, low), left - half
    return low
