"""Linear algebra as users see it: PyTorch's errors, strides and shapes on meta, `out=`, gradients of first and second order."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import scipy.special

import rushlight as torch
from rushlight import linalg
from rushlight.autograd import gradcheck, gradgradcheck

RNG = np.random.default_rng(5)


def tensor(*shape: int, complex: bool = False) -> Any:
    x = RNG.standard_normal(shape)
    return torch.from_numpy(x + 1j * RNG.standard_normal(shape) if complex else x)


def positive(*shape: int, complex: bool = False) -> Any:
    x = tensor(*shape, complex=complex)
    return x @ x.mH + 2 * torch.eye(shape[-1], dtype=x.dtype)


A, S, B = tensor(2, 3, 3), positive(2, 3, 3), tensor(2, 3, 5)
LU = linalg.lu_factor(A)
TALL, WIDE = tensor(2, 4, 3), tensor(2, 3, 4)
COLUMNS, ROWS = (9, 1, 3), (9, 3, 1)

# ***** shapes and strides: PyTorch 2.13's *****

LAYOUTS: list[tuple[str, Callable[..., Any], tuple[Any, ...], list[Any]]] = [
    ("cholesky", linalg.cholesky, (S,), [COLUMNS]),
    ("cholesky_ex", linalg.cholesky_ex, (S,), [COLUMNS, (1,)]),
    ("cholesky_solve", torch.cholesky_solve, (B, S), [(15, 1, 3)]),
    ("cholesky_inverse", torch.cholesky_inverse, (S,), [COLUMNS]),
    ("inv", linalg.inv, (A,), [COLUMNS]),
    ("solve", linalg.solve, (A, B), [(15, 1, 3)]),
    ("solve vectors", linalg.solve, (A, B[..., 0]), [(1, 2)]),
    ("solve right", lambda a, b: linalg.solve(a, b.mT, left=False), (A, B), [(15, 3, 1)]),
    ("solve_triangular", lambda a, b: linalg.solve_triangular(a, b.mT, upper=True, left=False), (A, B), [(15, 1, 5)]),
    ("triangular_solve", torch.triangular_solve, (B, A), [(15, 1, 3), COLUMNS]),
    ("eigh", linalg.eigh, (S,), [(3, 1), COLUMNS]),
    ("eig", linalg.eig, (A,), [(3, 1), COLUMNS]),
    ("lu_factor", linalg.lu_factor, (TALL,), [(12, 1, 4), (3, 1)]),
    ("lu", linalg.lu, (TALL,), [(16, 4, 1), (12, 3, 1), ROWS]),
    ("lu_solve", linalg.lu_solve, (*LU, B), [(15, 1, 3)]),
    ("lu_solve right", lambda lu, p, b: linalg.lu_solve(lu, p, b.mT, left=False), (*LU, B), [(15, 3, 1)]),
    ("ldl_factor_ex", linalg.ldl_factor_ex, (S,), [COLUMNS, (3, 1), (1,)]),
    ("qr", linalg.qr, (TALL,), [(12, 1, 4), COLUMNS]),
    ("qr complete", lambda a: linalg.qr(a, "complete"), (TALL,), [(16, 1, 4), (12, 1, 4)]),
    ("qr r", lambda a: linalg.qr(a, "r"), (WIDE,), [(1,), (12, 1, 3)]),
    ("geqrf", torch.geqrf, (TALL,), [(12, 1, 4), (3, 1)]),
    ("orgqr", torch.orgqr, (TALL, tensor(2, 3)), [(12, 1, 4)]),
    ("ormqr", lambda a, t, c: torch.ormqr(a, t, c, left=False), (TALL, tensor(2, 3), tensor(2, 5, 4)), [(20, 1, 5)]),
    ("svd", linalg.svd, (TALL,), [(16, 1, 4), (3, 1), COLUMNS]),
    ("torch.svd", torch.svd, (WIDE,), [COLUMNS, (3, 1), (12, 3, 1)]),
    ("pinv", linalg.pinv, (TALL,), [(12, 4, 1)]),
    ("matrix_rank", linalg.matrix_rank, (TALL,), [(1,)]),
    ("det", linalg.det, (A,), [(1,)]),
    ("slogdet", linalg.slogdet, (A,), [(1,), (1,)]),
]  # fmt: skip


def listed(found: Any) -> list[Any]:
    return list(found) if isinstance(found, (tuple, list)) else [found]


@pytest.mark.parametrize(("name", "function", "inputs", "strides"), LAYOUTS, ids=[row[0] for row in LAYOUTS])
def test_strides_here_and_on_meta(name: str, function: Any, inputs: Any, strides: Any) -> None:
    found = listed(function(*inputs))
    assert [t.stride() for t in found] == strides
    meta = listed(function(*(x.to("meta") for x in inputs)))
    assert all(m.is_meta for m in meta)
    assert [(m.shape, m.dtype, m.stride()) for m in meta] == [(t.shape, t.dtype, t.stride()) for t in found]


# ***** errors *****

SINGULAR = torch.tensor([[1.0, 2.0], [2.0, 4.0]])
PAIR = torch.stack([torch.eye(2), SINGULAR])
ERRORS: list[tuple[Callable[[], Any], type, str]] = [
    (lambda: linalg.inv(SINGULAR), linalg.LinAlgError,
     "linalg.inv: The diagonal element 2 is zero, the inversion could not be completed because the input matrix is singular."),
    (lambda: linalg.inv(PAIR), linalg.LinAlgError,
     "linalg.inv: (Batch element 1): The diagonal element 2 is zero, the inversion could not be completed because the input matrix is singular."),
    (lambda: linalg.inv_ex(PAIR, check_errors=True), linalg.LinAlgError,
     ("linalg.inv_ex: (Batch element 1): The diagonal element 2 is zero, the "
      "inversion could not be completed because the input matrix is singular.")),
    (lambda: linalg.solve(SINGULAR, PAIR), linalg.LinAlgError, "torch.linalg.solve: The solver failed because the input matrix is singular."),
    (lambda: linalg.cholesky(-PAIR), linalg.LinAlgError,
     ("linalg.cholesky: (Batch element 0): The factorization could not be completed because the "
      "input is not positive-definite (the leading minor of order 1 is not positive-definite).")),
    (lambda: torch.cholesky(SINGULAR - torch.eye(2)), linalg.LinAlgError,
     ("cholesky: The factorization could not be completed because the input is not "
      "positive-definite (the leading minor of order 1 is not positive-definite).")),
    (lambda: linalg.lu_factor(SINGULAR), RuntimeError,
     ("torch.linalg.lu_factor: U[2,2] is zero and using it on lu_solve would result in a division by "
      "zero. If you still want to perform the factorization, consider calling linalg.lu(A, pivot) or linalg.lu_factor_ex(A, pivot)")),
    (lambda: linalg.svd(torch.full((2, 2), float("nan"))), linalg.LinAlgError,
     "linalg.svd: The algorithm failed to converge because the input matrix contained non-finite values."),
    (lambda: linalg.eig(torch.full((2, 2), float("inf"))), RuntimeError, "torch.linalg.eig: input tensor should not contain infs or NaNs."),
    (lambda: linalg.det(torch.ones(2, 3)), RuntimeError, "linalg.det: A must be batches of square matrices, but they are 2 by 3 matrices"),
    (lambda: linalg.inv(torch.ones(2, 2, dtype=torch.float16)), RuntimeError, "linalg.inv: Low precision dtypes not supported. Got Half"),
    (lambda: linalg.qr(torch.ones(2, 2, dtype=torch.int64)), RuntimeError, "linalg.qr: Expected a floating point or complex tensor as input. Got Long"),
    (lambda: linalg.lu(torch.ones(2, 2, dtype=torch.int64)), NotImplementedError, "\"lu_cpu\" not implemented for 'Long'"),
    (lambda: linalg.solve(torch.eye(2), torch.ones(3, 2)), RuntimeError,
     "linalg.solve: Incompatible shapes of A and B for the equation AX = B (2x2 and 3x2)"),
    (lambda: linalg.eigh(SINGULAR, "x"), RuntimeError, "Expected UPLO argument to be 'L' or 'U', but got x"),
    (lambda: linalg.lstsq(SINGULAR, SINGULAR, driver="x"), RuntimeError,
     "torch.linalg.lstsq: parameter `driver` should be one of (gels, gelsy, gelsd, gelss)"),
    (lambda: torch.ormqr(torch.ones(()), torch.ones(()), SINGULAR), RuntimeError, "torch.ormqr: input must have at least 2 dimensions."),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "text"), ERRORS, ids=range(len(ERRORS)))
def test_errors_are_pytorchs(call: Any, error: type, text: str) -> None:
    with pytest.raises(error) as caught:
        call()
    assert str(caught.value) == text


def test_info_instead_of_errors() -> None:
    np.testing.assert_array_equal(linalg.inv_ex(PAIR).info.numpy(), [0, 2])
    np.testing.assert_array_equal(linalg.solve_ex(PAIR, PAIR).info.numpy(), [0, 2])
    np.testing.assert_array_equal(linalg.lu_factor_ex(PAIR).info.numpy(), [0, 2])
    np.testing.assert_array_equal(linalg.cholesky_ex(PAIR).info.numpy(), [0, 2])
    np.testing.assert_array_equal(linalg.ldl_factor_ex(torch.zeros(2, 1, 1)).info.numpy(), [1, 1])


def test_one_triangle_is_read() -> None:
    h = positive(3, 3)
    spoiled = torch.tril(h) + torch.triu(torch.full((3, 3), 9.0, dtype=h.dtype), 1)
    for function in (linalg.cholesky, lambda x: linalg.eigh(x)[0], linalg.eigvalsh):
        np.testing.assert_allclose(function(spoiled).numpy(), function(h).numpy(), rtol=1e-12)
        np.testing.assert_allclose(_upper(function, spoiled.mT).numpy(), _upper(function, h).numpy(), rtol=1e-12)


def _upper(function: Any, x: Any) -> Any:
    if function is linalg.cholesky:
        return linalg.cholesky(x, upper=True)
    return linalg.eigvalsh(x, "U")


def test_out() -> None:
    inverse, info = torch.empty(0, dtype=torch.float64), torch.empty(0, dtype=torch.int32)
    found = linalg.inv_ex(A, out=(inverse, info))
    assert found.inverse is inverse and found.info is info
    np.testing.assert_allclose(inverse.numpy(), np.linalg.inv(A.numpy()))
    target = torch.empty(2, 3, dtype=torch.float64)
    assert linalg.svdvals(A, out=target) is target
    with pytest.raises(RuntimeError, match="arguments don't support automatic differentiation"):
        linalg.inv(leaf(A), out=torch.empty(0, dtype=torch.float64))
    with pytest.raises(RuntimeError, match="Expected out tensor to have dtype"):
        linalg.det(A, out=torch.empty(2, dtype=torch.int64))


# ***** values that need no tolerance of their own *****


def test_norms_of_matrices_without_rows_or_columns() -> None:
    for shape, orders in (((0, 3), (math.inf, 2, 1)), ((3, 0), (1, 2, math.inf)), ((2, 3, 0), (1, 2))):
        for order in orders:
            found = linalg.matrix_norm(torch.zeros(*shape), ord=order, keepdim=True)
            assert found.shape == (*shape[:-2], 1, 1) and not found.any()
    with pytest.raises(IndexError, match="non-zero size"):
        linalg.matrix_norm(torch.zeros(0, 3), ord=-2)


def test_einsum_without_sums_is_a_view() -> None:
    x = torch.arange(9.0).reshape(3, 3).clone()
    torch.einsum("ii->i", x).fill_(-1.0)
    np.testing.assert_array_equal(x.numpy(), [[-1, 1, 2], [3, -1, 5], [6, 7, -1]])
    turned = torch.einsum("ij->ji", x)
    assert turned.stride() == (1, 3) and turned.data_ptr() == x.data_ptr()
    part = torch.einsum("...ii->...i", torch.zeros(2, 3, 3))
    assert part.shape == (2, 3) and part.stride() == (9, 4)
    leaf_ = x.clone().requires_grad_()
    torch.einsum("ij->ji", leaf_)[0].sum().backward()
    np.testing.assert_array_equal(leaf_.grad.numpy(), [[1, 0, 0]] * 3)


def test_older_functions_against_scipy() -> None:
    a, b = A.numpy()[0], B.numpy()[0]
    packed, tau = torch.geqrf(TALL[0])
    q, r = scipy.linalg.qr(TALL[0].numpy())
    np.testing.assert_allclose(torch.triu(packed[:3]).numpy(), r[:3], atol=1e-12)
    np.testing.assert_allclose(torch.orgqr(packed, tau).numpy(), q[:, :3], atol=1e-12)
    c = tensor(4, 2)
    np.testing.assert_allclose(torch.ormqr(packed, tau, c).numpy(), q @ c.numpy(), atol=1e-12)
    np.testing.assert_allclose(
        torch.ormqr(packed, tau, c.mT, left=False, transpose=True).numpy(), c.numpy().T @ q.T, atol=1e-12
    )
    lu, pivots = torch.lu(A[0])
    expected, places = scipy.linalg.lu_factor(a)
    np.testing.assert_allclose(lu.numpy(), expected)
    np.testing.assert_array_equal(pivots.numpy(), places + 1)
    np.testing.assert_allclose(torch.lu_solve(B[0], lu, pivots).numpy(), np.linalg.solve(a, b))
    np.testing.assert_allclose(linalg.lu_solve(lu, pivots, B[0], adjoint=True).numpy(), np.linalg.solve(a.T, b))
    np.testing.assert_allclose(linalg.lu_solve(lu, pivots, B[0].mT, left=False).numpy(), b.T @ np.linalg.inv(a))
    factors = linalg.ldl_factor(S)
    np.testing.assert_allclose((S @ linalg.ldl_solve(*factors, B)).numpy(), B.numpy(), atol=1e-12)
    found = linalg.lstsq(TALL[0], c, driver="gelsd")
    solution, residuals, rank, values = np.linalg.lstsq(TALL[0].numpy(), c.numpy(), rcond=None)
    for mine, theirs in zip(found, (solution, residuals, rank, values), strict=True):
        np.testing.assert_allclose(mine.numpy(), theirs, rtol=1e-9)
    np.testing.assert_allclose(linalg.matrix_exp(A).numpy()[0], scipy.linalg.expm(a), rtol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex128])
@pytest.mark.parametrize("driver", ["gelsy", "gels", "gelsd"])
@pytest.mark.parametrize(("lead", "m", "n", "k"), [((), 7, 3, 2), ((3,), 4, 4, 1), ((2, 2), 9, 5, 3), ((2,), 3, 6, 2)])
def test_least_squares(dtype: torch.dtype, driver: str, lead: tuple[int, ...], m: int, n: int, k: int) -> None:
    """Tall, square and wide systems of a batch, and those whose columns depend on one another, beside NumPy's."""
    exact = 1e-3 if dtype is torch.float32 else 1e-8
    for deficient in (False, True) if driver != "gels" else (False,):
        a, b = torch.randn(*lead, m, n, dtype=dtype), torch.randn(*lead, m, k, dtype=dtype)
        if deficient:
            a[..., -1] = a[..., 0] * 2
        found = linalg.lstsq(a, b, driver=driver, rcond=1e-4)
        rows = [
            np.linalg.lstsq(x, y, 1e-4)
            for x, y in zip(a.reshape(-1, m, n).numpy(), b.reshape(-1, m, k).numpy(), strict=True)
        ]
        np.testing.assert_allclose(
            found.solution.reshape(-1, n, k).numpy(), np.stack([row[0] for row in rows]), rtol=exact, atol=exact
        )
        if driver != "gels":
            assert found.rank.reshape(-1).tolist() == [row[2] for row in rows]
    right = torch.randn(m, dtype=dtype)
    alone = linalg.lstsq(a.reshape(-1, m, n)[0], right, driver=driver, rcond=1e-4).solution
    np.testing.assert_allclose(
        alone.numpy(), np.linalg.lstsq(a.reshape(-1, m, n)[0].numpy(), right.numpy(), 1e-4)[0], rtol=exact, atol=exact
    )


