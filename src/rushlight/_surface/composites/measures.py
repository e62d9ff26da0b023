"""Norms, distances, quantiles, histograms and other measures made of simpler operators."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any

from rushlight._base.errors import warn_once, warn_user
from rushlight._engine.core import convert
from rushlight._engine.core.tensor import Tensor
from rushlight._engine.dispatch.out import write_out
from rushlight._engine.dispatch.plans.native_lookup import not_cacheable
from rushlight._engine.dispatch_types.base import DispatchType
from rushlight._engine.indexing import dynamic
from rushlight._ops.dtypes import refuse_dtype
from rushlight._ops.forms import forms
from rushlight._surface.registry import SPACES, composite, function_of, reads_elements
from rushlight._types.dtype import BOOL, FLOAT64, INT32, INT64
from rushlight._types.formats import SPARSE_LAYOUTS
from rushlight._types.layout import broadcast_shapes, contiguous_strides, numel, wrap_dim
from rushlight._types.promotion import default_dtype, result_type

__all__: list[str] = []

T = SPACES["torch"]


def into(out: Any, found: Any, name: str = "", exact: bool = False, place: int = 0) -> Any:
    """A result, or `out` with the result written to it; it must have the result's dtype where `exact`; `place` is the
    number of the result.
    """
    if out is None:
        return found
    write_out(name, out, found, exact, place)
    return out


# ***** norms *****


def _dims(dim: Any) -> Any:
    return (dim,) if isinstance(dim, int) else None if dim is None else tuple(dim)


@composite("norm", cached=True)
def norm(
    input: Tensor, p: Any = "fro", dim: Any = None, keepdim: bool = False, out: Any = None, dtype: Any = None
) -> Tensor:
    """The p-norm of all elements or along dims; "fro" is the 2-norm, "nuc" the sum of singular values."""
    if isinstance(p, str) and p == "nuc":
        dims = _dims(dim) or tuple(range(input._spec.ndim))
        return into(
            out,
            SPACES["linalg"]["matrix_norm"](input, "nuc", dims, keepdim, dtype=dtype),
            "linalg_matrix_norm",
            exact=True,
        )
    if isinstance(p, str) and p != "fro":
        raise RuntimeError(f"linalg.matrix_norm: Order {p} not supported.")
    order = 2.0 if p is None or isinstance(p, str) else p
    return into(out, function_of("linalg_vector_norm")(input, order, _dims(dim), keepdim, dtype=dtype), exact=True)


@composite("norm", spaces=(), method=True, cached=True)
def _norm_method(self: Tensor, p: Any = "fro", dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
    """`torch.norm` of this tensor."""
    return norm(self, p, dim, keepdim, dtype=dtype)


@composite("renorm", method=True, cached=True)
def renorm(input: Tensor, p: float, dim: int, maxnorm: float, *, out: Any = None) -> Tensor:
    """Each slice along dim scaled down to have a p-norm of at most maxnorm."""
    if not input.is_floating_point() and not input.is_complex():
        raise RuntimeError("renorm: expected a floating point or complex tensor")
    if not p > 0:
        raise RuntimeError("renorm: non-positive norm not supported")
    if input._spec.ndim < 2:
        raise RuntimeError(f"renorm: input needs at least 2 dimensions, got {input._spec.ndim} dimensions")
    if not maxnorm >= 0:
        raise RuntimeError(f"renorm: expected maxnorm to be >= 0 but got {maxnorm}")
    at = wrap_dim(dim, input._spec.ndim)
    others = tuple(d for d in range(input._spec.ndim) if d != at)
    size = function_of("linalg_vector_norm")(input, p, others, True)
    factor = T["where"](size > maxnorm, maxnorm / (size + 1e-7), 1.0)
    return into(out, (input * factor).to(input.dtype).contiguous(), "renorm", exact=True)


def _renorm_(self: Tensor, p: float, dim: int, maxnorm: float) -> Tensor:
    """`renorm` in place."""
    return self.copy_(renorm(convert.clone(self), p, dim, maxnorm))


Tensor.renorm_ = _renorm_  # type: ignore[attr-defined]

# ***** distances *****


_DISTANCE_MODES = ("use_mm_for_euclid_dist_if_necessary", "use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist")


@composite("cdist", cached=True)
def cdist(
    x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: str | None = "use_mm_for_euclid_dist_if_necessary"
) -> Tensor:
    """The p-norm distances of every row of x1 (*, P, M) to every row of x2 (*, R, M): (*, P, R)."""
    if min(x1._spec.ndim, x2._spec.ndim) < 2:
        raise RuntimeError("cdist only supports at least 2D tensors, X1 got: " + f"{x1._spec.ndim}D")
    if x1._spec.shape[-1] != x2._spec.shape[-1]:
        raise RuntimeError(
            f"X1 and X2 must have the same number of columns. X1: {x1._spec.shape[-1]} X2: {x2._spec.shape[-1]}"
        )
    for name, x in (("X1", x1), ("X2", x2)):
        if not x._spec.dtype.is_floating_point:
            raise RuntimeError(f"cdist only supports floating-point dtypes, {name} got: {x._spec.dtype.scalar}")
    if x1._spec.dtype is not x2._spec.dtype:
        raise RuntimeError(f"expected scalar type {x1._spec.dtype.name} but found {x2._spec.dtype.name}")
    if not p >= 0:
        raise RuntimeError("cdist only supports non-negative p values")
    if compute_mode not in _DISTANCE_MODES:
        raise ValueError(f"{compute_mode} is not a valid value for compute_mode")
    many = max(x1._spec.shape[-2], x2._spec.shape[-2]) > 25
    by_product = p == 2 and (compute_mode == _DISTANCE_MODES[1] or many and compute_mode != _DISTANCE_MODES[2])
    if by_product and x1._spec.dtype.wide is not x1._spec.dtype:
        return _euclidean(x1, x2)
    refuse_dtype("cdist", "h", x1._spec.dtype)
    batch = broadcast_shapes(x1._spec.shape[:-2], x2._spec.shape[:-2])
    if x1._spec.ndim + x2._spec.ndim > 4:
        x1, x2 = (x.expand((*batch, *x._spec.shape[-2:])) for x in (x1, x2))
    if by_product:
        return function_of("cdist_by_product")(x1, x2)
    return function_of("cdist_core")(x1, x2, float(p) if x1._spec.shape[-1] else 2.0)


def _euclidean(x1: Any, x2: Any) -> Tensor:
    """Distances of narrow floats through one matrix product, as by `cdist_by_product`.

    |a|^2 and |b|^2 are rounded, and then the whole, as in PyTorch, where they are columns of the product.
    """
    dtype = x1._spec.dtype
    first, second = (x1 * x1).sum(-1, keepdim=True).to(dtype.wide), (x2 * x2).sum(-1).unsqueeze(-2).to(dtype.wide)
    squares = (first + second - 2.0 * (x1.to(dtype.wide) @ x2.to(dtype.wide).mT)).to(dtype)
    nothing = squares <= 0.0
    return T["where"](nothing, 0.0, T["where"](nothing, 1.0, squares).sqrt())


@composite("pdist", spaces=("torch", "nn.functional"), refuses="h", cached=True)
def pdist(input: Tensor, p: float = 2.0) -> Tensor:
    """The p-norm distances of all pairs of rows."""
    if input._spec.ndim != 2:
        raise RuntimeError(f"pdist only supports 2D tensors, got: {input._spec.ndim}D")
    if p < 0:
        raise RuntimeError("pdist only supports non-negative p values")
    if not input._spec.dtype.is_floating_point:
        raise RuntimeError("pdist only supports floating-point dtypes")
    return function_of("pdist_core")(input, float(p) if input._spec.shape[1] else 2.0)


def cross_product(input: Tensor, other: Tensor, dim: int) -> Tensor:
    """a x b along a dim of size 3; other dims broadcast."""
    if input._spec.dtype is not other._spec.dtype:
        raise RuntimeError(f"expected scalar type {input._spec.dtype.scalar} but found {other._spec.dtype.scalar}")
    wrap_dim(dim, input._spec.ndim)
    if input._spec.shape[dim] != 3 or other._spec.shape[dim] != 3:
        raise RuntimeError(
            f"linalg.cross: inputs dimension {dim} must have length 3. Got {input._spec.shape[dim]} and {other._spec.shape[dim]}"
        )
    shape = broadcast_shapes(input._spec.shape, other._spec.shape)
    at = wrap_dim(dim, len(shape))
    a, b = (v.expand(shape) for v in (input, other))
    roll = function_of("roll")
    return roll(a, -1, at) * roll(b, -2, at) - roll(a, -2, at) * roll(b, -1, at)


@composite("cross", method=True, apart=True, refuses="b", cached=True)
def cross(input: Tensor, other: Tensor, dim: int | None = None, *, out: Any = None) -> Tensor:
    """The cross product along dim (the first of size 3 if not given)."""
    if input._spec.ndim != other._spec.ndim:
        raise RuntimeError("linalg.cross: inputs must have the same number of dimensions.")
    if dim is None:
        warn_once(
            "Using torch.cross without specifying the dim arg is deprecated.\nPlease either pass the dim explicitly or simply use torch.linalg.cross.\n"
            "The default value of dim will change to agree with that of linalg.cross in a future release."
        )
        dim = next((d for d, size in enumerate(input._spec.shape) if size == 3), None)
        if dim is None:
            raise RuntimeError("no dimension of size 3 in input")
    return into(out, cross_product(input, other, dim), "cross", exact=True)


# ***** quantiles *****


def _quantile(
    name: str, input: Tensor, q: Any, dim: Any, keepdim: bool, interpolation: str, ignore_nan: bool
) -> Tensor:
    if input._spec.dtype.name not in ("float32", "float64"):
        raise RuntimeError(f"{name}() input tensor must be either float or double dtype")
    tensor_given = isinstance(q, Tensor)
    if not tensor_given:
        q = T["tensor"](float(q), dtype=input.dtype, device=input.device)
    if q._spec.dtype is not input._spec.dtype:
        raise RuntimeError(f"{name}() q tensor must be same dtype as the input tensor")
    if q._spec.ndim > 1:
        raise RuntimeError(f"{name}() q must be a scalar or 1D tensor")
    if not input._spec.numel:
        raise RuntimeError(f"{name}() input tensor must be non-empty")
    if interpolation not in ("linear", "lower", "higher", "midpoint", "nearest"):
        raise RuntimeError(
            f"{name}() interpolation must be one of linear, lower, higher, midpoint or nearest, but got {interpolation}"
        )
    values = q.tolist() if q._spec.ndim else [q.item()]
    if any(not 0 <= v <= 1 for v in values):
        what = (
            "values must be in the range [0, 1]"
            if tensor_given
            else f"must be in the range [0, 1] but got {values[0]:g}"
        )
        raise RuntimeError(f"quantile() q {what}")
    flat = dim is None
    at = 0 if flat else wrap_dim(dim, input._spec.ndim)
    rows = input.reshape(-1) if flat else input.reshape(input._spec.shape or (1,)).movedim(at, -1)
    ordered = function_of("sort")(rows, -1)[0]
    found = _ranked(ordered, q.reshape(-1), interpolation, ignore_nan)  # (*rows, Q)
    if keepdim:
        found = found.reshape(*[1] * max(input._spec.ndim, 0), -1) if flat else found.unsqueeze(at)
    found = found.movedim(-1, 0)
    shape = found._spec.shape[1:] if not (not flat and not input._spec.ndim) else ()
    return found.reshape((*(q._spec.shape), *shape))


def _ranked(ordered: Tensor, q: Tensor, interpolation: str, ignore_nan: bool) -> Any:
    size = ordered._spec.shape[-1]
    missing = T["isnan"](ordered)
    if ignore_nan:
        last = (T["logical_not"](missing).sum(-1, keepdim=True) - 1).clamp(min=0)
        rank = q * last.to(q.dtype)
    else:
        any_nan = missing.any(-1, keepdim=True)
        rank = T["where"](
            any_nan, float(size - 1), (q * (size - 1)).expand(*any_nan._spec.shape[:-1], q._spec.shape[0])
        )
    if interpolation in ("lower", "higher", "nearest"):
        rank = {"lower": T["floor"], "higher": T["ceil"], "nearest": T["round"]}[interpolation](rank)
    below = T["floor"](rank)
    shape = (*ordered._spec.shape[:-1], rank._spec.shape[-1])
    low = ordered.gather(-1, below.to(INT64).expand(shape))
    if interpolation in ("lower", "higher", "nearest"):
        return low
    above = T["ceil"](rank).to(INT64).expand(shape)
    weight = T["full_like"](rank, 0.5) if interpolation == "midpoint" else rank - below
    return function_of("lerp")(low, ordered.gather(-1, above), weight.expand(shape).to(low.dtype))


@composite("quantile", method=True)
def quantile(
    input: Tensor,
    q: Any,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
    out: Any = None,
) -> Tensor:
    """The q-th quantiles of all elements or along dim; q in [0, 1], a number or a vector (which gives a leading dim)."""
    return into(out, _quantile("quantile", input, q, dim, keepdim, interpolation, False), "quantile", exact=True)


@composite("nanquantile", method=True)
def nanquantile(
    input: Tensor,
    q: Any,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
    out: Any = None,
) -> Tensor:
    """`quantile` of the elements that are not NaN."""
    return into(out, _quantile("nanquantile", input, q, dim, keepdim, interpolation, True), "nanquantile", exact=True)


# ***** statistics of several variables *****


@composite("cov", method=True)
def cov(
    input: Tensor, *, correction: int = 1, fweights: Tensor | None = None, aweights: Tensor | None = None
) -> Tensor:
    """The covariance matrix of variables in rows and observations in columns."""
    if input._spec.ndim > 2:
        raise RuntimeError(
            f"cov(): expected input to have two or fewer dimensions but got an input with {input._spec.ndim} dimensions"
        )
    if input._spec.dtype is BOOL:
        raise RuntimeError("cov(): bool dtype is not supported for input")
    x = input.reshape(1, -1) if input._spec.ndim < 2 else input
    count = x._spec.shape[1]
    x = x if x.is_floating_point() or x.is_complex() else x.to(default_dtype())
    weights = _observation_weights(count, fweights, aweights)
    total: Any = count
    less: Any = count - correction
    if weights is not None:
        total = weights.sum()
        if not total:
            raise RuntimeError("cov(): weights sum to zero, can't be normalized")
        less = total - (correction if aweights is None else correction * (weights * aweights).sum() / total)
    middle = (x if weights is None else x * weights).sum(1, keepdim=True) / total
    if less <= 0:
        not_cacheable()  # the next call warns as well
        warn_user(
            "cov(): degrees of freedom is <= 0. Correction should be strictly less than the number of observations.",
            UserWarning,
        )
        less = 0.0
    apart = x - middle
    scaled = apart if weights is None else apart * weights
    right = scaled.conj().t() if scaled.is_complex() else scaled.t()
    found = (apart @ right) / (
        less if isinstance(less, Tensor) else T["tensor"](float(less), dtype=apart.dtype.to_real(), device=apart.device)
    )
    return found.squeeze()


def _observation_weights(count: int, fweights: Any, aweights: Any) -> Any:
    for what, w in (("fweights", fweights), ("aweights", aweights)):
        if w is not None and w._spec.ndim > 1:
            raise RuntimeError(
                f"cov(): expected {what} to have one or fewer dimensions but got {what} with {w._spec.ndim} dimensions"
            )
        if w is not None and w.numel() != count:
            raise RuntimeError(
                f"cov(): expected {what} to have the same numel as there are observations in the input but got {w.numel()} != {count}"
            )
    if fweights is not None and fweights.is_floating_point():
        raise RuntimeError("cov(): expected fweights to have integral dtype but got fweights with Float dtype")
    if aweights is not None and not aweights.is_floating_point():
        raise RuntimeError("cov(): expected aweights to have floating point dtype but got aweights with Long dtype")
    for what, w in (("fweights", fweights), ("aweights", aweights)):
        if w is not None and w.numel() and convert.item(function_of("min_all")(w)) < 0:
            raise RuntimeError(f"cov(): {what} cannot be negative")
    if fweights is None or aweights is None:
        return aweights if fweights is None else fweights
    return fweights * aweights


@composite("corrcoef", method=True)
def corrcoef(input: Tensor) -> Tensor:
    """The matrix of correlation coefficients of variables in rows."""
    if input._spec.ndim > 2:
        raise RuntimeError(
            f"corrcoef(): expected input to have two or fewer dimensions but got an input with {input._spec.ndim} dimensions"
        )
    c = cov(input)
    if not c._spec.ndim:
        return c / c
    root = c.diagonal()
    root = T["sqrt"](real_part(root))
    found = c / root.unsqueeze(-1) / root.unsqueeze(-2)
    return (
        T["complex"](real_part(found).clip(-1, 1), T["imag"](found).clip(-1, 1))
        if found.is_complex()
        else found.clip(-1, 1)
    )


def real_part(x: Tensor) -> Any:
    """The real part of a tensor that may be real."""
    return T["real"](x) if x._spec.dtype.is_complex else x


# ***** counting *****


@composite("bincount", method=True, once=True)
@reads_elements
def bincount(input: Tensor, weights: Any = None, minlength: int = 0) -> Tensor:
    """How often each whole number occurs, or the sum of its weights."""
    refuse_dtype("bincount", "bfc", input._spec.dtype)
    if input._spec.ndim != 1:
        raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
    if minlength < 0:
        raise RuntimeError("minlength should be >= 0")
    if weights is not None and weights._spec.shape != input._spec.shape:
        raise RuntimeError("weights should be 1-d and have the same length as input")
    if not input._spec.numel:
        return T["zeros"](minlength, dtype=INT64, device=input.device)
    least, greatest = function_of("aminmax")(input)
    if convert.item(least) < 0:
        raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
    size = max(int(convert.item(greatest)) + 1, minlength)
    if weights is None:
        dtype, values = INT64, T["ones"]((1,), dtype=INT64, device=input.device).expand(input._spec.shape)
    else:
        values = weights if weights.dtype.name == "float32" else weights.to(FLOAT64)
        dtype = values.dtype
    return T["zeros"](size, dtype=dtype, device=input.device).scatter_add(0, input.to(INT64), values)


@composite("histc", method=True, refuses="bui", once=True)
@reads_elements
def histc(input: Tensor, bins: int = 100, min: float = 0, max: float = 0, *, out: Any = None) -> Tensor:
    """How many elements fall into each of `bins` equal ranges of [min, max] (of the elements' range if both are 0)."""
    if bins <= 0:
        raise RuntimeError(f"torch.histogram(): bins must be > 0, but got {bins} for dimension 0")
    x = input.reshape(-1)
    low, high = float(min), float(max)
    if low == high and input._spec.numel:
        low, high = (float(convert.item(function_of(name)(x))) for name in ("min_all", "max_all"))
    if low == high:
        low, high = low - 1.0, high + 1.0
    if not (math.isfinite(low) and math.isfinite(high)):
        raise RuntimeError(f"torch.histc: range of [{low:g}, {high:g}] is not finite")
    if low > high:
        raise RuntimeError("torch.histc: max must be larger than min")
    inside = T["logical_and"](x >= low, x <= high)
    place = ((x - low) * (bins / (high - low))).to(INT64).clamp(0, bins - 1)
    found = T["zeros"](bins, dtype=input.dtype, device=input.device).scatter_add(0, place, inside.to(input.dtype))
    return into(out, found, "histc", exact=True)


# ***** sets *****


MANY = 64  # test elements from which on they are sorted and searched by halving


@composite("isin", refuses="bc", cached=True)
@forms(
    "(elements: Tensor | Scalar, test_elements: Tensor | Scalar, *, assume_unique: bool = False, invert: bool = False, out: Tensor | None = None) -> Tensor"
)
def isin(
    elements: Any, test_elements: Any, *, assume_unique: bool = False, invert: bool = False, out: Any = None
) -> Tensor:
    """Whether each element is one of the test elements."""
    if not isinstance(elements, Tensor) and not isinstance(test_elements, Tensor):
        raise TypeError("isin(): at least one of elements and test_elements must be a tensor")
    x = elements if isinstance(elements, Tensor) else T["tensor"](elements, device=test_elements.device)
    y = test_elements if isinstance(test_elements, Tensor) else T["tensor"](test_elements, device=elements.device)
    dtype = result_type([(v._spec.dtype, v._spec.ndim) for v in (x, y)], [])
    refuse_dtype("isin", "bc", y._spec.dtype, checked=True)
    x, y = x.to(dtype), y.to(dtype).reshape(-1)
    if y._spec.numel > MANY and x._spec.numel > MANY:
        y = function_of("sort")(y, 0, False, True)[0]
        place = function_of("bucketize_core")(x, y, False)
        found = T["take"](y, place.clamp(max=y._spec.numel - 1)) == x
    else:
        found = (x.unsqueeze(-1) == y).any(-1)
    return into(out, T["logical_not"](found) if invert else found, "isin", exact=True)


def _run_starts(x: Tensor) -> Tensor:
    """Where a new value begins in a vector, or a new row in a matrix."""
    if (
        x._spec.ndim == 1
        and not isinstance(x, DispatchType)
        and not x._spec.dtype.is_complex
        and x._storage is not None
    ):
        return dynamic.run_starts(x.contiguous())
    size = x._spec.shape[0]
    first = T["ones"](min(size, 1), dtype=BOOL, device=x.device)
    if size < 2:
        return first
    differs = x.narrow(0, 1, size - 1) != x.narrow(0, 0, size - 1)
    return T["cat"]([first, differs if differs._spec.ndim == 1 else differs.any(1)])


def _unique_of_vector(x: Tensor, sort: bool, inverse: bool, counts: bool) -> tuple[Any, Any, Any]:
    """(values, inverse, counts) of a vector; `sort` False means only neighbours are joined."""
    order = None
    if sort:
        x, order = function_of("sort")(x, 0, False, True)
    starts = _run_starts(x.detach())
    values = dynamic.masked_select(x, starts)
    return (
        values,
        dynamic.run_numbers(starts, order) if inverse else None,
        dynamic.run_lengths(starts) if counts else None,
    )


def _as_rows(x: Tensor) -> Any:
    """A matrix with one row for each place of the first dim."""
    shape = x._spec.shape
    return x.reshape(shape[0], numel(shape[1:]))


def _dim_of_rows(x: Tensor, dim: int) -> int:
    """The dim along which rows are compared; RuntimeError where rows have no elements."""
    at = wrap_dim(dim, x._spec.ndim)
    shape = x._spec.shape
    if 0 in (*shape[:at], *shape[at + 1 :]):
        if shape[at]:
            raise RuntimeError("There are 0 sized dimensions, and they aren't selected, so unique cannot be applied")
        raise RuntimeError("Number of zero sized dimensions is more than one, so unique cannot be applied ")
    return at


def _unique_rows(x: Tensor, dim: int) -> tuple[Any, Any, Any]:
    """The same along a dim: rows are compared as Python tuples."""
    at = _dim_of_rows(x, dim)
    rows = x.movedim(at, 0)
    keys = [tuple(row) if isinstance(row, list) else (row,) for row in _as_rows(rows).tolist()]
    if any(v != v for key in keys for v in key):
        kept, back = _numbered_with_nan(keys)
    else:
        kept = sorted(set(keys))
        number = {key: i for i, key in enumerate(kept)}
        back = [number[key] for key in keys]
    first, counts = [0] * len(kept), [0] * len(kept)
    for place, i in enumerate(back):
        if not counts[i]:
            first[i] = place
        counts[i] += 1
    indices = {"dtype": INT64, "device": rows.device}
    flat = function_of("index_select")(_as_rows(rows), 0, T["tensor"](first, **indices))
    values = flat.reshape(len(kept), *rows.shape[1:]).movedim(0, at)
    return values, T["tensor"](back, **indices), T["tensor"](counts, **indices)


_MANY_ROWS = 1000  # above which rows are not inserted one by one


def _numbered_with_nan(keys: Sequence[tuple[Any, ...]]) -> tuple[list[tuple[Any, ...]], list[int]]:
    """The different rows, and the number of each one's: NaN equals nothing, but stands nowhere in the order, as in PyTorch's sort."""

    def compared(i: int, j: int) -> int:
        return _before(keys[j], keys[i]) - _before(keys[i], keys[j])

    order: list[int] = []
    many = len(keys) > _MANY_ROWS
    if many:
        order = sorted(range(len(keys)), key=functools.cmp_to_key(compared))
    for i, key in enumerate(keys if not many else ()):
        place = len(order)
        if order and _before(key, keys[order[0]]):  # before the first, whatever lies between
            place = 0
        while place and _before(key, keys[order[place - 1]]):
            place -= 1
        order.insert(place, i)
    kept: list[tuple[Any, ...]] = []
    back = [0] * len(keys)
    for i in order:
        if not kept or any(a != b for a, b in zip(keys[i], kept[-1], strict=True)):
            kept.append(keys[i])
        back[i] = len(kept) - 1
    return kept, back


def _before(a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
    return next((x < y for x, y in zip(a, b, strict=True) if x < y or x > y), False)


def _joined_rows(x: Tensor, dim: int) -> tuple[Any, Any, Any]:
    """(values, inverse, counts) where only neighbours along a dim are joined."""
    at = _dim_of_rows(x, dim)
    starts = _run_starts(_as_rows(x.movedim(at, 0)).detach())
    return (
        function_of("index_select")(x, at, dynamic.nonzero_places(starts)),
        dynamic.run_numbers(starts),
        dynamic.run_lengths(starts),
    )


def _given(values: Any, back: Any, counts: Any, inverse: bool, count: bool) -> Any:
    found = [values, *([back] if inverse else []), *([counts] if count else [])]
    return found[0] if len(found) == 1 else tuple(found)


@composite("unique", method=True, once=True)
@reads_elements
@forms(
    "(input: Tensor, sorted: bool = True, return_inverse: Literal[False] = False, return_counts: Literal[False] = False, dim: int | None = None) -> Tensor",
    "(input: Tensor, sorted: bool = True, *, return_inverse: Literal[True], return_counts: Literal[False] = False, dim: int | None = None) -> tuple[Tensor, Tensor]",
    "(input: Tensor, sorted: bool = True, return_inverse: Literal[False] = False, *, return_counts: Literal[True], dim: int | None = None) -> tuple[Tensor, Tensor]",
    "(input: Tensor, sorted: bool = True, *, return_inverse: Literal[True], return_counts: Literal[True], dim: int | None = None) -> tuple[Tensor, Tensor, Tensor]",
)
def unique(
    input: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    """The different values in order; with their numbers for each element, and how often each occurs."""
    if dim is not None:
        return _given(*_unique_rows(input, dim), return_inverse, return_counts)
    values, back, counts = _unique_of_vector(input.reshape(-1), True, return_inverse, return_counts)
    return _given(
        values, None if back is None else back.reshape(input._spec.shape), counts, return_inverse, return_counts
    )


@composite("unique_consecutive", method=True, refuses="c", once=True)
@reads_elements
@forms(
    "(input: Tensor, return_inverse: Literal[False] = False, return_counts: Literal[False] = False, dim: int | None = None) -> Tensor",
    "(input: Tensor, *, return_inverse: Literal[True], return_counts: Literal[False] = False, dim: int | None = None) -> tuple[Tensor, Tensor]",
    "(input: Tensor, return_inverse: Literal[False] = False, *, return_counts: Literal[True], dim: int | None = None) -> tuple[Tensor, Tensor]",
    "(input: Tensor, *, return_inverse: Literal[True], return_counts: Literal[True], dim: int | None = None) -> tuple[Tensor, Tensor, Tensor]",
)
def unique_consecutive(
    input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    """The values with repeated neighbours joined."""
    if dim is not None:
        return _given(*_joined_rows(input, dim), return_inverse, return_counts)
    values, back, counts = _unique_of_vector(input.reshape(-1), False, return_inverse, return_counts)
    return _given(
        values, None if back is None else back.reshape(input._spec.shape), counts, return_inverse, return_counts
    )


@composite("searchsorted", cached=True)
@forms(
    "(sorted_sequence: Tensor, input: Tensor | Scalar, *, out_int32: bool = False, right: bool = False, side: str | None = None, "
    "sorter: Tensor | None = None, out: Tensor | None = None) -> Tensor"
)
def searchsorted(
    sorted_sequence: Tensor,
    input: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Any = None,
    out: Any = None,
) -> Tensor:
    """Where each value would stand in a sorted sequence (along the last dim): the first place, or the last with `right`."""
    if side is not None:
        if side not in ("left", "right"):
            raise RuntimeError(f"torch.searchsorted(): side can only be 'left' or 'right' but got {side}")
        if right and side == "left":
            raise RuntimeError(
                "torch.searchsorted(): side and right can't be set to opposites, got side of left while right was True"
            )
        right = side == "right"
    values = input if isinstance(input, Tensor) else T["tensor"](input, device=sorted_sequence.device)
    if sorter is not None:
        if sorter._spec.dtype is not INT64:
            raise RuntimeError(
                f"torch.searchsorted(): sorter must be a tensor of long dtype but got dtype {sorter._spec.dtype.scalar}"
            )
        if sorter._spec.shape != sorted_sequence._spec.shape:
            raise RuntimeError(
                "torch.searchsorted(): boundary and sorter must have the same size, but got boundary tensor "
                f"{list(sorted_sequence._spec.shape)} and sorter tensor {list(sorter._spec.shape)}"
            )
        sorted_sequence = sorted_sequence.gather(-1, sorter)
    if sorted_sequence._spec.ndim > 1 and sorted_sequence._spec.shape[:-1] != values._spec.shape[:-1]:
        raise RuntimeError(
            "torch.searchsorted(): boundaries tensor should be 1 dimension or the first N-1 dimensions of boundaries tensor and input value "
            f"tensor must match, but we got boundaries tensor {list(sorted_sequence._spec.shape)} and input value tensor {list(values._spec.shape)}"
        )
    found = function_of("bucketize_core")(values, sorted_sequence, right)
    return into(out, found.to(INT32) if out_int32 else found, "searchsorted", exact=True)


# ***** choices and coordinates *****


@composite("combinations", cached=True)
def combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """All ways to choose r elements of a vector, one a row."""
    if input._spec.ndim != 1:
        raise RuntimeError(f"Expect a 1D vector, but got shape {list(input._spec.shape)}")
    if r < 0:
        raise RuntimeError(f"Expect a non-negative number, but got {r}")
    size = input._spec.shape[0]
    places = list(
        (itertools.combinations_with_replacement if with_replacement else itertools.combinations)(range(size), r)
    )
    if r == 0:
        return T["empty"]((0,), dtype=input.dtype, device=input.device)
    if not places:
        return input.narrow(0, 0, 0).reshape(0, 1).expand(0, r).clone()
    index = T["tensor"](places, dtype=INT64, device=input.device)
    return function_of("index_select")(input, 0, index.reshape(-1)).reshape(len(places), r)


@composite("unravel_index")
def unravel_index(indices: Tensor, shape: Any) -> tuple[Tensor, ...]:
    """Indices into the flattened shape as one tensor of indices for each dim."""
    if indices._spec.dtype.kind not in "iu":
        raise TypeError(f"expected 'indices' to be integer dtype, but got {indices.dtype}")
    sizes = _sizes_of(shape)
    if any(s < 0 for s in sizes):
        raise ValueError(f"'shape' cannot have negative values, but got {sizes}")
    if not sizes:
        return ()
    steps, sizes = (T["tensor"](v, dtype=INT64, device=indices.device) for v in (contiguous_strides(sizes), sizes))
    places = function_of("floor_divide")(indices.unsqueeze(-1), steps) % sizes
    return places.unbind(-1)


def _sizes_of(shape: Any) -> tuple[int, ...]:
    """A shape as its callers write it: one int or several."""
    if isinstance(shape, int) and not isinstance(shape, bool):
        return (shape,)
    if not isinstance(shape, (tuple, list)):
        raise TypeError(f"expected 'shape' to be int or sequence of ints, but got {type(shape)}")
    for size in shape:
        if not hasattr(size, "__index__"):
            raise TypeError(f"expected 'shape' sequence to only contain ints, but got {type(size)}")
    return tuple([int(size) for size in shape])


# sparse tensors are what it is for: their own treatment of functions is not asked
@composite("native_norm", overridable=False, cached=True)
@forms(
    "(input: Tensor, p: Number = 2) -> Tensor",
    "(input: Tensor, p: Number | None, dim: int | Sequence[int], keepdim: bool, dtype: dtype | None) -> Tensor",
)
def native_norm(input: Tensor, p: Any = 2, dim: Any = (), keepdim: bool = False, dtype: Any = None) -> Any:
    """The norm of all elements of a sparse COO tensor; other layouts have `linalg.vector_norm`.

    NotImplementedError for other layouts, RuntimeError for some of the dims, `keepdim`, and another dtype, as in PyTorch.
    """
    if input.layout is not SPARSE_LAYOUTS["sparse_coo"]:
        raise NotImplementedError(f"native_norm: expected input in the layout torch.sparse_coo, found {input.layout}")
    if keepdim:
        raise RuntimeError("norm_sparse currently does not support keepdim=True")
    dims = _dims(dim) or ()
    if dims and len(dims) != input.dim():
        raise RuntimeError(
            "norm_sparse currently only supports full reductions, so 'dim' must either be empty or contain all dimensions of the input"
        )
    if dtype is not None:
        raise RuntimeError("norm_sparse currently does not support 'dtype' argument")
    return norm(input.coalesce().values(), 2 if p is None else p)
