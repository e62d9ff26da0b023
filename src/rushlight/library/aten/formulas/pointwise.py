"""Formulas of operators that work element by element."""

from __future__ import annotations

import math
from typing import Any

import rushlight
from rushlight.library.aten.derivatives import conjugated, joint, op, rule, scalar, where, zeros

__all__: list[str] = []

_ZERO = "ceil floor round round.decimals trunc sign bernoulli fill.Scalar zero heaviside nonexistent"

rule("add.Tensor", self=lambda g, c: g, other=lambda g, c: scaled(g, c.alpha))
rule("add.Scalar", self=lambda g, c: g)
rule("sub.Tensor", self=lambda g, c: g, other=lambda g, c: scaled(-g, c.alpha))
rule("sub.Scalar", self=lambda g, c: g)
rule("rsub.Tensor", self=lambda g, c: scaled(-g, c.alpha), other=lambda g, c: g)
rule("rsub.Scalar", self=lambda g, c: scaled(-g, c.alpha))
rule("mul.Tensor", self=lambda g, c: times(g, c.other), other=lambda g, c: times(g, c.self))
rule("mul.Scalar", self=lambda g, c: times(g, c.other))
rule(
    "div.Tensor",
    self=lambda g, c: divided(g, c.other),
    other=lambda g, c: minus(g, ((c.self / c.other) / c.other).conj()),
)
rule("div.Scalar", self=lambda g, c: divided(g, c.other))
rule(
    "div.Tensor_mode", self=lambda g, c: divided(g, c.other) if c.rounding_mode is None else g.zeros_like(),
    other=lambda g, c: minus(g, ((c.self / c.other) / c.other).conj()) if c.rounding_mode is None else g.zeros_like(),
)  # fmt: skip
rule("div.Scalar_mode", self=lambda g, c: divided(g, c.other) if c.rounding_mode is None else g.zeros_like())
rule("floor_divide")
rule("neg", self=lambda g, c: -g)
rule("positive", self=lambda g, c: g)
rule("abs", self=lambda g, c: g * c.self.sgn())
rule("acos", self=lambda g, c: g * -(-c.self * c.self + 1).rsqrt().conj())
rule("acosh", self=lambda g, c: g * (c.self * c.self - 1).rsqrt().conj())
rule("asin", self=lambda g, c: g * (-c.self * c.self + 1).rsqrt().conj())
rule("asinh", self=lambda g, c: g * (c.self.call("pow.Tensor_Scalar", 2) + 1).rsqrt().conj())
rule("atan", self=lambda g, c: g / (c.self * c.self + 1).conj())
rule("atanh", self=lambda g, c: over(g, (1 - c.self.call("pow.Tensor_Scalar", 2)).conj()))
rule("cos", self=lambda g, c: g * -c.self.sin().conj())
rule("cosh", self=lambda g, c: g * c.self.sinh().conj())
rule("sin", self=lambda g, c: g * c.self.cos().conj())
rule("sinh", self=lambda g, c: g * c.self.cosh().conj())
rule("tan", self=lambda g, c: g * (c.result.call("pow.Tensor_Scalar", 2) + 1).conj())
rule("tanh", self=lambda g, c: op("tanh_backward")(g, c.result))
rule("sigmoid", self=lambda g, c: op("sigmoid_backward")(g, c.result))
rule("exp", self=lambda g, c: g * c.result.conj())
rule("exp2", self=lambda g, c: g * c.result.conj() * math.log(2))
rule("expm1", self=lambda g, c: g * (c.result.conj() + 1))
rule("log", self=lambda g, c: g / c.self.conj())
rule("log10", self=lambda g, c: g / (c.self.conj() * math.log(10)))
rule("log1p", self=lambda g, c: g / (c.self + 1).conj())
rule("log2", self=lambda g, c: g / (c.self.conj() * math.log(2)))
rule("sqrt", self=lambda g, c: g / (2 * c.result.conj()))
rule("rsqrt", self=lambda g, c: halved(g, c.result.call("pow.Tensor_Scalar", 3).conj()))
rule("reciprocal", self=lambda g, c: minus(g, (c.result * c.result).conj()))
rule("square", self=lambda g, c: g * c.self * 2)
rule("erf", self=lambda g, c: 2 / math.sqrt(math.pi) * (-c.self.call("pow.Tensor_Scalar", 2)).exp() * g)
rule("erfc", self=lambda g, c: -2 / math.sqrt(math.pi) * (-c.self.call("pow.Tensor_Scalar", 2)).exp() * g)
rule("erfinv", self=lambda g, c: 0.5 * math.sqrt(math.pi) * c.self.erfinv().call("pow.Tensor_Scalar", 2).exp() * g)
rule("digamma", self=lambda g, c: g * op("polygamma")(1, c.self))
rule("polygamma", self=lambda g, c: g * op("polygamma")(c.n + 1, c.self))
rule("lgamma", self=lambda g, c: g * c.self.digamma())
rule("mvlgamma", self=lambda g, c: mvlgamma(g, c.self, c.p))
rule("i0", self=lambda g, c: g * c.self.special_i1())
rule("sgn", self=lambda g, c: direction(g, c))
rule("angle", self=lambda g, c: angle(g, c.self))
rule("frac", self=lambda g, c: g)
rule("nan_to_num", self=lambda g, c: g * finite(c.self))
rule("deg2rad", self=lambda g, c: g * (math.pi / 180))
rule("rad2deg", self=lambda g, c: g * (180 / math.pi))
rule("sinc", self=lambda g, c: sinc(g, c.self))
rule("special_entr", self=lambda g, c: g * -(c.self.log() + 1))
rule("special_ndtri", self=lambda g, c: g * math.sqrt(2 * math.pi) * (c.result.call("pow.Tensor_Scalar", 2) / 2).exp())
rule("special_log_ndtr", self=lambda g, c: g / math.sqrt(2 * math.pi) * (-log_density(c.result, c.self)).exp())
rule("special_erfcx", self=lambda g, c: (2.0 * c.self * c.result - 2 / math.sqrt(math.pi)) * g)
rule("special_i0e", self=lambda g, c: g * i0e(c.self, c.result))
rule("special_i1", self=lambda g, c: g * bessel(c.self, c.result, False))
rule("special_i1e", self=lambda g, c: g * bessel(c.self, c.result, True))
rule("logit", self=lambda g, c: op("logit_backward")(g, c.self, c.eps))
rule(
    "xlogy.Tensor",
    self=lambda g, c: masked_log("xlogy.Tensor", g, c.self, c.other, 0.0),
    other=lambda g, c: g * c.self / c.other,
)
rule("xlogy.Scalar_Self", other=lambda g, c: g * c.self / c.other)
rule(
    "special_xlog1py", self=lambda g, c: masked_log("special_xlog1py", g, c.self, c.other, -1.0),
    other=lambda g, c: beside(g, c.self, c.other + 1),
)  # fmt: skip
rule(_ZERO, self=lambda g, c: g.zeros_like())
rule("fill.Tensor", self=lambda g, c: g.zeros_like(), value=lambda g, c: op("sum")(g))
rule("fill_.Tensor", self=lambda g, c: g.zeros_like(), value=lambda g, c: op("sum")(g))
rule("uniform normal_ exponential cauchy geometric log_normal random", self=lambda g, c: g.zeros_like())
rule("normal.Tensor_Tensor", mean=lambda g, c: zeros(c.sizes("mean"), g), std=lambda g, c: zeros(c.sizes("std"), g))
rule("normal.Tensor_float", mean=lambda g, c: zeros(c.sizes("mean"), g))
rule("normal.float_Tensor", std=lambda g, c: zeros(c.sizes("std"), g))
rule("normal_", self=lambda g, c: g.zeros_like())
rule("pow.Tensor_Scalar", self=lambda g, c: power(g, c.self, c.exponent))
rule(
    "pow.Tensor_Tensor",
    self=lambda g, c: power_base(g, c.self, c.exponent),
    exponent=lambda g, c: power_exponent(g, c.self, c.exponent, c.result),
)
rule("pow.Scalar", exponent=lambda g, c: power_of_number(g, c.self, c.exponent, c.result))
rule("hypot", self=lambda g, c: g * c.self / c.result, other=lambda g, c: g * c.other / c.result)
rule(
    "logaddexp",
    self=lambda g, c: g / ((c.other - c.self).exp() + 1),
    other=lambda g, c: g / ((c.self - c.other).exp() + 1),
)
rule(
    "logaddexp2", self=lambda g, c: g / (op("pow.Scalar")(2, c.other - c.self) + 1),
    other=lambda g, c: g / (op("pow.Scalar")(2, c.self - c.other) + 1),
)  # fmt: skip
rule(
    "ldexp.Tensor", self=lambda g, c: g * op("pow.Scalar")(2.0, c.other), other=lambda g, c: g * c.result * math.log(2)
)
rule(
    "fmod.Tensor",
    self=lambda g, c: g,
    other=lambda g, c: minus(g, op("div.Tensor_mode")(c.self, c.other, rounding_mode="trunc")),
)
rule("fmod.Scalar", self=lambda g, c: g)
rule(
    "remainder.Tensor",
    self=lambda g, c: g,
    other=lambda g, c: minus(g, op("div.Tensor_mode")(c.self, c.other, rounding_mode="floor")),
)
rule("remainder.Scalar", self=lambda g, c: g)
rule(
    "maximum",
    self=lambda g, c: shared(g, c.self, c.other, "lt.Tensor"),
    other=lambda g, c: shared(g, c.self, c.other, "gt.Tensor"),
)
rule(
    "minimum",
    self=lambda g, c: shared(g, c.self, c.other, "gt.Tensor"),
    other=lambda g, c: shared(g, c.self, c.other, "lt.Tensor"),
)
rule(
    "fmax", self=lambda g, c: g.call("masked_fill.Scalar", chosen("ge.Tensor", c.self, c.other).logical_not_(), 0),
    other=lambda g, c: g.call("masked_fill.Scalar", chosen("ge.Tensor", c.self, c.other), 0),
)  # fmt: skip
rule(
    "fmin", self=lambda g, c: g.call("masked_fill.Scalar", chosen("le.Tensor", c.self, c.other).logical_not_(), 0),
    other=lambda g, c: g.call("masked_fill.Scalar", chosen("le.Tensor", c.self, c.other), 0),
)  # fmt: skip
rule("clamp", self=lambda g, c: clamped(g, c.self, c.min, c.max))
rule("clamp.Tensor", self=lambda g, c: clamped(g, c.self, c.min, c.max))
joint("clamp.Tensor", "min max", lambda g, c: clamp_bounds(g[0], c))
rule("clamp_min", self=lambda g, c: kept(g, c.self, "ge.Scalar", c.min))
rule("clamp_max", self=lambda g, c: kept(g, c.self, "le.Scalar", c.max))
rule(
    "clamp_min.Tensor",
    self=lambda g, c: kept(g, c.self, "ge.Tensor", c.min),
    min=lambda g, c: kept(g, c.self, "lt.Tensor", c.min),
)
rule(
    "clamp_max.Tensor",
    self=lambda g, c: kept(g, c.self, "le.Tensor", c.max),
    max=lambda g, c: kept(g, c.self, "gt.Tensor", c.max),
)
rule("where.self", self=lambda g, c: where(c.condition, g, 0), other=lambda g, c: where(c.condition, 0, g))
rule("lerp.Scalar", self=lambda g, c: times(g, 1 - c.weight), end=lambda g, c: times(g, c.weight))
rule(
    "lerp.Tensor",
    self=lambda g, c: g * (1 - c.weight).conj(),
    end=lambda g, c: g * c.weight.conj(),
    weight=lambda g, c: g * (c.end - c.self).conj(),
)
rule(
    "addcmul", self=lambda g, c: g, tensor1=lambda g, c: g * (c.tensor2 * c.value).conj(),
    tensor2=lambda g, c: g * (c.tensor1 * c.value).conj(),
)  # fmt: skip
rule(
    "addcdiv", self=lambda g, c: g, tensor1=lambda g, c: g * (c.value / c.tensor2).conj(),
    tensor2=lambda g, c: quotient_divisor(g, c.tensor1, c.tensor2, c.value),
)  # fmt: skip
rule("copysign.Tensor", self=lambda g, c: signed(g, c.self, c.result), other=lambda g, c: zeros(c.sizes("other"), g))
rule("copysign.Scalar", self=lambda g, c: signed(g, c.self, c.result))
rule(
    "nextafter",
    self=lambda g, c: where(op("ne.Tensor")(c.self, c.other), g, 0),
    other=lambda g, c: zeros(c.sizes("other"), g),
)
rule("complex", real=lambda g, c: g.real_part(), imag=lambda g, c: g.view_as_real().call("select.int", g.ndim, 1))
rule("frexp.Tensor", self=lambda g, c: g / c.result1.exp2())
joint("atan2", "self other", lambda g, c: atan2(g[0], c))
joint("polar", "abs angle", lambda g, c: polar(g[0], c))
rule("igamma", other=lambda g, c: g * ((c.self - 1) * c.other.log() - c.other - c.self.lgamma()).exp())
rule("igammac", other=lambda g, c: -g * ((c.self - 1) * c.other.log() - c.other - c.self.lgamma()).exp())
rule("special_zeta", other=lambda g, c: g * -c.self * op("special_zeta")(c.self + 1.0, c.other))
rule("_conj", self=lambda g, c: g.conj())
rule("_conj_physical conj_physical", self=lambda g, c: g.call("_conj_physical") if g.is_complex else g)
rule("_neg_view", self=lambda g, c: -g)
rule("real", self=lambda g, c: g)


