"""Functions of linear algebra that PyTorch makes of several operators above autograd."""

from __future__ import annotations

import math
from typing import Any

import rushlight
from rushlight.library.aten.composites import aten, reshaped
from rushlight.library.aten.composites.products import matmul
from rushlight.library.aten.handlers import handles

__all__: list[str] = []

Tensor = rushlight.Tensor


def _named(space: str, name: str, made: tuple[Any, ...]) -> Any:
    kind = getattr(rushlight.return_types, f"{space}_{name}" if space else name, None)
    return made if kind is None else kind(made)


@handles("linalg_inv inverse")
def inv(A: Any, *, out: Any = None) -> Any:
    if out is not None:
        return NotImplemented
    made, info = aten("linalg_inv_ex")(A)
    aten("_linalg_check_errors")(info, "linalg.inv", is_matrix=A.dim() == 2)
    return made


@handles("linalg_cholesky")
def cholesky(input: Any, *, upper: bool = False, out: Any = None) -> Any:
    if out is not None:
        return NotImplemented
    made, info = aten("linalg_cholesky_ex")(input, upper=upper)
    aten("_linalg_check_errors")(info, "linalg.cholesky", is_matrix=input.dim() == 2)
    return made


@handles("linalg_det det")
def det(A: Any, *, out: Any = None) -> Any:
    return NotImplemented if out is not None else aten("_linalg_det")(A)[0]


@handles("linalg_slogdet slogdet")
def slogdet(A: Any, *, out: Any = None) -> Any:
    return NotImplemented if out is not None else _named("linalg", "slogdet", tuple(aten("_linalg_slogdet")(A)[:2]))


@handles("logdet")
def logdet(input: Any) -> Any:
    sign, value = aten("_linalg_slogdet")(input)[:2]
    mask = aten("eq.Scalar")(sign, -1)
    missing = aten("scalar_tensor")(math.nan, dtype=value.dtype, layout=value.layout, device=value.device)
    return aten("where.self")(mask, missing, value)


@handles("linalg_solve")
def solve(A: Any, B: Any, *, left: bool = True, out: Any = None) -> Any:
    if out is not None:
        return NotImplemented
    made = aten("_linalg_solve_ex")(A, B, left=left)
    aten("_linalg_check_errors")(made[3], "torch.linalg.solve", is_matrix=A.dim() == 2)
    return made[0]


@handles("linalg_solve_ex")
def solve_ex(A: Any, B: Any, *, left: bool = True, check_errors: bool = False, out: Any = None) -> Any:
    if out is not None:
        return NotImplemented
    made = aten("_linalg_solve_ex")(A, B, left=left, check_errors=check_errors)
    return _named("linalg", "solve_ex", (made[0], made[3]))


@handles("linalg_lu_factor")
def lu_factor(A: Any, *, pivot: bool = True, out: Any = None) -> Any:
    if out is not None:
        return NotImplemented
    made = aten("linalg_lu_factor_ex")(A, pivot=pivot)
    aten("_linalg_check_errors")(made[2], "torch.linalg.lu_factor", is_matrix=A.dim() == 2)
    return _named("linalg", "lu_factor", tuple(made[:2]))


@handles("lu")
def lu(A: Any, pivot: bool = True, get_infos: bool = False, out: Any = None) -> Any:
    if out is not None:
        return NotImplemented
    made = aten("linalg_lu_factor_ex")(A, pivot=pivot)
    return tuple(made) if get_infos else tuple(made[:2])


@handles("lu_solve")
def lu_solve(b: Any, LU_data: Any, LU_pivots: Any, *, out: Any = None) -> Any:
    return NotImplemented if out is not None else aten("linalg_lu_solve")(LU_data, LU_pivots, b)


@handles("linalg_ldl_factor")
def ldl_factor(A: Any, *, hermitian: bool = False, out: Any = None) -> Any:
    if out is not None:
        return NotImplemented
    made = aten("linalg_ldl_factor_ex")(A, hermitian=hermitian)
    aten("_linalg_check_errors")(made[2], "torch.linalg.ldl_factor", is_matrix=A.dim() == 2)
    return _named("linalg", "ldl_factor", tuple(made[:2]))


@handles("linalg_eigh")
def eigh(A: Any, UPLO: str = "L", *, out: Any = None) -> Any:
    return NotImplemented if out is not None else _named("linalg", "eigh", tuple(aten("_linalg_eigh")(A, UPLO)))


@handles("linalg_eigvalsh")
def eigvalsh(A: Any, UPLO: str = "L", *, out: Any = None) -> Any:
    return NotImplemented if out is not None else aten("_linalg_eigh")(A, UPLO, A.requires_grad)[0]