def test_empty_matrices() -> None:
    none = torch.zeros(2, 0, 0)
    assert linalg.inv(none).shape == linalg.cholesky(none).shape == (2, 0, 0)
    np.testing.assert_array_equal(linalg.det(none).numpy(), [1, 1])
    np.testing.assert_array_equal(linalg.slogdet(none).logabsdet.numpy(), [0, 0])
    assert linalg.eigh(none).eigenvalues.shape == (2, 0) and linalg.eig(none).eigenvectors.shape == (2, 0, 0)
    u, s, vh = linalg.svd(torch.zeros(0, 3))
    assert u.shape == (0, 0) and s.shape == (0,) and bool((vh == torch.eye(3)).all())
    q, r = linalg.qr(torch.zeros(3, 0), "complete")
    assert bool((q == torch.eye(3)).all()) and r.shape == (3, 0)
    assert (
        linalg.pinv(torch.zeros(0, 3)).shape == (3, 0) and linalg.matrix_rank(torch.zeros(4, 0, 3)).tolist() == [0] * 4
    )
    assert linalg.solve(none, torch.zeros(2, 0, 3)).shape == (2, 0, 3)
    assert linalg.lstsq(torch.zeros(0, 3), torch.zeros(0, 2)).solution.tolist() == [[0.0, 0.0]] * 3


