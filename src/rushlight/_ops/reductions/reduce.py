"""Reductions and scans: several elements become one, or a running one."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from rushlight._base.errors import warn_user
from rushlight._ops.bodies import (
    HALF,
    accumulator,
    along,
    as_bool,
    as_float,
    check_norm_dtype,
    common,
    count_dtype,
    dims_of,
    finish,
    flat,
    format_of_all,
    given_dtype,
    in_order_of_input,
    isnan,
    narrow,
    not_implemented,
    pad_dim,
    reduce_dims,
    refuse,
    rounded,
    spread,
    take_slice,
    wide,
    wrap,
)
from rushlight._ops.elementwise.arithmetic import power
from rushlight._ops.table import operator
from rushlight._prims import build, prim
from rushlight._types.dtype import BOOL, COMPLEX128, FLOAT64, INT64, DType
from rushlight._types.layout import numel
from rushlight._types.symbols import as_double

__all__: list[str] = []

INF = math.inf


def _by_dim(name: str) -> Callable[..., str]:
    """`SumBackward0` for the whole, `SumBackward1` along dims."""
    return lambda **arguments: f"{name}Backward{int(arguments.get('dim') is not None)}"


def count_of(x: Any, dims: Any) -> int:
    """The number of elements that a reduction over `dims` combines."""
    return numel([x.shape[d] for d in dims])


# ***** sums *****


@operator(
    "sum(Tensor input, int[1]? dim=None, bool keepdim=False, *, dtype? dtype=None) -> Tensor",
    out="dim",
    tags=("in_target",),
    node=_by_dim("Sum"),
)
def sum_(x: Any, dim: Any, keepdim: bool, *, dtype: DType | None) -> Any:
    """Sum of all elements, or along dims; integers and bool are summed in int64."""
    dims, result = dims_of(x, dim), count_dtype(x, dtype)
    if result is BOOL:
        return finish(reduce_dims("amax", as_bool(wide(x)), dims), x.shape, dims, keepdim)
    return narrow(finish(reduce_dims("sum", wide(build.convert(x, result)), dims), x.shape, dims, keepdim), result)


@operator(
    "nansum(Tensor input, int[1]? dim=None, bool keepdim=False, *, dtype? dtype=None) -> Tensor",
    out=True,
    tags=("in_target",),
)
def nansum(x: Any, dim: Any, keepdim: bool, *, dtype: DType | None) -> Any:
    """Sum in which NaN counts as 0."""
    refuse(x, "nansum", "c")
    if x.dtype.is_floating_point:
        x = build.select(isnan(wide(x)), 0, x)
    return sum_(x, dim, keepdim, dtype=dtype)


def _mean_dtype(name: str, x: Any, dtype: DType | None) -> DType:
    result = dtype or x.dtype
    if not (result.is_floating_point or result.is_complex):
        what = "Optional" if dtype else "Input"
        raise RuntimeError(
            f"{name}(): could not infer output dtype. {what} dtype must be either a floating point or complex dtype. Got: {result.scalar}; "
            f"convert first, for example with .float(), or give dtype="
        )
    return result


@operator(
    "mean(Tensor input, int[1]? dim=None, bool keepdim=False, *, dtype? dtype=None) -> Tensor",
    out=True,
    node=_by_dim("Mean"),
)
def mean(x: Any, dim: Any, keepdim: bool, *, dtype: DType | None) -> Any:
    """sum(x) / n over all elements, or along dims; NaN for no elements."""
    result, dims = _mean_dtype("mean", x, dtype), dims_of(x, dim)
    total = reduce_dims("sum", wide(build.convert(x, result)), dims)
    return narrow(finish(total / as_double(count_of(x, dims)), x.shape, dims, keepdim), result)


@operator(
    "nanmean(Tensor input, int[1]? dim=None, bool keepdim=False, *, dtype? dtype=None) -> Tensor",
    out=True,
    node="DivBackward0",
)
def nanmean(x: Any, dim: Any, keepdim: bool, *, dtype: DType | None) -> Any:
    """sum(x) / n over the elements that are not NaN."""
    if not (x.dtype.is_floating_point or x.dtype.is_complex):
        raise RuntimeError(f"nanmean(): expected input to have floating point or complex dtype but got {x.dtype}")
    result, dims = dtype or x.dtype, dims_of(x, dim)
    x = wide(x)
    real = x.dtype.to_real()
    missing = isnan(x)
    count = reduce_dims("sum", build.convert(~missing, real), dims)
    total = reduce_dims("sum", build.select(missing, 0, x), dims)
    return narrow(finish(total / build.convert(count, x.dtype), x.shape, dims, keepdim), result)


@operator(
    "prod(Tensor input, int? dim=None, bool keepdim=False, *, dtype? dtype=None) -> Tensor",
    out="dim",
    tags=("in_target",),
    node=_by_dim("Prod"),
)
def prod(x: Any, dim: int | None, keepdim: bool, *, dtype: DType | None) -> Any:
    """Product of all elements, or along a dim; integers and bool are multiplied in int64."""
    dims, result = dims_of(x, dim), count_dtype(x, dtype)
    if result is BOOL:
        return finish(reduce_dims("amin", as_bool(wide(x)), dims), x.shape, dims, keepdim)
    return narrow(finish(reduce_dims("prod", wide(build.convert(x, result)), dims), x.shape, dims, keepdim), result)


@operator("count_nonzero(Tensor input, int[1]? dim=None) -> Tensor")
def count_nonzero(x: Any, dim: Any) -> Any:
    """The number of elements that are not 0."""
    return reduce_dims("sum", build.convert(as_bool(wide(x)), INT64), dims_of(x, dim))


@operator("trace(Tensor input) -> Tensor", out=False)
def trace(x: Any) -> Any:
    """sum over i of input[i, i]: the main diagonal of a matrix."""
    if len(x.shape) != 2:
        raise RuntimeError(f"trace: expected a matrix, but got tensor with dim {len(x.shape)}")
    result, columns = count_dtype(x, None), x.shape[1]
    kept = min(x.shape)
    flat = build.reshape(prim.slice(x, starts=(0, 0), stops=(kept, columns), steps=(1, 1)), (kept * columns,))
    diagonal = prim.slice(flat, starts=(0,), stops=(kept * columns,), steps=(columns + 1,))
    return narrow(prim.sum(wide(build.convert(diagonal, result)), dims=(0,)), result)


# ***** truth *****


def _truth(name: str, primitive: str, doc: str) -> None:
    def body(x: Any, dim: Any, keepdim: bool) -> Any:
        dims = dims_of(x, dim, empty_is_all=False)
        truth = finish(reduce_dims(primitive, as_bool(wide(x)), dims), x.shape, dims, keepdim)
        return build.convert(truth, x.dtype) if x.dtype.name == "uint8" else truth

    operator(f"{name}(Tensor input, int[1]? dim=None, bool keepdim=False) -> Tensor", out="truth", doc=doc)(body)


_truth("all", "amin", "x[0] and x[1] and ... over all elements (along dims); True for none.")
_truth("any", "amax", "x[0] or x[1] or ... over all elements (along dims); False for none.")

# ***** extremes *****


def _nonempty(name: str, x: Any, dims: Any, asked: bool) -> None:
    if numel(x.shape) != 0:
        return
    if not asked:
        raise RuntimeError(
            f"{name}(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim with the 'dim' argument."
        )
    for d in dims:
        if x.shape[d] == 0:
            raise IndexError(f"{name}(): Expected reduction dim {d} to have non-zero size.")


def _extreme(name: str, doc: str) -> None:
    def body(x: Any, dim: Any, keepdim: bool) -> Any:
        refuse(x, name, "c")
        dims = dims_of(x, dim)
        _nonempty(name, x, dims, dim not in (None, ()))
        return narrow(finish(reduce_dims(name, wide(x), dims), x.shape, dims, keepdim), x.dtype)

    operator(f"{name}(Tensor input, int[1] dim=[], bool keepdim=False) -> Tensor", out="exact", doc=doc)(body)


_extreme("amax", "max(x[0], x[1], ...) over all elements (along dims); equals share the gradient.")
_extreme("amin", "min(x[0], x[1], ...) over all elements (along dims); equals share the gradient.")


def _position(name: str, doc: str) -> None:
    def body(x: Any, dim: int | None, keepdim: bool) -> Any:
        return _arg(name, x, dim, keepdim)

    operator(f"{name}(Tensor input, int? dim=None, bool keepdim=False) -> Tensor", out="exact", doc=doc)(body)


def _arg(name: str, x: Any, dim: int | None, keepdim: bool) -> Any:
    """Index of the extreme along `dim`, or in the flattened input."""
    if dim is None:
        if numel(x.shape) == 0:
            raise IndexError(
                f"{name}(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim with the 'dim' argument."
            )
        index = getattr(prim, name)(flat(wide(x)), dim=0)
        return build.reshape(index, (1,) * len(x.shape)) if keepdim else index
    dims = dims_of(x, dim)
    _nonempty(name, x, dims, True)
    if not dims:
        return build.full((), 0, INT64)
    return finish(getattr(prim, name)(wide(x), dim=dims[0]), x.shape, dims, keepdim)


_position("argmax", "the first i with x[i] = max(x), over the flattened input or along dim; NaN counts as greatest.")
_position("argmin", "the first i with x[i] = min(x), over the flattened input or along dim; NaN counts as least.")


def _extreme_with_index(name: str, doc: str) -> None:
    """`max` and `min` along a dim.  The gradient goes to the one element that the index names."""
    public = name.removesuffix("_dim")

    def body(x: Any, dim: int, keepdim: bool) -> Any:
        refuse(x, public, "c")
        dims = dims_of(x, dim)
        _nonempty(public, x, dims, True)
        values = narrow(finish(reduce_dims(f"a{public}", wide(x), dims), x.shape, dims, keepdim), x.dtype)
        return values, _arg(f"arg{public}", x, dim, keepdim)

    declared = operator(
        f"{public}(Tensor input, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)",
        name=name,
        spaces=(),
        method=False,
        out="exact",
        doc=doc,
        node=f"{public.capitalize()}Backward0",
    )(body)

    def rule(cts: Any, outs: Any, x: Any, dim: int, keepdim: bool) -> Any:
        return _to_index(cts[0], outs[1], x, dim)

    declared.gradient(rule)


def _to_index(ct: Any, index: Any, x: Any, dim: int) -> Any:
    """`ct` at the index along dim, 0 elsewhere."""
    dims = dims_of(x, dim)
    if not dims:
        return ct
    position = along(x.shape, dims[0])
    here = prim.eq(position, spread(build.convert(index, position.dtype), x.shape, dims))
    return build.select(here, spread(ct, x.shape, dims), 0)


_extreme_with_index("max_dim", "(max(x), i with x[i] = max(x)) along dim.")
_extreme_with_index("min_dim", "(min(x), i with x[i] = min(x)) along dim.")


def shared_evenly(ct: Any, out: Any, x: Any) -> Any:
    """Elements equal to the result, one element of all, share the gradient evenly; those that are NaN if it is."""
    x, out, share = wide(x), build.broadcast_to(wide(out), x.shape), wide(ct)
    same = build.eq(x, out) | (isnan(x) & isnan(out))
    each = share / build.total(build.convert(same, share.dtype), range(len(x.shape)))
    return narrow(build.select(same, build.broadcast_to(each, x.shape), 0.0), ct.dtype)


def _whole_extreme(name: str, doc: str) -> None:
    public = name.removesuffix("_all")

    def body(x: Any) -> Any:
        refuse(x, public, "c")
        _nonempty(public, x, (), False)
        return narrow(reduce_dims(f"a{public}", wide(x), dims_of(x, None)), x.dtype)

    operator(
        f"{public}(Tensor input) -> Tensor",
        name=name,
        spaces=(),
        method=False,
        out=True,
        doc=doc,
        node=f"{public.capitalize()}Backward1",
    )(body).gradient(shared_evenly)


_whole_extreme("max_all", "max(x) over all elements.")
_whole_extreme("min_all", "min(x) over all elements.")


@operator("aminmax(Tensor input, *, int? dim=None, bool keepdim=False) -> (Tensor min, Tensor max)", out="exact")
def aminmax(x: Any, *, dim: int | None, keepdim: bool) -> Any:
    """(min(x), max(x)) over all elements, or along dim."""
    refuse(x, "aminmax", "c")
    dims = dims_of(x, dim)
    _nonempty("aminmax", x, dims, dim is not None)
    return tuple(
        narrow(finish(reduce_dims(n, wide(x), dims), x.shape, dims, keepdim), x.dtype) for n in ("amin", "amax")
    )


# ***** variance: two passes over what is reduced *****


def _correction(dim: Any, unbiased: bool, correction: float | None) -> tuple[Any, float]:
    """Resolve the forms `var(unbiased)`, `var(dim, unbiased, keepdim)` and `var(dim, correction=...)`."""
    if isinstance(dim, tuple) and len(dim) == 1 and isinstance(dim[0], bool):
        unbiased, dim = dim[0], None
    return dim, float(unbiased) if correction is None else float(correction)


def _moments(x: Any, dims: Any, correction: float) -> tuple[Any, Any]:
    """(variance, mean) without keepdim; the variance of complex numbers is the sum of those of their parts."""
    if x.dtype.is_complex:
        parts = [_moments(part, dims, correction) for part in (prim.real(x), prim.imag(x))]
        return parts[0][0] + parts[1][0], prim.complex(parts[0][1], parts[1][1])
    count = as_double(count_of(x, dims))
    middle = reduce_dims("sum", x, dims) / count
    apart = x - spread(middle, x.shape, dims)
    return reduce_dims("sum", apart * apart, dims) / max(0.0, count - correction), middle


def _float_only(name: str, x: Any) -> None:
    if not (x.dtype.is_floating_point or x.dtype.is_complex):
        raise RuntimeError(f"{name} only support floating point and complex dtypes")


def _slope(ct: Any, x: Any, middle: Any, dims: Any, correction: float) -> Any:
    """Gradient of the variance: 2 (x - mean) / (n - correction)."""
    count = as_double(count_of(x, dims))
    apart = x - spread(middle, x.shape, dims)
    # A division of values: one element and correction 1 give 0 * inf, which is NaN as in PyTorch, not a
    # ZeroDivisionError.
    scaled = spread(ct * 2.0, x.shape, dims) / (count - correction)
    return (build.complex_(scaled) if x.dtype.is_complex else scaled) * apart


def _spread_family() -> None:
    """Declare var, std, var_mean, std_mean."""
    signature = (
        "(Tensor input, int[1]? dim=None, bool unbiased=True, bool keepdim=False, *, float? correction=None) -> "
    )

    def declare(name: str, root: bool, both: bool) -> None:
        def body(x: Any, dim: Any, unbiased: bool, keepdim: bool, *, correction: float | None) -> Any:
            _float_only("std and var", x)
            dim, less = _correction(dim, unbiased, correction)
            dims = dims_of(x, dim)
            if count_of(x, dims) <= less:
                warn_user(
                    f"{name}(): degrees of freedom is <= 0. Correction should be strictly less than the reduction factor (input numel divided by output "
                    "numel)."
                )
            # In float64, as PyTorch: squares of float32 overflow from 2e19.
            variance, middle = _moments(build.convert(x, COMPLEX128 if x.dtype.is_complex else FLOAT64), dims, less)
            spread_ = prim.sqrt(variance) if root else variance
            result = narrow(finish(spread_, x.shape, dims, keepdim), x.dtype.to_real())
            if both:
                return result, narrow(finish(middle, x.shape, dims, keepdim), x.dtype), middle, spread_
            return result, middle, spread_

        variance = "sum((x - mean(x))^2) / (n - correction)"
        words = (f"sqrt({variance})", "standard deviation") if root else (variance, "variance")
        doc = (
            f"{words[0]}{' and mean(x)' if both else ''}, along dims: the {words[1]}{', and the mean' if both else ''}."
        )
        results = "(Tensor, Tensor)" if both else "Tensor"
        declared = operator(name + signature + results, doc=doc, out=not both)(body)

        def rule(
            cts: Any, outs: Any, x: Any, dim: Any, unbiased: bool, keepdim: bool, *, correction: float | None
        ) -> Any:
            dim, less = _correction(dim, unbiased, correction)
            dims, dtype = dims_of(x, dim), x.dtype
            x = wide(x)
            middle, spread_ = build.convert(outs[-2], x.dtype), build.convert(outs[-1], x.dtype.to_real())
            ct, ct_mean = cts if both else (cts, None)
            total = None
            if ct is not None:
                ct = build.reshape(wide(ct), spread_.shape)
                if root:
                    ct = build.select(build.eq(spread_, 0.0), 0.0, ct / (spread_ * 2.0))
                total = _slope(ct, x, middle, dims, less)
            if ct_mean is not None:
                share = spread(wide(ct_mean), x.shape, dims) / as_double(count_of(x, dims))
                total = share if total is None else total + share
            return narrow(total, dtype)

        declared.gradient(rule)

    for name, root, both in (
        ("var", False, False),
        ("std", True, False),
        ("var_mean", False, True),
        ("std_mean", True, True),
    ):
        declare(name, root, both)


_spread_family()

# ***** norms *****


def real_order(ord: Any) -> float:
    """The order of a norm; RuntimeError for a complex one."""
    if isinstance(ord, complex):
        raise RuntimeError(f"linalg.vector_norm: Expected a non-complex scalar as the order of norm, but found {ord}")
    return float(ord)


def powers(x: Any, ord: float, dims: Any) -> Any:
    """The norm over removed dims, for real or complex float x."""
    if ord == 2 and not x.dtype.is_complex:
        return prim.sqrt(reduce_dims("sum", x * x, dims)) if dims else prim.abs(x)
    size = prim.abs(x)
    if ord == INF:
        return reduce_dims("amax", size, dims)
    if ord == -INF:
        return reduce_dims("amin", size, dims)
    if ord == 0:
        return reduce_dims("sum", build.convert(build.ne(size, 0.0), size.dtype), dims)
    if ord == 1:
        return reduce_dims("sum", size, dims)
    if ord == 2:
        re, im = prim.real(x), prim.imag(x)
        return prim.sqrt(reduce_dims("sum", re * re + im * im, dims))
    total = reduce_dims("sum", prim.pow(size, build.full_like(size, ord)), dims)
    return prim.pow(total, build.full_like(total, 1.0 / ord))


def norm_slope(x: Any, norm: Any, ord: float, dims: Any, ct: Any, low: DType) -> Any:
    """ct times the derivative of the norm; 0 where the norm is 0 (norms of order >= 1 have a corner there).

    The steps are PyTorch's, and a half type `low` rounds every one of them.
    """
    rounded_low = lambda v: rounded(v, low)
    raised = lambda v, exponent: rounded_low(power(v, exponent, low))
    norm, ct = spread(rounded_low(norm), x.shape, dims), spread(ct, x.shape, dims)
    wrap_ = build.complex_ if x.dtype.is_complex else (lambda v: v)
    if ord == 0:
        return build.zeros_like(x)
    if ord == 1:
        return prim.sign(x) * wrap_(ct)
    if ord == 2:
        nothing = build.eq(norm, 0.0)
        if low not in HALF:  # one quotient for a row
            return x * wrap_(build.select(nothing, 0.0, ct / build.select(nothing, 1.0, norm)))
        return ct * rounded_low(build.select(nothing, 0.0, x / build.select(nothing, 1.0, norm)))
    size = prim.abs(x)
    if ord in (INF, -INF):
        hit = prim.eq(size, norm) | (isnan(size) & isnan(norm))
        hit = build.convert(hit, size.dtype)
        hits = spread(reduce_dims("sum", hit, dims), x.shape, dims)
        return prim.sign(x) * wrap_(rounded_low(ct / hits) * hit)
    if ord < 1:
        ratio = raised(size, ord - 1.0)
        ratio = build.select(build.eq(size, 0.0), 0.0, ratio)
        return prim.sign(x) * wrap_(rounded_low(ratio * ct) * raised(norm, 1.0 - ord))
    if ord < 2:
        ratio = prim.sign(x) * wrap_(raised(size, ord - 1.0))
    else:
        ratio = rounded_low(x * wrap_(raised(size, ord - 2.0)))
    nothing = build.eq(norm, 0.0)
    scale = rounded_low(ct / raised(build.select(nothing, 1.0, norm), ord - 1.0))
    return ratio * wrap_(build.select(nothing, 0.0, scale))


def vector_norm_body(x: Any, ord: Any, dim: Any, keepdim: bool, *, dtype: DType | None = None) -> Any:
    """(sum |x|^ord)^(1/ord) over all elements or dims, in the dtype of the real parts."""
    if not (x.dtype.is_floating_point or x.dtype.is_complex):
        raise RuntimeError(
            f"linalg.vector_norm: Expected a floating point or complex tensor as input. Got {x.dtype.scalar}"
        )
    if dtype is not None:
        check_norm_dtype("linalg.vector_norm", x.dtype, dtype)
    ord = real_order(ord)
    operand = build.convert(x, dtype) if dtype is not None else x
    dims = dims_of(x, dim)
    empty = next((d for d in dims if numel(x.shape) == 0 and x.shape[d] == 0), None)
    if (ord < 0 or ord == INF) and empty is not None:
        where = f"the dimension {empty}because this dimension is empty and" if dim else "an empty tensor because"
        raise RuntimeError(
            f"linalg.vector_norm cannot compute the {ord:g} norm on {where} the operation does not have an identity"
        )
    norm = powers(wide(operand), ord, dims)
    return narrow(finish(norm, x.shape, dims, keepdim), operand.dtype.to_real()), norm


vector_norm = operator(
    "vector_norm(Tensor input, Scalar ord=2, int[1]? dim=None, bool keepdim=False, *, dtype? dtype=None) -> Tensor",
    name="linalg_vector_norm",
    spaces=("linalg",),
    method=False,
    static=("ord",),
    out="exact",
)(vector_norm_body)


@vector_norm.gradient
def _(ct: Any, outs: Any, x: Any, ord: Any, dim: Any, keepdim: bool, *, dtype: DType | None) -> Any:
    dims, x_dtype = dims_of(x, dim), x.dtype
    x = wide(build.convert(x, dtype) if dtype is not None else x)
    return narrow(norm_slope(x, outs[1], float(ord), dims, wide(ct), ct.dtype), x_dtype)


@operator("dist(Tensor input, Tensor other, Scalar p=2) -> Tensor", promote="same", promote_over=("input", "other"), static=("p",),
          like="contiguous")  # fmt: skip
def dist(x: Any, y: Any, p: Any) -> Any:
    """The p-norm of input - other."""
    gap = x - y
    norm = powers(gap, real_order(p), dims_of(gap, None))
    return norm


@dist.gradient
def _(ct: Any, out: Any, x: Any, y: Any, p: Any) -> Any:
    gap = x - y
    slope = norm_slope(gap, out, float(p), dims_of(gap, None), ct, given_dtype(ct))
    return slope, -slope


def _gaps(x: Any, y: Any) -> Any:
    """Every row of x minus every row of y: (*, P, R, M)."""
    *batch, rows, size = x.shape
    others = y.shape[-2]
    shape = (*batch, rows, others, size)
    first = build.broadcast_to(build.reshape(x, (*batch, rows, 1, size)), shape)
    return first - build.broadcast_to(build.reshape(y, (*batch, 1, others, size)), shape)


@operator("cdist_core(Tensor x1, Tensor x2, Scalar p) -> Tensor", spaces=(), method=False, promote="same", promote_over=("x1", "x2"),
          static=("p",), like="contiguous", node="CdistBackward0")  # fmt: skip
def cdist_core(x: Any, y: Any, p: Any) -> Any:
    """The p-norm distances of every row of x1 (*, P, M) to every row of x2 (*, R, M), whose leading dims are equal: (*,
    P, R)."""
    gap = _gaps(x, y)
    return _lengths(gap, float(p), len(gap.shape) - 1)


def _lengths(gap: Any, p: float, dim: int) -> Any:
    """Norms along a dim; of order 0 a NaN is no number that differs, as it is for `norm`: the distance is NaN."""
    if p == 0:
        return reduce_dims("sum", build.select(isnan(gap), gap, build.convert(build.ne(gap, 0.0), gap.dtype)), (dim,))
    return powers(gap, p, (dim,))


@cdist_core.gradient
def _(ct: Any, out: Any, x: Any, y: Any, p: Any) -> Any:
    gap = _gaps(x, y)
    n = len(gap.shape)
    slope = norm_slope(gap, out, float(p), (n - 1,), ct, gap.dtype)
    return reduce_dims("sum", slope, (n - 2,)), -reduce_dims("sum", slope, (n - 3,))


@operator("cdist_by_product(Tensor x1, Tensor x2) -> Tensor", spaces=(), method=False, promote="same", promote_over=("x1", "x2"),
          like="contiguous", node="CdistBackward0")  # fmt: skip
def cdist_by_product(x: Any, y: Any) -> Any:
    """Euclidean distances of rows, as of `cdist_core`, through one matrix product: |x|^2 + |y|^2 - 2 xy; the gradient of
    a distance 0 is 0."""
    n = len(x.shape)
    shape, columns = (*x.shape[:-1], y.shape[-2]), build.transpose(y, (*range(n - 2), n - 1, n - 2))
    first, second = (reduce_dims("sum", v * v, (n - 1,)) for v in (x, y))
    across = build.broadcast_to(build.reshape(second, (*second.shape[:-1], 1, second.shape[-1])), shape)
    along = build.broadcast_to(build.reshape(first, (*first.shape, 1)), shape)
    squares = along + across - build.dot(x, columns) * 2.0
    nothing = squares <= 0.0
    return build.select(nothing, 0.0, prim.sqrt(build.select(nothing, 1.0, squares)))


@operator("pdist_core(Tensor input, Scalar p) -> Tensor", spaces=(), method=False, static=("p",), node="PdistBackward0")
def pdist_core(x: Any, p: Any) -> Any:
    """The p-norm distances of the pairs of rows (i, j), i < j, of x (P, M), row after row: (P (P - 1) / 2)."""
    rows = x.shape[0]
    pairs = rows * (rows - 1) // 2
    if not pairs:
        return build.full((0,), 0.0, x.dtype)
    number = prim.iota(shape=(pairs,), dim=0, dtype=INT64)
    # the rows before row i hold i (2 P - i - 1) / 2 pairs: the root is exact where a row begins
    twice = build.convert(number * 8, FLOAT64)
    first = build.convert(prim.floor((2 * rows - 1 - prim.sqrt((2.0 * rows - 1.0) ** 2 - twice)) * 0.5), INT64)
    second = number - _pairs_before(first, rows) + first + 1
    distances = _lengths(_gaps_of_pairs(x), float(p), 2)
    return prim.gather(build.reshape(distances, (rows * rows,)), first * rows + second, dim=0)


def _gaps_of_pairs(x: Any) -> Any:
    """`_gaps(x, x)`, but 1 on the diagonal, where a norm has no slope."""
    gaps = _gaps(x, x)
    one, other = (prim.iota(shape=gaps.shape, dim=d, dtype=INT64) for d in (0, 1))
    return build.select(build.eq(one, other), 1.0, gaps)


def _pairs_before(row: Any, rows: int) -> Any:
    return prim.shift_right(row * (2 * rows - 1 - row), build.full_like(row, 1))


@pdist_core.gradient
def _(ct: Any, out: Any, x: Any, p: Any) -> Any:
    rows = x.shape[0]
    if rows < 2:
        return build.zeros_like(x)
    one, other = (prim.iota(shape=(rows, rows), dim=d, dtype=INT64) for d in (0, 1))
    first, second = prim.minimum(one, other), prim.maximum(one, other)
    itself = build.eq(one, other)
    pair = build.reshape(build.select(itself, 0, _pairs_before(first, rows) + second - first - 1), (rows * rows,))
    ct, norm = (
        build.select(itself, at, build.reshape(prim.gather(v, pair, dim=0), (rows, rows)))
        for v, at in ((ct, 0.0), (out, 1.0))
    )
    # the terms of a row as the first of a pair and as the second one: gaps differ in sign alone
    return reduce_dims("sum", norm_slope(_gaps_of_pairs(x), norm, float(p), (2,), ct, x.dtype), (1,))


# ***** log of a sum of exponentials *****


def log_sum_exp(x: Any, dims: Any) -> Any:
    """log(sum(exp(x))) over removed dims, relative to the greatest."""
    if numel(x.shape) == 0:
        return prim.log(reduce_dims("sum", prim.exp(x), dims))
    top = reduce_dims("amax", prim.real(x) if x.dtype.is_complex else x, dims)
    top = build.select(build.eq(prim.abs(top), INF), 0.0, top)
    top = build.complex_(top) if x.dtype.is_complex else top
    return prim.log(reduce_dims("sum", prim.exp(x - spread(top, x.shape, dims)), dims)) + top


@operator("logsumexp(Tensor input, int[1] dim, bool keepdim=False) -> Tensor", out=True, aliases=("special.logsumexp",))
def logsumexp(x: Any, dim: Any, keepdim: bool) -> Any:
    """log(sum(exp(x))) along dims, without overflow."""
    dims = dims_of(x, dim)
    value = as_float(x)
    result = x.dtype if x.dtype.is_floating_point or x.dtype.is_complex else value.dtype
    return narrow(finish(log_sum_exp(value, dims), x.shape, dims, keepdim), result)


@logsumexp.gradient
def _(ct: Any, out: Any, x: Any, dim: Any, keepdim: bool) -> Any:
    dims, value = dims_of(x, dim), as_float(x)
    share = prim.exp(value - spread(wide(out), x.shape, dims))
    return narrow(spread(wide(ct), x.shape, dims) * build.conj(share), x.dtype)


# ***** scans *****


def _scan(name: str, doc: str, primitive: str) -> None:
    def body(x: Any, dim: int, *, dtype: DType | None) -> Any:
        dim, result = wrap(dim, x), count_dtype(x, dtype)
        x = build.convert(x, result)
        if not numel(x.shape) or not x.shape:
            return x
        if result is BOOL:
            raise not_implemented(name, result)
        # A long running sum loses digits: it is twice as wide as the data, as in PyTorch.
        return narrow(getattr(prim, primitive)(build.convert(x, accumulator(result)), dim=dim, reverse=False), result)

    operator(
        f"{name}(Tensor input, int dim, *, dtype? dtype=None) -> Tensor",
        inplace=True,
        inplace_spaces=(),
        out=True,
        tags=("in_target",),
        doc=doc,
    )(body)


_scan("cumsum", "out[i] = x[0] + ... + x[i] along dim.", "cumsum")
_scan("cumprod", "out[i] = x[0] * ... * x[i] along dim.", "cumprod")


def _running_extreme(name: str, doc: str) -> None:
    def body(x: Any, dim: int) -> Any:
        refuse(x, name, "c")
        dim = wrap(dim, x)
        if not x.shape:
            return x, build.full((), 0, INT64)
        values, indices = getattr(prim, name)(wide(x), dim=dim)
        return narrow(values, x.dtype), indices

    operator(f"{name}(Tensor input, int dim) -> (Tensor values, Tensor indices)", out="exact", doc=doc)(body)


_running_extreme("cummax", "values[i] = max(x[0], ..., x[i]) along dim, and where it is (the last among equals).")
_running_extreme("cummin", "values[i] = min(x[0], ..., x[i]) along dim, and where it is (the last among equals).")


@operator("logcumsumexp(Tensor input, int dim) -> Tensor", out="exact")
def logcumsumexp(x: Any, dim: int) -> Any:
    """out[i] = log(exp(x[0]) + ... + exp(x[i])) along dim."""
    refuse(x, "logcumsumexp", "bui")
    dim, dtype = wrap(dim, x), x.dtype
    if not x.shape or numel(x.shape) == 0:
        return x
    x = build.convert(x, accumulator(x.dtype) if not dtype.is_complex else COMPLEX128)
    sums = _complex_log_sums(x, dim) if dtype.is_complex else _log_sums(x, dim)
    return narrow(sums, dtype)


@logcumsumexp.gradient
def _(ct: Any, out: Any, x: Any, dim: int) -> Any:
    """Sums of ct[i] * exp(x[j] - out[i]) over i >= j."""
    if not x.shape or numel(x.shape) == 0:
        return ct
    dim, wide_dtype = wrap(dim, x), accumulator(x.dtype)
    g, x, out = (build.convert(v, wide_dtype) for v in (ct, x, out))
    if x.dtype.is_complex:
        top = build.complex_(build.keep_dims(prim.amax(prim.real(out), dims=(dim,)), out.shape, (dim,)))
        shares = prim.cumsum(g * build.conj(prim.exp(top - out)), dim=dim, reverse=True)
        return narrow(shares * build.conj(prim.exp(x - top)), ct.dtype)
    return narrow(_shares(g, x, out, dim), ct.dtype)


def _shares(g: Any, x: Any, out: Any, dim: int) -> Any:
    """Sums of g[i] * exp(x[j] - out[i]) over i >= j, linear in g, so that derivatives hold where g is 0 too.

    `out` never decreases.  Sums are taken relative to the greatest `out`, then, for those far below, relative to the
    greatest of them, as in `_log_sums`; a sum needs no term lower than its own `out`.
    """
    reach = REACH / 2  # leaves room for a large g
    shares, top = g * prim.exp(x - out), build.full_like(out, INF)
    for _ in range(3):
        left = out < top - reach
        top = _held(build.keep_dims(prim.amax(build.select(left, out, -INF), dims=(dim,)), out.shape, (dim,)))
        safe = build.select(prim.abs(top) < INF, top, 0.0)
        near = out >= safe - reach
        sums = prim.cumsum(
            build.select(near, g * prim.exp(build.select(near, safe - out, 0.0)), 0.0), dim=dim, reverse=True
        )
        good = left & (out >= top - reach) & (prim.abs(out) < INF)
        shares = build.select(good, sums * prim.exp(build.select(good, x - safe, 0.0)), shares)
    last = take_slice(out, dim, out.shape[dim] - 1, out.shape[dim])  # NaN from where x is
    return build.select(isnan(build.broadcast_to(last, out.shape)), math.nan, shares)


def _held(x: Any) -> Any:
    """The same number without a gradient, for offsets that only keep exponentials within range."""
    return prim.bitcast(prim.bitcast(x, dtype=INT64), dtype=x.dtype)


REACH = 600.0  # exponentials of float64 hold this and as much again


def _log_sums(x: Any, dim: int) -> Any:
    """log of running sums of exp(x), x in float64.

    Sums relative to the greatest of all are accurate where the running maximum is near it; those far below are taken
    relative to the greatest of them, three times, and still lower ones equal their maximum.
    """
    running = _held(prim.cummax(x, dim=dim)[0])
    logs, top = running, build.full_like(x, INF)
    for _ in range(3):
        left = running < top - REACH
        top = build.keep_dims(prim.amax(build.select(left, running, -INF), dims=(dim,)), x.shape, (dim,))
        safe = build.select(prim.abs(top) < INF, top, 0.0)
        sums = prim.cumsum(prim.exp(build.select(x > safe, safe, x) - safe), dim=dim, reverse=False)
        good = left & (running >= top - REACH) & (prim.abs(running) < INF)
        logs = build.select(good, prim.log(build.select(good, sums, 1.0)) + safe, logs)
    return logs


def _complex_log_sums(x: Any, dim: int) -> Any:
    """The same for complex numbers; the angle continues from the greater of a sum and its next summand, including full
    turns, as PyTorch's does."""
    top = _held(build.keep_dims(prim.amax(prim.real(x), dims=(dim,)), x.shape, (dim,)))
    top = build.complex_(build.select(prim.abs(top) < INF, top, 0.0))
    sums = prim.log(prim.cumsum(prim.exp(x - top), dim=dim, reverse=False)) + top
    size, full_turn = x.shape[dim], 2.0 * math.pi
    angle, summand = prim.imag(sums), prim.imag(x)
    before = pad_dim(take_slice(sums, dim, 0, size - 1), dim, 1, 0)
    position = prim.iota(shape=x.shape, dim=dim, dtype=INT64)
    fresh = build.eq(position, 0) | (prim.real(x) > prim.real(before))
    step = build.select(build.eq(position, 0), 0.0, angle - prim.imag(before))
    gone = prim.cumsum(step - full_turn * prim.round(step / full_turn), dim=dim, reverse=False)
    begin = angle + full_turn * prim.round((summand - angle) / full_turn) - gone
    last = prim.cummax(build.select(fresh, position, 0), dim=dim)[0]
    angles = gone + prim.gather(begin, last, dim=dim)
    return prim.complex(prim.real(sums), angles)


