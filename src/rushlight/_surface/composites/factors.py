"""Linear algebra whose errors depend on the numbers: the functions that look at `info`, and those made of several others.

The work is done by rows of the operator table (`_ops/linalg`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rushlight._backends.registry import backend_of
from rushlight._base.errors import warn_once
from rushlight._engine.core import convert
from rushlight._engine.core.convert import deferred
from rushlight._engine.core.state import GRAD, STATE
from rushlight._engine.core.tensor import Tensor
from rushlight._engine.dispatch.autocast import lowered
from rushlight._engine.dispatch.out import write_out
from rushlight._engine.dispatch.plans.results import OUT, result_type_of
from rushlight._ops.bodies import CPP_NAME
from rushlight._ops.forms import forms
from rushlight._surface.registry import SPACES, composite, function_of, into_given
from rushlight._types.dtype import FLOAT32, INT64
from rushlight._types.layout import broadcast_shapes

__all__ = ["LinAlgError", "conj_transpose", "given", "require_success", "result", "results"]

T = SPACES["torch"]
LINALG = ("linalg",)


class LinAlgError(RuntimeError):
    """A matrix is singular, not positive definite, or a method did not converge."""


# As tracebacks name it
LinAlgError.__module__, LinAlgError.__qualname__, LinAlgError.__name__ = "torch._C", "_LinAlgError", "_LinAlgError"
SPACES["linalg"]["LinAlgError"] = LinAlgError

# ***** what the functions share *****

_FAILURES = {
    "inverse": "The diagonal element {} is zero, the inversion could not be completed because the input matrix is singular.",
    "solve": "The solver failed because the input matrix is singular.",
    "cholesky": "The factorization could not be completed because the input is not positive-definite (the leading minor of order {} is not "
    "positive-definite).",
    "lu": "U[{},{}] is zero and using it on lu_solve would result in a division by zero. If you still want to perform the factorization, consider "
    "calling linalg.lu(A, pivot) or linalg.lu_factor_ex(A, pivot)",
    "ldl": "D[{},{}] is zero: the factorization is complete, but using it to solve a system would divide by zero",
    "svd": "The algorithm failed to converge because the input matrix is ill-conditioned or has too many repeated singular values (error code: {}).",
    "eig": "The algorithm failed to converge because the input matrix is ill-conditioned or has too many repeated eigenvalues (error code: {}).",
}
_NOT_FINITE = "The algorithm failed to converge because the input matrix contained non-finite values."


def require_success(info: Tensor, name: str, kind: str) -> None:
    """Raise for the first matrix of a batch whose `info` is not 0; tensors without memory have none."""
    if getattr(info, "_storage", None) is None:
        return
    if deferred(info, lambda codes: codes.ne(0)):
        return
    if not info._spec.ndim:
        code, place = convert.item(info), ""
    else:
        codes = convert.numpy_of(info, force=True).reshape(-1)
        bad = codes.nonzero()[0]
        code, place = (int(codes[bad[0]]), f"(Batch element {bad[0]}): ") if len(bad) else (0, "")
    if code:
        why = _FAILURES[kind].format(code, code) if code > 0 else _NOT_FINITE
        raise (RuntimeError if kind in ("lu", "ldl") else LinAlgError)(f"{name}: {place}{why}")


def given(name: str, out: Any, *inputs: Any) -> None:
    """The error for `out=` where a gradient is wanted."""
    outs = out if isinstance(out, (tuple, list)) else (out,)
    if out is not None and STATE.word & GRAD and any(isinstance(t, Tensor) and t._rg for t in (*outs, *inputs)):
        raise RuntimeError(
            f"{name}(): functions with out=... arguments don't support automatic differentiation, but one of the arguments requires grad."
        )


def result(name: str, value: Tensor, out: Any, *inputs: Any, exact: bool = True) -> Tensor:
    """The value, or `out` with the value in it; it must have the value's dtype where `exact`."""
    if out is None:
        return value
    given(name, out, *inputs)
    write_out(name, out, value, exact)
    return out


def results(
    name: str, fields: tuple[str, ...], values: Sequence[Any], out: Any, *inputs: Any, exact: bool = True
) -> Any:
    """Named results, or `out` with the values in them, which must have their dtypes where `exact`."""
    if out is None:
        return result_type_of(name, fields)(values)
    given(name, out, *inputs)
    if len(out) != len(values):
        raise TypeError(f"{name}(): expected tuple of {len(values)} elements as 'out' but got {len(out)}")
    for place, (target, value) in enumerate(zip(out, values, strict=True)):
        write_out(name, target, value, exact, place)
    return result_type_of(name + OUT, fields)(tuple(out))


