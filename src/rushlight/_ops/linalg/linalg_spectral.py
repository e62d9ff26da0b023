"""Orthogonal factors, eigenvalues, singular values, and functions over them."""

from __future__ import annotations

from typing import Any

from rushlight._base.errors import warn_once
from rushlight._ops.bodies import CPP_NAME
from rushlight._ops.linalg.linalg import columns_first, common_batch, expanded, floats_only, fortran, matrices
from rushlight._ops.table import operator
from rushlight._prims import build, prim
from rushlight._prims.linalg.factor_qr import reflect
from rushlight._prims.linalg.matrices import eye, mH, rows, scale_columns, solve, times, triu
from rushlight._types.dtype import INT32, INT64
from rushlight._types.layout import contiguous_strides, numel

__all__: list[str] = []

_EPSILON = {"float32": 2.0**-23, "float64": 2.0**-52, "complex64": 2.0**-23, "complex128": 2.0**-52}

# ***** QR *****


def _qr(a: Any, mode: str) -> tuple[Any, Any]:
    if mode not in ("reduced", "complete", "r"):
        raise RuntimeError(
            f"qr received unrecognized mode '{mode}' but expected one of 'reduced' (default), 'r', or 'complete'"
        )
    matrices("linalg.qr", a)
    floats_only("linalg.qr", a, "geqrf_cpu")
    if mode == "r":
        packed, _ = prim.qr(a, form="packed")
        return build.full((0,), 0, a.dtype), triu(rows(packed, 0, min(a.shape[-2:])))
    return prim.qr(a, form="full" if mode == "complete" else "reduced")


@operator(
    "qr(Tensor A, str mode='reduced') -> (Tensor Q, Tensor R)", name="linalg_qr", spaces=("linalg",), method=False, out="exact", like=columns_first,
)  # fmt: skip
def linalg_qr(a: Any, mode: str) -> Any:
    """(Q, R) with A = Q R, Q with orthonormal columns and R upper triangular; `mode` is "reduced", "complete" or "r" (Q
    empty)."""
    return _qr(a, mode)


@operator(
    "qr(Tensor input, bool some=True) -> (Tensor Q, Tensor R)",
    out="exact",
    like=columns_first,
    node="LinalgQrBackward0",
)
def qr(a: Any, some: bool) -> Any:
    """`linalg.qr`."""
    warn_once(
        "torch.qr is deprecated in favor of torch.linalg.qr and will be removed in a future PyTorch release.\nThe boolean parameter 'some' has been "
        "replaced with a string parameter 'mode'.\nQ, R = torch.qr(A, some)\nshould be replaced with\n"
        "Q, R = torch.linalg.qr(A, 'reduced' if some else 'complete')"
    )
    return _qr(a, "reduced" if some else "complete")


@operator("geqrf(Tensor input) -> (Tensor a, Tensor tau)", out=True, like=fortran)
def geqrf(a: Any) -> Any:
    """A = Q R as (a, tau): R on and above the diagonal of a, below it the reflections that make Q."""
    if len(a.shape) < 2:
        raise RuntimeError("torch.geqrf: input must have at least 2 dimensions.")
    floats_only("torch.geqrf", a, "geqrf_cpu", integers=False)
    return prim.qr(a, form="packed")


# ***** products of reflections *****


def _reflections(a: Any, tau: Any) -> Any:
    name = "torch.linalg.householder_product"
    if len(a.shape) < 2:
        raise RuntimeError(f"{name}: input must have at least 2 dimensions.")
    m, n = a.shape[-2:]
    if m < n:
        raise RuntimeError(f"{name}: input.shape[-2] must be greater than or equal to input.shape[-1]")
    if not tau.shape or n < tau.shape[-1]:
        raise RuntimeError(f"{name}: input.shape[-1] must be greater than or equal to tau.shape[-1]")
    if len(a.shape) - len(tau.shape) != 1:
        raise RuntimeError(
            f"{name}: Expected tau to have one dimension less than input, but got tau.ndim equal to {len(tau.shape)} and "
            f"input.ndim is equal to {len(a.shape)}"
        )
    if a.shape[:-2] != tau.shape[:-1]:
        raise RuntimeError(
            f"{name}: Expected batch dimensions of tau to be equal to input.shape[:-2], but got {list(tau.shape[:-1])}"
        )
    if a.dtype is not tau.dtype:
        raise RuntimeError(
            f"{name}: tau dtype {CPP_NAME[tau.dtype.name]} does not match input dtype {CPP_NAME[a.dtype.name]}"
        )
    floats_only(name, a, "orgqr_cpu", integers=False)
    return prim.reflections(a, tau) + build.full(a.shape, 0, a.dtype)


