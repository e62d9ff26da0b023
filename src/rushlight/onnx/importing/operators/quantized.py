"""Quantised tensors: QuantizeLinear and its inverse, products and convolutions between quantised tensors."""

from __future__ import annotations

from typing import Any

import rushlight as torch
from rushlight.onnx.importing.operators.casting import converted, narrowed
from rushlight.onnx.importing.operators.convolution import conv
from rushlight.onnx.importing.operators.linear import integer_product
from rushlight.onnx.importing.table import Value, operator
from rushlight.onnx.importing.values import NARROW, Narrow, dtype_of, element_type, tensor

__all__: list[str] = []

# Bounds of quantised integers by their number in TensorProto.DataType.
_RANGES = {
    2: (0, 255), 3: (-128, 127), 4: (0, 65535), 5: (-32768, 32767), 6: (-(2**31), 2**31 - 1), 21: (0, 15), 22: (-8, 7), 25: (0, 3), 26: (-2, 1),
}  # fmt: skip


def _plain(x: Any) -> Any:
    return None if x is None else x.data if isinstance(x, Narrow) else tensor(x)


def _beside(parameter: Any, x: Any, axis: int, block_size: int) -> Any:
    """A scale or zero point so that it broadcasts to `x`: one number, one of each slice of an axis, or of each block."""
    if parameter is None or parameter.numel() == 1:
        return None if parameter is None else parameter.reshape(())
    axis = axis + x.ndim if axis < 0 else axis
    if block_size:
        if parameter.ndim != x.ndim:
            raise ValueError(f"scales of blocks have {parameter.ndim} dims, and the input {x.ndim}")
        return torch.repeat_interleave(parameter, block_size, axis).narrow(axis, 0, x.shape[axis])
    if parameter.ndim != 1 or parameter.numel() != x.shape[axis]:
        raise ValueError(f"{tuple(parameter.shape)} scales for axis {axis} of {tuple(x.shape)}")
    return parameter.reshape([-1 if i == axis else 1 for i in range(x.ndim)])


@operator("QuantizeLinear", since=10)
def quantize_linear(
    x: Value,
    scale: Value,
    zero: Value = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
    saturate: int = 1,
) -> Value:
    """x / scale + zero point, rounded half to even and clamped."""
    x, scale = _plain(x), _plain(scale)
    to = element_type(zero) if zero is not None else output_dtype or 2
    wide = x if x.is_floating_point() else x.to(torch.float32)
    step, offset = _beside(scale, x, axis, block_size), _beside(_plain(zero), x, axis, block_size)
    if precision:
        wide, step = wide.to(dtype_of(precision)), step.to(dtype_of(precision))
    ratio = wide / step
    if to not in _RANGES:
        if offset is not None and to in NARROW:
            ratio = ratio + offset
        return converted(ratio, to, bool(saturate))
    low, high = _RANGES[to]
    # float64 holds every int32, so that clamping rounds nothing.
    rounded = torch.round(ratio).to(torch.float64 if to == 6 else torch.float32)
    if offset is not None:
        rounded = rounded + offset.to(rounded.dtype)
    result = torch.clamp(rounded, low, high)
    return narrowed(result, to) if to in NARROW else result.to(dtype_of(to))


@operator("DequantizeLinear", since=10)
def dequantize_linear(
    x: Value, scale: Value, zero: Value = None, *, axis: int = 1, block_size: int = 0, output_dtype: int = 0
) -> Any:
    """(x - zero point) * scale, in the scale's type or the one asked for."""
    x, scale = _plain(x), _plain(scale)
    kind = dtype_of(output_dtype) if output_dtype else scale.dtype
    wide = x.to(torch.float32)
    offset, step = _beside(_plain(zero), x, axis, block_size), _beside(scale, x, axis, block_size)
    if offset is not None:
        wide = (
            (x.to(torch.int64) - offset.to(torch.int64)).to(torch.float32)
            if x.dtype == torch.int32
            else wide - offset.to(torch.float32)
        )
    return (wide * step.to(torch.float32)).to(kind)


@operator("DynamicQuantizeLinear", since=11)
def dynamic_quantize_linear(x: Any) -> Any:
    """uint8 over the range of the elements and zero; the scale and the zero point beside."""
    zero = torch.zeros((), dtype=x.dtype)
    low, high = torch.minimum(x.amin(), zero), torch.maximum(x.amax(), zero)
    scale = (high - low) / 255
    point = torch.clamp(torch.round(-low / scale), 0, 255)
    quantised = torch.clamp(torch.round(x / scale) + point, 0, 255)
    return quantised.to(torch.uint8), scale, point.to(torch.uint8)


def _less_zero(x: Any, zero: Any, axis: int) -> Any:
    """x - zero point in int32; zero points of an axis stand along it."""
    zero = zero.to(torch.int32)
    if zero.numel() > 1 and zero.ndim == 1:
        zero = zero.reshape([-1 if i == axis % x.ndim else 1 for i in range(x.ndim)])
    return x.to(torch.int32) - zero


def _requantized(product: Any, scale: Any, y_scale: Any, y_zero: Any) -> Any:
    rounded = torch.round(product.to(torch.float32) * (scale / y_scale)) + y_zero.to(torch.float32)
    if y_zero.dtype.is_floating_point:
        return converted(rounded, element_type(y_zero))
    low, high = _RANGES[element_type(y_zero)]
    return torch.clamp(rounded, low, high).to(y_zero.dtype)


@operator("QLinearMatMul", since=10)
def qlinear_matmul(
    a: Any, a_scale: Any, a_zero: Any, b: Any, b_scale: Any, b_zero: Any, y_scale: Any, y_zero: Any
) -> Any:
    """A product of quantised matrices, summed in int32 and quantised again."""
    rows = a_scale.reshape(-1, 1) if a_scale.numel() > 1 and a_scale.ndim == 1 else a_scale
    a_zero = a_zero.reshape(-1, 1) if a_zero.ndim == 1 and a_zero.numel() > 1 else a_zero
    product = integer_product(a, a_zero, b, b_zero)
    return _requantized(product, (rows * b_scale).to(torch.float32), y_scale.to(torch.float32), y_zero)


@operator("QLinearConv", since=10)
def qlinear_conv(
    x: Any,
    x_scale: Any,
    x_zero: Any,
    w: Any,
    w_scale: Any,
    w_zero: Any,
    y_scale: Any,
    y_zero: Any,
    bias: Any = None,
    **attributes: Any,
) -> Any:
    """A convolution of quantised tensors, summed in int32 and quantised again; weights may have a scale each channel."""
    total = conv(_less_zero(x, x_zero, 0), _less_zero(w, w_zero, 0), **attributes)
    channels = [-1, *[1] * (x.ndim - 2)]
    if bias is not None:
        total = total + bias.reshape(channels)
    scale = x_scale * (w_scale.reshape(channels) if w_scale.numel() > 1 else w_scale)
    return _requantized(total, scale, y_scale, y_zero)
