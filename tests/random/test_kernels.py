"""The kernels against stored results of real PyTorch, on plain memory: no tensors are involved."""

from __future__ import annotations

import hashlib
import json
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rushlight._engine.random import random as streams
from rushlight._types.dtype import BY_NAME

EXPECTED = json.loads((pathlib.Path(__file__).parent / "expected.json").read_text())
SINGLE = {name: rows[0] for name, rows in EXPECTED.items() if len(rows) == 1 and name.count("-") == 2}


def _uniform(low: float, high: float) -> Callable[..., None]:
    return lambda g, ptr, n, dtype: streams.fill_uniform(g, ptr, n, dtype, low, high)


def _bernoulli_each(g: Any, ptr: int, n: int, dtype: Any) -> None:
    double = dtype.name == "float64"
    p = _rounded(np.arange(n) / n, dtype).astype(np.float64 if double else np.float32)
    assert streams.fill_bernoulli_each(g, ptr, n, dtype, p.ctypes.data, double)


def _poisson(g: Any, ptr: int, n: int, dtype: Any) -> None:
    rates = _rounded(np.arange(n) / n * 40, dtype)
    assert streams.fill_poisson(g, ptr, n, dtype, rates.ctypes.data)


def _rounded(values: np.ndarray, dtype: Any) -> np.ndarray:
    """float64 values that `dtype` can hold."""
    if dtype.name == "bfloat16":
        bits = values.astype(np.float32).view(np.uint32)
        return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32).astype(np.float64)
    return values.astype(dtype.name).astype(np.float64)


FILLS: dict[str, Callable[..., Any]] = {
    "rand": streams.fill_uniform,
    "randn": streams.fill_normal,
    "uniform": _uniform(-3.5, 1.25),
    "normal": lambda g, ptr, n, dtype: streams.fill_normal(g, ptr, n, dtype, 1.5, 0.02),
    "exponential": lambda g, ptr, n, dtype: streams.fill_exponential(g, ptr, n, dtype, 2.5),
    "cauchy": lambda g, ptr, n, dtype: streams.fill_cauchy(g, ptr, n, dtype, 0.5, 2.0),
    "log_normal": lambda g, ptr, n, dtype: streams.fill_log_normal(g, ptr, n, dtype, 0.25, 0.75),
    "geometric": lambda g, ptr, n, dtype: streams.fill_geometric(g, ptr, n, dtype, 0.3),
    "bernoulli_scalar": lambda g, ptr, n, dtype: streams.fill_bernoulli(g, ptr, n, dtype, 0.3),
    "random": streams.fill_random,
    "random_to": lambda g, ptr, n, dtype: streams.fill_integers(g, ptr, n, dtype, 0, 100),
    "random_from_to": lambda g, ptr, n, dtype: streams.fill_integers(g, ptr, n, dtype, -20, 77),
    "dropout": lambda g, ptr, n, dtype: streams.fill_bernoulli(g, ptr, n, dtype, 0.75, 1 / 0.75),
    "bernoulli_tensor": _bernoulli_each,
    "poisson": _poisson,
}


def seeds() -> dict[str, int]:
    """The seed of each case, as `cases.py` gives them out."""
    import sys

    sys.path.insert(0, str(pathlib.Path(__file__).parent))
    import cases

    return {
        name: run.__defaults__[-1] if run.__defaults__ and len(run.__defaults__) == 4 else 99
        for name, run in cases.CASES.items()
    }


SEEDS = seeds()


