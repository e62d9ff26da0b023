"""Linear algebra by elimination: triangular systems, Cholesky, LU, and functions over them: inverses, systems,
determinants.

Rows whose results include `info` never raise because of numbers; the functions that do (`linalg.cholesky`,
`linalg.inv`, ...) are composites that check `info`.
"""

from __future__ import annotations

from typing import Any

from rushlight._base.errors import warn_once
from rushlight._ops.bodies import CPP_NAME, HALF
from rushlight._ops.table import operator
from rushlight._prims import build, prim
from rushlight._prims.linalg.factor import lower_unit, upper_part
from rushlight._prims.linalg.matrices import diagonal, eye, mH, mT, put_back, reorder, solve, times, tril
from rushlight._types.dtype import INT32, INT64, DType
from rushlight._types.layout import broadcast_shapes, contiguous_strides

__all__ = ["expanded", "floats_only", "fortran", "matrices"]

# ***** what the rows share *****


def fortran(shape: Any, specs: Any) -> Any:
    """Strides of column-major matrices; results with fewer dims than the operand are contiguous."""
    strides = list(contiguous_strides(shape))
    if len(shape) >= 2 and len(shape) >= len(specs[0].shape):
        strides[-2:] = 1, max(shape[-2], 1)
    return tuple(strides)


def columns_first(shape: Any, specs: Any) -> Any:
    """The same, for results of any number of dims."""
    strides = list(contiguous_strides(shape))
    if len(shape) >= 2:
        strides[-2:] = 1, max(shape[-2], 1)
    return tuple(strides)


def matrices(name: str, x: Any, square: bool = False, argument: str = "A") -> None:
    """RuntimeError unless it is a batch of (square) matrices."""
    if len(x.shape) < 2:
        raise RuntimeError(f"{name}: The input tensor {argument} must have at least 2 dimensions.")
    if square and x.shape[-1] != x.shape[-2]:
        raise RuntimeError(
            f"{name}: {argument} must be batches of square matrices, but they are {x.shape[-2]} by {x.shape[-1]} matrices"
        )


def floats_only(name: str, x: Any, kernel: str = "", integers: bool = True) -> None:
    """The errors for dtypes: integers are refused in words (by the kernel unless `integers`), half types by the kernel
    if it is named."""
    known = x.dtype.is_floating_point or x.dtype.is_complex
    word = CPP_NAME[x.dtype.name]
    if not known and (integers or not kernel):
        raise RuntimeError(f"{name}: Expected a floating point or complex tensor as input. Got {word}")
    if (known and x.dtype in HALF) or not known:
        if kernel:
            raise NotImplementedError(f"\"{kernel}\" not implemented for '{word}'")
        raise RuntimeError(f"{name}: Low precision dtypes not supported. Got {word}")


def expanded(x: Any, lead: Any) -> Any:
    """Matrices broadcast to these batch dims."""
    return build.broadcast_to(x, (*lead, *x.shape[-2:]))


def common_batch(*xs: Any) -> tuple[int, ...]:
    """The common batch dims of these matrices."""
    return broadcast_shapes(*(x.shape[:-2] for x in xs))


def _paired(a: Any, b: Any) -> tuple[Any, Any]:
    lead = common_batch(a, b)
    return expanded(a, lead), expanded(b, lead)


def _same(name: str, what: str, a: Any, b: Any) -> None:
    """RuntimeError for two dtypes."""
    if a.dtype is not b.dtype:
        words = CPP_NAME[a.dtype.name], CPP_NAME[b.dtype.name]
        mismatch = f"found {what} of type {words[0]} and B of type {words[1]} instead"
        raise RuntimeError(f"{name}: Expected {what} and B to have the same dtype, but {mismatch}")


# ***** triangular systems *****


def _fits(name: str, a: Any, b: Any, left: bool) -> None:
    if b.shape[-2 if left else -1] != a.shape[-1]:
        raise RuntimeError(
            f"{name}: Incompatible shapes of A and B for the equation {'AX = B' if left else 'XA = B'} "
            f"({a.shape[-2]}x{a.shape[-1]} and {b.shape[-2]}x{b.shape[-1]})"
        )


