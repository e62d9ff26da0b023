"""Matrix algebra on values [*B, M, N], for the rules of the factorisations and for operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight._prims import build
from rushlight._prims.record import prim
from rushlight._types.dtype import INT64

__all__ = [
    "columns", "diagonal", "embed", "eye", "hermitian", "lead_dims", "mH", "mT", "off_diagonal", "put_back", "reorder", "rows",
    "scale_columns", "scale_rows", "solve", "times", "tril", "triu",
]  # fmt: skip


def mT(x: Any) -> Any:
    """Exchange the last two dims."""
    n = len(x.shape)
    return build.transpose(x, (*range(n - 2), n - 1, n - 2))


def mH(x: Any) -> Any:
    """The conjugate transpose."""
    return build.conj(mT(x))


def times(*factors: Any) -> Any:
    """The product of matrices, left to right."""
    product = factors[0]
    for factor in factors[1:]:
        product = build.dot(product, factor)
    return product


def _steps(x: Any) -> Any:
    """Column minus row of every element."""
    n = len(x.shape)
    return prim.iota(shape=x.shape, dim=n - 1, dtype=INT64) - prim.iota(shape=x.shape, dim=n - 2, dtype=INT64)


def tril(x: Any, k: int = 0) -> Any:
    """Zeros above diagonal k."""
    return build.select(_steps(x) <= k, x, build.zeros_like(x))


def triu(x: Any, k: int = 0) -> Any:
    """Zeros below diagonal k."""
    return build.select(_steps(x) >= k, x, build.zeros_like(x))


def eye(x: Any, size: int, columns: int | None = None) -> Any:
    """The identity in the dtype and batch of `x`."""
    shape = (*x.shape[:-2], size, size if columns is None else columns)
    zeros = build.full(shape, 0, x.dtype)
    return build.select(build.eq(_steps(zeros), 0), build.full(shape, 1, x.dtype), zeros)


def off_diagonal(x: Any) -> Any:
    """Zeros on the diagonal."""
    return build.select(build.eq(_steps(x), 0), build.zeros_like(x), x)


def diagonal(x: Any) -> Any:
    """The diagonal of the last two dims."""
    return prim.diagonal(x, start=(0, 0), size=min(x.shape[-2:]))


def embed(d: Any) -> Any:
    """Square matrices with `d` on the diagonal."""
    shape = (*d.shape, d.shape[-1])
    spread = prim.broadcast(d, shape=shape, dims=tuple(range(len(d.shape))))
    return build.select(build.eq(_steps(spread), 0), spread, build.zeros_like(spread))


def scale_rows(d: Any, x: Any) -> Any:
    """diag(d) x; `d` may be real and `x` complex."""
    d = build.complex_(d) if x.dtype.is_complex and not d.dtype.is_complex else d
    return prim.broadcast(d, shape=x.shape, dims=tuple(range(len(x.shape) - 1))) * x


def scale_columns(x: Any, d: Any) -> Any:
    """x diag(d); `d` may be real and `x` complex."""
    d = build.complex_(d) if x.dtype.is_complex and not d.dtype.is_complex else d
    n = len(x.shape)
    return x * prim.broadcast(d, shape=x.shape, dims=(*range(n - 2), n - 1))


def hermitian(x: Any) -> Any:
    """(x + x^H) / 2."""
    return (x + mH(x)) * 0.5


def _cut(x: Any, dim: int, start: int, stop: int) -> Any:
    if (start, stop) == (0, x.shape[dim]):
        return x
    starts, stops = [0] * len(x.shape), list(x.shape)
    starts[dim], stops[dim] = start, stop
    return prim.slice(x, starts=tuple(starts), stops=tuple(stops), steps=(1,) * len(x.shape))


def rows(x: Any, start: int, stop: int) -> Any:
    """Rows start to stop - 1."""
    return _cut(x, len(x.shape) - 2, start, stop)


def columns(x: Any, start: int, stop: int) -> Any:
    """Columns start to stop - 1."""
    return _cut(x, len(x.shape) - 1, start, stop)


def solve(a: Any, b: Any, *, upper: bool, unit: bool = False, adjoint: bool = False, left: bool = True) -> Any:
    """X with A X = B (X A = B unless `left`) for triangular A; `adjoint`: with A^H in place of A."""
    if not left:
        return mT(solve(mT(a), mT(b), upper=not upper, unit=unit, adjoint=adjoint))
    if adjoint:
        return prim.triangular_solve(mH(a), b, upper=not upper, unit=unit)
    return prim.triangular_solve(a, b, upper=upper, unit=unit)


def reorder(x: Any, order: Any) -> Any:
    """Rows in another order: row i of the result is row order[i] of x."""
    n = len(x.shape)
    return prim.gather(x, prim.broadcast(order, shape=(*order.shape, x.shape[-1]), dims=tuple(range(n - 1))), dim=n - 2)


def put_back(x: Any, order: Any) -> Any:
    """Undo `reorder`: row order[i] of the result is row i of x."""
    n = len(x.shape)
    where = prim.broadcast(order, shape=x.shape, dims=tuple(range(n - 1)))
    return prim.scatter(build.zeros_like(x), where, x, dim=n - 2, reduce="set")


def lead_dims(name: str, x: Any, square: bool = False) -> Sequence[int]:
    """The batch dims of matrices [*B, M, N]; ValueError for other operands."""
    if len(x.shape) < 2 or (square and x.shape[-1] != x.shape[-2]):
        raise ValueError(f"prim.{name} takes {'square ' if square else ''}matrices, got {list(x.shape)}")
    return x.shape[:-2]
