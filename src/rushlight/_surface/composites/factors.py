"""Linear algebra that needs a factorisation: LAPACK through NumPy, gradients in tensor operations."""

from __future__ import annotations

import math
from typing import Any

from rushlight._base.lazy import numpy as np
from rushlight._engine.hosted import hosted
from rushlight._engine.results import OUT, result_type_of
from rushlight._engine.tensor import Tensor
from rushlight._surface.composites.measures import into
from rushlight._surface.registry import SPACES, composite, function_of
from rushlight._types.dtype import INT32, INT64

__all__ = ["LinAlgError"]

T = SPACES["torch"]
LINALG = ("linalg",)


class LinAlgError(RuntimeError):
    """A matrix is singular, not positive definite, or a method did not converge."""

    __module__ = "torch.linalg"


SPACES["linalg"]["LinAlgError"] = LinAlgError


def _h(x: Any) -> Any:
    """The conjugate transpose of the last two dims."""
    turned = x.transpose(-2, -1)
    return T["conj"](turned) if x.is_complex() else turned


def _matrix(name: str, A: Any, square: bool = True) -> None:
    if not isinstance(A, Tensor):
        raise TypeError(f"{name}(): argument 'A' (position 1) must be Tensor, not {type(A).__name__}")
    if A._spec.ndim < 2:
        raise RuntimeError(f"linalg.{name}: The input tensor A must have at least 2 dimensions.")
    if square and A._spec.shape[-1] != A._spec.shape[-2]:
        raise RuntimeError(
            f"linalg.{name}: A must be batches of square matrices, but they are {A._spec.shape[-2]} by {A._spec.shape[-1]} matrices"
        )
    if not (A._spec.dtype.is_floating_point or A._spec.dtype.is_complex) or A._spec.dtype.itemsize < 4:
        raise RuntimeError(
            f"linalg.{name}: Expected a floating point or complex tensor as input. Got {A._spec.dtype.name}"
        )


def _run(name: str, function: Any, why: str) -> Any:
    """A NumPy function whose LinAlgError becomes PyTorch's."""

    def call(*arrays: Any) -> Any:
        try:
            return function(*arrays)
        except np.linalg.LinAlgError as error:
            raise LinAlgError(f"linalg.{name}: {why or error}") from None

    return call


def _results(name: str, fields: tuple[str, ...], values: Any, out: Any) -> Any:
    if out is None:
        return result_type_of(name, fields)(values)
    return result_type_of(name + OUT, fields)([into(o, v) for o, v in zip(out, values, strict=True)])


def _eye(x: Any, size: int) -> Any:
    return T["eye"](size, dtype=x.dtype)


# ***** inverses and systems *****

_SINGULAR = "The diagonal element 1 is zero, the inversion could not be completed because the input matrix is singular."


def _inverse_gradient(grads: Any, inputs: Any, outputs: Any) -> Any:
    inverse = _h(outputs[0])
    return [-(inverse @ grads[0] @ inverse)]


@composite("inv", spaces=LINALG)
def inv(A: Tensor, *, out: Any = None) -> Tensor:
    """The inverses of square matrices; LinAlgError for singular ones."""
    _matrix("inv", A)
    return into(
        out,
        hosted("LinalgInvExBackward0", _run("inv", lambda a: np.linalg.inv(a), _SINGULAR), [A], _inverse_gradient)[0],
    )  # type: ignore[no-any-return]


@composite("inverse", method=True)
def inverse(input: Tensor, *, out: Any = None) -> Tensor:
    """`linalg.inv`."""
    return inv(input, out=out)  # type: ignore[no-any-return]


def _no_faults(A: Tensor) -> Any:
    return T["zeros"](A._spec.shape[:-2], dtype=INT32)


@composite("inv_ex", spaces=LINALG)
def inv_ex(A: Tensor, *, check_errors: bool = False, out: Any = None) -> Any:
    """(inverse, info): info is not 0 where a matrix is singular."""
    return _results("linalg_inv_ex", ("inverse", "info"), (inv(A), _no_faults(A)), out)


def _solve_arrays(a: Any, b: Any) -> Any:
    return np.linalg.solve(a, b)


def _solve_gradient(grads: Any, inputs: Any, outputs: Any) -> Any:
    to_b = _solved(_h(inputs[0]), grads[0])
    return [-(to_b @ _h(outputs[0])), to_b]