@operator(
    "solve_triangular(Tensor input, Tensor B, *, bool upper, bool left=True, bool unitriangular=False) -> Tensor", name="linalg_solve_triangular",
    spaces=("linalg",), method=False, out="exact", like=columns_first,
)  # fmt: skip
def solve_triangular(a: Any, b: Any, *, upper: bool, left: bool, unitriangular: bool) -> Any:
    """X with A X = B (X A = B unless `left`) for triangular A; elements beyond the triangle are not read."""
    name = "linalg.solve_triangular"
    matrices(name, a, square=True)
    matrices(name, b, argument="B")
    _fits(name, a, b, left)
    floats_only(name, a, "triangular_solve_cpu", integers=False)
    a, b = _paired(a, build.convert(b, a.dtype))  # the result has the dtype of A
    return solve(a, b, upper=upper, unit=unitriangular, left=left)


@operator(
    "triangular_solve(Tensor input, Tensor A, bool upper=True, bool transpose=False, bool unitriangular=False) "
    "-> (Tensor solution, Tensor cloned_coefficient)",
    out="exact",
    like=columns_first,
)
def triangular_solve(b: Any, a: Any, upper: bool, transpose: bool, unitriangular: bool) -> Any:
    """(X, A) with A X = b for triangular A (A^T X = b with `transpose`)."""
    warn_once(
        "torch.triangular_solve is deprecated in favor of torch.linalg.solve_triangularand will be removed in a future PyTorch release.\n"
        "torch.linalg.solve_triangular has its arguments reversed and does not return a copy of one of the inputs.\n"
        "X = torch.triangular_solve(B, A).solution\nshould be replaced with\nX = torch.linalg.solve_triangular(A, B)."
    )
    for x, what in ((b, "b"), (a, "A")):
        if len(x.shape) < 2:
            raise RuntimeError(
                f"torch.triangular_solve: Expected {what} to have at least 2 dimensions, but it has {len(x.shape)} dimensions instead"
            )
    _legacy_pair("triangular_solve", b, a)
    floats_only("triangular_solve", a, "triangular_solve_cpu", integers=False)
    a, b = _paired(a, b)
    return solve(mT(a) if transpose else a, b, upper=upper != transpose, unit=unitriangular), a


def _legacy_pair(name: str, b: Any, a: Any) -> None:
    """The checks of the legacy functions for systems."""
    if b.dtype is not a.dtype:
        words = CPP_NAME[b.dtype.name], CPP_NAME[a.dtype.name]
        raise RuntimeError(
            f"Expected b and A to have the same dtype, but found b of type {words[0]} and A of type {words[1]} instead."
        )
    if a.shape[-1] != a.shape[-2]:
        raise RuntimeError(
            f"A must be batches of square matrices, but they are {a.shape[-2]} by {a.shape[-1]} matrices"
        )
    if b.shape[-2] != a.shape[-1]:
        raise RuntimeError(
            f"Incompatible matrix sizes for {name}: each A matrix is {a.shape[-1]} by {a.shape[-1]} but each b matrix is "
            f"{b.shape[-2]} by {b.shape[-1]}"
        )


# ***** Cholesky *****


def _cholesky(name: str, a: Any, upper: bool, integers: bool) -> tuple[Any, Any]:
    floats_only(name, a, "cholesky_cpu", integers)
    matrices(name, a, square=True)
    lower, info = prim.cholesky(mH(a) if upper else a)
    return (mH(lower) if upper else lower), info


@operator(
    "cholesky_ex(Tensor A, *, bool upper=False, bool check_errors=False) -> (Tensor L, Tensor info)", name="linalg_cholesky_ex", spaces=("linalg",),
    method=False, out="exact", like=fortran,
)  # fmt: skip
def cholesky_ex(a: Any, *, upper: bool, check_errors: bool) -> Any:
    """(L, info) with A = L L^H, L lower triangular (or U^H U with `upper`); info is the order of the first minor that
    is not positive, or 0."""
    return _cholesky("linalg.cholesky", a, upper, True)


