"""Products of matrices, and what is made of them; attention."""

from __future__ import annotations

from typing import Any

import rushlight as torch
from rushlight.onnx.importing.operators.elementwise import aligned
from rushlight.onnx.importing.table import operator

__all__ = ["integer_product"]


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


# ***** integers *****

_BYTES = (torch.int8, torch.uint8)


def integer_product(a: Any, a_zero: Any, b: Any, b_zero: Any) -> Any:
    """(a - a_zero) @ (b - b_zero) as int32, wrapped as int32 wraps; zero points broadcast to the matrices, or are None.

    Bytes are multiplied as they are, and what the zero points add follows from the sums of rows and columns.
    """
    if a.dtype not in _BYTES or b.dtype not in _BYTES or b.ndim != 2 or a.ndim < 2 or not a.numel() or not b.numel():
        return torch.matmul(_less(a, a_zero), _less(b, b_zero))
    a, a_point = _signed(a, a_zero)
    b, b_point = _signed(b, b_zero)
    total = torch._int_mm(a.reshape(-1, a.shape[-1]), b).reshape(*a.shape[:-1], b.shape[-1])
    if a_point is not None:
        total = total - a_point * b.sum(0, dtype=torch.int32)
    if b_point is not None:
        total = total - a.sum(-1, keepdim=True, dtype=torch.int32) * b_point
    return total if a_point is None or b_point is None else total + a_point * b_point * b.shape[0]


def _less(x: Any, zero: Any) -> Any:
    return x.to(torch.int32) if zero is None else x.to(torch.int32) - zero.to(torch.int32)


def _signed(x: Any, zero: Any) -> tuple[Any, Any]:
    """The same differences from signed bytes: the elements, and the zero point as int32 (None for zero)."""
    point = None if zero is None else zero.to(torch.int32)
    if x.dtype == torch.int8:
        return x, point
    signed = (x ^ 128).view(torch.int8)  # flipping the highest bit subtracts 128
    return signed, torch.tensor(-128, dtype=torch.int32) if point is None else point - 128


@operator("MatMulInteger", since=10)
def matmul_integer(a: Any, b: Any, a_zero: Any = None, b_zero: Any = None) -> Any:
    """A product of integers less their zero points, as int32; `a_zero` may be one of each row, `b_zero` of each column."""
    if a_zero is not None and a_zero.ndim == 1 and a_zero.numel() > 1:
        a_zero = a_zero[:, None]
    return integer_product(a, a_zero, b, b_zero)