def scaled(g: Any, alpha: Any) -> Any:
    """The gradient of a term that a number scales: `g` times the conjugate of the number, itself for 1."""
    return g if alpha == 1 else g * conjugated(alpha)


def times(g: Any, other: Any) -> Any:
    """The gradient of a product's factor."""
    return g * conjugated(other)


def divided(g: Any, other: Any) -> Any:
    """The gradient of a dividend."""
    return g / conjugated(other)


def beside(g: Any, x: Any, divisor: Any) -> Any:
    """`g * x / divisor`, where the divisor is computed first."""
    return g * x / divisor


def direction(g: Any, c: Any) -> Any:
    """The gradient of `sgn`: none of real numbers, across the direction of complex ones."""
    result = c.result
    if not result.is_complex:
        return op("_efficientzerotensor")(c.sizes("self"), **g.options())
    size = c.self.abs()
    along = (g * result.conj()).real_part() * result
    return ((g - along) / size).call("masked_fill_.Scalar", size.call("eq.Scalar", 0), 0)


def angle(g: Any, x: Any) -> Any:
    """The gradient of an angle: none of real numbers, zero at zero."""
    if not x.is_complex:
        return op("zeros_like")(x, memory_format=rushlight.preserve_format)
    turned = g * x / x.abs().call("pow.Tensor_Scalar", 2) * 1j
    return op("where.self")(x.call("eq.Scalar", 0.0), scalar(0.0, x), turned)


