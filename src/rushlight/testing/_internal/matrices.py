"""Random matrices with given properties, for tests of linear algebra."""

from __future__ import annotations

from typing import Any

import rushlight as torch
from rushlight.testing.creation import make_tensor

__all__ = [
    "make_fullrank_matrices_with_distinct_singular_values", "make_symmetric_matrices", "make_symmetric_pd_matrices", "random_hermitian_matrix",
    "random_hermitian_pd_matrix", "random_hermitian_psd_matrix", "random_lowrank_matrix", "random_matrix", "random_square_matrix_of_rank",
    "random_symmetric_matrix", "random_symmetric_pd_matrix", "random_symmetric_psd_matrix", "random_well_conditioned_matrix",
]  # fmt: skip

_NUDGE = 1e-5  # on the diagonal, so that a product of a matrix with itself is positive definite


def _square(size: int, batches: Any, dtype: Any, device: Any) -> Any:
    return torch.randn(*batches, size, size, dtype=dtype, device=device)


def random_symmetric_matrix(l: int, *batches: int, dtype: Any = torch.float64, device: Any = "cpu") -> Any:
    """A equals its transpose."""
    a = _square(l, batches, dtype, device)
    return (a + a.mT) / 2


def random_hermitian_matrix(l: int, *batches: int, dtype: Any = torch.float64, device: Any = "cpu") -> Any:
    """A equals its conjugate transpose."""
    a = _square(l, batches, dtype, device)
    return (a + a.mH) / 2


def random_symmetric_psd_matrix(l: int, *batches: int, dtype: Any = torch.float64, device: Any = "cpu") -> Any:
    """Symmetric, no eigenvalue below zero."""
    a = _square(l, batches, dtype, device)
    return a @ a.mT


def random_hermitian_psd_matrix(
    matrix_size: int, *batch_dims: int, dtype: Any = torch.float64, device: Any = "cpu"
) -> Any:
    """Hermitian, no eigenvalue below zero."""
    a = _square(matrix_size, batch_dims, dtype, device)
    return a @ a.mH


def random_symmetric_pd_matrix(
    matrix_size: int, *batch_dims: int, dtype: Any = torch.float64, device: Any = "cpu"
) -> Any:
    """Symmetric, all eigenvalues above zero."""
    unit = torch.eye(matrix_size, dtype=dtype, device=device)
    return random_symmetric_psd_matrix(matrix_size, *batch_dims, dtype=dtype, device=device) + _NUDGE * unit


def random_hermitian_pd_matrix(matrix_size: int, *batch_dims: int, dtype: Any, device: Any) -> Any:
    """Hermitian, all eigenvalues above zero."""
    return random_hermitian_psd_matrix(matrix_size, *batch_dims, dtype=dtype, device=device) + torch.eye(
        matrix_size, dtype=dtype, device=device
    )


def make_symmetric_matrices(*shape: int, device: Any, dtype: Any) -> Any:
    """Symmetric, with elements of `make_tensor`."""
    if shape[-1] != shape[-2]:
        raise AssertionError(f"expected square matrix, got shape[-1]={shape[-1]} != shape[-2]={shape[-2]}")
    a = make_tensor(shape, device=device, dtype=dtype)
    return (a + a.mT) / 2


def make_symmetric_pd_matrices(*shape: int, device: Any, dtype: Any) -> Any:
    """Symmetric, all eigenvalues above zero."""
    if shape[-1] != shape[-2]:
        raise AssertionError(f"expected square matrix, got shape[-1]={shape[-1]} != shape[-2]={shape[-2]}")
    a = make_tensor(shape, device=device, dtype=dtype)
    return a @ a.mT + _NUDGE * torch.eye(shape[-1], device=device, dtype=dtype)


def _with_singular_values(like: Any, values: Any) -> Any:
    u, _, vh = torch.linalg.svd(like, full_matrices=False)
    return (u * values.to(u.dtype).unsqueeze(-2)) @ vh


def make_fullrank_matrices_with_distinct_singular_values(
    *shape: int, device: Any, dtype: Any, requires_grad: bool = False
) -> Any:
    """Singular values around one, no two alike."""
    with torch.no_grad():
        count = torch.arange(2, min(shape[-2:]) + 2, dtype=torch.float64, device=device)
        sign = 1 - 2 * ((count.long() - 2) % 2)
        made = _with_singular_values(make_tensor(shape, device=device, dtype=dtype), 1 + sign / count)
    return made.requires_grad_(requires_grad)


def random_well_conditioned_matrix(
    *shape: int, dtype: Any, device: Any, mean: float = 1.0, sigma: float = 0.001
) -> Any:
    """Singular values from a normal distribution: the smaller `sigma`, the better the condition."""
    values = torch.randn(*shape[:-2], min(shape[-2:]), dtype=torch.float64, device=device) * sigma + mean
    return _with_singular_values(torch.rand(shape, dtype=dtype, device=device), values.sort(-1, descending=True).values)


def random_matrix(
    rows: int,
    columns: int,
    *batch_dims: int,
    dtype: Any = torch.float64,
    device: Any = "cpu",
    silent: bool = False,
    singular: bool = False,
) -> Any:
    """Singular values spread up to 1; `singular` makes the last one zero (and the first, from three on)."""
    a = torch.randn(*batch_dims, rows, columns, dtype=dtype, device=device)
    if a.numel() == 0:
        return a
    k = min(rows, columns)
    values = torch.linspace(1 / (k + 1), 1, k, dtype=torch.float64, device=device)
    if singular:
        values[k - 1] = 0
        values[0] = 0 if k > 2 else values[0]
    return _with_singular_values(a, values)


def random_lowrank_matrix(
    rank: int, rows: int, columns: int, *batch_dims: int, dtype: Any = torch.float64, device: Any = "cpu"
) -> Any:
    """A product of two random matrices, `rank` between them."""
    left = random_matrix(rows, rank, *batch_dims, dtype=dtype, device=device)
    return left @ random_matrix(rank, columns, *batch_dims, dtype=dtype, device=device)


def random_square_matrix_of_rank(l: int, rank: int, dtype: Any = torch.float64, device: Any = "cpu") -> Any:
    """Singular values beyond the first `rank` are zero."""
    if rank > l:
        raise AssertionError(f"rank must be <= l, got rank={rank}, l={l}")
    a = torch.randn(l, l, dtype=dtype, device=device)
    return _with_singular_values(a, torch.linalg.svdvals(a) * (torch.arange(l, device=device) < rank))
