"""Activation functions.

Most have a hand-written gradient: it reads the input alone, is one pass, and stays finite where the terms of the
derived one (exp in the branch not taken) would not.
"""

from __future__ import annotations

import math
from typing import Any

from rushlight._ops.bodies import (
    given_dtype,
    in_order_of_input,
    is_number,
    like_input,
    logistic,
    number_value,
    pair,
    refuse,
    take_slice,
    wrap,
)
from rushlight._ops.table import operator
from rushlight._prims import build, prim

__all__: list[str] = []

NN = ("nn.functional",)
FLAG = ("inplace_flag",)
SQRT_HALF = math.sqrt(0.5)
SQRT_2_OVER_PI = math.sqrt(2.0 / math.pi)
ONE_OVER_SQRT_2_PI = 1.0 / math.sqrt(2.0 * math.pi)
CUBE = 0.044715
SELU_ALPHA, SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946


def _log1p_exp(x: Any) -> Any:
    """log(1 + e^x), without overflow."""
    return prim.maximum(x, build.zeros_like(x)) + prim.log1p(prim.exp(-prim.abs(x)))


def _number(item: Any, x: Any) -> Any:
    """A literal number, or one given at run time, in the dtype of `x`."""
    return item if is_number(item) else number_value(item, x.dtype)


# ***** straight lines *****


@operator("relu(Tensor input) -> Tensor", promote="same", spaces=("torch", "nn.functional"), inplace=True, tags=FLAG)
def relu(x: Any) -> Any:
    """max(x, 0)."""
    refuse(x, "relu", "bc")
    return build.select(x <= 0, 0, x)


@relu.gradient
def _(ct: Any, out: Any, x: Any) -> Any:
    return build.select(out <= 0, 0, ct)


@operator("hardtanh(Tensor input, Scalar min_val=-1.0, Scalar max_val=1.0) -> Tensor", promote="same", promote_over=("input",), spaces=NN,
          static=("min_val", "max_val"), like=like_input,
          method=False, inplace=True, tags=FLAG)  # fmt: skip
def hardtanh(x: Any, min_val: Any, max_val: Any) -> Any:
    """x kept within [min_val, max_val]."""
    refuse(x, "hardtanh", "bc")
    if is_number(min_val) and is_number(max_val) and min_val > max_val:
        raise ValueError("min_val cannot be greater than max_val")
    if given_dtype(x).kind == "u" and any(
        is_number(v) and isinstance(v, (int, float)) and v < 0 for v in (min_val, max_val)
    ):
        raise RuntimeError("cannot do hardtanh on an unsigned type with negative limits")
    x, low = pair(x, min_val)
    x, high = pair(x, max_val)
    return prim.minimum(prim.maximum(x, low), high)


@hardtanh.gradient
def _(ct: Any, out: Any, x: Any, min_val: Any, max_val: Any) -> Any:
    return build.select((x <= min_val) | (x >= max_val), 0, ct)


@operator(
    "relu6(Tensor input) -> Tensor",
    promote="same",
    spaces=NN,
    method=False,
    inplace=True,
    inplace_spaces=(),
    tags=FLAG,
    node="HardtanhBackward0",
    like=like_input,
)
def relu6(x: Any) -> Any:
    """x kept within [0, 6]."""
    return hardtanh(x, 0, 6)


relu6.gradient(lambda ct, out, x: build.select((x <= 0) | (x >= 6), 0, ct))


@operator("leaky_relu(Tensor input, Scalar negative_slope=0.01) -> Tensor", promote="same", promote_over=("input",), spaces=NN,
          method=False, inplace=True, tags=FLAG)  # fmt: skip
def leaky_relu(x: Any, negative_slope: Any) -> Any:
    """x where it is positive, negative_slope * x elsewhere."""
    refuse(x, "leaky_relu", "buic")
    return build.select(x > 0.0, x, x * negative_slope)


@leaky_relu.gradient
def _(ct: Any, out: Any, x: Any, negative_slope: Any) -> Any:
    return build.select(x > 0.0, ct, ct * negative_slope)


