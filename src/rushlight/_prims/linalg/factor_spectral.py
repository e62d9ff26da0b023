"""Eigenvalues and singular values.  With `vectors` False only the values are computed, and a derivative computes the
vectors.

Derivatives of vectors are those of one choice of their phase; whatever depends on the choice has no derivative (Magnus,
"On differentiating eigenvalues and eigenvectors", 1985; Townsend, "Differentiating the singular value decomposition",
2016).
"""

from __future__ import annotations

from typing import Any

from rushlight._base.lazy import numpy as np
from rushlight._prims import build
from rushlight._prims.families import require
from rushlight._prims.linalg.factor import batch_same, each, of_nothing, positive
from rushlight._prims.linalg.matrices import (
    columns,
    diagonal,
    embed,
    hermitian,
    lead_dims,
    mH,
    mT,
    off_diagonal,
    reorder,
    rows,
    scale_columns,
    scale_rows,
    solve,
    times,
)
from rushlight._prims.record import Aval, Primitive, prim
from rushlight._prims.samples import Samples, floats
from rushlight._types.dtype import INT32

__all__: list[str] = []


def _attempt(function: Any, x: Any, nothing: Any) -> tuple[Any, int]:
    """NumPy's result and 0; or `nothing` (as NaN), and 1."""
    try:
        return function(x), 0
    except np.linalg.LinAlgError:
        return tuple(np.full_like(v, np.nan) for v in nothing), 1


def _over(x: Any, function: Any, outs: list[Any]) -> tuple[Any, ...]:
    """Store `function` of every matrix in arrays; return the statuses."""
    info = np.zeros(x.shape[:-2], "int32")
    for item, matrix in each(x):
        results, info[item] = _attempt(function, matrix, [out[item] for out in outs])
        for out, value in zip(outs, results, strict=True):
            out[item] = value
    return (*outs, info)


def _apart(s: Any) -> Any:
    """s[j] - s[i] for every pair, 1 on the diagonal."""
    n, shape = len(s.shape), (*s.shape, s.shape[-1])
    gaps = prim.broadcast(s, shape=shape, dims=(*range(n - 1), n)) - prim.broadcast(
        s, shape=shape, dims=tuple(range(n))
    )
    return gaps + embed(build.full(s.shape, 1, s.dtype))


def _over_gaps(x: Any, gaps: Any) -> Any:
    """x / gaps; 0 where both are 0: a zero cotangent puts no condition on equal values."""
    gaps = _like(gaps, x)
    nothing = build.eq(gaps, 0.0) & build.eq(x, 0.0)
    return x / build.select(nothing, build.full_like(gaps, 1.0), gaps)


def _like(d: Any, x: Any) -> Any:
    return build.complex_(d) if x.dtype.is_complex and not d.dtype.is_complex else d


def _real(x: Any) -> Any:
    return prim.real(x) if x.dtype.is_complex else x


# ***** Hermitian matrices *****


def _eigh_spec(a: Any, vectors: bool) -> list[Aval]:
    require("eigh", a, "fc")
    lead = tuple(lead_dims("eigh", a, square=True))
    avals: list[Aval] = [((*lead, a.shape[-1]), a.dtype.to_real())]
    return [*avals, (a.shape, a.dtype), (lead, INT32)] if vectors else [*avals, (lead, INT32)]


def _eigh(a: Any, vectors: bool) -> tuple[Any, ...]:
    values = np.zeros(a.shape[:-1], a.real.dtype)
    # The mean of both triangles: so the gradient, which is Hermitian, is the slope in every element.
    a = (a + np.conj(np.swapaxes(a, -1, -2))) / 2
    if vectors:
        return _over(a, lambda x: tuple(np.linalg.eigh(x)), [values, np.zeros_like(a)])
    return _over(a, lambda x: (np.linalg.eigvalsh(x),), [values])


def _eigh_vjp(ct: Any, out: Any, a: Any, vectors: bool) -> tuple[Any]:
    to_values, to_vectors = ct[0], ct[1] if vectors else None
    if to_values is None and to_vectors is None:
        return (None,)
    values, V = (out if vectors else prim.eigh(a, vectors=True))[:2]
    inner = None if to_values is None else _like(embed(to_values), a)
    if to_vectors is not None:
        inner = build.add_any(inner, _over_gaps(off_diagonal(times(mH(V), to_vectors)), _apart(values)))
    return (hermitian(times(V, inner, mH(V))),)


