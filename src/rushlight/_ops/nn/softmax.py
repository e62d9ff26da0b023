"""Softmax and its logarithm."""

from __future__ import annotations

from typing import Any

from rushlight._ops.bodies import dims_of, narrow, not_implemented, reduce_dims, spread, wide
from rushlight._ops.table import operator
from rushlight._prims import build, prim
from rushlight._types.dtype import DType
from rushlight._types.layout import numel

__all__: list[str] = []


def _prepare(name: str, x: Any, dim: int, dtype: DType | None) -> tuple[Any, tuple[int, ...], DType]:
    """Operand in the dtype of the computation, dims, dtype of the result."""
    x = build.convert(x, dtype) if dtype is not None else x
    if not x.dtype.is_floating_point:
        raise not_implemented(name, x.dtype)
    return wide(x), dims_of(x, (dim,)), x.dtype


def exponentials(x: Any, dims: tuple[int, ...]) -> tuple[Any, Any]:
    """exp(x - greatest), and its sum over dims."""
    if numel(x.shape) == 0 or not dims:
        raised = prim.exp(x) if numel(x.shape) == 0 else prim.exp(x - x)
    else:
        raised = prim.exp(x - spread(reduce_dims("amax", x, dims), x.shape, dims))
    return raised, reduce_dims("sum", raised, dims)


@operator("softmax(Tensor input, int dim, dtype? dtype=None) -> Tensor", out="exact", aliases=("special.softmax",))
def softmax(x: Any, dim: int, dtype: DType | None) -> Any:
    """exp(x) / sum(exp(x)) along dim: one division for each sum, and a product for each element."""
    x, dims, result = _prepare("softmax_lastdim_kernel_impl", x, dim, dtype)
    raised, total = exponentials(x, dims)
    return narrow(raised * spread(1.0 / total, x.shape, dims), result)


@softmax.gradient
def _(ct: Any, out: Any, x: Any, dim: int, dtype: DType | None) -> Any:
    dims, x_dtype = dims_of(x, (dim,)), x.dtype
    ct, out = wide(ct), wide(out)
    product = ct * out
    total = reduce_dims("sum", product, dims)
    return narrow(product - out * spread(total, x.shape, dims), x_dtype)


@operator(
    "log_softmax(Tensor input, int dim, dtype? dtype=None) -> Tensor", out="exact", aliases=("special.log_softmax",)
)
def log_softmax(x: Any, dim: int, dtype: DType | None) -> Any:
    """log(softmax(x)) along dim, exact where softmax underflows."""
    x, dims, result = _prepare("log_softmax_lastdim_kernel_impl", x, dim, dtype)
    if numel(x.shape) == 0:
        return narrow(x, result)
    apart = x - spread(reduce_dims("amax", x, dims), x.shape, dims) if dims else x - x
    total = reduce_dims("sum", prim.exp(apart), dims)
    return narrow(apart - spread(prim.log(total), x.shape, dims), result)


@log_softmax.gradient
def _(ct: Any, out: Any, x: Any, dim: int, dtype: DType | None) -> Any:
    dims, x_dtype = dims_of(x, (dim,)), x.dtype
    ct, out = wide(ct), wide(out)
    total = reduce_dims("sum", ct, dims)
    return narrow(ct - prim.exp(out) * spread(total, x.shape, dims), x_dtype)
