"""Operators of the domain `com.microsoft` that onnxruntime's quantiser and optimiser write into models."""

from __future__ import annotations

from functools import reduce
from typing import Any

import rushlight as torch
import rushlight.nn.functional as F
from rushlight.onnx.importing.operators.linear import integer_product
from rushlight.onnx.importing.operators.normalization import rms_normalization
from rushlight.onnx.importing.operators.pooling import average_pool
from rushlight.onnx.importing.operators.quantized import dequantize_linear, dynamic_quantize_linear, quantize_linear
from rushlight.onnx.importing.table import MICROSOFT, operator

__all__: list[str] = []

# ***** quantised elements *****


def _wide(x: Any, scale: Any, zero: Any, axis: int = 1) -> Any:
    return dequantize_linear(x, scale, zero, axis=axis)


def _back(y: Any, scale: Any, zero: Any, like: Any) -> Any:
    """Quantised again, in the zero point's type or the input's."""
    return quantize_linear(y, scale, torch.zeros((), dtype=like.dtype) if zero is None else zero)


def _enter_binary(name: str, function: Any) -> None:
    def two(
        a: Any, a_scale: Any, a_zero: Any, b: Any, b_scale: Any, b_zero: Any, y_scale: Any, y_zero: Any = None
    ) -> Any:
        return _back(function(_wide(a, a_scale, a_zero), _wide(b, b_scale, b_zero)), y_scale, y_zero, a)

    operator(name, domain=MICROSOFT)(two)


_enter_binary("QLinearAdd", torch.add)
_enter_binary("QLinearMul", torch.mul)


@operator("QLinearSigmoid", domain=MICROSOFT)
def qlinear_sigmoid(x: Any, x_scale: Any, x_zero: Any, y_scale: Any, y_zero: Any = None) -> Any:
    return _back(torch.sigmoid(_wide(x, x_scale, x_zero)), y_scale, y_zero, x)


@operator("QLinearLeakyRelu", domain=MICROSOFT)
def qlinear_leaky_relu(
    x: Any, x_scale: Any, x_zero: Any, y_scale: Any, y_zero: Any = None, *, alpha: float = 0.01
) -> Any:
    return _back(F.leaky_relu(_wide(x, x_scale, x_zero), alpha), y_scale, y_zero, x)


@operator("QLinearSoftmax", domain=MICROSOFT)
def qlinear_softmax(x: Any, x_scale: Any, x_zero: Any, y_scale: Any, y_zero: Any = None, **attributes: Any) -> Any:
    """`opset`, which the node has for an attribute, says how Softmax of that operator set takes its axis."""
    if attributes.get("opset", 1) < 13:
        raise NotImplementedError("QLinearSoftmax of operator sets below 13")
    return _back(torch.softmax(_wide(x, x_scale, x_zero), attributes.get("axis", -1)), y_scale, y_zero, x)


@operator("QLinearConcat", domain=MICROSOFT)
def qlinear_concat(y_scale: Any, y_zero: Any, *parts: Any, axis: int) -> Any:
    wide = [_wide(*parts[i : i + 3]) for i in range(0, len(parts), 3)]
    return _back(torch.cat(wide, axis), y_scale, y_zero, parts[0])


@operator("QLinearGlobalAveragePool", domain=MICROSOFT)
def qlinear_global_average_pool(
    x: Any, x_scale: Any, x_zero: Any, y_scale: Any, y_zero: Any = None, *, channels_last: int = 0
) -> Any:
    axes = list(range(1, x.ndim - 1)) if channels_last else list(range(2, x.ndim))
    return _back(torch.mean(_wide(x, x_scale, x_zero), axes, keepdim=True), y_scale, y_zero, x)


@operator("QLinearAveragePool", domain=MICROSOFT)
def qlinear_average_pool(
    x: Any, x_scale: Any, x_zero: Any, y_scale: Any, y_zero: Any = None, *, channels_last: int = 0, **attributes: Any
) -> Any:
    wide = _wide(x, x_scale, x_zero)
    if channels_last:
        return _back(average_pool(wide.movedim(-1, 1), **attributes).movedim(1, -1), y_scale, y_zero, x)
    return _back(average_pool(wide, **attributes), y_scale, y_zero, x)


# ***** quantised products *****


