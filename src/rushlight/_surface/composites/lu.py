"""LU factors with partial pivoting, and products of Householder reflections."""

from __future__ import annotations

from typing import Any

from rushlight._base.lazy import numpy as np
from rushlight._engine.hosted import hosted
from rushlight._engine.results import OUT, result_type_of
from rushlight._engine.tensor import Tensor
from rushlight._surface.composites.measures import into
from rushlight._surface.registry import SPACES, composite
from rushlight._types.dtype import INT32

__all__: list[str] = []

T = SPACES["torch"]
LINALG = ("linalg",)


def _named(name: str, fields: tuple[str, ...], values: Any, out: Any = None) -> Any:
    if out is None:
        return result_type_of(name, fields)(values)
    return result_type_of(name + OUT, fields)([into(o, v) for o, v in zip(out, values, strict=True)])


def _h(x: Any) -> Any:
    turned = x.transpose(-2, -1)
    return T["conj"](turned) if x.is_complex() else turned


# ***** factoring *****


def _eliminate(a: Any, pivot: bool) -> tuple[Any, Any]:
    """(L and U in one array, pivots from 1) of matrices [..., M, N]: Gauss's elimination, all of a batch at once."""
    lead, (rows, columns) = a.shape[:-2], a.shape[-2:]
    x = a.reshape(-1, rows, columns).copy()
    batch, k = np.arange(x.shape[0]), min(rows, columns)
    pivots = np.tile(np.arange(1, k + 1, dtype="int32"), (x.shape[0], 1))
    for j in range(k):
        if pivot and x.shape[0]:
            best = j + np.abs(x[:, j:, j]).argmax(1)
            pivots[:, j] = best + 1
            x[batch, j], x[batch, best] = x[batch, best], x[batch, j]
        top = x[:, j, j]
        safe = np.where(top == 0, 1, top)
        x[:, j + 1 :, j] /= safe[:, None]
        x[:, j + 1 :, j + 1 :] -= x[:, j + 1 :, j, None] * x[:, j, None, j + 1 :]
    return x.reshape(a.shape), pivots.reshape(*lead, k)


def _orders(pivots: Any, rows: int) -> Any:
    """The order of rows that a list of exchanges leads to."""
    flat = pivots.reshape(-1, pivots.shape[-1])
    order = np.tile(np.arange(rows), (flat.shape[0], 1))
    batch = np.arange(flat.shape[0])
    for j in range(flat.shape[1]):
        other = flat[:, j] - 1
        order[batch, j], order[batch, other] = order[batch, other], order[batch, j].copy()
    return order.reshape(*pivots.shape[:-1], rows)


def _permutation(pivots: Tensor, rows: int, dtype: Any) -> Any:
    """P with A = P L U."""
    order = _orders(pivots.numpy(), rows)  # type: ignore[attr-defined]
    matrix = (order[..., None, :] == np.arange(rows)[:, None]).astype(dtype.numpy_name)
    return T["from_numpy"](matrix)


def _lower(x: Any, k: int) -> Any:
    part = T["tril"](x[..., :, :k], -1)
    rows = x._spec.shape[-2]
    return part + T["eye"](rows, k, dtype=x.dtype)


def _upper(x: Any, k: int) -> Any:
    return T["triu"](x[..., :k, :])


def _gradient(grads: Any, inputs: Any, outputs: Any) -> Any:
    """For A = P L U with L and U in one matrix (Murray, "Differentiation of the Cholesky decomposition", for LU)."""
    if grads[0] is None:
        return [None]
    factors, pivots = outputs
    rows, columns = factors._spec.shape[-2:]
    k = min(rows, columns)
    P = _permutation(pivots.detach(), rows, factors.dtype)
    L, U = _lower(factors, k), _upper(factors, k)
    g = grads[0]
    if rows == columns:
        inner = T["tril"](_h(L) @ g, -1) + T["triu"](g @ _h(U))
        return [P @ _right(_left(L, inner), U)]
    solve = SPACES["linalg"]["solve"]
    if rows < columns:  # A = P L [U1 U2]
        U1, U2 = U[..., :k], U[..., k:]
        g1, g2 = g[..., :k], g[..., k:]
        inner = T["tril"](_h(L) @ g1, -1) + T["triu"](g1 @ _h(U1)) - T["tril"](g2 @ _h(U2), -1)
        first = _left(L, _right_of(inner, U1))
        second = solve(_h(L), g2)
        return [P @ T["cat"]([first, second], -1)]
    L1, L2 = L[..., :k, :], L[..., k:, :]
    g1, g2 = g[..., :k, :], g[..., k:, :]
    inner = T["tril"](_h(L1) @ g1, -1) + T["triu"](g1 @ _h(U)) - T["triu"](_h(L2) @ g2)
    first = _right_of(_left(L1, inner), U)
    second = _right_of(g2, U)
    return [P @ T["cat"]([first, second], -2)]