# ***** gradients *****


def leaf(x: Any) -> Any:
    return x.detach().clone().requires_grad_()


def symmetric(x: Any) -> Any:
    return x @ x.mH + 2 * torch.eye(x.shape[-1], dtype=x.dtype)


SMOOTH: list[tuple[str, Callable[..., Any], tuple[Any, ...]]] = [
    ("cholesky", lambda x: linalg.cholesky(symmetric(x)), (A[0],)),
    ("cholesky upper complex", lambda x: linalg.cholesky(symmetric(x), upper=True), (tensor(2, 2, complex=True),)),
    ("cholesky_solve", lambda b, x: torch.cholesky_solve(b, linalg.cholesky(symmetric(x))), (B[0], A[0])),
    ("cholesky_inverse", lambda x: torch.cholesky_inverse(linalg.cholesky(symmetric(x), upper=True), upper=True), (A[0],)),
    ("solve complex", lambda a, b: linalg.solve(a, b, left=False), (tensor(2, 2, complex=True), tensor(3, 2, complex=True))),
    ("solve broadcast", linalg.solve, (A[0], B)),
    ("solve vectors", linalg.solve, (A, B[..., 0])),
    ("lu", lambda x: linalg.lu(x)[1:], (TALL[0],)),
    ("lu_solve", lambda x, b: linalg.lu_solve(*linalg.lu_factor(x), b, adjoint=True), (A[0], B[0])),
    ("det complex", linalg.det, (tensor(2, 2, complex=True),)),
    ("slogdet", lambda x: linalg.slogdet(x)[1], (A,)),
    ("qr", lambda x: linalg.qr(x), (TALL[0],)),
    ("qr wide complex", lambda x: linalg.qr(x), (tensor(2, 3, complex=True),)),
    ("orgqr", torch.orgqr, (TALL[0], tensor(3))),
    ("ormqr", lambda a, t, c: torch.ormqr(a, t, c, left=False, transpose=True), (TALL[0], tensor(3), tensor(2, 4))),
    ("svdvals", linalg.svdvals, (TALL[0],)),
    ("svd", lambda x: linalg.svd(x, False), (TALL[0],)),
    ("eigvalsh complex", lambda x: linalg.eigvalsh(symmetric(x)), (tensor(3, 3, complex=True),)),
    ("eigh", lambda x: linalg.eigh(symmetric(x), "U"), (A[0],)),
    ("eigvals", lambda x: linalg.eigvals(x), (tensor(3, 3, complex=True),)),
    ("pinv", linalg.pinv, (WIDE[0],)),
    ("lstsq", lambda a, b: linalg.lstsq(a, b)[0], (TALL[0], tensor(4, 2))),
]  # fmt: skip