@cholesky_ex.gradient
def _(
    cts: Any, outs: Any, a: Any, *, upper: bool, check_errors: bool
) -> Any:  # PyTorch's choice for imaginary parts of the diagonal
    return _cholesky_gradient(cts[0], outs[0], upper)


def _cholesky_gradient(ct: Any, factor: Any, upper: bool) -> Any:
    """L^-H X L^-1 / 2, where X is the lower triangle of L^H ct, and its conjugate transpose above the diagonal."""
    if ct is None:
        return None
    lower, ct = (mH(factor), mH(ct)) if upper else (factor, ct)
    inner = times(mH(lower), ct)
    below = tril(inner, -1)
    whole = (tril(inner) + mH(below)) * 0.5
    return solve(lower, solve(lower, whole, upper=False, left=False), upper=False, adjoint=True)


@operator(
    "cholesky_core(Tensor input, bool upper=False) -> (Tensor L, Tensor info)",
    spaces=(),
    method=False,
    like=fortran,
    node="CholeskyBackward0",
)
def cholesky_core(a: Any, upper: bool) -> Any:
    """(L, info) with A = L L^H, for `torch.cholesky`."""
    return _cholesky("cholesky", a, upper, False)


@cholesky_core.gradient
def _(cts: Any, outs: Any, a: Any, upper: bool) -> Any:
    return _cholesky_gradient(cts[0], outs[0], upper)


@operator("cholesky_solve(Tensor input, Tensor input2, bool upper=False) -> Tensor", out=True, like=columns_first)
def cholesky_solve(b: Any, factor: Any, upper: bool) -> Any:
    """X with A X = input, given a Cholesky factor of A."""
    for x, what in ((b, "b"), (factor, "u")):
        if len(x.shape) < 2:
            raise RuntimeError(f"{what} should have at least 2 dimensions, but has {len(x.shape)} dimensions instead")
    _legacy_pair("cholesky_solve", b, factor)
    floats_only("cholesky_solve", factor, "cholesky_solve_cpu", integers=False)
    factor, b = _paired(factor, b)
    return _by_cholesky(factor, b, upper)


def _by_cholesky(factor: Any, b: Any, upper: bool) -> Any:
    first = solve(factor, b, upper=upper, adjoint=upper)
    return solve(factor, first, upper=upper, adjoint=not upper)


@cholesky_solve.gradient
def _(
    ct: Any, out: Any, b: Any, factor: Any, upper: bool
) -> Any:  # PyTorch's: the factor's gradient is not cut to its triangle
    factor, b = _paired(factor, b)
    to_b = _by_cholesky(factor, ct, upper)
    both = times(to_b, mH(out))
    both = both + mH(both)
    return to_b, -(times(factor, both) if upper else times(both, factor))


@operator("cholesky_inverse(Tensor input, bool upper=False) -> Tensor", out=True, like=columns_first)
def cholesky_inverse(factor: Any, upper: bool) -> Any:
    """(L L^H)^-1 (or (U^H U)^-1 with `upper`): the inverse of A, given a Cholesky factor of it."""
    matrices("cholesky_inverse", factor, square=True)
    floats_only("cholesky_inverse", factor, "cholesky_inverse_out_cpu", integers=False)
    return _by_cholesky(factor, eye(factor, factor.shape[-1]), upper)


@cholesky_inverse.gradient
def _(ct: Any, out: Any, factor: Any, upper: bool) -> Any:  # PyTorch's: not cut to the triangle either
    both = times(out, ct + mH(ct), out)
    return -(times(factor, both) if upper else times(both, factor))


# ***** LU *****


def _lu(name: str, a: Any, pivot: bool) -> tuple[Any, Any, Any]:
    if len(a.shape) < 2:
        raise RuntimeError(f"{name}: Expected tensor with 2 or more dimensions. Got size: {list(a.shape)} instead")
    floats_only(name, a, "lu_cpu", integers=False)
    if not pivot:
        raise RuntimeError("linalg.lu_factor: LU without pivoting is not implemented on the CPU")
    return prim.lu(a)


