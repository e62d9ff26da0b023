"""Writing at places, order statistics and sampling made of simpler operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight._engine.core import convert
from rushlight._engine.core.tensor import Tensor
from rushlight._engine.dispatch.modes import no_grad
from rushlight._engine.dispatch.results import OUT, result_type_of
from rushlight._engine.indexing import dynamic
from rushlight._ops.forms import forms
from rushlight._surface.composites.measures import into
from rushlight._surface.registry import SPACES, composite, function_of
from rushlight._types.dtype import BOOL, INT32, INT64
from rushlight._types.layout import broadcast_shapes, contiguous_strides, numel, wrap_dim
from rushlight._types.promotion import default_dtype

__all__: list[str] = []

T = SPACES["torch"]


# ***** writing *****


@composite("masked_scatter", method=True, once=True)
def masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """`input` with the first elements of source where the mask holds, in order."""
    if mask._spec.dtype is not BOOL:
        raise RuntimeError(f"masked_scatter_ only supports boolean masks, but got mask with dtype {mask.dtype}")
    if input._spec.dtype is not source._spec.dtype:
        raise RuntimeError(
            f"masked_scatter: expected self and source to have same dtypes but got {input.dtype} and {source.dtype}"
        )
    if not source._spec.numel:
        shape = broadcast_shapes(input._spec.shape, mask._spec.shape)
        if numel(shape) and mask.any():
            raise _too_few()
        return convert.clone(input.expand(shape))
    found, count = function_of("masked_scatter_core")(input, mask, source)
    if count._storage is not None and convert.item(count) > source._spec.numel:
        raise _too_few()
    return found


def _too_few() -> RuntimeError:
    return RuntimeError("Number of elements of source < number of ones in mask")


def _masked_scatter_(self: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """`masked_scatter` in place."""
    return self.copy_(masked_scatter(self, mask, source))


Tensor.masked_scatter_ = _masked_scatter_  # type: ignore[attr-defined]


def _fill_diagonal_(self: Tensor, fill_value: Any, wrap: bool = False) -> Tensor:
    """Write one number on the main diagonal, in place; with `wrap` a tall matrix's diagonal starts again below each block.

    RuntimeError for fewer than two dims, and for more than two of unequal sizes.
    """
    shape = self._spec.shape
    if len(shape) < 2:
        raise RuntimeError("dimensions must larger than 1")
    if len(shape) > 2 and len(set(shape)) > 1:
        raise RuntimeError("all dimensions of input must be of equal length")
    starts = range(0, shape[0], shape[1] + 1) if wrap and len(shape) == 2 else (0,)
    for start in starts:
        line: Any = self.narrow(0, start, shape[0] - start) if start else self
        while line.ndim > 1:
            line = line.diagonal(0, 0, -1)
        line.fill_(fill_value)
    return self


Tensor.fill_diagonal_ = _fill_diagonal_  # type: ignore[attr-defined]


@composite("index_reduce", method=True, refuses="bc", learns=True)
def index_reduce(
    input: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True, out: Any = None
) -> Tensor:
    """`input` reduced with source at the places listed along dim: "prod", "mean", "amax" or "amin"."""
    if reduce not in ("prod", "mean", "amax", "amin"):
        raise RuntimeError(f"index_reduce(): Expected reduce to be one of prod, mean, amax or amin but got {reduce}.")
    if index._spec.dtype not in (INT32, INT64):
        raise RuntimeError("index_reduce(): Expected dtype int32/int64 for index")
    if input._spec.dtype is not source._spec.dtype:
        raise RuntimeError("index_reduce(): self and source expected to have the same dtype")
    if index._spec.ndim > 1:
        raise IndexError(f"index_reduce_(): Index is supposed to be a vector, but got dim: {index._spec.ndim}")
    at = wrap_dim(dim, input._spec.ndim)
    if index._spec.numel != (source._spec.shape[at] if source._spec.ndim else 1):
        raise RuntimeError(
            f"index_reduce_(): Number of indices ({index._spec.numel}) should be equal to source.size(dim)"
        )
    wanted = (*input._spec.shape[:at], index._spec.numel, *input._spec.shape[at + 1 :]) if input._spec.ndim else ()
    if tuple(source._spec.shape) != wanted:
        raise RuntimeError(
            f"index_reduce_(): source tensor shape must match self tensor shape, excluding the specified dimension. Got self.shape = "
            f"{list(input.shape)} source.shape = {list(source.shape)}"
        )
    shape = [1] * max(source._spec.ndim, 1)
    shape[at] = index._spec.numel
    places = index.to(INT64).reshape(shape).expand(source._spec.shape or (1,))
    if not input._spec.ndim:
        found = function_of("scatter_reduce")(
            input.reshape(1), 0, places.reshape(-1), source.reshape(-1), reduce, include_self=include_self
        ).reshape(())
    else:
        found = function_of("scatter_reduce")(input, at, places, source, reduce, include_self=include_self)
    return into(out, found, "index_reduce", exact=True)


def _index_reduce_(
    self: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """`index_reduce` in place."""
    reduced = index_reduce(convert.clone(self), dim, index, source, reduce, include_self=include_self)
    return self.copy_(reduced)


Tensor.index_reduce_ = _index_reduce_  # type: ignore[attr-defined]


@composite("as_strided_scatter", method=True, learns=True)
def as_strided_scatter(
    input: Tensor, src: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Tensor:
    """`input` with src where `as_strided` with this size, stride and offset would look."""
    places = T["arange"](input._spec.numel).as_strided(size, stride, storage_offset)
    if tuple(places._spec.shape) != tuple(src._spec.shape):
        raise RuntimeError(
            "expected src to have a size equal to the slice of self. "
            f"src size = {list(src._spec.shape)}, slice size = {list(places._spec.shape)}"
        )
    return function_of("as_strided_scatter_core")(input, places.reshape(-1), src.to(input.dtype))


# ***** order statistics *****


@composite("nanmedian", method=True, learns=True)
@forms(
    "(input: Tensor) -> Tensor",
    "(input: Tensor, dim: int, keepdim: bool = False, *, out: tuple[Tensor, Tensor] | None = None) -> return_types.nanmedian",
)
def nanmedian(input: Tensor, dim: Any = None, keepdim: bool = False, *, out: Any = None) -> Any:
    """`median` of the elements that are not NaN (NaN where there are none)."""
    if dim is None:
        if not input._spec.numel:
            return T["full"]((), float("nan"), dtype=input.dtype)
        return into(out, _nanmedian_along(input.reshape(-1), 0, False)[0])
    values, indices = _nanmedian_along(input, dim, keepdim)
    return _named("nanmedian", (values, indices), out)


def _named(name: str, found: tuple[Any, Any], out: Any, fields: tuple[str, str] = ("values", "indices")) -> Any:
    if out is None:
        return result_type_of(name, fields)(found)
    if len(out) != len(found):
        raise TypeError(f"{name}(): expected tuple of {len(found)} elements as 'out' but got {len(out)}")
    return result_type_of(name + OUT, fields)([into(o, v, name, exact=True) for o, v in zip(out, found, strict=True)])


def _nanmedian_along(x: Tensor, dim: int, keepdim: bool) -> tuple[Any, Any]:
    if not x._spec.dtype.is_floating_point:
        return function_of("median_dim")(x, dim, keepdim)
    lines = x if x._spec.ndim else x.reshape(1)
    at = wrap_dim(dim, lines._spec.ndim)
    if lines._spec.shape[at] == 0:
        raise IndexError(f"median(): Expected reduction dim {at} to have non-zero size.")
    values, indices = function_of("sort")(lines, at, False, True)
    count = T["logical_not"](T["isnan"](lines)).sum(at, keepdim=True)
    rank = ((count - 1).clamp(min=0) // 2).to(INT64)
    found = [v.gather(at, rank) for v in (values, indices)]
    if not x._spec.ndim:
        found = [v.reshape(()) for v in found]
    elif not keepdim:
        found = [v.squeeze(at) for v in found]
    return found[0], found[1]


@composite("mode", method=True, learns=True)
@forms(
    "(input: Tensor, dim: int = -1, keepdim: bool = False, *, out: tuple[Tensor, Tensor] | None = None) -> return_types.mode"
)
def mode(input: Tensor, dim: int = -1, keepdim: bool = False, *, out: Any = None) -> Any:
    """The most frequent value along dim (the least of several), and a place where it stands."""
    lines = input if input._spec.ndim else input.reshape(1)
    at = wrap_dim(dim, lines._spec.ndim)
    if lines._spec.shape[at] == 0:
        raise IndexError(f"mode(): Expected reduction dim {at} to have non-zero size.")
    rows = lines.movedim(at, -1)
    ordered, order = function_of("sort")(rows, -1, False, True)
    size = ordered._spec.shape[-1]
    place = T["arange"](size).expand(ordered._spec.shape)
    first = T["ones_like"](ordered.narrow(-1, 0, 1), dtype=BOOL)
    begins = T["cat"]([first, ordered.narrow(-1, 1, size - 1) != ordered.narrow(-1, 0, size - 1)], -1)
    starts = function_of("cummax")(T["where"](begins, place, 0), -1)[0]
    length = place - starts + 1
    best = function_of("argmax")(length, -1, True)
    indices = order.gather(-1, best)
    values = rows.gather(-1, indices)
    values, indices = (v.movedim(-1, at) if keepdim else v.squeeze(-1) for v in (values, indices))
    if not input._spec.ndim:
        values, indices = values.reshape(()), indices.reshape(())
    return _named("mode", (values, indices), out)


# ***** slopes of sampled functions *****


@composite("gradient", refuses="bu", learns=True)
def gradient(input: Tensor, *, spacing: Any = None, dim: Any = None, edge_order: int = 1) -> tuple[Tensor, ...]:
    """Slopes along dims by central differences, one-sided at the ends (of order 1 or 2)."""
    ndim = input._spec.ndim
    dims = range(ndim) if dim is None else (dim,) if isinstance(dim, int) else dim
    dims = [wrap_dim(d, ndim) for d in dims]
    if len(set(dims)) != len(dims):
        raise RuntimeError(
            f"dim {next(d for d in dims if dims.count(d) > 1)} appears multiple times in the list of dims"
        )
    if edge_order not in (1, 2):
        raise RuntimeError("torch.gradient only supports edge_order=1 and edge_order=2.")
    if isinstance(spacing, Tensor) and spacing._spec.ndim:
        raise TypeError(
            "gradient(): argument 'spacing' must be a number, a tensor without dims or a tuple of Tensors, not a tensor with dims"
        )
    if isinstance(spacing, Tensor) or spacing is None or isinstance(spacing, (int, float, complex)):
        gaps: list[Any] = [1.0 if spacing is None else spacing] * len(dims)
    else:
        gaps = list(spacing)
    if len(gaps) != len(dims):
        raise RuntimeError(
            f"torch.gradient expected spacing to be unspecified, a scalar, or a list of length {len(dims)}, got {len(gaps)}"
        )
    for d in dims:
        if input._spec.shape[d] <= edge_order:
            raise RuntimeError("torch.gradient expected each dimension size to be at least edge_order+1")
    x = input if input.is_floating_point() or input.is_complex() else input.to(default_dtype())
    return tuple(_slope_along(x, d, gap, edge_order) for d, gap in zip(dims, gaps, strict=True))


def _slope_along(x: Any, d: int, gap: Any, edge_order: int) -> Any:
    size = x._spec.shape[d]

    def part(start: int, length: int) -> Any:
        return x.narrow(d, start, length)

    if isinstance(gap, Tensor) and gap._spec.ndim:
        shape = [-1 if i == d else 1 for i in range(x._spec.ndim)]
        steps = function_of("diff")(gap, 1, 0).reshape(shape)
        a, b = steps.narrow(d, 0, size - 2), steps.narrow(d, 1, size - 2)
        middle = (
            part(0, size - 2) * (-b / (a * (a + b)))
            + part(1, size - 2) * ((b - a) / (a * b))
            + part(2, size - 2) * (a / (b * (a + b)))
        )
        ends = [steps.narrow(d, i, 1) for i in (0, min(1, size - 2), size - 2, max(size - 3, 0))]
    else:
        middle = (part(2, size - 2) - part(0, size - 2)) / (2 * gap)
        ends = [gap, gap, gap, gap]
    if edge_order == 1:
        first = (part(1, 1) - part(0, 1)) / ends[0]
        last = (part(size - 1, 1) - part(size - 2, 1)) / ends[2]
    else:
        first = _second_order(part(0, 1), part(1, 1), part(2, 1), ends[0], ends[1])
        last = -_second_order(part(size - 1, 1), part(size - 2, 1), part(size - 3, 1), ends[2], ends[3])
    return T["cat"]([first, middle, last], d)


def _second_order(y0: Any, y1: Any, y2: Any, a: Any, b: Any) -> Any:
    return y0 * (-(2 * a + b) / (a * (a + b))) + y1 * ((a + b) / (a * b)) + y2 * (-a / (b * (a + b)))


# ***** histograms, places of a known number *****


@composite("histogram", method=True, refuses="bui")
@forms(
    "(input: Tensor, bins: int | Tensor = 100, *, range: Sequence[float] | None = None, weight: Tensor | None = None, density: bool = False, out: tuple[Tensor, Tensor] | None = None) -> return_types.histogram"
)
def histogram(
    input: Tensor, bins: Any = 100, *, range: Any = None, weight: Any = None, density: bool = False, out: Any = None
) -> Any:
    """(counts, edges): how many elements, or how much weight, each range holds; `bins` is a number or the edges."""
    for what, other in (("bins", bins), ("weight", weight)):
        if isinstance(other, Tensor) and other._spec.dtype is not input._spec.dtype:
            raise RuntimeError(
                f"torch.histogramdd: input tensor and {what} tensors should have the same dtype, but got input with dtype {input.dtype} and "
                f"{what} with dtype {other.dtype}"
            )
    x = input.reshape(-1)
    if isinstance(bins, Tensor):
        if bins._spec.ndim != 1:
            raise RuntimeError(
                f"torch.histogramdd: bins tensor should have one dimension, but got {bins._spec.ndim} dimensions in the bins tensor for dimension 0"
            )
        edges = bins
    else:
        if bins <= 0:
            raise RuntimeError(f"torch.histogramdd(): bins {bins} must be > 0")
        low, high = _range_of(x, range)
        edges = T["linspace"](low, high, bins + 1, dtype=input.dtype)
    count = edges._spec.shape[0] - 1
    inside = T["logical_and"](x >= edges[0], x <= edges[-1])
    place = (function_of("bucketize_core")(x, edges, True) - 1).clamp(0, count - 1)
    share = inside.to(input.dtype)
    if weight is not None:
        share = share * weight.reshape(-1)
    found = T["zeros"](count, dtype=input.dtype).scatter_add(0, place, share)
    if density:
        found = found / found.sum() / function_of("diff")(edges, 1, 0)
    return _named("histogram", (found, edges), out, ("hist", "bin_edges"))


def _range_of(x: Tensor, given: Any) -> tuple[float, float]:
    if given is not None:
        low, high = float(given[0]), float(given[1])
        if low > high:
            raise RuntimeError(f"torch.histogramdd(): min should not exceed max, but got min {low} max {high}")
    elif x._spec.numel:
        low, high = (float(convert.item(function_of(name)(x))) for name in ("min_all", "max_all"))
    else:
        low, high = 0.0, 1.0
    return (low - 0.5, high + 0.5) if low == high else (low, high)


@composite("nonzero_static", method=True)
def nonzero_static(input: Tensor, *, size: int, fill_value: int = -1, out: Any = None) -> Tensor:
    """`nonzero` with `size` rows: cut, or filled up with `fill_value`."""
    if out is not None and out._spec.dtype is not INT64:
        raise RuntimeError(
            f"nonzero_static: Expected out tensor to have scalar type Long but got scalar type {out._spec.dtype.scalar}"
        )
    if size < 0:
        raise RuntimeError("nonzero_static: 'size' must be an non-negative integer")
    found = dynamic.nonzero(input)
    rows = found._spec.shape[0]
    if rows >= size:
        found = found.narrow(0, 0, size)
    else:
        more = T["full"]((size - rows, found._spec.shape[1]), fill_value, dtype=INT64)
        found = T["cat"]([found, more], 0)
    return into(out, convert.call("clone_contiguous", found))


@composite("empty_permuted")
@forms("(size: Sequence[int], physical_layout: Sequence[int], *, **options: Like) -> Tensor")
def empty_permuted(size: Any, physical_layout: Any, **options: Any) -> Tensor:
    """Fresh memory whose dims lie in the order `physical_layout`, from outermost to innermost."""
    size, order = tuple(size), tuple(physical_layout)
    if len(size) == len(order) and len(set(order)) < len(order):
        raise RuntimeError("Duplicate dim not allowed")
    if len(size) != len(order) or sorted(order) != list(range(len(size))):
        raise RuntimeError(
            f"Number of dimensions in size does not match the length of the physical_layout; i.e. len(size) = {len(size)} "
            f"is not equal to len(physical_layout) = {len(order)}"
        )
    steps = contiguous_strides([size[d] for d in order])
    strides = [0] * len(size)
    for step, d in zip(steps, order, strict=True):
        strides[d] = step
    return T["empty_strided"](size, strides, **options)


# ***** normalisation with its statistics *****


@composite("native_layer_norm", learns=True)
def native_layer_norm(input: Tensor, normalized_shape: Any, weight: Any, bias: Any, eps: float) -> tuple[Any, Any, Any]:
    """(layer norm, mean, 1 / deviation) of each row."""
    out = function_of("layer_norm")(input, normalized_shape, weight, bias, eps)
    lead = input._spec.ndim - len(tuple(normalized_shape))
    dims = tuple(range(lead, input._spec.ndim))
    with no_grad():
        variance, middle = function_of("var_mean")(input, dims, correction=0.0, keepdim=True)
        return out, middle, T["rsqrt"](variance + eps)


@composite("native_group_norm", learns=True)
def native_group_norm(
    input: Tensor, weight: Any, bias: Any, N: int, C: int, HxW: int, group: int, eps: float
) -> tuple[Any, Any, Any]:
    """(group norm, mean, 1 / deviation) of each group."""
    out = function_of("group_norm")(input, group, weight, bias, eps)
    rows = input.reshape(N, group, numel((C // group, HxW)))
    variance, middle = function_of("var_mean")(rows, (2,), correction=0.0)
    return out, middle, T["rsqrt"](variance + eps)
