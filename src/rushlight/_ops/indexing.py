"""Reading and writing at places that are data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight._ops.bodies import (
    common,
    dims_of,
    finish,
    flat,
    highest,
    is_number,
    is_weak,
    lowest,
    narrow,
    number_value,
    reduce_dims,
    refuse,
    take_slice,
    wide,
    wrap,
)  # fmt: skip
from rushlight._ops.table import operator
from rushlight._prims import build, prim
from rushlight._types.dtype import BOOL, INT32, INT64
from rushlight._types.layout import BELOW_ALL, broadcast_shapes, numel
from rushlight._types.symbols import as_double

__all__: list[str] = []


def _as_index(name: str, index: Any, allowed: str = "int64") -> Any:
    """An index as int64; errors for other dtypes."""
    if index.dtype is INT64:
        return index
    if index.dtype is INT32 and "int32" in allowed:
        return build.convert(index, INT64)
    if allowed == "any" and index.dtype.kind in "iu":
        return build.convert(index, INT64)
    raise RuntimeError(f"{name}(): Expected dtype {' or '.join(allowed.split())} for index")


def _from_zero(index: Any) -> Any:
    """An index as int64 in which negatives do not count from the end: they are moved out of every range, and errors still tell what they were."""
    places = build.convert(index, INT64)
    return build.select(places < 0, places - BELOW_ALL, places)


def _inverse(perm: Sequence[int]) -> tuple[int, ...]:
    return tuple(sorted(range(len(perm)), key=perm.__getitem__))


def _front(x: Any, dims: Sequence[int]) -> tuple[Any, tuple[int, ...]]:
    """These dims moved to the front, and the permutation that did it."""
    perm = (*dims, *(d for d in range(len(x.shape)) if d not in dims))
    return build.transpose(x, perm), perm


def _adding(x: Any, function: Any) -> Any:
    """Sums are kept in float32 for half types: `function(wide x)` rounded."""
    return narrow(function(wide(x)), x.dtype)


# ***** x[tensors] *****


def _common_shape(indices: Sequence[Any]) -> list[Any]:
    try:
        shape = broadcast_shapes(*(i.shape for i in indices))
    except RuntimeError:
        raise IndexError(
            "shape mismatch: indexing tensors could not be broadcast together with shapes "
            + ", ".join(str(list(i.shape)) for i in indices)
        ) from None
    return [build.broadcast_to(_as_index("index", i, "any"), shape) for i in indices]


def _place(dims: Sequence[int]) -> int:
    """Where the dims of the indices stand in the result: at the first indexed dim if these are neighbours, else in front."""
    return dims[0] if list(dims) == list(range(dims[0], dims[0] + len(dims))) else 0


def _result_order(ndim: int, dims: Sequence[int], count: int) -> tuple[int, ...]:
    """The permutation that takes [*index dims, *other dims] to the result's order."""
    at = _place(dims)
    rest = list(range(count, count + ndim - len(dims)))
    return (*rest[:at], *range(count), *rest[at:])


@operator("index(Tensor input, int[] dims, Tensor[] indices) -> Tensor", spaces=(), method=False)
def index(x: Any, dims: Any, indices: Sequence[Any]) -> Any:
    """`x[..., i, ..., j, ...]`: the indices stand for the dims `dims` of x and broadcast with each other."""
    places = _common_shape(indices)
    moved, _ = _front(x, dims)
    found = prim.index(moved, *places)
    return build.transpose(found, _result_order(len(x.shape), dims, len(places[0].shape)))


@operator("index_put_core(Tensor input, int[] dims, Tensor[] indices, Tensor values, bool accumulate) -> Tensor", spaces=(), method=False,
          inplace=True, numbers=("values",), node="IndexPutBackward0", name="index_put_core", tags=("alone",))  # fmt: skip
def index_put_core(x: Any, dims: Any, indices: Sequence[Any], values: Any, accumulate: bool) -> Any:
    """out[..., i, ...] = values (or += values with `accumulate`): `x` with values written where `index` reads."""
    places = _common_shape(indices)
    moved, perm = _front(x, dims)
    count = len(places[0].shape)
    order = _result_order(len(x.shape), dims, count)
    target = (*places[0].shape, *moved.shape[len(dims) :])
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
    lead = len(values.shape) - len(shape)
    if lead > 0 and all(s == 1 for s in values.shape[:lead]):
        values = build.reshape(values, values.shape[lead:])
    try:
        values = build.broadcast_to(values, shape) if broadcast_shapes(values.shape, shape) == shape else None
    except RuntimeError:
        values = None
    if values is None:
        raise RuntimeError(
            f"shape mismatch: value tensor cannot be broadcast to indexing result of shape {list(shape)}"
        )
    values = build.transpose(values, _inverse(order))
    if accumulate and x.dtype is BOOL:
        counted = prim.index_put(build.convert(moved, INT32), build.convert(values, INT32), *places, accumulate=True)
        written = build.convert(counted, BOOL)
    elif accumulate:
        written = _adding(moved, lambda v: prim.index_put(v, wide(values), *places, accumulate=True))
    else:
        written = prim.index_put(moved, values, *places, accumulate=False)
    return build.transpose(written, _inverse(perm))