@pytest.mark.parametrize("name", SINGLE)
def test_stored(name: str) -> None:
    fill, dtype_name, count = name.split("-")
    dtype, n = BY_NAME[dtype_name], int(count)
    out = np.zeros(n * dtype.itemsize, np.uint8)
    FILLS[fill](streams.Generator().manual_seed(SEEDS[name]), out.ctypes.data, n, dtype)
    stored_dtype, shape, first, digest = SINGLE[name]
    assert (stored_dtype, shape) == (dtype_name, [n])
    data = out.tobytes()
    assert data[: len(first) // 2].hex() == first
    assert hashlib.sha256(data).hexdigest()[:32] == digest


@pytest.mark.parametrize("dtype_name", ["float32", "float64", "bfloat16"])
def test_chunks_continue(dtype_name: str) -> None:
    """Filling in pieces draws what filling at once draws."""
    dtype = BY_NAME[dtype_name]
    whole, pieces = np.zeros(5000 * dtype.itemsize, np.uint8), np.zeros(5000 * dtype.itemsize, np.uint8)
    streams.fill_uniform(streams.Generator().manual_seed(1), whole.ctypes.data, 5000, dtype)
    g, at = streams.Generator().manual_seed(1), 0
    for n in (1, 622, 1, 2, 624, 1247, 3, 2500):
        streams.fill_uniform(g, pieces.ctypes.data + at * dtype.itemsize, n, dtype)
        at += n
    assert at == 5000
    assert whole.tobytes() == pieces.tobytes()


def test_uniform_moments() -> None:
    """Not only PyTorch's numbers, but good ones: mean and variance of a million."""
    x = np.zeros(1_000_000, np.float32)
    streams.fill_uniform(streams.Generator(), x.ctypes.data, x.size, BY_NAME["float32"])
    assert 0 <= x.min() and x.max() < 1
    assert abs(x.mean(dtype=np.float64) - 0.5) < 2e-3
    assert abs(x.var(dtype=np.float64) - 1 / 12) < 1e-3


def test_normal_is_normal() -> None:
    stats = pytest.importorskip("scipy.stats")
    x = np.zeros(200_000, np.float32)
    streams.fill_normal(streams.Generator(), x.ctypes.data, x.size, BY_NAME["float32"])
    assert stats.kstest(x, "norm").pvalue > 1e-3


def test_probabilities_outside() -> None:
    p, out = np.array([0.5, 1.5], np.float32), np.zeros(2, np.float32)
    g = streams.Generator()
    before = g.state_bytes()
    assert not streams.fill_bernoulli_each(g, out.ctypes.data, 2, BY_NAME["float32"], p.ctypes.data, False)
    p[1] = np.nan
    assert not streams.fill_bernoulli_each(g, out.ctypes.data, 2, BY_NAME["float32"], p.ctypes.data, False)
    rates = np.array([-1.0])
    assert not streams.fill_poisson(g, out.ctypes.data, 1, BY_NAME["float32"], rates.ctypes.data)
    assert g.state_bytes() == before


@pytest.mark.parametrize("bad, status", [(-1.0, 1), (np.inf, 1), (np.nan, 1), (None, 2)])
def test_multinomial_refuses(bad: float | None, status: int) -> None:
    p = np.array([[0.5, 0.5], [0.0, 0.0] if bad is None else [bad, 1.0]], np.float32)
    out = np.zeros((2, 3), np.int64)
    g = streams.Generator()
    before = g.state_bytes()
    assert streams.fill_multinomial(g, out.ctypes.data, p.ctypes.data, BY_NAME["float32"], 2, 2, 3) == status
    assert g.state_bytes() == before


@pytest.mark.parametrize(
    "shape, strides, order",
    [
        ((), (), []),
        ((3,), (1,), [0]),
        ((2, 3), (3, 1), [0, 1]),
        ((2, 3), (1, 2), [1, 0]),
        ((2, 3, 4, 5), (60, 1, 15, 3), [0, 2, 3, 1]),
        ((4, 3), (0, 1), [0, 1]),
        ((4, 3), (1, 0), [0, 1]),
        ((1, 3), (3, 3), [1, 0]),
        ((3, 1), (3, 3), [0, 1]),
    ],
)
def test_fill_order(shape: tuple[int, ...], strides: tuple[int, ...], order: list[int]) -> None:
    assert streams.fill_order(shape, strides) == order