def _solved(A: Any, B: Any) -> Any:
    """X with A X = B for matrices of one batch shape."""
    return hosted(
        "LinalgSolveExBackward0",
        _run("solve", _solve_arrays, _SINGULAR.replace("inversion", "solve")),
        [A, B],
        _solve_gradient,
    )[0]


@composite("solve", spaces=LINALG)
def solve(A: Tensor, B: Tensor, *, left: bool = True, out: Any = None) -> Tensor:
    """X with A X = B, or X A = B if `left` is False; B may hold vectors."""
    _matrix("solve", A)
    if A._spec.dtype is not B._spec.dtype:
        raise RuntimeError(
            f"linalg.solve: Expected A and B to have the same dtype, but found A of type {A._spec.dtype.name} and B of type {B._spec.dtype.name} instead"
        )
    vectors = B._spec.ndim == 1 or (A._spec.ndim - 1 == B._spec.ndim and B._spec.shape == A._spec.shape[:-1])
    if vectors and not left:
        raise RuntimeError("linalg.solve: Vector broadcasting of the left hand side is not supported for left=False.")
    b = B.unsqueeze(-1) if vectors else B  # type: ignore[attr-defined]
    side = -2 if left else -1
    if b._spec.shape[side] != A._spec.shape[-1]:
        raise RuntimeError(f"linalg.solve: Incompatible shapes of A and B for the equation {'AX = B' if left else 'XA = B'} "
                           f"({A._spec.shape[-2]}x{A._spec.shape[-1]} and {b._spec.shape[-2]}x{b._spec.shape[-1]})")  # fmt: skip
    lead = T["broadcast_shapes"](A._spec.shape[:-2], b._spec.shape[:-2])
    a, b = A.expand(*lead, *A._spec.shape[-2:]), b.expand(*lead, *b._spec.shape[-2:])  # type: ignore[attr-defined]
    found = _solved(a, b) if left else _solved(a.transpose(-2, -1), b.transpose(-2, -1)).transpose(-2, -1)
    return into(out, found.squeeze(-1) if vectors else found)  # type: ignore[no-any-return]


@composite("solve_ex", spaces=LINALG)
def solve_ex(A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False, out: Any = None) -> Any:
    """(solution, info): info is not 0 where a matrix is singular."""
    return _results("linalg_solve_ex", ("result", "info"), (solve(A, B, left=left), _no_faults(A)), out)


@composite("solve_triangular", spaces=LINALG)
def solve_triangular(
    A: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False, out: Any = None
) -> Tensor:
    """X with A X = B (X A = B if `left` is False) for triangular A; what lies beyond the triangle is not read."""
    _matrix("solve_triangular", A)
    if B._spec.ndim < 2:
        raise RuntimeError("linalg.solve_triangular: The input tensor B must have at least 2 dimensions.")
    triangle = (T["triu"] if upper else T["tril"])(A, (1 if upper else -1) if unitriangular else 0)
    if unitriangular:
        triangle = triangle + _eye(A, A._spec.shape[-1])
    return into(out, solve(triangle, B, left=left))  # type: ignore[no-any-return]


@composite("triangular_solve", method=True)
def triangular_solve(
    b: Tensor, A: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False, *, out: Any = None
) -> Any:
    """(X, A) with A X = b for triangular A."""
    a = A.transpose(-2, -1) if transpose else A  # type: ignore[attr-defined]
    found = solve_triangular(a, b, upper=upper != transpose, unitriangular=unitriangular)
    return _results("triangular_solve", ("solution", "cloned_coefficient"), (found, A.clone()), out)  # type: ignore[attr-defined]


# ***** Cholesky *****


def _cholesky_gradient(grads: Any, inputs: Any, outputs: Any) -> Any:
    lower = outputs[0]
    inner = T["tril"](_h(lower) @ grads[0])
    inner = inner - T["diag_embed"](inner.diagonal(0, -2, -1)) * 0.5
    middle = _solved(_h(lower), inner)
    whole = _h(_solved(_h(lower), _h(middle)))
    return [(whole + _h(whole)) * 0.5]


_NOT_POSITIVE = "The factorization could not be completed because the input is not positive-definite (the leading minor is not positive-definite)."