@index_put_core.gradient
def _(ct: Any, out: Any, x: Any, dims: Any, indices: Sequence[Any], values: Any, accumulate: bool) -> Any:
    nones = [None] * len(indices)
    places = _common_shape(indices)
    order = _result_order(len(x.shape), dims, len(places[0].shape))
    moved, perm = _front(ct, dims)
    to_values = build.transpose(prim.index(moved, *places), order)
    if not is_weak(values):
        lead = max(len(values.shape) - len(to_values.shape), 0)
        to_values = build.reshape(build.sum_to(to_values, values.shape[lead:]), values.shape)
    if accumulate:
        return ct, *nones, to_values
    hole = build.full((*places[0].shape, *moved.shape[len(dims) :]), 0, ct.dtype)
    return build.transpose(prim.index_put(moved, hole, *places, accumulate=False), _inverse(perm)), *nones, to_values


# ***** along one dim *****


def _vector(name: str, index: Any, allowed: str = "int32 int64") -> Any:
    if len(index.shape) > 1:
        raise IndexError(f"{name}(): Index is supposed to be a vector")
    return build.reshape(_as_index(name, index, allowed), (numel(index.shape),))


def _lines(x: Any, dim: int) -> tuple[Any, int]:
    """`x` with at least one dim, and the dim wrapped."""
    dim = wrap(dim, x)
    return (x if x.shape else build.reshape(x, (1,))), dim


@operator("index_select(Tensor input, int dim, Tensor index) -> Tensor", out="exact", tags=("apart",))
def index_select(x: Any, dim: int, index: Any) -> Any:
    """out[..., i, ...] = input[..., index[i], ...]: the places listed along dim."""
    places = _from_zero(_vector("index_select", index))
    lines, dim = _lines(x, dim)
    moved, perm = _front(lines, (dim,))
    return (
        build.reshape(build.transpose(prim.index(moved, places), _inverse(perm)), x.shape)
        if not x.shape
        else build.transpose(prim.index(moved, places), _inverse(perm))
    )


def _same_ranks(name: str, x: Any, index: Any, source: Any = None) -> None:
    if max(len(x.shape), 1) != max(len(index.shape), 1):
        raise RuntimeError(
            f"Index tensor must have the same number of dimensions as {'input' if source is None else 'self'} tensor"
        )
    if source is not None and max(len(source.shape), 1) != max(len(index.shape), 1):
        raise RuntimeError("Index tensor must have the same number of dimensions as src tensor")


def _fits(name: str, x: Any, index: Any, dim: int) -> None:
    for d, (n, size) in enumerate(zip(index.shape, x.shape, strict=True)):
        if d != dim and n > size:
            raise RuntimeError(
                f"Size does not match at dimension {d} expected index {list(index.shape)} to be no larger than self {list(x.shape)} apart from "
                f"dimension {dim}"
            )


@operator("gather(Tensor input, int dim, Tensor index, *, bool sparse_grad=False) -> Tensor", out="exact", tags=("apart",))
def gather(x: Any, dim: int, index: Any, *, sparse_grad: bool) -> Any:
    """out[i][j] = input[index[i][j]][j] for dim 0, and so on; the result has the shape of `index`."""
    shape = index.shape
    places = _from_zero(_as_index("gather", index, "int32 int64")) if numel(shape) else build.full(shape, 0, INT64)
    lines, dim = _lines(x, dim)
    if numel(shape) == 0:
        if len(shape) != len(x.shape):
            return build.full(shape, 0, x.dtype)
    else:
        _same_ranks("gather", x, index)
        places = places if shape else build.reshape(places, (1,))
        _fits("gather", lines, places, dim)
    return build.reshape(prim.gather(lines, places if places.shape else build.reshape(places, (1,)), dim=dim), shape)


_REDUCTIONS = {None: "set", "add": "add", "multiply": "mul"}


def _scatter_operands(name: str, x: Any, dim: int, index: Any, src: Any) -> tuple[Any, Any, Any, int]:
    """(x, index, source, dim), all with dims, the source cut to the index."""
    places = _from_zero(_as_index(name, index, "int32 int64"))
    lines, dim = _lines(x, dim)
    places = places if places.shape else build.reshape(places, (1,))
    if numel(index.shape) == 0:
        places = build.full((*lines.shape[:dim], 0, *lines.shape[dim + 1 :]), 0, INT64)
        return lines, places, build.full(places.shape, 0, x.dtype), dim
    _same_ranks(name, x, index, None if is_weak(src) else src)
    _fits(name, lines, places, dim)
    if is_weak(src):
        return lines, places, build.broadcast_to(number_value(src, x.dtype), places.shape), dim
    if src.dtype is not x.dtype:
        raise RuntimeError(f"{name}(): Expected self.dtype to be equal to src.dtype")
    source = src if src.shape else build.reshape(src, (1,))
    for d, n in enumerate(places.shape):
        if n > source.shape[d]:
            raise RuntimeError(
                f"Expected index {list(places.shape)} to be no larger than src {list(source.shape)} apart from dimension {dim} and to be no larger "
                f"size than src"
            )
        source = take_slice(source, d, 0, n)
    return lines, places, source, dim


