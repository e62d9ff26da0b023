"""Formulas of reductions, cumulative operators, sorting and choices by order."""

from __future__ import annotations

import math
from typing import Any

import rushlight
from rushlight.library.aten.derivatives import joint, op, rule, scalar, zeros

__all__: list[str] = []


def dims_of(dim: Any, ndim: int) -> list[int]:
    """Dims counted from the front; all of them for none."""
    if dim is None or isinstance(dim, (list, tuple)) and not dim:
        return list(range(ndim))
    dim = dim if isinstance(dim, (list, tuple)) else [dim]
    return [d % ndim if ndim else 0 for d in dim]


def restored(g: Any, dim: Any, keepdim: bool, ndim: int) -> Any:
    """A reduced tensor with its dims back as dims of size one."""
    if keepdim or not ndim or dim is None or isinstance(dim, (list, tuple)) and not dim:
        return g
    for d in sorted(dims_of(dim, ndim)):
        g = g.unsqueeze(d)
    return g


def reshaped(g: Any, dim: Any, keepdim: bool, x: Any) -> Any:
    """As `restored`, as one view."""
    if keepdim:
        return g
    if not x.ndim:
        return g.view([1] * len(dim or ()))
    dims = dims_of(dim, x.ndim)
    return g.view([1 if d in dims else n for d, n in enumerate(x.shape)])


def expanded(g: Any, dim: Any, keepdim: bool, sizes: list[int]) -> Any:
    """The gradient of a sum."""
    return restored(g, dim, keepdim, len(sizes)).expand(sizes)


def count(dim: Any, sizes: list[int]) -> int:
    """The number of elements that a reduction joins."""
    return math.prod(sizes[d] for d in dims_of(dim, len(sizes))) if sizes else 1


rule("sum", self=lambda g, c: g.expand(c.sizes("self")))
rule("sum.dim_IntList", self=lambda g, c: expanded(g, c.dim, c.keepdim, c.sizes("self")))
rule("nansum", self=lambda g, c: nansum(g, c))
rule("mean", self=lambda g, c: g.expand(c.sizes("self")).call("div.Scalar", math.prod(c.sizes("self"))))
rule(
    "mean.dim",
    self=lambda g, c: expanded(g, c.dim, c.keepdim, c.sizes("self")).call("div.Scalar", count(c.dim, c.sizes("self"))),
)
rule("prod", self=lambda g, c: product(g, c.self, c.result))
rule("prod.dim_int", self=lambda g, c: product_along(g, c.self, c.result, c.dim, c.keepdim))
rule("amax amin", self=lambda g, c: extreme_along(g, c.self, c.result, c.dim, c.keepdim))
rule("max min median nanmedian", self=lambda g, c: spread(g, c.self, c.result))
rule(
    "max.dim min.dim median.dim nanmedian.dim mode",
    self=lambda g, c: scattered(g, c.dim, c.result1, c.sizes("self"), c.keepdim),
)
rule("kthvalue", self=lambda g, c: scattered(g, c.dim, c.result1, c.sizes("self"), c.keepdim))
rule("sort", self=lambda g, c: scattered(g, c.dim, c.result1, c.sizes("self"), True))
rule("sort.stable", self=lambda g, c: scattered(g, c.dim, c.result1, c.sizes("self"), True))
rule("topk", self=lambda g, c: scattered(g, c.dim, c.result1, c.sizes("self"), True))
joint("aminmax", "self", lambda g, c: aminmax(g, c))
rule("cummax cummin", self=lambda g, c: zeros(c.sizes("self"), g).scatter_add(c.dim, c.result1, g))
rule("cumsum", self=lambda g, c: reversed_sum(g, c.dim))
rule("cumprod", self=lambda g, c: cumulative_product(g, c.self, c.result, c.dim))
rule("logcumsumexp", self=lambda g, c: cumulative_logsumexp(g, c.self, c.result, c.dim))
rule("logsumexp", self=lambda g, c: logsumexp(g, c))
rule("var.correction", self=lambda g, c: variance(g, c.self, c.dim, c.correction, c.keepdim))
rule("std.correction", self=lambda g, c: deviation(g, c.self, c.result, c))
joint("var_mean.correction", "self", lambda g, c: with_mean(g, c, None))
joint("std_mean.correction", "self", lambda g, c: with_mean(g, c, c.result0))
rule("linalg_vector_norm", self=lambda g, c: vector_norm(g, c))
rule(
    "dist",
    self=lambda g, c: norm(g, c.self - c.other, c.p, c.result),
    other=lambda g, c: -norm(g, c.self - c.other, c.p, c.result),
)
rule(
    "norm.ScalarOpt_dim",
    self=lambda g, c: norm(g, c.self, c.p, c.result, dims_of(c.dim, len(c.sizes("self"))), c.keepdim),
)
rule("norm.Scalar", self=lambda g, c: norm(g, c.self, c.p, c.result))
rule("renorm", self=lambda g, c: renormed(g, c.self, c.p, c.dim, c.maxnorm))
rule("trace", self=lambda g, c: traced(g, c.sizes("self")))


