"""Operators of one tensor, element by element."""

from __future__ import annotations

import math
from typing import Any

import rushlight
from rushlight.onnx.exporting.table import Call, translates
from rushlight.onnx.exporting.translations.binary import as_float, common, compare
from rushlight.onnx.exporting.values import Value

# Operators that ONNX has: in the result's dtype.
_DIRECT = {
    "abs": "Abs", "acos": "Acos", "acosh": "Acosh", "asin": "Asin", "asinh": "Asinh", "atan": "Atan", "atanh": "Atanh", "ceil": "Ceil", "cos": "Cos",
    "cosh": "Cosh", "erf": "Erf", "special_erf": "Erf", "exp": "Exp", "floor": "Floor", "log": "Log", "neg": "Neg", "reciprocal": "Reciprocal",
    "relu": "Relu", "round": "Round", "sigmoid": "Sigmoid", "sign": "Sign", "sin": "Sin", "sinh": "Sinh", "sqrt": "Sqrt", "tan": "Tan", "tanh": "Tanh",
    "sgn": "Sign", "special_expit": "Sigmoid", "negative": "Neg", "absolute": "Abs", "arccos": "Acos", "arcsin": "Asin", "arctan": "Atan",
    "arccosh": "Acosh", "arcsinh": "Asinh", "arctanh": "Atanh",
}  # fmt: skip
_WHOLE_ALREADY = frozenset("ceil floor round trunc".split())  # of integers: nothing to do


def _direct(name: str, kind: str) -> None:
    @translates(f"aten::{name}")
    def translate(call: Call, x: Value) -> Value:
        if name in _WHOLE_ALREADY and not x.dtype.is_floating_point:
            return call.op("Identity", x, shape=x.shape)
        if x.dtype == rushlight.bool and name in ("abs", "sign", "relu", "sgn"):
            return call.op("Identity", x, shape=x.shape)
        return call.out(kind, call.cast(x, call.dtype))


for _name, _kind in _DIRECT.items():
    _direct(_name, _kind)


@translates("aten::positive", "aten::alias", "aten::detach", "aten::clone", "aten::contiguous", "aten::lift_fresh_copy", "aten::lift_fresh", "aten::lift",
            "aten::conj", "aten::_conj", "aten::resolve_conj", "aten::resolve_neg", "aten::conj_physical", "aten::detach_", "aten::alias_copy",
            "aten::detach_copy", "aten::real")  # fmt: skip
def same(call: Call, x: Value) -> Value:
    if x.dtype.is_complex and "conj" in call.name:
        raise call.refuse("the conjugate of complex numbers")
    return x


@translates("aten::trunc", "aten::fix")
def trunc(call: Call, x: Value) -> Value:
    if not x.dtype.is_floating_point:
        return x
    return call.out("Mul", call.op("Sign", x), call.op("Floor", call.op("Abs", x)))


@translates("aten::frac")
def frac(call: Call, x: Value) -> Value:
    return call.out("Sub", x, trunc(call, x))


@translates("aten::round.decimals")
def round_decimals(call: Call, x: Value, *, decimals: int = 0) -> Value:
    scale = call.const(10.0 ** abs(decimals), x.dtype)
    first, second = ("Mul", "Div") if decimals >= 0 else ("Div", "Mul")
    return call.out(second, call.op("Round", call.op(first, x, scale)), scale)


@translates("aten::rsqrt")
def rsqrt(call: Call, x: Value) -> Value:
    return call.out("Reciprocal", call.op("Sqrt", call.cast(x, call.dtype)))


@translates("aten::square")
def square(call: Call, x: Value) -> Value:
    x = call.cast(x, call.dtype)
    return call.out("Mul", x, x)


@translates("aten::exp2", "aten::special_exp2")
def exp2(call: Call, x: Value) -> Value:
    return call.out("Pow", call.const(2.0, call.dtype), call.cast(x, call.dtype))


@translates("aten::log2")
def log2(call: Call, x: Value) -> Value:
    return call.out("Div", call.op("Log", call.cast(x, call.dtype)), call.const(math.log(2), call.dtype))


