"""Operators that compute each element by itself: arithmetic, comparisons, logic, bits, activations."""

from __future__ import annotations

import math
from functools import reduce
from typing import Any

import rushlight as torch
import rushlight.nn.functional as F
from rushlight.onnx.importing.table import MICROSOFT, Value, operator
from rushlight.onnx.importing.values import Host, numpy, tensor

__all__ = ["aligned"]

# ***** one operand *****

_UNARY = {
    "Abs": torch.abs, "Acos": torch.acos, "Acosh": torch.acosh, "Asin": torch.asin, "Asinh": torch.asinh, "Atan": torch.atan, "Atanh": torch.atanh,
    "Ceil": torch.ceil, "Cos": torch.cos, "Cosh": torch.cosh, "Erf": torch.erf, "Exp": torch.exp, "Floor": torch.floor, "IsNaN": torch.isnan,
    "Log": torch.log, "Neg": torch.neg, "Reciprocal": torch.reciprocal, "Round": torch.round, "Sigmoid": torch.sigmoid, "Sign": torch.sign,
    "Sin": torch.sin, "Sinh": torch.sinh, "Softsign": F.softsign, "Sqrt": torch.sqrt, "Tan": torch.tan, "Tanh": torch.tanh, "Not": torch.logical_not,
    "BitwiseNot": torch.bitwise_not, "Mish": F.mish, "Softplus": F.softplus, "Relu": torch.relu,
}  # fmt: skip


def _enter_unary(name: str, function: Any) -> None:
    def one(x: Any, *, consumed_inputs: Any = None) -> Any:
        return function(x)

    operator(name)(one)


for _name, _function in _UNARY.items():
    _enter_unary(_name, _function)


@operator("Softplus")
def softplus(x: Any) -> Any:
    """log(1 + exp(x)), without a threshold."""
    return torch.logaddexp(x, torch.zeros_like(x))


@operator("IsInf", since=10)
def isinf(x: Any, *, detect_negative: int = 1, detect_positive: int = 1) -> Any:
    x = x.to(torch.float32) if x.element_size() == 1 else x
    if detect_negative and detect_positive:
        return torch.isinf(x)
    if detect_negative:
        return x == -math.inf
    return x == math.inf if detect_positive else torch.zeros_like(x, dtype=torch.bool)


@operator("Celu", since=12)
def celu(x: Any, *, alpha: float = 1.0) -> Any:
    return F.celu(x, alpha)


@operator("Elu")
def elu(x: Any, *, alpha: float = 1.0, consumed_inputs: Any = None) -> Any:
    return F.elu(x, alpha)


@operator("Selu")
def selu(
    x: Any,
    *,
    alpha: float = 1.67326319217681884765625,
    gamma: float = 1.05070102214813232421875,
    consumed_inputs: Any = None,
) -> Any:
    return torch.where(x > 0, x, alpha * torch.expm1(x)) * gamma


@operator("LeakyRelu")
def leaky_relu(x: Any, *, alpha: float = 0.01, consumed_inputs: Any = None) -> Any:
    return F.leaky_relu(x, alpha)


@operator("PRelu")
def prelu(x: Any, slope: Any, *, consumed_inputs: Any = None, opset: int) -> Any:
    if opset < 7 and slope.ndim == 1 and x.ndim > 2:
        slope = slope.reshape(-1, *[1] * (x.ndim - 2))
    return torch.where(x < 0, x * slope, x)


@operator("ThresholdedRelu")
def thresholded_relu(x: Any, *, alpha: float = 1.0) -> Any:
    return torch.where(x > alpha, x, torch.zeros_like(x))


@operator("HardSigmoid")
def hard_sigmoid(x: Any, *, alpha: float = 0.2, beta: float = 0.5, consumed_inputs: Any = None) -> Any:
    return torch.clamp(x * alpha + beta, 0.0, 1.0)


@operator("HardSwish", since=14)
def hard_swish(x: Any) -> Any:
    return F.hardswish(x)


@operator("Gelu", since=20)
@operator("Gelu", domain=MICROSOFT)
def gelu(x: Any, *, approximate: str = "none") -> Any:
    return F.gelu(x, approximate=approximate)


@operator("Shrink", since=9)
def shrink(x: Any, *, bias: float = 0.0, lambd: float = 0.5) -> Any:
    wide = x if x.is_floating_point() else x.to(torch.float32)
    kept = torch.where(wide < -lambd, wide + bias, torch.where(wide > lambd, wide - bias, torch.zeros_like(wide)))
    return kept.to(x.dtype)


@operator("Swish", since=24)
def swish(x: Any, *, alpha: float = 1.0) -> Any:
    return F.silu(x) if alpha == 1.0 else x * torch.sigmoid(alpha * x)


@operator("Affine")
def affine(x: Any, *, alpha: float = 1.0, beta: float = 0.0) -> Any:
    return x * alpha + beta


@operator("Identity", moves=True)
def identity(x: Value) -> Value:
    return x


# ***** two operands *****


def aligned(x: Any, y: Any, broadcast: int, axis: int | None) -> Any:
    """`y` as operator sets below 7 broadcast it: its dims stand at `axis` of `x`, or at the end."""
    if not broadcast or axis is None:
        return y
    axis = axis % x.ndim
    return y.reshape(*y.shape, *[1] * (x.ndim - axis - y.ndim))


