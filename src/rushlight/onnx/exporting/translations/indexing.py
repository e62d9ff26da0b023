"""Elements at indices: gathered, scattered, put, masked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import rushlight
from rushlight._interface.base import LazyModule
from rushlight.onnx.exporting.table import Call, translates
from rushlight.onnx.exporting.translations.shapes import END
from rushlight.onnx.exporting.values import Value, numpy_dtype

np: Any = LazyModule("numpy")

INT64 = rushlight.int64


@translates("aten::embedding")
def embedding(call: Call, weight: Value, indices: Value, *_: Any) -> Value:
    return call.gather(weight, indices, 0, shape=call.shape)


@translates("aten::index_select", "aten::index_select_copy")
def index_select(call: Call, x: Value, dim: int, index: Value) -> Value:
    if not x.ndim:
        return x
    index = call.reshape(index, [-1], shape=("n",)) if not index.ndim else index
    return call.gather(x, index, dim % x.ndim, shape=call.shape)


@translates("aten::gather")
def gather(call: Call, x: Value, dim: int, index: Value, *, sparse_grad: bool = False) -> Value:
    if 0 in index.shape:  # type: ignore[operator]
        return call.full(call.dims(index), 0, x.dtype, shape=call.shape)
    if not index.ndim:
        made = call.op("GatherElements", *_raised(call, x, call.cast(index, INT64)), axis=0, shape=(1,))
        return call.reshape(made, [], shape=())
    if not x.ndim:
        x = call.reshape(x, [1])
    return call.op("GatherElements", x, call.cast(index, INT64), axis=dim, shape=call.shape)


@translates("aten::take")
def take(call: Call, x: Value, index: Value) -> Value:
    return call.gather(call.reshape(x, [-1], shape=("n",)), index, 0, shape=call.shape)


@translates("aten::take_along_dim")
def take_along_dim(call: Call, x: Value, index: Value, dim: int | None = None) -> Value:
    if dim is None:
        x, index, dim = call.reshape(x, [-1], shape=("n",)), call.reshape(index, [-1], shape=("m",)), 0
    dim %= x.ndim
    sizes = [1 if d == dim else s for d, s in enumerate(call.dims(index))]
    other = [1 if d == dim else s for d, s in enumerate(call.dims(x))]
    x = call.op("Expand", x, call.ints(sizes), shape=x.shape)
    index = call.op("Expand", index, call.ints(other), shape=index.shape)
    return call.op("GatherElements", x, call.cast(index, INT64), axis=dim, dtype=x.dtype, shape=call.shape)


@translates("aten::nonzero", "aten::argwhere")
def nonzero(call: Call, x: Value) -> Value:
    if not x.ndim:  # a row without coordinates, or none
        rows = call.transpose(call.op("NonZero", call.reshape(x, [1]), shape=(1, "n")), [1, 0])
        return call.slice(rows, 1, 0, 0)
    return call.transpose(call.op("NonZero", x, shape=(x.ndim, "n")), [1, 0])


@translates("aten::masked_select")
def masked_select(call: Call, x: Value, mask: Value) -> Value:
    """The elements, in order, at which a mask (broadcast with them) is True."""
    x, mask = _together(call, x, mask)
    return call.out("Compress", call.reshape(x, [-1], shape=("n",)), call.reshape(mask, [-1], shape=("n",)), axis=0)


def _together(call: Call, x: Value, mask: Value) -> tuple[Value, Value]:
    if x.shape == mask.shape:
        return x, mask
    return (
        call.op("Expand", x, call.shape_vector(mask), shape=None),
        call.op("Expand", mask, call.shape_vector(x), shape=None),
    )


@translates("aten::masked_scatter")
def masked_scatter(call: Call, x: Value, mask: Value, source: Value) -> Value:
    if not x.ndim:
        made = masked_scatter(call, *_raised(call, x, mask, source))
        return call.reshape(made, [])
    if mask.shape != x.shape:
        x, mask = _together(call, x, mask)
        x.shape = mask.shape = call.shape
    places = call.transpose(call.op("NonZero", mask, shape=(x.ndim, "n")), [1, 0])
    count = call.slice(call.op("Shape", places), 0, 0, 1)
    flat = call.reshape(source, [-1], shape=("n",))
    taken = call.op("Slice", flat, call.ints([0]), count, call.ints([0]))
    return call.op("ScatterND", x, places, taken, shape=x.shape)


# ***** index and index_put *****


def _masks_apart(call: Call, x: Value, indices: Sequence[Value | None]) -> list[Value | None]:
    """Indices with those of its True elements in the place of each mask."""
    made: list[Value | None] = []
    for index in indices:
        if index is None or index.dtype not in (rushlight.bool, rushlight.uint8):
            made.append(index)
            continue
        places = call.op("NonZero", index, shape=(index.ndim, "n"))
        for d in range(index.ndim):
            made.append(call.gather(places, call.const(d, INT64), 0, shape=("n",)))
    return made + [None] * (x.ndim - len(made))


def _joined(call: Call, x: Value, indices: Sequence[Value | None]) -> tuple[list[int], Value, int]:
    """(indexed dims, their indices as one vector of coordinates in the last dim, dims of an index)."""
    dims = [d for d, i in enumerate(indices) if i is not None]
    given = [call.cast(i, INT64) for i in indices if i is not None]
    rank = max(i.ndim for i in given)
    fixed = [_wrapped(call, i, call.dim(x, d)) for i, d in zip(given, dims, strict=True)]
    if len({i.shape for i in fixed}) > 1 or any(type(s) is not int for s in fixed[0].shape or ()) and len(fixed) > 1:
        whole = fixed[0]
        for other in fixed[1:]:
            whole = call.op("Add", whole, call.op("Mul", other, call.const(0, INT64)), shape=None)
        shape = call.shape_vector(_ranked(whole, rank))
        fixed = [call.op("Expand", i, shape, shape=tuple(f"i{n}" for n in range(rank))) for i in fixed]
    return dims, call.concat([call.unsqueeze(i, [rank]) for i in fixed], rank), rank


def _ranked(x: Value, rank: int) -> Value:
    x.shape = x.shape or tuple(f"i{n}" for n in range(rank))
    return x


def _wrapped(call: Call, index: Value, size: Any) -> Value:
    """Indices that count from the end as others; known ones are left as they are where none is negative."""
    if index.const is not None:
        if not (index.const < 0).any():
            return index
    length = call.scalar(size, INT64)
    negative = call.op("Less", index, call.const(0, INT64))
    return call.op("Where", negative, call.op("Add", index, length), index, dtype=INT64, shape=index.shape)


def _lone(indices: Sequence[Value | None]) -> int | None:
    """The only dim that is indexed; None where there are several."""
    dims = [d for d, i in enumerate(indices) if i is not None]
    return dims[0] if len(dims) == 1 else None


@translates("aten::index.Tensor", "aten::_unsafe_index.Tensor")
def index(call: Call, x: Value, indices: Sequence[Value | None]) -> Value:
    indices = _masks_apart(call, x, indices)
    lone = _lone(indices)
    if lone is not None:
        return call.gather(x, indices[lone], lone, shape=call.shape)  # type: ignore[arg-type]
    if all(i is None for i in indices):
        return x
    dims, places, rank = _joined(call, x, indices)
    rest = [d for d in range(x.ndim) if d not in dims]
    made = call.op("GatherND", call.transpose(x, [*dims, *rest]), places)
    if dims[0] == 0 or dims != list(range(dims[0], dims[-1] + 1)):
        made.shape = call.shape
        return made  # dims of indices come first, as they do where other dims lie between
    before = dims[0]
    lead = list(range(rank, rank + before))
    return call.transpose(made, [*lead, *range(rank), *range(rank + before, rank + len(rest))])


@translates("aten::index_put", "aten::_unsafe_index_put")
def index_put(
    call: Call, x: Value, indices: Sequence[Value | None], values: Value, accumulate: bool = False, *_: Any
) -> Value:
    values = call.cast(values, x.dtype)
    masks = [i for i in indices if i is not None and i.dtype in (rushlight.bool, rushlight.uint8)]
    if len(masks) == 1 and masks[0].ndim == x.ndim and not values.ndim and not accumulate:
        return call.op("Where", call.cast(masks[0], rushlight.bool), values, x, dtype=x.dtype, shape=x.shape)
    indices = _masks_apart(call, x, indices)
    dims, places, rank = _joined(call, x, indices)
    rest = [d for d in range(x.ndim) if d not in dims]
    order = [*dims, *rest]
    moved = call.transpose(x, order)
    lead = [call.dim(places, d) for d in range(rank)]
    others = [call.dim(x, d) for d in rest]
    grouped = dims == list(range(dims[0], dims[-1] + 1))
    if grouped and dims[0]:
        # Values have the dims of indices where those stood.
        before = dims[0]
        sizes = [*others[:before], *lead, *others[before:]]
        wide = call.expand(values, sizes, shape=tuple(f"v{n}" for n in range(len(sizes))))
        values = call.transpose(
            wide, [*range(before, before + rank), *range(before), *range(before + rank, len(sizes))]
        )
    else:
        values = call.expand(values, [*lead, *others], shape=tuple(f"v{n}" for n in range(rank + len(rest))))
    made = call.op("ScatterND", moved, places, values, reduction="add" if accumulate else None, shape=moved.shape)
    return call.transpose(made, [order.index(d) for d in range(x.ndim)])


# ***** scatter *****


def _raised(call: Call, *tensors: Value) -> list[Value]:
    """Tensors without dims as vectors."""
    return [t if t.ndim else call.reshape(t, [1]) for t in tensors]


def _scattered(call: Call, x: Value, dim: int, index_: Value, source: Value, reduction: str | None) -> Value:
    if not x.ndim:
        vector, places, values = _raised(call, x, index_, source)
        made = _scattered(call, vector, 0, places, values, reduction)
        return call.reshape(made, [])
    if 0 in (index_.shape or ()):
        return x
    source = call.cast(source, x.dtype)
    if source.shape != index_.shape:
        for d, (have, want) in enumerate(zip(source.shape or (), index_.shape or (), strict=False)):
            if have != want:
                source = call.slice(
                    source, d, 0, call.dim(index_, d), shape=index_.shape if d + 1 == x.ndim else source.shape
                )
    flags = {"reduction": reduction} if reduction else {}
    return call.op("ScatterElements", x, call.cast(index_, INT64), source, axis=dim, shape=x.shape, **flags)


_REDUCTIONS = {"add": "add", "multiply": "mul", "sum": "add", "prod": "mul", "amax": "max", "amin": "min"}


@translates(
    "aten::scatter.src",
    "aten::scatter.reduce",
    "aten::scatter_add",
    "aten::scatter.value",
    "aten::scatter.value_reduce",
)
def scatter(call: Call, x: Value, dim: int, index_: Value, source: Any, *, reduce: str | None = None) -> Value:
    if not isinstance(source, Value) or source.number or (not source.ndim and index_.ndim):
        value = call.scalar(source, x.dtype)
        source = call.expand(value, call.dims(index_), shape=index_.shape)
    reduction = "add" if call.name == "aten::scatter_add" else _REDUCTIONS[reduce] if reduce else None
    return _scattered(call, x, dim, index_, source, reduction)


@translates("aten::scatter_reduce.two")
def scatter_reduce(
    call: Call, x: Value, dim: int, index_: Value, source: Value, reduce: str, *, include_self: bool = True
) -> Value:
    if not include_self:
        x = _without_self(call, x, dim, index_, source, reduce)
    if reduce == "mean":
        one = call.full(call.dims(x), 1 if include_self else 0, x.dtype, shape=x.shape)
        ones = call.full(call.dims(index_), 1, x.dtype, shape=index_.shape)
        count = _scattered(call, one, dim, index_, ones, "add")
        if not include_self:
            count = call.op("Max", count, call.const(1, x.dtype), shape=x.shape)
        total = _scattered(call, x, dim, index_, source, "add")
        if not x.dtype.is_floating_point:
            return call.op("Div", call.op("Sub", total, call.op("Mod", total, count)), count, shape=x.shape)
        return call.op("Div", total, count, shape=x.shape)
    if reduce in ("amax", "amin"):
        call.need(18)
    return _scattered(call, x, dim, index_, source, _REDUCTIONS[reduce])


def _without_self(call: Call, x: Value, dim: int, index_: Value, source: Value, reduce: str) -> Value:
    """The neutral number of a reduction at the places that it reaches."""
    if x.dtype.is_floating_point:
        low, high = -float("inf"), float("inf")
    else:
        limits = rushlight.iinfo(x.dtype)
        low, high = limits.min, limits.max
    start = {"sum": 0, "mean": 0, "prod": 1, "amax": low, "amin": high}[reduce]
    neutral = call.full(call.dims(index_), start, x.dtype, shape=index_.shape)
    return _scattered(call, x, dim, index_, neutral, None)


@translates("aten::index_add")
def index_add(call: Call, x: Value, dim: int, index_: Value, source: Value, *, alpha: Any = 1) -> Value:
    source = source if alpha == 1 else call.op("Mul", source, call.scalar(alpha, x.dtype), shape=source.shape)
    return _along(call, x, dim, index_, source, "add")


@translates("aten::index_copy")
def index_copy(call: Call, x: Value, dim: int, index_: Value, source: Value) -> Value:
    return _along(call, x, dim, index_, source, None)


@translates("aten::index_fill.int_Scalar", "aten::index_fill.int_Tensor")
def index_fill(call: Call, x: Value, dim: int, index_: Value, value: Any) -> Value:
    return _along(call, x, dim, index_, call.scalar(value, x.dtype), None)


def _along(call: Call, x: Value, dim: int, index_: Value, source: Value, reduction: str | None) -> Value:
    """Slices of a source at indices of one dim."""
    if not x.ndim:
        index_, source = _raised(call, index_, source)
        return _scattered(call, x, 0, index_, source, reduction)
    dim %= x.ndim
    index_ = index_ if index_.ndim else call.reshape(index_, [1])
    sizes = [call.dim(index_, 0) if d == dim else s for d, s in enumerate(call.dims(x))]
    shape = tuple([(index_.shape or ("n",))[0] if d == dim else s for d, s in enumerate(x.shape or ())])
    wide = call.unsqueeze(call.cast(index_, INT64), [d for d in range(x.ndim) if d != dim])
    wide = _wrapped(call, wide, call.dim(x, dim))
    return _scattered(
        call, x, dim, call.expand(wide, sizes, shape=shape), call.expand(source, sizes, shape=shape), reduction
    )


@translates("aten::put")
def put(call: Call, x: Value, index_: Value, source: Value, accumulate: bool = False) -> Value:
    flat, places, values = (call.reshape(t, [-1], shape=("n",)) for t in (x, index_, source))
    flags = {"reduction": "add"} if accumulate else {}
    made = call.op("ScatterElements", flat, places, values, axis=0, shape=("n",), **flags)
    return call.reshape(made, call.dims(x), shape=x.shape)


@translates("aten::slice_scatter")
def slice_scatter(
    call: Call, x: Value, source: Value, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1
) -> Value:
    """The source at a range of indices of one dim."""
    dim %= x.ndim
    source = call.cast(source, x.dtype)
    size = call.dim(x, dim)
    start, end = 0 if start is None else start, END if end is None else end
    whole = isinstance(start, int) and start == 0 and isinstance(end, int) and end >= END and step == 1
    if whole:
        return call.expand(source, call.shape_vector(x), shape=x.shape) if source.shape != x.shape else source
    every = call.op("Range", call.const(0, INT64), call.scalar(size, INT64), call.const(1, INT64), shape=(f"{size}",))
    picked = call.slice(every, 0, start, end, step, shape=("n",))
    return _along(call, x, dim, picked, source, None)


@translates("aten::select_scatter")
def select_scatter(call: Call, x: Value, source: Value, dim: int, index_: Any) -> Value:
    dim %= x.ndim
    return _along(call, x, dim, call.vector(index_, INT64), call.unsqueeze(source, [dim]), None)


@translates("aten::diagonal_scatter")
def diagonal_scatter(call: Call, x: Value, source: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    a, b = dim1 % x.ndim, dim2 % x.ndim
    rest = [d for d in range(x.ndim) if d not in (a, b)]
    count = (source.shape or ())[-1]
    if not isinstance(count, int):
        raise call.refuse("a diagonal of symbolic size")
    i = np.arange(count, dtype=np.int64)
    places = np.stack([i + max(-offset, 0), i + max(offset, 0)], axis=1)
    order = [a, b, *rest]
    values = call.transpose(source, [source.ndim - 1, *range(source.ndim - 1)])
    made = call.op("ScatterND", call.transpose(x, order), call.array(places), values)
    made.shape = tuple([(x.shape or ())[d] for d in order])
    return call.transpose(made, [order.index(d) for d in range(x.ndim)])


@translates("aten::bucketize.Tensor", "aten::searchsorted.Tensor")
def bucketize(call: Call, first: Value, second: Value, *, out_int32: bool = False, right: bool = False, side: str | None = None,
              sorter: Value | None = None) -> Value:  # fmt: skip
    """How many boundaries lie below each element."""
    x, edges = (first, second) if "bucketize" in call.name else (second, first)
    if edges.ndim != 1 or sorter is not None:
        raise call.refuse("rows of boundaries, or a sorter,")
    right = right or side == "right"
    dtype = rushlight.promote_types(x.dtype, edges.dtype)
    x, edges = call.cast(x, dtype), call.cast(edges, dtype)
    below = call.op("LessOrEqual" if right else "Less", edges, call.unsqueeze(x, [x.ndim]), dtype=rushlight.bool)
    below.shape = (*(x.shape or ()), (edges.shape or ())[0])
    return call.cast(call.reduce("ReduceSum", call.cast(below, INT64), [-1]), call.dtype)


@translates("aten::repeat_interleave.self_Tensor", "aten::repeat_interleave.Tensor")
def repeat_interleave(
    call: Call, x: Value, repeats: Value | None = None, dim: int | None = None, *, output_size: Any = None
) -> Value:
    """Indices whose running sums of repeats lie below each place of the result."""
    if repeats is None:
        repeats, source = x, None
    else:
        source = x
    if source is not None and (dim is None or not source.ndim):
        source, dim = call.reshape(source, [-1], shape=("n",)), 0
    sums = call.op("CumSum", call.cast(repeats, INT64), call.const(0, INT64), shape=("n",))
    total = call.reduce("ReduceSum", call.cast(repeats, INT64), None)
    places = call.op("Range", call.const(0, INT64), total, call.const(1, INT64), shape=("m",))
    below = call.op("LessOrEqual", call.unsqueeze(sums, [1]), places, shape=("n", "m"))
    found = call.reduce("ReduceSum", call.cast(below, INT64), [0])
    if source is None:
        return found
    assert dim is not None
    return call.gather(source, found, dim % source.ndim, shape=call.shape)


@translates("aten::bincount")
def bincount(call: Call, x: Value, weights: Value | None = None, minlength: int = 0) -> Value:
    top = call.op("Add", call.reduce("ReduceMax", x, None), call.const(1, x.dtype))
    size = call.op("Max", call.cast(top, INT64), call.const(minlength, INT64))
    start = call.op(
        "ConstantOfShape", call.op("Unsqueeze", size, call.ints([0])), value=_zero(call.dtype), dtype=call.dtype
    )
    start.shape = ("n",)
    ones = call.full(call.dims(x), 1, call.dtype, shape=x.shape) if weights is None else weights
    return _scattered(call, start, 0, x, ones, "add")


def _zero(dtype: Any) -> Any:
    return np.zeros(1, numpy_dtype(dtype))


@translates(
    "aten::embedding_bag",
    "aten::embedding_bag.padding_idx",
    "aten::_embedding_bag",
    "aten::_embedding_bag_forward_only",
)
def embedding_bag(call: Call, weight: Value, indices: Value, offsets: Value, scale: bool = False, mode: int = 0, sparse: bool = False,
                  weights: Value | None = None, last: bool = False, padding: int | None = -1) -> list[Value]:  # fmt: skip
    """Rows of a table, reduced by bag: a table of which index lies in which bag; modes are sum, mean and max."""
    bags, count = call.dim(offsets, 0), call.dim(indices, 0)
    zero, one = call.const(0, INT64), call.const(1, INT64)
    bags_, count_ = call.scalar(bags, INT64), call.scalar(count, INT64)
    starts = call.cast(offsets, INT64)
    if last:
        bags_ = call.op("Sub", bags_, one)
        starts = call.slice(starts, 0, 0, -1)
    places = call.op("Range", zero, count_, one, shape=("n",))
    ends = call.concat([call.slice(starts, 0, 1, END), call.op("Reshape", count_, call.ints([1]))], 0)
    below = call.op("GreaterOrEqual", places, call.op("Unsqueeze", starts, call.ints([1])))
    inside = call.op("And", below, call.op("Less", places, call.op("Unsqueeze", ends, call.ints([1]))))
    if padding is not None and padding < 0 and "padding_idx" in call.name:
        padding += (weight.shape or ())[0]  # type: ignore[operator]
    if padding is not None and padding >= 0:
        inside = call.op("And", inside, call.op("Not", call.op("Equal", indices, call.const(padding, indices.dtype))))
    rows = call.gather(weight, indices, 0, shape=("n", (weight.shape or ())[1]))
    if weights is not None:
        rows = call.op("Mul", rows, call.unsqueeze(weights, [1]), shape=rows.shape)
    results = [(call.results[0][0], call.results[0][1])]
    if mode == 2:
        many = call.op(
            "Where",
            call.op("Unsqueeze", inside, call.ints([2])),
            call.unsqueeze(rows, [0]),
            call.const(-float("inf"), rows.dtype),
            dtype=rows.dtype,
        )
        many.shape = ("b", "n", (weight.shape or ())[1])
        made = call.reduce("ReduceMax", many, [1])
        made = call.op(
            "Where", call.op("IsInf", made), call.const(0, rows.dtype), made, dtype=rows.dtype, shape=results[0][1]
        )
    else:
        table = call.cast(inside, rows.dtype)
        made = call.op("MatMul", table, rows, shape=results[0][1])
        if mode == 1:
            table.shape = ("b", "n")
            counts = call.op("Max", call.reduce("ReduceSum", table, [1], True), call.const(1, rows.dtype))
            made = call.op("Div", made, counts, shape=results[0][1])
    empty = call.full([0], 0, INT64)
    return [made, empty, empty, empty]