@translates("aten::log10")
def log10(call: Call, x: Value) -> Value:
    return call.out("Div", call.op("Log", call.cast(x, call.dtype)), call.const(math.log(10), call.dtype))


@translates("aten::expm1", "aten::special_expm1")
def expm1(call: Call, x: Value) -> Value:
    """(e^x + 1) tanh(x/2) near 0, where e^x - 1 would lose its digits."""
    x = call.cast(x, call.dtype)
    one, e = call.const(1.0, x.dtype), call.op("Exp", x)
    near = call.op("Mul", call.op("Add", e, one), call.op("Tanh", call.op("Mul", x, call.const(0.5, x.dtype))))
    small = call.op("Less", call.op("Abs", x), one)
    return call.out("Where", small, near, call.op("Sub", e, one))


@translates("aten::log1p", "aten::special_log1p")
def log1p(call: Call, x: Value) -> Value:
    """log(u) x / (u - 1) with u = 1 + x: what u lost in rounding cancels."""
    x = call.cast(x, call.dtype)
    one = call.const(1.0, x.dtype)
    u = call.op("Add", one, x)
    less, log = call.op("Sub", u, one), call.op("Log", u)
    same_ = call.op("Equal", less, call.const(0.0, x.dtype))
    endless = call.op("IsInf", call.cast(log, rushlight.float32))
    safe = call.op("Where", same_, one, less)
    exact = call.op("Mul", log, call.op("Div", x, safe))
    return call.out("Where", same_, x, call.op("Where", endless, log, exact))


# erfc(z) = t exp(p(t) - z^2) with t = 1 / (1 + z / 2), to 1.2e-7 of itself for every z >= 0 (a Chebyshev fit).
_ERFC = (
    -1.26551223,
    1.00002368,
    0.37409196,
    0.09678418,
    -0.18628806,
    0.27886807,
    -1.13520398,
    1.48851587,
    -0.82215223,
    0.17087277,
)


@translates("aten::erfc", "aten::special_erfc")
def erfc(call: Call, x: Value) -> Value:
    """1 - erf(x), where that keeps its digits; else by a fit."""
    x = call.cast(x, call.dtype)
    one = call.const(1.0, x.dtype)
    plain = call.op("Sub", one, call.op("Erf", x))
    z = call.op("Abs", x)
    t = call.op("Reciprocal", call.op("Add", one, call.op("Mul", z, call.const(0.5, x.dtype))))
    made = call.const(_ERFC[-1], x.dtype)
    for factor in _ERFC[-2::-1]:
        made = call.op("Add", call.op("Mul", made, t), call.const(factor, x.dtype))
    fit = call.op("Mul", t, call.op("Exp", call.op("Sub", made, call.op("Mul", z, z))))
    return call.out("Where", call.op("Greater", x, one), fit, plain)


@translates("aten::special_ndtr")
def ndtr(call: Call, x: Value) -> Value:
    turned = call.op("Mul", call.cast(x, call.dtype), call.const(-math.sqrt(0.5), call.dtype))
    return call.out("Mul", erfc(call, turned), call.const(0.5, call.dtype))


@translates("aten::sinc", "aten::special_sinc")
def sinc(call: Call, x: Value) -> Value:
    x = call.op("Mul", call.cast(x, call.dtype), call.const(math.pi, call.dtype))
    zero, one = call.const(0.0, call.dtype), call.const(1.0, call.dtype)
    at_zero = call.op("Equal", x, zero)
    safe = call.op("Where", at_zero, one, x)
    return call.out("Where", at_zero, one, call.op("Div", call.op("Sin", safe), safe))


@translates("aten::deg2rad")
def deg2rad(call: Call, x: Value) -> Value:
    return call.out("Mul", call.cast(x, call.dtype), call.const(math.pi / 180, call.dtype))


@translates("aten::rad2deg")
def rad2deg(call: Call, x: Value) -> Value:
    return call.out("Mul", call.cast(x, call.dtype), call.const(180 / math.pi, call.dtype))