def _channels(x: Any, weight: Any) -> Any:
    """The slopes of `prelu` in the shape of `x`: one for all, or one for each channel (dim 1)."""
    if len(weight.shape) > 1:
        raise RuntimeError(f"prelu: Expected `weight` to be a scalar or 1D tensor, but got: ndim = {len(weight.shape)}")
    count = weight.shape[0] if weight.shape else 1
    if count == 1:
        return build.broadcast_to(build.reshape(weight, ()), x.shape)
    if not x.shape:
        raise RuntimeError("Not allow zero-dim input tensor.")
    channels = x.shape[1] if len(x.shape) > 1 else 1
    if channels != count:
        raise RuntimeError(
            f"Mismatch of parameter numbers and input channel size. Found parameter numbers = {count} and channel size = {channels}."
        )
    return prim.broadcast(weight, shape=x.shape, dims=(1,))


@operator("prelu(Tensor input, Tensor weight) -> Tensor", promote="opmath", like="operands", spaces=("torch", "nn.functional"),
          node="PreluKernelBackward0")  # fmt: skip
def prelu(x: Any, weight: Any) -> Any:
    """x where it is positive, weight * x elsewhere; the weight is one number or one for each channel."""
    refuse(x, "prelu", "bui")
    return build.select(x > 0.0, x, x * _channels(x, weight))


@prelu.gradient
def _(ct: Any, out: Any, x: Any, weight: Any) -> Any:
    positive = x > 0.0
    # The transpose multiplies too, and an infinite x must not take part
    slopes = build.select(positive, 0.0, ct * build.select(positive, 0.0, x))
    channels = (1,) if weight.shape and weight.shape[0] != 1 else ()
    summed = prim.sum(slopes, dims=tuple(d for d in range(len(x.shape)) if d not in channels)) if x.shape else slopes
    return build.select(positive, ct, ct * _channels(x, weight)), build.reshape(summed, weight.shape)


@operator(
    "hardswish(Tensor input) -> Tensor",
    promote="same",
    spaces=NN,
    method=False,
    inplace=True,
    inplace_spaces=(),
    tags=FLAG,
)
def hardswish(x: Any) -> Any:
    """x * min(max(x + 3, 0), 6) / 6."""
    refuse(x, "hardswish", "buic")
    return x * hardtanh(x + 3.0, 0.0, 6.0) / 6.0


@hardswish.gradient
def _(ct: Any, out: Any, x: Any) -> Any:
    return build.select(x <= -3.0, 0.0, build.select(x < 3.0, ct * (x / 3.0 + 0.5), ct))


@operator(
    "hardsigmoid(Tensor input) -> Tensor",
    promote="same",
    spaces=NN,
    method=False,
    inplace=True,
    inplace_spaces=(),
    tags=FLAG,
)
def hardsigmoid(x: Any) -> Any:
    """min(max(x + 3, 0), 6) / 6."""
    refuse(x, "hardsigmoid", "buic")
    return hardtanh(x + 3.0, 0.0, 6.0) / 6.0


@hardsigmoid.gradient
def _(ct: Any, out: Any, x: Any) -> Any:
    return build.select((x > -3.0) & (x < 3.0), ct / 6.0, 0.0)


def _within(x: Any, size: Any) -> Any:
    return (x >= -size) & (x <= size) if is_number(size) else (x >= build.unary("neg", size)) & (x <= size)


@operator("hardshrink(Tensor input, Scalar lambd=0.5) -> Tensor", promote="same", promote_over=("input",), spaces=("torch", "nn.functional"),
          inplace=False, out="exact")  # fmt: skip
def hardshrink(x: Any, lambd: Any) -> Any:
    """0 within [-lambd, lambd], x elsewhere."""
    refuse(x, "hardshrink", "buic")
    return build.select(_within(x, _number(lambd, x)), 0.0, x)


hardshrink.gradient(lambda ct, out, x, lambd: build.select(_within(x, _number(lambd, x)), 0.0, ct))


@operator("softshrink(Tensor input, Scalar lambd=0.5) -> Tensor", promote="same", promote_over=("input",), spaces=NN, method=False, out="exact",
          static=("lambd",))  # fmt: skip
def softshrink(x: Any, lambd: Any) -> Any:
    """x moved toward 0 by lambd, and 0 where it would cross."""
    refuse(x, "softshrink", "buic")
    if is_number(lambd) and lambd < 0:
        raise RuntimeError(f"lambda must be greater or equal to 0, but found to be {lambd}.")
    size = _number(lambd, x)
    below = build.select(x < -size if is_number(size) else x < build.unary("neg", size), x + size, x * 0.0)
    return build.select(x > size, x - size, below)


