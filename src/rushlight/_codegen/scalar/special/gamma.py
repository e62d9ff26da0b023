"""log |gamma| and its derivative, computed in float64; float32 is rounded from it.

They are long, so each is a function of its own in the module and not written into the caller's loop.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from .. import coefficients as table
from ..explog import log, log_lite
from ..rare import when_any

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..writer import Val


class _Tables(NamedTuple):
    log: Callable[[Val], Val]
    lgamma: tuple[float, ...]
    stirling: tuple[float, ...]
    digamma: tuple[float, ...]
    sin: tuple[float, ...]
    tan: tuple[float, ...]


_FULL = _Tables(log, table.LGAMMA_F64, table.STIRLING_F64, table.DIGAMMA_F64, table.SIN_F64, table.TAN_F64)
# enough for a result in float32
_LITE = _Tables(log_lite, table.LGAMMA_LITE, table.STIRLING_LITE, table.DIGAMMA_LITE, table.SIN_LITE, table.TAN_LITE)


def _wide(name: str, function: Callable[[Val, _Tables], Val]) -> Callable[[Val], Val]:
    def lowering(x: Val) -> Val:
        wide = x.to("double")
        if x.type == "float":
            return wide.em.outline(f"{name}.lite", lambda v: function(v, _LITE), wide).to(x.type)
        return wide.em.outline(name, lambda v: function(v, _FULL), wide)

    return lowering


def _odd_polynomial(r: Val, coefficients: tuple[float, ...]) -> Val:
    z = r * r
    return r.em.fma(r * z, r.em.horner(z, coefficients), r)


def _lgamma(x: Val, tables: _Tables) -> Val:
    """For a = |x|: in [1, 2] (y - 1)(y - 2) P(y); y = a + 1 below; y = a - k below 8; Stirling's series above."""
    em, a = x.em, x.abs()
    one = em.const(x.type, 1.0)
    below, far = a.lt(1.0), a.ge(8.0)
    y, product = em.select(below, a + 1.0, a), one
    for k in range(1, 7):
        inside = a.ge(1.0 + k)
        y = em.select(inside, a - float(k), y)
        product = em.select(inside, product * (a - float(k)), product)
    # a - 1 rather than (a + 1) - 2, which has lost bits of a small a
    first, second = em.select(below, a, y - 1.0), em.select(below, a - 1.0, y - 2.0)
    center = first * second * em.horner(em.select(below, a - 0.5, y - 1.5), tables.lgamma)
    logarithm = tables.log(em.select(below | far, a, product))
    near = em.select(below, center - logarithm, center + logarithm)
    inverse = 1.0 / a
    series = em.fma(inverse, em.horner(inverse * inverse, tables.stirling), 0.5 * math.log(2 * math.pi) - 0.5)
    stirling = em.fma(a - 0.5, logarithm - 1.0, series)
    positive = em.select(a.eq(0.0) | a.eq(math.inf), em.const(x.type, math.inf), em.select(far, stirling, near))
    name = "lgamma.negative" if tables is _FULL else "lgamma.lite.negative"
    return when_any(name, lambda x: x.lt(0.0), lambda x, y: _lgamma_reflected(x, y, tables), x, positive)


def _lgamma_reflected(x: Val, positive: Val, tables: _Tables) -> Val:
    """For x < 0: log(pi / (a |sin(pi a)|)) - lgamma(a), a = |x|; infinite at the negative integers."""
    em, a = x.em, x.abs()
    rest = (a - em.call("llvm.roundeven", a)).abs()
    sine = _odd_polynomial(rest * math.pi, tables.sin)
    y = tables.log(math.pi / (a * sine)) - positive
    # a * sine would be too small for its reciprocal
    y = em.select(a.lt(1e-100), positive, y)
    y = em.select(rest.eq(0.0) | a.eq(math.inf), em.const(x.type, math.inf), y)
    return em.select(x.lt(0.0), y, positive)


def _reciprocal_sum(x: Val, count: int) -> tuple[Val, Val]:
    """1/x + 1/(x+1) + ... as (numerator, denominator): one division for all; `count` is a power of two."""
    pairs = [(x.em.const(x.type, 1.0), x + float(k) if k else x) for k in range(count)]
    while len(pairs) > 1:
        pairs = [(x.em.fma(n1, d2, n2 * d1), d1 * d2) for (n1, d1), (n2, d2) in zip(pairs[::2], pairs[1::2])]
    return pairs[0]


def _digamma(x: Val, tables: _Tables) -> Val:
    """log(a) - 1/(2a) - the asymptotic series, a moved up by 8 where it is below; reflection for negative x."""
    em = x.em
    negative = x.lt(0.0)
    a = em.select(negative, 1.0 - x, x)
    low = a.lt(8.0)
    numerator, denominator = _reciprocal_sum(a, 8)
    moved = em.select(low, a + 8.0, a)
    inverse = 1.0 / moved
    z = inverse * inverse
    series = em.fma(z, em.horner(z, tables.digamma), inverse * 0.5)
    y = tables.log(moved) - series
    y = y - em.select(low, numerator / denominator, 0.0)
    name = "digamma.negative" if tables is _FULL else "digamma.lite.negative"
    y = when_any(name, lambda x: x.lt(0.0), lambda x, y: _digamma_reflected(x, y, tables), x, y)
    y = em.select(a.eq(math.inf), x, y)
    return em.select(x.eq(0.0), em.const(x.type, -math.inf).copysign(-x), em.select(x.eq(-math.inf), math.nan, y))


def _digamma_reflected(x: Val, y: Val, tables: _Tables) -> Val:
    """y holds digamma(1 - x) where x < 0."""
    return x.em.select(x.lt(0.0), y - _cotangent_pi(x, tables), y)


def _cotangent_pi(x: Val, tables: _Tables) -> Val:
    """pi / tan(pi x); NaN at integers."""
    em = x.em
    rest = x - em.call("llvm.roundeven", x)
    a = rest.abs()
    steep = a.gt(0.25)
    t = _odd_polynomial(em.select(steep, 0.5 - a, a) * math.pi, tables.tan)
    y = math.pi * em.select(steep, t, 1.0 / t)
    return em.select(a.eq(0.0), em.const(x.type, math.nan), y.copysign(rest))


UNARY = {"lgamma": _wide("lgamma", _lgamma), "digamma": _wide("digamma", _digamma)}