@operator(
    "householder_product(Tensor input, Tensor tau) -> Tensor", name="linalg_householder_product", spaces=("linalg",), method=False, out=True,
    like=columns_first,
)  # fmt: skip
def householder_product(a: Any, tau: Any) -> Any:
    """(I - tau[0] v[0] v[0]^H) (I - tau[1] v[1] v[1]^H) ...: the first columns of the product of the reflections that
    `geqrf` returns as `input` and `tau`."""
    return _reflections(a, tau)


@operator(
    "orgqr(Tensor input, Tensor input2) -> Tensor",
    out=True,
    like=columns_first,
    node="LinalgHouseholderProductBackward0",
)
def orgqr(a: Any, tau: Any) -> Any:
    """`linalg.householder_product`."""
    return _reflections(a, tau)


@operator(
    "ormqr(Tensor input, Tensor input2, Tensor input3, bool left=True, bool transpose=False) -> Tensor",
    out="exact",
    like=columns_first,
)
def ormqr(a: Any, tau: Any, other: Any, left: bool, transpose: bool) -> Any:
    """`other` times Q (or Q^H) from the left or the right, where Q is the product of the reflections that `geqrf`
    returns."""
    _check_ormqr(a, tau, other, left)
    if left:
        return reflect(a, tau, other, adjoint=transpose)
    return mH(reflect(a, tau, mH(other), adjoint=not transpose))


def _check_ormqr(a: Any, tau: Any, other: Any, left: bool) -> None:
    name, side = "torch.ormqr", -2 if left else -1
    for x, what in ((a, "input"), (other, "other")):
        if len(x.shape) < 2:
            raise RuntimeError(f"{name}: {what} must have at least 2 dimensions.")
    count = tau.shape[-1] if tau.shape else 0
    if count != min(other.shape[side], a.shape[-1]):
        raise RuntimeError(f"{name}: tau.shape[-1] must be equal to min(other.shape[{side}], input.shape[-1])")
    if other.shape[side] != a.shape[-2]:
        raise RuntimeError(f"{name}: other.shape[{side}] must be equal to input.shape[-2]")
    if len(a.shape) - len(tau.shape) != 1:
        raise RuntimeError(
            f"{name}: Expected tau to have one dimension less than input, but got tau.ndim equal to {len(tau.shape)} and "
            f"input.ndim is equal to {len(a.shape)}"
        )
    if len(a.shape) != len(other.shape):
        raise RuntimeError(
            f"{name}: Expected other to have the same number of dimensions as input, but got other.ndim equal to {len(other.shape)} and "
            f"input.ndim is equal to {len(a.shape)}"
        )
    for x, what, lead in ((tau, "tau", tau.shape[:-1]), (other, "other", other.shape[:-2])):
        if lead != a.shape[:-2]:
            raise RuntimeError(
                f"{name}: Expected batch dimensions of {what} to be equal to input.shape[:-2], but got {list(lead)}"
            )
        if x.dtype is not a.dtype:
            raise RuntimeError(
                f"{name}: Expected input and {what} to have the same dtype, but input has dtype{CPP_NAME[a.dtype.name]} and {what} has "
                f"dtype {CPP_NAME[x.dtype.name]}"
            )
    floats_only(name, a, "ormqr_cpu", integers=False)


# ***** eigenvalues *****


def _hermitian(name: str, a: Any, uplo: str) -> Any:
    """The matrices in the primitives' form: the lower triangle is read."""
    matrices(name, a, square=True)
    if uplo.upper() not in ("L", "U"):
        raise RuntimeError(f"Expected UPLO argument to be 'L' or 'U', but got {uplo}")
    floats_only(name, a, "linalg_eigh_cpu", integers=False)
    return mH(a) if uplo.upper() == "U" else a


@operator(
    "linalg_eigh_core(Tensor A, str UPLO='L') -> (Tensor eigenvalues, Tensor eigenvectors, Tensor info)",
    spaces=(),
    method=False,
    like=fortran,
    node="LinalgEighBackward0",
)
def eigh(a: Any, uplo: str) -> Any:
    """A = V diag(w) V^H as (w, increasing; V; info), of Hermitian matrices of which one triangle is read."""
    return prim.eigh(_hermitian("linalg.eigh", a, uplo), vectors=True)