@translates("aten::logit", "aten::special_logit")
def logit(call: Call, x: Value, eps: float | None = None) -> Value:
    x = call.cast(x, call.dtype)
    if eps is not None:
        x = call.op("Clip", x, call.const(eps, x.dtype), call.const(1 - eps, x.dtype))
    return call.out("Log", call.op("Div", x, call.op("Sub", call.const(1.0, x.dtype), x)))


# ***** tests *****


@translates("aten::isnan")
def isnan(call: Call, x: Value) -> Value:
    if not x.dtype.is_floating_point:
        return call.expand(call.const(False, rushlight.bool), call.shape_vector(x), shape=x.shape)
    return call.op("IsNaN", x, shape=x.shape)


def _infinite(call: Call, x: Value, negative: int, positive: int) -> Value:
    if not x.dtype.is_floating_point:
        return call.expand(call.const(False, rushlight.bool), call.shape_vector(x), shape=x.shape)
    if x.dtype not in (rushlight.float32, rushlight.float64):
        x = call.cast(x, rushlight.float32)
    attrs: dict[str, Any] = {} if negative and positive else {"detect_negative": negative, "detect_positive": positive}
    return call.op("IsInf", x, shape=x.shape, **attrs)


@translates("aten::isinf")
def isinf(call: Call, x: Value) -> Value:
    return _infinite(call, x, 1, 1)


@translates("aten::isposinf")
def isposinf(call: Call, x: Value) -> Value:
    return _infinite(call, x, 0, 1)


@translates("aten::isneginf")
def isneginf(call: Call, x: Value) -> Value:
    return _infinite(call, x, 1, 0)


@translates("aten::isfinite")
def isfinite(call: Call, x: Value) -> Value:
    return call.out("Not", call.op("Or", _infinite(call, x, 1, 1), isnan(call, x)))


@translates("aten::signbit")
def signbit(call: Call, x: Value) -> Value:
    if x.dtype == rushlight.bool:
        return call.op("And", x, call.op("Not", x))
    return call.out("Less", x, call.const(0, x.dtype))


@translates("aten::logical_not")
def logical_not(call: Call, x: Value) -> Value:
    return call.out("Not", call.cast(x, rushlight.bool))


@translates("aten::bitwise_not")
def bitwise_not(call: Call, x: Value) -> Value:
    if x.dtype == rushlight.bool:
        return call.out("Not", x)
    if x.dtype == rushlight.uint8:
        return call.out("Sub", call.const(255, x.dtype), x)
    return call.out("Sub", call.const(-1, x.dtype), x)


