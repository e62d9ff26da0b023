"""Statistics: overloads of `var` and `median`, order statistics, histograms, reductions of segments, norms with moments."""

from __future__ import annotations

import builtins
import math
from typing import Any

from rushlight._engine.core import convert
from rushlight._engine.core.creation import as_shape
from rushlight._engine.core.tensor import Tensor
from rushlight._engine.dispatch.modes import no_grad
from rushlight._engine.dispatch.plans.results import OUT, result_type_of
from rushlight._ops.bodies import CPP_NAME
from rushlight._ops.forms import forms
from rushlight._ops.table import OPERATORS
from rushlight._surface.composites.measures import into
from rushlight._surface.registry import SPACES, composite, function_of
from rushlight._types.dtype import BOOL, FLOAT32, FLOAT64, INT32, INT64
from rushlight._types.layout import numel, wrap_dim

__all__: list[str] = []

T = SPACES["torch"]


def _spread(name: str) -> None:
    """var and its kin take `unbiased` in three positions, or `correction`."""

    def function(input: Tensor, *args: Any, **kwargs: Any) -> Any:
        if "axis" in kwargs:
            kwargs["dim"] = kwargs.pop("axis")
        if args and isinstance(args[0], bool):
            kwargs["unbiased"], args = args[0], args[1:]
        elif (
            len(args) > 1
            and isinstance(args[1], bool)
            and (len(args) > 2 or "keepdim" in kwargs or "correction" not in kwargs)
        ):
            kwargs["unbiased"] = args[1]
            if len(args) > 2:
                kwargs["keepdim"] = args[2]
            args = args[:1]
        unbiased = kwargs.pop("unbiased", None)
        if unbiased is not None:
            kwargs["correction"] = int(unbiased)
        return function_of(name)(input, *args, **kwargs)

    several = name.endswith("_mean")
    result, out = ("tuple[Tensor, Tensor]", "") if several else ("Tensor", ", out: Tensor | None = None")
    forms(
        f"(input: Tensor, dim: int | Sequence[int] | None = None, *, correction: Scalar | None = 1, keepdim: bool = False{out}) -> {result}",
        f"(input: Tensor, dim: int | Sequence[int] | None, unbiased: bool, keepdim: bool = False{', *' + out if out else ''}) -> {result}",
        f"(input: Tensor, unbiased: bool) -> {result}",
    )(function)
    function.__doc__ = OPERATORS[name].doc
    composite(name, method=name in ("var", "std"))(function)


for _name in ("var", "std", "var_mean", "std_mean"):
    if _name in OPERATORS:
        _spread(_name)


@composite("median", method=True, cached=True)
@forms(
    "(input: Tensor) -> Tensor",
    "(input: Tensor, dim: int, keepdim: bool = False, *, out: tuple[Tensor, Tensor] | None = None) -> return_types.median",
)
def median(input: Tensor, dim: Any = None, keepdim: bool = False, *, out: Any = None) -> Any:
    """The lower median of all, or (values, indices) along a dim."""
    extra = {} if out is None else {"out": out}
    if dim is None:
        return function_of("median_all")(input, **extra)
    return function_of("median_dim")(input, dim, keepdim, **extra)


@composite("sum_to_size", spaces=(), method=True, cached=True)
@forms("(self: Tensor, *size: int) -> Tensor", "(self: Tensor, size: Sequence[int]) -> Tensor")
def sum_to_size(self: Tensor, *size: Any) -> Tensor:
    """Summed over the dims that were broadcast from `size`."""
    target = as_shape(size)
    extra = self._spec.ndim - len(target)
    if extra < 0 or any(t not in (1, s) for s, t in zip(self._spec.shape[extra:], target, strict=True)):
        raise RuntimeError(f"size {{{list(target)}}} is not expandable to size {{{list(self._spec.shape)}}}.")
    dims = tuple(range(extra)) + tuple(
        extra + d for d, t in enumerate(target) if t == 1 and self._spec.shape[extra + d] != 1
    )
    if not target:
        return convert.call("sum", self)
    if not dims:
        return self
    return convert.call("sum", self, dims, True).reshape(target)


# ***** histograms of points *****


