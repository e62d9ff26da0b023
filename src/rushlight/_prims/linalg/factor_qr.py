"""Orthogonal factors: reflections, and QR from them."""

from __future__ import annotations

from typing import Any

from rushlight._base.errors import NotDifferentiableError
from rushlight._base.lazy import numpy as np
from rushlight._prims import build
from rushlight._prims.families import require
from rushlight._prims.linalg.factor import batch_same, of_nothing
from rushlight._prims.linalg.matrices import (
    columns,
    diagonal,
    embed,
    eye,
    lead_dims,
    mH,
    rows,
    scale_rows,
    solve,
    times,
    tril,
    triu,
)
from rushlight._prims.record import Aval, ByDecomposition, Primitive, prim
from rushlight._prims.samples import Samples, floats
from rushlight._types.layout import numel

__all__ = ["reflect"]

FORMS = ("reduced", "full", "packed")

# ***** reflections *****


def reflect(a: Any, tau: Any, x: Any, adjoint: bool = False) -> Any:
    """Q x (or Q^H x), where Q is the product of the reflections stored in the columns of `a` below the diagonal.

    All of them at once: Q = I - V T V^H with a triangular T whose inverse is known (Joffrain, Low, Quintana-Orti, van
    de Geijn, van Zee, "Accumulating Householder transformations, revisited", 2006); multiplied by diag(tau) it has ones
    on its diagonal, so a tau of 0 is safe.
    """
    k = tau.shape[-1]
    if k == 0 or not numel(x.shape):
        return x
    v = tril(columns(a, 0, k), -1)
    v = v + eye(v, *v.shape[-2:])
    system = scale_rows(tau, triu(times(mH(v), v), 1))
    inner = times(mH(v), x)
    if adjoint:  # T^H = diag(tau^H) (I + system)^-H
        inner = scale_rows(build.conj(tau), solve(system, inner, upper=True, unit=True, adjoint=True))
    else:
        inner = solve(system, scale_rows(tau, inner), upper=True, unit=True)
    return x - times(v, inner)


def _reflections_spec(a: Any, tau: Any) -> Aval:
    require("reflections", a, "fc")
    lead, (m, n) = lead_dims("reflections", a), a.shape[-2:]
    if n > m or tau.dtype is not a.dtype or tau.shape[:-1] != lead or tau.shape[-1] > n:
        raise ValueError(
            f"prim.reflections takes a [m, n] with n <= m and tau of at most n, got {list(a.shape)} and {list(tau.shape)}"
        )
    return a.shape, a.dtype


def _reflections(a: Any, tau: Any) -> Any:
    (m, n), k = a.shape[-2:], tau.shape[-1]
    product = np.broadcast_to(np.eye(m, n, dtype=a.dtype), a.shape)
    for i in reversed(range(k)):
        v = np.tril(a, -1)[..., i : i + 1] + np.eye(m, n, dtype=a.dtype)[:, i : i + 1]
        product = product - tau[..., None, i : i + 1] * v @ (np.swapaxes(v.conj(), -1, -2) @ product)
    return product.copy()


def _reflections_samples() -> Samples:
    for dtype in ("float64", "float32", "complex128", "complex64"):
        yield [floats((3, 3), dtype=dtype), floats((3,), 1, dtype=dtype)], {}
    yield [floats((2, 5, 3), 1), floats((2, 2), 2)], {}
    yield [floats((2, 4, 4), 3, dtype="complex128"), floats((2, 3), 4, dtype="complex128")], {}
    yield [floats((4, 2)), floats((0,))], {}
    yield [floats((3, 0)), floats((0,))], {}


Primitive(
    "reflections", "The first columns of the product of the reflections I - tau[i] v[i] v[i]^H, of which `a` keeps v[i] below its diagonal.",
    family="heavy", spec=_reflections_spec, reference=_reflections, lower=("extern", "lapack"), samples=_reflections_samples,
    vjp=ByDecomposition(), jvp=ByDecomposition(), batch=batch_same("reflections"),
    decompose=lambda a, tau: reflect(a, tau, eye(a, *a.shape[-2:])), empty=lambda a, tau: eye(a, *a.shape[-2:]),
)  # fmt: skip

# ***** QR *****


def _qr_spec(a: Any, form: str) -> list[Aval]:
    require("qr", a, "fc")
    lead, (m, n) = lead_dims("qr", a), a.shape[-2:]
    if form not in FORMS:
        raise ValueError(f"prim.qr: form is one of {', '.join(FORMS)}, got {form!r}")
    if form == "packed":
        return [(a.shape, a.dtype), ((*lead, min(m, n)), a.dtype)]
    k = m if form == "full" else min(m, n)
    return [((*lead, m, k), a.dtype), ((*lead, k, n), a.dtype)]