@operator(
    "diff(Tensor input, int n=1, int dim=-1, Tensor? prepend=None, Tensor? append=None) -> Tensor",
    out=True,
    node="SubBackward0",
    like=lambda shape, specs: (in_order_of_input if len(specs) == 1 else format_of_all)(shape, specs),
)
def diff(x: Any, n: int, dim: int, prepend: Any, append: Any) -> Any:
    """out[i] = x[i + 1] - x[i] along dim, n times over; `prepend` and `append` are joined on first."""
    if not x.shape:
        raise RuntimeError("diff expects input to be at least one-dimensional")
    if n < 0:
        raise RuntimeError(f"order must be non-negative but got {n}")
    dim = wrap(dim, x)
    ends = [end for end in (prepend, x, append) if end is not None]
    if any(len(end.shape) != len(x.shape) for end in ends):
        raise RuntimeError("diff expects prepend or append to be the same dimension as input")
    if n == 0:
        return x
    for d in range(len(x.shape)):
        other = next((end.shape[d] for end in ends if d != dim and end.shape[d] != x.shape[d]), None)
        if other is not None:
            raise RuntimeError(
                "diff expects the shape of tensor to prepend or append to match that of input except along the differencing dimension; "
                f"input.size({d}) = {x.shape[d]}, but got tensor.size({d}) = {other}"
            )
    ends = common(ends)
    joined = prim.cat(*ends, dim=dim) if len(ends) > 1 else x
    for _ in range(min(n, joined.shape[dim])):
        size = joined.shape[dim]
        later, earlier = take_slice(joined, dim, 1, size), take_slice(joined, dim, 0, size - 1)
        joined = _difference(later, earlier)
    return joined


def _difference(later: Any, earlier: Any) -> Any:
    if later.dtype is BOOL:
        return prim.bitwise_xor(later, earlier)
    return narrow(wide(later) - wide(earlier), later.dtype)