def conj_transpose(x: Any) -> Any:
    """The conjugate transpose of the last two dims."""
    turned = x.transpose(-2, -1)
    return T["conj"](turned) if x.is_complex() else turned


_h = conj_transpose

# ***** inverses and systems *****


@composite("inv", spaces=LINALG)
def inv(A: Tensor, *, out: Any = None) -> Tensor:
    """The inverses of square matrices; LinAlgError for singular ones."""
    found, info = function_of("linalg_inv_ex")(A)
    require_success(info, "linalg.inv", "inverse")
    return result("linalg_inv", found, out, A)


@composite("inverse", method=True)
def inverse(input: Tensor, *, out: Any = None) -> Tensor:
    """`linalg.inv`."""
    return inv(input, out=out)


@composite("inv_ex", spaces=LINALG)
@forms("... -> return_types.linalg_inv_ex")
def inv_ex(A: Tensor, *, check_errors: bool = False, out: Any = None) -> Any:
    """(inverse, info): info is not 0 where a matrix is singular; with `check_errors` that raises."""
    found = function_of("linalg_inv_ex")(A, **into_given(out))
    if check_errors:
        require_success(found[1], "linalg.inv_ex", "inverse")
    return found


def _solved(A: Tensor, B: Tensor, left: bool) -> Any:
    return function_of("linalg_solve_ex")(A, B) if left else function_of("solve_right_core")(A, B)


@composite("solve", spaces=LINALG)
def solve(A: Tensor, B: Tensor, *, left: bool = True, out: Any = None) -> Tensor:
    """X with A X = B, or X A = B if `left` is False; B may hold vectors.  LinAlgError for singular A."""
    found, info = _solved(A, B, left)
    require_success(info, "torch.linalg.solve", "solve")
    return result("linalg_solve", found, out, A, B)


@composite("solve_ex", spaces=LINALG)
@forms("... -> return_types.linalg_solve_ex")
def solve_ex(A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False, out: Any = None) -> Any:
    """(solution, info): info is not 0 where a matrix is singular; with `check_errors` that raises."""
    found = results("linalg_solve_ex", ("result", "info"), tuple(_solved(A, B, left)), out, A, B)
    if check_errors:
        require_success(found[1], "torch.linalg.solve_ex", "solve")
    return found


@composite("tensorinv", spaces=LINALG)
def tensorinv(input: Tensor, ind: int = 2, *, out: Any = None) -> Tensor:
    """The inverse with respect to `tensordot` over the last `ndim - ind` dims."""
    if ind <= 0:
        raise RuntimeError(f"Expected a strictly positive integer for 'ind', but got {ind}")
    head, tail = input._spec.shape[:ind], input._spec.shape[ind:]
    if math.prod(head) != math.prod(tail):
        raise RuntimeError(
            "Expected self to satisfy the requirement prod(self.shape[ind:]) == prod(self.shape[:ind]), but got "
            f"{math.prod(tail)} != {math.prod(head)}"
        )
    found, info = function_of("linalg_inv_ex")(input.reshape(math.prod(head), math.prod(tail)))
    require_success(info, "inv", "inverse")
    return result("linalg_tensorinv", found.reshape((*tail, *head)), out, input, exact=False)


@composite("tensorsolve", spaces=LINALG)
def tensorsolve(A: Tensor, B: Tensor, dims: Any = None, *, out: Any = None) -> Tensor:
    """X with tensordot(A, X) = B."""
    a = A if dims is None else A.movedim(tuple(dims), tuple(range(A._spec.ndim - len(dims), A._spec.ndim)))
    shape = a._spec.shape[B._spec.ndim :]
    if math.prod(a._spec.shape[: B._spec.ndim]) != math.prod(shape):
        raise RuntimeError(
            "Expected self to satisfy the requirement prod(self.shape[other.ndim:]) == prod(self.shape[:other.ndim]), but got "
            f"{math.prod(shape)} != {math.prod(a._spec.shape[: B._spec.ndim])}"
        )
    found = solve(a.reshape(-1, math.prod(shape)), B.reshape(-1))
    return result("linalg_tensorsolve", found.reshape(shape), out, A, B, exact=False)


# ***** Cholesky *****


