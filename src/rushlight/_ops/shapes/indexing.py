"""Reads at indices that are data, and writes by `x[tensors] = values`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight._ops.bodies import flat, is_weak, like_input, narrow, number_value, wide, wrap
from rushlight._ops.index_arguments import (
    adding,
    as_index,
    check_fits,
    check_ranks,
    from_zero,
    index_vector,
    inverse_perm,
    lines_of,
    to_front,
)
from rushlight._ops.table import operator
from rushlight._prims import build, prim
from rushlight._types.dtype import BOOL, INT32, INT64
from rushlight._types.layout import broadcast_shapes, numel

__all__: list[str] = []


# ***** x[tensors] *****


def _common_shape(indices: Sequence[Any]) -> list[Any]:
    try:
        shape = broadcast_shapes(*(i.shape for i in indices))
    except RuntimeError:
        raise IndexError(
            "shape mismatch: indexing tensors could not be broadcast together with shapes "
            + ", ".join(str(list(i.shape)) for i in indices)
        ) from None
    return [build.broadcast_to(as_index("index", i, "any"), shape) for i in indices]


def _index_position(dims: Sequence[int]) -> int:
    """The position of the indices' dims in the result: the first indexed dim if these are adjacent, else the front."""
    return dims[0] if list(dims) == list(range(dims[0], dims[0] + len(dims))) else 0


def _result_order(ndim: int, dims: Sequence[int], count: int) -> tuple[int, ...]:
    """The permutation from [*index dims, *other dims] to the result's order."""
    at = _index_position(dims)
    rest = list(range(count, count + ndim - len(dims)))
    return (*rest[:at], *range(count), *rest[at:])


def _check_room(x: Any, dims: Sequence[int], indices: Any) -> None:
    """IndexError if empty dims are indexed: kernels that read a whole dim at once do not check indices."""
    if numel(indices.shape) and any(not x.shape[d] for d in dims):
        raise IndexError("index is out of bounds for dimension with size 0")


@operator("index(Tensor input, int[] dims, Tensor[] indices) -> Tensor", spaces=(), method=False)
def index(x: Any, dims: Any, indices: Sequence[Any]) -> Any:
    """`x[..., i, ..., j, ...]`: the indices stand for the dims `dims` of x and broadcast with each other."""
    broadcast_indices = _common_shape(indices)
    _check_room(x, dims, broadcast_indices[0])
    moved, _ = to_front(x, dims)
    elements = prim.index(moved, *broadcast_indices)
    return build.transpose(elements, _result_order(len(x.shape), dims, len(broadcast_indices[0].shape)))


@operator("index_put_core(Tensor input, int[] dims, Tensor[] indices, Tensor values, bool accumulate) -> Tensor", spaces=(), method=False,
          inplace=True, numbers=("values",), node="IndexPutBackward0", name="index_put_core", tags=("alone",))  # fmt: skip
def index_put_core(x: Any, dims: Any, indices: Sequence[Any], values: Any, accumulate: bool) -> Any:
    """out[..., i, ...] = values (or += values with `accumulate`): `x` with values written where `index` reads."""
    broadcast_indices = _common_shape(indices)
    _check_room(x, dims, broadcast_indices[0])
    moved, perm = to_front(x, dims)
    count = len(broadcast_indices[0].shape)
    order = _result_order(len(x.shape), dims, count)
    target = (*broadcast_indices[0].shape, *moved.shape[len(dims) :])
    shape = tuple(target[d] for d in order)
    if is_weak(values):
        values = number_value(values, x.dtype)
    elif values.dtype is not x.dtype:
        if values.shape:
            raise RuntimeError(
                f"Index put requires the source and destination dtypes match, got {x.dtype.name} for the destination and {values.dtype.name} "
                "for the source."
            )
        values = build.convert(values, x.dtype)
    value_shape = list(values.shape)
    lead = len(value_shape) - len(shape)
    if lead > 0 and all(s == 1 for s in values.shape[:lead]):
        values = build.reshape(values, values.shape[lead:])
    try:
        values = build.broadcast_to(values, shape) if broadcast_shapes(values.shape, shape) == shape else None
    except RuntimeError:
        values = None
    if values is None:
        raise RuntimeError(
            f"shape mismatch: value tensor of shape {value_shape} cannot be broadcast to indexing result of shape {list(shape)}"
        )
    values = build.transpose(values, inverse_perm(order))
    if accumulate and x.dtype is BOOL:
        counted = prim.index_put(
            build.convert(moved, INT32), build.convert(values, INT32), *broadcast_indices, accumulate=True
        )
        written = build.convert(counted, BOOL)
    elif accumulate:
        written = adding(moved, lambda v: prim.index_put(v, wide(values), *broadcast_indices, accumulate=True))
    else:
        written = prim.index_put(moved, values, *broadcast_indices, accumulate=False)
    return build.transpose(written, inverse_perm(perm))


@index_put_core.gradient
def _(ct: Any, out: Any, x: Any, dims: Any, indices: Sequence[Any], values: Any, accumulate: bool) -> Any:
    nones = [None] * len(indices)
    broadcast_indices = _common_shape(indices)
    order = _result_order(len(x.shape), dims, len(broadcast_indices[0].shape))
    moved, perm = to_front(ct, dims)
    to_values = build.transpose(prim.index(moved, *broadcast_indices), order)
    if not is_weak(values):
        lead = max(len(values.shape) - len(to_values.shape), 0)
        to_values = build.reshape(build.sum_to(to_values, values.shape[lead:]), values.shape)
    if accumulate:
        return ct, *nones, to_values
    hole = build.full((*broadcast_indices[0].shape, *moved.shape[len(dims) :]), 0, ct.dtype)
    return (
        build.transpose(prim.index_put(moved, hole, *broadcast_indices, accumulate=False), inverse_perm(perm)),
        *nones,
        to_values,
    )