@composite("cholesky", spaces=LINALG)
def linalg_cholesky(A: Tensor, *, upper: bool = False, out: Any = None) -> Tensor:
    """L with A = L L^H, lower triangular (or the upper one); LinAlgError where A is not positive definite."""
    _matrix("cholesky", A)

    def factor(a: Any) -> Any:
        lower = np.tril(a)
        diagonal = np.einsum("...ii->...i", lower)
        whole = lower + np.conj(np.swapaxes(lower, -1, -2))
        np.einsum("...ii->...i", whole)[...] -= np.conj(diagonal)
        return np.linalg.cholesky(whole)

    (found,) = hosted(
        "LinalgCholeskyExBackward0",
        _run("cholesky", factor, _NOT_POSITIVE),
        [_h(A) if upper else A],
        _cholesky_gradient,
    )
    return into(out, _h(found) if upper else found)  # type: ignore[no-any-return]


@composite("cholesky_ex", spaces=LINALG)
def cholesky_ex(A: Tensor, *, upper: bool = False, check_errors: bool = False, out: Any = None) -> Any:
    """(L, info): info is not 0 where A is not positive definite."""
    return _results("linalg_cholesky_ex", ("L", "info"), (linalg_cholesky(A, upper=upper), _no_faults(A)), out)


@composite("cholesky", method=True)
def cholesky(input: Tensor, upper: bool = False, *, out: Any = None) -> Tensor:
    """`linalg.cholesky`."""
    return linalg_cholesky(input, upper=upper, out=out)  # type: ignore[no-any-return]


@composite("cholesky_solve", method=True)
def cholesky_solve(input: Tensor, L: Tensor, upper: bool = False, *, out: Any = None) -> Tensor:
    """X with A X = input, given a Cholesky factor of A."""
    _matrix("cholesky_solve", L)
    lead = T["broadcast_shapes"](L._spec.shape[:-2], input._spec.shape[:-2])
    factor, right = (v.expand(*lead, *v._spec.shape[-2:]) for v in (L, input))  # type: ignore[attr-defined]
    first = _triangle_solved(_h(factor) if upper else factor, right, False)
    return into(out, _triangle_solved(factor if upper else _h(factor), first, True))  # type: ignore[no-any-return]


def _triangle_solved(A: Any, B: Any, upper: bool) -> Any:
    """X with A X = B where only a triangle of A is read; its gradient is not cut to the triangle, as in PyTorch."""

    def compute(a: Any, b: Any) -> Any:
        return np.linalg.solve(np.triu(a) if upper else np.tril(a), b)

    def gradient(grads: Any, inputs: Any, outputs: Any) -> Any:
        to_b = _triangle_solved(_h(inputs[0]), grads[0], not upper)
        return [-(to_b @ _h(outputs[0])), to_b]

    return hosted("CholeskySolveBackward0", _run("cholesky_solve", compute, _SINGULAR), [A, B], gradient)[0]


@composite("cholesky_inverse", method=True)
def cholesky_inverse(L: Tensor, upper: bool = False, *, out: Any = None) -> Tensor:
    """The inverse of A, given a Cholesky factor of it."""
    _matrix("cholesky_inverse", L)
    eye = _eye(L, L._spec.shape[-1]).expand(L._spec.shape)
    return into(out, cholesky_solve(eye, L, upper))  # type: ignore[no-any-return]


# ***** determinants *****


def _det_gradient(grads: Any, inputs: Any, outputs: Any) -> Any:
    """det(A) A^-H; where A is singular, its cofactors by way of singular values."""
    (A,) = inputs
    factor = (grads[0] * (T["conj"](outputs[0]) if A.is_complex() else outputs[0]))[..., None, None]
    try:
        return [factor * _h(inv(A))]
    except LinAlgError:
        return [grads[0][..., None, None] * _cofactors(A)]


def _cofactors(A: Any) -> Any:
    u, s, vh = np.linalg.svd(A.detach().numpy())
    others = np.stack([np.prod(np.delete(s, i, -1), -1) for i in range(s.shape[-1])], -1)
    sign = np.linalg.det(u) * np.linalg.det(vh)
    found = np.conj(sign)[..., None, None] * (u * others[..., None, :]) @ vh
    return T["from_numpy"](np.ascontiguousarray(found.astype(u.dtype)))


@composite("det", spaces=("linalg",))
def linalg_det(A: Tensor, *, out: Any = None) -> Tensor:
    """Determinants of square matrices."""
    _matrix("det", A)
    return into(out, hosted("LinalgDetBackward0", lambda a: np.linalg.det(a), [A], _det_gradient)[0])  # type: ignore[no-any-return]


@composite("det", method=True)
def det(input: Tensor) -> Tensor:
    """`linalg.det`."""
    return linalg_det(input)  # type: ignore[no-any-return]