@pytest.mark.parametrize(("name", "function", "inputs"), SMOOTH, ids=[row[0] for row in SMOOTH])
def test_first_and_second_gradients(name: str, function: Any, inputs: Any) -> None:
    leaves = tuple(leaf(x) for x in inputs)
    assert gradcheck(function, leaves)
    assert gradgradcheck(function, leaves)


@pytest.mark.parametrize("rank", [2, 1, 0])
def test_determinants_of_singular_matrices(rank: int) -> None:
    """The gradient is the matrix of cofactors, its gradient made of the minors of two rows less: polynomials, whatever the rank."""
    x = leaf(tensor(3, rank) @ tensor(rank, 3) if rank else torch.zeros(3, 3, dtype=torch.float64))
    assert gradcheck(linalg.det, (x,))
    assert gradgradcheck(linalg.det, (x,), atol=1e-4)


def test_gradients_of_values_that_are_equal() -> None:
    """Singular values of the identity are all 1: the vectors have no derivative, the values' sum has."""
    x = leaf(torch.eye(3, dtype=torch.float64))
    linalg.svd(x).S.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), np.eye(3), atol=1e-12)
    y = leaf(torch.eye(3, dtype=torch.float64))
    linalg.eigh(y).eigenvalues.sum().backward()
    np.testing.assert_allclose(y.grad.numpy(), np.eye(3), atol=1e-12)


