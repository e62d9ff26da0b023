"""Factorisations by elimination whose errors depend on the numbers: LU and LDL."""

from __future__ import annotations

from typing import Any

from rushlight._base.errors import warn_once
from rushlight._engine.core.tensor import Tensor
from rushlight._ops.forms import forms
from rushlight._surface.composites.factors import require_success, result, results
from rushlight._surface.registry import composite, function_of, into_given

__all__: list[str] = []

LINALG = ("linalg",)


@composite("lu_factor", spaces=LINALG)
@forms("... -> return_types.linalg_lu_factor")
def lu_factor(A: Tensor, *, pivot: bool = True, out: Any = None) -> Any:
    """(LU, pivots): both triangles in one matrix, and with which row each was exchanged (counted from 1); RuntimeError for singular ones."""
    *found, info = function_of("linalg_lu_factor_ex")(A, pivot=pivot)
    require_success(info, "torch.linalg.lu_factor", "lu")
    return results("linalg_lu_factor", ("LU", "pivots"), found, out, A)


@composite("lu_factor_ex", spaces=LINALG)
@forms("... -> return_types.linalg_lu_factor_ex")
def lu_factor_ex(A: Tensor, *, pivot: bool = True, check_errors: bool = False, out: Any = None) -> Any:
    """`lu_factor` and info: where U's diagonal has its first zero, or 0; with `check_errors` that raises."""
    found = function_of("linalg_lu_factor_ex")(A, pivot=pivot, **into_given(out))
    if check_errors:
        require_success(found[2], "torch.linalg.lu_factor_ex", "lu")
    return found


@composite("lu_solve", spaces=LINALG)
def lu_solve(
    LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool = True, adjoint: bool = False, out: Any = None
) -> Tensor:
    """X with A X = B (X A = B unless `left`), given the factors of A; with `adjoint` A^H takes the place of A."""
    if left:
        return function_of("linalg_lu_solve")(LU, pivots, B, adjoint=adjoint, **into_given(out))
    found = function_of("lu_solve_right_core")(LU, pivots, B, adjoint=adjoint)
    return result("linalg_lu_solve", found, out, LU, B)


@composite("lu", method=True)
@forms("... -> tuple[Tensor, ...]")
def lu(A: Tensor, pivot: bool = True, get_infos: Any = False, out: Any = None) -> Any:
    """(LU, pivots), with `get_infos` also info."""
    warn_once(
        "torch.lu is deprecated in favor of torch.linalg.lu_factor / torch.linalg.lu_factor_ex and will be removed in a future PyTorch release.\n"
        "LU, pivots = torch.lu(A, compute_pivots)\nshould be replaced with\nLU, pivots = torch.linalg.lu_factor(A, compute_pivots)\nand\n"
        "LU, pivots, info = torch.lu(A, compute_pivots, get_infos=True)\nshould be replaced with\n"
        "LU, pivots, info = torch.linalg.lu_factor_ex(A, compute_pivots)"
    )
    found = tuple(function_of("linalg_lu_factor_ex")(A, pivot=pivot))
    if get_infos:
        return results("_lu_with_info", ("LU", "pivots", "info"), found, out, A)
    if out is None:
        return found[:2]
    return tuple(results("linalg_lu_factor", ("LU", "pivots"), found[:2], out, A))


@composite("ldl_factor", spaces=LINALG)
@forms("... -> return_types.linalg_ldl_factor")
def ldl_factor(input: Tensor, *, hermitian: bool = False, out: Any = None) -> Any:
    """(LD, pivots) of symmetric (or Hermitian) matrices, in LAPACK's compact form; RuntimeError where D is singular."""
    *found, info = function_of("linalg_ldl_factor_ex")(input, hermitian=hermitian)
    require_success(info, "torch.linalg.ldl_factor", "ldl")
    return results("linalg_ldl_factor", ("LD", "pivots"), found, out, input)


@composite("ldl_factor_ex", spaces=LINALG)
@forms("... -> return_types.linalg_ldl_factor_ex")
def ldl_factor_ex(input: Tensor, *, hermitian: bool = False, check_errors: bool = False, out: Any = None) -> Any:
    """`ldl_factor` and info: where D has its first zero, or 0; with `check_errors` that raises."""
    found = function_of("linalg_ldl_factor_ex")(input, hermitian=hermitian, **into_given(out))
    if check_errors:
        require_success(found[2], "torch.linalg.ldl_factor_ex", "ldl")
    return found