def _left(L: Any, x: Any) -> Any:
    """L^-H x."""
    return SPACES["linalg"]["solve"](_h(L), x)


def _right(x: Any, U: Any) -> Any:
    """x U^-H."""
    return _right_of(x, U)


def _right_of(x: Any, U: Any) -> Any:
    return SPACES["linalg"]["solve"](_h(U), x, left=False)


def _factors(name: str, A: Tensor, pivot: bool) -> tuple[Any, Any]:
    if A._spec.ndim < 2:
        raise RuntimeError(f"linalg.{name}: The input tensor A must have at least 2 dimensions.")
    if not (A._spec.dtype.is_floating_point or A._spec.dtype.is_complex) or A._spec.dtype.itemsize < 4:
        raise RuntimeError(
            f"linalg.{name}: Expected a floating point or complex tensor as input. Got {A._spec.dtype.name}"
        )
    if not pivot:
        raise RuntimeError(f"linalg.{name}: LU without pivoting is not implemented on the CPU")
    made = hosted("LinalgLuFactorExBackward0", lambda a: _eliminate(a, pivot), [A], _gradient)
    return made[0], made[1]


@composite("lu_factor", spaces=LINALG)
def lu_factor(A: Tensor, *, pivot: bool = True, out: Any = None) -> Any:
    """(LU, pivots): both triangles in one matrix, and with which row each was exchanged (counted from 1)."""
    return _named("linalg_lu_factor", ("LU", "pivots"), _factors("lu_factor", A, pivot), out)


@composite("lu_factor_ex", spaces=LINALG)
def lu_factor_ex(A: Tensor, *, pivot: bool = True, check_errors: bool = False, out: Any = None) -> Any:
    """`lu_factor` and info: not 0 where U is singular."""
    LU, pivots = _factors("lu_factor_ex", A, pivot)
    info = T["zeros"](A._spec.shape[:-2], dtype=INT32)
    return _named("linalg_lu_factor_ex", ("LU", "pivots", "info"), (LU, pivots, info), out)


@composite("lu", spaces=LINALG)
def linalg_lu(A: Tensor, *, pivot: bool = True, out: Any = None) -> Any:
    """(P, L, U) with A = P L U."""
    LU, pivots = _factors("lu", A, pivot)
    k = min(A._spec.shape[-2:])
    values = (_permutation(pivots, A._spec.shape[-2], A._spec.dtype), _lower(LU, k), _upper(LU, k))
    return _named("linalg_lu", ("P", "L", "U"), values, out)


@composite("lu", method=True)
def lu(A: Tensor, pivot: bool = True, get_infos: bool = False, out: Any = None) -> Any:
    """(LU, pivots), with `get_infos` also info."""
    LU, pivots = _factors("lu", A, pivot)
    fields: tuple[str, ...] = ("LU", "pivots")
    values: tuple[Any, ...] = (LU, pivots)
    if get_infos:
        fields, values = (*fields, "info"), (*values, T["zeros"](A._spec.shape[:-2], dtype=INT32))
    return _named("lu", fields, values, out)


@composite("lu_unpack")
def lu_unpack(
    LU_data: Tensor, LU_pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True, *, out: Any = None
) -> Any:
    """(P, L, U) from what `lu_factor` gives."""
    if LU_pivots._spec.dtype is not INT32:
        raise RuntimeError("torch.lu_unpack: LU_pivots is expected to be a contiguous tensor of torch.int32 dtype.")
    rows, columns = LU_data._spec.shape[-2:]
    k = min(rows, columns)
    empty = T["empty"](0, dtype=LU_data.dtype)
    P = _permutation(LU_pivots, rows, LU_data._spec.dtype) if unpack_pivots else empty
    L, U = (_lower(LU_data, k), _upper(LU_data, k)) if unpack_data else (empty, empty)
    return _named("lu_unpack", ("P", "L", "U"), (P, L, U), out)


@composite("lu_solve", spaces=LINALG)
def linalg_lu_solve(
    LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool = True, adjoint: bool = False, out: Any = None
) -> Tensor:
    """X with A X = B (X A = B if `left` is False), given the factors of A; `adjoint` for those of A^H."""
    if LU._spec.shape[-1] != LU._spec.shape[-2]:
        raise RuntimeError("linalg.lu_solve: LU must be batches of square matrices")
    size = LU._spec.shape[-1]
    P = _permutation(pivots, size, LU._spec.dtype)
    A = P @ _lower(LU, size) @ _upper(LU, size)
    return into(out, SPACES["linalg"]["solve"](_h(A) if adjoint else A, B, left=left))  # type: ignore[no-any-return]


@composite("lu_solve", method=True)
def lu_solve(b: Tensor, LU_data: Tensor, LU_pivots: Tensor, *, out: Any = None) -> Tensor:
    """X with A X = b, given the factors of A."""
    return linalg_lu_solve(LU_data, LU_pivots, b, out=out)  # type: ignore[no-any-return]


