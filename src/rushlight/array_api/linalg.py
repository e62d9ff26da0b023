"""The standard's linear algebra: functions of matrices in the last two dims, and of vectors along one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import rushlight
from rushlight import Tensor
from rushlight.array_api import statistical
from rushlight.array_api.dtypes import operands, real_of
from rushlight.array_api.manipulation import axes_of

__all__ = [
    "cholesky", "cross", "det", "diagonal", "eigh", "eigvalsh", "inv", "matmul", "matrix_norm", "matrix_power", "matrix_rank",
    "matrix_transpose", "outer", "pinv", "qr", "slogdet", "solve", "svd", "svdvals", "tensordot", "trace", "vecdot", "vector_norm",
]  # fmt: skip


_WITHOUT_PRODUCT = (rushlight.uint16, rushlight.uint32, rushlight.uint64)


class EighResult(NamedTuple):
    """Eigenvalues in ascending order; eigenvectors as columns."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class QRResult(NamedTuple):
    """Orthonormal columns and an upper triangle."""

    Q: Tensor
    R: Tensor


class SlogdetResult(NamedTuple):
    """Sign of the determinant and logarithm of its magnitude."""

    sign: Tensor
    logabsdet: Tensor


class SVDResult(NamedTuple):
    """Left singular vectors as columns, singular values in descending order, right singular vectors as rows."""

    U: Tensor
    S: Tensor
    Vh: Tensor


def _exactly(product: Callable[[Tensor, Tensor], Tensor], x1: Tensor, x2: Tensor) -> Tensor:
    """A product of unsigned integers that PyTorch has no product for: the same bits come from int64, as all is modulo a
    power of two.
    """
    kind = x1.dtype
    if kind not in _WITHOUT_PRODUCT:
        return product(x1, x2)
    whole = rushlight.int64
    return product(x1.to(whole), x2.to(whole)).to(kind)


def matmul(x1: Tensor, x2: Tensor, /) -> Tensor:
    """Products of matrices; an array of one dim is a row on the left and a column on the right."""
    x1, x2 = operands("matmul", x1, x2)
    if not (x1.ndim and x2.ndim):
        raise ValueError(f"matmul: expected arrays with dims, found shapes {tuple(x1.shape)} and {tuple(x2.shape)}")
    return _exactly(rushlight.matmul, x1, x2)


def matrix_transpose(x: Tensor, /) -> Tensor:
    """A view with the last two dims exchanged."""
    if x.ndim < 2:
        raise ValueError(f"matrix_transpose: expected an array of at least two dims, found {x.ndim}")
    return x.mT


def tensordot(x1: Tensor, x2: Tensor, /, *, axes: Any = 2) -> Tensor:
    """Sums of products over `axes`: the last ones of `x1` with the first ones of `x2`, or two sequences of dims."""
    x1, x2 = operands("tensordot", x1, x2)
    if not isinstance(axes, int):
        axes = tuple([axis] if isinstance(axis, int) else list(axis) for axis in axes)
    return _exactly(lambda a, b: rushlight.tensordot(a, b, axes), x1, x2)