@composite("histogramdd")
@forms(
    "(input: Tensor, bins: int | Sequence[int] | Sequence[Tensor], *, range: Sequence[float] | None = None, weight: Tensor | None = None, density: bool = False) -> return_types.histogramdd"
)
def histogramdd(input: Tensor, bins: Any, *, range: Any = None, weight: Any = None, density: bool = False) -> Any:
    """(counts, edges): how many points, or how much weight, each box holds; the points lie along the last of at least two dims.

    `bins` is the number of boxes along every dim, such numbers, or vectors of edges; `range` gives the lowest and the highest edge
    of each dim in turn.  RuntimeError for sizes that do not fit.
    """
    if input._spec.ndim < 2:
        raise RuntimeError("torch.histogramdd: input tensor should have at least 2 dimensions")
    if input.dtype not in (FLOAT32, FLOAT64):
        raise NotImplementedError(f"\"histogramdd\" not implemented for '{CPP_NAME[input.dtype.name]}'")
    count = input.shape[-1]
    if not count and not (isinstance(bins, (list, tuple)) and bins):  # points without places: no box holds them
        lone = SPACES["torch"]["full"]((), math.nan if density else 0.0, dtype=input.dtype)
        return result_type_of("histogramdd", ("hist", "bin_edges"))((lone, ()))
    points = input.reshape(-1, count)
    shares = _point_weights(input, weight)
    axes = [bins] * count if isinstance(bins, int) else list(bins)
    if len(axes) != count:
        raise RuntimeError("histogramdd: The size of bins must be equal to the innermost dimension of the input.")
    if range is not None and len(range) != 2 * count:
        raise RuntimeError(
            f"torch.histogramdd: for a {count}-dimensional histogram range should have {2 * count} elements, but got {len(range)}"
        )
    columns = points.unbind(1)
    edges = [
        _edges_along(d, columns[d], axes[d], None if range is None else tuple(map(float, range[2 * d : 2 * d + 2])))
        for d in builtins.range(count)
    ]
    box, inside = 0, None
    for column, ends in zip(columns, edges, strict=True):
        held = function_of("logical_and")(column >= ends[0], column <= ends[-1])
        inside = held if inside is None else function_of("logical_and")(inside, held)
        size = ends.numel() - 1
        box = box * size + (function_of("bucketize_core")(column.contiguous(), ends, True) - 1).clamp(0, size - 1)
    shape = tuple(ends.numel() - 1 for ends in edges)
    shares = function_of("where")(inside, shares, 0.0)
    flat = SPACES["torch"]["zeros"](numel(shape), dtype=input.dtype)
    hist = flat.scatter_add(0, box, shares).reshape(shape)
    if density:
        hist = hist / hist.sum()
        for d, ends in enumerate(edges):
            hist = hist / function_of("diff")(ends, 1, 0).reshape([-1 if i == d else 1 for i in builtins.range(count)])
    return result_type_of("histogramdd", ("hist", "bin_edges"))((hist, tuple(edges)))


def _point_weights(input: Tensor, weight: Any) -> Any:
    shape = input.shape[:-1]
    if weight is None:
        return SPACES["torch"]["ones"](numel(shape), dtype=input.dtype)
    if weight.dtype is not input.dtype:
        raise RuntimeError(
            "torch.histogramdd: if weight tensor is provided, input tensor and weight tensor should have the same dtype, but got "
            f"input({input.dtype}), and weight({weight.dtype})"
        )
    if weight.shape != shape:
        raise RuntimeError(
            "torch.histogramdd: if weight tensor is provided it should have the same shape as the input tensor excluding its innermost "
            f"dimension, but got input with shape {list(input.shape)} and weight with shape {list(weight.shape)}"
        )
    return weight.reshape(-1)


def _check_ends(d: int, low: float, high: float) -> None:
    if not (math.isfinite(low) and math.isfinite(high)):
        raise RuntimeError(f"torch.histogramdd: dimension {d}'s range [{low:g}, {high:g}] is not finite")
    if low > high:
        raise RuntimeError(
            f"torch.histogramdd: min should not exceed max, but got min {low:g} max {high:g} for dimension {d}"
        )


