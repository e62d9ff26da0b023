"""Fake quantization: numbers rounded to those of a quantized dtype, with the gradient of the identity in between.

"Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference" (Jacob et al., 2018),
section 3: the gradient passes where the number is in the range, and is zero where it was clamped.
"""

from __future__ import annotations

import math
from typing import Any

from rushlight._ops.bodies import given_dtype, number_value, refuse
from rushlight._ops.table import operator
from rushlight._prims import build, prim
from rushlight._types.dtype import BFLOAT16, FLOAT16, FLOAT32, INT32

__all__: list[str] = []


def _check_range(quant_min: int, quant_max: int) -> None:
    if quant_min > quant_max:
        raise RuntimeError("`quant_min` should be less than or equal to `quant_max`.")


def _steps(x: Any, scale: Any, zero_point: Any) -> Any:
    """The numbers of steps from the zero point, rounded to even, before they are clamped to the range.

    The shift by a whole zero point does not change the rounding between two steps; one with a fraction does.
    """
    steps, shift = x * build.convert(1.0 / scale, x.dtype), build.convert(zero_point, x.dtype)
    whole = prim.floor(shift)
    return prim.round(steps + (shift - whole)) + whole


def _quantized(x: Any, scale: Any, zero_point: Any, quant_min: int, quant_max: int, within: Any) -> Any:
    """The numbers of a range; their steps are multiplied by the scale in the dtype `within`."""
    steps = _steps(x, scale, zero_point)
    # comparisons are false for NaN, which becomes the smallest number
    steps = build.select(steps >= float(quant_min), steps, float(quant_min))
    steps = build.select(steps > float(quant_max), float(quant_max), steps)
    away = steps - build.convert(zero_point, x.dtype)
    return build.convert(build.convert(away, within) * build.convert(scale, within), x.dtype)


def _inside(ct: Any, x: Any, scale: Any, zero_point: Any, quant_min: int, quant_max: int) -> Any:
    steps = _steps(x, scale, zero_point)
    return build.select((steps >= float(quant_min)) & (steps <= float(quant_max)), ct, 0.0)


# ***** one scale *****


def _one(x: Any, scale: Any, zero_point: Any) -> tuple[Any, Any]:
    """Scale and zero point, numbers or tensors with one element, as float32 values of shape ()."""
    values = []
    for value in (scale, zero_point):
        if getattr(value, "shape", ()) != () and math.prod(value.shape) != 1:
            raise RuntimeError(f"scale and zero_point must have one element, got the shape {list(value.shape)}")
        value = (
            number_value(value, FLOAT32)
            if getattr(value, "shape", ()) == ()
            else build.convert(build.reshape(value, ()), FLOAT32)
        )
        values.append(value)
    return values[0], values[1]


def _per_tensor_node(scale: Any, **_: Any) -> str:
    return f"FakeQuantizePerTensorAffineCachemask{'TensorQparams' if hasattr(scale, 'strides') else ''}Backward0"


@operator("fake_quantize_per_tensor_affine(Tensor input, Tensor scale, Tensor zero_point, int quant_min, int quant_max) -> Tensor",
          promote="opmath", promote_over=("input",), numbers=("scale", "zero_point"), static=("zero_point",), method=False,
          node=_per_tensor_node)  # fmt: skip
def fake_quantize_per_tensor_affine(x: Any, scale: Any, zero_point: Any, quant_min: int, quant_max: int) -> Any:
    """(clamp(round(input / scale) + zero_point, quant_min, quant_max) - zero_point) * scale."""
    _check_range(quant_min, quant_max)
    refuse(x, "fake_quantize_tensor_cachemask_kernel_type_handling", "buic")
    if isinstance(zero_point, (int, float)) and not quant_min <= zero_point <= quant_max:
        raise RuntimeError("`zero_point` must be between `quant_min` and `quant_max`.")
    return _quantized(x, *_one(x, scale, zero_point), quant_min, quant_max, FLOAT32)


@fake_quantize_per_tensor_affine.gradient
def _(ct: Any, out: Any, x: Any, scale: Any, zero_point: Any, quant_min: int, quant_max: int) -> Any:
    return _inside(ct, x, *_one(x, scale, zero_point), quant_min, quant_max), None, None


# ***** one scale for each channel *****


def _per_channel(x: Any, scale: Any, zero_point: Any, axis: int) -> tuple[Any, Any]:
    shape = [n if d == axis else 1 for d, n in enumerate(x.shape)]
    wide = [build.reshape(build.convert(v, FLOAT32), shape) for v in (scale, zero_point)]
    return build.broadcast_to(wide[0], x.shape), build.broadcast_to(wide[1], x.shape)


def _checked(zero_point: Any, quant_min: int, quant_max: int) -> Any:
    """Zero points as they are; RuntimeError in the call where a whole one is out of range.  PyTorch takes any fraction."""
    if zero_point.dtype.is_floating_point:
        return zero_point
    fits = (zero_point >= quant_min) & (zero_point <= quant_max)
    return prim.require(build.convert(zero_point, FLOAT32), fits, requirement="zero point is in range")


@operator("fake_quantize_per_channel_affine(Tensor input, Tensor scale, Tensor zero_point, int axis, int quant_min, int quant_max) -> Tensor",
          promote="opmath", promote_over=("input",), method=False, node="FakeQuantizePerChannelAffineCachemaskBackward0")  # fmt: skip
def fake_quantize_per_channel_affine(
    x: Any, scale: Any, zero_point: Any, axis: int, quant_min: int, quant_max: int
) -> Any:
    """`fake_quantize_per_tensor_affine` with a scale and a zero point for each index along the dim `axis`."""
    _check_range(quant_min, quant_max)
    refuse(x, "fake_quantize_channel_cachemask_kernel_type_handling", "buic")
    if not 0 <= axis < max(len(x.shape), 1):
        raise RuntimeError("`axis` must be between 0 and number of dimensions of input")
    if given_dtype(scale) is not FLOAT32:
        raise RuntimeError(f"Scale must be Float, found {scale.dtype.scalar}")
    if zero_point.dtype not in (INT32, FLOAT32, FLOAT16, BFLOAT16):
        raise RuntimeError(f"Zero-point must be Int32, Float or Half, found {zero_point.dtype.scalar}")
    if len(scale.shape) != 1 or scale.shape != zero_point.shape or scale.shape[0] != x.shape[axis]:
        raise RuntimeError("dimensions of scale and zero-point are not consistent with input tensor")
    zero_point = _checked(zero_point, quant_min, quant_max)
    return _quantized(x, *_per_channel(x, scale, zero_point, axis), quant_min, quant_max, x.dtype)


@fake_quantize_per_channel_affine.gradient
def _(ct: Any, out: Any, x: Any, scale: Any, zero_point: Any, axis: int, quant_min: int, quant_max: int) -> Any:
    return _inside(ct, x, *_per_channel(x, scale, zero_point, axis), quant_min, quant_max), None, None