def test_what_has_no_derivative_says_so() -> None:
    for function in (
        lambda x: torch.geqrf(x)[0],
        lambda x: linalg.ldl_factor(symmetric(x))[0],
        lambda x: linalg.qr(x, "r")[1],
    ):
        with pytest.raises(RuntimeError, match="derivative"):
            function(leaf(A[0])).sum().backward()
    with pytest.raises(RuntimeError, match="not differentiable when mode='complete' and nrows > ncols"):
        linalg.qr(leaf(TALL[0]), "complete")[0].sum().backward()


# ***** lobpcg *****


def test_lobpcg() -> None:
    a = tensor(24, 24)
    a = a @ a.mT + torch.eye(24, dtype=a.dtype)
    weights = torch.diag(torch.linspace(1, 2, 24, dtype=a.dtype))
    every = np.linalg.eigvalsh(a.numpy())
    values, vectors = torch.lobpcg(a, k=3, tol=1e-9)
    np.testing.assert_allclose(values.numpy(), every[:-4:-1], rtol=1e-9)
    np.testing.assert_allclose((a @ vectors).numpy(), (vectors * values).numpy(), atol=1e-5)
    np.testing.assert_allclose(
        torch.lobpcg(torch.stack([a, 2 * a]), k=1, largest=False)[0].numpy(), [[every[0]], [2 * every[0]]], rtol=1e-6
    )
    np.testing.assert_allclose(
        torch.lobpcg(a, k=2, B=weights)[0].numpy(), scipy.linalg.eigh(a.numpy(), weights.numpy())[0][:-3:-1], rtol=1e-6
    )
    with pytest.raises(ValueError, match="LOBPCG algorithm is not applicable"):
        torch.lobpcg(a[:5, :5], k=2)


