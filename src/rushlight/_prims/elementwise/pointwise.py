"""Functions of one number: exponential, trigonometric, error function, rounding, sign.

Rules have the form `rule(t, c, out, x)`; see `families`.
"""

from __future__ import annotations

import math
from typing import Any

from rushlight._base.lazy import numpy as np
from rushlight._prims import build, numbers
from rushlight._prims.families import pointwise, require
from rushlight._prims.record import Aval, Primitive, Rule, not_differentiable, prim
from rushlight._prims.samples import pointwise_samples
from rushlight._types.dtype import BOOL

__all__ = ["trigamma"]

LN2, LN10 = math.log(2.0), math.log(10.0)
TWO_OVER_SQRT_PI = 2.0 / math.sqrt(math.pi)
REAL = ("float64", "float32")
COMPLEX = (*REAL, "complex128")
EXACT_ZERO: Rule | None = None  # the derivative is zero wherever it exists


def _numpy(name: str) -> Rule:
    """NumPy's function of this name, looked up on use so that importing this file does not import NumPy."""
    return numbers.wide(lambda *xs: getattr(np, name)(*xs))


def _real(name: str, doc: str, reference: Rule, rule: Rule | None, low: float = -2.0, high: float = 2.0) -> Primitive:
    """A function of real floats."""
    return pointwise(
        name, doc, kinds="f", reference=reference, rules=[rule], samples=pointwise_samples(REAL, 1, low, high)
    )


def _holomorphic(
    name: str, doc: str, rule: Rule, numpy: str = "", low: float = -2.0, high: float = 2.0, reference: Any = None
) -> Primitive:
    """A function of real and of complex floats."""
    return pointwise(
        name,
        doc,
        kinds="fc",
        reference=reference or _numpy(numpy or name),
        rules=[rule],
        samples=pointwise_samples(COMPLEX, 1, low, high),
    )


def _expm1(x: Any) -> Any:
    """NumPy's, except where it multiplies inf or NaN by 0: exp(x) - 1."""
    result = np.expm1(x)
    if result.dtype.kind != "c":
        return result
    lost = np.isinf(x.real) | (x.real > 80.0) | (np.isnan(x.real) & (x.imag == 0))
    return np.where(lost, np.exp(x) - 1.0, result)


# ***** exponentials and logarithms *****

_holomorphic("exp", "e^x.", lambda t, c, out, x: t * c(out))
_holomorphic("exp2", "2^x.", lambda t, c, out, x: t * (c(out) * LN2))
_holomorphic(
    "expm1", "e^x - 1, without cancellation.", lambda t, c, out, x: t * (c(out) + 1.0), reference=numbers.wide(_expm1)
)
_holomorphic("log", "Natural logarithm.", lambda t, c, out, x: t / c(x), low=0.1)
_holomorphic("log2", "Logarithm to base 2.", lambda t, c, out, x: t / (c(x) * LN2), low=0.1)
_holomorphic("log10", "Logarithm to base 10.", lambda t, c, out, x: t / (c(x) * LN10), low=0.1)
_holomorphic("log1p", "log(1 + x), without cancellation.", lambda t, c, out, x: t / (c(x) + 1.0), low=-0.9)

# ***** powers *****

_holomorphic("sqrt", "Square root.", lambda t, c, out, x: t / (c(out) * 2.0), low=0.1)
pointwise(
    "rsqrt", "1 / sqrt(x).", kinds="fc", samples=pointwise_samples(COMPLEX, 1, 0.1, 2.0),
    reference=numbers.wide(lambda x: 1 / np.sqrt(x)), rules=[lambda t, c, out, x: t * (c(out * out * out) * -0.5)],
)  # fmt: skip

# ***** circles and hyperbolas *****

_holomorphic("sin", "Sine.", lambda t, c, out, x: t * c(prim.cos(x)))
_holomorphic("cos", "Cosine.", lambda t, c, out, x: -(t * c(prim.sin(x))))
_holomorphic("tan", "Tangent.", lambda t, c, out, x: t * (c(out * out) + 1.0), low=-1.2, high=1.2)
_holomorphic("asin", "Inverse sine.", lambda t, c, out, x: t * c(prim.rsqrt(1.0 - x * x)), "arcsin", -0.9, 0.9)
_holomorphic("acos", "Inverse cosine.", lambda t, c, out, x: -(t * c(prim.rsqrt(1.0 - x * x))), "arccos", -0.9, 0.9)
_holomorphic("atan", "Inverse tangent.", lambda t, c, out, x: t / c(x * x + 1.0), "arctan")
_holomorphic("sinh", "Hyperbolic sine.", lambda t, c, out, x: t * c(prim.cosh(x)))
_holomorphic("cosh", "Hyperbolic cosine.", lambda t, c, out, x: t * c(prim.sinh(x)))
_holomorphic("tanh", "Hyperbolic tangent.", lambda t, c, out, x: t * (1.0 - c(out * out)))
_holomorphic("asinh", "Inverse hyperbolic sine.", lambda t, c, out, x: t * c(prim.rsqrt(x * x + 1.0)), "arcsinh")


def _acosh_slope(x: Any) -> Any:
    """1 / sqrt(x^2 - 1), on the branch that acosh has in the complex plane."""
    return prim.rsqrt(x - 1.0) * prim.rsqrt(x + 1.0) if x.dtype.is_complex else prim.rsqrt(x * x - 1.0)


_holomorphic("acosh", "Inverse hyperbolic cosine.", lambda t, c, out, x: t * c(_acosh_slope(x)), "arccosh", 1.1, 3.0)
_holomorphic("atanh", "Inverse hyperbolic tangent.", lambda t, c, out, x: t / (1.0 - c(x * x)), "arctanh", -0.9, 0.9)

