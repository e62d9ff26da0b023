"""Reductions, scans, sorts and histograms."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from typing import Any

from rushlight._interface.blocks import Value

from .ambient import builder, builtin, compilation
from .arithmetic import cast, maximum, minimum, where
from .dtypes import BY_TRITON_NAME, dtype
from .mathematics import exp, fdiv
from .promotion import broadcast_to_shape
from .shapes import arange, expand_dims, gather, reshape
from .values import constant, make, member, tensor, to_tensor

__all__ = [
    "argmax", "argmin", "associative_scan", "bitonic_merge", "cumprod", "cumsum", "histogram", "max", "min", "reduce", "reduce_or", "softmax",
    "sort", "sum", "topk", "xor_sum",
]  # fmt: skip

_BOOL, _INT32, _UINT32, _FLOAT32 = (BY_TRITON_NAME[n] for n in ("int1", "int32", "uint32", "fp32"))
Combine = Callable[..., Any]


def _axis(axis: int, ndim: int) -> int:
    if not -ndim <= axis < ndim:
        raise ValueError(f"invalid axis {axis}. Expected {-ndim} <= axis < {ndim}")
    return axis % ndim


def _region_body(xs: Sequence[tensor], combine: Any) -> Callable[..., list[Value]]:
    """A user's function of scalars as the body of a reduction or scan."""

    def body(_: Any, lefts: Sequence[Value], rights: Sequence[Value]) -> list[Value]:
        scalars = [tensor(v, x.dtype) for v, x in zip([*lefts, *rights], [*xs, *xs], strict=True)]
        results = compilation().call(combine, scalars, {})
        results = results if isinstance(results, builtins.tuple) else (results,)
        if len(results) != len(xs):
            raise ValueError(f"combine_fn gives {len(results)} values, and there are {len(xs)} operands")
        for result, x in zip(results, xs, strict=True):
            if to_tensor(result).type != x.dtype:
                raise ValueError(f"combine_fn gives {to_tensor(result).type} where the operand holds {x.dtype}")
        return [to_tensor(result).handle for result in results]

    return body


@member()
@builtin
def reduce(input: Any, axis: int | None, combine_fn: Any, keep_dims: bool = False) -> Any:
    """Blocks combined along an axis (all of them for None) by an associative function of scalars.

    `input` may be a tuple of blocks; then the function takes a left scalar of each and a right scalar of each, and gives as
    many.
    """
    single = isinstance(input, tensor)
    xs = [to_tensor(x) for x in ((input,) if single else input)]
    shape = xs[0].shape
    if not shape:
        return input
    if axis is None:
        xs, axis, kept = [reshape(x, [x.handle.type.numel]) for x in xs], 0, (1,) * len(shape)
    else:
        axis = _axis(axis, len(shape))
        kept = (*shape[:axis], 1, *shape[axis + 1 :])
    values = builder().reduce([x.handle for x in xs], axis, _region_body(xs, combine_fn))
    results = [make(value, x.dtype) for value, x in zip(values, xs, strict=True)]
    if keep_dims:
        results = [reshape(r, kept) if r.shape else broadcast_to_shape(r, kept) for r in results]
    return results[0] if single else builtins.tuple(results)


@member()
@builtin
def associative_scan(input: Any, axis: int, combine_fn: Any, reverse: bool = False) -> Any:
    """Prefixes along an axis, combined by an associative function of scalars; from the end with `reverse`."""
    single = isinstance(input, tensor)
    xs = [to_tensor(x) for x in ((input,) if single else input)]
    axis = _axis(axis, len(xs[0].shape))
    values = builder().scan([x.handle for x in xs], axis, _region_body(xs, combine_fn), bool(reverse))
    results = [make(value, x.dtype) for value, x in zip(values, xs, strict=True)]
    return results[0] if single else builtins.tuple(results)


# ***** named reductions *****


def _sum_type(element: dtype, wanted: dtype | None) -> dtype:
    """Integers below 32 bits are added in 32."""
    if wanted is not None:
        return wanted.scalar
    if element.is_int() and element.int_bitwidth < 32:
        return _INT32 if element.is_int_signed() else _UINT32
    return element


