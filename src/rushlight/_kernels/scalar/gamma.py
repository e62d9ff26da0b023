"""log |gamma| and its derivative, computed in float64; float32 is rounded from it.

They are long, so each is a function of its own in the module and not written into the caller's loop.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from . import coefficients as table
from .explog import log

if TYPE_CHECKING:
    from collections.abc import Callable

    from .writer import Val


def _wide(name: str, function: Callable[[Val], Val]) -> Callable[[Val], Val]:
    def lowering(x: Val) -> Val:
        wide = x.to("double")
        return wide.em.outline(name, function, wide).to(x.type)

    return lowering


def _odd_polynomial(r: Val, coefficients: tuple[float, ...]) -> Val:
    z = r * r
    return r.em.fma(r * z, r.em.horner(z, coefficients), r)


def _lgamma(x: Val) -> Val:
    """For a = |x|: near [1.25, 2.25] (y - 1)(y - 2) P(y); y = a + 1 below; y = a - k below 8.25; Stirling's series above."""
    em, a = x.em, x.abs()
    one = em.const(x.type, 1.0)
    below, far = a.lt(1.25), a.ge(8.25)
    y, product = em.select(below, a + 1.0, a), one
    for k in range(1, 8):
        inside = a.ge(1.25 + k)
        y = em.select(inside, a - float(k), y)
        product = em.select(inside, product * (a - float(k)), product)
    # a - 1 rather than (a + 1) - 2, which has lost bits of a small a
    first, second = em.select(below, a, y - 1.0), em.select(below, a - 1.0, y - 2.0)
    center = first * second * em.horner(em.select(below, a - 0.75, y - 1.75), table.LGAMMA_F64)
    logarithm = log(em.select(below | far, a, product))
    near = em.select(below, center - logarithm, center + logarithm)
    inverse = 1.0 / a
    series = em.fma(inverse, em.horner(inverse * inverse, table.STIRLING_F64), 0.5 * math.log(2 * math.pi) - 0.5)
    stirling = em.fma(a - 0.5, logarithm - 1.0, series)
    positive = em.select(a.eq(math.inf), a, em.select(far, stirling, near))
    return em.select(x.lt(0.0), _lgamma_reflected(x, a, positive), positive)


def _lgamma_reflected(x: Val, a: Val, positive: Val) -> Val:
    """log(pi / (a |sin(pi a)|)) - lgamma(a); infinite at the negative integers."""
    em = x.em
    rest = (a - em.call("llvm.roundeven", a)).abs()
    sine = _odd_polynomial(rest * math.pi, table.SIN_F64)
    y = log(math.pi / (a * sine)) - positive
    # a * sine would be too small for its reciprocal
    y = em.select(a.lt(1e-100), positive, y)
    return em.select(rest.eq(0.0) | a.eq(math.inf), em.const(x.type, math.inf), y)


def _reciprocal_sum(x: Val, count: int) -> tuple[Val, Val]:
    """1/x + 1/(x+1) + ... as (numerator, denominator): one division for all; `count` is a power of two."""
    pairs = [(x.em.const(x.type, 1.0), x + float(k) if k else x) for k in range(count)]
    while len(pairs) > 1:
        pairs = [
            (x.em.fma(n1, d2, n2 * d1), d1 * d2) for (n1, d1), (n2, d2) in zip(pairs[::2], pairs[1::2])
        ]  # fmt: skip
    return pairs[0]


def _digamma(x: Val) -> Val:
    """log(a) - 1/(2a) - the asymptotic series, a moved up by 8 where it is below; reflection for negative x."""
    em = x.em
    negative = x.lt(0.0)
    a = em.select(negative, 1.0 - x, x)
    low = a.lt(8.0)
    numerator, denominator = _reciprocal_sum(a, 8)
    moved = em.select(low, a + 8.0, a)
    inverse = 1.0 / moved
    z = inverse * inverse
    series = em.fma(z, em.horner(z, table.DIGAMMA_F64), inverse * 0.5)
    y = log(moved) - series
    y = y - em.select(low, numerator / denominator, 0.0)
    y = em.select(negative, y - _cotangent_pi(x), y)
    y = em.select(a.eq(math.inf), x, y)
    return em.select(x.eq(0.0), em.const(x.type, -math.inf).copysign(-x), em.select(x.eq(-math.inf), math.nan, y))


def _cotangent_pi(x: Val) -> Val:
    """pi / tan(pi x); NaN at integers."""
    em = x.em
    rest = x - em.call("llvm.roundeven", x)
    a = rest.abs()
    steep = a.gt(0.25)
    t = _odd_polynomial(em.select(steep, 0.5 - a, a) * math.pi, table.TAN_F64)
    y = math.pi * em.select(steep, t, 1.0 / t)
    return em.select(a.eq(0.0), em.const(x.type, math.nan), y.copysign(rest))


UNARY = {"lgamma": _wide("lgamma", _lgamma), "digamma": _wide("digamma", _digamma)}