def mvlgamma(g: Any, x: Any, p: int) -> Any:
    """The multivariate log-gamma function's gradient."""
    steps = op("arange.start_step")(-p * 0.5 + 0.5, 0.5, 0.5, **x.options())
    return g * (steps + x.unsqueeze(-1)).digamma_().call("sum.dim_IntList", [-1])


def finite(x: Any) -> Any:
    """Whether elements are finite, in the way of composites."""
    magnitude = x.abs().call("ne.Scalar", math.inf)
    return op("eq.Tensor")(x, x) * magnitude


def sinc(g: Any, x: Any) -> Any:
    """The gradient of sinc; zero at zero."""
    scaled_x = x * math.pi
    square = x * x * math.pi
    out = g * sinc_slope(scaled_x, square)
    zero = scalar(0, g)
    return op("where.self")(square.call("eq.Scalar", 0.0), zero, out)


def sinc_slope(x: Any, square: Any) -> Any:
    """The slope apart from zero."""
    sine = x.sin()
    return (x * x.cos() - sine) / square


def log_density(result: Any, x: Any) -> Any:
    """The negative logarithm of the density over the distribution."""
    half = x.call("pow.Tensor_Scalar", 2) / 2
    return result + half


def i0e(x: Any, result: Any) -> Any:
    """The slope of the scaled Bessel function of order zero."""
    part = x.sgn() * result
    return x.special_i1e() - part


