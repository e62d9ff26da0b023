"""Orders, places and sets against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from tests.array_api.arrays import ALL, COMPLEX, agree, numbers, ours, same

import rushlight.array_api as xp

pytest.importorskip("numpy", minversion="2.1")

ORDERED = [d for d in ALL if d not in COMPLEX]


def stable_order(x: np.ndarray, axis: int, descending: bool) -> np.ndarray:
    """NumPy has no descending stable order: sort the reversed array and count from the other end."""
    if not descending:
        return np.argsort(x, axis=axis, kind="stable")
    order = np.argsort(np.flip(x, axis), axis=axis, kind="stable")
    return np.flip(x.shape[axis] - 1 - order, axis)


@pytest.mark.parametrize("dtype", ORDERED)
def test_sort(dtype: str) -> None:
    for shape, axis in (((7,), -1), ((3, 4), 0), ((0,), 0)):
        x = np.nan_to_num(numbers(dtype, shape)) if dtype.startswith("f") else numbers(dtype, shape)
        for descending in (False, True):
            order = stable_order(x, axis, descending)
            same(xp.argsort(ours(x), axis=axis, descending=descending), order)
            same(xp.sort(ours(x), axis=axis, descending=descending, stable=False), np.take_along_axis(x, order, axis))


@pytest.mark.parametrize("dtype", ORDERED)
def test_searchsorted(dtype: str) -> None:
    x, wanted = (np.nan_to_num(numbers(dtype, shape)) for shape in ((7,), (2, 3)))
    order = np.argsort(x)
    for side in ("left", "right"):
        agree("searchsorted", x[order], wanted, side=side)
        same(
            xp.searchsorted(ours(x), ours(wanted), side=side, sorter=ours(order)),
            np.searchsorted(x, wanted, side, order),
        )
    with pytest.raises(ValueError, match="expected side 'left' or 'right', found 'middle'"):
        xp.searchsorted(ours(x), ours(wanted), side="middle")


@pytest.mark.parametrize("dtype", ALL)
def test_unique(dtype: str) -> None:
    for shape in ((), (0,), (3, 4)):
        x = numbers(dtype, shape)
        if x.size > 2:
            x.flat[-1] = x.flat[0]
        values, first, inverse, counts = np.unique(
            x, return_index=True, return_inverse=True, return_counts=True, equal_nan=False
        )
        found = xp.unique_all(ours(x))
        same(tuple(found), (values, first, inverse, counts))
        assert found._fields == ("values", "indices", "inverse_indices", "counts")
        same(tuple(xp.unique_counts(ours(x))), (values, counts))
        same(tuple(xp.unique_inverse(ours(x))), (values, inverse))
        same(xp.unique_values(ours(x)), values)


def test_every_nan_is_distinct_and_both_zeros_are_one() -> None:
    found = xp.unique_all(xp.asarray([xp.nan, 0.0, xp.nan, -0.0]))
    assert (
        found.counts.tolist() == [2, 1, 1]
        and found.indices.tolist() == [1, 0, 2]
        and found.inverse_indices.tolist() == [1, 0, 2, 0]
    )
    z = xp.unique_counts(xp.asarray([1 + 1j, complex(xp.nan, 0), 1 + 1j, complex(xp.nan, 0), 1 - 1j]))
    assert z.counts.tolist() == [1, 2, 1, 1]


@pytest.mark.parametrize("dtype", ALL)
def test_where_and_nonzero(dtype: str) -> None:
    x, other, mask = numbers(dtype, (3, 4)), numbers(dtype, (4,), seed="other"), numbers("bool", (3, 1))
    agree("nonzero", x)
    agree("where", mask, x, other)
    agree("where", mask, x, other[0].item())
    agree("where", mask, other[0].item(), x)
    with pytest.raises(ValueError, match="at least one dim"):
        xp.nonzero(xp.asarray(1))


def test_first_of_several_extremes() -> None:
    x = np.array([[2, 7, 7], [1, 1, 9]])
    for name in ("argmax", "argmin"):
        for axis in (None, 0, 1):
            agree(name, x, axis=axis, keepdims=True)
