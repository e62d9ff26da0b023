"""Triangular systems and the factorisations by elimination: Cholesky, LU.

A factorisation never raises because of its numbers: it reports in `info` (int32, one for each matrix): 0, or the index
at which it stopped, as LAPACK does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rushlight._base.lazy import numpy as np
from rushlight._prims import build
from rushlight._prims.families import lift, require
from rushlight._prims.linalg.matrices import (
    columns,
    diagonal,
    embed,
    eye,
    hermitian,
    lead_dims,
    mH,
    put_back,
    reorder,
    rows,
    solve,
    times,
    tril,
    triu,
)
from rushlight._prims.record import Aval, Primitive, not_differentiable, prim
from rushlight._prims.samples import Samples, floats, integers
from rushlight._types.dtype import INT32, INT64

__all__ = ["batch_same", "each", "of_nothing", "positive"]


# ***** what the factorisations share *****


def each(x: Any) -> Iterator[tuple[tuple[int, ...], Any]]:
    """The matrices of a batch of arrays, with their batch indices."""
    for item in np.ndindex(*x.shape[:-2]):
        yield item, x[item]


def batch_same(name: str) -> Any:
    """A batching rule: leading dims are batch dims already."""
    return lambda batched, *xs, **p: getattr(prim, name)(*lift(batched, xs), **p)


def of_nothing(name: str, unitary: Sequence[int] = ()) -> Any:
    """The results of a factorisation of empty matrices: zeros, and identities for the results numbered `unitary`."""

    def rule(*xs: Any, **p: Any) -> Any:
        primitive = getattr(prim, name)
        avals = primitive.spec(*xs, **p)
        results = [build.full(shape, 0, dtype) for shape, dtype in (avals if primitive.multiple else [avals])]
        results = [eye(v, *v.shape[-2:]) if i in unitary and len(v.shape) > 1 else v for i, v in enumerate(results)]
        return tuple(results) if primitive.multiple else results[0]

    return rule


def positive(shape: Sequence[int], dtype: str = "float64", seed: int = 0) -> Any:
    """Hermitian positive definite matrices, for samples."""
    x = floats(shape, seed, dtype=dtype)
    return (x @ np.conj(np.swapaxes(x, -1, -2)) + np.eye(shape[-1])).astype(dtype)


# ***** triangular systems *****


def _triangle(a: Any, upper: bool, unit: bool) -> Any:
    return triu(a, int(unit)) if upper else tril(a, -int(unit))


def _solve_spec(a: Any, b: Any, upper: bool, unit: bool) -> Aval:
    require("triangular_solve", a, "fc")
    if a.dtype is not b.dtype:
        raise TypeError(f"prim.triangular_solve takes operands of one dtype, got {a.dtype.name} and {b.dtype.name}")
    if lead_dims("triangular_solve", a, square=True) != b.shape[:-2] or a.shape[-1] != b.shape[-2]:
        raise ValueError(
            f"prim.triangular_solve takes [*B, M, M] and [*B, M, N], got {list(a.shape)} and {list(b.shape)}"
        )
    return b.shape, b.dtype


def _solve(a: Any, b: Any, upper: bool, unit: bool) -> Any:
    a = np.triu(a) if upper else np.tril(a)
    x = b.astype({"float32": "float64", "complex64": "complex128"}.get(b.dtype.name, b.dtype.name))
    n = a.shape[-1]
    for i in reversed(range(n)) if upper else range(n):
        done = slice(i + 1, n) if upper else slice(0, i)
        row = x[..., i, :] - (a[..., i, None, done] @ x[..., done, :])[..., 0, :]
        x[..., i, :] = row if unit else row / a[..., i, i, None]
    return x.astype(b.dtype)


def _solve_vjp(ct: Any, x: Any, a: Any, b: Any, upper: bool, unit: bool) -> tuple[Any, Any]:
    to_b = solve(a, ct, upper=upper, unit=unit, adjoint=True)
    return -_triangle(times(to_b, mH(x)), upper, unit), to_b


def _solve_jvp(tangents: Any, x: Any, a: Any, b: Any, upper: bool, unit: bool) -> Any:
    ta, tb = tangents
    right = build.add_any(tb, None if ta is None else -times(_triangle(ta, upper, unit), x))
    return None if right is None else solve(a, right, upper=upper, unit=unit)


def _solve_batch(batched: Sequence[bool], a: Any, b: Any, **p: Any) -> Any:
    if not batched[0] and len(a.shape) == 2:  # one matrix for all: the batch becomes columns
        size, n, k = b.shape
        wide = build.reshape(build.transpose(b, (1, 0, 2)), (n, size * k))
        return build.transpose(build.reshape(prim.triangular_solve(a, wide, **p), (n, size, k)), (1, 0, 2))
    return prim.triangular_solve(*lift(batched, (a, b)), **p)


def _triangles(shape: Sequence[int], dtype: str, seed: int) -> Any:
    return (floats(shape, seed, dtype=dtype) + 4 * np.eye(shape[-1])).astype(dtype)


def _solve_samples() -> Samples:
    for upper in (False, True):
        for unit in (False, True):
            yield [_triangles((3, 3), "float64", 1), floats((3, 2), 2)], {"upper": upper, "unit": unit}
        yield (
            [_triangles((2, 3, 3), "complex128", 1), floats((2, 3, 4), 2, dtype="complex128")],
            {"upper": upper, "unit": False},
        )
    yield [_triangles((4, 4), "float32", 1), floats((4, 1), 2, dtype="float32")], {"upper": True, "unit": False}
    yield [_triangles((4, 4), "complex64", 1), floats((4, 3), 2, dtype="complex64")], {"upper": False, "unit": False}
    yield [floats((0, 0)), floats((0, 2))], {"upper": True, "unit": False}


Primitive(
    "triangular_solve", "X with A X = B; one triangle of A is read, with ones on its diagonal where `unit`.", family="heavy",
    spec=_solve_spec, reference=_solve, lower=("extern", "lapack"), samples=_solve_samples, vjp=_solve_vjp, jvp=_solve_jvp,
    batch=_solve_batch, empty=of_nothing("triangular_solve"),
)  # fmt: skip

# ***** Cholesky *****


def _cholesky_spec(a: Any) -> list[Aval]:
    require("cholesky", a, "fc")
    return [(a.shape, a.dtype), (lead_dims("cholesky", a, square=True), INT32)]


def _cholesky(a: Any) -> tuple[Any, Any]:
    factors, info = np.zeros_like(a), np.zeros(a.shape[:-2], "int32")
    for item, x in each((a + np.conj(np.swapaxes(a, -1, -2))) / 2):
        lower = factors[item]
        for j in range(x.shape[-1]):
            column = x[j:, j] - lower[j:, :j] @ np.conj(lower[j, :j])
            if not column[0].real > 0:
                info[item] = j + 1
                break
            lower[j:, j] = column / np.sqrt(column[0].real)
    return factors, info


def _half(x: Any) -> Any:
    """The lower triangle, with half the diagonal."""
    return tril(x, -1) + embed(diagonal(x)) * 0.5


def _cholesky_vjp(ct: Any, out: Any, a: Any) -> tuple[Any]:
    """Murray, "Differentiation of the Cholesky decomposition" (2016), equation 10."""
    lower = out[0]
    if ct[0] is None:
        return (None,)
    inner = _half(times(mH(lower), ct[0]))
    left = solve(lower, inner, upper=False, adjoint=True)
    return (hermitian(solve(lower, left, upper=False, left=False)),)


def _cholesky_jvp(tangents: Any, out: Any, a: Any) -> Any:
    lower = out[0]
    inner = solve(lower, hermitian(tangents[0]), upper=False)
    inner = mH(solve(lower, mH(inner), upper=False))
    return times(lower, _half(inner)), None


def _cholesky_samples() -> Samples:
    for dtype in ("float64", "float32", "complex128", "complex64"):
        yield [positive((3, 3), dtype)], {}
    yield [positive((2, 4, 4))], {}
    yield [floats((2, 0, 0))], {}


Primitive(
    "cholesky", "(L, info) with L L^H = A for Hermitian A, of which kernels read the lower triangle; derivatives are those on Hermitian matrices.",
    family="heavy", spec=_cholesky_spec, reference=_cholesky, lower=("extern", "lapack"), multiple=True, samples=_cholesky_samples,
    vjp=_cholesky_vjp, jvp=_cholesky_jvp, batch=batch_same("cholesky"), empty=of_nothing("cholesky"),
)  # fmt: skip

# ***** LU *****


def _lu_spec(a: Any) -> list[Aval]:
    require("lu", a, "fc")
    lead = tuple(lead_dims("lu", a))
    return [(a.shape, a.dtype), ((*lead, min(a.shape[-2:])), INT32), (lead, INT32)]


def _lu(a: Any) -> tuple[Any, Any, Any]:
    """Gaussian elimination with row exchanges; the size of a complex pivot is |re| + |im|."""
    doubled = {"float32": "float64", "complex64": "complex128"}.get(a.dtype.name, a.dtype.name)
    factors, count = a.astype(doubled), min(a.shape[-2:])
    pivots, info = np.zeros((*a.shape[:-2], count), "int32"), np.zeros(a.shape[:-2], "int32")
    for item, x in each(factors):
        for j in range(count):
            best = j + int((np.abs(x[j:, j].real) + np.abs(x[j:, j].imag)).argmax())
            pivots[(*item, j)] = best + 1
            x[[j, best]] = x[[best, j]]
            if x[j, j] == 0:
                info[item] = info[item] or j + 1
                continue
            x[j + 1 :, j] /= x[j, j]
            x[j + 1 :, j + 1 :] -= np.outer(x[j + 1 :, j], x[j, j + 1 :])
    return factors.astype(a.dtype), pivots, info


def lower_unit(x: Any) -> Any:
    """L from the packed factors."""
    count = min(x.shape[-2:])
    part = tril(columns(x, 0, count), -1)
    return part + eye(part, *part.shape[-2:])


def upper_part(x: Any) -> Any:
    """U from the packed factors."""
    return triu(rows(x, 0, min(x.shape[-2:])))


def _lu_vjp(ct: Any, out: Any, a: Any) -> tuple[Any]:
    """A = P L U.  For a wide matrix U = [U1 U2], for a tall one L = [L1; L2]; the square part comes first."""
    if ct[0] is None:
        return (None,)
    both, pivots, g = out[0], out[1], ct[0]
    m, n = both.shape[-2:]
    k = min(m, n)
    square = columns(rows(both, 0, k), 0, k)
    g1 = columns(rows(g, 0, k), 0, k)
    inner = tril(times(mH(lower_unit(square)), g1), -1) + triu(times(g1, mH(upper_part(square))))
    if m < n:
        inner = inner - tril(times(columns(g, k, n), mH(columns(both, k, n))), -1)
    if m > n:
        inner = inner - triu(times(mH(rows(both, k, m)), rows(g, k, m)))
    gradient = solve(square, inner, upper=False, unit=True, adjoint=True)
    gradient = solve(square, gradient, upper=True, adjoint=True, left=False)
    if m < n:
        gradient = prim.cat(
            gradient, solve(square, columns(g, k, n), upper=False, unit=True, adjoint=True), dim=len(a.shape) - 1
        )
    if m > n:
        gradient = prim.cat(
            gradient, solve(square, rows(g, k, m), upper=True, adjoint=True, left=False), dim=len(a.shape) - 2
        )
    return (put_back(gradient, prim.permutation(pivots, size=m)),)


def _lu_jvp(tangents: Any, out: Any, a: Any) -> Any:
    both, pivots = out[0], out[1]
    m, n = both.shape[-2:]
    k = min(m, n)
    t = reorder(tangents[0], prim.permutation(pivots, size=m))
    square = columns(rows(both, 0, k), 0, k)
    inner = solve(square, columns(rows(t, 0, k), 0, k), upper=False, unit=True)
    inner = solve(square, inner, upper=True, left=False)
    to_lower, to_upper = times(lower_unit(square), tril(inner, -1)), times(triu(inner), upper_part(square))
    tangent = tril(to_lower, -1) + triu(to_upper)
    if m < n:
        rest = columns(t, k, n) - times(to_lower, columns(both, k, n))
        tangent = prim.cat(tangent, solve(square, rest, upper=False, unit=True), dim=len(a.shape) - 1)
    if m > n:
        rest = rows(t, k, m) - times(rows(both, k, m), to_upper)
        tangent = prim.cat(tangent, solve(square, rest, upper=True, left=False), dim=len(a.shape) - 2)
    return tangent, None, None


def _lu_samples() -> Samples:
    for dtype in ("float64", "float32", "complex128", "complex64"):
        yield [floats((3, 3), dtype=dtype)], {}
    yield [floats((2, 4, 3), 1)], {}
    yield [floats((3, 5), 2, dtype="complex128")], {}
    yield [floats((5, 2), 3)], {}
    yield [floats((2, 0, 3))], {}


Primitive(
    "lu", "(LU, pivots, info) with A = P L U: both factors in one matrix, and with which row each was exchanged, from 1.", family="heavy",
    spec=_lu_spec, reference=_lu, lower=("extern", "lapack"), multiple=True, samples=_lu_samples, vjp=_lu_vjp, jvp=_lu_jvp,
    batch=batch_same("lu"), empty=of_nothing("lu"),
)  # fmt: skip

# ***** exchanges of rows *****


def _order_spec(pivots: Any, size: int) -> Aval:
    if pivots.dtype is not INT32 or not pivots.shape or pivots.shape[-1] > size:
        raise ValueError(
            f"prim.permutation takes at most {size} exchanges as int32, got {pivots.dtype.name}{list(pivots.shape)}"
        )
    return (*pivots.shape[:-1], size), INT64


def _order(pivots: Any, size: int) -> Any:
    rows = np.broadcast_to(np.arange(size), (*pivots.shape[:-1], size)).copy()
    for item in np.ndindex(*pivots.shape[:-1]):
        order = rows[item]
        for j, other in enumerate(pivots[item]):
            order[j], order[other - 1] = order[other - 1], order[j]
    return rows


def _order_samples() -> Samples:
    yield [integers((4,), low=4, high=6, dtype="int32")], {"size": 6}
    yield [integers((2, 3), low=3, high=4, dtype="int32")], {"size": 3}
    yield [np.zeros((2, 0), "int32")], {"size": 3}


_COUNTS = "an order has no derivative"
Primitive(
    "permutation", "The order of rows after exchanging row j with row pivots[j] (from 1), for j from 0 on.", family="heavy", spec=_order_spec,
    reference=_order, lower=("extern", "permutation"), samples=_order_samples, vjp=not_differentiable(_COUNTS),
    jvp=not_differentiable(_COUNTS), batch=lambda batched, pivots, size: prim.permutation(pivots, size=size),
    empty=lambda pivots, size: prim.iota(shape=(*pivots.shape[:-1], size), dim=len(pivots.shape) - 1, dtype=INT64),
)  # fmt: skip