@operator(
    "linalg_eigvalsh_core(Tensor A, str UPLO='L') -> (Tensor eigenvalues, Tensor info)",
    spaces=(),
    method=False,
    node="LinalgEighBackward0",
)
def eigvalsh(a: Any, uplo: str) -> Any:
    """w of A = V diag(w) V^H alone, and info."""
    return prim.eigh(_hermitian("linalg.eigh", a, uplo), vectors=False)


def _general(name: str, a: Any) -> Any:
    matrices(name, a, square=True)
    if not (a.dtype.is_floating_point or a.dtype.is_complex):
        raise RuntimeError(f"Unknown Complex ScalarType for {CPP_NAME[a.dtype.name]}")
    floats_only(name, a, "linalg_eig_out_cpu")
    return a


@operator(
    "linalg_eig_core(Tensor A) -> (Tensor eigenvalues, Tensor eigenvectors, Tensor info)",
    spaces=(),
    method=False,
    like=fortran,
    node="LinalgEigBackward0",
)
def eig(a: Any) -> Any:
    """A V = V diag(w) as (w, V, info), complex, of square matrices."""
    return prim.eig(_general("linalg.eig", a), vectors=True)


@operator(
    "linalg_eigvals_core(Tensor A) -> (Tensor eigenvalues, Tensor info)",
    spaces=(),
    method=False,
    node="LinalgEigBackward0",
)
def eigvals(a: Any) -> Any:
    """w of A V = V diag(w) alone, and info."""
    return prim.eig(_general("linalg.eigvals", a), vectors=False)


# ***** singular values *****


def _svd_input(a: Any) -> Any:
    floats_only("linalg.svd", a, "linalg_svd_cpu")
    matrices("linalg.svd", a)
    return a


@operator(
    "linalg_svd_core(Tensor A, bool full_matrices=True) -> (Tensor U, Tensor S, Tensor Vh, Tensor info)",
    spaces=(),
    method=False,
    like=fortran,
    node="LinalgSvdBackward0",
)
def svd(a: Any, full: bool) -> Any:
    """(U, S, V^H, info) with A = U diag(S) V^H, singular values decreasing."""
    full = full and a.shape[-1:] != a.shape[-2:-1]
    return prim.svd(_svd_input(a), full=full, vectors=True)


@operator(
    "linalg_svdvals_core(Tensor A) -> (Tensor S, Tensor info)", spaces=(), method=False, node="LinalgSvdBackward0"
)
def svdvals(a: Any) -> Any:
    """S of A = U diag(S) V^H alone, decreasing, and info."""
    return prim.svd(_svd_input(a), full=False, vectors=False)


# ***** pseudo-inverses, ranks, least squares *****


def _tolerance(sizes: Any, shape: Any, dtype: Any, atol: Any, rtol: Any) -> Any:
    """The bound max(atol, rtol * greatest) below which singular values count as 0; without `rtol` it follows from the
    dtype, or is 0 if `atol` is not."""
    greatest = prim.amax(sizes, dims=(len(sizes.shape) - 1,))

    def given(x: Any) -> Any:
        return (
            None
            if x is None
            else build.convert(x, sizes.dtype)
            if hasattr(x, "dtype")
            else build.full((), x, sizes.dtype)
        )

    low, relative = given(atol), given(rtol)
    if relative is None:
        default = build.full((), _EPSILON[dtype.name] * max(shape[-2:]), sizes.dtype)
        relative = (
            default
            if low is None
            else build.select(low > 0.0, build.full_like(low, 0.0), build.broadcast_to(default, low.shape))
        )
    bound = relative * greatest
    return bound if low is None else build.binary("maximum", low, bound)


def _is_zero(sizes: Any, bound: Any) -> Any:
    """The singular values that count as zero: those not above the bound, all of them if it is NaN."""
    n = len(sizes.shape)
    bound = build.broadcast_to(bound, sizes.shape[:-1]) if len(bound.shape) < n else bound
    return ~(sizes > prim.broadcast(bound, shape=(*bound.shape, sizes.shape[-1]), dims=tuple(range(n - 1))))


def _inverted(values: Any, dropped: Any) -> Any:
    one = build.full_like(values, 1.0)
    return build.select(dropped, build.zeros_like(values), one / build.select(dropped, one, values))