@handles("linalg_eigvals")
def eigvals(A: Any, *, out: Any = None) -> Any:
    return NotImplemented if out is not None else aten("linalg_eig")(A)[0]


@handles("linalg_svd")
def svd(A: Any, full_matrices: bool = True, *, driver: Any = None, out: Any = None) -> Any:
    return (
        NotImplemented
        if out is not None
        else _named("linalg", "svd", tuple(aten("_linalg_svd")(A, full_matrices, driver=driver)))
    )


@handles("linalg_svdvals")
def svdvals(A: Any, *, driver: Any = None, out: Any = None) -> Any:
    return NotImplemented if out is not None else aten("_linalg_svd")(A, False, A.requires_grad, driver=driver)[1]


@handles("svd")
def older_svd(input: Any, some: bool = True, compute_uv: bool = True, *, out: Any = None) -> Any:
    if out is not None or not compute_uv:
        return NotImplemented
    u, s, vh = aten("_linalg_svd")(input, not some)
    return _named("", "svd", (u, s, aten("transpose.int")(vh, -2, -1)))


@handles("qr")
def qr(input: Any, some: bool = True, *, out: Any = None) -> Any:
    return (
        NotImplemented
        if out is not None
        else _named("", "qr", tuple(aten("linalg_qr")(input, "reduced" if some else "complete")))
    )


@handles("linalg_pinv")
def pinv(
    A: Any, *args: Any, atol: Any = None, rtol: Any = None, hermitian: bool = False, rcond: Any = None, out: Any = None
) -> Any:
    if out is not None:
        return NotImplemented
    rtol = rcond if rcond is not None else args[0] if args else rtol
    if len(args) > 1:
        hermitian = args[1]
    if args or rcond is not None:
        atol = 0.0

    def tensor(value: Any) -> Any:
        if value is None or isinstance(value, Tensor):
            return value
        return aten("full")([], value, dtype=rushlight.float64, layout=rushlight.strided, device=A.device)

    if atol is not None and rtol is None and not isinstance(atol, Tensor):
        rtol = 0.0 if atol > 0 else None
    if rtol is not None and atol is None:
        atol = 0.0
    low = tensor(atol)
    high = tensor(rtol)
    if isinstance(rtol, float) and rtol is not None and atol is None:
        low = None
    named = {k: v for k, v in (("atol", low), ("rtol", high)) if v is not None}
    if hermitian:
        named["hermitian"] = True
    return aten("linalg_pinv.atol_rtol_tensor")(A, **named)


@handles("pinverse")
def pinverse(input: Any, rcond: float = 1e-15) -> Any:
    return pinv(input, rcond)


@handles("linalg_matrix_power matrix_power")
def matrix_power(A: Any, n: int, *, out: Any = None) -> Any:
    if out is not None:
        return NotImplemented
    if n == 0:
        made = aten("clone")(A)
        eye = aten("eye")(A.shape[-2], dtype=A.dtype, layout=A.layout, device=A.device)
        return aten("copy_")(made, eye)
    if n < 0:
        A, n = inv(A), -n
    if n == 1:
        return A
    if n == 2:
        return matmul(A, A)
    if n == 3:
        return matmul(matmul(A, A), A)
    power = result = None
    while n:
        n, bit = divmod(n, 2)
        power = A if power is None else matmul(power, power)
        if bit:
            result = power if result is None else matmul(result, power)
    return result


@handles("matrix_exp")
def matrix_exp(A: Any) -> Any:
    return aten("linalg_matrix_exp")(A)


@handles("linalg_vecdot")
def vecdot(x: Any, y: Any, *, dim: int = -1, out: Any = None) -> Any:
    if out is not None:
        return NotImplemented
    if x.dim() == 1 and y.dim() == 1:
        return aten("vdot")(x, y)
    return aten("sum.dim_IntList")(aten("mul.Tensor")(aten("conj")(x) if x.is_complex() else x, y), [dim])


@handles("linalg_tensorinv")
def tensorinv(A: Any, ind: int = 2, *, out: Any = None) -> Any:
    if out is not None:
        return NotImplemented
    first, second = list(A.shape[:ind]), list(A.shape[ind:])
    return reshaped(inv(reshaped(A, [math.prod(first), math.prod(second)])), [*second, *first])


@handles("linalg_tensorsolve")
def tensorsolve(A: Any, B: Any, dims: Any = None, *, out: Any = None) -> Any:
    if out is not None:
        return NotImplemented
    n = A.dim()
    if dims is not None:
        dims = [d % n for d in dims]
        A = aten("permute")(A, [*[d for d in range(n) if d not in dims], *dims])
    shape = list(A.shape[B.dim() :])
    size = math.prod(shape)
    return reshaped(
        solve(reshaped(A, [size, size]) if size * size == A.numel() else A, reshaped(B, [B.numel()])), shape
    )