def _edges_along(d: int, column: Any, bins: Any, ends: tuple[float, ...] | None) -> Any:
    """The edges along one dim: as given, or at equal distances."""
    if isinstance(bins, Tensor):
        if bins.dtype is not column.dtype:
            raise RuntimeError(
                "torch.histogramdd: input tensor and bins tensors should have the same dtype, but got input with dtype "
                f"{column.dtype} and bins for dimension {d} with dtype {bins.dtype}"
            )
        if bins._spec.ndim != 1:
            raise RuntimeError(
                f"torch.histogramdd: bins tensor should have one dimension, but got {bins._spec.ndim} dimensions in the bins tensor for dimension {d}"
            )
        if bins._spec.numel < 2:
            raise RuntimeError(f"torch.histogram(): bins must be > 0, but got {bins._spec.numel - 1} for dimension {d}")
        return bins
    if bins <= 0:
        raise RuntimeError(f"torch.histogram(): bins must be > 0, but got {bins} for dimension {d}")
    if ends is None:
        ends = (0.0, 1.0)
        if column.numel():
            ends = tuple(float(convert.item(function_of(name)(column))) for name in ("min_all", "max_all"))
    low, high = ends
    _check_ends(d, low, high)
    if low == high:
        low, high = low - 0.5, high + 0.5
    return SPACES["torch"]["linspace"](low, high, bins + 1, dtype=column.dtype)


# ***** pieces of a dim *****


@composite("segment_reduce")
@forms(
    "(data: Tensor, reduce: str, *, lengths: Tensor | None = None, indices: Tensor | None = None, offsets: Tensor | None = None, axis: int = 0, unsafe: bool = False, initial: float | None = None) -> Tensor"
)
def segment_reduce(
    data: Tensor,
    reduce: str,
    *,
    lengths: Any = None,
    indices: Any = None,
    offsets: Any = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: Any = None,
) -> Tensor:
    """Segments of `data` along `axis` reduced to one each: "sum", "mean", "max", "min" or "prod", begun with `initial` if given.

    The pieces have these `lengths` (*, segments), or begin and end at `offsets` (*, segments + 1).  Unless `unsafe`, RuntimeError
    for lengths that do not add up to the size of the dim.

    >>> torch.segment_reduce(torch.tensor([1.0, 2.0, 3.0]), "sum", lengths=torch.tensor([2, 1]))
    tensor([3., 3.])
    """
    kind = {"amax": "max", "amin": "min"}.get(reduce, reduce)
    if kind not in ("sum", "mean", "max", "min", "prod"):
        raise RuntimeError(f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}")
    if indices is not None:
        raise RuntimeError("segment_reduce(): indices based reduction is not supported yet.")
    if lengths is None and offsets is None:
        raise RuntimeError("segment_reduce(): Either lengths or offsets must be defined.")
    given = offsets if offsets is not None else lengths
    axis = wrap_dim(axis, data._spec.ndim)
    if given._spec.ndim - 1 != axis:
        raise RuntimeError(
            f"segment_reduce(): Expected axis to be the last dimension of {'offsets' if given is offsets else 'lengths'} but got {axis}."
        )
    if tuple(given.shape[:-1]) != tuple(data.shape[:axis]):
        raise RuntimeError(
            f"segment_reduce(): expected leading dims {list(data.shape[:axis])}, got {list(given.shape)}"
        )
    if given.dtype not in (INT32, INT64):
        raise NotImplementedError(
            f"\"_segment_reduce_lengths_cpu_kernel1\" not implemented for '{CPP_NAME[given.dtype.name]}'"
        )
    if offsets is None:
        offsets = _offsets_of(lengths, data.shape[axis], unsafe)
    return function_of("segment_reduce_core")(data, offsets, kind, axis, initial)


composite("_segment_reduce")(segment_reduce)


