"""Kernels of weighted sums at places that are data, against their definition: every count of channels, points of several pieces."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rushlight._backends.cpu.compile import build
from rushlight._backends.cpu.kernels import host
from rushlight._backends.cpu.program.assemble import compile_graph
from rushlight._graph.core import trace
from rushlight._prims import PRIMITIVES, prim
from rushlight._types.dtype import BY_NAME, INT64

RNG = np.random.default_rng(4)


def called(name: str, arrays: list[Any], shapes: list[tuple[int, ...]], **params: Any) -> list[Any]:
    """The kernels' results."""
    dtype = BY_NAME[arrays[0].dtype.name]
    graph = trace(
        lambda *xs: getattr(prim, name)(*xs, **params),
        [(a.shape, INT64 if a.dtype == np.int64 else dtype) for a in arrays],
    )
    dense = [[s // a.itemsize for s in a.strides] for a in (*arrays, *(np.empty(s, np.int8) for s in shapes))]
    made = build(compile_graph(graph, dense[: len(arrays)], dense[len(arrays) :], target=host()))(
        *(a.ctypes.data for a in arrays)
    )
    storages = made if isinstance(made, tuple) else (made,)
    return [
        np.frombuffer(bytes(memoryview(s)), arrays[0].dtype).reshape(shape)
        for s, shape in zip(storages, shapes, strict=True)
    ]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("n", "channels", "size", "points", "taps", "low"),
    [
        (2, 1, 40, 300, 4, 0),
        (1, 2, 9, 257, 1, -3),
        (3, 3, 50, 128, 4, -1),
        (1, 7, 33, 1000, 8, 0),
        (2, 4, 5, 129, 16, -2),
        (1, 130, 20, 7, 5, -1),
    ],
)
def test_products_of_taps(dtype: str, n: int, channels: int, size: int, points: int, taps: int, low: int) -> None:
    x, y = (RNG.standard_normal((n, channels, m)).astype(dtype) for m in (size, points))
    places = [RNG.integers(low, size, (n, points)) for _ in range(taps)]
    weights = [RNG.standard_normal((n, points)).astype(dtype) for _ in range(taps)]
    exact = 1e-5 if dtype == "float32" else 1e-13
    for name, given, shapes, params in (
        ("weighted_gather", [x, *places, *weights], [y.shape], {}),
        ("weighted_scatter", [y, *places, *weights], [x.shape], {"size": size}),
        ("gather_weights", [y, x, *places], [(n, points)] * taps, {}),
    ):
        wanted = PRIMITIVES[name].reference(
            *(a.astype("float64") if a.dtype.kind == "f" else a for a in given), **params
        )
        for got, right in zip(
            called(name, given, shapes, **params), wanted if isinstance(wanted, tuple) else (wanted,), strict=True
        ):
            np.testing.assert_allclose(got, right, rtol=exact, atol=100 * exact)


def test_what_is_outside_is_not_read() -> None:
    """An element that is no number stays out of what no tap reads."""
    x = np.full((1, 1, 3), np.nan, "float32")
    places, weights = [np.full((1, 2), -1)] * 2, [np.ones((1, 2), "float32")] * 2
    (got,) = called("weighted_gather", [x, *places, *weights], [(1, 1, 2)])
    np.testing.assert_array_equal(got, np.zeros((1, 1, 2)))