@composite("cholesky", spaces=LINALG)
def linalg_cholesky(input: Tensor, *, upper: bool = False, out: Any = None) -> Tensor:
    """L with A = L L^H, lower triangular (or the upper one); LinAlgError where A is not positive definite."""
    found, info = function_of("linalg_cholesky_ex")(input, upper=upper)
    require_success(info, "linalg.cholesky", "cholesky")
    return result("linalg_cholesky", found, out, input)


@composite("cholesky_ex", spaces=LINALG)
@forms("... -> return_types.linalg_cholesky_ex")
def cholesky_ex(input: Tensor, *, upper: bool = False, check_errors: bool = False, out: Any = None) -> Any:
    """(L, info): info is not 0 where A is not positive definite; with `check_errors` that raises."""
    found = function_of("linalg_cholesky_ex")(input, upper=upper, **into_given(out))
    if check_errors:
        require_success(found[1], "linalg.cholesky_ex", "cholesky")
    return found


@composite("cholesky", method=True)
def cholesky(input: Tensor, upper: bool = False, *, out: Any = None) -> Tensor:
    """`linalg.cholesky`."""
    warn_once(
        "torch.cholesky is deprecated in favor of torch.linalg.cholesky and will be removed in a future PyTorch release.\n"
        "L = torch.cholesky(A)\nshould be replaced with\nL = torch.linalg.cholesky(A)\nand\nU = torch.cholesky(A, upper=True)\nshould be replaced "
        "with\nU = torch.linalg.cholesky(A).mH\nThis transform will produce equivalent results for all valid (symmetric positive definite) inputs."
    )
    found, info = function_of("cholesky_core")(input, upper)
    require_success(info, "cholesky", "cholesky")
    return result("cholesky", found, out, input, exact=False)


# ***** singular values *****


@composite("svd", spaces=LINALG, cached=True)
@forms("... -> return_types.linalg_svd")
def linalg_svd(A: Tensor, full_matrices: bool = True, *, driver: Any = None, out: Any = None) -> Any:
    """(U, S, Vh) with A = U diag(S) Vh, singular values falling."""
    _no_driver("svd", driver)
    *found, info = function_of("linalg_svd_core")(A, full_matrices)
    require_success(info, "linalg.svd", "svd")
    return results("linalg_svd", ("U", "S", "Vh"), found, out, A)


def _no_driver(name: str, driver: Any) -> None:
    if driver is not None:
        raise RuntimeError(
            f"torch.linalg.{name}: keyword argument `driver=` is only supported on CUDA inputs with cuSOLVER backend."
        )


def _wants_gradient(A: Tensor) -> bool:
    return bool(STATE.word & GRAD) and A._rg


@composite("svdvals", spaces=LINALG, cached=True)
def svdvals(A: Tensor, *, driver: Any = None, out: Any = None) -> Tensor:
    """The singular values, falling."""
    _no_driver("svd", driver)
    if _wants_gradient(A):  # it needs the vectors
        return result("linalg_svdvals", linalg_svd(A, False)[1], out, A)
    found, info = function_of("linalg_svdvals_core")(A)
    require_success(info, "linalg.svd", "svd")
    return result("linalg_svdvals", found, out, A)


@composite("svd", method=True, cached=True)
@forms("... -> return_types.svd")
def svd(input: Tensor, some: bool = True, compute_uv: bool = True, *, out: Any = None) -> Any:
    """(U, S, V) with input = U diag(S) V^H."""
    if input._spec.ndim < 2:
        raise RuntimeError(
            f"linalg.svd: input should have at least 2 dimensions, but has {input._spec.ndim} dimensions instead"
        )
    if not compute_uv:
        (*lead, rows, columns), device = input._spec.shape, input._spec.device
        left, right = (T["zeros"]((*lead, n, n), dtype=input.dtype, device=device) for n in (rows, columns))
        return results("svd", ("U", "S", "V"), (left, svdvals(input), right.mT), out, input)
    U, S, Vh = linalg_svd(input, not some)
    return results("svd", ("U", "S", "V"), (U, S, _h(Vh)), out, input)


# ***** eigenvalues *****


@composite("eigh", spaces=LINALG, cached=True)
@forms("... -> return_types.linalg_eigh")
def eigh(input: Tensor, UPLO: str = "L", *, out: Any = None) -> Any:
    """(eigenvalues, eigenvectors) of Hermitian matrices, of which one triangle is read; rising."""
    *found, info = function_of("linalg_eigh_core")(input, UPLO)
    require_success(info, "linalg.eigh", "eig")
    return results("linalg_eigh", ("eigenvalues", "eigenvectors"), found, out, input)