def _eigh_jvp(tangents: Any, out: Any, a: Any, vectors: bool) -> Any:
    values, V = (out if vectors else prim.eigh(a, vectors=True))[:2]
    inner = times(mH(V), hermitian(tangents[0]), V)
    moved = _real(diagonal(inner))
    return (moved, times(V, _over_gaps(off_diagonal(inner), _apart(values))), None) if vectors else (moved, None)


def _eigh_samples() -> Samples:
    for dtype in ("float64", "float32", "complex64"):
        yield [positive((3, 3), dtype)], {"vectors": True}
    yield [positive((3, 3), "complex128")], {"vectors": False}
    yield [positive((2, 4, 4), seed=1)], {"vectors": True}
    yield [floats((2, 0, 0))], {"vectors": True}


Primitive(
    "eigh", "(eigenvalues, rising; eigenvectors, info) of Hermitian matrices, of which kernels read the lower triangle.", family="heavy",
    spec=_eigh_spec, reference=_eigh, lower=("extern", "lapack"), multiple=True, samples=_eigh_samples, vjp=_eigh_vjp, jvp=_eigh_jvp,
    batch=batch_same("eigh"), empty=of_nothing("eigh"),
)  # fmt: skip

# ***** any square matrices *****


def _eig_spec(a: Any, vectors: bool) -> list[Aval]:
    require("eig", a, "fc")
    lead = tuple(lead_dims("eig", a, square=True))
    avals: list[Aval] = [((*lead, a.shape[-1]), a.dtype.to_complex())]
    return [*avals, (a.shape, a.dtype.to_complex()), (lead, INT32)] if vectors else [*avals, (lead, INT32)]


def _eig(a: Any, vectors: bool) -> tuple[Any, ...]:
    dtype = "complex64" if a.dtype.name in ("float32", "complex64") else "complex128"
    values = np.zeros(a.shape[:-1], dtype)
    if vectors:
        return _over(a, lambda x: tuple(np.linalg.eig(x)), [values, np.zeros(a.shape, dtype)])
    return _over(a, lambda x: (np.linalg.eigvals(x),), [values])


def _solved(a: Any, b: Any) -> Any:
    """A^-1 B by LU."""
    both, pivots, _ = prim.lu(a)
    b = reorder(b, prim.permutation(pivots, size=a.shape[-1]))
    return solve(both, solve(both, b, upper=False, unit=True), upper=True)


def _eig_vjp(ct: Any, out: Any, a: Any, vectors: bool) -> tuple[Any]:
    to_values, to_vectors = ct[0], ct[1] if vectors else None
    if to_values is None and to_vectors is None:
        return (None,)
    values, V = (out if vectors else prim.eig(_like(a, out[0]), vectors=True))[:2]
    inner = None if to_values is None else embed(to_values)
    if to_vectors is not None:  # vectors keep length 1
        along = prim.real(diagonal(times(mH(V), to_vectors)))
        projected = times(mH(V), to_vectors - scale_columns(V, along))
        inner = build.add_any(inner, _over_gaps(off_diagonal(projected), build.conj(_apart(values))))
    gradient = _solved(mH(V), times(inner, mH(V)))
    return (gradient if a.dtype.is_complex else prim.real(gradient),)


def _eig_jvp(tangents: Any, out: Any, a: Any, vectors: bool) -> Any:
    values, V = (out if vectors else prim.eig(_like(a, out[0]), vectors=True))[:2]
    inner = _solved(V, times(_like(tangents[0], V), V))
    moved = diagonal(inner)
    if not vectors:
        return moved, None
    rotated = times(V, _over_gaps(off_diagonal(inner), _apart(values)))
    along = prim.real(diagonal(times(mH(V), rotated)))
    return moved, rotated - scale_columns(V, along), None