def nansum(g: Any, c: Any) -> Any:
    """The gradient goes to elements that are numbers."""
    sizes = c.sizes("self")
    kept = c.self.isnan().logical_not()
    return expanded(g, c.dim, c.keepdim, sizes) * kept


def spread(g: Any, x: Any, result: Any) -> Any:
    """The gradient in equal parts to all elements that are the result."""
    missing = x.isnan().logical_and(result.isnan())
    mask = op("eq.Tensor")(x, result).logical_or_(missing)
    return mask * (g / mask.sum())


def extreme_along(g: Any, x: Any, result: Any, dim: Any, keepdim: bool) -> Any:
    """The gradient of `amax`: equal parts to all elements that are the result."""
    mask = op("eq.Tensor")(reshaped(result, dim, keepdim, x), x)
    g = reshaped(g, dim, keepdim, x)
    return mask_share(g, mask, list(dim or []))


def mask_share(g: Any, mask: Any, dim: list[int]) -> Any:
    """`g` divided among the places of a mask."""
    return g / mask.call("sum.dim_IntList", dim, True) * mask


def aminmax(g: Any, c: Any) -> Any:
    """The gradients of smallest and greatest element, added."""
    found = None
    low, high = c.result0, c.result1
    for grad, extreme in ((g[0], low), (g[1], high)):
        if grad is None:
            continue
        x = c.self
        dims = c.dim if c.dim is None else [c.dim]
        extreme = reshaped(extreme, dims, c.keepdim, x)
        grad = reshaped(grad, dims, c.keepdim, x)
        mask = op("eq.Tensor")(x, extreme)
        part = grad / mask.call("sum.dim_IntList", dims_of(dims, x.ndim), True) * mask
        found = part if found is None else found + part
    return (found,)


def scattered(g: Any, dim: int, indices: Any, sizes: list[int], keepdim: bool) -> Any:
    """The gradient at the places that were chosen."""
    if not keepdim and sizes:
        g, indices = g.unsqueeze(dim), indices.unsqueeze(dim)
    return g.new_zeros(sizes).call("scatter.src", dim, indices, g)


def reversed_sum(g: Any, dim: int) -> Any:
    """The cumulative sum from the end."""
    if math.prod(g.shape) <= 1 or g.shape[dim] == 1:
        return g
    return g.flip([dim]).cumsum(dim).flip([dim])


def product(g: Any, x: Any, result: Any) -> Any:
    """The gradient of the product of all elements."""
    if not x.ndim:
        return g
    return products_of_others(g, x.view([-1]), 0).view(x.shape) if math.prod(x.shape) else g.expand(x.shape)


def product_along(g: Any, x: Any, result: Any, dim: int, keepdim: bool) -> Any:
    """The gradient of the product along a dim."""
    if not x.ndim:
        return g
    if not keepdim:
        g = g.unsqueeze(dim)
        result.unsqueeze(dim)  # made to be looked at
    return products_of_others(g, x, dim % x.ndim)