@composite("eigvalsh", spaces=LINALG, cached=True)
def eigvalsh(input: Tensor, UPLO: str = "L", *, out: Any = None) -> Tensor:
    """The eigenvalues of Hermitian matrices, rising."""
    if _wants_gradient(input):
        return result("linalg_eigvalsh", eigh(input, UPLO)[0], out, input)
    found, info = function_of("linalg_eigvalsh_core")(input, UPLO)
    require_success(info, "linalg.eigh", "eig")
    return result("linalg_eigvalsh", found, out, input)


def _finite(name: str, A: Tensor) -> None:
    """LAPACK does not come back from some matrices that hold infinities."""
    inexact = A._spec.dtype.is_floating_point or A._spec.dtype.is_complex
    if A._storage is not None and A._spec.numel and inexact and not bool(T["isfinite"](A.detach()).all()):
        raise RuntimeError(f"torch.linalg.{name}: input tensor should not contain infs or NaNs.")


@composite("eig", spaces=LINALG)
@forms("... -> return_types.linalg_eig")
def eig(input: Tensor, *, out: Any = None) -> Any:
    """(eigenvalues, eigenvectors) of square matrices, complex."""
    _finite("eig", input)
    *found, info = function_of("linalg_eig_core")(input)
    require_success(info, "linalg.eig", "eig")
    return results("linalg_eig", ("eigenvalues", "eigenvectors"), found, out, input, exact=False)


@composite("eigvals", spaces=LINALG)
def eigvals(input: Tensor, *, out: Any = None) -> Tensor:
    """The eigenvalues of square matrices, complex."""
    if _wants_gradient(input):
        return result("linalg_eigvals", eig(input)[0], out, input, exact=False)
    _finite("eigvals", input)
    found, info = function_of("linalg_eigvals_core")(input)
    require_success(info, "linalg.eigvals", "eig")
    return result("linalg_eigvals", found, out, input, exact=False)


# ***** what follows from singular values *****


def _no_complex_bounds(name: str, **bounds: Any) -> None:
    for argument, bound in bounds.items():
        if isinstance(bound, Tensor) and bound._spec.dtype.is_complex:
            raise RuntimeError(
                f"{name}: {argument} tensor of complex type is not supported. Got {bound._spec.dtype.scalar}"
            )


@composite("pinv", spaces=LINALG, cached=True)
def pinv(
    input: Tensor, rcond: Any = None, hermitian: bool = False, *, atol: Any = None, rtol: Any = None, out: Any = None
) -> Tensor:
    """The pseudo-inverse: singular values below max(atol, rtol * greatest) count as 0."""
    _no_complex_bounds("torch.linalg.pinv", atol=atol, rtol=rtol, rcond=rcond)
    if hermitian and input._spec.ndim > 1 and input._spec.shape[-1] != input._spec.shape[-2]:
        raise RuntimeError(
            f"linalg.eigh: A must be batches of square matrices, but they are {input._spec.shape[-2]} by {input._spec.shape[-1]} matrices"
        )
    found, info = function_of("linalg_pinv_core")(
        input, atol=atol, rtol=rcond if rtol is None else rtol, hermitian=hermitian
    )
    require_success(info, "linalg.eigh" if hermitian else "linalg.svd", "eig" if hermitian else "svd")
    if out is None:
        found = lowered(found)  # the last step of PyTorch's is a product of matrices
    return result("linalg_pinv", found, out, input, exact=False)


@composite("pinverse", method=True)
def pinverse(input: Tensor, rcond: float = 1e-15) -> Tensor:
    """`linalg.pinv`."""
    return pinv(input, rcond=rcond)


@composite("matrix_rank", spaces=LINALG, cached=True)
def matrix_rank(
    input: Tensor, tol: Any = None, hermitian: bool = False, *, atol: Any = None, rtol: Any = None, out: Any = None
) -> Tensor:
    """How many singular values are greater than max(atol, rtol * greatest)."""
    low, relative = (atol, rtol) if tol is None else (tol, 0.0)
    _no_complex_bounds("torch.linalg.matrix_rank", atol=low, rtol=relative)
    found, info = function_of("linalg_matrix_rank_core")(input.detach(), atol=low, rtol=relative, hermitian=hermitian)
    require_success(info, "linalg.eigh" if hermitian else "linalg.svd", "eig" if hermitian else "svd")
    return result("linalg_matrix_rank", found, out, exact=False)