@operator("QGemm", domain=MICROSOFT)
def qgemm(
    a: Any,
    a_scale: Any,
    a_zero: Any,
    b: Any,
    b_scale: Any,
    b_zero: Any,
    c: Any = None,
    y_scale: Any = None,
    y_zero: Any = None,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Any:
    """alpha * a @ b + c with quantised matrices; scales of b may be one of each column of the result."""
    total = integer_product(a.T if transA else a, a_zero, b.T if transB else b, b_zero)
    if c is not None:
        total = total + c
    result = total.to(torch.float32) * (alpha * a_scale * b_scale)
    return result if y_scale is None else _back(result, y_scale, y_zero, a)


@operator("MatMulIntegerToFloat", domain=MICROSOFT)
def matmul_integer_to_float(
    a: Any, b: Any, a_scale: Any, b_scale: Any, a_zero: Any = None, b_zero: Any = None, bias: Any = None
) -> Any:
    product = integer_product(a, a_zero, b, b_zero).to(a_scale.dtype) * (a_scale * b_scale)
    return product if bias is None else product + bias


@operator("DynamicQuantizeMatMul", domain=MICROSOFT)
def dynamic_quantize_matmul(a: Any, b: Any, b_scale: Any, b_zero: Any = None, bias: Any = None) -> Any:
    quantised, a_scale, a_zero = dynamic_quantize_linear(a)
    return matmul_integer_to_float(quantised, b, a_scale, b_scale, a_zero, b_zero, bias)


@operator("MatMulNBits", domain=MICROSOFT)
def matmul_n_bits(
    a: Any,
    b: Any,
    scales: Any,
    zero: Any = None,
    groups: Any = None,
    bias: Any = None,
    *,
    K: int,
    N: int,
    bits: int = 4,
    block_size: int,
    accuracy_level: int = 0,
) -> Any:
    """A product with weights of 2, 4 or 8 bits that have a scale, and perhaps a zero point, for each block of a row."""
    if groups is not None or bits not in (2, 4, 8):
        raise NotImplementedError(f"MatMulNBits of {bits} bits" + (" with g_idx" if groups is not None else ""))
    blocks = -(-K // block_size)
    weights = _unpacked(b.reshape(N, -1), bits).reshape(N, blocks, block_size)
    if zero is None:
        points: Any = float(2 ** (bits - 1))
    elif zero.is_floating_point():
        points = zero.reshape(N, blocks, 1)
    else:
        points = _unpacked(zero.reshape(N, -1), bits)[:, :blocks].reshape(N, blocks, 1).to(a.dtype)
    wide = (weights.to(a.dtype) - points) * scales.reshape(N, blocks, 1)
    return F.linear(a, wide.reshape(N, -1)[:, :K], bias)


def _unpacked(x: Any, bits: int) -> Any:
    """The elements of bytes, the lowest bits first."""
    if bits == 8:
        return x
    shifts = torch.arange(0, 8, bits, dtype=torch.uint8)
    return ((x.unsqueeze(-1) >> shifts) & (2**bits - 1)).reshape(x.shape[0], -1)


# ***** fused operators *****


@operator("FusedMatMul", domain=MICROSOFT)
def fused_matmul(
    a: Any, b: Any, *, alpha: float = 1.0, transA: int = 0, transB: int = 0, transBatchA: int = 0, transBatchB: int = 0
) -> Any:
    if transBatchA or transBatchB:
        raise NotImplementedError("FusedMatMul with transposed batches")
    a = a.transpose(-1, -2) if transA else a
    b = b.transpose(-1, -2) if transB else b
    return torch.matmul(a, b) * alpha


@operator("BiasGelu", domain=MICROSOFT)
def bias_gelu(x: Any, bias: Any) -> Any:
    return F.gelu(x + bias)


@operator("FastGelu", domain=MICROSOFT)
def fast_gelu(x: Any, bias: Any = None) -> Any:
    return F.gelu(x if bias is None else x + bias, approximate="tanh")


@operator("QuickGelu", domain=MICROSOFT)
def quick_gelu(x: Any, *, alpha: float = 1.702) -> Any:
    return x * torch.sigmoid(x * alpha)


@operator("SimplifiedLayerNormalization")
def simplified_layer_normalization(x: Any, scale: Any, **attributes: Any) -> Any:
    return rms_normalization(x, scale, **attributes)


@operator("SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def skip_simplified_layer_normalization(
    x: Any, skip: Any, gamma: Any, bias: Any = None, *, epsilon: float = 1e-5
) -> Any:
    total = reduce(torch.add, [one for one in (x, skip, bias) if one is not None])
    return rms_normalization(total, gamma, epsilon=epsilon), None, None, total
