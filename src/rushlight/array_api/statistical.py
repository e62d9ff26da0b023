"""Sums, extremes, moments and truths over dims.

`axis`: a dim, a tuple of dims (the empty one reduces nothing), or None for all. Sums and products of narrow integers
are wide.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import rushlight
from rushlight import Tensor, dtype
from rushlight.array_api.dtypes import joined
from rushlight.array_api.manipulation import axes_of

__all__ = [
    "all", "any", "count_nonzero", "cumulative_prod", "cumulative_sum", "diff", "max", "mean", "min", "prod", "std", "sum", "var",
]  # fmt: skip


def _wide(found: dtype, asked: dtype | None) -> dtype:
    """The dtype of a sum: what was asked for, else integers in their widest form and floats as they are."""
    if asked is not None:
        return asked
    if found.is_floating_point or found.is_complex:
        return found
    signed = found.is_signed or found is rushlight.bool
    return rushlight.int64 if signed else rushlight.uint64


def _floating(x: Tensor) -> Any:
    return x if x.dtype.is_floating_point or x.dtype.is_complex else x.to(rushlight.get_default_dtype())


def _over(function: Callable[..., Tensor], x: Tensor, axis: Any, keepdims: bool) -> Tensor:
    """`function(x, dims, keepdim)`; dims of none reduce nothing, which PyTorch understands as all."""
    axes = axes_of(x, axis)
    if axes or x.ndim == 0:
        return function(x, axes, keepdims)
    return function(x.unsqueeze(-1), (-1,), False)


def _last(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    """`x` with these dims moved to the end and joined to one."""
    kept = [d for d in range(x.ndim) if d not in axes]
    return x.permute((*kept, *axes)).reshape([x.shape[d] for d in kept] + [_size(x, axes)])


def _size(x: Tensor, axes: tuple[int, ...]) -> int:
    """How many elements lie along these dims."""
    count = 1
    for a in axes:
        count *= x.shape[a]
    return count


def _kept(x: Tensor, axes: tuple[int, ...]) -> list[int]:
    return [1 if d in axes else n for d, n in enumerate(x.shape)]


def sum(x: Tensor, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """Sums over dims. Integers are summed as int64 or uint64, floats in their own dtype, unless `dtype` says otherwise.

    >>> import rushlight.array_api as xp
    >>> xp.sum(xp.asarray([200, 100], dtype=xp.uint8))
    tensor(300, dtype=torch.uint64)
    """
    made = x.to(_wide(x.dtype, dtype))
    if axis == ():
        return made.clone()
    return _over(lambda x, dims, keep: rushlight.sum(x, dims, keep, dtype=x.dtype), made, axis, keepdims)


def prod(x: Tensor, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """Products over dims, with the dtypes of `sum`."""
    axes, made = axes_of(x, axis), x.to(_wide(x.dtype, dtype))
    made = rushlight.prod(_last(made, axes), -1, dtype=made.dtype)
    return made.reshape(_kept(x, axes)) if keepdims else made


def mean(x: Tensor, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """Arithmetic means over dims; NaN of no elements."""
    return _over(rushlight.mean, _floating(x), axis, keepdims)


def var(x: Tensor, /, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """Variances over dims: squared distances from the mean, summed, divided by their number less `correction`.

    >>> import rushlight.array_api as xp
    >>> xp.var(xp.asarray([1.0, 2.0, 4.0]), correction=0.5)
    tensor(1.8667)
    """
    x = _floating(x)
    axes = axes_of(x, axis)
    count = _size(x, axes)
    far: Any = x - _over(rushlight.mean, x, axis, True) if axes else x - x
    squared: Any = _over(rushlight.sum, far * far, axis, keepdims)
    divisor = count - correction
    return squared / (divisor if divisor > 0 else 0.0)


def std(x: Tensor, /, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """Standard deviations over dims: square roots of `var`."""
    return rushlight.sqrt(var(x, axis=axis, correction=correction, keepdims=keepdims))


def max(x: Tensor, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The largest elements over dims; NaN where there is one."""
    return _over(rushlight.amax, x, axis, keepdims)


def min(x: Tensor, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The smallest elements over dims; NaN where there is one."""
    return _over(rushlight.amin, x, axis, keepdims)


def all(x: Tensor, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """Whether all elements over dims are true (not zero), as bool."""
    return _over(rushlight.all, rushlight.ne(x, 0), axis, keepdims)


def any(x: Tensor, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """Whether an element over dims is true (not zero), as bool."""
    return _over(rushlight.any, rushlight.ne(x, 0), axis, keepdims)


def count_nonzero(x: Tensor, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """How many elements over dims are not zero, as int64."""
    return _over(rushlight.sum, rushlight.ne(x, 0), axis, keepdims)


def _running(name: str, x: Tensor, axis: int | None, dtype: Any, include_initial: bool, first: int) -> Tensor:
    if axis is None:
        if x.ndim > 1:
            raise ValueError(f"{name}: expected an axis for an array of {x.ndim} dims, found none")
        axis = 0
    x = x.reshape(1) if x.ndim == 0 else x
    (axis,) = axes_of(x, axis)
    made = x.to(_wide(x.dtype, dtype))
    running = rushlight.cumsum if first == 0 else rushlight.cumprod
    made = running(made, axis, dtype=made.dtype)
    if include_initial:
        start = rushlight.full(
            [1 if d == axis else n for d, n in enumerate(x.shape)], first, dtype=made.dtype, device=made.device
        )
        made = rushlight.cat([start, made], axis)
    return made


def cumulative_sum(
    x: Tensor, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> Tensor:
    """Sums of the first elements along a dim, with the dtypes of `sum`; `include_initial` puts the sum of none in
    front.

    `axis` may be left out where `x` has one dim.

        >>> import rushlight.array_api as xp
        >>> xp.cumulative_sum(xp.asarray([1, 2, 3]), include_initial=True)
        tensor([0, 1, 3, 6])
    """
    return _running("cumulative_sum", x, axis, dtype, include_initial, 0)


def cumulative_prod(
    x: Tensor, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> Tensor:
    """Products of the first elements along a dim, with the dtypes of `sum`; `include_initial` puts the product of none
    in front.
    """
    return _running("cumulative_prod", x, axis, dtype, include_initial, 1)


def diff(
    x: Tensor, /, *, axis: int = -1, n: int = 1, prepend: Tensor | None = None, append: Tensor | None = None
) -> Tensor:
    """Differences of neighbours along a dim, `n` times; `prepend` and `append` are joined to `x` before.

    >>> import rushlight.array_api as xp
    >>> xp.diff(xp.asarray([1, 4, 9, 16])), xp.diff(xp.asarray([1, 4, 9, 16]), n=2)
    (tensor([3, 5, 7]), tensor([2, 2]))
    """
    (axis,) = axes_of(x, axis)
    parts = [p for p in (prepend, x, append) if p is not None]
    common = joined(*[p.dtype for p in parts])
    made = rushlight.cat([p.to(common) for p in parts], axis) if len(parts) > 1 else x
    for _ in range(n):
        size = made.shape[axis]
        if size == 0:
            break
        later, earlier = made.narrow(axis, 1, size - 1), made.narrow(axis, 0, size - 1)
        made = later != earlier if common is rushlight.bool else later - earlier
    return made.clone() if made is x else made