@handles("linalg_vander")
def vander(x: Any, *, N: Any = None) -> Any:
    n = N if N is not None else x.shape[-1] if x.dim() else 1
    if not x.dtype.is_floating_point and not x.dtype.is_complex or n < 2:
        return NotImplemented
    x = aten("unsqueeze")(x if x.dim() else aten("unsqueeze")(x, -1), -1)
    powers = aten("cumprod")(aten("expand")(x, [*x.shape[:-1], n - 1]), -1)
    ones = aten("new_ones")(powers, [*powers.shape[:-1], 1])
    return aten("cat")([ones, powers], -1)


def _order(dims: list[int], n: int) -> tuple[list[int], list[int]]:
    back = [d for d in range(n) if d not in dims] + dims
    inverse = [0] * n
    for i, d in enumerate(back):
        inverse[d] = i
    return back, inverse


@handles("linalg_matrix_norm")
def matrix_norm(
    A: Any, ord: Any = "fro", dim: Any = (-2, -1), keepdim: bool = False, *, dtype: Any = None, out: Any = None
) -> Any:
    if out is not None or dtype is not None:
        return NotImplemented
    n = A.dim()
    dims = [d % n for d in dim]
    if ord == "fro":
        return aten("linalg_vector_norm")(A, 2, list(dim), keepdim)
    if ord == "nuc" or abs(ord) == 2:
        back, inverse = _order(dims, n)
        values = svdvals(aten("permute")(A, back))
        if ord == "nuc":
            made = aten("sum.dim_IntList")(values, [-1], keepdim)
        else:
            made = aten("amax" if ord > 0 else "amin")(values, [-1], keepdim)
        return aten("permute")(aten("unsqueeze")(made, -1), inverse) if keepdim else made
    first, second = reversed(dims) if math.isinf(ord) else dims
    if not keepdim and second > first:
        second -= 1
    sums = aten("linalg_vector_norm")(A, 1, [first], keepdim)
    return aten("amax" if ord > 0 else "amin")(sums, [second], keepdim)


@handles("linalg_norm")
def norm(A: Any, ord: Any = None, dim: Any = None, keepdim: bool = False, *, dtype: Any = None, out: Any = None) -> Any:
    if out is not None or dtype is not None:
        return NotImplemented
    dims = [dim] if isinstance(dim, int) else dim if dim is None else list(dim)
    if ord is None:
        return aten("linalg_vector_norm")(A, 2, dims, keepdim)
    if isinstance(ord, str) or dims is not None and len(dims) == 2 or dims is None and A.dim() == 2:
        return matrix_norm(A, ord, tuple(dims) if dims is not None else (0, 1), keepdim)
    return aten("linalg_vector_norm")(A, ord, dims, keepdim)


@handles("norm")
def older_norm(
    input: Any, p: Any = "fro", dim: Any = None, keepdim: bool = False, out: Any = None, dtype: Any = None
) -> Any:
    if out is not None or dtype is not None:
        return NotImplemented
    dims = [dim] if isinstance(dim, int) else dim if dim is None else list(dim)
    if p == "fro" and (dims is None or len(dims) <= 2):
        return aten("linalg_vector_norm")(input, 2, dims, keepdim)
    if isinstance(p, str):
        if p == "nuc":
            return matrix_norm(input, "nuc", tuple(dims) if dims is not None else (-2, -1), keepdim)
        return NotImplemented
    return aten("linalg_vector_norm")(input, 2.0 if p is None else p, [] if dims is None else dims, keepdim)


@handles("linalg_cond")
def cond(A: Any, p: Any = None, *, out: Any = None) -> Any:
    if out is not None or p not in (None, 2, -2) or not A.numel():
        return NotImplemented
    values = svdvals(A)
    k = values.shape[-1]
    first, last = aten("slice.Tensor")(values, -1, 0, 1), aten("slice.Tensor")(values, -1, k - 1, k)
    ratio = aten("div.Tensor")(last, first) if p == -2 else aten("div.Tensor")(first, last)
    return aten("squeeze.dim")(ratio, -1)


@handles("linalg_cross cross")
def cross(input: Any, other: Any, dim: Any = None, *, out: Any = None) -> Any:
    if out is not None:
        return NotImplemented
    if dim is None:
        dim = next(i for i, n in enumerate(input.shape) if n == 3)
    return aten("linalg_cross")(input, other, dim=dim)


@handles("cholesky_solve")
def cholesky_solve(B: Any, L: Any, upper: bool = False, *, out: Any = None) -> Any:
    return NotImplemented