def _offsets_of(lengths: Any, size: int, unsafe: bool) -> Any:
    """Where pieces of these lengths begin and end."""
    if not unsafe:
        if lengths.numel() and convert.item(function_of("min_all")(lengths)) < 0:
            raise RuntimeError("lengths contains negative value!")
        if not convert.item(convert.call("all", lengths.sum(-1) == size)):
            raise RuntimeError(
                "segment_reduce(): Expected all rows of lengths along axis to sum to data.size(lengths.dim()-1) when !unsafe."
            )
    ends = lengths.cumsum(-1)
    return SPACES["torch"]["cat"]([ends.new_zeros((*lengths.shape[:-1], 1)), ends], -1)


@composite("nanmedian", method=True, cached=True)
@forms(
    "(input: Tensor) -> Tensor",
    "(input: Tensor, dim: int, keepdim: bool = False, *, out: tuple[Tensor, Tensor] | None = None) -> return_types.nanmedian",
)
def nanmedian(input: Tensor, dim: Any = None, keepdim: bool = False, *, out: Any = None) -> Any:
    """`median` of the elements that are not NaN (NaN where there are none)."""
    if dim is None:
        return into(out, function_of("nanmedian_all")(input))
    values, indices = _nanmedian_along(input, dim, keepdim)
    return _named("nanmedian", (values, indices), out)


def _named(name: str, found: tuple[Any, Any], out: Any, fields: tuple[str, str] = ("values", "indices")) -> Any:
    if out is None:
        return result_type_of(name, fields)(found)
    if len(out) != len(found):
        raise TypeError(f"{name}(): expected tuple of {len(found)} elements as 'out' but got {len(out)}")
    return result_type_of(name + OUT, fields)(
        [into(o, v, name, True, place) for place, (o, v) in enumerate(zip(out, found, strict=True))]
    )


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


@composite("mode", method=True, cached=True)
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
    place = T["arange"](size, device=input.device).expand(ordered._spec.shape)
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
            raise RuntimeError(f"torch.histogram(): bins must be > 0, but got {bins} for dimension 0")
        low, high = _range_of(x, range)
        edges = T["linspace"](low, high, bins + 1, dtype=input.dtype, device=input.device)
    count = edges._spec.shape[0] - 1
    inside = T["logical_and"](x >= edges[0], x <= edges[-1])
    place = (function_of("bucketize_core")(x, edges, True) - 1).clamp(0, count - 1)
    share = inside.to(input.dtype)
    if weight is not None:
        share = share * _point_weights(x.unsqueeze(-1), weight.reshape(-1))
    found = T["zeros"](count, dtype=input.dtype, device=input.device).scatter_add(0, place, share)
    if density:
        found = found / found.sum() / function_of("diff")(edges, 1, 0)
    return _named("histogram", (found, edges), out, ("hist", "bin_edges"))


def _range_of(x: Tensor, given: Any) -> tuple[float, float]:
    if given is not None:
        low, high = float(given[0]), float(given[1])
    elif x._spec.numel:
        low, high = (float(convert.item(function_of(name)(x))) for name in ("min_all", "max_all"))
    else:
        low, high = 0.0, 1.0
    _check_ends(0, low, high)
    return (low - 0.5, high + 0.5) if low == high else (low, high)


@composite("native_layer_norm", cached=True)
def native_layer_norm(input: Tensor, normalized_shape: Any, weight: Any, bias: Any, eps: float) -> tuple[Any, Any, Any]:
    """(layer norm, mean, 1 / deviation) of each row."""
    out = function_of("layer_norm")(input, normalized_shape, weight, bias, eps)
    lead = input._spec.ndim - len(tuple(normalized_shape))
    dims = tuple(range(lead, input._spec.ndim))
    with no_grad():
        variance, middle = function_of("var_mean")(input, dims, correction=0.0, keepdim=True)
        return out, middle, T["rsqrt"](variance + eps)


@composite("native_group_norm", cached=True)
def native_group_norm(
    input: Tensor, weight: Any, bias: Any, N: int, C: int, HxW: int, group: int, eps: float
) -> tuple[Any, Any, Any]:
    """(group norm, mean, 1 / deviation) of each group."""
    out = function_of("group_norm")(input, group, weight, bias, eps)
    rows = input.reshape(N, group, numel((C // group, HxW)))
    variance, middle = function_of("var_mean")(rows, (2,), correction=0.0)
    return out, middle, T["rsqrt"](variance + eps)