def _pinv_of(a: Any, atol: Any, rtol: Any, hermitian: bool) -> tuple[Any, Any]:
    m, n = a.shape[-2:]
    if not numel(a.shape):
        return build.full((*a.shape[:-2], n, m), 0, a.dtype), build.full(a.shape[:-2], 0, INT32)
    if hermitian:
        values, V, info = prim.eigh(a, vectors=True)
        sizes = prim.abs(values)
        inverted = _inverted(values, _is_zero(sizes, _tolerance(sizes, a.shape, a.dtype, atol, rtol)))
        return times(scale_columns(V, inverted), mH(V)), info
    U, S, Vh, info = prim.svd(a, full=False, vectors=True)
    inverted = _inverted(S, _is_zero(S, _tolerance(S, a.shape, a.dtype, atol, rtol)))
    return times(scale_columns(mH(Vh), inverted), mH(U)), info


def pinv_gradient(ct: Any, P: Any, a: Any) -> Any:
    """Golub, Pereyra, "The differentiation of pseudo-inverses and nonlinear least squares problems" (1973), for
    matrices of constant rank."""
    g, Ph = mH(ct), mH(P)
    if a.shape[-2] <= a.shape[-1]:
        K = times(g, P)
        KP = times(K, Ph)
        return -mH(times(P, K)) + KP - times(a, P, KP) + times(Ph, P, g - times(K, a))
    K = times(P, g)
    PK = times(Ph, K)
    return -mH(times(K, P)) + times(g - times(a, K), P, Ph) + PK - times(PK, P, a)


@operator(
    "linalg_pinv_core(Tensor A, *, Tensor? atol=None, Tensor? rtol=None, bool hermitian=False) -> (Tensor result, Tensor info)", spaces=(),
    method=False, node="LinalgPinvBackward0", numbers=("atol", "rtol"), like="contiguous",
)  # fmt: skip
def pinv(a: Any, *, atol: Any, rtol: Any, hermitian: bool) -> Any:
    """The pseudo-inverse, and info: singular values up to max(atol, rtol * greatest) count as 0."""
    if len(a.shape) < 2 or a.dtype.name not in _EPSILON:
        shown = f"{CPP_NAME[a.dtype.name]}{{{list(a.shape)}}}"
        raise RuntimeError(
            f"linalg.pinv({shown}): expected a tensor with 2 or more dimensions of float, double, cfloat or cdouble types"
        )
    if hermitian:
        matrices("linalg.pinv", a, square=True)
    return _pinv_of(a, atol, rtol, hermitian)


@pinv.gradient
def _(cts: Any, outs: Any, a: Any, *, atol: Any, rtol: Any, hermitian: bool) -> Any:  # singular values may be equal
    if cts[0] is None:
        return None, None, None
    return (pinv_gradient(cts[0], outs[0], a) if numel(a.shape) else build.zeros_like(a)), None, None


@operator(
    "linalg_matrix_rank_core(Tensor input, *, Tensor? atol=None, Tensor? rtol=None, bool hermitian=False) -> (Tensor rank, Tensor info)",
    spaces=(),
    method=False,
    numbers=("atol", "rtol"),
    like="contiguous",
)
def matrix_rank(a: Any, *, atol: Any, rtol: Any, hermitian: bool) -> Any:
    """The number of singular values greater than max(atol, rtol * greatest), and info."""
    matrices("torch.linalg.matrix_rank", a, hermitian, argument="input")
    if a.dtype.name not in _EPSILON:
        raise RuntimeError("This function doesn't handle types other than float and double")
    if not numel(a.shape):
        return build.full(a.shape[:-2], 0, INT64), build.full(a.shape[:-2], 0, INT32)
    if hermitian:
        values, info = prim.eigh(a, vectors=False)
        sizes = prim.abs(values)
    else:
        sizes, info = prim.svd(a, full=False, vectors=False)
    counted = ~_is_zero(sizes, _tolerance(sizes, a.shape, a.dtype, atol, rtol))
    return prim.sum(build.convert(counted, INT64), dims=(len(sizes.shape) - 1,)), info


def _over_rows(shape: Any, specs: Any) -> Any:
    """Solutions are column-major like the right sides: in columns as long as A has rows, if those are more."""
    if len(shape) < len(specs[1].shape):
        return contiguous_strides(shape)
    longest = max(specs[0].shape[-2:])
    lead = contiguous_strides((*shape[:-2], longest * max(shape[-1], 1)))[:-1]
    return (*lead, 1, max(longest, 1))


def _lstsq_gradient(ct: Any, P: Any, a: Any, b: Any) -> tuple[Any, Any]:
    """From the cotangent of P b, where P is the pseudo-inverse of a; singular values may be equal."""
    lead = common_batch(a, b)
    to_p = build.sum_to(times(ct, mH(expanded(b, lead))), P.shape)
    to_a = pinv_gradient(to_p, P, a) if numel(a.shape) else build.zeros_like(a)
    return to_a, times(mH(expanded(P, lead)), ct)


