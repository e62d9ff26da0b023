"""Symmetric indefinite matrices: A = L D L^T (or L D L^H), D with blocks of one and two (Bunch and Kaufman, 1977)."""

from __future__ import annotations

from typing import Any

from rushlight._base.lazy import numpy as np
from rushlight._prims.families import require
from rushlight._prims.linalg.factor import batch_same, each, of_nothing
from rushlight._prims.linalg.matrices import lead_dims
from rushlight._prims.record import Aval, Primitive, not_differentiable
from rushlight._prims.samples import Samples, floats
from rushlight._types.dtype import INT32

__all__: list[str] = []

_ALPHA = (1 + 17**0.5) / 8  # minimises the growth of elements
_PACKED = "its result is the form in which LAPACK keeps L and D"


def _ldl_spec(a: Any, hermitian: bool) -> list[Aval]:
    require("ldl", a, "fc")
    lead = tuple(lead_dims("ldl", a, square=True))
    return [(a.shape, a.dtype), (a.shape[:-1], INT32), (lead, INT32)]


def _size(x: Any) -> Any:
    return np.abs(x.real) + np.abs(x.imag)


def _pivot(x: Any, k: int, hermitian: bool) -> tuple[int, int]:
    """The row and column of the next pivot, and the size of its block."""
    own = abs(x[k, k].real) if hermitian else _size(x[k, k])
    if k + 1 == x.shape[0]:
        return k, 1
    far = k + 1 + int(_size(x[k + 1 :, k]).argmax())
    column = _size(x[far, k])
    if max(own, column) == 0 or own >= _ALPHA * column:
        return k, 1
    row = max([_size(x[far, j]) for j in range(k, far)] + [_size(x[i, far]) for i in range(far + 1, x.shape[0])])
    if own >= _ALPHA * column * (column / row):
        return k, 1
    return far, 1 if (abs(x[far, far].real) if hermitian else _size(x[far, far])) >= _ALPHA * row else 2


def _exchange(whole: Any, x: Any, k: int, a: int, b: int) -> None:
    """Exchange rows and columns a and b of the remaining matrix; L's rows before column k are unchanged."""
    if a != b:
        whole[[a, b]] = whole[[b, a]]
        whole[:, [a, b]] = whole[:, [b, a]]


def _factor(x: Any, hermitian: bool) -> tuple[Any, Any, int]:
    """Overwrite the lower triangle of `x` with L and D."""
    turn = np.conj if hermitian else np.asarray
    n, k, info = x.shape[0], 0, 0
    low, pivots, upper = np.tril(x), np.zeros(n, "int32"), np.triu(x, 1)
    whole = low + turn(np.tril(low, -1).T)
    if hermitian:
        np.fill_diagonal(whole, whole.diagonal().real)
    factors = np.zeros_like(whole)
    while k < n:
        p, size = _pivot(np.tril(whole), k, hermitian)
        left = slice(k + size, n)
        part = whole[k:, k:]
        _exchange(part, x, k, size - 1, p - k)
        block = whole[k : k + size, k : k + size]
        factors[k : k + size, k : k + size] = np.tril(block)
        pivots[k : k + size] = p + 1 if size == 1 else -(p + 1)
        if size == 1 and (block[0, 0] == 0 or np.isnan(block[0, 0])):
            info = info or k + 1
            factors[left, k] = whole[left, k]
        else:
            below = np.linalg.solve(block.T, whole[left, k : k + size].T).T
            factors[left, k : k + size] = below
            whole[left, left] -= below @ whole[k : k + size, left]
        k += size
    return factors + upper, pivots, info


def _ldl(a: Any, hermitian: bool) -> tuple[Any, Any, Any]:
    doubled = a.astype({"float32": "float64", "complex64": "complex128"}.get(a.dtype.name, a.dtype.name))
    factors, pivots, info = np.zeros_like(a), np.zeros(a.shape[:-1], "int32"), np.zeros(a.shape[:-2], "int32")
    for item, x in each(doubled):
        factors[item], pivots[item], info[item] = _factor(x, hermitian)
    return factors, pivots, info