def bessel(x: Any, result: Any, decays: bool) -> Any:
    """The slope of a Bessel function of order one, 1/2 at zero."""
    eps = rushlight.finfo(x.dtype).eps
    far = x.abs().call("gt.Scalar", eps)
    safe = where(far, x, eps)
    inverse = safe.reciprocal()
    if decays:
        part = result * (safe.sgn() + inverse)
        return where(far, safe.special_i0e() - part, 0.5)
    part = result * inverse
    return where(far, safe.i0() - part, 0.5)


def masked_log(name: str, g: Any, x: Any, y: Any, edge: float) -> Any:
    """`g * log(y)`, zero where the product is defined to be zero."""
    part = op(name)(g, y)
    low = y.call("le.Scalar", edge)
    return part.call("masked_fill.Scalar", op("bitwise_and.Tensor")(x.call("eq.Scalar", 0.0), low), 0.0)


def power(g: Any, x: Any, exponent: Any) -> Any:
    """The gradient of a power with a number as exponent."""
    if exponent == 0:
        return op("zeros_like")(x, memory_format=rushlight.preserve_format)
    return g * (exponent * x.call("pow.Tensor_Scalar", exponent - 1)).conj()


def power_base(g: Any, x: Any, exponent: Any) -> Any:
    """The gradient of a power's base."""
    out = g * (exponent * x.call("pow.Tensor_Tensor", exponent - 1)).conj()
    zero = scalar(0, g)
    return op("where.self")(exponent.call("eq.Scalar", 0.0), zero, out)


def power_exponent(g: Any, x: Any, exponent: Any, result: Any) -> Any:
    """The gradient of a power's exponent."""
    above = exponent.call("ge.Scalar", 0)
    mask = op("logical_and")(x.call("eq.Scalar", 0), above)
    out = result * x.log()
    return g * where(mask, 0, out).conj()