@operator(
    "linalg_lstsq_pivoted(Tensor input, Tensor b, float rcond) -> (Tensor solution, Tensor rank, Tensor info)", spaces=(),
    method=False, node="LinalgLstsqBackward0", like=_over_rows, static=("rcond",),
)  # fmt: skip
def lstsq_pivoted(a: Any, b: Any, rcond: float) -> Any:
    """As `linalg_lstsq_core`, by a QR factorisation with exchanged columns, whose R is cut where its condition passes 1
    / rcond; B in A's batch."""
    (*lead, m, n) = a.shape
    right = expanded(b, lead)
    if n > m:
        right = prim.cat(right, build.full((*lead, n - m, b.shape[-1]), 0, b.dtype), dim=len(lead))
    x, rank, info = prim.least_squares(a, right, build.full((*lead, n), 0, INT32), rcond=rcond)
    return rows(x, 0, n), build.convert(rank, INT64), info


@lstsq_pivoted.gradient
def _(cts: Any, outs: Any, a: Any, b: Any, rcond: float) -> Any:
    if cts[0] is None:
        return None, None
    P, _, _ = _pseudo_inverse(a, rcond)
    return _lstsq_gradient(cts[0], P, a, b)


def _solved_at_full_rank(a: Any, b: Any) -> Any:
    """The least squares solution by Q and R, of A^H where A has more columns; A and B in one batch."""
    (*lead, m, n), k = a.shape, b.shape[-1]
    if not numel(a.shape) or not k:
        return build.full((*lead, n, k), 0, a.dtype)
    if m >= n:
        Q, R = prim.qr(a, form="reduced")
        return solve(R, times(mH(Q), b), upper=True)
    Q, R = prim.qr(mH(a), form="reduced")
    return times(Q, solve(R, b, upper=True, adjoint=True))


@operator(
    "linalg_lstsq_full_rank(Tensor input, Tensor b) -> Tensor", spaces=(), method=False, node="LinalgLstsqBackward0", like=_over_rows,
)  # fmt: skip
def lstsq_full_rank(a: Any, b: Any) -> Any:
    """X of least norm among those with the least |A X - B|, by a QR factorisation; A has full rank.  B: matrices."""
    lead = common_batch(a, b)
    return _solved_at_full_rank(expanded(a, lead), expanded(b, lead))


@lstsq_full_rank.gradient
def _(ct: Any, out: Any, a: Any, b: Any) -> Any:
    P = _solved_at_full_rank(a, eye(a, a.shape[-2], a.shape[-2]))
    return _lstsq_gradient(ct, P, a, b)


def _pseudo_inverse(a: Any, rcond: float) -> tuple[Any, Any, Any]:
    """The pseudo-inverse of matrices, their rank, and info; singular values up to rcond times the greatest count as 0."""
    m, n = a.shape[-2:]
    if not numel(a.shape):
        rank, info = (build.full(a.shape[:-2], 0, dtype) for dtype in (INT64, INT32))
        return build.full((*a.shape[:-2], n, m), 0, a.dtype), rank, info
    U, S, Vh, info = prim.svd(a, full=False, vectors=True)
    dropped = _is_zero(S, _tolerance(S, a.shape, a.dtype, None, rcond))
    rank = prim.sum(build.convert(~dropped, INT64), dims=(len(S.shape) - 1,))
    return times(scale_columns(mH(Vh), _inverted(S, dropped)), mH(U)), rank, info


@operator(
    "linalg_lstsq_core(Tensor input, Tensor b, float rcond) -> (Tensor solution, Tensor rank, Tensor info)", spaces=(),
    method=False, node="LinalgLstsqBackward0", like=_over_rows, static=("rcond",),
)  # fmt: skip
def lstsq(a: Any, b: Any, rcond: float) -> Any:
    """X of least norm among those with the least |A X - B|; singular values up to rcond times the greatest count as 0.
    B: matrices."""
    lead = common_batch(a, b)
    P, rank, info = _pseudo_inverse(a, rcond)
    return times(expanded(P, lead), expanded(b, lead)), rank, info, P


@lstsq.gradient
def _(cts: Any, outs: Any, a: Any, b: Any, rcond: float) -> Any:
    if cts[0] is None:
        return None, None
    return _lstsq_gradient(cts[0], outs[-1], a, b)