def _scattered(x: Any, places: Any, source: Any, dim: int, reduce: str) -> Any:
    if reduce == "set":
        return prim.scatter(x, places, source, dim=dim, reduce="set")
    if x.dtype is BOOL:
        logic = {"add": "amax", "mul": "amin", "amax": "amax", "amin": "amin"}[reduce]
        whole = prim.scatter(build.convert(x, INT32), places, build.convert(source, INT32), dim=dim, reduce=logic)
        return build.convert(whole, BOOL)
    return narrow(prim.scatter(wide(x), places, wide(source), dim=dim, reduce=reduce), x.dtype)


@operator("scatter(Tensor input, int dim, Tensor index, Tensor? src=None, *, Scalar? value=None, str? reduce=None) -> Tensor", numbers=("src",),
          out="exact", inplace=True, inplace_spaces=(), tags=("alone",),
          node=lambda src, **_: f"ScatterBackward{int(not hasattr(src, 'shape'))}")  # fmt: skip
def scatter(x: Any, dim: int, index: Any, src: Any, *, value: Any, reduce: str | None) -> Any:
    """`input` with src[i][j] written to [index[i][j]][j] for dim 0, and so on; `reduce` adds or multiplies instead."""
    if reduce not in _REDUCTIONS:
        raise RuntimeError("reduce argument must be either add or multiply.")
    lines, places, source, dim = _scatter_operands("scatter", x, dim, index, value if src is None else src)
    return build.reshape(_scattered(lines, places, source, dim, _REDUCTIONS[reduce]), x.shape)


@scatter.gradient
def _(ct: Any, out: Any, x: Any, dim: int, index: Any, src: Any, *, value: Any, reduce: str | None) -> Any:
    if reduce is not None:
        raise RuntimeError("the derivative for 'scatter with reduce' is not implemented; use scatter_reduce")
    given = value if src is None else src
    grad, places, _, dim = _scatter_operands("scatter", ct, dim, index, 0)
    zeros = build.full(places.shape, 0, ct.dtype)
    to_x = build.reshape(prim.scatter(grad, places, zeros, dim=dim, reduce="set"), x.shape)
    return to_x, None, None if is_weak(given) else _read_back(grad, places, dim, src)


def _read_back(grad: Any, places: Any, dim: int, src: Any) -> Any:
    """The cotangent of a source: what lies at its places, and 0 where the index did not reach it."""
    found = prim.gather(grad, places, dim=dim)
    sizes = src.shape or (1,)
    if numel(sizes) == 0 or numel(places.shape) == 0:
        return build.zeros_like(src)
    hi = [size - n for size, n in zip(sizes, found.shape, strict=True)]
    return build.reshape(build.pad(found, [0] * len(hi), hi, [0] * len(hi)), src.shape)


@operator(
    "scatter_add(Tensor input, int dim, Tensor index, Tensor src) -> Tensor", out="exact", inplace=True, inplace_spaces=(), tags=("alone",)
)
def scatter_add(x: Any, dim: int, index: Any, src: Any) -> Any:
    """`input` with src[i][j] added at [index[i][j]][j] for dim 0, and so on."""
    lines, places, source, dim = _scatter_operands("scatter_add", x, dim, index, src)
    return build.reshape(_scattered(lines, places, source, dim, "add"), x.shape)


@scatter_add.gradient
def _(ct: Any, out: Any, x: Any, dim: int, index: Any, src: Any) -> Any:
    grad, places, _, dim = _scatter_operands("scatter_add", ct, dim, index, 0)
    return ct, None, _read_back(grad, places, dim, src)


_REDUCE_NAMES = {"sum": "add", "prod": "mul", "mean": "add", "amax": "amax", "amin": "amin"}


def _identity(dtype: Any, reduce: str) -> Any:
    return {"sum": 0, "mean": 0, "prod": 1, "amax": lowest(dtype), "amin": highest(dtype)}[reduce]


@operator("as_strided_scatter_core(Tensor input, Tensor places, Tensor src) -> Tensor", spaces=(), method=False, node="AsStridedScatterBackward0",
          tags=("reverse_only",))  # fmt: skip
def as_strided_scatter_core(x: Any, places: Any, src: Any) -> Any:
    """out.flat[places[i]] = src[i], `input` elsewhere; places are counted row by row."""
    flat = prim.scatter(build.reshape(x, (numel(x.shape),)), places, build.reshape(src, places.shape), dim=0, reduce="set")
    return build.reshape(flat, x.shape)


@as_strided_scatter_core.gradient
def _(ct: Any, out: Any, x: Any, places: Any, src: Any) -> Any:
    """PyTorch's choice, which is no slope: `input` gets the gradient of the places that src covers, and nothing elsewhere."""
    flat = build.reshape(ct, (numel(ct.shape),))
    covered = prim.gather(flat, places, dim=0)
    kept = prim.scatter(build.zeros_like(flat), places, covered, dim=0, reduce="set")
    return build.reshape(kept, x.shape), None, build.reshape(covered, src.shape)


@operator("scatter_reduce(Tensor input, int dim, Tensor index, Tensor src, str reduce, *, bool include_self=True) -> Tensor", out="exact",
          inplace=True, inplace_spaces=())  # fmt: skip