# ***** reflections *****


def _reflected(A: Any, tau: Any, x: Any, order: Any, adjoint: bool) -> Any:
    """Reflections I - tau v v^H applied to x from the left, where v lies below the diagonal of A with 1 on it."""
    rows = A._spec.shape[-2]
    place = T["arange"](rows)
    for i in order:
        below = T["where"](place > i, A[..., i], 0)
        v = (below + (place == i).to(A.dtype)).unsqueeze(-1)
        factor = tau[..., i, None, None]
        factor = T["conj"](factor) if adjoint and factor.is_complex() else factor
        x = x - factor * (v @ (_h(v) @ x))
    return x


@composite("householder_product", spaces=LINALG)
def householder_product(A: Tensor, tau: Tensor, *, out: Any = None) -> Tensor:
    """The first columns of the product of the reflections that `geqrf` stores in A and tau."""
    if A._spec.ndim < 2:
        raise RuntimeError("torch.linalg.householder_product: input must have at least 2 dimensions.")
    rows, columns = A._spec.shape[-2:]
    if rows < columns:
        raise RuntimeError(
            "torch.linalg.householder_product: input.shape[-2] must be greater than or equal to input.shape[-1]"
        )
    if columns < tau._spec.shape[-1]:
        raise RuntimeError(
            "torch.linalg.householder_product: input.shape[-1] must be greater than or equal to tau.shape[-1]"
        )
    if tuple(A._spec.shape[:-2]) != tuple(tau._spec.shape[:-1]):
        raise RuntimeError(
            f"torch.linalg.householder_product: Expected batch dimensions of tau to be equal to input.shape[:-2], but got {list(tau.shape[:-1])}"
        )
    if A._spec.dtype is not tau._spec.dtype:
        raise RuntimeError(
            f"torch.linalg.householder_product: tau dtype {tau._spec.dtype.name} does not match input dtype {A._spec.dtype.name}"
        )
    start = T["eye"](rows, columns, dtype=A.dtype).expand(*A._spec.shape[:-2], rows, columns)
    found = _reflected(A, tau, start, range(tau._spec.shape[-1] - 1, -1, -1), False)
    if not tau._spec.shape[-1] or not found._spec.numel:
        found = A.clone().copy_(found)  # nothing to reflect, but the result still belongs to the graph  # type: ignore[attr-defined]
    return into(out, found)  # type: ignore[no-any-return]


@composite("orgqr", method=True)
def orgqr(input: Tensor, tau: Tensor, *, out: Any = None) -> Tensor:
    """`linalg.householder_product`."""
    return householder_product(input, tau, out=out)  # type: ignore[no-any-return]


@composite("ormqr", method=True)
def ormqr(
    input: Tensor, tau: Tensor, other: Tensor, left: bool = True, transpose: bool = False, *, out: Any = None
) -> Tensor:
    """`other` times Q (or Q^H) from the left or the right, where Q is given by its reflections."""
    count = tau._spec.shape[-1]
    if input._spec.ndim < 2:
        raise RuntimeError("torch.ormqr: input must have at least 2 dimensions.")
    if other._spec.ndim < 2:
        raise RuntimeError("torch.ormqr: other must have at least 2 dimensions.")
    side = other._spec.shape[-2 if left else -1]
    if input._spec.shape[-2] != side:
        raise RuntimeError(f"torch.ormqr: other.shape[{-2 if left else -1}] must be equal to input.shape[-2]")
    if count != min(side, input._spec.shape[-1]):
        raise RuntimeError("torch.ormqr: tau.shape[-1] must be equal to min(other.shape[-2], input.shape[-1])")
    if not left:
        return into(out, _h(ormqr(input, tau, _h(other), True, not transpose)))  # type: ignore[no-any-return]
    order = range(count) if transpose else range(count - 1, -1, -1)
    return into(out, _reflected(input, tau, other, order, transpose))  # type: ignore[no-any-return]


@composite("geqrf", method=True)
def geqrf(input: Tensor, *, out: Any = None) -> Any:
    """(a, tau): R above and the reflections that make Q below the diagonal."""

    def compute(a: Any) -> Any:
        lead, (rows, columns) = a.shape[:-2], a.shape[-2:]
        k = min(rows, columns)
        if a.size == 0:
            return a.copy(), np.zeros((*lead, k), a.dtype)
        turned, tau = np.linalg.qr(a, "raw")
        return np.swapaxes(turned, -1, -2), tau

    found = hosted("GeqrfBackward0", compute, [input], _no_geqrf)
    return _named("geqrf", ("a", "tau"), found, out)


def _no_geqrf(*_: Any) -> Any:
    raise NotImplementedError("the derivative for 'geqrf' is not implemented.")
