"""`torch.ao.nn.quantized.functional`: functions of quantized tensors."""

from __future__ import annotations

from typing import Any

import rushlight as torch
from rushlight.ao.operators import arithmetic as ops
from rushlight.ao.operators import packed
from rushlight.nn import functional

__all__ = [
    "adaptive_avg_pool2d", "adaptive_avg_pool3d", "avg_pool2d", "avg_pool3d", "celu", "clamp", "conv1d", "conv2d", "conv3d", "elu",
    "hardsigmoid", "hardswish", "hardtanh", "interpolate", "leaky_relu", "linear", "max_pool1d", "max_pool2d", "threshold", "upsample",
    "upsample_bilinear", "upsample_nearest",
]  # fmt: skip


def _quantized(name: str, x: Any) -> None:
    if not x.is_quantized:
        raise ValueError(f"Input to 'quantized.{name}' must be quantized!")


def linear(input: Any, weight: Any, bias: Any = None, scale: Any = None, zero_point: Any = None) -> Any:
    """A linear layer, quantized by the given scale (default: the input's)."""
    scale = input.q_scale() if scale is None else scale
    zero_point = input.q_zero_point() if zero_point is None else zero_point
    return packed.LinearPackedParams(weight, bias).apply(input, scale, zero_point)


def _convolve(
    n: int, input: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: int, padding_mode: str, scale: float,
    zero_point: int, dtype: Any,
) -> Any:  # fmt: skip
    if padding_mode != "zeros":
        raise NotImplementedError("Only zero-padding is supported!")
    if input.dtype is not torch.quint8:
        raise NotImplementedError("Only torch.quint8 is supported for activation tensor!")
    if weight.dtype is not torch.qint8:
        raise NotImplementedError("Only torch.qint8 is supported for weight tensor!")
    if input.ndim != n + 2:
        raise ValueError(f"Input shape must be `({', '.join(['N', 'C', *'DHW'[3 - n :]])})`!")
    sizes: Any = [(v,) if isinstance(v, int) else v for v in (stride, padding, dilation)]
    return packed.ConvPackedParams(weight, bias, sizes[0], sizes[1], sizes[2], groups).apply(input, scale, zero_point)


def conv1d(
    input: Any, weight: Any, bias: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1,
    padding_mode: str = "zeros", scale: float = 1.0, zero_point: int = 0, dtype: Any = torch.quint8,
) -> Any:  # fmt: skip
    """A convolution [N, C, L], quantized by the given scale."""
    return _convolve(1, input, weight, bias, stride, padding, dilation, groups, padding_mode, scale, zero_point, dtype)


def conv2d(
    input: Any, weight: Any, bias: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1,
    padding_mode: str = "zeros", scale: float = 1.0, zero_point: int = 0, dtype: Any = torch.quint8,
) -> Any:  # fmt: skip
    """A convolution [N, C, H, W], quantized by the given scale."""
    return _convolve(2, input, weight, bias, stride, padding, dilation, groups, padding_mode, scale, zero_point, dtype)


def conv3d(
    input: Any, weight: Any, bias: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1,
    padding_mode: str = "zeros", scale: float = 1.0, zero_point: int = 0, dtype: Any = torch.quint8,
) -> Any:  # fmt: skip
    """A convolution [N, C, D, H, W], quantized by the given scale."""
    return _convolve(3, input, weight, bias, stride, padding, dilation, groups, padding_mode, scale, zero_point, dtype)


# ***** functions whose result is quantized as the input is *****