softshrink.gradient(lambda ct, out, x, lambd: build.select(_within(x, _number(lambd, x)), 0.0, ct))


# ***** smooth ones *****


@operator(
    "gelu(Tensor input, *, str approximate='none') -> Tensor", promote="same", spaces=NN, method=False, out="exact"
)
def gelu(x: Any, *, approximate: str) -> Any:
    """x times the normal distribution function of x; `approximate="tanh"` uses a tanh for it."""
    refuse(x, "GeluKernelImpl", "buic")
    if approximate == "tanh":
        return 0.5 * x * (1.0 + prim.tanh(SQRT_2_OVER_PI * (x + CUBE * x * x * x)))
    if approximate != "none":
        raise RuntimeError("approximate argument must be either none or tanh.")
    return x * 0.5 * (1.0 + prim.erf(x * SQRT_HALF))


@gelu.gradient
def _(ct: Any, out: Any, x: Any, *, approximate: str) -> Any:
    if approximate == "none":
        return ct * (0.5 * (1.0 + prim.erf(x * SQRT_HALF)) + x * (ONE_OVER_SQRT_2_PI * prim.exp(x * x * -0.5)))
    square = x * x
    bend = prim.tanh(SQRT_2_OVER_PI * (x + CUBE * square * x))
    slope = SQRT_2_OVER_PI * (1.0 + (3.0 * CUBE) * square)
    return ct * (0.5 * (1.0 + bend) + 0.5 * x * (1.0 - bend * bend) * slope)


@operator(
    "silu(Tensor input) -> Tensor", promote="same", spaces=NN, method=False, inplace=True, inplace_spaces=(), tags=FLAG
)
def silu(x: Any) -> Any:
    """x * sigmoid(x)."""
    refuse(x, "silu_cpu", "bui")
    return x / (1.0 + prim.exp(-x))


@silu.gradient
def _(ct: Any, out: Any, x: Any) -> Any:
    s = logistic(x)
    return ct * build.conj(s * (1.0 + x * (1.0 - s)))


@operator(
    "mish(Tensor input) -> Tensor", promote="same", spaces=NN, method=False, inplace=True, inplace_spaces=(), tags=FLAG
)
def mish(x: Any) -> Any:
    """x * tanh(log(1 + exp(x)))."""
    refuse(x, "mish_cpu", "buic")
    return x * prim.tanh(_log1p_exp(x))


@mish.gradient
def _(ct: Any, out: Any, x: Any) -> Any:
    t = prim.tanh(_log1p_exp(x))
    return ct * (t + x * logistic(x) * (1.0 - t * t))


@operator("elu(Tensor input, Scalar alpha=1.0) -> Tensor", promote="same", promote_over=("input",), spaces=NN, method=False, inplace=True,
          tags=FLAG)  # fmt: skip
def elu(x: Any, alpha: Any) -> Any:
    """x where it is positive, alpha * (exp(x) - 1) elsewhere."""
    refuse(x, "elu_cpu", "buic")
    return build.select(x <= 0.0, prim.expm1(x) * alpha, x)


def _curved(x: Any) -> Any:
    """x where it is negative, else a constant zero: the slope at zero is that of the curve, but does not change there."""
    return build.select(x < 0.0, x, 0.0)


@elu.gradient
def _(ct: Any, out: Any, x: Any, alpha: Any) -> Any:
    return build.select(x <= 0.0, ct * prim.exp(_curved(x)) * alpha, ct)


@operator("selu(Tensor input) -> Tensor", promote="same", spaces=("torch", "nn.functional"), method=False, inplace=True, tags=FLAG,
          node="EluBackward0")  # fmt: skip
def selu(x: Any) -> Any:
    """The self-normalising `elu`: scale * elu(x, alpha) with two fixed numbers."""
    refuse(x, "elu_cpu", "buic")
    return build.select(x <= 0.0, prim.expm1(x) * (SELU_ALPHA * SELU_SCALE), x * SELU_SCALE)