@operator(
    "lu_factor_ex(Tensor A, *, bool pivot=True, bool check_errors=False) -> (Tensor LU, Tensor pivots, Tensor info)", name="linalg_lu_factor_ex",
    spaces=("linalg",), method=False, out="exact", like=fortran,
)  # fmt: skip
def lu_factor_ex(a: Any, *, pivot: bool, check_errors: bool) -> Any:
    """(LU, pivots, info): both triangles in one matrix, the row that each was exchanged with (from 1), and the first
    zero on U's diagonal, or 0."""
    return _lu("torch.lu_factor", a, pivot)


def _orders(pivots: Any, rows: int) -> Any:
    return prim.permutation(pivots, size=rows)


def _permutation_matrix(order: Any, dtype: DType) -> Any:
    """P with A = P L U: its column j has a 1 in row order[j]."""
    shape = (*order.shape, order.shape[-1])
    n = len(shape)
    spread = prim.broadcast(order, shape=shape, dims=(*range(n - 2), n - 1))
    return build.convert(build.eq(prim.iota(shape=shape, dim=n - 2, dtype=INT64), spread), dtype)


def _unpacked(both: Any, pivots: Any) -> tuple[Any, Any, Any]:
    return _permutation_matrix(_orders(pivots, both.shape[-2]), both.dtype), lower_unit(both), upper_part(both)


@operator(
    "lu(Tensor A, *, bool pivot=True) -> (Tensor P, Tensor L, Tensor U)", name="linalg_lu", spaces=("linalg",), method=False, out="exact",
    like="contiguous",
)  # fmt: skip
def lu(a: Any, *, pivot: bool) -> Any:
    """(P, L, U) with A = P L U: a permutation, a lower triangle with ones on its diagonal, an upper triangle."""
    both, pivots, _ = _lu("linalg.lu", a, pivot)
    return _unpacked(both, pivots)


@operator(
    "lu_unpack(Tensor LU_data, Tensor LU_pivots, bool unpack_data=True, bool unpack_pivots=True) -> (Tensor P, Tensor L, Tensor U)",
    method=False,
    out="exact",
    like="contiguous",
)
def lu_unpack(both: Any, pivots: Any, unpack_data: bool, unpack_pivots: bool) -> Any:
    """(P, L, U) with A = P L U, from the result of `lu_factor`; results that are not requested are empty."""
    if len(both.shape) < 2:
        raise RuntimeError(
            f"torch.lu_unpack: Expected tensor with 2 or more dimensions. Got size: {list(both.shape)} instead"
        )
    if pivots.dtype is not INT32:
        raise RuntimeError(
            "torch.lu_unpack: LU_pivots is expected to be a contiguous tensor of torch.int32 dtype.\n"
            "Note: this function is intended to be used with the output produced by torch.linalg.lu_factor"
        )
    if unpack_pivots and pivots.shape[-1:] != (min(both.shape[-2:]),):
        raise RuntimeError(
            "pivots passed to lu_unpack must be between 1 and LU.size(-2) inclusive.Did you properly pass the result of lu_factor?"
        )
    if unpack_pivots and pivots.shape[:-1] != both.shape[:-2]:  # as many permutations as factors
        pivots = build.broadcast_to(pivots, (*both.shape[:-2], pivots.shape[-1]))
    empty = build.full((0,), 0, both.dtype)
    P = _permutation_matrix(_orders(pivots, both.shape[-2]), both.dtype) if unpack_pivots else empty
    L, U = (lower_unit(both), upper_part(both)) if unpack_data else (empty, empty)
    return P, L, U


# ***** systems *****


def by_lu(both: Any, order: Any, b: Any, how: str = "plain") -> Any:
    """X with A X = B from the factors of A; `how` replaces A by A^T ("transpose") or A^H ("adjoint")."""
    if how == "plain":
        return solve(both, solve(both, reorder(b, order), upper=False, unit=True), upper=True)
    both = build.conj(both) if how == "adjoint" else both
    transposed = mT(both)
    solution = solve(transposed, solve(transposed, b, upper=False), upper=True, unit=True)
    return put_back(solution, order)