def scatter_reduce(x: Any, dim: int, index: Any, src: Any, reduce: str, *, include_self: bool) -> Any:
    """out[index[i][j]][j] = reduce(input, all src[i][j] that go there) for dim 0, and so on; without `include_self` only what src brings."""
    if reduce not in _REDUCE_NAMES:
        raise RuntimeError(f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}.")
    lines, places, source, dim = _scatter_operands("scatter_reduce", x, dim, index, src)
    if numel(index.shape) == 0:
        return x
    return build.reshape(_reduce_at(lines, places, source, dim, reduce, include_self), x.shape)


def _reduce_at(x: Any, places: Any, source: Any, dim: int, reduce: str, include_self: bool) -> Any:
    start = x
    if not include_self:
        neutral = build.full(places.shape, _identity(x.dtype, reduce), x.dtype)
        start = prim.scatter(x, places, neutral, dim=dim, reduce="set")
    found = _scattered(start, places, source, dim, _REDUCE_NAMES[reduce])
    if reduce != "mean":
        return found
    count = _counts(x, places, dim, include_self)
    if x.dtype.is_integer:
        return prim.div_floor(found, build.convert(count, x.dtype))
    return narrow(wide(found) / build.convert(count, wide(found).dtype), x.dtype)


def _counts(x: Any, places: Any, dim: int, include_self: bool) -> Any:
    """How many values meet at each place, at least 1."""
    start = build.full(x.shape, 1 if include_self else 0, INT64)
    count = prim.scatter(start, places, build.full(places.shape, 1, INT64), dim=dim, reduce="add")
    return prim.maximum(count, build.full_like(count, 1))


@scatter_reduce.gradient
def _(ct: Any, out: Any, x: Any, dim: int, index: Any, src: Any, reduce: str, *, include_self: bool) -> Any:
    if numel(index.shape) == 0:
        return ct, None, build.zeros_like(src)
    lines, places, source, dim = _scatter_operands("scatter_reduce", wide(x), dim, index, wide(src))
    grad, out = (build.reshape(wide(v), lines.shape) for v in (ct, out))
    rule = {"sum": _sum_slopes, "mean": _mean_slopes, "prod": _prod_slopes, "amax": _tie_slopes, "amin": _tie_slopes}[
        reduce
    ]
    to_x, to_source = rule(grad, out, lines, places, source, dim, include_self)
    if not include_self:
        to_x = prim.scatter(to_x, places, build.full(places.shape, 0, to_x.dtype), dim=dim, reduce="set")
    hi = [size - n for size, n in zip(src.shape or (1,), places.shape, strict=True)]
    to_source = build.pad(to_source, [0] * len(hi), hi, [0] * len(hi))
    return build.reshape(to_x, x.shape), None, build.reshape(to_source, src.shape)


def _sum_slopes(grad: Any, out: Any, x: Any, places: Any, source: Any, dim: int, include_self: bool) -> Any:
    return grad, prim.gather(grad, places, dim=dim)


def _mean_slopes(grad: Any, out: Any, x: Any, places: Any, source: Any, dim: int, include_self: bool) -> Any:
    share = grad / build.convert(_counts(x, places, dim, include_self), grad.dtype)
    return share, prim.gather(share, places, dim=dim)


def _prod_slopes(grad: Any, out: Any, x: Any, places: Any, source: Any, dim: int, include_self: bool) -> Any:
    """The product of the others: by division, except that one zero among the factors leaves the product of the rest."""
    safe_x = build.select(build.eq(x, 0.0), 1.0, x) if include_self else build.full_like(x, 1.0)
    start = build.convert(build.eq(x, 0.0), INT64) if include_self else build.full(x.shape, 0, INT64)
    nothing = build.eq(source, 0.0)
    zeros = prim.scatter(start, places, build.convert(nothing, INT64), dim=dim, reduce="add")
    rest = prim.scatter(safe_x, places, build.select(nothing, 1.0, source), dim=dim, reduce="mul")

    def slope(value: Any, zeros: Any, rest: Any, grad: Any) -> Any:
        zero = build.eq(value, 0.0)
        others = build.select(zero, zeros - 1, zeros)
        kept = rest / build.select(zero, 1.0, value)
        return build.select(build.eq(others, 0), grad * build.conj(kept), 0.0)

    at = [prim.gather(v, places, dim=dim) for v in (zeros, rest, grad)]
    return slope(x, zeros, rest, grad) if include_self else grad, slope(source, *at)


def _tie_slopes(grad: Any, out: Any, x: Any, places: Any, source: Any, dim: int, include_self: bool) -> Any:
    """Equals share the gradient."""
    mine = build.convert(prim.eq(x, out), x.dtype)
    theirs = build.convert(prim.eq(source, prim.gather(out, places, dim=dim)), x.dtype)
    start = (
        mine
        if include_self
        else prim.scatter(mine, places, build.full(places.shape, 0, x.dtype), dim=dim, reduce="set")
    )
    count = prim.scatter(start, places, theirs, dim=dim, reduce="add")
    share = grad / build.select(build.eq(count, 0.0), 1.0, count)
    return mine * share, theirs * prim.gather(share, places, dim=dim)