def _slogdet_gradient(grads: Any, inputs: Any, outputs: Any) -> Any:
    """The logarithm changes by tr(A^-1 dA); a complex sign turns by its imaginary part."""
    (A,) = inputs
    to_log = grads[1]
    total = None if to_log is None else to_log.to(A.dtype)
    if A.is_complex() and grads[0] is not None:
        turn = grads[0] * T["conj"](outputs[0])
        turn = T["complex"](T["zeros_like"](T["imag"](turn)), -T["imag"](T["conj"](turn)))
        total = turn if total is None else total + turn
    if total is None:
        return [T["zeros_like"](A)]
    return [total[..., None, None] * _h(inv(A))]


@composite("slogdet", spaces=LINALG)
def linalg_slogdet(A: Tensor, *, out: Any = None) -> Any:
    """(sign, logabsdet) of square matrices."""
    _matrix("slogdet", A)
    found = hosted("LinalgSlogdetBackward0", lambda a: tuple(np.linalg.slogdet(a)), [A], _slogdet_gradient)
    return _results("linalg_slogdet", ("sign", "logabsdet"), found, out)


@composite("slogdet", method=True)
def slogdet(input: Tensor) -> Any:
    """`linalg.slogdet`."""
    return result_type_of("slogdet", ("sign", "logabsdet"))(linalg_slogdet(input))


@composite("logdet", method=True)
def logdet(input: Tensor) -> Tensor:
    """The logarithm of the determinant; NaN where that is negative."""
    _matrix("logdet", input)
    sign, log = linalg_slogdet(input)
    if input._spec.dtype.is_complex:
        return log + T["log"](sign)  # type: ignore[no-any-return]
    return T["where"](sign < 0, math.nan, log)  # type: ignore[no-any-return]


# ***** QR *****


def _qr_gradient(grads: Any, inputs: Any, outputs: Any) -> Any:
    (A,) = inputs
    Q, R = outputs
    gQ, gR = grads
    rows, columns = A._spec.shape[-2:]
    if rows < columns:
        return [_wide_qr(gQ, gR, A, Q, R, rows)]
    gQ = T["zeros_like"](Q) if gQ is None else gQ
    gR = T["zeros_like"](R) if gR is None else gR
    return [_tall_qr(gQ, gR, Q, R)]


def _tall_qr(gQ: Any, gR: Any, Q: Any, R: Any) -> Any:
    M = R @ _h(gR) - _h(gQ) @ Q
    lower = T["tril"](M, -1)
    middle = M.diagonal(0, -2, -1)
    middle = T["real"](middle).to(M.dtype) if M.is_complex() else middle
    sided = lower + _h(lower) + T["diag_embed"](middle)
    return _h(_solved(R, _h(gQ + Q @ sided)))


def _wide_qr(gQ: Any, gR: Any, A: Any, Q: Any, R: Any, rows: int) -> Any:
    """A = [X Y]: X = Q U and V = Q^H Y."""
    gR = T["zeros_like"](R) if gR is None else gR
    gQ = T["zeros_like"](Q) if gQ is None else gQ
    U, gU, gV = R[..., :rows], gR[..., :rows], gR[..., rows:]
    Y = A[..., rows:]
    gX = _tall_qr(gQ + Y @ _h(gV), gU, Q, U)
    return T["cat"]([gX, Q @ gV], -1)


@composite("qr", spaces=LINALG)
def linalg_qr(A: Tensor, mode: str = "reduced", *, out: Any = None) -> Any:
    """(Q, R) with A = Q R; `mode` is "reduced", "complete" or "r" (Q empty)."""
    _matrix("qr", A, False)
    if mode not in ("reduced", "complete", "r"):
        raise RuntimeError(
            f"qr received unrecognized mode '{mode}' but expected one of 'reduced' (default), 'r', or 'complete'"
        )
    if mode == "r":
        (R,) = hosted("LinalgQrBackward0", lambda a: np.linalg.qr(a, "r"), [A], _refuse_r)
        return _results("linalg_qr", ("Q", "R"), (T["empty"](0, dtype=A.dtype), R), out)
    rows, columns = A._spec.shape[-2:]
    rule = _qr_gradient if mode == "reduced" or rows <= columns else _refuse_complete
    found = hosted("LinalgQrBackward0", lambda a: tuple(np.linalg.qr(a, mode)), [A], rule)
    return _results("linalg_qr", ("Q", "R"), found, out)