def _add(a: tensor, b: tensor) -> tensor:
    return a + b


@member()
@builtin
def sum(input: Any, axis: int | None = None, keep_dims: bool = False, dtype: Any = None) -> tensor:
    """The sum along an axis, or of all elements."""
    x = to_tensor(input)
    return reduce(cast(x, _sum_type(x.dtype, dtype)), axis, _add, keep_dims)


def _best(greater: bool, left: bool) -> Combine:
    """Combines (value, index) pairs: the greater or lesser value, with the smaller index where they are equal."""

    def combine(a: tensor, i: tensor, b: tensor, j: tensor) -> tuple[tensor, tensor]:
        first = a > b if greater else a < b
        if left:
            first = first | ((a == b) & (i < j))
        return where(first, a, b), where(first, i, j)

    return combine


def _extreme(greater: bool, input: Any, axis: int | None, indices: bool, left: bool, keep_dims: bool) -> Any:
    x = to_tensor(input)
    if not x.shape:
        return (x, constant(0, _INT32)) if indices else x
    if not indices:
        return reduce(_wide(x), axis, maximum if greater else minimum, keep_dims)
    if axis is None:
        places = reshape(arange(0, x.handle.type.numel), x.shape)
    else:
        axis = _axis(axis, len(x.shape))
        places = broadcast_to_shape(_along(x.shape[axis], axis, len(x.shape)), x.shape)
    return reduce((x, places), axis, _best(greater, left), keep_dims)


def _wide(x: tensor) -> tensor:
    """Numbers of at least 32 bits."""
    if x.dtype.primitive_bitwidth >= 32:
        return x
    return cast(x, _FLOAT32 if x.dtype.is_floating() else _INT32)


def _along(size: int, axis: int, ndim: int) -> tensor:
    """0, 1, ... along an axis of a block of `ndim` dims."""
    at = arange(0, size)
    for dim in range(ndim):
        if dim != axis:
            at = expand_dims(at, dim)
    return at


@member()
@builtin
def max(
    input: Any,
    axis: int | None = None,
    return_indices: bool = False,
    return_indices_tie_break_left: bool = True,
    keep_dims: bool = False,
) -> Any:
    """The greatest along an axis, or of all; with its index where `return_indices` is set.  NaN is passed over."""
    return _extreme(True, input, axis, return_indices, return_indices_tie_break_left, keep_dims)


@member()
@builtin
def min(
    input: Any,
    axis: int | None = None,
    return_indices: bool = False,
    return_indices_tie_break_left: bool = True,
    keep_dims: bool = False,
) -> Any:
    """The least along an axis, or of all; with its index where `return_indices` is set.  NaN is passed over."""
    return _extreme(False, input, axis, return_indices, return_indices_tie_break_left, keep_dims)


@member()
@builtin
def argmax(input: Any, axis: int | None, tie_break_left: bool = True, keep_dims: bool = False) -> tensor:
    """The index of the greatest along an axis."""
    return _extreme(True, input, axis, True, tie_break_left, keep_dims)[1]


@member()
@builtin
def argmin(input: Any, axis: int | None, tie_break_left: bool = True, keep_dims: bool = False) -> tensor:
    """The index of the least along an axis."""
    return _extreme(False, input, axis, True, tie_break_left, keep_dims)[1]


def _of_integers(name: str, x: tensor) -> tensor:
    if not x.dtype.is_int():
        raise ValueError(f"{name} only supported for integers")
    return x


@member()
@builtin
def xor_sum(input: tensor, axis: int | None = None, keep_dims: bool = False) -> tensor:
    """Bits that are set in an odd number of elements."""
    return reduce(_of_integers("xor_sum", input), axis, lambda a, b: a ^ b, keep_dims)


@member()
@builtin
def reduce_or(input: tensor, axis: int | None, keep_dims: bool = False) -> tensor:
    """Bits that are set in any element."""
    return reduce(_of_integers("reduce_or", input), axis, lambda a, b: a | b, keep_dims)


