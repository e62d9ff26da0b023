"""Where elements are, their order, and the set of their values."""

from __future__ import annotations

from typing import Any, NamedTuple

import rushlight
from rushlight import Tensor
from rushlight.array_api.dtypes import operands
from rushlight.array_api.manipulation import axes_of

__all__ = [
    "argmax", "argmin", "argsort", "nonzero", "searchsorted", "sort", "unique_all", "unique_counts", "unique_inverse", "unique_values", "where",
]  # fmt: skip


class UniqueAll(NamedTuple):
    """Distinct values, the first place of each, which of them every element is, how often each is there."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """Distinct values and how often each is there."""

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """Distinct values and which of them every element is."""

    values: Tensor
    inverse_indices: Tensor


def argmax(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The places of the largest elements along a dim (of the flattened array by default); the first of several."""
    return _extreme(rushlight.argmax, x, axis, keepdims)


def argmin(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The places of the smallest elements along a dim (of the flattened array by default); the first of several."""
    return _extreme(rushlight.argmin, x, axis, keepdims)


def _extreme(function: Any, x: Tensor, axis: int | None, keepdims: bool) -> Tensor:
    if axis is not None:
        return function(x, axes_of(x, axis)[0], keepdims)
    place = function(x.reshape(-1), 0)
    return place.reshape([1] * x.ndim) if keepdims else place


def nonzero(x: Tensor, /) -> tuple[Tensor, ...]:
    """The places of elements that are not zero, an array of indices for each dim, in row-major order.

    Raises ValueError for an array without dims.
    """
    if x.ndim == 0:
        raise ValueError("nonzero: expected an array with at least one dim, found none")
    return tuple(rushlight.nonzero(x, as_tuple=True))


def where(condition: Tensor, x1: Any, x2: Any, /) -> Tensor:
    """Elements of `x1` where the condition holds, else of `x2`, in their common dtype; all three broadcast. One may be
    a number.

    >>> import rushlight.array_api as xp
    >>> x = xp.asarray([-1.0, 2.0], dtype=xp.float64)
    >>> xp.where(x > 0, x, 0)
    tensor([0., 2.], dtype=torch.float64)
    """
    if isinstance(x1, Tensor) or isinstance(x2, Tensor):
        x1, x2 = operands("where", x1, x2)
    return rushlight.where(rushlight.ne(condition, 0), x1, x2)


def searchsorted(x1: Tensor, x2: Tensor, /, *, side: str = "left", sorter: Tensor | None = None) -> Tensor:
    """Where in the sorted `x1` elements of `x2` belong, as int64: before equal ones (`side="left"`) or after them
    ("right").

    `sorter`: indices that sort `x1`, where it is not.

        >>> import rushlight.array_api as xp
        >>> xp.searchsorted(xp.asarray([1, 2, 2, 3]), xp.asarray([2, 4])), xp.searchsorted(xp.asarray([1, 2, 2, 3]), xp.asarray([2]), side="right")
        (tensor([1, 4]), tensor([3]))
    """
    if side not in ("left", "right"):
        raise ValueError(f"searchsorted: expected side 'left' or 'right', found {side!r}")
    # PyTorch's has none for bool
    x1, x2 = (x.byte() if x.dtype is rushlight.bool else x for x in operands("searchsorted", x1, x2))
    if sorter is not None:
        x1 = rushlight.index_select(x1, 0, sorter.to(rushlight.int64))
    return rushlight.searchsorted(x1, x2.contiguous(), side=side)


def _order(x: Tensor, axis: int, descending: bool) -> Any:
    return rushlight.sort(x, dim=axis, descending=descending, stable=True)[1]


def argsort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """Indices that sort along a dim; equal elements keep their order, with `stable` or without."""
    return _order(x, axis, descending)


def sort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """Elements in order along a dim, NaN last (first where `descending`)."""
    return rushlight.sort(x, dim=axis, descending=descending, stable=True)[0]


def _distinct(x: Tensor) -> UniqueAll:
    """Every element that differs from its predecessor in sorted order begins a group; NaN differs from everything,
    itself too.
    """
    flat: Any = x.reshape(-1)
    if x.dtype.is_complex:  # by real parts, and among equal ones by imaginary parts
        order = _order(flat.imag, 0, False)
        order = order[_order(flat.real[order], 0, False)]
    else:
        order = _order(flat, 0, False)
    ordered = flat[order]
    begins: Any = rushlight.ones(flat.shape, dtype=rushlight.bool, device=x.device)
    begins[1:] = ordered[1:] != ordered[:-1]
    starts = rushlight.nonzero(begins, as_tuple=True)[0]
    inverse = rushlight.empty_like(order)
    inverse[order] = rushlight.cumsum(begins, 0) - 1
    ends = rushlight.cat([starts[1:], rushlight.full((1,), flat.numel(), device=x.device)]) if len(starts) else starts
    return UniqueAll(ordered[starts], order[starts], inverse.reshape(x.shape), ends - starts)


def unique_all(x: Tensor, /) -> UniqueAll:
    """Distinct values in ascending order with their first places, inverse and counts. Every NaN is distinct, -0.0 is
    0.0.

    >>> import rushlight.array_api as xp
    >>> found = xp.unique_all(xp.asarray([3, 1, 3]))
    >>> found.values, found.indices, found.inverse_indices, found.counts
    (tensor([1, 3]), tensor([1, 0]), tensor([1, 0, 1]), tensor([1, 2]))
    """
    return _distinct(x)


def unique_counts(x: Tensor, /) -> UniqueCounts:
    """Distinct values and how often each is there."""
    found = _distinct(x)
    return UniqueCounts(found.values, found.counts)


def unique_inverse(x: Tensor, /) -> UniqueInverse:
    """Distinct values and, for every element, which of them it is."""
    found = _distinct(x)
    return UniqueInverse(found.values, found.inverse_indices)


def unique_values(x: Tensor, /) -> Tensor:
    """Distinct values."""
    return _distinct(x).values