def _system(both: Any, order: Any, b: Any, left: bool, adjoint: bool = False) -> Any:
    """A X = B or X A = B, with broadcast factors and B."""
    lead = common_batch(both, b)
    b, both = expanded(b, lead), expanded(both, lead)
    order = build.broadcast_to(order, (*lead, order.shape[-1]))
    if left:
        return by_lu(both, order, b, "adjoint" if adjoint else "plain")
    if adjoint:  # X A^H = B: A X^H = B^H
        return mH(by_lu(both, order, mH(b)))
    return mT(by_lu(both, order, mT(b), "transpose"))


def _of_vectors(a: Any, b: Any) -> bool:
    """Whether B holds vectors rather than matrices."""
    return len(b.shape) == 1 or (len(a.shape) - 1 == len(b.shape) and b.shape == a.shape[:-1])


def _solve(a: Any, b: Any, left: bool) -> tuple[Any, ...]:
    name = "linalg.solve"
    floats_only(name, a)
    matrices(name, a, square=True)
    _same(name, "A", a, b)
    if not b.shape:
        raise RuntimeError(f"{name}: The input tensor B must have at least 1 dimension.")
    vectors = _of_vectors(a, b)
    columns = build.reshape(b, (*b.shape, 1)) if vectors else b
    _fits(name, a, columns, left)
    if vectors and not left:
        raise RuntimeError(
            f"{name}: Vector broadcasting of the left hand side is not supported for left=False. In this case linalg.solve is equivalent to "
            "B / A.squeeze(-1)"
        )
    both, pivots, info = prim.lu(a)
    order = _orders(pivots, a.shape[-1])
    solution = _system(both, order, columns, left)
    return (build.reshape(solution, solution.shape[:-1]) if vectors else solution), info, both, order


def _solve_gradient(cts: Any, outs: Any, a: Any, b: Any, left: bool) -> Any:
    """The gradient of B solves the adjoint system; that of A is its product with the solution."""
    (x, _, both, order), ct = outs, cts[0]
    if ct is None:
        return None, None
    if _of_vectors(a, b):
        to_b = _system(both, order, build.reshape(ct, (*ct.shape, 1)), left, adjoint=True)
        n = len(x.shape)
        row = prim.broadcast(build.conj(x), shape=(*x.shape, x.shape[-1]), dims=(*range(n - 1), n))
        return -(build.broadcast_to(to_b, row.shape) * row), build.reshape(to_b, ct.shape)
    to_b = _system(both, order, ct, left, adjoint=True)
    to_a = -(times(to_b, mH(x)) if left else mH(times(mH(to_b), x)))  # x itself is read, so that it is the saved value
    return to_a, to_b


@operator(
    "solve_ex(Tensor A, Tensor B, *, bool left=True, bool check_errors=False) -> (Tensor result, Tensor info)", name="linalg_solve_ex",
    spaces=("linalg",), method=False, out="exact", like=columns_first,
)  # fmt: skip
def solve_ex(a: Any, b: Any, *, left: bool, check_errors: bool) -> Any:
    """(X, info) with A X = B, or X A = B unless `left`; B may hold vectors.  info is not 0 where A is singular."""
    return _solve(a, b, left)


@solve_ex.gradient
def _(cts: Any, outs: Any, a: Any, b: Any, *, left: bool, check_errors: bool) -> Any:  # A is not factored a second time
    return _solve_gradient(cts, outs, a, b, left)


@operator(
    "solve_right_core(Tensor A, Tensor B) -> (Tensor result, Tensor info)", spaces=(), method=False, like="contiguous", node="LinalgSolveExBackward0",
)  # fmt: skip
def solve_right(a: Any, b: Any) -> Any:
    """(X, info) with X A = B: `linalg.solve_ex` with `left=False`, whose result is row-major."""
    return _solve(a, b, False)


@solve_right.gradient
def _(cts: Any, outs: Any, a: Any, b: Any) -> Any:
    return _solve_gradient(cts, outs, a, b, False)