# ***** along one dim *****


@operator("index_select(Tensor input, int dim, Tensor index) -> Tensor", out="exact", tags=("apart",))
def index_select(x: Any, dim: int, index: Any) -> Any:
    """out[..., i, ...] = input[..., index[i], ...]: the indices listed along dim."""
    indices = from_zero(index_vector("index_select", index))
    lines, dim = lines_of(x, dim)
    moved, perm = to_front(lines, (dim,))
    return (
        build.reshape(build.transpose(prim.index(moved, indices), inverse_perm(perm)), x.shape)
        if not x.shape
        else build.transpose(prim.index(moved, indices), inverse_perm(perm))
    )


@operator(
    "gather(Tensor input, int dim, Tensor index, *, bool sparse_grad=False) -> Tensor", out="exact", tags=("apart",)
)
def gather(x: Any, dim: int, index: Any, *, sparse_grad: bool) -> Any:
    """out[i][j] = input[index[i][j]][j] for dim 0, and so on; the result has the shape of `index`."""
    shape = index.shape
    indices = from_zero(as_index("gather", index, "int32 int64")) if numel(shape) else build.full(shape, 0, INT64)
    lines, dim = lines_of(x, dim)
    if numel(shape) == 0:
        if len(shape) != len(x.shape):
            return build.full(shape, 0, x.dtype)
    else:
        check_ranks("gather", x, index)
        indices = indices if shape else build.reshape(indices, (1,))
        check_fits(lines, indices, dim)
        if not lines.shape[dim]:
            raise RuntimeError(f"index 0 is out of bounds for dimension {dim} with size 0")
    return build.reshape(prim.gather(lines, indices if indices.shape else build.reshape(indices, (1,)), dim=dim), shape)


# ***** in the flattened input *****


@operator("take(Tensor input, Tensor index) -> Tensor", out="exact", tags=("apart",))
def take(x: Any, index: Any) -> Any:
    """out[i] = input.flat[index[i]]: elements of the flattened input, in the shape of `index`."""
    if numel(x.shape) == 0 and numel(index.shape) != 0:
        raise IndexError("take(): tried to take from an empty tensor")
    return prim.index(flat(x), as_index("take", index))


@operator(
    "put(Tensor input, Tensor index, Tensor source, bool accumulate=False) -> Tensor",
    like=like_input,
    inplace=True,
    inplace_spaces=(),
    tags=("unordered", "alone"),
)
def put(x: Any, index: Any, source: Any, accumulate: bool) -> Any:
    """out.flat[index[i]] = source[i] (or += with `accumulate`): the input with elements at flat indices replaced."""
    if numel(index.shape) != numel(source.shape):
        raise IndexError(
            f"put_(): Expected source and index to have the same number of elements, but got source.numel() = {numel(source.shape)}, "
            f"index.numel() = {numel(index.shape)}"
        )
    if x.dtype is not source.dtype:
        raise RuntimeError(
            f"put_(): self and source expected to have the same dtype, but got self.dtype = {x.dtype.scalar} and source.dtype = {source.dtype.scalar}"
        )
    indices, values = flat(as_index("put_", index)), flat(source)
    if indices.shape[0] and not numel(x.shape):
        raise IndexError("put_(): Tried to put elements into an empty tensor")
    if accumulate and x.dtype is BOOL:
        written = build.convert(
            prim.index_put(build.convert(flat(x), INT32), build.convert(values, INT32), indices, accumulate=True), BOOL
        )
    elif accumulate:
        written = narrow(prim.index_put(wide(flat(x)), wide(values), indices, accumulate=True), x.dtype)
    else:
        written = prim.index_put(flat(x), values, indices, accumulate=False)
    return build.reshape(written, x.shape)


@operator(
    "take_along_dim(Tensor input, Tensor indices, int? dim=None) -> Tensor",
    out="exact",
    tags=("apart",),
    node="GatherBackward0",
)
def take_along_dim(x: Any, indices: Any, dim: int | None) -> Any:
    """out[i][j] = input[indices[i][j]][j] for dim 0, and so on: `gather` whose operands broadcast; without dim in the
    flattened input."""
    wrapped = as_index("torch.take_along_dim", indices)
    if dim is None:
        return prim.gather(flat(x), flat(wrapped), dim=0)
    if len(x.shape) != len(wrapped.shape):
        raise RuntimeError(
            f"torch.take_along_dim(): input and indices should have the same number of dimensions, but got {len(x.shape)} dimensions for input, "
            f"and {len(wrapped.shape)} dimensions for indices"
        )
    dim = wrap(dim, x)
    rest = [(*s[:dim], *s[dim + 1 :]) for s in (x.shape, wrapped.shape)]
    common = broadcast_shapes(*rest)
    wrapped = _around(wrapped, x.shape[dim])
    x, wrapped = (build.broadcast_to(v, (*common[:dim], v.shape[dim], *common[dim:])) for v in (x, wrapped))
    return prim.gather(x, wrapped, dim=dim)


def _around(indices: Any, size: int) -> Any:
    """Indices modulo the size of a dim: -1 is the last one, and `size` the first again."""
    if not size:
        return indices
    rest = prim.rem_trunc(indices, build.full_like(indices, size))
    return build.select(rest < 0, rest + size, rest)