@member()
@builtin
def cumsum(input: Any, axis: int = 0, reverse: bool = False, dtype: Any = None) -> tensor:
    """Sums up to each place of an axis."""
    return associative_scan(cast(input, _sum_type(input.dtype, dtype)), axis, _add, reverse)


@member()
@builtin
def cumprod(input: Any, axis: int = 0, reverse: bool = False, dtype: Any = None) -> tensor:
    """Products up to each place of an axis."""
    x = cast(input, _sum_type(input.dtype, dtype))
    return associative_scan(x, axis, lambda a, b: a * b, reverse)


@member()
@builtin
def softmax(x: tensor, dim: int | None = None, keep_dims: Any = None, ieee_rounding: bool = False) -> tensor:
    """exp(x) over its sum along a dim (the first one)."""
    dim = 0 if dim is None else dim
    numerator = exp(x - max(x, dim, keep_dims=True))
    return fdiv(numerator, sum(numerator, dim, keep_dims=True), ieee_rounding)


# ***** order *****


def _sorted(x: tensor, descending: bool) -> tensor:
    """The last dim in order, by a bitonic network: each place is compared with the place that differs in one bit."""
    axis, size = len(x.shape) - 1, x.shape[-1]
    at = broadcast_to_shape(_along(size, axis, len(x.shape)), x.shape)
    length = 2
    while length <= size:
        rising = (at & length) == 0 if length < size else None
        x = _merged(x, at, length // 2, rising, descending)
        length *= 2
    return x


def _merged(x: tensor, at: tensor, stride: int, rising: tensor | None, descending: bool) -> tensor:
    """Bitonic runs of 2 * stride in order: `rising` says which of them rise (all for None)."""
    while stride:
        other = gather(x, at ^ stride, len(x.shape) - 1)
        least = (at & stride) == 0  # whether this is the first place of its pair
        if rising is not None:
            least = least == rising
        if descending:
            least = ~least
        keep = where(least, x <= other, x >= other)
        x = where(keep, x, other)
        stride //= 2
    return x


def _last_dim(x: tensor, dim: int | None) -> None:
    if dim is not None and _axis(dim, len(x.shape)) != len(x.shape) - 1:
        raise ValueError("only minor dimension is currently supported")


@member()
@builtin
def sort(x: tensor, dim: int | None = None, descending: bool = False) -> tensor:
    """The last dim in ascending (or descending) order."""
    _last_dim(x, dim)
    return _sorted(x, bool(descending))


@member()
@builtin
def topk(x: tensor, k: int, dim: int | None = None, descending: bool = True) -> tensor:
    """The k greatest (or, without `descending`, least) of the last dim, in order; k is a power of 2."""
    _last_dim(x, dim)
    if not 0 < k <= x.shape[-1] or k & (k - 1):
        raise ValueError(f"topk: k must be a power of two within the selected dimension, and is {k}")
    if k == 1 or k < x.shape[-1]:
        x = _wide(x)
    places = broadcast_to_shape(_along(k, len(x.shape) - 1, len(x.shape)), (*x.shape[:-1], k))
    return gather(_sorted(x, bool(descending)), places, len(x.shape) - 1)


@member()
@builtin
def bitonic_merge(x: tensor, dim: int | None = None, descending: bool = False) -> tensor:
    """A bitonic last dim in order."""
    _last_dim(x, dim)
    axis = len(x.shape) - 1
    at = broadcast_to_shape(_along(x.shape[-1], axis, len(x.shape)), x.shape)
    return _merged(x, at, x.shape[-1] // 2, None, bool(descending))


@member()
@builtin
def histogram(input: tensor, num_bins: int, mask: Any = None) -> tensor:
    """How often each of 0 ... num_bins - 1 occurs (where the mask is true): int32."""
    given = [] if mask is None else [broadcast_to_shape(cast(to_tensor(mask), _BOOL), input.shape).handle]
    return make(builder().value("histogram", input.handle, *given, bins=num_bins), _INT32)


@builtin
def map_elementwise(scalar_fn: Any, *args: tensor, pack: int = 1) -> Any:
    """A function of scalars at each place.  Its operators apply to blocks as they do to scalars."""
    return compilation().call(scalar_fn, args, {})


__all__ += ["map_elementwise"]
