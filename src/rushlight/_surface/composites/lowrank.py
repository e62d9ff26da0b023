"""Singular values of a few leading directions, found by multiplying with random matrices.

Halko, Martinsson and Tropp, "Finding structure with randomness", algorithms 4.4 and 5.1.
"""

from __future__ import annotations

from typing import Any

from rushlight._engine.core.tensor import Tensor
from rushlight._surface.registry import SPACES, composite

__all__: list[str] = []

T = SPACES["torch"]


def _h(x: Any) -> Any:
    turned = x.transpose(-2, -1)
    return T["conj"](turned) if x.is_complex() else turned


def _basis(A: Any, q: int, niter: int, M: Any) -> Any:
    """Orthonormal columns that nearly span the range of A - M."""
    qr = SPACES["linalg"]["qr"]
    real = T["randn"](A.shape[-1], q, dtype=A._spec.dtype.to_real(), device=A._spec.device)
    start = real.to(A.dtype)

    def times(x: Any, adjoint: bool = False) -> Any:
        found = (_h(A) if adjoint else A) @ x
        return found if M is None else found - (_h(M) if adjoint else M) @ x

    Q = qr(times(start))[0]
    for _ in range(niter):
        Q = qr(times(Q, True))[0]
        Q = qr(times(Q))[0]
    return Q


def _low_rank(A: Any, q: int, niter: int, M: Any) -> tuple[Any, Any, Any]:
    svd = SPACES["linalg"]["svd"]
    wide = A.shape[-2] < A.shape[-1]
    if wide:
        A, M = _h(A), None if M is None else _h(M)
    Q = _basis(A, q, niter, M)
    B = _h(Q) @ A if M is None else _h(Q) @ A - _h(Q) @ M
    U, S, Vh = svd(B, False)
    right = _h(Vh)
    left = Q @ U
    return (right, S, left) if wide else (left, S, right)


def _checked(A: Any, q: Any) -> int:
    rows, columns = A.shape[-2:]
    q = min(6, rows, columns) if q is None else q
    if not 0 <= q <= min(rows, columns):
        raise ValueError(f"q(={q}) must be non-negative integer and not greater than min(m, n)={min(rows, columns)}")
    return int(q)


@composite("svd_lowrank")
def svd_lowrank(A: Tensor, q: int | None = 6, niter: int | None = 2, M: Any = None) -> tuple[Any, Any, Any]:
    """(U, S, V) of nearly the q leading singular values of A (of A - M)."""
    count = 6 if q is None else q
    mean = None if M is None else M.expand(A._spec.shape)
    return _low_rank(A, min(count, *A._spec.shape[-2:]), 2 if niter is None else niter, mean)


@composite("pca_lowrank")
def pca_lowrank(A: Tensor, q: int | None = None, center: bool = True, niter: int = 2) -> tuple[Any, Any, Any]:
    """(U, S, V) of nearly the q leading principal components of observations in rows."""
    count = _checked(A, q)
    if niter < 0:
        raise ValueError(f"niter(={niter}) must be non-negative integer")
    if center:
        A = A - A.mean(-2, keepdim=True)
    return _low_rank(A, count, niter, None)