def _enter_binary(name: str, function: Any) -> None:
    def old(x: Any, y: Any, *, broadcast: int = 0, axis: Any = None, consumed_inputs: Any = None) -> Any:
        return function(x, aligned(x, y, broadcast, axis))

    def two(x: Value, y: Value) -> Any:
        # A constant as a number, where one will do: it needs no memory, and fuses with what is around it.
        one = isinstance(y, Host) and len(y.items) == 1 and isinstance(x, torch.Tensor) and x.is_floating_point()
        if one and (y.scalar or x.ndim > 0):
            return function(x, y.items[0])
        return function(tensor(x), tensor(y))

    operator(name)(old)
    operator(name, since=7)(two)


def divide(x: Any, y: Any) -> Any:
    """Integers are divided towards zero."""
    return torch.div(x, y) if x.is_floating_point() or x.is_complex() else torch.div(x, y, rounding_mode="trunc")


def power(x: Any, y: Any) -> Any:
    """x ** y in the type of x, whatever y's is."""
    if not isinstance(y, torch.Tensor):
        return torch.pow(x, y)
    if x.dtype == y.dtype:
        return torch.pow(x, y)
    if not x.is_floating_point() and y.is_floating_point():
        return torch.pow(x.to(torch.float64), y.to(torch.float64)).to(x.dtype)
    return torch.pow(x, y.to(x.dtype) if x.is_floating_point() else y).to(x.dtype)


_BINARY = {
    "Add": torch.add, "Sub": torch.sub, "Mul": torch.mul, "Div": divide, "Pow": power, "And": torch.logical_and, "Or": torch.logical_or,
    "Xor": torch.logical_xor, "Equal": torch.eq, "Less": torch.lt, "Greater": torch.gt, "LessOrEqual": torch.le, "GreaterOrEqual": torch.ge,
    "BitwiseAnd": torch.bitwise_and, "BitwiseOr": torch.bitwise_or, "BitwiseXor": torch.bitwise_xor,
}  # fmt: skip
for _name, _function in _BINARY.items():
    _enter_binary(_name, _function)


@operator("Equal", since=19)
def equal(x: Value, y: Value) -> Any:
    if isinstance(x, numpy.ndarray):
        return torch.from_numpy(numpy.asarray(numpy.equal(x, y), dtype=bool))
    return torch.eq(tensor(x), tensor(y))


@operator("Mod", since=10)
def mod(x: Any, y: Any, *, fmod: int = 0) -> Any:
    """The remainder: with the divisor's sign, or with `fmod` the dividend's."""
    return torch.fmod(x, y) if fmod else torch.remainder(x, y)


@operator("BitShift", since=11)
def bit_shift(x: Any, y: Any, *, direction: str) -> Any:
    """Shifts by the width or more leave zeros, or copies of the sign to the right of negative numbers."""
    width = x.element_size() * 8
    if direction == "RIGHT":
        signed = torch.iinfo(x.dtype).min < 0
        kept = torch.bitwise_right_shift(x, torch.clamp(y, max=width - 1))
        return kept if signed else torch.where(y >= width, torch.zeros_like(kept), kept)
    if direction != "LEFT":
        raise ValueError(f"direction is LEFT or RIGHT, not {direction!r}")
    return torch.where(y >= width, torch.zeros_like(x), torch.bitwise_left_shift(x, torch.clamp(y, max=width - 1)))


# ***** several operands *****


@operator("Sum")
def total(*xs: Any, consumed_inputs: Any = None) -> Any:
    return reduce(torch.add, xs)


@operator("Mean")
def mean(*xs: Any, consumed_inputs: Any = None) -> Any:
    return reduce(torch.add, xs) / len(xs)


@operator("Max")
def maximum(*xs: Any, consumed_inputs: Any = None) -> Any:
    return reduce(torch.maximum, xs)


@operator("Min")
def minimum(*xs: Any, consumed_inputs: Any = None) -> Any:
    return reduce(torch.minimum, xs)


@operator("Where", since=9)
def where(condition: Any, x: Value, y: Value) -> Value:
    if isinstance(x, numpy.ndarray):
        return numpy.where(condition.numpy(), x, y)
    return torch.where(condition, tensor(x), tensor(y))


@operator("Clip")
def clip_by_attributes(
    x: Any, *, min: float = -3.4028234663852886e38, max: float = 3.4028234663852886e38, consumed_inputs: Any = None
) -> Any:
    return torch.clamp(x, min, max)


@operator("Clip", since=11)
def clip(x: Any, low: Value = None, high: Value = None) -> Any:
    """Bounds are scalars or absent; where they cross, the upper one counts."""
    if all(bound is None or isinstance(bound, Host) for bound in (low, high)):
        bounds = [None if bound is None else bound.items[0] for bound in (low, high)]
        return x if bounds == [None, None] else torch.clamp(x, *bounds)
    if low is not None:
        x = torch.maximum(x, tensor(low))
    return x if high is None else torch.minimum(x, tensor(high))


@operator("SwiGLU", since=28)
def swiglu(gate: Any, value: Any, *, alpha: float = 1.0) -> Any:
    return gate * torch.sigmoid(gate * alpha) * value