def _refuse_r(*_: Any) -> Any:
    raise RuntimeError(
        "The derivative of linalg.qr depends on Q, which is not computed when mode='r'. Please use linalg.qr(A, mode='reduced') if you are going to require gradients"
    )


def _refuse_complete(*_: Any) -> Any:
    raise RuntimeError("The QR decomposition is not differentiable when mode='complete' and nrows > ncols.")


@composite("qr", method=True)
def qr(input: Tensor, some: bool = True, *, out: Any = None) -> Any:
    """`linalg.qr`."""
    found = linalg_qr(input, "reduced" if some else "complete")
    return _results("qr", ("Q", "R"), tuple(found), out)


# ***** singular values *****


def _svd_gradient(grads: Any, inputs: Any, outputs: Any) -> Any:
    U, S, Vh = outputs
    gU, gS, gVh = grads
    V, rows, columns, k = _h(Vh), U._spec.shape[-2], Vh._spec.shape[-1], S._spec.shape[-1]
    complex_ = U.is_complex()
    as_matrix = lambda v: v.to(U.dtype) if complex_ else v
    inner = T["zeros"]((*S._spec.shape, k), dtype=U.dtype)
    squares = S * S
    apart = squares.unsqueeze(-2) - squares.unsqueeze(-1) + T["eye"](k, dtype=S.dtype)
    off = 1.0 - T["eye"](k, dtype=S.dtype)
    if gU is not None:
        skew = _h(U) @ gU
        skew = (skew - _h(skew)) * 0.5
        inner = inner + as_matrix(2.0 * off / apart) * skew * as_matrix(S.unsqueeze(-2)) * 1.0
        if complex_:
            inner = inner + T["diag_embed"](skew.diagonal(0, -2, -1) / as_matrix(2.0 * S)) * 2.0
    if gVh is not None:
        skew = Vh @ _h(gVh)
        skew = (skew - _h(skew)) * 0.5
        inner = inner + as_matrix(S.unsqueeze(-1)) * (as_matrix(2.0 * off / apart) * skew)
    if gS is not None:
        inner = inner + T["diag_embed"](as_matrix(gS))
    found = U @ inner @ Vh
    if gU is not None and rows > k:
        outside = gU / as_matrix(S.unsqueeze(-2))
        found = found + (outside - U @ (_h(U) @ outside)) @ Vh
    if gVh is not None and columns > k:
        outside = U @ (gVh / as_matrix(S.unsqueeze(-1)))
        found = found + outside - (outside @ V) @ Vh
    return [found]


def _full_svd_gradient(grads: Any, inputs: Any, outputs: Any) -> Any:
    """The vectors beyond the singular values carry no gradient."""
    U, S, Vh = outputs
    gU, gS, gVh = grads
    k = S._spec.shape[-1]
    gU = None if gU is None else gU[..., :k]
    gVh = None if gVh is None else gVh[..., :k, :]
    return _svd_gradient([gU, gS, gVh], inputs, [U[..., :k], S, Vh[..., :k, :]])


@composite("svd", spaces=LINALG)
def linalg_svd(A: Tensor, full_matrices: bool = True, *, driver: Any = None, out: Any = None) -> Any:
    """(U, S, Vh) with A = U diag(S) Vh, singular values falling."""
    _matrix("svd", A, False)
    rows, columns = A._spec.shape[-2:]
    full = full_matrices and rows != columns
    rule = _full_svd_gradient if full else _svd_gradient
    found = hosted(
        "LinalgSvdBackward0", _run("svd", lambda a: tuple(np.linalg.svd(a, full_matrices=full)), ""), [A], rule
    )
    return _results("linalg_svd", ("U", "S", "Vh"), found, out)


@composite("svdvals", spaces=LINALG)
def svdvals(A: Tensor, *, driver: Any = None, out: Any = None) -> Tensor:
    """The singular values, falling."""
    _matrix("svdvals", A, False)
    return into(out, linalg_svd(A, False)[1])  # type: ignore[no-any-return]


@composite("svd", method=True)
def svd(input: Tensor, some: bool = True, compute_uv: bool = True, *, out: Any = None) -> Any:
    """(U, S, V) with input = U diag(S) V^H."""
    if not compute_uv:
        rows, columns = input._spec.shape[-2:]
        lead = input._spec.shape[:-2]
        values = (
            T["zeros"]((*lead, rows, rows), dtype=input.dtype),
            svdvals(input),
            T["zeros"]((*lead, columns, columns), dtype=input.dtype),
        )
        return _results("svd", ("U", "S", "V"), values, out)
    U, S, Vh = linalg_svd(input, not some)
    return _results("svd", ("U", "S", "V"), (U, S, _h(Vh)), out)