def _eig_samples() -> Samples:
    steps = np.diag([3.0, 1.0, -2.0])
    yield [floats((3, 3), 1, -0.3, 0.3) + steps], {"vectors": True}
    yield [floats((2, 3, 3), 2, -0.3, 0.3) + steps], {"vectors": True}
    yield [floats((3, 3), 3, -0.3, 0.3) + steps], {"vectors": False}
    yield [np.array([[1.0, 2.0, 0.1], [-2.0, 1.5, 0.2], [0.3, 0.1, 5.0]], "float32")], {"vectors": True}
    yield [(floats((3, 3), 4, -0.3, 0.3, "complex64") + steps).astype("complex64")], {"vectors": True}
    yield [floats((0, 0))], {"vectors": True}


Primitive(
    "eig", "(eigenvalues; eigenvectors of length 1, info) of square matrices, complex.", family="heavy", spec=_eig_spec, reference=_eig,
    lower=("extern", "lapack"), multiple=True, samples=_eig_samples, vjp=_eig_vjp, jvp=_eig_jvp, batch=batch_same("eig"),
    empty=of_nothing("eig"),
)  # fmt: skip

# ***** singular values *****


def _svd_spec(a: Any, full: bool, vectors: bool) -> list[Aval]:
    require("svd", a, "fc")
    lead, (m, n) = tuple(lead_dims("svd", a)), a.shape[-2:]
    k = min(m, n)
    values: Aval = ((*lead, k), a.dtype.to_real())
    if not vectors:
        return [values, (lead, INT32)]
    return [((*lead, m, m if full else k), a.dtype), values, ((*lead, n if full else k, n), a.dtype), (lead, INT32)]


def _svd(a: Any, full: bool, vectors: bool) -> tuple[Any, ...]:
    m, n = a.shape[-2:]
    k, real = min(m, n), a.real.dtype
    values = np.zeros((*a.shape[:-2], k), real)
    if not vectors:
        return _over(a, lambda x: (np.linalg.svd(x, compute_uv=False),), [values])
    shapes = [(m, m if full else k), (n if full else k, n)]
    left, right = (np.zeros((*a.shape[:-2], *shape), a.dtype) for shape in shapes)
    return _over(a, lambda x: tuple(np.linalg.svd(x, full_matrices=full)), [left, values, right])


def _thin(out: Any, a: Any, vectors: bool) -> tuple[Any, Any, Any]:
    """U, S, V^H, limited to the number of singular values."""
    if not vectors:
        out = prim.svd(a, full=False, vectors=True)
    k = out[1].shape[-1]
    return columns(out[0], 0, k), out[1], rows(out[2], 0, k)


def _rotation(x: Any, gaps: Any) -> Any:
    """(x - x^H) / gaps off the diagonal."""
    return _over_gaps(off_diagonal(x - mH(x)), gaps)


def _divided_columns(x: Any, s: Any) -> Any:
    n = len(x.shape)
    return _over_gaps(x, prim.broadcast(_like(s, x), shape=x.shape, dims=(*range(n - 2), n - 1)))


def _phase(x: Any, s: Any) -> Any:
    """i Im(diagonal of x) / 2 s, as a diagonal matrix."""
    part = _over_gaps(prim.imag(diagonal(x)), s * 2.0)
    return embed(prim.complex(build.zeros_like(part), part))


def _svd_vjp(ct: Any, out: Any, a: Any, full: bool, vectors: bool) -> tuple[Any]:
    to_u, to_s, to_vh = ct[:3] if vectors else (None, ct[0], None)
    if to_u is None and to_s is None and to_vh is None:
        return (None,)
    U, S, Vh = _thin(out, a, vectors)
    (m, n), k = a.shape[-2:], S.shape[-1]
    gaps = _apart(S * S)
    inner = None if to_s is None else _like(embed(to_s), a)
    rest = None
    if to_u is not None:
        to_u = columns(to_u, 0, k)
        within = times(mH(U), to_u)
        inner = build.add_any(inner, scale_columns(_rotation(within, gaps), S))
        if a.dtype.is_complex:
            inner = inner + _phase(within, S)
        if m > k:
            rest = times(_divided_columns(to_u - times(U, within), S), Vh)
    if to_vh is not None:
        to_v = mH(rows(to_vh, 0, k))
        within = times(Vh, to_v)
        inner = build.add_any(inner, scale_rows(S, _rotation(within, gaps)))
        if a.dtype.is_complex:
            inner = inner - _phase(within, S)
        if n > k:
            rest = build.add_any(rest, times(U, mH(_divided_columns(to_v - times(mH(Vh), within), S))))
    return (build.add_any(times(U, inner, Vh), rest),)


