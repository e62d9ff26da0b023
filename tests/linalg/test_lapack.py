"""LAPACK through the one kernel that calls it: sizes, batches, strides, threads, failures, against NumPy and SciPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.linalg
from tests.kernels.kernel_harness import Ran
from tests.prims.test_reference import apply

from rushlight._backends.cpu.gemm.blas import Blas
from rushlight._backends.cpu.linalg import lapack
from rushlight._backends.cpu.runtime import threads
from rushlight._graph.core import trace
from rushlight._prims import PRIMITIVES, prim
from rushlight._types.dtype import BY_NAME

RNG = np.random.default_rng(3)


def matrix(*shape: int, dtype: str = "float64") -> Any:
    x = RNG.standard_normal(shape)
    return (x + 1j * RNG.standard_normal(shape)).astype(dtype) if dtype.startswith("complex") else x.astype(dtype)


def positive(*shape: int, dtype: str = "float64") -> Any:
    x = matrix(*shape, dtype=dtype)
    return (x @ np.conj(np.swapaxes(x, -1, -2)) + np.eye(shape[-1])).astype(dtype)


def by_kernels(name: str, *arrays: Any, **params: Any) -> list[Any]:
    graph = trace(lambda *xs: PRIMITIVES[name](*xs, **params), [(a.shape, BY_NAME[a.dtype.name]) for a in arrays])
    return Ran(graph, list(arrays)).results


# ***** results, by what they must satisfy *****


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("shape", [(1, 1), (5, 5), (3, 4, 4), (2, 70, 70)], ids=str)
def test_factors_multiply_back(dtype: str, shape: tuple[int, ...]) -> None:
    tolerance = 2e-3 if dtype in ("float32", "complex64") else 1e-10
    a, h = matrix(*shape, dtype=dtype), positive(*shape, dtype=dtype)

    def close(x: Any, y: Any) -> None:
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance * max(1.0, float(np.abs(y).max())))

    def adjoint(x: Any) -> Any:
        return np.conj(np.swapaxes(x, -1, -2))

    lower, info = by_kernels("cholesky", h)
    close(lower @ adjoint(lower), h)
    assert not np.triu(lower, 1).any() and not info.any()
    both, pivots, info = by_kernels("lu", a)
    order = by_kernels("permutation", pivots, size=shape[-1])[0]
    close((np.tril(both, -1) + np.eye(shape[-1])) @ np.triu(both), np.take_along_axis(a, order[..., None], -2))
    values, vectors, _ = by_kernels("eigh", h, vectors=True)
    close(vectors * values[..., None, :] @ adjoint(vectors), h)
    close(by_kernels("eigh", h, vectors=False)[0], values)
    values, vectors, _ = by_kernels("eig", a, vectors=True)
    close(a @ vectors, vectors * values[..., None, :])
    u, s, vh, _ = by_kernels("svd", a, full=False, vectors=True)
    close(u * s[..., None, :] @ vh, a)
    q, r = by_kernels("qr", a, form="reduced")
    close(q @ r, a)
    close(adjoint(q) @ q, np.broadcast_to(np.eye(shape[-1]), shape))


def test_rectangles() -> None:
    for m, n in ((5, 3), (3, 5), (1, 4)):
        a = matrix(2, m, n)
        u, s, vh, _ = by_kernels("svd", a, full=True, vectors=True)
        assert u.shape == (2, m, m) and vh.shape == (2, n, n)
        np.testing.assert_allclose(u[..., : s.shape[-1]] * s[..., None, :] @ vh[..., : s.shape[-1], :], a, atol=1e-12)
        q, r = by_kernels("qr", a, form="full")
        np.testing.assert_allclose(q @ r, a, atol=1e-12)
        np.testing.assert_allclose(np.swapaxes(q, -1, -2) @ q, np.broadcast_to(np.eye(m), (2, m, m)), atol=1e-12)


def test_indefinite_systems_against_scipy() -> None:
    for hermitian in (False, True):
        a = matrix(6, 6, dtype="complex128")
        a = a + (np.conj(a.T) if hermitian else a.T)
        factors, pivots, info = by_kernels("ldl", a, hermitian=hermitian)
        assert not info.any() and (pivots != 0).all()
        _, middle, _ = scipy.linalg.ldl(a, lower=True, hermitian=hermitian)
        np.testing.assert_allclose(np.sort(np.abs(np.diag(factors))), np.sort(np.abs(np.diag(middle))), rtol=1e-9)
        b = matrix(6, 2, dtype="complex128")
        np.testing.assert_allclose(
            a @ by_kernels("ldl_solve", factors, pivots, b, hermitian=hermitian)[0], b, atol=1e-10
        )


# ***** memory *****


def test_any_strides_in_and_out() -> None:
    wide = matrix(4, 10, 6)
    for a in (
        wide[:, ::2, :5],
        np.swapaxes(wide[:, 1:6, ::-1][..., ::-1], -1, -2)[:, :5],
        np.broadcast_to(wide[0, :5, :5], (3, 5, 5)),
    ):
        graph = trace(lambda x: prim.lu(x), [(a.shape, BY_NAME["float64"])])
        lead = a.shape[0]
        outs = [(25, 1, 5), (5, 1), (1,)]
        both, pivots, _ = Ran(graph, [a], out_strides=outs).results
        assert both.shape == (lead, 5, 5)
        for k in range(lead):
            expected, places = scipy.linalg.lu_factor(a[k])
            np.testing.assert_allclose(both[k], expected, atol=1e-12)
            np.testing.assert_array_equal(pivots[k], places + 1)


def test_results_do_not_depend_on_threads() -> None:
    a = positive(300, 8, 8)
    before = threads.num_threads() if hasattr(threads, "num_threads") else None
    first = by_kernels("cholesky", a)[0]
    for k in range(0, 300, 37):
        np.testing.assert_array_equal(first[k], by_kernels("cholesky", a[k])[0])
    assert before is None or before == threads.num_threads()


# ***** what cannot be done is said, not raised *****


def test_info() -> None:
    a = np.stack([np.eye(3), np.diag([1.0, -1.0, 1.0]), np.diag([1.0, 1.0, np.nan])])
    np.testing.assert_array_equal(by_kernels("cholesky", a)[1], [0, 2, 3])
    np.testing.assert_array_equal(apply("cholesky", a)[1], [0, 2, 3])
    singular = np.array([[1.0, 2.0], [2.0, 4.0]])
    assert by_kernels("lu", singular)[2] == apply("lu", singular)[2] == 2
    assert (
        by_kernels("ldl", np.zeros((2, 2)), hermitian=False)[2]
        == apply("ldl", np.zeros((2, 2)), hermitian=False)[2]
        == 1
    )
    assert by_kernels("svd", np.full((3, 3), np.nan), full=False, vectors=False)[1] != 0


def test_exchanges_out_of_range() -> None:
    with pytest.raises(RuntimeError, match="out of bounds"):
        by_kernels("permutation", np.array([1, 5], "int32"), size=2)


def test_without_a_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lapack, "blas", lambda: Blas(None, None))
    with pytest.raises(RuntimeError, match="LAPACK's dgetrf.*RUSHLIGHT_BLAS_LIBRARY"):
        by_kernels("lu", np.eye(40))


# ***** small matrices, one in each lane of a vector *****


def batches(wide: int) -> list[tuple[int, ...]]:
    """Batches that fill no vector, one, and parts of several, of the sizes that are taken for small."""
    return [(2, 1, 1), (3, 8, 8), (wide, 5, 5), (wide + 1, 32, 32), (3, wide, 9, 9)]


@pytest.mark.parametrize(("dtype", "lanes"), [("float32", 16), ("float64", 8)])
@pytest.mark.parametrize("case", range(5))
def test_small_matrices(dtype: str, lanes: int, case: int) -> None:
    shape = batches(lanes)[case]
    *lead, _, n = shape
    tolerance = {"rtol": 2e-3, "atol": 2e-4} if dtype == "float32" else {"rtol": 1e-9, "atol": 1e-10}
    h = (positive(*shape) + n * np.eye(n)).astype(dtype)
    lower, info = by_kernels("cholesky", h)
    np.testing.assert_allclose(lower, np.linalg.cholesky(h.astype("float64")), **tolerance)
    assert not info.any() and not np.triu(lower, 1).any()
    for m in {n, max(n - 3, 1), min(n + 2, 32)}:
        a = matrix(*lead, n, m, dtype=dtype)
        both, pivots, info = by_kernels("lu", a)
        assert not info.any()
        for place in np.ndindex(*lead):
            expected, order, _ = scipy.linalg.lapack.dgetrf(a[place].astype("float64"))
            np.testing.assert_allclose(both[place], expected, **tolerance)
            np.testing.assert_array_equal(pivots[place] - 1, order)
    b = matrix(*lead, n, 4, dtype=dtype)
    for upper, unit in [(False, False), (False, True), (True, False), (True, True)]:
        triangle = ((np.triu if upper else np.tril)(matrix(*shape, dtype=dtype)) / n + np.eye(n)).astype(dtype)
        solved = by_kernels("triangular_solve", triangle, b, upper=upper, unit=unit)[0]
        used = triangle * (1 - np.eye(n)) + np.eye(n) if unit else triangle
        np.testing.assert_allclose(solved, np.linalg.solve(used.astype("float64"), b), **tolerance)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_small_matrix_does_not_feel_its_neighbours(dtype: str) -> None:
    a = positive(37, 6, 6, dtype=dtype)
    for name in ("cholesky", "lu"):
        whole = by_kernels(name, a)
        for k in (0, 15, 36):
            for one, among in zip(by_kernels(name, a[k]), whole, strict=True):
                np.testing.assert_array_equal(one, among[k])


@pytest.mark.parametrize("count", [4, 40])
def test_failures_of_small_matrices(count: int) -> None:
    a = np.broadcast_to(np.eye(3), (count, 3, 3)).copy()
    a[1], a[2], a[3] = -np.eye(3), np.diag([1.0, 2.0, -1.0]), np.diag([1.0, np.nan, 1.0])
    info = by_kernels("cholesky", a)[1]
    assert info[:4].tolist() == [0, 1, 3, 2] and not info[4:].any()
    a[1], a[2] = [[-1.0, 2, 3], [2, 5, 6], [3, 6, 9]], [[4.0, 2, 6], [2, -3, 5], [6, 5, 7]]
    lower, info = by_kernels("cholesky", a)
    assert info[1] == 1 and lower[1].tolist() == [[-1, 0, 0], [2, 5, 0], [3, 6, 9]]
    assert info[2] == 2 and lower[2].tolist() == [[2, 0, 0], [1, -4, 0], [3, 5, 7]]
    a[1], a[2], a[3] = 0.0, np.diag([1.0, 0.0, 1.0]), np.eye(3)[::-1]
    both, pivots, info = by_kernels("lu", a)
    assert info[:4].tolist() == [0, 1, 2, 0] and not info[4:].any()
    assert pivots[3].tolist() == [3, 2, 3] and both[2].tolist() == a[2].tolist()