def _qr_decompose(a: Any, form: str) -> tuple[Any, Any]:
    """Q and R from the packed form that LAPACK computes."""
    if form == "packed":
        raise NotImplementedError("prim.qr: the packed form is LAPACK's own, and no simpler primitives make it")
    k = _qr_spec(a, form)[0][0][-1]
    packed, tau = prim.qr(a, form="packed")
    kept = columns(packed, 0, min(k, a.shape[-1]))
    if k > a.shape[-1]:
        kept = prim.cat(kept, build.full((*a.shape[:-1], k - a.shape[-1]), 0, a.dtype), dim=len(a.shape) - 1)
    return prim.reflections(kept, tau), triu(rows(packed, 0, k))


def _qr(a: Any, form: str) -> tuple[Any, Any]:
    m, n = a.shape[-2:]
    if form == "packed":
        if not a.size:
            return a.copy(), np.zeros((*a.shape[:-2], min(m, n)), a.dtype)
        transposed, tau = np.linalg.qr(a, "raw")
        return np.ascontiguousarray(np.swapaxes(transposed, -1, -2)), tau
    if a.size:
        return tuple(np.linalg.qr(a, "complete" if form == "full" else "reduced"))
    k = m if form == "full" else min(m, n)
    return np.broadcast_to(np.eye(m, k, dtype=a.dtype), (*a.shape[:-2], m, k)).copy(), np.zeros(
        (*a.shape[:-2], k, n), a.dtype
    )


def _refuse(form: str, a: Any) -> None:
    m, n = a.shape[-2:]
    if form == "packed":
        raise NotDifferentiableError(
            "the derivative of the form in which LAPACK keeps Q is not implemented; see linalg.qr"
        )
    if form == "full" and m > n > 0:
        raise NotDifferentiableError(
            "The QR decomposition is not differentiable when mode='complete' and nrows > ncols (the columns of Q beyond those of A are a choice)"
        )


def _tall_vjp(to_q: Any, to_r: Any, Q: Any, R: Any) -> Any:
    """Walter, Lehmann, "Algorithmic differentiation of linear algebra functions" (2010), also for complex numbers."""
    gradient = to_q
    inner = build.add_any(None if to_r is None else times(R, mH(to_r)), None if to_q is None else -times(mH(to_q), Q))
    below, middle = tril(inner, -1), diagonal(inner)
    middle = build.complex_(prim.real(middle)) if inner.dtype.is_complex else middle
    gradient = build.add_any(gradient, times(Q, below + mH(below) + embed(middle)))
    return solve(R, gradient, upper=True, adjoint=True, left=False)


def _qr_vjp(ct: Any, out: Any, a: Any, form: str) -> tuple[Any]:
    _refuse(form, a)
    (to_q, to_r), (Q, R), (m, n) = ct, out, a.shape[-2:]
    if (to_q is None and to_r is None) or not numel(a.shape):
        return (None,)
    if m >= n:
        return (_tall_vjp(to_q, to_r, Q, R),)
    if to_r is None:
        to_r = build.zeros_like(R)
    rest = columns(to_r, m, n)
    to_q = build.add_any(to_q, times(columns(a, m, n), mH(rest)))
    first = _tall_vjp(to_q, columns(to_r, 0, m), Q, columns(R, 0, m))
    return (prim.cat(first, times(Q, rest), dim=len(a.shape) - 1),)


def _qr_jvp(tangents: Any, out: Any, a: Any, form: str) -> Any:
    _refuse(form, a)
    (Q, R), (m, n), t = out, a.shape[-2:], tangents[0]
    if not numel(a.shape):
        return None, None
    square, first = (R, t) if m >= n else (columns(R, 0, m), columns(t, 0, m))
    sided = solve(square, first, upper=True, left=False)
    inner = times(mH(Q), sided)
    below = tril(inner, -1)
    rotation = below - mH(below)
    if inner.dtype.is_complex:
        part = prim.imag(diagonal(inner))
        rotation = rotation + embed(prim.complex(build.zeros_like(part), part))
    to_q = sided - times(Q, inner - rotation)
    to_r = times(inner - rotation, square)
    if m < n:
        to_r = prim.cat(to_r, times(mH(to_q), columns(a, m, n)) + times(mH(Q), columns(t, m, n)), dim=len(a.shape) - 1)
    return to_q, to_r


def _qr_samples() -> Samples:
    for dtype in ("float64", "float32", "complex128", "complex64"):
        yield [floats((3, 3), dtype=dtype)], {"form": "reduced"}
    yield [floats((2, 4, 3), 1)], {"form": "reduced"}
    yield [floats((2, 4), 2, dtype="complex128")], {"form": "full"}
    yield [floats((3, 5), 3)], {"form": "reduced"}
    yield [floats((3, 0))], {"form": "full"}


Primitive(
    "qr", "(Q, R) with A = Q R, R upper triangular; form full makes Q square, packed gives (a, tau): R, and below it the reflections that make Q.",
    family="heavy", spec=_qr_spec, reference=_qr, lower=("extern", "lapack"), multiple=True, samples=_qr_samples, vjp=_qr_vjp, jvp=_qr_jvp,
    batch=batch_same("qr"), decompose=_qr_decompose, empty=of_nothing("qr", (0,)),
)  # fmt: skip
