"""Hyperbolic functions and their inverses."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from . import coefficients as table
from .explog import FORMATS, exp_half, exp_reduced, log1p, power_of_two, reduce_ln2

if TYPE_CHECKING:
    from collections.abc import Callable

    from .writer import Val

_SINH = {"float": table.SINH_F32, "double": table.SINH_F64}
_TANH = {"float": table.TANH_F32, "double": table.TANH_F64}
# below it tanh is a polynomial
TANH_SPLIT = 0.625
# tanh is 1 from here on
_TANH_END = {"float": 9.1, "double": 19.1}


def sinh(x: Val) -> Val:
    em, a = x.em, x.abs()
    half = exp_half(a)
    z = a * a
    small = em.fma(a * z, em.horner(z, _SINH[x.type]), a)
    return em.select(a.lt(1.0), small, half - 0.25 / half).copysign(x)


def cosh(x: Val) -> Val:
    half = exp_half(x.abs())
    return half + 0.25 / half


def tanh(x: Val) -> Val:
    """A polynomial for small x, where 1 - 2 / (exp(2 |x|) + 1) would cancel."""
    em, f = x.em, FORMATS[x.type]
    a = x.abs().min_c(_TANH_END[x.type])
    z = a * a
    small = em.fma(a * z, em.horner(z, _TANH[x.type]), a)
    r, bits = reduce_ln2(a + a, f.bias)
    large = 1.0 - 2.0 / em.fma(exp_reduced(r), power_of_two(bits, x.type), 1.0)
    return em.select(a.lt(TANH_SPLIT), small, large).copysign(x)


def _in_double(function: Callable[[Val, bool], Val]) -> Callable[[Val], Val]:
    """float32 by way of float64 and shorter polynomials: correct to little more than half an ulp."""
    return lambda x: function(x.to("double"), True).to(x.type) if x.type == "float" else function(x, False)


def _asinh(x: Val, lite: bool) -> Val:
    em, a = x.em, x.abs()
    huge = a.gt(2.0**60)
    b = a.min_c(2.0**60)
    square = b * b
    t = b + square / (em.call("llvm.sqrt", square + 1.0) + 1.0)
    y = log1p(em.select(huge, a, t), lite)
    return em.select(huge, y + math.log(2), y).copysign(x)


def _acosh(x: Val, lite: bool) -> Val:
    em = x.em
    huge = x.gt(2.0**60)
    t = x.min_c(2.0**60) - 1.0
    t = t + em.call("llvm.sqrt", em.fma(t, t, t + t))
    y = log1p(em.select(huge, x, t), lite)
    y = em.select(huge, y + math.log(2), y)
    return em.select(x.lt(1.0), em.const(x.type, math.nan), y)


def _atanh(x: Val, lite: bool) -> Val:
    a = x.abs()
    return (log1p((a + a) / (1.0 - a), lite) * 0.5).copysign(x)


asinh = _in_double(_asinh)
UNARY = {
    "sinh": sinh, "cosh": cosh, "tanh": tanh, "asinh": asinh, "acosh": _in_double(_acosh),
    "atanh": _in_double(_atanh),
}  # fmt: skip