def _svd_jvp(tangents: Any, out: Any, a: Any, full: bool, vectors: bool) -> Any:
    t = tangents[0]
    U, S, Vh = _thin(out, a, vectors)
    (m, n), k = a.shape[-2:], S.shape[-1]
    V, inner = mH(Vh), times(mH(U), t, mH(Vh))
    moved = _real(diagonal(inner))
    if not vectors:
        return moved, None
    gaps, off = _apart(S * S), off_diagonal(inner)
    sided, other = scale_columns(off, S), scale_rows(S, off)
    rotation_u, rotation_v = _over_gaps(sided + mH(sided), gaps), _over_gaps(other + mH(other), gaps)
    if a.dtype.is_complex:
        rotation_u, rotation_v = rotation_u + _phase(inner, S), rotation_v - _phase(inner, S)
    to_u, to_v = times(U, rotation_u), times(V, rotation_v)
    if m > k:
        outside = times(t, V)
        to_u = to_u + _divided_columns(outside - times(U, mH(U), outside), S)
    if n > k:
        outside = times(mH(t), U)
        to_v = to_v + _divided_columns(outside - times(V, Vh, outside), S)
    if full and m > k:
        to_u = prim.cat(to_u, build.full((*U.shape[:-1], m - k), 0, U.dtype), dim=len(U.shape) - 1)
    if full and n > k:
        to_v = prim.cat(to_v, build.full((*V.shape[:-1], n - k), 0, V.dtype), dim=len(V.shape) - 1)
    return to_u, moved, mH(to_v), None


def _svd_samples() -> Samples:
    for dtype in ("float64", "float32", "complex64"):
        yield [floats((3, 3), 1, dtype=dtype)], {"full": False, "vectors": True}
    yield [floats((2, 4, 3), 2)], {"full": False, "vectors": True}
    yield [floats((3, 5), 3)], {"full": False, "vectors": True}
    yield [floats((3, 5), 4, dtype="complex64")], {"full": False, "vectors": True}
    yield [floats((4, 2), 5, dtype="float32")], {"full": True, "vectors": True}
    yield [floats((4, 3), 6)], {"full": False, "vectors": False}
    yield [floats((2, 4), 7, dtype="complex128")], {"full": False, "vectors": False}
    yield [floats((2, 0))], {"full": True, "vectors": True}


Primitive(
    "svd", "(U, S, V^H, info) with A = U diag(S) V^H, S falling; `full` makes U and V square.", family="heavy", spec=_svd_spec, reference=_svd,
    lower=("extern", "lapack"), multiple=True, samples=_svd_samples, vjp=_svd_vjp, jvp=_svd_jvp, batch=batch_same("svd"),
    empty=of_nothing("svd", (0, 2)),
)  # fmt: skip

# ***** the determinant and the cofactors, which are its derivative: singular matrices included *****


def _products_without(s: Any) -> Any:
    """For each element of the last dim, the product of all others."""
    dim = len(s.shape) - 1
    parts = []
    for reverse in (False, True):
        lo, hi = [0] * (dim + 1), [0] * (dim + 1)
        (hi if reverse else lo)[dim] = 1
        (lo if reverse else hi)[dim] = -1
        parts.append(build.pad(prim.cumprod(s, dim=dim, reverse=reverse), lo, hi, [0] * (dim + 1), 1.0))
    return parts[0] * parts[1]


def _determinant(q: Any) -> Any:
    """The determinant, by LU."""
    if q.shape[-1] == 0:
        return build.full(q.shape[:-2], 1, q.dtype)
    both, pivots, _ = prim.lu(q)
    unchanged = prim.iota(shape=pivots.shape, dim=len(pivots.shape) - 1, dtype=INT32) + 1
    swaps = build.select(
        build.eq(unchanged, pivots), build.full(pivots.shape, 1, q.dtype), build.full(pivots.shape, -1, q.dtype)
    )
    return prim.prod(diagonal(both) * swaps, dims=(len(pivots.shape) - 1,))