def test_gradient_of_lobpcg_is_that_of_eigh() -> None:
    a = tensor(12, 12)
    a = a @ a.mT
    weights = tensor(12, 2)
    grads = []
    for pairs in (
        lambda x: torch.lobpcg(x, k=2, tol=1e-12),
        lambda x: tuple(v.flip(-1)[..., :2] for v in linalg.eigh(x)),
    ):
        x = leaf(a)
        values, vectors = pairs(x)
        (values.sum() + (vectors**2 * weights).sum()).backward()
        grads.append(x.grad.numpy())
    np.testing.assert_allclose(grads[0], grads[1], atol=1e-7)


@pytest.mark.parametrize(("rows", "others"), [(3, 4), (30, 4), (3, 40), (40, 40)])
@pytest.mark.parametrize("p", [0.0, 0.5, 1.0, 2.0, 3.0, float("inf")])
def test_distances_of_all_pairs(rows, others, p):
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 1, rows, 5)), rng.standard_normal((3, others, 5))
    gap = np.abs(a[..., :, None, :] - b[..., None, :, :])
    expected = gap.max(-1) if p == float("inf") else (gap != 0).sum(-1) if p == 0 else (gap**p).sum(-1) ** (1 / p)
    modes = ["use_mm_for_euclid_dist_if_necessary", "use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist"]
    for mode in modes if p == 2 else modes[:1]:
        np.testing.assert_allclose(
            torch.cdist(torch.tensor(a), torch.tensor(b), p, mode).numpy(), expected, rtol=1e-9, atol=1e-7
        )
    if p >= 1 and rows * others < 1000:
        x, y = (torch.tensor(v, requires_grad=True) for v in (a[0, 0], b[0]))
        assert torch.autograd.gradcheck(lambda x, y: torch.cdist(x, y, p), (x, y))