def _lu_solve(both: Any, pivots: Any, b: Any, left: bool, adjoint: bool) -> Any:
    name = "linalg.lu_solve"
    floats_only(name, both)
    _same(name, "LU", both, b)
    if pivots.dtype is not INT32:
        raise RuntimeError(f"{name}: pivots should be a Tensor of scalar type torch.int32")
    matrices("torch.linalg.lu_solve", both, square=True)
    matrices(name, b, argument="B")
    _fits(name, both, b, left)
    if pivots.shape[-1:] != both.shape[-1:]:
        raise RuntimeError(f"{name}: Number of pivots per batch should be same as the dimension of the matrix")
    if pivots.shape != both.shape[:-1]:
        raise RuntimeError(
            f"{name}: Expected LU.shape[:-1] and pivots.shape to be the same, but got pivots with shape {list(pivots.shape)} instead"
        )
    return _system(both, _orders(pivots, both.shape[-1]), b, left, adjoint)


@operator(
    "lu_solve(Tensor LU, Tensor pivots, Tensor B, *, bool left=True, bool adjoint=False) -> Tensor", name="linalg_lu_solve", spaces=("linalg",),
    method=False, out="exact", like=columns_first,
)  # fmt: skip
def linalg_lu_solve(both: Any, pivots: Any, b: Any, *, left: bool, adjoint: bool) -> Any:
    """X with A X = B (X A = B unless `left`), given the factors of A; `adjoint` replaces A by A^H."""
    return _lu_solve(both, pivots, b, left, adjoint)


@operator(
    "lu_solve_right_core(Tensor LU, Tensor pivots, Tensor B, *, bool adjoint=False) -> Tensor",
    spaces=(),
    method=False,
    like="contiguous",
    node="LinalgLuSolveBackward0",
)
def lu_solve_right(both: Any, pivots: Any, b: Any, *, adjoint: bool) -> Any:
    """X with X A = B: `linalg.lu_solve` with `left=False`, whose result is row-major."""
    return _lu_solve(both, pivots, b, False, adjoint)


@operator(
    "lu_solve(Tensor input, Tensor LU_data, Tensor LU_pivots) -> Tensor",
    out="exact",
    like=columns_first,
    node="LinalgLuSolveBackward0",
)
def lu_solve(b: Any, both: Any, pivots: Any) -> Any:
    """X with A X = input, given the factors of A."""
    warn_once(
        "torch.lu_solve is deprecated in favor of torch.linalg.lu_solve and will be removed in a future PyTorch release.\nNote that torch.linalg.lu_solve "
        "has its arguments reversed.\nX = torch.lu_solve(B, LU, pivots)\nshould be replaced with\nX = torch.linalg.lu_solve(LU, pivots, B)"
    )
    return _lu_solve(both, pivots, b, True, False)


# ***** inverses *****


@operator(
    "inv_ex(Tensor A, *, bool check_errors=False) -> (Tensor inverse, Tensor info)", name="linalg_inv_ex", spaces=("linalg",), method=False,
    out="exact", like=fortran,
)  # fmt: skip
def inv_ex(a: Any, *, check_errors: bool) -> Any:
    """(inverse, info) of square matrices; info is not 0 where one is singular."""
    floats_only("linalg.inv", a)
    matrices("linalg.inv", a, square=True)
    both, pivots, info = prim.lu(a)
    return by_lu(both, _orders(pivots, a.shape[-1]), eye(a, a.shape[-1])), info


@inv_ex.gradient
def _(cts: Any, outs: Any, a: Any, *, check_errors: bool) -> Any:  # two products instead of six systems
    if cts[0] is None:
        return None
    inverse = mH(outs[0])
    return -times(inverse, cts[0], inverse)


# ***** determinants *****


def _signs(pivots: Any, dtype: DType) -> Any:
    """-1 for each exchange."""
    rows = prim.iota(shape=pivots.shape, dim=len(pivots.shape) - 1, dtype=INT32) + 1
    return build.select(build.eq(rows, pivots), build.full(pivots.shape, 1, dtype), build.full(pivots.shape, -1, dtype))


def _det(a: Any) -> Any:
    floats_only("linalg.det", a, "lu_cpu")
    matrices("linalg.det", a, square=True)
    return prim.minors(a, drop=0)


@operator("det(Tensor A) -> Tensor", name="linalg_det", spaces=("linalg",), method=False, out="exact")
def linalg_det(a: Any) -> Any:
    """det(A), of square matrices (..., n, n)."""
    return _det(a)