def _source_lines(name: str, x: Any, dim: int, index: Any, source: Any) -> tuple[Any, Any, Any, tuple[int, ...], int]:
    """(x, index, source) with the indexed dim in front, the permutation, and the dim."""
    places = _from_zero(_vector(name, index))
    lines, dim = _lines(x, dim)
    source = source if source.shape else build.reshape(source, (1,))
    if source.shape[dim] != places.shape[0]:
        raise (
            IndexError(
                f"{name}(): Number of indices ({places.shape[0]}) should be equal to source.size(dim) ({source.shape[dim]}), for dim: {dim}"
            )
            if name != "index_copy"
            else IndexError(
                f"index_copy_(): Number of indices ({places.shape[0]}) should be equal to source.size(dim) ({source.shape[dim]})"
            )
        )
    wanted = (*lines.shape[:dim], places.shape[0], *lines.shape[dim + 1 :])
    if source.shape != wanted:
        raise RuntimeError(f"{name}(): source tensor shape must match self tensor shape, excluding the specified dimension. Got self.shape = "
                           f"{list(x.shape)} source.shape = {list(source.shape)}")  # fmt: skip
    moved, perm = _front(lines, (dim,))
    return moved, places, build.transpose(source, perm), perm, dim


@operator("index_add(Tensor input, int dim, Tensor index, Tensor source, *, Scalar alpha=1) -> Tensor", out="exact", inplace=True,
          inplace_spaces=(), tags=("alone",))  # fmt: skip
def index_add(x: Any, dim: int, index: Any, source: Any, *, alpha: Any) -> Any:
    """`input` with alpha * source added at the places listed along dim."""
    if x.dtype is not source.dtype:
        raise RuntimeError(f"index_add(): self ({x.dtype}) and source ({source.dtype}) must have the same scalar type")
    moved, places, values, perm, _ = _source_lines("index_add", x, dim, index, source)
    if x.dtype is BOOL:
        kept = values if is_number(alpha) and alpha == 1 else values & build.convert(number_value(alpha, BOOL), BOOL)
        written = build.convert(
            prim.index_put(build.convert(moved, INT32), build.convert(kept, INT32), places, accumulate=True), BOOL
        )
    else:
        scaled = wide(values) if is_number(alpha) and alpha == 1 else wide(values) * alpha
        written = narrow(prim.index_put(wide(moved), scaled, places, accumulate=True), x.dtype)
    return build.reshape(build.transpose(written, _inverse(perm)), x.shape)


@operator(
    "index_copy(Tensor input, int dim, Tensor index, Tensor source) -> Tensor",
    out="exact",
    tags=("alone",),
    inplace=True,
    inplace_spaces=(),
)
def index_copy(x: Any, dim: int, index: Any, source: Any) -> Any:
    """out[..., index[i], ...] = source[..., i, ...]: `input` with places along dim written over."""
    if x.dtype is not source.dtype:
        raise RuntimeError(
            f"index_copy_(): self and source expected to have the same dtype, but got (self) {x.dtype.name} and (source) {source.dtype.name}"
        )
    _as_index("index_copy_", index, "int64")
    moved, places, values, perm, _ = _source_lines("index_copy", x, dim, index, source)
    return build.reshape(
        build.transpose(prim.index_put(moved, values, places, accumulate=False), _inverse(perm)), x.shape
    )


@operator(
    "index_fill(Tensor input, int dim, Tensor index, Tensor value) -> Tensor",
    numbers=("value",),
    tags=("fits",),
    inplace=True,
    inplace_spaces=(),
    node=lambda value, **_: f"IndexFillBackward{int(hasattr(value, 'shape'))}",
)
def index_fill(x: Any, dim: int, index: Any, value: Any) -> Any:
    """out[..., index[i], ...] = value: `input` with places along dim filled."""
    if not is_weak(value) and value.shape:
        raise RuntimeError(
            f"index_fill_ only supports a 0-dimensional value tensor, but got tensor with {len(value.shape)} dimension(s)."
        )
    _as_index("index_fill_", index, "int64")
    places = _vector("index_fill_", index)
    lines, dim = _lines(x, dim)
    filled = number_value(value, x.dtype) if is_weak(value) else build.convert(value, x.dtype)
    if dim and 8 * numel(places.shape) >= lines.shape[dim]:  # many places across rows: one pass that asks which they are
        return build.select(_hit(places, lines, dim), build.broadcast_to(filled, lines.shape), lines)
    moved, perm = _front(lines, (dim,))
    filled = build.broadcast_to(filled, (*places.shape, *moved.shape[1:]))
    return build.reshape(
        build.transpose(prim.index_put(moved, filled, places, accumulate=False), _inverse(perm)), x.shape
    )


@index_fill.gradient
def _(ct: Any, out: Any, x: Any, dim: int, index: Any, value: Any) -> Any:
    places = _vector("index_fill_", index)
    lines, dim = _lines(ct, dim)
    hit = _hit(places, lines, dim)
    written = build.select(hit, wide(lines), 0)
    to_value = None if is_weak(value) else narrow(reduce_dims("sum", written, dims_of(written, None)), value.dtype)
    return build.reshape(build.select(hit, 0, lines), x.shape), None, to_value


def _hit(places: Any, lines: Any, dim: int) -> Any:
    """Which elements lie at one of the places along dim."""
    size = (lines.shape[dim],)
    hit = prim.index_put(build.full(size, False, BOOL), build.full(places.shape, True, BOOL), places, accumulate=False)
    return prim.broadcast(hit, shape=lines.shape, dims=(dim,))


# ***** in the flattened input *****