@composite("cond", spaces=LINALG, cached=True)
def cond(input: Tensor, p: Any = None, *, out: Any = None) -> Tensor:
    """The condition number in a norm (default: the ratio of the extreme singular values); infinite for singular matrices."""
    if input._spec.ndim < 2:
        raise RuntimeError("linalg.cond: The input tensor must have at least 2 dimensions.")
    real = input._spec.dtype.to_real() if input._spec.dtype.is_complex else input._spec.dtype
    if not input._spec.numel:
        return result(
            "linalg_cond", T["zeros"](input._spec.shape[:-2], dtype=real, device=input.device), out, input, exact=False
        )
    if p is None or p in (2, -2):
        s = svdvals(input)
        first, last = s[..., 0], s[..., -1]
        return result("linalg_cond", last / first if p == -2 else first / last, out, input, exact=False)
    norm = SPACES["linalg"]["matrix_norm"]
    if p not in ("fro", "nuc", 1, -1, math.inf, -math.inf):
        raise RuntimeError(f"linalg.cond got an invalid norm type: {p}")
    if input._spec.shape[-1] != input._spec.shape[-2]:
        raise RuntimeError(
            f"linalg.cond(ord={p}): A must be batches of square matrices, but they are {input._spec.shape[-2]} by {input._spec.shape[-1]} matrices"
        )
    inverted, info = function_of("linalg_inv_ex")(input)
    inverted = inverted.masked_fill((info != 0)[..., None, None], math.inf)
    if p == "nuc":
        found = norm(input, p) * norm(inverted.masked_fill((info != 0)[..., None, None], 0.0), p)
        found = found.masked_fill(info != 0, math.inf)
    else:
        found = T["nan_to_num"](norm(input, p) * norm(inverted, p), math.inf, math.inf, -math.inf)
    return result("linalg_cond", found, out, input, exact=False)


_DRIVERS = ("gels", "gelsy", "gelsd", "gelss")


def _drivers_of(A: Tensor) -> tuple[str, ...]:
    """The drivers of a matrix's device: those of LAPACK where its memory is the host's, else the first."""
    return _DRIVERS if backend_of(A._spec.device).host_readable else _DRIVERS[:1]


def _check_lstsq(A: Tensor, B: Tensor, driver: str, vectors: bool) -> None:
    name = "torch.linalg.lstsq"
    if A._spec.ndim < 2:
        raise RuntimeError(f"{name}: input must have at least 2 dimensions.")
    if B._spec.ndim < 1:
        raise RuntimeError(f"{name}: other must have at least 1 dimension.")
    if A._spec.dtype is not B._spec.dtype:
        words = [CPP_NAME[t._spec.dtype.name] for t in (A, B)]
        raise RuntimeError(
            f"{name}: Expected input and other to have the same dtype, but got input's dtype {words[0]} and other's dtype {words[1]}"
        )
    known = _drivers_of(A)
    if driver not in known:
        raise RuntimeError(f"{name}: parameter `driver` should be one of ({', '.join(known)})")
    if A._spec.shape[-2] != B._spec.shape[-1 if vectors else -2]:
        raise RuntimeError(f"{name}: input.size(-2) should match other.size(-{1 if vectors else 2})")


def _least_squares(A: Tensor, B: Tensor, rcond: float | None, driver: str) -> tuple[Tensor, Tensor]:
    """The solution and A's rank, which is empty with "gels"; only the CPU's drivers look for it."""
    no_rank = T["empty"](0, dtype=INT64, device=A._spec.device)
    if _drivers_of(A) != _DRIVERS:
        return function_of("linalg_lstsq_full_rank")(A, B), no_rank
    (*batch, rows, columns), dtype = A._spec.shape, A._spec.dtype
    small = 2.0**-52 if dtype.to_real().itemsize == 8 else 2.0**-23
    bound = 0.0 if driver == "gels" else small * max(rows, columns) if rcond is None else float(rcond)
    one_batch = broadcast_shapes(tuple(batch), B._spec.shape[:-2]) == tuple(batch)
    pivoted = driver in ("gelsy", "gels") and B._spec.numel and one_batch
    found, rank, info = function_of("linalg_lstsq_pivoted" if pivoted else "linalg_lstsq_core")(A, B, bound)
    require_success(info, "linalg.lstsq", "svd")
    return found, no_rank if driver == "gels" else rank