# ***** eigenvalues *****


def _eigh_gradient(grads: Any, inputs: Any, outputs: Any) -> Any:
    L, V = outputs
    gL, gV = grads
    as_matrix = lambda v: v.to(V.dtype) if V.is_complex() else v
    size = L._spec.shape[-1]
    inner = None
    if gV is not None:
        apart = L.unsqueeze(-2) - L.unsqueeze(-1) + T["eye"](size, dtype=L.dtype)
        inner = (_h(V) @ gV) * as_matrix((1.0 - T["eye"](size, dtype=L.dtype)) / apart)
    if gL is not None:
        straight = T["diag_embed"](as_matrix(gL))
        inner = straight if inner is None else inner + straight
    found = V @ inner @ _h(V)
    return [(found + _h(found)) * 0.5]


@composite("eigh", spaces=LINALG)
def eigh(A: Tensor, UPLO: str = "L", *, out: Any = None) -> Any:
    """(eigenvalues, eigenvectors) of Hermitian matrices, of which one triangle is read; rising."""
    _matrix("eigh", A)
    if UPLO.upper() not in ("L", "U"):
        raise RuntimeError(f"Expected UPLO argument to be 'L' or 'U', but got {UPLO}")
    found = hosted(
        "LinalgEighBackward0", _run("eigh", lambda a: tuple(np.linalg.eigh(a, UPLO.upper())), ""), [A], _eigh_gradient
    )
    return _results("linalg_eigh", ("eigenvalues", "eigenvectors"), found, out)


@composite("eigvalsh", spaces=LINALG)
def eigvalsh(A: Tensor, UPLO: str = "L", *, out: Any = None) -> Tensor:
    """The eigenvalues of Hermitian matrices, rising."""
    _matrix("eigvalsh", A)
    return into(out, eigh(A, UPLO)[0])  # type: ignore[no-any-return]


def _eig_gradient(grads: Any, inputs: Any, outputs: Any) -> Any:
    (A,) = inputs
    L, V = outputs
    gL, gV = grads
    size = L._spec.shape[-1]
    eye = T["eye"](size, dtype=L.dtype)
    inner = None
    if gV is not None:
        turned = _h(V) @ gV
        along = T["real"](turned.diagonal(0, -2, -1)).to(V.dtype)
        inner = turned - (_h(V) @ V) * along.unsqueeze(-2)
        conj = T["conj"](L)
        inner = inner / (conj.unsqueeze(-2) - conj.unsqueeze(-1) + eye) * (1.0 - eye)
    if gL is not None:
        straight = T["diag_embed"](gL)
        inner = straight if inner is None else inner + straight
    found = _solved(_h(V), inner @ _h(V))
    return [found if A.is_complex() else T["real"](found)]


@composite("eig", spaces=LINALG)
def eig(A: Tensor, *, out: Any = None) -> Any:
    """(eigenvalues, eigenvectors) of square matrices, complex."""
    _matrix("eig", A)
    if A.numel() and not bool(T["isfinite"](A).all()):  # type: ignore[attr-defined]
        raise RuntimeError("torch.linalg.eig: input tensor should not contain infs or NaNs.")
    complex_ = A._spec.dtype.to_complex().numpy_name

    def factor(a: Any) -> Any:
        values, vectors = np.linalg.eig(a)
        return values.astype(complex_), vectors.astype(complex_)

    found = hosted("LinalgEigBackward0", _run("eig", factor, ""), [A], _eig_gradient)
    return _results("linalg_eig", ("eigenvalues", "eigenvectors"), found, out)


@composite("eigvals", spaces=LINALG)
def eigvals(A: Tensor, *, out: Any = None) -> Tensor:
    """The eigenvalues of square matrices, complex."""
    _matrix("eigvals", A)
    return into(out, eig(A)[0])  # type: ignore[no-any-return]


# ***** what follows from them *****