def products_of_others(g: Any, x: Any, dim: int) -> Any:
    """For each element the product of the others, times the gradient."""
    size = x.shape[dim]
    if size == 1:
        return g
    if not math.prod(x.shape):
        return g.expand(x.shape)
    ones = op("ones")([*x.shape[:dim], 1, *x.shape[dim + 1 :]], **x.options())
    before = op("cat")([ones, x.call("slice.Tensor", dim, 0, size - 1)], dim).cumprod(dim)
    after = op("cat")([ones, x.call("slice.Tensor", dim, 1, size).flip([dim])], dim).cumprod(dim).flip([dim])
    return g * (before * after).conj()


def cumulative_product(g: Any, x: Any, result: Any, dim: int) -> Any:
    """The gradient of a cumulative product, exact where elements are zero."""
    sizes = x.shape
    if math.prod(sizes) <= 1 or sizes[dim] == 1:
        return g
    dim = dim % x.ndim
    x, result = x.conj(), result.conj()
    w = result * g
    is_zero = x.call("eq.Scalar", 0)
    out = zeros(sizes, g)
    before = is_zero.cumsum(dim)
    mask = before.call("eq.Scalar", 0)
    plain = reversed_sum(w.call("masked_fill.Scalar", mask.bitwise_not(), 0), dim) / x
    out = op("where.self")(mask, plain, out)
    first = before.call("eq.Scalar", 1)
    place = first.call("max.dim", dim, True)[1]
    here = first.zeros_like().call("scatter_.value", dim, place, 1).logical_and_(first)
    between = first.call("bitwise_and_.Tensor", here.bitwise_not())  # behind the first zero, before the second
    rest = x.call("masked_fill.Scalar", between.bitwise_not(), 1)
    upto = rest.cumprod(dim)
    given = g.call("masked_fill.Scalar", before.call("ne.Scalar", 1), 0)
    earlier = (place - 1).relu_()
    ahead = result.gather(dim, earlier).call("masked_fill_.Scalar", place.call("eq.Scalar", 0), 1)
    total = (upto * given).call("sum.dim_IntList", [dim], True) * ahead
    return op("where.self")(here, total, out)


def cumulative_logsumexp(g: Any, x: Any, result: Any, dim: int) -> Any:
    """The gradient of the cumulative log-sum-exp, positive and negative parts apart."""
    if not g.ndim or not math.prod(g.shape):
        return g
    low = scalar(rushlight.finfo(g.dtype).min, g)
    size = g.abs().log()
    positive = op("where.self")(g.call("gt.Scalar", 0), size, low)
    negative = op("where.self")(g.call("lt.Scalar", 0), size, low)

    def part(value: Any) -> Any:
        return ((value - result).flip([dim]).logcumsumexp(dim).flip([dim]) + x).exp()

    up = part(positive)
    return up - part(negative)


def logsumexp(g: Any, c: Any) -> Any:
    """The gradient of a log-sum-exp: a softmax."""
    result = c.result
    ndim = len(c.sizes("self"))
    g, result = restored(g, c.dim, c.keepdim, ndim), restored(result, c.dim, c.keepdim, ndim)
    return g * (c.self - result).exp().conj()


def _freedom(sizes: list[int], dim: Any, correction: Any) -> float:
    return count(dim, sizes) - (1 if correction is None else correction)


def variance(g: Any, x: Any, dim: Any, correction: Any, keepdim: bool) -> Any:
    """The gradient of a variance."""
    sizes = x.shape
    freedom = _freedom(sizes, dim, correction)
    if not sizes or dim is None or not dim:
        center = x - x.mean()
        return ((2.0 / freedom if freedom > 0 else math.nan) * g) * center
    if not keepdim and len(sizes) > 1:
        g = restored(g, dim, False, len(sizes))
    center = x - x.call("mean.dim", list(dim), True)
    return ((2.0 / freedom if freedom else math.inf) * g) * center