@composite("lstsq", spaces=LINALG)
@forms("... -> return_types.linalg_lstsq")
def lstsq(input: Tensor, b: Tensor, rcond: float | None = None, *, driver: str | None = None, out: Any = None) -> Any:
    """(solution, residuals, rank, singular_values) of the least squares problem min |A X - B|.

    `driver` is "gelsy" (the default), "gels", "gelsd" or "gelss" on the CPU; elsewhere "gels" alone, for A of full
    rank: RuntimeError for others.
    """
    method = driver.lower() if driver else "gelsy" if "gelsy" in _drivers_of(input) else "gels"
    vectors = b._spec.ndim == 1 or (input._spec.ndim - 1 == b._spec.ndim and b._spec.shape == input._spec.shape[:-1])
    _check_lstsq(input, b, method, vectors)
    b = b.unsqueeze(-1) if vectors else b
    rows, columns = input._spec.shape[-2:]
    found, rank = _least_squares(input, b, rcond, method)
    residuals = found.reshape(-1)[:0]  # empty, and still part of the graph
    residuals = T["real"](residuals) if input._spec.dtype.is_complex else residuals
    if method != "gelsy" and rows > columns and (method == "gels" or bool((rank == columns).all())):
        apart = input @ found - b
        residuals = (T["abs"](apart) ** 2).sum(-2)
    if method in ("gelsd", "gelss"):
        values = svdvals(input.detach())
    else:
        values = T["empty"](0, dtype=input._spec.dtype.to_real(), device=input._spec.device)
    solution = found.squeeze(-1) if vectors else found
    return results(
        "linalg_lstsq",
        ("solution", "residuals", "rank", "singular_values"),
        (solution, residuals, rank, values),
        out,
        input,
        b,
        exact=False,
    )


# ***** functions of matrices *****

_HALVED = 0.5  # the 1-norm from which on a matrix is halved before its series is taken


def _exp_series(x: Any, most: int, parts: int) -> Any:
    """The first terms of e^x in `most + parts - 1` products (Paterson and Stockmeyer, SIAM J. Comput. 2, 1973).

    It is a polynomial in the power `most + 1` of x, whose coefficients, `parts` of them, are polynomials of degree `most`.
    """
    powers = [T["eye"](x._spec.shape[-1], dtype=x._spec.dtype, device=x._spec.device), x]
    for k in range(2, most + 2):
        powers.append(powers[k // 2] @ powers[k - k // 2])
    found = None
    for part in range(parts - 1, -1, -1):
        terms = sum(power / float(math.factorial(part * (most + 1) + k)) for k, power in enumerate(powers[: most + 1]))
        found = terms if found is None else found @ powers[most + 1] + terms
    return found


@composite("matrix_exp", spaces=("linalg", "torch"), method=True)
def matrix_exp(input: Tensor) -> Tensor:
    """e to the power of square matrices: Taylor's series of a part small enough, squared back up (Higham, "Functions of matrices", chapter 10).

    The series has 12 terms in single precision and 20 in double, which leaves out less than a rounding.
    """
    spec = input._spec
    if not (spec.dtype.is_floating_point or spec.dtype.is_complex):
        raise RuntimeError(
            f"linalg.matrix_exp: Expected a floating point or complex tensor as input. Got {CPP_NAME[spec.dtype.name]}"
        )
    if spec.ndim < 2:
        raise RuntimeError("linalg.matrix_exp: The input tensor A must have at least 2 dimensions.")
    if spec.shape[-1] != spec.shape[-2]:
        raise RuntimeError(
            f"linalg.matrix_exp: A must be batches of square matrices, but they are {spec.shape[-2]} by {spec.shape[-1]} matrices"
        )
    if not spec.numel or input._storage is None:
        return input.clone()
    x = input.to(FLOAT32) if spec.dtype.is_floating_point and spec.dtype.itemsize < 4 else input
    greatest = float(function_of("amax")(T["abs"](x.detach()).sum(-1)))
    halvings = max(0, math.ceil(math.log2(greatest / _HALVED))) if greatest > _HALVED and math.isfinite(greatest) else 0
    found = _exp_series(x * (0.5**halvings), *((2, 4) if x._spec.dtype.to_real().itemsize == 4 else (3, 5)))
    for _ in range(halvings):
        found = found @ found
    return found.to(spec.dtype)