def test_distances_of_nothing_and_of_the_same():
    assert torch.cdist(torch.zeros(3, 0), torch.zeros(2, 0), float("inf")).tolist() == [[0.0, 0.0]] * 3
    assert torch.cdist(torch.zeros(0, 4), torch.zeros(2, 4)).shape == (0, 2)
    x = torch.randn(40, 3, dtype=torch.float64, requires_grad=True)
    near = torch.cdist(x, x)
    near.sum().backward()
    assert near.diagonal().max() < 1e-6 and x.grad.isfinite().all()
    with torch.no_grad():
        x[2, 1] = float("nan")
    assert torch.cdist(x, x)[2].isnan().all()
    with pytest.raises(ValueError, match="compute_mode"):
        torch.cdist(x, x, compute_mode="other")


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, math.inf])
@pytest.mark.parametrize("rows", [2, 3, 17, 64])
def test_distances_of_pairs(rows, p):
    x = np.random.default_rng(rows).standard_normal((rows, 5))
    expected = [np.linalg.norm(x[i] - x[j], p) for i in range(rows) for j in range(i + 1, rows)]
    np.testing.assert_allclose(torch.pdist(torch.tensor(x), p).numpy(), expected, rtol=1e-9)
    if 1 <= p < math.inf and rows < 5:
        assert torch.autograd.gradcheck(lambda x: torch.pdist(x, p), torch.tensor(x, requires_grad=True))


def test_distances_of_equal_rows_and_of_few():
    x = torch.ones(3, 4, dtype=torch.float64, requires_grad=True)
    torch.pdist(x).sum().backward()
    assert x.grad.tolist() == [[0.0] * 4] * 3
    assert torch.pdist(torch.zeros(1, 3)).shape == (0,) == torch.pdist(torch.zeros(0, 3)).shape
    assert torch.pdist(torch.zeros(3, 0), math.inf).tolist() == [0.0] * 3
    for wrong in (torch.ones(3, 3, dtype=torch.int64), torch.ones(3, 3, dtype=torch.complex64)):
        with pytest.raises(RuntimeError, match="floating-point"):
            torch.pdist(wrong)


def test_places_of_many_pairs_are_exact():
    line = torch.arange(3000, dtype=torch.float32).unsqueeze(1)
    expected = np.concatenate([np.arange(1, 3000 - i) for i in range(3000)])
    np.testing.assert_array_equal(torch.pdist(line).numpy(), expected)


def test_addmm_with_an_activation() -> None:
    for _ in range(2):
        x, a, b = tensor(4), tensor(3, 5), tensor(5, 4)
        wanted = 2 * x.numpy() + 0.5 * (a.numpy() @ b.numpy())
        np.testing.assert_allclose(
            torch._addmm_activation(x, a, b, beta=2, alpha=0.5).numpy(), np.maximum(wanted, 0), rtol=1e-12
        )
        gelu = wanted * scipy.special.ndtr(wanted)
        np.testing.assert_allclose(
            x._addmm_activation(a, b, beta=2, alpha=0.5, use_gelu=True).numpy(), gelu, rtol=1e-10, atol=1e-14
        )
        out = torch.empty(3, 4, dtype=torch.float64)
        assert torch._addmm_activation(x, a, b, beta=2, alpha=0.5, out=out) is out
        np.testing.assert_allclose(out.numpy(), np.maximum(wanted, 0), rtol=1e-12)


def test_a_bound_that_is_nan_leaves_no_singular_value() -> None:
    matrix = torch.tensor([[1.0, 2.0], [3.0, 5.0]])
    assert torch.pinverse(matrix, math.nan).tolist() == [[0, 0], [0, 0]]
    assert torch.linalg.matrix_rank(matrix, rtol=math.nan).item() == 0
