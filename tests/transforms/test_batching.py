"""A batched graph does what a loop does."""

from __future__ import annotations

import numpy as np
from tests.prim_cases import CASES, Case, each_case

from rushlight._backends.reference import run
from rushlight._graph.core import trace
from rushlight._graph.verifier import verify
from rushlight._prims import build, prim
from rushlight._transforms.batching import batch
from rushlight._types.dtype import FLOAT64, INT64

SIZE = 3


def items(array: np.ndarray, indices: bool) -> np.ndarray:
    """Three different arrays of the same kind; index arrays are turned round so that they stay in range."""
    turned = array[::-1] if array.ndim else array
    if indices or array.dtype.kind == "b":
        return np.stack([array, turned, array])
    return np.stack([array, turned, (array / 2).astype(array.dtype) if array.dtype.kind in "fc" else array])


def masks(count: int) -> list[list[bool]]:
    return [[True] * count, *([i == j for j in range(count)] for i in range(count if count > 1 else 0))]


@each_case(c for c in CASES if c.arrays)
def test_batching_is_a_loop(case: Case) -> None:
    graph = case.graph()
    for mask in masks(len(case.arrays)):
        batched = batch(graph, mask, SIZE)
        verify(batched)
        stacked = [
            items(a, case.primitive.family == "indexed" and a.dtype.kind == "i") if m else a
            for a, m in zip(case.arrays, mask, strict=True)
        ]
        got = run(batched, stacked)
        for k in range(SIZE):
            want = run(graph, [a[k] if m else a for a, m in zip(stacked, mask, strict=True)])
            for x, y in zip(got, want, strict=True):
                np.testing.assert_allclose(x[k].astype(complex), y.astype(complex), rtol=1e-6)


def test_what_no_input_reaches_is_repeated() -> None:
    graph = trace(lambda x, y: (x + 1.0, y * 2.0, prim.iota(shape=(2,), dim=0, dtype=INT64)), [((2,), FLOAT64)] * 2)
    a, b, c = run(batch(graph, [True, False], 4), [np.zeros((4, 2)), np.ones(2)])
    np.testing.assert_array_equal(a, np.ones((4, 2)))
    np.testing.assert_array_equal(b, np.full((4, 2), 2.0))
    np.testing.assert_array_equal(c, [[0, 1]] * 4)


def test_an_empty_batch() -> None:
    for case in (c for c in CASES if c.primitive.name in ("conv", "dot", "sum", "sort", "index") and c.number == 0):
        batched = batch(case.graph(), [True] + [False] * (len(case.arrays) - 1), 0)
        verify(batched)
        results = run(batched, [np.zeros((0, *case.arrays[0].shape), case.arrays[0].dtype), *case.arrays[1:]])
        assert all(r.shape[0] == 0 for r in results)


def test_batching_twice() -> None:
    graph = trace(lambda a, b: build.dot(a, b), [((2, 3), FLOAT64), ((3, 4), FLOAT64)])
    twice = batch(batch(graph, [True, False], 5), [False, True], 6)
    a, b = np.random.default_rng(0).normal(size=(5, 2, 3)), np.random.default_rng(1).normal(size=(6, 3, 4))
    np.testing.assert_allclose(run(twice, [a, b])[0], a[None] @ b[:, None])