def vecdot(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """Dot products of vectors along a dim, the first conjugated; the other dims broadcast."""
    x1, x2 = operands("vecdot", x1, x2)
    if axis >= 0 or not -min(x1.ndim, x2.ndim) <= axis:
        raise ValueError(f"vecdot: expected a negative axis that both arrays have, found {axis}")
    if x1.shape[axis] != x2.shape[axis]:
        raise ValueError(f"vecdot: expected vectors of one length, found {x1.shape[axis]} and {x2.shape[axis]}")
    first: Any = rushlight.conj(x1) if x1.dtype.is_complex else x1
    return rushlight.sum(first * x2, axis, dtype=x1.dtype)


def cross(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """Cross products of vectors of three elements along a dim."""
    x1, x2 = operands("cross", x1, x2)
    if x1.shape[axis] != 3 or x2.shape[axis] != 3:
        raise ValueError(
            f"cross: expected three elements along axis {axis}, found {x1.shape[axis]} and {x2.shape[axis]}"
        )
    x1, x2 = rushlight.broadcast_tensors(x1, x2)
    return rushlight.linalg.cross(x1, x2, dim=axis)


def outer(x1: Tensor, x2: Tensor, /) -> Tensor:
    """All products of an element of one vector and one of another."""
    return rushlight.outer(*operands("outer", x1, x2))


def diagonal(x: Tensor, /, *, offset: int = 0) -> Tensor:
    """A view of the diagonals of matrices, as the last dim."""
    return rushlight.diagonal(x, offset, -2, -1)


def trace(x: Tensor, /, *, offset: int = 0, dtype: Any = None) -> Tensor:
    """Sums of diagonals, with the dtypes of `sum`."""
    return statistical.sum(diagonal(x, offset=offset), axis=-1, dtype=dtype)


def det(x: Tensor, /) -> Tensor:
    """Determinants."""
    return rushlight.linalg.det(x)


def slogdet(x: Tensor, /) -> SlogdetResult:
    """Signs and logarithms of determinants."""
    return SlogdetResult(*rushlight.linalg.slogdet(x))


def inv(x: Tensor, /) -> Tensor:
    """Inverse matrices."""
    return rushlight.linalg.inv(x)


def solve(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The solutions of x1 @ x = x2. `x2` is a vector where it has one dim, otherwise columns in matrices that
    broadcast.
    """
    x1, x2 = operands("solve", x1, x2)
    if x2.ndim == 1:
        return rushlight.linalg.solve(x1, x2.unsqueeze(-1).expand(*x1.shape[:-1], 1)).squeeze(-1)
    # PyTorch takes some matrices for batches of vectors
    batch = rushlight.broadcast_shapes(x1.shape[:-2], x2.shape[:-2])
    return rushlight.linalg.solve(x1.expand(*batch, *x1.shape[-2:]), x2.expand(*batch, *x2.shape[-2:]))


def cholesky(x: Tensor, /, *, upper: bool = False) -> Tensor:
    """The triangles L with L @ L^H = x, or U with U^H @ U = x."""
    return rushlight.linalg.cholesky(x, upper=upper)


def qr(x: Tensor, /, *, mode: str = "reduced") -> QRResult:
    """Orthonormal columns and upper triangles whose product is `x`; `mode` "reduced" or "complete"."""
    if mode not in ("reduced", "complete"):
        raise ValueError(f"qr: expected mode 'reduced' or 'complete', found {mode!r}")
    return QRResult(*rushlight.linalg.qr(x, mode))


def svd(x: Tensor, /, *, full_matrices: bool = True) -> SVDResult:
    """Singular value decompositions: x = U @ diag(S) @ Vh."""
    return SVDResult(*rushlight.linalg.svd(x, full_matrices))


def svdvals(x: Tensor, /) -> Tensor:
    """Singular values, in descending order."""
    return rushlight.linalg.svdvals(x)


def eigh(x: Tensor, /) -> EighResult:
    """Eigenvalues and eigenvectors of symmetric or Hermitian matrices."""
    return EighResult(*rushlight.linalg.eigh(x))


def eigvalsh(x: Tensor, /) -> Tensor:
    """Eigenvalues of symmetric or Hermitian matrices, in ascending order."""
    return rushlight.linalg.eigvalsh(x)


def matrix_power(x: Tensor, n: int, /) -> Tensor:
    """Square matrices multiplied with themselves; of negative `n`, their inverses."""
    return rushlight.linalg.matrix_power(x, n)


def _tolerance(x: Tensor, rtol: Any) -> Any:
    """`rtol` against the largest singular value; by default the larger size times the dtype's precision."""
    if rtol is None:
        return max(x.shape[-2:]) * rushlight.finfo(x.dtype).eps
    return rtol.to(real_of(x.dtype)) if isinstance(rtol, Tensor) else rtol


def matrix_rank(x: Tensor, /, *, rtol: Any = None) -> Tensor:
    """How many singular values are above `rtol` times the largest, as int64."""
    if x.ndim < 2:
        raise ValueError(f"matrix_rank: expected an array of at least two dims, found {x.ndim}")
    singular, share = rushlight.linalg.svdvals(x), _tolerance(x, rtol)
    if not singular.shape[-1]:
        return rushlight.zeros(singular.shape[:-1], dtype=rushlight.int64, device=x.device)
    share = share.unsqueeze(-1) if isinstance(share, Tensor) else share
    return rushlight.sum(singular > rushlight.amax(singular, -1, True) * share, -1)


def pinv(x: Tensor, /, *, rtol: Any = None) -> Tensor:
    """Pseudo-inverses; singular values below `rtol` times the largest count as zero."""
    return rushlight.linalg.pinv(x, rtol=_tolerance(x, rtol))


def matrix_norm(x: Tensor, /, *, keepdims: bool = False, ord: Any = "fro") -> Tensor:
    """Norms of matrices: "fro", "nuc", 1, 2, inf and the negative numbers."""
    return rushlight.linalg.matrix_norm(x, ord, (-2, -1), keepdims)


def vector_norm(x: Tensor, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Tensor:
    """Norms of vectors over dims (all by default): any real `ord`, inf and -inf too."""
    axes = axes_of(x, axis)
    if not axes and x.ndim:
        x, axes, keepdims = x.unsqueeze(-1), (-1,), False
    return (
        rushlight.linalg.vector_norm(x, ord, axes, keepdims)
        if axes
        else rushlight.linalg.vector_norm(x, ord, None, keepdims)
    )