@operator("take(Tensor input, Tensor index) -> Tensor", out="exact", tags=("apart",))
def take(x: Any, index: Any) -> Any:
    """out[i] = input.flat[index[i]]: elements of the flattened input, in the shape of `index`."""
    if numel(x.shape) == 0 and numel(index.shape) != 0:
        raise IndexError("take(): tried to take from an empty tensor")
    return prim.index(flat(x), _as_index("take", index))


@operator(
    "put(Tensor input, Tensor index, Tensor source, bool accumulate=False) -> Tensor",
    inplace=True,
    inplace_spaces=(),
    tags=("unordered",),
)
def put(x: Any, index: Any, source: Any, accumulate: bool) -> Any:
    """out.flat[index[i]] = source[i] (or += with `accumulate`): the input with flat places written over."""
    if numel(index.shape) != numel(source.shape):
        raise RuntimeError(f"put_(): Expected source and index to have the same number of elements, but got source.numel() = {numel(source.shape)}, "
                           f"index.numel() = {numel(index.shape)}")  # fmt: skip
    if x.dtype is not source.dtype:
        raise RuntimeError(
            f"put_(): self and source expected to have the same dtype, but got self.dtype = {x.dtype.name} and source.dtype = {source.dtype.name}"
        )
    places, values = flat(_as_index("put_", index)), flat(source)
    if accumulate and x.dtype is BOOL:
        written = build.convert(
            prim.index_put(build.convert(flat(x), INT32), build.convert(values, INT32), places, accumulate=True), BOOL
        )
    elif accumulate:
        written = narrow(prim.index_put(wide(flat(x)), wide(values), places, accumulate=True), x.dtype)
    else:
        written = prim.index_put(flat(x), values, places, accumulate=False)
    return build.reshape(written, x.shape)


@operator("take_along_dim(Tensor input, Tensor indices, int? dim=None) -> Tensor", out="exact", tags=("apart",), node="GatherBackward0")
def take_along_dim(x: Any, indices: Any, dim: int | None) -> Any:
    """out[i][j] = input[indices[i][j]][j] for dim 0, and so on: `gather` whose operands broadcast; without dim in the flattened input."""
    places = _as_index("torch.take_along_dim", indices)
    if dim is None:
        return prim.gather(flat(x), flat(places), dim=0)
    if len(x.shape) != len(places.shape):
        raise RuntimeError(
            f"torch.take_along_dim(): input and indices should have the same number of dimensions, but got {len(x.shape)} dimensions for input, "
            f"and {len(places.shape)} dimensions for indices"
        )
    dim = wrap(dim, x)
    rest = [(*s[:dim], *s[dim + 1 :]) for s in (x.shape, places.shape)]
    common = broadcast_shapes(*rest)
    places = _around(places, x.shape[dim])
    x, places = (build.broadcast_to(v, (*common[:dim], v.shape[dim], *common[dim:])) for v in (x, places))
    return prim.gather(x, places, dim=dim)


def _around(places: Any, size: int) -> Any:
    """Places counted around a dim: -1 is the last one, and `size` the first again."""
    if not size:
        return places
    rest = prim.rem_trunc(places, build.full_like(places, size))
    return build.select(rest < 0, rest + size, rest)


# ***** embedding *****


@operator("embedding(Tensor input, Tensor weight, int? padding_idx=None, float? max_norm=None, float norm_type=2.0, "
          "bool scale_grad_by_freq=False, bool sparse=False) -> Tensor", spaces=("nn.functional",), method=False)  # fmt: skip
def embedding(x: Any, weight: Any, padding_idx: int | None, max_norm: float | None, norm_type: float, scale_grad_by_freq: bool,
              sparse: bool) -> Any:  # fmt: skip
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
    return prim.index(weight, _from_zero(x))


def _padding_row(weight: Any, padding_idx: int | None) -> int | None:
    if padding_idx is None:
        return None
    rows = weight.shape[0]
    if not -rows <= padding_idx < rows:
        raise AssertionError("Padding_idx must be within num_embeddings")
    return padding_idx + rows if padding_idx < 0 else padding_idx


@embedding.gradient
def _(ct: Any, out: Any, x: Any, weight: Any, padding_idx: int | None, max_norm: float | None, norm_type: float, scale_grad_by_freq: bool,
      sparse: bool) -> Any:  # fmt: skip
    places = build.convert(x, INT64)
    grad = wide(ct)
    row = _padding_row(weight, padding_idx)
    if scale_grad_by_freq:
        ones = build.full(places.shape, 1.0, grad.dtype)
        counts = prim.index_put(build.full((weight.shape[0],), 0, grad.dtype), ones, places, accumulate=True)
        grad = grad / _over_rows(prim.index(counts, places), grad.shape)
    if row is not None:
        grad = build.select(_over_rows(build.eq(places, row), grad.shape), 0, grad)
    zeros = build.full(weight.shape, 0, grad.dtype)
    return None, narrow(prim.index_put(zeros, grad, places, accumulate=True), weight.dtype)


def _over_rows(values: Any, shape: Sequence[int]) -> Any:
    return prim.broadcast(values, shape=tuple(shape), dims=tuple(range(len(shape) - 1)))


