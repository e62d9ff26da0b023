"""Reductions over dims, and running sums."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import rushlight
from rushlight.onnx.exporting.table import Call, translates
from rushlight.onnx.exporting.values import Value

Dims = Sequence[int] | int | None


def _axes(dim: Dims) -> list[int] | None:
    """Dims as a list; None for all (an empty list says so too)."""
    if dim is None:
        return None
    return [dim] if isinstance(dim, int) else list(dim) or None


def counted(call: Call, x: Value, axes: Sequence[int] | None) -> Any:
    """How many elements are reduced to one: a number, or a symbolic one."""
    return call.product([call.dim(x, d) for d in (range(x.ndim) if axes is None else axes)])


def _reduced(call: Call, kind: str, x: Value, dim: Dims, keepdim: bool) -> Value:
    return call.reduce(kind, x, _axes(dim), keepdim)


@translates("aten::sum", "aten::sum.dim_IntList")
def total(call: Call, x: Value, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None) -> Value:
    return _reduced(call, "ReduceSum", call.cast(x, call.dtype), dim, keepdim)


@translates("aten::nansum")
def nansum(call: Call, x: Value, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None) -> Value:
    x = call.cast(x, call.dtype)
    if x.dtype.is_floating_point:
        x = call.op("Where", call.op("IsNaN", x), call.const(0.0, x.dtype), x, dtype=x.dtype, shape=x.shape)
    return _reduced(call, "ReduceSum", x, dim, keepdim)


@translates("aten::mean", "aten::mean.dim")
def mean(call: Call, x: Value, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None) -> Value:
    return _reduced(call, "ReduceMean", call.cast(x, call.dtype), dim, keepdim)


@translates("aten::prod", "aten::prod.dim_int")
def prod(call: Call, x: Value, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None) -> Value:
    return _reduced(call, "ReduceProd", call.cast(x, call.dtype), dim, keepdim)


@translates("aten::amax", "aten::max")
def amax(call: Call, x: Value, dim: Dims = None, keepdim: bool = False) -> Value:
    return _extreme(call, "ReduceMax", x, dim, keepdim)


@translates("aten::amin", "aten::min")
def amin(call: Call, x: Value, dim: Dims = None, keepdim: bool = False) -> Value:
    return _extreme(call, "ReduceMin", x, dim, keepdim)


def _extreme(call: Call, kind: str, x: Value, dim: Dims, keepdim: bool) -> Value:
    if x.dtype == rushlight.bool:
        return call.cast(_reduced(call, kind, call.cast(x, rushlight.int32), dim, keepdim), rushlight.bool)
    return _reduced(call, kind, x, dim, keepdim)


@translates("aten::aminmax")
def aminmax(call: Call, x: Value, *, dim: int | None = None, keepdim: bool = False) -> list[Value]:
    return [_extreme(call, kind, x, dim, keepdim) for kind in ("ReduceMin", "ReduceMax")]


@translates("aten::max.dim")
def max_dim(call: Call, x: Value, dim: int, keepdim: bool = False) -> list[Value]:
    return _with_places(call, "Max", x, dim, keepdim)


@translates("aten::min.dim")
def min_dim(call: Call, x: Value, dim: int, keepdim: bool = False) -> list[Value]:
    return _with_places(call, "Min", x, dim, keepdim)


def _with_places(call: Call, kind: str, x: Value, dim: int, keepdim: bool) -> list[Value]:
    if not x.ndim:
        return [x, call.const(0, rushlight.int64)]
    return [_extreme(call, f"Reduce{kind}", x, dim, keepdim), _place(call, f"Arg{kind}", x, dim, keepdim)]


def _place(call: Call, kind: str, x: Value, dim: int, keepdim: bool) -> Value:
    if x.dtype == rushlight.bool:
        x = call.cast(x, rushlight.int32)
    return call.op(kind, x, axis=dim, keepdims=int(keepdim))


@translates("aten::argmax", "aten::argmin")
def argmax(call: Call, x: Value, dim: int | None = None, keepdim: bool = False) -> Value:
    kind = "ArgMax" if "max" in call.name else "ArgMin"
    if dim is None or not x.ndim:
        made = _place(call, kind, call.reshape(x, [-1]), 0, False)
        return call.reshape(made, [1] * x.ndim) if keepdim else made
    return _place(call, kind, x, dim, keepdim)


@translates("aten::any", "aten::any.dim", "aten::any.dims")
def any_(call: Call, x: Value, dim: Dims = None, keepdim: bool = False) -> Value:
    truth = call.cast(call.cast(x, rushlight.bool), rushlight.int32)
    return call.cast(_reduced(call, "ReduceMax", truth, dim, keepdim), call.dtype)


@translates("aten::all", "aten::all.dim", "aten::all.dims")
def all_(call: Call, x: Value, dim: Dims = None, keepdim: bool = False) -> Value:
    truth = call.cast(call.cast(x, rushlight.bool), rushlight.int32)
    return call.cast(_reduced(call, "ReduceMin", truth, dim, keepdim), call.dtype)


@translates("aten::count_nonzero", "aten::count_nonzero.dim_IntList")
def count_nonzero(call: Call, x: Value, dim: Dims = None) -> Value:
    return _reduced(call, "ReduceSum", call.cast(call.cast(x, rushlight.bool), rushlight.int64), dim, False)


@translates("aten::logsumexp")
def logsumexp(call: Call, x: Value, dim: Dims, keepdim: bool = False) -> Value:
    return _reduced(call, "ReduceLogSumExp", call.cast(x, call.dtype), dim, keepdim)


# ***** moments *****


def moments(call: Call, x: Value, axes: Sequence[int] | None, correction: Any, keepdim: bool) -> tuple[Value, Value]:
    """(variance, mean)."""
    center = call.reduce("ReduceMean", x, axes, True)
    spread = call.op("Sub", x, center, shape=x.shape)
    squares = call.op("Mul", spread, spread, shape=x.shape)
    mean_ = call.reduce("ReduceMean", x, axes, keepdim)
    if correction == 0:
        return call.reduce("ReduceMean", squares, axes, keepdim), mean_
    count = counted(call, x, axes)
    summed = call.reduce("ReduceSum", squares, axes, keepdim)
    if isinstance(count, int):
        free = count - correction
        return call.op("Div", summed, call.const(max(free, 0), x.dtype), shape=summed.shape), mean_
    free_ = call.op("Sub", call.scalar(count, x.dtype), call.const(correction, x.dtype))
    return call.op("Div", summed, call.op("Max", free_, call.const(0, x.dtype)), shape=summed.shape), mean_


def _corrected(args: tuple[Any, ...], correction: Any) -> tuple[Dims, Any, bool]:
    """(dim, correction, keepdim) of the overloads with `unbiased` and of those with `correction`."""
    dim: Dims = None
    given = list(args)
    if given and isinstance(given[0], bool):  # (unbiased)
        return None, int(given[0]), False
    if given:
        dim = given.pop(0)
    if given and isinstance(given[0], bool):  # (dim, unbiased, keepdim)
        return dim, int(given[0]), bool(given[1]) if len(given) > 1 else False
    return dim, 1 if correction is None else correction, False


def _moments_of(call: Call, x: Value, args: tuple[Any, ...], correction: Any, keepdim: bool) -> tuple[Value, Value]:
    dim, correction, kept = _corrected(args, correction)
    return moments(call, call.cast(x, call.dtype), _axes(dim), correction, kept or keepdim)


_OVERLOADS = ("", ".dim", ".correction")


@translates(*[f"aten::var{o}" for o in _OVERLOADS])
def var(call: Call, x: Value, *args: Any, correction: Any = None, keepdim: bool = False) -> Value:
    return _moments_of(call, x, args, correction, keepdim)[0]


@translates(*[f"aten::std{o}" for o in _OVERLOADS])
def std(call: Call, x: Value, *args: Any, correction: Any = None, keepdim: bool = False) -> Value:
    return call.op("Sqrt", _moments_of(call, x, args, correction, keepdim)[0])


@translates(*[f"aten::var_mean{o}" for o in _OVERLOADS])
def var_mean(call: Call, x: Value, *args: Any, correction: Any = None, keepdim: bool = False) -> list[Value]:
    return list(_moments_of(call, x, args, correction, keepdim))


@translates(*[f"aten::std_mean{o}" for o in _OVERLOADS])
def std_mean(call: Call, x: Value, *args: Any, correction: Any = None, keepdim: bool = False) -> list[Value]:
    spread, center = _moments_of(call, x, args, correction, keepdim)
    return [call.op("Sqrt", spread, shape=spread.shape), center]


# ***** norms *****


@translates(
    "aten::linalg_vector_norm",
    "aten::norm.ScalarOpt_dim",
    "aten::norm.Scalar",
    "aten::norm.ScalarOpt_dim_dtype",
    "aten::norm.ScalarOpt_dtype",
)
def vector_norm(
    call: Call, x: Value, p: Any = 2, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None
) -> Value:
    x, p = call.cast(x, call.dtype), 2.0 if p is None else float(p)
    if p in (1.0, 2.0):
        return _reduced(call, "ReduceL2" if p == 2 else "ReduceL1", x, dim, keepdim)
    size = call.op("Abs", x, shape=x.shape)
    if math.isinf(p):
        return _reduced(call, "ReduceMax" if p > 0 else "ReduceMin", size, dim, keepdim)
    if p == 0:
        return _reduced(call, "ReduceSum", call.cast(call.cast(x, rushlight.bool), x.dtype), dim, keepdim)
    powers = call.op("Pow", size, call.const(p, x.dtype), shape=x.shape)
    return call.out("Pow", _reduced(call, "ReduceSum", powers, dim, keepdim), call.const(1 / p, x.dtype))


@translates("aten::dist")
def dist(call: Call, x: Value, other: Value, p: Any = 2) -> Value:
    return vector_norm(call, call.op("Sub", x, other, shape=x.shape), p)


# ***** running *****


@translates("aten::cumsum")
def cumsum(call: Call, x: Value, dim: int, *, dtype: Any = None) -> Value:
    x = call.cast(x, call.dtype)
    if not x.ndim:
        return x
    return call.out("CumSum", x, call.const(dim, rushlight.int64))


@translates("aten::logcumsumexp")
def logcumsumexp(call: Call, x: Value, dim: int) -> Value:
    if not x.ndim:
        return x
    top = call.reduce("ReduceMax", x, [dim], True)
    sums = call.op("CumSum", call.op("Exp", call.op("Sub", x, top)), call.const(dim, rushlight.int64))
    return call.out("Add", call.op("Log", sums), top)


@translates("aten::cumprod")
def cumprod(call: Call, x: Value, dim: int, *, dtype: Any = None) -> Value:
    """Products of the elements on and below a triangle: CumProd came with opset 24."""
    x = call.cast(x, call.dtype)
    if not x.ndim:
        return x
    size = call.dim(x, dim)
    last = call.transpose(x, [d for d in range(x.ndim) if d != dim % x.ndim] + [dim % x.ndim])
    steps = call.op(
        "Range", call.const(0, rushlight.int64), call.scalar(size, rushlight.int64), call.const(1, rushlight.int64)
    )
    keep = call.op("LessOrEqual", call.unsqueeze(steps, [0]), call.unsqueeze(steps, [1]))
    many = call.op("Where", keep, call.unsqueeze(last, [x.ndim - 1]), call.const(1, x.dtype), dtype=x.dtype)
    many.shape = (*(last.shape or ())[:-1], "n", "n")
    products = call.reduce("ReduceProd", many, [-1])
    back = list(range(x.ndim - 1))
    back.insert(dim % x.ndim, x.ndim - 1)
    products.shape = last.shape
    return call.transpose(products, back)


@translates("aten::diff")
def diff(
    call: Call, x: Value, n: int = 1, dim: int = -1, prepend: Value | None = None, append: Value | None = None
) -> Value:
    parts = [p for p in (prepend, x, append) if p is not None]
    x = call.concat(parts, dim)
    for _ in range(n):
        later = call.slice(x, dim, 1, 2**63 - 1)
        earlier = call.slice(x, dim, 0, -1)
        x = call.op("Xor" if x.dtype == rushlight.bool else "Sub", later, earlier)
    return x


__all__ = ["counted", "moments"]


@translates("aten::renorm")
def renorm(call: Call, x: Value, p: Any, dim: int, most: Any) -> Value:
    """Slices whose norm is above a limit, scaled to it."""
    axes = [d for d in range(x.ndim) if d != dim % x.ndim]
    if p == 2:
        size = call.reduce("ReduceL2", x, axes, True)
    elif math.isinf(p):
        size = call.reduce("ReduceMax", call.op("Abs", x, shape=x.shape), axes, True)
    else:
        powers = call.op("Pow", call.op("Abs", x), call.const(float(p), x.dtype), shape=x.shape)
        size = call.op("Pow", call.reduce("ReduceSum", powers, axes, True), call.const(1 / float(p), x.dtype))
    limit = call.const(most, x.dtype)
    scale = call.op("Div", limit, call.op("Add", size, call.const(1e-7, x.dtype)))
    factor = call.op("Where", call.op("Greater", size, limit), scale, call.const(1.0, x.dtype), dtype=x.dtype)
    return call.out("Mul", x, factor)


@translates("aten::cummax", "aten::cummin")
def cummax(call: Call, x: Value, dim: int) -> list[Value]:
    """The greatest of the elements on and before each, and the last place where it stands."""
    if not x.ndim:
        return [x, call.const(0, rushlight.int64)]
    kind = "max" if "max" in call.name else "min"
    if x.dtype.is_floating_point:
        fill: Any = -math.inf if kind == "max" else math.inf
    else:
        limits = rushlight.iinfo(x.dtype) if x.dtype != rushlight.bool else rushlight.iinfo(rushlight.int32)
        fill = limits.min if kind == "max" else limits.max
    wide = call.cast(x, rushlight.int32) if x.dtype == rushlight.bool else x
    axis = dim % x.ndim
    last = call.transpose(wide, [d for d in range(x.ndim) if d != axis] + [axis])
    size = call.scalar(call.dim(x, axis), rushlight.int64)
    steps = call.op("Range", call.const(0, rushlight.int64), size, call.const(1, rushlight.int64), shape=("n",))
    keep = call.op("LessOrEqual", call.unsqueeze(steps, [0]), call.unsqueeze(steps, [1]))
    many = call.op("Where", keep, call.unsqueeze(last, [x.ndim - 1]), call.const(fill, wide.dtype), dtype=wide.dtype)
    many.shape = (*(last.shape or ())[:-1], "n", "m")
    best = call.reduce(f"Reduce{kind.capitalize()}", many, [-1])
    places = call.op(f"Arg{kind.capitalize()}", many, axis=-1, keepdims=0, select_last_index=1)
    back = list(range(x.ndim - 1))
    back.insert(axis, x.ndim - 1)
    best.shape = places.shape = last.shape
    return [call.cast(call.transpose(best, back), x.dtype), call.transpose(places, back)]
