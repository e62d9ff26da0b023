"""Writes at indices along one dim that are data: overwriting, adding, multiplying, reducing."""

from __future__ import annotations

from typing import Any

from rushlight._ops.bodies import (
    dims_of,
    div_floor,
    highest,
    is_number,
    is_weak,
    like_input,
    lowest,
    narrow,
    number_kind,
    number_value,
    reduce_dims,
    take_slice,
    wide,
)
from rushlight._ops.index_arguments import (
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

_REDUCTIONS = {None: "set", "add": "add", "multiply": "mul"}


def _scatter_operands(name: str, x: Any, dim: int, index: Any, src: Any) -> tuple[Any, Any, Any, int]:
    """(x, index, source, dim), all with dims, the source cut to the index."""
    indices = from_zero(as_index("scatter", index, "int32 int64"))
    lines, dim = lines_of(x, dim)
    indices = indices if indices.shape else build.reshape(indices, (1,))
    if numel(index.shape) == 0:
        indices = build.full((*lines.shape[:dim], 0, *lines.shape[dim + 1 :]), 0, INT64)
        return lines, indices, build.full(indices.shape, 0, x.dtype), dim
    check_ranks(name, x, index, None if is_weak(src) else src)
    check_fits(lines, indices, dim, None if is_weak(src) else src)
    if not lines.shape[dim]:
        raise RuntimeError(f"index 0 is out of bounds for dimension {dim} with size 0: {name}() has no element there")
    if is_weak(src):
        return lines, indices, build.broadcast_to(number_value(src, x.dtype), indices.shape), dim
    if src.dtype is not x.dtype:
        raise RuntimeError("scatter(): Expected self.dtype to be equal to src.dtype")
    source = src if src.shape else build.reshape(src, (1,))
    for d, n in enumerate(indices.shape):
        source = take_slice(source, d, 0, n)
    return lines, indices, source, dim


def _scattered(x: Any, indices: Any, source: Any, dim: int, reduce: str) -> Any:
    if reduce == "set":
        return prim.scatter(x, indices, source, dim=dim, reduce="set")
    if x.dtype is BOOL:
        logic = {"add": "amax", "mul": "amin", "amax": "amax", "amin": "amin"}[reduce]
        whole = prim.scatter(build.convert(x, INT32), indices, build.convert(source, INT32), dim=dim, reduce=logic)
        return build.convert(whole, BOOL)
    return narrow(prim.scatter(wide(x), indices, wide(source), dim=dim, reduce=reduce), x.dtype)


@operator("scatter(Tensor input, int dim, Tensor index, Tensor? src=None, *, Scalar? value=None, str? reduce=None) -> Tensor", numbers=("src",),
          out="exact", inplace=True, inplace_spaces=(), tags=("alone", "fits"),
          node=lambda src, **_: f"ScatterBackward{int(not hasattr(src, 'shape'))}")  # fmt: skip
def scatter(x: Any, dim: int, index: Any, src: Any, *, value: Any, reduce: str | None) -> Any:
    """`input` with src[i][j] written to [index[i][j]][j] for dim 0, and so on; `reduce` adds or multiplies instead."""
    if reduce not in _REDUCTIONS:
        raise RuntimeError("reduce argument must be either add or multiply.")
    if src is None and value is None:
        raise TypeError("scatter() received an invalid combination of arguments: neither src nor value was given")
    lines, indices, source, dim = _scatter_operands("scatter", x, dim, index, value if src is None else src)
    return build.reshape(_scattered(lines, indices, source, dim, _REDUCTIONS[reduce]), x.shape)


@scatter.gradient
def _(ct: Any, out: Any, x: Any, dim: int, index: Any, src: Any, *, value: Any, reduce: str | None) -> Any:
    if reduce is not None:
        raise RuntimeError("the derivative for 'scatter with reduce' is not implemented; use scatter_reduce")
    source = value if src is None else src
    grad, indices, _, dim = _scatter_operands("scatter", ct, dim, index, 0)
    zeros = build.full(indices.shape, 0, ct.dtype)
    to_x = build.reshape(prim.scatter(grad, indices, zeros, dim=dim, reduce="set"), x.shape)
    return to_x, None, None if is_weak(source) else _read_back(grad, indices, dim, src)


def _read_back(grad: Any, indices: Any, dim: int, src: Any) -> Any:
    """The cotangent of a source: the gradient at its indices, and 0 where the index did not reach it."""
    elements = prim.gather(grad, indices, dim=dim)
    sizes = src.shape or (1,)
    if numel(sizes) == 0 or numel(indices.shape) == 0:
        return build.zeros_like(src)
    hi = [size - n for size, n in zip(sizes, elements.shape, strict=True)]
    return build.reshape(build.pad(elements, [0] * len(hi), hi, [0] * len(hi)), src.shape)


@operator(
    "scatter_add(Tensor input, int dim, Tensor index, Tensor src) -> Tensor",
    out="exact",
    inplace=True,
    inplace_spaces=(),
    tags=("alone",),
)
def scatter_add(x: Any, dim: int, index: Any, src: Any) -> Any:
    """`input` with src[i][j] added at [index[i][j]][j] for dim 0, and so on."""
    lines, indices, source, dim = _scatter_operands("scatter_add", x, dim, index, src)
    return build.reshape(_scattered(lines, indices, source, dim, "add"), x.shape)


@scatter_add.gradient
def _(ct: Any, out: Any, x: Any, dim: int, index: Any, src: Any) -> Any:
    grad, indices, _, dim = _scatter_operands("scatter_add", ct, dim, index, 0)
    return ct, None, _read_back(grad, indices, dim, src)


_REDUCE_NAMES = {"sum": "add", "prod": "mul", "mean": "add", "amax": "amax", "amin": "amin"}


def _identity(dtype: Any, reduce: str) -> Any:
    return {"sum": 0, "mean": 0, "prod": 1, "amax": lowest(dtype), "amin": highest(dtype)}[reduce]


@operator("as_strided_scatter_core(Tensor input, Tensor indices, Tensor src) -> Tensor", spaces=(), method=False, node="AsStridedScatterBackward0",
          tags=("reverse_only",))  # fmt: skip
def as_strided_scatter_core(x: Any, indices: Any, src: Any) -> Any:
    """out.flat[indices[i]] = src[i], `input` elsewhere; indices are row-major flat indices."""
    flat = prim.scatter(
        build.reshape(x, (numel(x.shape),)), indices, build.reshape(src, indices.shape), dim=0, reduce="set"
    )
    return build.reshape(flat, x.shape)


@as_strided_scatter_core.gradient
def _(ct: Any, out: Any, x: Any, indices: Any, src: Any) -> Any:
    """PyTorch's choice, which is no slope: `input` gets the gradient of the elements that src covers, and nothing
    elsewhere."""
    flat = build.reshape(ct, (numel(ct.shape),))
    covered = prim.gather(flat, indices, dim=0)
    kept = prim.scatter(build.zeros_like(flat), indices, covered, dim=0, reduce="set")
    return build.reshape(kept, x.shape), None, build.reshape(covered, src.shape)


@operator("masked_scatter_core(Tensor input, Tensor mask, Tensor source) -> (Tensor values, Tensor count)", spaces=(), method=False,
          node="MaskedScatterBackward0")  # fmt: skip
def masked_scatter_core(x: Any, mask: Any, source: Any) -> tuple[Any, Any]:
    """`input` with the n-th element of `source` (its last one from there on) at the n-th element where the mask holds,
    and the number of these."""
    shape = broadcast_shapes(x.shape, mask.shape)
    mask, count = build.broadcast_to(mask, shape), numel(shape)
    if not count:
        return build.broadcast_to(x, shape), build.full((), 0, INT64)
    so_far = prim.cumsum(build.reshape(build.convert(mask, INT64), (count,)), dim=0, reverse=False)
    order = prim.maximum(
        prim.minimum(so_far, build.full_like(so_far, numel(source.shape))) - 1, build.zeros_like(so_far)
    )
    taken = build.reshape(prim.gather(build.reshape(source, (numel(source.shape),)), order, dim=0), shape)
    return build.select(mask, taken, build.broadcast_to(x, shape)), build.reshape(
        take_slice(so_far, 0, count - 1, count), ()
    )


@operator("scatter_reduce(Tensor input, int dim, Tensor index, Tensor src, str reduce, *, bool include_self=True) -> Tensor", out="exact",
          inplace=True, inplace_spaces=())  # fmt: skip
def scatter_reduce(x: Any, dim: int, index: Any, src: Any, reduce: str, *, include_self: bool) -> Any:
    """out[index[i][j]][j] = reduce(input, all src[i][j] that go there) for dim 0, and so on; without `include_self`
    only the elements of src."""
    if reduce not in _REDUCE_NAMES:
        raise RuntimeError(f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}")
    lines, indices, source, dim = _scatter_operands("scatter_reduce", x, dim, index, src)
    if numel(index.shape) == 0:
        return x
    return build.reshape(_reduce_at(lines, indices, source, dim, reduce, include_self), x.shape)


def _reduce_at(x: Any, indices: Any, source: Any, dim: int, reduce: str, include_self: bool) -> Any:
    start = x
    if not include_self:
        neutral = build.full(indices.shape, _identity(x.dtype, reduce), x.dtype)
        start = prim.scatter(x, indices, neutral, dim=dim, reduce="set")
    reduced = _scattered(start, indices, source, dim, _REDUCE_NAMES[reduce])
    if reduce != "mean":
        return reduced
    count = _counts(x, indices, dim, include_self)
    if x.dtype.is_integer:
        return div_floor(reduced, build.convert(count, x.dtype))
    return narrow(wide(reduced) / build.convert(count, wide(reduced).dtype), x.dtype)


def _counts(x: Any, indices: Any, dim: int, include_self: bool) -> Any:
    """The number of values that meet at each element, at least 1."""
    start = build.full(x.shape, 1 if include_self else 0, INT64)
    count = prim.scatter(start, indices, build.full(indices.shape, 1, INT64), dim=dim, reduce="add")
    return prim.maximum(count, build.full_like(count, 1))


@scatter_reduce.gradient
def _(ct: Any, out: Any, x: Any, dim: int, index: Any, src: Any, reduce: str, *, include_self: bool) -> Any:
    if numel(index.shape) == 0:
        return ct, None, build.zeros_like(src)
    lines, indices, source, dim = _scatter_operands("scatter_reduce", wide(x), dim, index, wide(src))
    grad, out = (build.reshape(wide(v), lines.shape) for v in (ct, out))
    rule = {"sum": _sum_slopes, "mean": _mean_slopes, "prod": _prod_slopes, "amax": _tie_slopes, "amin": _tie_slopes}[
        reduce
    ]
    to_x, to_source = rule(grad, out, lines, indices, source, dim, include_self)
    if not include_self:
        to_x = prim.scatter(to_x, indices, build.full(indices.shape, 0, to_x.dtype), dim=dim, reduce="set")
    hi = [size - n for size, n in zip(src.shape or (1,), indices.shape, strict=True)]
    to_source = build.pad(to_source, [0] * len(hi), hi, [0] * len(hi))
    return build.reshape(to_x, x.shape), None, build.reshape(to_source, src.shape)


def _sum_slopes(grad: Any, out: Any, x: Any, indices: Any, source: Any, dim: int, include_self: bool) -> Any:
    return grad, prim.gather(grad, indices, dim=dim)


def _mean_slopes(grad: Any, out: Any, x: Any, indices: Any, source: Any, dim: int, include_self: bool) -> Any:
    share = grad / build.convert(_counts(x, indices, dim, include_self), grad.dtype)
    return share, prim.gather(share, indices, dim=dim)


def _prod_slopes(grad: Any, out: Any, x: Any, indices: Any, source: Any, dim: int, include_self: bool) -> Any:
    """The product of the others: by division among those that are not zero, times the only zero, which has a slope of
    its own."""
    safe_x = build.select(build.eq(x, 0.0), 1.0, x) if include_self else build.full_like(x, 1.0)
    start = build.convert(build.eq(x, 0.0), INT64) if include_self else build.full(x.shape, 0, INT64)
    nothing = build.eq(source, 0.0)
    zeros = prim.scatter(start, indices, build.convert(nothing, INT64), dim=dim, reduce="add")
    rest = prim.scatter(safe_x, indices, build.select(nothing, 1.0, source), dim=dim, reduce="mul")
    zero_x = build.select(build.eq(x, 0.0), x, 0.0) if include_self else build.zeros_like(x)
    # The sum of the zeros
    lost = prim.scatter(zero_x, indices, build.select(nothing, source, 0.0), dim=dim, reduce="add")

    def slope(value: Any, zeros: Any, rest: Any, lost: Any, grad: Any) -> Any:
        zero = build.eq(value, 0.0)
        others = build.select(zero, zeros - 1, zeros)
        kept = rest / build.select(zero, 1.0, value)
        only = build.select(build.eq(others, 1), lost - build.select(zero, value, 0.0), 0.0)
        return build.select(
            build.eq(others, 0),
            grad * build.conj(kept),
            grad * build.conj(build.select(build.eq(others, 1), kept, 0.0) * only),
        )

    at = [prim.gather(v, indices, dim=dim) for v in (zeros, rest, lost, grad)]
    return slope(x, zeros, rest, lost, grad) if include_self else grad, slope(source, *at)


def _tie_slopes(grad: Any, out: Any, x: Any, indices: Any, source: Any, dim: int, include_self: bool) -> Any:
    """Equal elements share the gradient."""
    mine = build.convert(prim.eq(x, out), x.dtype)
    theirs = build.convert(prim.eq(source, prim.gather(out, indices, dim=dim)), x.dtype)
    start = (
        mine
        if include_self
        else prim.scatter(mine, indices, build.full(indices.shape, 0, x.dtype), dim=dim, reduce="set")
    )
    count = prim.scatter(start, indices, theirs, dim=dim, reduce="add")
    share = grad / build.select(build.eq(count, 0.0), 1.0, count)
    return mine * share, theirs * prim.gather(share, indices, dim=dim)


def _source_lines(name: str, x: Any, dim: int, index: Any, source: Any) -> tuple[Any, Any, Any, tuple[int, ...], int]:
    """(x, index, source) with the indexed dim in front, the permutation, and the dim."""
    lines, indices, source, dim = _lines_and_source(name, x, dim, index, source)
    moved, perm = to_front(lines, (dim,))
    return moved, indices, build.transpose(source, perm), perm, dim


def _lines_and_source(name: str, x: Any, dim: int, index: Any, source: Any) -> tuple[Any, Any, Any, int]:
    """(x, index, source) with at least one dim, and the indexed dim."""
    indices = from_zero(index_vector(f"{name}_", index))
    lines, dim = lines_of(x, dim)
    ranks = len(x.shape), len(source.shape)
    source = source if source.shape else build.reshape(source, (1,))
    if source.shape[dim] != indices.shape[0]:
        text = f"{name}_(): Number of indices ({indices.shape[0]}) should be equal to source.size(dim)"
        if name == "index_copy":
            raise IndexError(f"{text} ({source.shape[dim]})")
        raise RuntimeError(f"{text}: ({source.shape[dim]}), for dim: {dim}")
    wanted = (*lines.shape[:dim], indices.shape[0], *lines.shape[dim + 1 :])
    if name == "index_copy" and source.shape != wanted:
        _refuse_slices(lines, source, dim, ranks)
    if source.shape != wanted or ranks[0] != ranks[1] and name == "index_add":
        raise RuntimeError(
            f"source tensor shape must match self tensor shape, excluding the specified dimension. Got self.shape = "
            f"{list(x.shape)} source.shape = {list(source.shape)}"
        )
    _indices_exist(name, lines, indices, dim)
    return lines, indices, source, dim


def _refuse_slices(x: Any, source: Any, dim: int, ranks: tuple[int, int]) -> None:
    """Raise the error of `index_copy` for slices of another shape than those of `x`."""
    if min(ranks) and ranks[0] != ranks[1]:
        raise IndexError(
            "index_copy_(): When source and destination are not scalars, their dimensionality must match. Source dimensionality "
            f"({ranks[1]}), destination dimensionality ({ranks[0]})"
        )
    slices = [" ".join(str(n) for d, n in enumerate(v.shape) if d != dim) for v in (x, source)]
    raise RuntimeError(
        f"index_copy_(): Source/destination tensor must have same slice shapes. Destination slice shape: {slices[0]} at dimension {dim} "
        f"and source slice shape: {slices[1]} at dimension 0."
    )


def _indices_exist(name: str, x: Any, indices: Any, dim: int) -> None:
    """IndexError if an empty dim is indexed: no kernel would run that could check the indices."""
    if numel(indices.shape) and not x.shape[dim]:
        raise IndexError(f"{name}(): index is out of bounds for dimension {dim} with size 0")


@operator("index_add(Tensor input, int dim, Tensor index, Tensor source, *, Scalar alpha=1) -> Tensor", out="exact", inplace=True,
          inplace_spaces=(), tags=("alone",))  # fmt: skip
def index_add(x: Any, dim: int, index: Any, source: Any, *, alpha: Any) -> Any:
    """`input` with alpha * source added at the indices listed along dim."""
    if x.dtype is not source.dtype:
        raise RuntimeError(
            f"index_add_(): self ({x.dtype.scalar}) and source ({source.dtype.scalar}) must have the same scalar type"
        )
    lines, indices, values, dim = _lines_and_source("index_add", x, dim, index, source)
    once = is_number(alpha) and alpha == 1
    if x.dtype is BOOL:
        kept = values if once else values & build.convert(number_value(alpha, BOOL), BOOL)
        written = build.convert(
            _added_along(build.convert(lines, INT32), indices, build.convert(kept, INT32), dim), BOOL
        )
    else:
        scaled = wide(values) if once else wide(values) * number_value(alpha, values.dtype.wide)
        written = narrow(_added_along(wide(lines), indices, scaled, dim), x.dtype)
    return build.reshape(written, x.shape)


def _added_along(lines: Any, indices: Any, values: Any, dim: int) -> Any:
    """Add values at the indices along dim: whole slices, or elements if no more than those are contiguous."""
    if 0 < dim == len(lines.shape) - 1:
        return prim.scatter(
            lines, prim.broadcast(indices, shape=values.shape, dims=(dim,)), values, dim=dim, reduce="add"
        )
    moved, perm = to_front(lines, (dim,))
    written = prim.index_put(moved, build.transpose(values, perm), indices, accumulate=True)
    return build.transpose(written, inverse_perm(perm))


@operator(
    "index_copy(Tensor input, int dim, Tensor index, Tensor source) -> Tensor",
    out="exact",
    tags=("alone",),
    inplace=True,
    inplace_spaces=(),
)
def index_copy(x: Any, dim: int, index: Any, source: Any) -> Any:
    """out[..., index[i], ...] = source[..., i, ...]: `input` with slices along dim overwritten."""
    if x.dtype is not source.dtype:
        raise RuntimeError(
            f"index_copy_(): self and source expected to have the same dtype, but got (self) {x.dtype.scalar} and (source) {source.dtype.scalar}"
        )
    as_index("index_copy_", index, "int64")
    moved, indices, values, perm, _ = _source_lines("index_copy", x, dim, index, source)
    return build.reshape(
        build.transpose(prim.index_put(moved, values, indices, accumulate=False), inverse_perm(perm)), x.shape
    )


@operator(
    "index_fill(Tensor input, int dim, Tensor index, Tensor value) -> Tensor",
    like=like_input,
    numbers=("value",),
    tags=("fits", "alone"),
    inplace=True,
    inplace_spaces=(),
    node=lambda value, **_: f"IndexFillBackward{int(hasattr(value, 'shape'))}",
)
def index_fill(x: Any, dim: int, index: Any, value: Any) -> Any:
    """out[..., index[i], ...] = value: `input` with slices along dim filled."""
    if not is_weak(value) and value.shape:
        raise RuntimeError(
            f"index_fill_ only supports a 0-dimensional value tensor, but got tensor with {len(value.shape)} dimension(s)."
        )
    if number_kind(value) == "c" and not x.dtype.is_complex:
        raise RuntimeError("index_fill_(): Converting complex Scalar to non-complex type is not supported")
    if index.dtype is not INT64:
        raise IndexError("index_fill_(): Expected dtype int64 for index.")
    if len(index.shape) > 1:
        raise RuntimeError("Index has to be a vector/scalar")
    indices = index_vector("index_fill_", index)
    lines, dim = lines_of(x, dim)
    _indices_exist("index_fill", lines, indices, dim)
    filled = number_value(value, x.dtype) if is_weak(value) else build.convert(value, x.dtype)
    # Many indices across rows: one pass that tests each element
    if dim and 8 * numel(indices.shape) >= lines.shape[dim]:
        return build.select(_hit(indices, lines, dim), build.broadcast_to(filled, lines.shape), lines)
    moved, perm = to_front(lines, (dim,))
    filled = build.broadcast_to(filled, (*indices.shape, *moved.shape[1:]))
    return build.reshape(
        build.transpose(prim.index_put(moved, filled, indices, accumulate=False), inverse_perm(perm)), x.shape
    )


@index_fill.gradient
def _(ct: Any, out: Any, x: Any, dim: int, index: Any, value: Any) -> Any:
    indices = index_vector("index_fill_", index)
    lines, dim = lines_of(ct, dim)
    hit = _hit(indices, lines, dim)
    written = build.select(hit, wide(lines), 0)
    to_value = None if is_weak(value) else narrow(reduce_dims("sum", written, dims_of(written, None)), value.dtype)
    return build.reshape(build.select(hit, 0, lines), x.shape), None, to_value


def _hit(indices: Any, lines: Any, dim: int) -> Any:
    """A mask of the elements at one of the indices along dim."""
    size = (lines.shape[dim],)
    hit = prim.index_put(
        build.full(size, False, BOOL), build.full(indices.shape, True, BOOL), indices, accumulate=False
    )
    return prim.broadcast(hit, shape=lines.shape, dims=(dim,))