@operator("embedding_bag_core(Tensor input, Tensor weight, Tensor? starts, Tensor? ends, Tensor? per_sample_weights, int width, int padding_idx, "
          "str mode) -> Tensor", spaces=(), method=False, node="EmbeddingBagBackward0")  # fmt: skip
def embedding_bag_core(x: Any, weight: Any, starts: Any, ends: Any, per_sample_weights: Any, width: int, padding_idx: int, mode: str) -> Any:
    """out[b, :] = sum, mean or max over j of weight[input[b, j], :], without those of the row `padding_idx` (-1: with all).

    With `starts` and `ends` bag b is input[starts[b] : ends[b]], of `width` elements at most.
    """
    places, counted, scales = build.convert(x, INT64), None, per_sample_weights
    if starts is not None:
        shape = (starts.shape[0], width)
        first, after = (prim.broadcast(build.convert(v, INT64), shape=shape, dims=(0,)) for v in (starts, ends))
        at = first + prim.iota(shape=shape, dim=1, dtype=INT64)
        counted = at < after
        at = build.select(counted, at, 0)
        places = prim.index(places, at)
        scales = None if scales is None else prim.index(scales, at)
    if padding_idx >= 0:
        real = build.ne(places, padding_idx)
        counted = real if counted is None else counted & real
    rows = wide(prim.index(weight, _from_zero(places)))
    if scales is not None:
        rows = rows * _over_rows(wide(scales), rows.shape)
    return narrow(_bags(rows, counted, mode), weight.dtype)


def _bags(rows: Any, counted: Any, mode: str) -> Any:
    """Rows (bags, places, columns) reduced over the places that count (None: all); a bag of none gives zeros."""
    if counted is not None:
        rows = build.select(_over_rows(counted, rows.shape), rows, lowest(rows.dtype) if mode == "max" else 0.0)
    if mode == "max":  # the gradient goes to the first of equals
        best = prim.argmax(rows, dim=1)
        found = prim.gather(rows, build.reshape(best, (rows.shape[0], 1, rows.shape[2])), dim=1)
        found = build.reshape(found, (rows.shape[0], rows.shape[2]))
        if counted is None:
            return found
        some = prim.amax(counted, dims=(1,))
        return build.select(prim.broadcast(some, shape=found.shape, dims=(0,)), found, 0.0)
    total = prim.sum(rows, dims=(1,))
    if mode == "sum":
        return total
    if counted is None:
        return total / as_double(rows.shape[1])
    count = prim.sum(build.convert(counted, rows.dtype), dims=(1,))
    return total / prim.broadcast(prim.maximum(count, build.full_like(count, 1.0)), shape=total.shape, dims=(0,))


@operator("one_hot_core(Tensor input, int num_classes) -> Tensor", spaces=(), method=False)
def one_hot_core(x: Any, num_classes: int) -> Any:
    """1 at the class that each element names, 0 elsewhere, along a new last dim (see `one_hot`)."""
    shape = (*x.shape, num_classes)
    classes = prim.broadcast(build.convert(x, INT64), shape=shape, dims=tuple(range(len(x.shape))))
    return build.convert(prim.eq(classes, prim.iota(shape=shape, dim=len(x.shape), dtype=INT64)), INT64)


# ***** order *****


def _sorted(x: Any, dim: int, descending: bool, stable: bool) -> tuple[Any, Any]:
    refuse(x, "sort", "c")
    lines, dim = _lines(x, dim)
    values, indices = prim.sort(wide(lines), dim=dim, descending=descending, stable=stable)
    return narrow(build.reshape(values, x.shape), x.dtype), build.reshape(indices, x.shape)


@operator(
    "sort(Tensor input, int dim=-1, bool descending=False, bool stable=False) -> (Tensor values, Tensor indices)",
    node=lambda input, dim, descending, stable: f"SortBackward{int(stable)}",
    out="exact",
    like="operands",
)
def sort(x: Any, dim: int, descending: bool, stable: bool) -> Any:
    """values[i] <= values[i + 1] and values[i] = input[indices[i]] along dim (>= with `descending`); NaN counts as greatest."""
    return _sorted(x, dim, descending, stable)


@operator("argsort(Tensor input, int dim=-1, bool descending=False, bool stable=False) -> Tensor")
def argsort(x: Any, dim: int, descending: bool, stable: bool) -> Any:
    """indices with input[indices[i]] <= input[indices[i + 1]] along dim: where values in order come from."""
    return _sorted(x, dim, descending, stable)[1]


@operator("msort(Tensor input) -> Tensor", out="exact", node="SortBackward0")
def msort(x: Any) -> Any:
    """out[i] <= out[i + 1]: values in order along the first dim."""
    return _sorted(x, 0, False, True)[0]


@operator(
    "topk(Tensor input, int k, int dim=-1, bool largest=True, bool sorted=True) -> (Tensor values, Tensor indices)",
    out="exact",
)
def topk(x: Any, k: int, dim: int, largest: bool, sorted: bool) -> Any:
    """values[0] >= ... >= values[k - 1], values[i] = input[indices[i]]: the k greatest (or least) along dim, and where they are."""
    refuse(x, "topk", "c")
    lines, dim = _lines(x, dim)
    if not 0 <= k <= lines.shape[dim]:
        raise RuntimeError(f"selected index k out of range: topk() of {lines.shape[dim]} elements along dim {dim}, but k is {k}")
    values, indices = prim.topk(wide(lines), k=k, dim=dim, largest=largest, sorted=sorted)
    shape = values.shape if x.shape else (() if k else (0,))
    return narrow(build.reshape(values, shape), x.dtype), build.reshape(indices, shape)


