"""Products of matrices, and what is made of them; attention."""

from __future__ import annotations

from typing import Any

import rushlight as torch
from rushlight.onnx.importing.operators.elementwise import aligned
from rushlight.onnx.importing.table import operator

__all__: list[str] = []


@operator("MatMul")
def matmul(a: Any, b: Any) -> Any:
    if a.dtype in (torch.uint32, torch.uint64):
        return torch.matmul(a.to(torch.int64), b.to(torch.int64)).to(a.dtype)
    return torch.matmul(a, b)


@operator("Gemm")
def gemm_old(
    a: Any,
    b: Any,
    c: Any = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    broadcast: int = 0,
) -> Any:
    return gemm(
        a, b, None if c is None else aligned(a, c, 0, None), alpha=alpha, beta=beta, transA=transA, transB=transB
    )


@operator("Gemm", since=7)
def gemm(
    a: Any, b: Any, c: Any = None, *, alpha: float = 1.0, beta: float = 1.0, transA: int = 0, transB: int = 0
) -> Any:
    """alpha * a @ b + beta * c, either matrix transposed first."""
    a = a.T if transA else a
    if alpha == 1.0 and beta == 1.0 and transB and (c is None or c.ndim == 1) and a.is_floating_point():
        return torch.nn.functional.linear(a, b, c)
    b = b.T if transB else b
    if a.dtype in (torch.uint32, torch.uint64):
        return gemm(a.to(torch.int64), b.to(torch.int64), c, alpha=alpha, beta=beta).to(a.dtype)
    product = torch.matmul(a, b)
    if alpha != 1.0:
        product = (product * alpha).to(a.dtype)
    if c is None:
        return product
    return product + (c if beta == 1.0 else (c * beta).to(a.dtype))


@operator("Einsum", since=12)
def einsum(*xs: Any, equation: str) -> Any:
    return torch.einsum(equation, *xs)


@operator("Det", since=11)
def det(x: Any) -> Any:
    return torch.linalg.det(x)


@operator("MatMulInteger", since=10)
def matmul_integer(a: Any, b: Any, a_zero: Any = None, b_zero: Any = None) -> Any:
    """A product of integers less their zero points, as int32; `a_zero` may be one of each row, `b_zero` of each column."""
    a, b = a.to(torch.int32), b.to(torch.int32)
    if a_zero is not None:
        a = a - (
            a_zero.to(torch.int32)[..., None] if a_zero.ndim == 1 and a_zero.numel() > 1 else a_zero.to(torch.int32)
        )
    if b_zero is not None:
        b = b - b_zero.to(torch.int32)
    return torch.matmul(a, b)