def _symmetric(shape: tuple[int, ...], dtype: str, seed: int, hermitian: bool) -> Any:
    x = floats(shape, seed, dtype=dtype)
    transposed = np.swapaxes(x, -1, -2)
    return (x + (np.conj(transposed) if hermitian else transposed)).astype(dtype)


def _ldl_samples() -> Samples:
    for dtype in ("float64", "float32", "complex128", "complex64"):
        yield [_symmetric((4, 4), dtype, 1, False)], {"hermitian": False}
    yield [_symmetric((2, 5, 5), "complex128", 2, True)], {"hermitian": True}
    yield [np.array([[0.0, 1.0], [1.0, 0.0]])], {"hermitian": False}
    yield [floats((2, 0, 0))], {"hermitian": False}


Primitive(
    "ldl", "(LD, pivots, info): L below, D on and beside the diagonal, read from and kept in the lower triangle; pivots as LAPACK's sytrf.",
    family="heavy", spec=_ldl_spec, reference=_ldl, lower=("extern", "lapack"), multiple=True, samples=_ldl_samples,
    vjp=not_differentiable(_PACKED), jvp=not_differentiable(_PACKED), batch=batch_same("ldl"), empty=of_nothing("ldl"),
)  # fmt: skip

# ***** systems *****


def _solve_spec(factors: Any, pivots: Any, b: Any, hermitian: bool) -> Aval:
    require("ldl_solve", factors, "fc")
    lead_dims("ldl_solve", factors, square=True)
    if pivots.dtype is not INT32 or pivots.shape != factors.shape[:-1]:
        raise ValueError(
            f"prim.ldl_solve takes pivots as int32{list(factors.shape[:-1])}, got {pivots.dtype.name}{list(pivots.shape)}"
        )
    if b.dtype is not factors.dtype or b.shape[:-1] != factors.shape[:-1]:
        raise ValueError(
            f"prim.ldl_solve: {b.dtype.name}{list(b.shape)} does not go with {factors.dtype.name}{list(factors.shape)}"
        )
    return b.shape, b.dtype


def _solve_one(f: Any, pivots: Any, b: Any, hermitian: bool) -> Any:
    """One block of D after another, forward and back."""
    turn = np.conj if hermitian else np.asarray
    n, x, blocks, k = f.shape[0], b.copy(), [], 0
    while k < n:
        size = 1 if pivots[k] > 0 else 2
        blocks.append((k, size))
        p, q = k + size - 1, abs(int(pivots[k + size - 1])) - 1
        x[[p, q]] = x[[q, p]]
        x[k + size :] -= f[k + size :, k : k + size] @ x[k : k + size]
        k += size
    for k, size in blocks:
        low = np.tril(f[k : k + size, k : k + size])
        x[k : k + size] = np.linalg.solve(low + turn(np.tril(low, -1).T), x[k : k + size])
    for k, size in reversed(blocks):
        x[k : k + size] -= turn(f[k + size :, k : k + size].T) @ x[k + size :]
        p, q = k + size - 1, abs(int(pivots[k + size - 1])) - 1
        x[[p, q]] = x[[q, p]]
    return x


def _solve(factors: Any, pivots: Any, b: Any, hermitian: bool) -> Any:
    solutions = np.zeros_like(b)
    for item, f in each(factors):
        solutions[item] = _solve_one(f, pivots[item], b[item], hermitian)
    return solutions


def _solve_samples() -> Samples:
    for dtype, hermitian in (("float64", False), ("complex128", True), ("complex64", False)):
        a = _symmetric((2, 4, 4), dtype, 3, hermitian)
        yield [*_ldl(a, hermitian)[:2], floats((2, 4, 3), 4, dtype=dtype)], {"hermitian": hermitian}
    yield [floats((0, 0)), np.zeros((0,), "int32"), floats((0, 2))], {"hermitian": False}


Primitive(
    "ldl_solve", "X with A X = B, from the factors that `ldl` gives.", family="heavy", spec=_solve_spec, reference=_solve, lower=("extern", "lapack"),
    samples=_solve_samples, vjp=not_differentiable(_PACKED), jvp=not_differentiable(_PACKED), batch=batch_same("ldl_solve"),
    empty=of_nothing("ldl_solve"),
)  # fmt: skip