def _pinv_gradient(grads: Any, inputs: Any, outputs: Any) -> Any:
    (A,), P = inputs, outputs[0]
    g, Ph = _h(grads[0]), _h(P)
    if A._spec.shape[-2] <= A._spec.shape[-1]:
        K = g @ P
        KP = K @ Ph
        return [-_h(P @ K) + KP - (A @ P) @ KP + (Ph @ P) @ (g - K @ A)]
    K = P @ g
    PK = Ph @ K
    return [-_h(K @ P) + (g - A @ K) @ P @ Ph + PK - (PK @ P) @ A]


def _bound(s: Any, shape: Any, atol: Any, rtol: Any) -> Any:
    """Below this, singular values count as 0."""
    if rtol is None:
        rtol = 0.0 if atol is not None and np.all(np.asarray(atol) > 0) else np.finfo(s.dtype).eps * max(shape[-2:])
    largest = s.max(-1) if s.shape[-1] else np.zeros(s.shape[:-1], s.dtype)
    return np.maximum(np.asarray(atol if atol is not None else 0.0), np.asarray(rtol) * largest)


def _array(value: Any) -> Any:
    return value.detach().numpy() if isinstance(value, Tensor) else value


@composite("pinv", spaces=LINALG)
def pinv(
    A: Tensor, *, atol: Any = None, rtol: Any = None, hermitian: bool = False, rcond: Any = None, out: Any = None
) -> Tensor:
    """The pseudo-inverse: singular values below max(atol, rtol * greatest) count as 0."""
    _matrix("pinv", A, hermitian)
    low, relative = _array(atol), _array(rcond if rtol is None else rtol)

    def compute(a: Any) -> Any:
        if a.size == 0:
            return np.zeros((*a.shape[:-2], a.shape[-1], a.shape[-2]), a.dtype)
        if hermitian:
            values, v = np.linalg.eigh(a)
            keep = np.abs(values) > _bound(np.abs(values), a.shape, low, relative)[..., None]
            inverted = np.where(keep, 1.0 / np.where(keep, values, 1.0), 0.0).astype(a.dtype)
            return (v * inverted[..., None, :]) @ np.conj(np.swapaxes(v, -1, -2))
        u, s, vh = np.linalg.svd(a, full_matrices=False)
        keep = s > _bound(s, a.shape, low, relative)[..., None]
        inverted = np.where(keep, 1.0 / np.where(keep, s, 1.0), 0.0).astype(s.dtype)
        return (np.conj(np.swapaxes(vh, -1, -2)) * inverted[..., None, :]) @ np.conj(np.swapaxes(u, -1, -2))

    return into(out, hosted("LinalgPinvBackward0", compute, [A], _pinv_gradient)[0])  # type: ignore[no-any-return]


@composite("pinverse", method=True)
def pinverse(input: Tensor, rcond: float = 1e-15) -> Tensor:
    """`linalg.pinv`."""
    return pinv(input, rcond=rcond)  # type: ignore[no-any-return]


@composite("matrix_rank", spaces=LINALG)
def matrix_rank(
    A: Tensor, tol: Any = None, hermitian: bool = False, *, atol: Any = None, rtol: Any = None, out: Any = None
) -> Tensor:
    """How many singular values are greater than max(atol, rtol * greatest)."""
    _matrix("matrix_rank", A, hermitian)
    low, relative = _array(tol if tol is not None else atol), _array(0.0 if tol is not None else rtol)

    def compute(a: Any) -> Any:
        if a.size == 0:
            return np.zeros(a.shape[:-2], "int64")
        s = np.abs(np.linalg.eigvalsh(a)) if hermitian else np.linalg.svd(a, compute_uv=False)
        return (s > _bound(s, a.shape, low, relative)[..., None]).sum(-1).astype("int64")

    return into(out, hosted("MatrixRank", compute, [A], None)[0])  # type: ignore[no-any-return]


@composite("cond", spaces=LINALG)
def cond(A: Tensor, p: Any = None, *, out: Any = None) -> Tensor:
    """The condition number in a norm (default: the ratio of the extreme singular values)."""
    _matrix("cond", A, p not in (None, 2, -2))
    if p is None or p in (2, -2):
        s = svdvals(A)
        first, last = s[..., 0], s[..., -1]
        return into(out, last / first if p == -2 else first / last)  # type: ignore[no-any-return]
    norm = SPACES["linalg"]["matrix_norm"]
    try:
        inverse_ = inv(A)
    except LinAlgError:
        return into(out, T["full"](A._spec.shape[:-2], math.inf, dtype=A._spec.dtype.to_real()))  # type: ignore[no-any-return]
    return into(out, norm(A, p) * norm(inverse_, p))  # type: ignore[no-any-return]