def deviation(g: Any, x: Any, result: Any, c: Any) -> Any:
    """The gradient of a standard deviation; zero where it is zero."""
    part = (g / (result * 2)).call("masked_fill_.Scalar", result.call("eq.Scalar", 0), 0)
    return variance(part, x, c.dim, c.correction, c.keepdim)


def with_mean(g: Any, c: Any, deviations: Any) -> Any:
    """The gradients of variance (or deviation) and mean, added."""
    sizes, found = c.sizes("self"), None
    if g[0] is not None:
        found = (
            variance(g[0], c.self, c.dim, c.correction, c.keepdim)
            if deviations is None
            else deviation(g[0], c.self, deviations, c)
        )
    if g[1] is not None:
        part = expanded(g[1], c.dim, c.keepdim, sizes).call("div.Scalar", count(c.dim, sizes))
        found = part if found is None else found + part
    return (found,)


def vector_norm(g: Any, c: Any) -> Any:
    """The gradient of a vector norm."""
    x, dim = c.self, c.dim
    whole = dim is None or not dim
    return norm(g, x, c.ord, c.result, [] if whole else dims_of(dim, x.ndim), c.keepdim)


def norm(g: Any, x: Any, p: Any, result: Any, dim: Any = (), keepdim: bool = True) -> Any:
    """The gradient of a norm along dims, zero where the norm is zero."""
    p = 2.0 if p is None else float(p)
    ndim = x.ndim
    if not keepdim and ndim and dim:
        g, result = restored(g, list(dim), False, ndim), restored(result, list(dim), False, ndim)
    if p == 0:
        return None
    if p == 1:
        return g * x.sgn()
    if p == 2:
        return g * (x / result).call("masked_fill_.Scalar", result.call("eq.Scalar", 0), 0)
    if math.isinf(p):
        size = x.abs()
        mask = op("eq.Tensor")(size, result).logical_or(size.isnan())
        places = mask.call("sum.dim_IntList", list(dim), True)
        share = g / places * mask
        return x.sgn() * share
    if p < 1:
        part = x.abs().call("pow_.Scalar", p - 1).call("masked_fill_.Scalar", x.call("eq.Scalar", 0), 0)
        part = x.sgn() * part
        length = result.call("pow.Tensor_Scalar", 1 - p)
        return part * g * length
    part = x.abs().call("pow_.Scalar", p - 1 if p < 2 else p - 2)
    part = (x.sgn() if p < 2 else x) * part
    ratio = g / result.call("pow.Tensor_Scalar", p - 1)
    return part * ratio.call("masked_fill_.Scalar", result.call("eq.Scalar", 0), 0)


def renormed(g: Any, x: Any, p: Any, dim: int, limit: Any) -> Any:
    """The gradient of `renorm`."""
    dim = dim % x.ndim
    others = [d for d in range(x.ndim) if d != dim]
    wide = rushlight.float64 if x.dtype is rushlight.float32 else x.dtype
    size = x.call("linalg_vector_norm", p, others, True, dtype=wide)
    inner = (x * g).call("sum.dim_IntList", others, True, dtype=wide)
    slope = x.sgn() * inner if p == 1 else norm(inner, x, p, size, others, True)
    inverse = (size + 1e-7).reciprocal()
    inner = g - inverse * slope
    part = limit * inverse * inner
    part = part._to_copy(dtype=g.dtype) if part.dtype is not g.dtype else part
    return op("where.self")(size.call("gt.Scalar", limit), part, g)


def traced(g: Any, sizes: list[int]) -> Any:
    """The gradient on the diagonal of a matrix."""
    flat = zeros([sizes[0] * sizes[1]], g)
    step = sizes[1] + 1
    places = op("arange.start_step")(
        0,
        min(sizes[0] * sizes[1], sizes[1] * sizes[1]),
        step,
        dtype=rushlight.int64,
        layout=rushlight.strided,
        device=g.tensor.device,
    )
    return flat.call("index_fill.int_Tensor", 0, places, g).view(sizes)