def _factored(a: Any) -> tuple[Any, Any, Any, Any]:
    """U, S, V^H, and det(U) det(V^H)."""
    U, S, Vh, _ = prim.svd(a, full=False, vectors=True)
    return U, S, Vh, _determinant(U) * _determinant(Vh)


def _assembled(U: Any, inner: Any, Vh: Any, sign: Any) -> Any:
    spread = prim.broadcast(sign, shape=U.shape, dims=tuple(range(len(sign.shape))))
    return spread * times(build.conj(U), inner, build.conj(Vh))


def _cofactor_decompose(a: Any) -> Any:
    if a.shape[-1] == 0:
        return build.zeros_like(a)
    U, S, Vh, sign = _factored(a)
    return _assembled(U, embed(_like(_products_without(S), a)), Vh, sign)


def _cofactor_jvp(tangents: Any, out: Any, a: Any) -> Any:
    """The second derivative of the determinant, from products of all singular values but two: no division."""
    if a.shape[-1] == 0:
        return build.zeros_like(a)
    U, S, Vh, sign = _factored(a)
    t = times(mH(U), tangents[0], mH(Vh))
    n, shape = len(a.shape), a.shape
    others = prim.broadcast(S, shape=shape, dims=(*range(n - 2), n - 1))
    others = off_diagonal(others) + embed(build.full(S.shape, 1, S.dtype))
    pairs = _like(off_diagonal(_products_without(others)), a)
    straight = build.reshape(times(pairs, build.reshape(diagonal(t), (*shape[:-1], 1))), shape[:-1])
    return _assembled(U, embed(straight) - pairs * mT(t), Vh, sign)


def _decompose(a: Any, drop: int) -> Any:
    return _cofactor_decompose(a) if drop else _determinant(a)


def _minors(a: Any, drop: int) -> Any:
    if not drop:
        return np.asarray(np.linalg.det(a), a.dtype)
    n, minors = a.shape[-1], np.zeros_like(a)
    for item, x in each(a):
        for i in range(n):
            for j in range(n):
                minor = np.delete(np.delete(x, i, 0), j, 1)
                minors[(*item, i, j)] = (-1) ** (i + j) * (np.linalg.det(minor) if n > 1 else 1)
    return minors


def _minors_spec(a: Any, drop: int) -> Aval:
    require("minors", a, "fc")
    lead = tuple(lead_dims("minors", a, square=True))
    if drop not in (0, 1):
        raise ValueError(f"prim.minors leaves out no row or one, not {drop}")
    return a.shape if drop else lead, a.dtype


def _minors_vjp(ct: Any, out: Any, a: Any, drop: int) -> tuple[Any]:
    if drop:
        return (build.conj(_cofactor_jvp([build.conj(ct)], out, a)),)
    return (prim.broadcast(ct, shape=a.shape, dims=tuple(range(len(ct.shape)))) * build.conj(prim.minors(a, drop=1)),)


def _minors_jvp(tangents: Any, out: Any, a: Any, drop: int) -> Any:
    if drop:
        return _cofactor_jvp(tangents, out, a)
    return prim.sum(prim.minors(a, drop=1) * tangents[0], dims=(len(a.shape) - 2, len(a.shape) - 1))


def _minors_samples() -> Samples:
    for drop in (0, 1):
        for dtype in ("float64", "float32", "complex128", "complex64"):
            yield [floats((3, 3), dtype=dtype)], {"drop": drop}
        yield [floats((2, 2, 2))], {"drop": drop}
        yield [floats((1, 1))], {"drop": drop}
        yield [np.array([[1.0, 2.0], [2.0, 4.0]], "float32")], {"drop": drop}
        yield [floats((0, 0))], {"drop": drop}


Primitive(
    "minors", "The determinant (`drop` 0), or the matrix of cofactors (`drop` 1), which is its derivative.", family="heavy", spec=_minors_spec,
    reference=_minors, lower=("extern", "minors"), samples=_minors_samples, vjp=_minors_vjp, jvp=_minors_jvp, batch=batch_same("minors"),
    decompose=_decompose,
)  # fmt: skip