@composite("lstsq", spaces=LINALG)
def lstsq(A: Tensor, B: Tensor, rcond: float | None = None, *, driver: str | None = None, out: Any = None) -> Any:
    """(solution, residuals, rank, singular_values) of the least squares problem min |A X - B|."""
    _matrix("lstsq", A, False)
    vectors = A._spec.ndim - 1 == B._spec.ndim and tuple(B._spec.shape) == tuple(A._spec.shape[:-1])
    b = B.unsqueeze(-1) if vectors else B  # type: ignore[attr-defined]
    if A._spec.shape[-2] != b._spec.shape[-2]:
        raise RuntimeError(f"linalg.lstsq: input.size(-2) should match other.size(-{1 if vectors else 2})")
    found = pinv(A, rcond=rcond) @ b
    rows, columns = A._spec.shape[-2:]
    residuals = found.reshape(-1).narrow(0, 0, 0)
    residuals = T["real"](residuals) if A._spec.dtype.is_complex else residuals
    rank = T["empty"](0, dtype=INT64) if driver == "gels" else matrix_rank(A, rtol=rcond)
    if rows > columns and driver != "gelsy" and (driver == "gels" or bool((rank == columns).all())):
        apart = A @ found - b  # type: ignore[operator]
        residuals = (T["abs"](apart) ** 2).sum(-2)
    values = svdvals(A).detach() if driver in ("gelsd", "gelss") else T["empty"](0, dtype=A._spec.dtype.to_real())
    fields = ("solution", "residuals", "rank", "singular_values")
    return _results("linalg_lstsq", fields, (found.squeeze(-1) if vectors else found, residuals, rank, values), out)


@composite("tensorinv", spaces=LINALG)
def tensorinv(A: Tensor, ind: int = 2, *, out: Any = None) -> Tensor:
    """The inverse with respect to `tensordot` over the last `ndim - ind` dims."""
    if ind <= 0:
        raise RuntimeError("Expected a strictly positive integer for 'ind'")
    head, tail = A._spec.shape[:ind], A._spec.shape[ind:]
    if math.prod(head) != math.prod(tail):
        raise RuntimeError(
            f"Expected self to satisfy the requirement prod(self.shape[ind:]) == prod(self.shape[:ind]), but got {math.prod(tail)} != {math.prod(head)}"
        )
    return into(out, inv(A.reshape(math.prod(head), -1)).reshape((*tail, *head)))  # type: ignore[no-any-return, attr-defined]


@composite("tensorsolve", spaces=LINALG)
def tensorsolve(A: Tensor, B: Tensor, dims: Any = None, *, out: Any = None) -> Tensor:
    """X with tensordot(A, X) = B."""
    a = A if dims is None else A.movedim(tuple(dims), tuple(range(A._spec.ndim - len(dims), A._spec.ndim)))  # type: ignore[attr-defined]
    shape = a._spec.shape[B._spec.ndim :]
    if math.prod(a._spec.shape[: B._spec.ndim]) != math.prod(shape):
        raise RuntimeError(
            f"Expected self to satisfy the requirement prod(self.shape[other.ndim:]) == prod(self.shape[:other.ndim]), but got {math.prod(shape)} != {math.prod(a._spec.shape[: B._spec.ndim])}"
        )
    found = solve(a.reshape(-1, math.prod(shape)), B.reshape(-1))  # type: ignore[attr-defined]
    return into(out, found.reshape(shape))  # type: ignore[no-any-return]


@composite("matrix_exp", spaces=("linalg", "torch"), method=True)
def matrix_exp(input: Tensor) -> Tensor:
    """e to the power of square matrices: Taylor's series of a part small enough, squared back up."""
    _matrix("matrix_exp", input)
    size = input._spec.shape[-1]
    if not input._spec.numel:
        return input.clone()  # type: ignore[attr-defined, no-any-return]
    greatest = float(function_of("amax")(T["abs"](input.detach()).sum(-1)))  # type: ignore[attr-defined]
    halvings = max(0, math.ceil(math.log2(greatest / 0.5))) if greatest > 0.5 and math.isfinite(greatest) else 0
    part = input * (0.5**halvings)  # type: ignore[operator]
    eye = _eye(input, size)
    found = eye + part / 18.0
    for k in range(17, 0, -1):
        found = eye + (part @ found) / float(k)
    for _ in range(halvings):
        found = found @ found
    return found  # type: ignore[no-any-return]