def power_of_number(g: Any, x: Any, exponent: Any, result: Any) -> Any:
    """The gradient of the exponent of a number's power."""
    if x == 0:
        return where(exponent.call("ge.Scalar", 0), 0, g * result * -math.inf)
    return (
        g * (result * math.log(x)).conj()
        if isinstance(x, (int, float)) and x > 0
        else g * (result * complex_log(x)).conj()
    )


def complex_log(x: Any) -> Any:
    """The logarithm of a number; nan of a negative one."""
    import cmath

    return cmath.log(x) if isinstance(x, complex) else math.nan


def shared(g: Any, x: Any, y: Any, worse: str) -> Any:
    """The gradient of the greater (or smaller) operand, half of it where both are equal."""
    half = g.call("div.Scalar", 2)
    return op("where.self")(op("eq.Tensor")(x, y), half, g).call("masked_fill_.Scalar", op(worse)(x, y), 0)


def chosen(better: str, x: Any, y: Any) -> Any:
    """Where the first operand is the result, also because the other is no number."""
    held = op(better)(x, y)
    return held.call("logical_or_", y.isnan())


def clamped(g: Any, x: Any, low: Any, high: Any) -> Any:
    """The gradient where nothing was cut."""

    def kind(bound: Any) -> str:
        return "Tensor" if hasattr(bound, "tensor") else "Scalar"

    zero = scalar(0, g)
    if low is not None and high is not None:
        above = x.call(f"ge.{kind(low)}", low)
        both = op("logical_and_" if kind(low) == "Scalar" else "logical_and")
        return op("where.self")(both(above, x.call(f"le.{kind(high)}", high)), g, zero)
    mask = x.call(f"ge.{kind(low)}", low) if low is not None else x.call(f"le.{kind(high)}", high)
    return op("where.self")(mask, g, zero)


def clamp_bounds(g: Any, c: Any) -> Any:
    """The gradients of both bounds."""
    x, low, high = c.self, c.min, c.max
    zero = scalar(0, g)
    found: list[Any] = [None, None]
    if low is not None and high is not None:
        if c.needs("min"):
            under = low.call("lt.Tensor", high)
            found[0] = op("where.self")(under.logical_and(x.call("lt.Tensor", low)), g, zero)
        if c.needs("max"):
            above = x.call("gt.Tensor", high)
            found[1] = op("where.self")(above.logical_or(high.call("lt.Tensor", low)), g, zero)
    elif low is not None:
        found[0] = op("where.self")(x.call("lt.Tensor", low), g, zero)
    else:
        found[1] = op("where.self")(x.call("gt.Tensor", high), g, zero)
    return found


def minus(g: Any, slope: Any) -> Any:
    """`-g * slope`, where the slope is computed first."""
    return -g * slope


def over(g: Any, divisor: Any) -> Any:
    """`g * 1 / divisor`, where the divisor is computed first."""
    return g * 1 / divisor


def halved(g: Any, slope: Any) -> Any:
    """`g * -0.5 * slope`, where the slope is computed first."""
    return g * -0.5 * slope


def kept(g: Any, x: Any, relation: str, bound: Any) -> Any:
    """The gradient where a relation to a bound holds."""
    zero = scalar(0, g)
    return op("where.self")(x.call(relation, bound), g, zero)


def quotient_divisor(g: Any, numerator: Any, divisor: Any, value: Any) -> Any:
    """The gradient of the divisor in `addcdiv`."""
    square = divisor * divisor
    part = (numerator * value) / square
    return -g * part.conj()


def signed(g: Any, x: Any, result: Any) -> Any:
    """The gradient of `copysign`: the ratio of result and argument."""
    ratio = result / x
    return g * ratio.call("masked_fill_.Scalar", x.call("eq.Scalar", 0), 0)


def atan2(g: Any, c: Any) -> Any:
    """The gradients of both operands."""
    other_square = c.other * c.other
    square = c.self * c.self + other_square
    inverse = square.reciprocal()
    inverse = inverse.call("masked_fill.Scalar", square.call("eq.Scalar", 0), 0)
    return (g * c.other * inverse if c.needs("self") else None, g * -c.self * inverse if c.needs("other") else None)


def polar(g: Any, c: Any) -> Any:
    """The gradients of length and angle."""
    conj = g.conj()
    length = _real_product(conj, c.result.sgn())
    return length, _real_product(conj, c.result * 1j)


def _real_product(conj: Any, factor: Any) -> Any:
    return (conj * factor).real_part()
