"""Hurwitz' zeta function zeta(s, q) = sum over k >= 0 of (q + k)^-s, for s > 1, computed in float64; float32 is
rounded from it.

After twenty terms by Euler's and Maclaurin's formula (Abramowitz and Stegun 23.1.30 and 25.4.7). For negative q = f -
m with 0 < f < 1 and whole s, the m terms with negative bases are those of positive ones: zeta(s, q) = zeta(s, f) +
(-1)^s (zeta(s, 1 - f) - zeta(s, 1 - q)).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..power import pow
from ..repeat import Steps, repeat

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..writer import Val

__all__ = ["BINARY"]

TERMS = 20
EPSILON = 2.0**-53
# Cephes ends with factors s (s + 1) ... (s + 22): from here on they overflow, and times a sum that vanished they are
# NaN
VAST = 2.0 ** (1024.0 / 23.0)
# B_2k / (2k)!
_BERNOULLI = (
    1.0 / 12.0, -1.0 / 720.0, 1.0 / 30240.0, -1.0 / 1209600.0, 1.0 / 47900160.0, -691.0 / 1307674368000.0, 1.0 / 74724249600.0,
    -3617.0 / 10670622842880000.0,
)  # fmt: skip

_TERMS = Steps(
    lambda s, q: [s.em.const(s.type, 0.0)],
    lambda k, state, s, q: [state[0] + pow(q + (k.to(s.type) - 1.0), -s)],
    lambda k, state, s, q: k.lt(TERMS + 1),
)


def _positive(s: Val, q: Val) -> Val:
    em = s.em
    finite = q.lt(math.inf)
    q = em.select(finite, q, 1.0)
    total = repeat("zeta.terms", _TERMS, s, q)
    w = q + float(TERMS)
    power = pow(w, -s)
    settled, terms = (power * w).le(total * EPSILON), total
    total = total + power * w / (s - 1.0) + power * 0.5
    factor, power = s, power / w
    for k, bernoulli in enumerate(_BERNOULLI):
        total = total + factor * power * bernoulli
        factor = factor * (s + float(2 * k + 1)) * (s + float(2 * k + 2))
        power = power / (w * w)
    # PyTorch's answer at infinity
    return em.select(finite, em.select(settled, terms, total), em.const(s.type, math.nan))


def _zeta(s: Val, q: Val) -> Val:
    em = s.em
    inf, nan, two, one = (em.const(s.type, v) for v in (math.inf, math.nan, 2.0, 1.0))
    whole, pole = em.call("llvm.floor", q).eq(q), em.call("llvm.floor", s).ne(s)
    below = q.lt(0.0) & ~whole
    edge = q.le(0.0) & whole
    bad = s.lt(1.0) | (s.is_nan() & ~edge) | q.is_nan() | (below & pole)
    usual = em.select(bad | edge | s.eq(1.0), two, s)
    fraction = em.select(below, q - em.call("llvm.floor", q), em.const(s.type, 0.5))
    value = em.outline("zeta.positive", _positive, usual, em.select(below, fraction, em.select(edge | bad, one, q)))
    mirrored = em.outline("zeta.positive", _positive, usual, 1.0 - fraction)
    mirrored = mirrored - em.outline("zeta.positive", _positive, usual, em.select(below, 1.0 - q, one))
    half = usual * 0.5
    odd = em.call("llvm.trunc", half).ne(half)
    value = em.select(below, value + em.select(odd, -mirrored, mirrored), value)
    value = em.select(edge, inf, em.select(value.eq(0.0) & s.ge(VAST), nan, value))
    return em.select(bad, nan, em.select(s.eq(1.0), inf, value))


def _lowering(s: Val, q: Val) -> Val:
    wide = s.to("double")
    return wide.em.outline("zeta", _zeta, wide, q.to("double")).to(s.type)


BINARY: dict[str, Callable[[Val, Val], Val]] = {"zeta": _lowering}