def _kth(x: Any, k: int, dim: int, keepdim: bool) -> tuple[Any, Any]:
    """The value of rank k (from 0) along dim, and its place."""
    lines, place = _lines(x, dim)
    if 4 * (k + 1) <= lines.shape[place]:
        values, indices = prim.topk(lines, k=k + 1, dim=place, largest=False, sorted=True)
    else:
        values, indices = _sorted(lines, place, False, True)
    dims = dims_of(x, dim)
    shape = lines.shape if x.shape else ()
    found = [build.squeeze(take_slice(v, place, k, k + 1), (place,)) for v in (values, indices)]
    return tuple(finish(build.reshape(v, v.shape if x.shape else ()), shape, dims, keepdim) for v in found)  # type: ignore[return-value]


@operator("kthvalue(Tensor input, int k, int dim=-1, bool keepdim=False) -> (Tensor values, Tensor indices)", out="exact", tags=("apart",))
def kthvalue(x: Any, k: int, dim: int, keepdim: bool) -> Any:
    """The k-th least value along dim, and where it is."""
    refuse(x, "kthvalue_cpu", "bc")
    lines, place = _lines(x, dim)
    if not numel(lines.shape):
        return _kth(x, k - 1, dim, keepdim)
    if not 1 <= k <= lines.shape[place]:
        raise RuntimeError("kthvalue(): selected number k out of range for dimension " + str(place))
    values, indices = prim.kth(wide(lines), rank=k - 1, dim=place)
    found = [build.squeeze(v, (place,)) for v in (narrow(values, x.dtype), indices)]
    return tuple(finish(v, lines.shape if x.shape else (), dims_of(x, dim), keepdim) for v in found)


@operator("median(Tensor input, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)", name="median_dim", spaces=(), method=False,
          out=True, node="MedianBackward1")  # fmt: skip
def median_dim(x: Any, dim: int, keepdim: bool) -> Any:
    """sorted(input)[(n - 1) // 2] along a dim of size n (the lower of two middles), and where it is; NaN where there is one."""
    refuse(x, "median", "bc")
    lines, place = _lines(x, dim)
    if lines.shape[place] == 0:
        raise IndexError(f"median(): Expected reduction dim {place} to have non-zero size.")
    values, indices = _kth(x, (lines.shape[place] - 1) // 2, dim, keepdim)
    if not x.dtype.is_floating_point:
        return values, indices
    last_value, last_index = _kth(x, lines.shape[place] - 1, dim, keepdim)
    missing = prim.ne(wide(last_value), wide(last_value))
    first_nan = _first_nan(x, dim, keepdim)
    return prim.select(missing, last_value, values), build.select(
        missing, first_nan if first_nan is not None else last_index, indices
    )


def _first_nan(x: Any, dim: int, keepdim: bool) -> Any:
    lines, place = _lines(x, dim)
    found = prim.argmax(build.convert(prim.ne(wide(lines), wide(lines)), INT32), dim=place)
    return finish(
        build.reshape(found, found.shape if x.shape else ()), lines.shape if x.shape else (), dims_of(x, dim), keepdim
    )


@operator(
    "median(Tensor input) -> Tensor", name="median_all", spaces=(), method=False, out=True, node="MedianBackward0"
)
def median_all(x: Any) -> Any:
    """sorted(input)[(n - 1) // 2] of all n values (the lower of two middles); NaN for none, or where there is one."""
    refuse(x, "median", "bc")
    if numel(x.shape) == 0:
        return build.full((), float("nan") if x.dtype.is_floating_point else lowest(x.dtype), x.dtype)
    return median_dim(flat(x), 0, False)[0]


@operator("bucketize_core(Tensor input, Tensor boundaries, bool right) -> Tensor", spaces=(), method=False)
def bucketize_core(x: Any, boundaries: Any, right: bool) -> Any:
    """the number of i with boundaries[i] < x (<= x with `right`), for each element x: by halving, as often as the boundaries need."""
    if len(boundaries.shape) != 1 and (len(boundaries.shape) != len(x.shape) or boundaries.shape[:-1] != x.shape[:-1]):
        raise RuntimeError(f"boundaries tensor must be 1 dimension, but got dim({len(boundaries.shape)})")
    x, boundaries = (wide(v) for v in common([x, boundaries]))
    size = boundaries.shape[-1]
    low, high = build.full(x.shape, 0, INT64), build.full(x.shape, size, INT64)
    for _ in range(size.bit_length()):
        middle = prim.shift_right(low + high, build.full(x.shape, 1, INT64))
        safe = build.select(middle < size, middle, max(size - 1, 0))
        held = (
            prim.index(boundaries, safe)
            if len(boundaries.shape) == 1
            else prim.gather(boundaries, safe, dim=len(x.shape) - 1)
        )
        goes_up = (held <= x if right else held < x) & (middle < size) & (low < high)
        low, high = (
            build.select(goes_up, middle + 1, low),
            build.select(goes_up, high, build.select(low < high, middle, high)),
        )
    return low