def avg_pool2d(
    input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False, count_include_pad: bool = True,
    divisor_override: Any = None,
) -> Any:  # fmt: skip
    """Means of windows."""
    _quantized("avg_pool2d", input)
    return functional.avg_pool2d(input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


def avg_pool3d(
    input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False, count_include_pad: bool = True,
    divisor_override: Any = None,
) -> Any:  # fmt: skip
    """Means of windows."""
    _quantized("avg_pool3d", input)
    return functional.avg_pool3d(input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


def adaptive_avg_pool2d(input: Any, output_size: Any) -> Any:
    """Means of as many windows as `output_size` says."""
    _quantized("functional.adaptive_avg_pool2d", input)
    return functional.adaptive_avg_pool2d(input, output_size)


def adaptive_avg_pool3d(input: Any, output_size: Any) -> Any:
    """Means of as many windows as `output_size` says."""
    _quantized("functional.adaptive_avg_pool3d", input)
    return functional.adaptive_avg_pool3d(input, output_size)


def max_pool1d(
    input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:  # fmt: skip
    """The largest of each window."""
    if return_indices:
        raise NotImplementedError("return_indices is not yet implemented!")
    return functional.max_pool1d(input, kernel_size, stride, padding, dilation, ceil_mode)


def max_pool2d(
    input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:  # fmt: skip
    """The largest of each window."""
    if return_indices:
        raise NotImplementedError("return_indices is not yet implemented!")
    return functional.max_pool2d(input, kernel_size, stride, padding, dilation, ceil_mode)


def hardtanh(input: Any, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Any:
    """Clamped to [min_val, max_val]."""
    _quantized("hardtanh", input)
    found = torch.clamp(input, min_val, max_val)
    return input.copy_(found) if inplace else found


def hardsigmoid(input: Any, inplace: bool = False) -> Any:
    """relu6(x + 3) / 6, quantized by 1/256."""
    _quantized("hardsigmoid", input)
    return functional.hardsigmoid(input)


def clamp(input: Any, min_: float, max_: float) -> Any:
    """Clamped to [min_, max_]."""
    _quantized("clamp", input)
    return torch.clamp(input, min_, max_)


def threshold(input: Any, threshold: float, value: float) -> Any:
    """`value` where the input is at most `threshold`."""
    _quantized("threshold", input)
    return ops.threshold(input, threshold, value)


def interpolate(
    input: Any, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: Any = None
) -> Any:
    """Resized."""
    _quantized("interpolate", input)
    return functional.interpolate(input, size, scale_factor, mode, align_corners)


def upsample(
    input: Any, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: Any = None
) -> Any:
    """Resized; `interpolate` is its newer name."""
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_bilinear(input: Any, size: Any = None, scale_factor: Any = None) -> Any:
    """Resized bilinearly, corners aligned."""
    return upsample(input, size, scale_factor, mode="bilinear", align_corners=True)


def upsample_nearest(input: Any, size: Any = None, scale_factor: Any = None) -> Any:
    """Resized to the nearest pixel."""
    return upsample(input, size, scale_factor, mode="nearest")


# ***** functions whose result has a scale of its own *****


def elu(input: Any, scale: float, zero_point: int, alpha: float = 1.0) -> Any:
    """x or alpha (e^x - 1), quantized by the given scale."""
    _quantized("elu", input)
    return ops.elu(input, scale, zero_point, alpha)


def celu(input: Any, scale: float, zero_point: int, alpha: float = 1.0) -> Any:
    """x or alpha (e^(x / alpha) - 1), quantized by the given scale."""
    _quantized("celu", input)
    return ops.celu(input, scale, zero_point, alpha)


def hardswish(input: Any, scale: float, zero_point: int) -> Any:
    """x relu6(x + 3) / 6, quantized by the given scale."""
    _quantized("hardswish", input)
    return ops.hardswish(input, scale, zero_point)


def leaky_relu(
    input: Any, negative_slope: float = 0.01, inplace: bool = False, scale: Any = None, zero_point: Any = None
) -> Any:
    """x or negative_slope x, quantized by the given scale (default: the input's)."""
    _quantized("leaky_relu", input)
    if scale is not None and zero_point is not None:
        return ops.leaky_relu(input, negative_slope, inplace, scale, zero_point)
    return functional.leaky_relu(input, negative_slope)
