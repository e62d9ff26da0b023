"""The regularised incomplete gamma functions P(a, x) and Q(a, x) = 1 - P(a, x), computed in float64; float32 is
rounded from it.

P by its power series for x < a + 1 (Abramowitz and Stegun 6.5.29), Q by its continued fraction beyond (6.5.31, W. J.
Lentz's method); each gives the other by subtraction from 1 only where it is the larger of the two.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from .. import coefficients as table
from ..explog import exp, log, log1p
from ..repeat import Steps, repeat
from .erf import UNARY as ERF
from .gamma import UNARY as GAMMA

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..writer import Val

__all__ = ["BINARY"]

_EPSILON = 2.0**-54
_HUGE = 1e8  # orders beyond are not stepped through
_MOST = 100_000  # steps; about sqrt(40 a) are needed where x is near a


def _weight(a: Val, x: Val) -> Val:
    """x^a e^-x / gamma(a + 1).

    For large a with Stirling's series, so that no large numbers are subtracted:
    exp(a (log1p(m) - m)) / sqrt(2 pi a) / exp(the series), m = (x - a) / a.
    """
    em = a.em
    far = a.ge(16.0)
    plain = exp(a * log(x) - x - GAMMA["lgamma"](a + 1.0))
    big = em.select(far, a, 16.0)
    inverse = 1.0 / big
    series = em.fma(inverse, em.horner(inverse * inverse, table.STIRLING_F64), 0.0)
    m = (x - big) * inverse
    stirling = exp(big * (log1p(m) - m) - series) * (1.0 / em.call("llvm.sqrt", big * (2.0 * math.pi)))
    return em.select(far, stirling, plain)


def _series() -> Steps:
    """State: the sum of x^k / ((a + 1) ... (a + k)), the last term."""
    return Steps(
        lambda a, x: [a.em.const(a.type, 1.0), a.em.const(a.type, 1.0)],
        lambda k, state, a, x: (lambda term: [state[0] + term, term])(state[1] * (x / (a + k.to(a.type)))),
        lambda k, state, a, x: (state[1].abs().gt(state[0].abs() * _EPSILON)) & k.lt(_MOST),
    )


def _fraction() -> Steps:
    """State: the value of the fraction so far, Lentz's C and D, the last change; frozen when the change is 1."""

    def start(a: Val, x: Val) -> list[Val]:
        d = 1.0 / (x + 1.0 - a)
        return [d, a.em.const(a.type, 1e300), d, a.em.const(a.type, 2.0)]

    def step(k: Val, state: list[Val], a: Val, x: Val) -> list[Val]:
        em = a.em
        value, c, d, change = state
        i = k.to(a.type)
        top, b = i * (a - i), (x + 1.0 - a) + (i + i)
        d, c = 1.0 / em.fma(top, d, b), b + top / c
        new = c * d
        wanted = (change - 1.0).abs().gt(_EPSILON * 4)
        return [em.select(wanted, value * new, value), c, d, em.select(wanted, new, change)]

    return Steps(start, step, lambda k, state, a, x: (state[3] - 1.0).abs().gt(_EPSILON * 4) & k.lt(_MOST))


_SERIES, _FRACTION = _series(), _fraction()


def _uniform(a: Val, x: Val, upper: bool) -> Val:
    """For huge a, N. M. Temme's uniform expansion to its first term (SIAM J. Math. Anal. 10, 1979); m = (x - a) / a:

    Q = erfc(e sqrt(a / 2)) / 2 + (1/m - 1/e) exp(-a e^2 / 2) / sqrt(2 pi a), e^2 = 2 (m - log1p(m)), with the sign of
    m.
    """
    em = a.em
    m = (x - a) / a
    small = m.abs().lt(1e-3)
    near = m * m * em.horner(m, (1.0 / 3.0, -2.0 / 5.0, 1.0 / 2.0, -2.0 / 3.0, 1.0))
    square = em.select(small, near, 2.0 * (m - log1p(m)))
    exponent = a * square * 0.5
    root = em.call("llvm.sqrt", exponent).copysign(m)
    correction = (m * (1.0 / 12.0) - 1.0 / 3.0) * exp(-exponent) / em.call("llvm.sqrt", a * (2.0 * math.pi))
    return ERF["erfc"](root) * 0.5 + correction if upper else ERF["erfc"](-root) * 0.5 - correction


def _both(a: Val, x: Val, upper: bool) -> Val:
    em = a.em
    inf, zero, one, nan = (em.const(a.type, v) for v in (math.inf, 0.0, 1.0, math.nan))
    plain = a.gt(0.0) & x.gt(0.0) & a.lt(inf) & x.lt(inf)
    stepping = plain & a.le(_HUGE)
    near = x.lt(a + 1.0)
    low_a, low_x = em.select(stepping & near, a, one), em.select(stepping & near, x, em.const(a.type, 0.5))
    high_a, high_x = em.select(stepping & ~near, a, one), em.select(stepping & ~near, x, em.const(a.type, 3.0))
    weight = _weight(em.select(plain, a, one), em.select(plain, x, one))
    p = repeat("gammainc.series", _SERIES, low_a, low_x) * weight
    q = repeat("gammainc.fraction", _FRACTION, high_a, high_x) * weight * a
    value = em.select(near, 1.0 - p, q) if upper else em.select(near, p, 1.0 - q)
    value = em.select(a.gt(_HUGE), _uniform(em.select(plain, a, one), em.select(plain, x, one), upper), value)
    # the edges: P is 0 at x = 0 and at a = inf, 1 at a = 0 and at x = inf; whatever the other is, NaN included, as
    # PyTorch has it
    nothing = (x.eq(0.0) & ~a.le(0.0)) | (a.eq(inf) & ~x.lt(0.0) & x.ne(inf))
    everything = (a.eq(0.0) & x.gt(0.0)) | (x.eq(inf) & ~a.lt(0.0) & a.ne(inf))
    value = em.select(nothing, one if upper else zero, em.select(everything, zero if upper else one, value))
    return em.select(plain | nothing | everything, value, nan)


def _lowering(name: str, upper: bool) -> Callable[[Val, Val], Val]:
    def lowering(a: Val, x: Val) -> Val:
        wide = a.to("double"), x.to("double")
        return wide[0].em.outline(name, lambda v, w: _both(v, w, upper), *wide).to(a.type)

    return lowering


BINARY: dict[str, Callable[[Val, Val], Val]] = {
    "gammainc": _lowering("gammainc", False),
    "gammaincc": _lowering("gammaincc", True),
}