@selu.gradient
def _(ct: Any, out: Any, x: Any) -> Any:
    return build.select(x <= 0.0, ct * prim.exp(_curved(x)) * (SELU_ALPHA * SELU_SCALE), ct * SELU_SCALE)


@operator("celu(Tensor input, Scalar alpha=1.0) -> Tensor", promote="same", promote_over=("input",), spaces=("torch", "nn.functional"),
          method=False, inplace=True, tags=FLAG, static=("alpha",))  # fmt: skip
def celu(x: Any, alpha: Any) -> Any:
    """x where it is positive, alpha * (exp(x / alpha) - 1) elsewhere."""
    refuse(x, "elu_cpu", "buic")
    if is_number(alpha) and alpha == 0:
        raise RuntimeError("ZeroDivisionError: alpha cannot be 0 for CELU")
    return build.select(x <= 0.0, prim.expm1(x / alpha) * alpha, x)


@celu.gradient
def _(ct: Any, out: Any, x: Any, alpha: Any) -> Any:
    return build.select(x <= 0.0, ct * prim.exp(_curved(x) / alpha), ct)


@operator("softplus(Tensor input, Scalar beta=1.0, Scalar threshold=20.0) -> Tensor", promote="same", promote_over=("input",), spaces=NN,
          method=False, out="exact")  # fmt: skip
def softplus(x: Any, beta: Any, threshold: Any) -> Any:
    """log(1 + exp(beta x)) / beta; x itself where beta x > threshold."""
    refuse(x, "softplus", "buic")
    scaled = x if is_number(beta) and beta == 1 else x * beta
    curve = prim.log1p(prim.exp(scaled))
    return build.select(scaled > threshold, x, curve if scaled is x else curve / beta)


@softplus.gradient
def _(ct: Any, out: Any, x: Any, beta: Any, threshold: Any) -> Any:
    scaled = x * beta
    # At the threshold the slope is constant
    curved = build.select(scaled >= threshold, build.full_like(scaled, 1) * threshold, scaled)
    return build.select(scaled > threshold, ct, ct * logistic(curved))


@operator(
    "logsigmoid(Tensor input) -> Tensor",
    promote="same",
    spaces=NN,
    method=False,
    node="LogSigmoidBackward0",
    out="exact",
    like="contiguous",
)
def logsigmoid(x: Any) -> Any:
    """log(1 / (1 + exp(-x)))."""
    refuse(x, "log_sigmoid_cpu", "buic")
    return prim.minimum(x, build.zeros_like(x)) - prim.log1p(prim.exp(-prim.abs(x)))


@logsigmoid.gradient
def _(ct: Any, out: Any, x: Any) -> Any:
    return ct * logistic(-x)


@operator("softsign(Tensor input) -> Tensor", promote="float", spaces=NN, method=False, node="DivBackward0")
def softsign(x: Any) -> Any:
    """x / (1 + |x|)."""
    return x / (build.complex_(prim.abs(x) + 1.0) if x.dtype.is_complex else prim.abs(x) + 1.0)


@operator("tanhshrink(Tensor input) -> Tensor", promote="float", spaces=NN, method=False, node="SubBackward0")
def tanhshrink(x: Any) -> Any:
    """x - tanh(x)."""
    return x - prim.tanh(x)


def _halves(x: Any, dim: int) -> tuple[Any, Any]:
    if not x.shape:
        raise RuntimeError("glu does not support 0-dimensional tensors")
    dim = wrap(dim, x)
    size = x.shape[dim]
    if size % 2:
        raise RuntimeError(f"Halving dimension must be even, but dimension {dim} is size {size}")
    return take_slice(x, dim, 0, size // 2), take_slice(x, dim, size // 2, size)


@operator("glu(Tensor input, int dim=-1) -> Tensor", promote="same", spaces=NN, method=False, like=in_order_of_input)
def glu(x: Any, dim: int) -> Any:
    """a * sigmoid(b), where a and b are the halves of x along dim."""
    refuse(x, "glu_cpu", "buic")
    a, b = _halves(x, dim)
    return a * logistic(b)


@glu.gradient
def _(ct: Any, out: Any, x: Any, dim: int) -> Any:
    a, b = _halves(x, dim)
    gate = logistic(b)
    return prim.cat(ct * gate, ct * (a * gate * (1.0 - gate)), dim=wrap(dim, x))