# ***** special functions *****

_real(
    "erf",
    "Error function.",
    numbers.wide(numbers.erf),
    lambda t, c, out, x: t * (prim.exp(-(x * x)) * TWO_OVER_SQRT_PI),
)
_real("erfc", "1 - erf(x), without cancellation.", numbers.wide(numbers.erfc),
      lambda t, c, out, x: t * (prim.exp(-(x * x)) * -TWO_OVER_SQRT_PI))  # fmt: skip
_real("erfinv", "Inverse of the error function.", numbers.wide(numbers.erfinv),
      lambda t, c, out, x: t * (prim.exp(prim.erfinv(x) * prim.erfinv(x)) * (1.0 / TWO_OVER_SQRT_PI)), -0.95, 0.95)  # fmt: skip
_real("lgamma", "log |gamma(x)|.", numbers.wide(numbers.lgamma), lambda t, c, out, x: t * prim.digamma(x), 0.1, 4.0)
_real("digamma", "Derivative of lgamma.", numbers.wide(numbers.digamma), lambda t, c, out, x: t * trigamma(x), 0.1, 4.0)


def trigamma(x: Any) -> Any:
    """Derivative of digamma: the recurrence lifts x above 10, where the asymptotic series holds; below 1/2 by
    reflection."""
    below = x < 0.5
    y = build.select(below, 1.0 - x, x)
    total = build.zeros_like(x)
    for _ in range(10):
        total = total + 1.0 / (y * y)
        y = y + 1.0
    square = 1.0 / (y * y)
    series = build.full_like(x, 5.0 / 66.0)
    for coefficient in (-1.0 / 30.0, 1.0 / 42.0, -1.0 / 30.0, 1.0 / 6.0):
        series = series * square + coefficient
    total = total + 1.0 / y + 0.5 * square + series * square / y
    sine = prim.sin(x * math.pi)
    return build.select(below, (math.pi * math.pi) / (sine * sine) - total, total)


# ***** rounding: flat between the steps *****

_real("floor", "The next whole number below.", _numpy("floor"), EXACT_ZERO)
_real("ceil", "The next whole number above.", _numpy("ceil"), EXACT_ZERO)
_real("trunc", "The next whole number toward zero.", _numpy("trunc"), EXACT_ZERO)
_real("round", "The nearest whole number, halves to the even one.", numbers.wide(lambda x: np.rint(x)), EXACT_ZERO)

# ***** sign *****

ANY = ("float64", "float32", "int64", "int32", "uint8", "complex128")

pointwise(
    "neg", "-x (unsigned integers wrap).", kinds="uifc", reference=lambda x: np.negative(x), rules=[lambda t, c, out, x: -t],
    samples=pointwise_samples(ANY),
)  # fmt: skip


def _abs_spec(x: Any) -> Aval:
    require("abs", x, "uifc")
    return x.shape, x.dtype.to_real()


def _abs_vjp(ct: Any, out: Any, x: Any) -> tuple[Any]:
    return (ct * prim.sign(x) if not x.dtype.is_complex else build.complex_(ct) * prim.sign(x),)


def _abs_jvp(tangents: Any, out: Any, x: Any) -> Any:
    (t,) = tangents
    return t * prim.sign(x) if not x.dtype.is_complex else prim.real(t * prim.conj(prim.sign(x)))


Primitive(
    "abs", "|x|; real for complex x.", family="pointwise", spec=_abs_spec, lower=("scalar", "abs"),
    reference=lambda x: np.abs(x.astype("complex128")).astype("float32") if x.dtype == "complex64" else np.abs(x),
    vjp=_abs_vjp, jvp=_abs_jvp, batch=lambda batched, x: prim.abs(x), samples=pointwise_samples(ANY),
)  # fmt: skip


def _sign_reference(x: Any) -> Any:
    if x.dtype.kind != "c":
        return (x > 0).astype(x.dtype) - (x < 0).astype(x.dtype)
    size = np.abs(x)
    return np.where(size == 0, 0, x / np.where(size == 0, 1, size)).astype(x.dtype)


def _sign_change(t: Any, out: Any, x: Any) -> Any:
    """A complex sign changes by the part of `t` perpendicular to x, divided by |x|; a real one does not change."""
    if not x.dtype.is_complex:
        return None
    size = prim.abs(x)
    along = prim.real(t * prim.conj(out))
    across = (t - out * build.complex_(along)) / build.complex_(build.select(build.eq(size, 0.0), 1.0 + size, size))
    return build.select(build.eq(size, 0.0), build.zeros_like(across), across)


def _sign_spec(x: Any) -> Aval:
    require("sign", x, "uifc")
    return x.shape, x.dtype


Primitive(
    "sign", "-1, 0 or 1, and 0 for NaN; x / |x| for complex x.", family="pointwise", spec=_sign_spec, lower=("scalar", "sign"),
    reference=_sign_reference, samples=pointwise_samples(ANY), batch=lambda batched, x: prim.sign(x),
    vjp=lambda ct, out, x: (_sign_change(ct, out, x),), jvp=lambda tangents, out, x: _sign_change(tangents[0], out, x),
)  # fmt: skip

pointwise(
    "signbit", "Whether the sign is set: also for -0.0 and negative NaN.", kinds="uif", result=lambda dtype: BOOL,
    reference=lambda x: np.signbit(x) if x.dtype.kind == "f" else x < 0,
    rules=not_differentiable("its result is bool"), arity=1, samples=pointwise_samples(("float64", "float32", "int64", "uint8")),
)  # fmt: skip
