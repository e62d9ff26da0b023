"""Reductions, running sums and differences against NumPy: dtypes, axes (none, several, the empty tuple), kept dims, empty arrays."""

from __future__ import annotations

import numpy as np
import pytest
from tests.array_api.arrays import ALL, FLOATING, INTEGER, NUMERIC, REAL, agree, kind, numbers

import rushlight.array_api as xp

pytest.importorskip("numpy", minversion="2.1")

REDUCTIONS = {
    "sum": NUMERIC, "prod": NUMERIC, "max": INTEGER + REAL, "min": INTEGER + REAL, "mean": FLOATING, "std": REAL, "var": REAL,
    "all": ALL, "any": ALL, "count_nonzero": ALL, "argmax": INTEGER + REAL, "argmin": INTEGER + REAL,
}  # fmt: skip
ONE_AXIS = ("argmax", "argmin")
EMPTY = ("sum", "prod", "all", "any", "count_nonzero")


def few(name: str, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers whose products stay small."""
    special = name not in ("prod", "std", "var", "mean", "cumulative_prod", "cumulative_sum")
    x = numbers(dtype, shape, special)
    return np.asarray(x % x.dtype.type(4)) if kind(dtype) == "i" and name in ("prod", "cumulative_prod") else x


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name: str) -> None:
    for i, dtype in enumerate(REDUCTIONS[name]):
        loose = 1e-4 if dtype in ("float32", "complex64") else None
        axes = [None, 0, -1] if name in ONE_AXIS else [None, 0, -1, (0, 2), ()]
        for axis in axes:
            x = few(name, dtype, (2, 3, 4))
            x[x == 0] = 0  # sums of one -0.0 have either sign
            agree(name, x, axis=axis, keepdims=bool(i % 2), tolerance=loose)
            i += 1
        agree(name, few(name, dtype, ()), tolerance=loose)
        if name in EMPTY:
            agree(name, few(name, dtype, (0, 3)), axis=i % 2, tolerance=loose)


@pytest.mark.parametrize("name", ["sum", "prod", "cumulative_sum", "cumulative_prod"])
def test_wide_results_and_asked_dtypes(name: str) -> None:
    for dtype in NUMERIC:
        for asked in NUMERIC:
            if kind(asked) == kind(dtype):
                x = abs(few(name, dtype, (3,))).astype(dtype)
                agree(name, x, dtype=np.dtype(asked), tolerance=1e-4)
    assert xp.sum(xp.ones(3, dtype=xp.uint8)).dtype is xp.uint64
    assert xp.sum(xp.ones(3, dtype=xp.int8)).dtype is xp.sum(xp.ones(3, dtype=xp.bool)).dtype is xp.int64
    assert xp.sum(xp.ones(3, dtype=xp.float32)).dtype is xp.float32


@pytest.mark.filterwarnings("ignore:Degrees of freedom")
@pytest.mark.parametrize("dtype", REAL)
@pytest.mark.parametrize("correction", [0, 1, 0.5, 1.5, 3, 10])
def test_moments_take_any_correction(correction: float, dtype: str) -> None:
    x = numbers(dtype, (3, 4), False)
    for axis in (None, 0, (0, 1)):
        for name in ("var", "std"):
            with np.errstate(all="ignore"):
                want = getattr(np, name)(x, axis=axis, ddof=correction)
            got = getattr(xp, name)(xp.asarray(x), axis=axis, correction=correction)
            np.testing.assert_allclose(got.numpy(), want, rtol=1e-4 if dtype == "float32" else 1e-12)
            assert got.dtype is getattr(xp, dtype)


@pytest.mark.parametrize("name", ["cumulative_sum", "cumulative_prod"])
def test_running(name: str) -> None:
    for i, dtype in enumerate(NUMERIC):
        loose = 1e-4 if dtype in ("float32", "complex64") else None
        agree(name, few(name, dtype, (4,)), include_initial=bool(i % 2), tolerance=loose)
        agree(name, few(name, dtype, (2, 3)), axis=i % 2, include_initial=not i % 2, tolerance=loose)
        agree(name, few(name, dtype, (0,)), include_initial=bool(i % 2), tolerance=loose)
    with pytest.raises(ValueError, match=f"{name}: expected an axis for an array of 2 dims, found none"):
        getattr(xp, name)(xp.ones((2, 2)))


@pytest.mark.parametrize("dtype", ALL)
def test_diff(dtype: str) -> None:
    x = numbers(dtype, (3, 5), False)
    for n in (0, 1, 2, 7):
        agree("diff", x, n=n)
    agree("diff", x, axis=0, prepend=x[:1], append=x[:2])


def test_axes_that_are_not_there() -> None:
    with pytest.raises(IndexError, match="axis 2 is out of range for an array of 2 dims"):
        xp.sum(xp.ones((2, 2)), axis=2)
    with pytest.raises(ValueError, match="name a dim of an array of 2 dims twice"):
        xp.max(xp.ones((2, 2)), axis=(0, -2))