@operator("det(Tensor input) -> Tensor", node="LinalgDetBackward0")
def det(a: Any) -> Any:
    """`linalg.det`."""
    return _det(a)


def _slogdet(name: str, a: Any) -> tuple[Any, Any]:
    floats_only(name, a)
    matrices(name, a, square=True)
    both, pivots, _ = prim.lu(a)
    dims = (len(pivots.shape) - 1,)
    on = diagonal(both)
    sizes = prim.abs(on)
    if a.dtype.is_complex:
        wide = build.complex_(sizes)
        units = build.select(build.eq(sizes, 0.0), build.zeros_like(on), on / wide)
    else:
        units = prim.sign(on)
    return prim.prod(units * _signs(pivots, a.dtype), dims=dims), prim.sum(prim.log(sizes), dims=dims)


@operator(
    "slogdet(Tensor A) -> (Tensor sign, Tensor logabsdet)",
    name="linalg_slogdet",
    spaces=("linalg",),
    method=False,
    out="exact",
)
def linalg_slogdet(a: Any) -> Any:
    """(det(A) / |det(A)|, log |det(A)|) of square matrices."""
    return _slogdet("linalg.slogdet", a)


@operator("slogdet(Tensor input) -> (Tensor sign, Tensor logabsdet)", node="LinalgSlogdetBackward0", out="exact")
def slogdet(a: Any) -> Any:
    """`linalg.slogdet`."""
    return _slogdet("linalg.slogdet", a)


@operator("logdet(Tensor input) -> Tensor", node="WhereBackward0")
def logdet(a: Any) -> Any:
    """log(det(A)); NaN where the determinant is negative."""
    sign, size = _slogdet("logdet", a)
    if a.dtype.is_complex:
        return build.complex_(size) + prim.log(sign)
    return build.select(build.eq(sign, -1.0), build.full_like(size, float("nan")), size)


# ***** LDL *****

_PACKED = "LAPACK packs the factors with its pivots"


@operator(
    "ldl_factor_ex(Tensor A, *, bool hermitian=False, bool check_errors=False) -> (Tensor LD, Tensor pivots, Tensor info)",
    name="linalg_ldl_factor_ex", spaces=("linalg",), method=False, out="exact", like=fortran, underivable=_PACKED,
)  # fmt: skip
def ldl_factor_ex(a: Any, *, hermitian: bool, check_errors: bool) -> Any:
    """A = L D L^T (L^H where Hermitian) as (LD, pivots, info) in LAPACK's compact form; the lower triangle is read."""
    name = "torch.linalg.ldl_factor_ex"
    matrices(name, a, square=True)
    floats_only(name, a, "ldl_factor_kernel_cpu")
    return prim.ldl(tril(a), hermitian=hermitian)


@operator(
    "ldl_solve(Tensor LD, Tensor pivots, Tensor B, *, bool hermitian=False) -> Tensor", name="linalg_ldl_solve", spaces=("linalg",), method=False,
    out="exact", like=columns_first, underivable=_PACKED,
)  # fmt: skip
def ldl_solve(factors: Any, pivots: Any, b: Any, *, hermitian: bool) -> Any:
    """X with A X = B, from the factors that `ldl_factor` gives."""
    name = "torch.linalg.ldl_solve"
    matrices(name, factors, square=True)
    if len(b.shape) < 2:
        raise IndexError("Dimension out of range (expected to be in range of [-1, 0], but got -2)")
    _legacy_pair(name, b, factors)
    if pivots.shape != factors.shape[:-1]:
        raise RuntimeError(
            f"{name}: Expected LD.shape[:-1] and pivots.shape to be the same, but got pivots with shape {list(pivots.shape)} instead"
        )
    if not pivots.dtype.is_integer:
        raise RuntimeError(f"{name}: Expected pivots to be integers. Got {CPP_NAME[pivots.dtype.name]}")
    floats_only(name, factors, "ldl_solve_kernel_cpu")
    factors, b = _paired(factors, b)
    pivots = build.broadcast_to(build.convert(pivots, INT32), factors.shape[:-1])
    return prim.ldl_solve(factors, pivots, b, hermitian=hermitian)
