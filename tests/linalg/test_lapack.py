"""LAPACK through the one kernel that calls it: sizes, batches, strides, threads, failures, against NumPy and SciPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.linalg
from tests.kernels.kernel_harness import Ran
from tests.prims.test_reference import apply

from rushlight._backends.cpu import lapack, threads
from rushlight._backends.cpu.blas import Blas
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
        np.testing.assert_allclose(a @ by_kernels("ldl_solve", factors, pivots, b, hermitian=hermitian)[0], b, atol=1e-10)


# ***** memory *****


def test_any_strides_in_and_out() -> None:
    wide = matrix(4, 10, 6)
    for a in (wide[:, ::2, :5], np.swapaxes(wide[:, 1:6, ::-1][..., ::-1], -1, -2)[:, :5], np.broadcast_to(wide[0, :5, :5], (3, 5, 5))):
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
    assert by_kernels("ldl", np.zeros((2, 2)), hermitian=False)[2] == apply("ldl", np.zeros((2, 2)), hermitian=False)[2] == 1
    assert by_kernels("svd", np.full((3, 3), np.nan), full=False, vectors=False)[1] != 0


def test_exchanges_out_of_range() -> None:
    with pytest.raises(RuntimeError, match="out of bounds"):
        by_kernels("permutation", np.array([1, 5], "int32"), size=2)


def test_without_a_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lapack, "blas", lambda: Blas(None, None))
    with pytest.raises(RuntimeError, match="LAPACK's dgetrf.*RUSHLIGHT_BLAS_LIBRARY"):
        by_kernels("lu", np.eye(2))
