"""Sorting on the CUDA backend, by the reference interpreter, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.cuda.running import primitive

from rushlight._backends.cuda.sort import radix, short, sort
from rushlight._prims import PRIMITIVES
from rushlight._prims.samples import any_dtype


def stable(x: Any, dim: int, descending: bool) -> Any:
    """The order of the reference."""
    return PRIMITIVES["sort"].reference(x, dim=dim, descending=descending, stable=True)[1]


@pytest.mark.parametrize("name", ["sort", "topk", "kth"])
def test_samples(name: str) -> None:
    """Values are those of the reference; of equals the first come first."""
    for arrays, params in PRIMITIVES[name].samples():
        values, indices = primitive(name, arrays, params)
        expected = PRIMITIVES[name].reference(*arrays, **params)[0]
        np.testing.assert_array_equal(values, expected)
        (x,) = arrays
        if not x.size:
            continue
        descending = params.get("descending", params.get("largest", False))
        order = stable(x, params["dim"], descending)
        first = params.get("rank", 0)
        ranks = np.arange(first, first + values.shape[params["dim"]])
        np.testing.assert_array_equal(indices, np.take(order, ranks, params["dim"]))


def awkward(dtype: str, shape: tuple[int, ...]) -> Any:
    """Many equals; for floats NaN of both signs, infinities and both zeros."""
    x = any_dtype(shape, dtype, 3)
    flat = x.reshape(-1)
    flat[::3] = flat[0]
    if dtype.startswith("float"):
        flat[::7], flat[::11], flat[::13], flat[::5] = -np.inf, np.inf, -0.0, 0.0
        flat[1::17], flat[2::19] = np.nan, -np.nan
    return x


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "uint8", "bool"])
@pytest.mark.parametrize("descending", [False, True])
def test_rows_of_all_lengths(dtype: str, descending: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """In registers, and by radix where rows are long."""
    monkeypatch.setattr(sort, "LONGEST", 64)
    monkeypatch.setattr(radix, "_BLOCK", 32)
    params = {"dim": 1, "descending": descending, "stable": True}
    for length in (37, 70):
        x = awkward(dtype, (1, length, 2))
        values, indices = primitive("sort", [x], params, orders={0: (1, 0, 2)})
        order = stable(x, 1, descending)
        np.testing.assert_array_equal(indices, order)
        np.testing.assert_array_equal(values, np.take_along_axis(x, order, 1))


@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_tournament(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    largest = dtype == "float32"
    for module in (sort, short):
        monkeypatch.setattr(module, "LONGEST", 32)
    x = awkward(dtype, (2, 300))
    for k in (7, 9):  # the last by radix
        values, indices = primitive("topk", [x], {"k": k, "dim": 1, "largest": largest, "sorted": True})
        order = stable(x, 1, largest)[:, :k]
        np.testing.assert_array_equal(indices, order)
        np.testing.assert_array_equal(values, np.take_along_axis(x, order, 1))