@translates("aten::nan_to_num")
def nan_to_num(
    call: Call, x: Value, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Value:
    if not x.dtype.is_floating_point:
        return x
    limits = rushlight.finfo(x.dtype)
    highest = call.const(limits.max if posinf is None else posinf, x.dtype)
    lowest = call.const(limits.min if neginf is None else neginf, x.dtype)
    made = call.op("Where", isnan(call, x), call.const(0.0 if nan is None else nan, x.dtype), x)
    made = call.op("Where", _infinite(call, made, 0, 1), highest, made)
    return call.out("Where", _infinite(call, made, 1, 0), lowest, made)


# ***** activations *****


@translates("aten::silu")
def silu(call: Call, x: Value) -> Value:
    return call.out("Mul", x, call.op("Sigmoid", x))


@translates("aten::mish")
def mish(call: Call, x: Value) -> Value:
    if call.opset >= 18:
        return call.out("Mish", x)
    return call.out("Mul", x, call.op("Tanh", call.op("Softplus", x)))


@translates("aten::hardswish")
def hardswish(call: Call, x: Value) -> Value:
    return call.out("HardSwish", x)


@translates("aten::hardsigmoid")
def hardsigmoid(call: Call, x: Value) -> Value:
    return call.out("HardSigmoid", x, alpha=1 / 6, beta=0.5)


@translates("aten::gelu")
def gelu(call: Call, x: Value, *, approximate: str = "none") -> Value:
    if call.opset >= 20:
        return call.out("Gelu", x, approximate=approximate if approximate != "none" else None)
    half, one = call.const(0.5, x.dtype), call.const(1.0, x.dtype)
    if approximate == "tanh":
        cube = call.op("Mul", call.op("Mul", x, x), x)
        inner = call.op("Add", x, call.op("Mul", call.const(0.044715, x.dtype), cube))
        bell = call.op("Tanh", call.op("Mul", call.const(math.sqrt(2 / math.pi), x.dtype), inner))
    else:
        bell = call.op("Erf", call.op("Mul", x, call.const(math.sqrt(0.5), x.dtype)))
    return call.out("Mul", call.op("Mul", x, half), call.op("Add", one, bell))


def clip(call: Call, x: Value, low: Any, high: Any) -> Value:
    """Between two numbers, None for no limit; NaN stays."""
    low = None if low is None else call.scalar(low, x.dtype)
    high = None if high is None else call.scalar(high, x.dtype)
    return call.op("Clip", x, low, high, shape=x.shape)


@translates("aten::relu6")
def relu6(call: Call, x: Value) -> Value:
    return clip(call, x, 0, 6)


@translates("aten::hardtanh")
def hardtanh(call: Call, x: Value, low: Any = -1, high: Any = 1) -> Value:
    return clip(call, x, low, high)


@translates("aten::elu")
def elu(call: Call, x: Value, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Value:
    if scale == 1 and input_scale == 1:
        return call.out("Elu", x, alpha=float(alpha))
    low = call.op("Sub", call.op("Exp", call.op("Mul", x, call.const(input_scale, x.dtype))), call.const(1.0, x.dtype))
    low = call.op("Mul", low, call.const(float(alpha) * float(scale), x.dtype))
    positive = call.op("Greater", x, call.const(0.0, x.dtype))
    return call.out("Where", positive, call.op("Mul", x, call.const(scale, x.dtype)), low)


@translates("aten::celu")
def celu(call: Call, x: Value, alpha: Any = 1.0) -> Value:
    if x.dtype == rushlight.float32:
        return call.out("Celu", x, alpha=float(alpha))
    scaled = call.op("Elu", call.op("Div", x, call.const(alpha, x.dtype)), alpha=1.0)
    low = call.op("Mul", scaled, call.const(alpha, x.dtype))
    return call.out("Where", call.op("Greater", x, call.const(0.0, x.dtype)), x, low)


@translates("aten::selu")
def selu(call: Call, x: Value) -> Value:
    return call.out("Selu", x)


@translates("aten::softplus")
def softplus(call: Call, x: Value, beta: Any = 1, threshold: Any = 20) -> Value:
    scaled = x if beta == 1 else call.op("Mul", x, call.const(beta, x.dtype))
    made = call.op("Softplus", scaled)
    made = made if beta == 1 else call.op("Div", made, call.const(beta, x.dtype))
    return call.out("Where", call.op("Greater", scaled, call.const(threshold, x.dtype)), x, made)


@translates("aten::leaky_relu")
def leaky_relu(call: Call, x: Value, slope: Any = 0.01) -> Value:
    return call.out("LeakyRelu", x, alpha=float(slope))


@translates("aten::rrelu")
def rrelu(call: Call, x: Value, lower: Any = 0.125, upper: Any = 1 / 3, training: bool = False, *_: Any) -> Value:
    if training:
        raise call.refuse("training=True", "call model.eval() first")
    return call.out("LeakyRelu", x, alpha=(float(lower) + float(upper)) / 2)


@translates("aten::prelu", "aten::_prelu_kernel")
def prelu(call: Call, x: Value, weight: Value) -> Value:
    if weight.ndim == 1 and x.ndim > 2:
        weight = call.unsqueeze(weight, list(range(1, x.ndim - 1)))
    elif weight.ndim < 1 or x.ndim < 2:
        weight = call.reshape(weight, [-1]) if x.ndim else call.reshape(weight, [])
    return call.out("PRelu", x, weight)


@translates("aten::log_sigmoid", "aten::log_sigmoid_forward")
def log_sigmoid(call: Call, x: Value) -> Any:
    """min(x, 0) - log(1 + e^-|x|)."""
    low = call.op("Min", x, call.const(0.0, x.dtype))
    rest = call.op("Softplus", call.op("Neg", call.op("Abs", x)))
    made = call.out("Sub", low, rest)
    return [made, made] if len(call.results) > 1 else made


@translates("aten::threshold")
def threshold(call: Call, x: Value, limit: Any, value: Any) -> Value:
    above = call.op("Greater", x, call.const(limit, x.dtype))
    return call.out("Where", above, x, call.const(value, x.dtype))


@translates("aten::hardshrink")
def hardshrink(call: Call, x: Value, lambd: Any = 0.5) -> Value:
    inside = call.op("LessOrEqual", call.op("Abs", x), call.const(lambd, x.dtype))
    return call.out("Where", inside, call.const(0.0, x.dtype), x)


@translates("aten::softshrink")
def softshrink(call: Call, x: Value, lambd: Any = 0.5) -> Value:
    rest = call.op("Sub", call.op("Abs", x), call.const(lambd, x.dtype))
    return call.out("Mul", call.op("Sign", x), call.op("Relu", rest))


@translates("aten::tanhshrink")
def tanhshrink(call: Call, x: Value) -> Value:
    return call.out("Sub", x, call.op("Tanh", x))


@translates("aten::softsign")
def softsign(call: Call, x: Value) -> Value:
    return call.out("Softsign", x)


@translates("aten::glu")
def glu(call: Call, x: Value, dim: int = -1) -> Value:
    size = x.shape[dim]  # type: ignore[index]
    if not isinstance(size, int):
        raise call.refuse("a dim of symbolic size")
    half = size // 2
    first, second = call.slice(x, dim, 0, half), call.slice(x, dim, half, size)
    return call.out("Mul", first, call.op("Sigmoid", second))


@translates("aten::_to_copy", "aten::to.dtype", "aten::to.dtype_layout", "aten::to.device", "aten::to.other", "aten::type_as", "aten::to",
            "prims::convert_element_type", "aten::_cast_Float", "aten::_autocast_to_full_precision")  # fmt: skip
def convert(call: Call, x: Value, *_: Any, dtype: Any = None) -> Value:
    """To the result's dtype."""
    return call.cast(x, call.dtype)


@translates("aten::heaviside")
def heaviside(call: Call, x: Value, values: Value) -> Value:
    zero, one = call.const(0, x.dtype), call.const(1, x.dtype)
    sides = call.op("Where", call.op("Less", x, zero), zero, one)
    if x.dtype.is_floating_point:
        sides = call.op("Where", isnan(call, x), zero, sides)
    return call.out("Where", call.op("Equal", x, zero), values, sides)


@translates("aten::clamp", "aten::clamp.Tensor", "aten::clip", "aten::clip.Tensor")
def clamp(call: Call, x: Value, low: Any = None, high: Any = None) -> Value:
    x = call.cast(x, call.dtype)
    if not isinstance(low, Value) and not isinstance(high, Value) and x.dtype.is_floating_point:
        if low is None or high is None or low <= high:
            return clip(call, x, low, high)
    for kind, limit in (("Max", low), ("Min", high)):
        if limit is not None:
            x = call.op(kind, x, call.scalar(limit, call.dtype), dtype=call.dtype)
    x.shape = call.shape
    return x


@translates("aten::clamp_min", "aten::clamp_min.Tensor")
def clamp_min(call: Call, x: Value, low: Any) -> Value:
    return clamp(call, x, low, None)


@translates("aten::clamp_max", "aten::clamp_max.Tensor")
def clamp_max(call: Call, x: Value, high: Any) -> Value:
    return clamp(call, x, None, high)


__all__ = ["as_float", "clip", "common", "compare", "expm1", "isnan"]
