"""x ** y for floats."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from . import coefficients as table
from .explog import FORMATS, log_lite, power_of_two, reduce_ln2, scale, split

if TYPE_CHECKING:
    from .writer import Val


def pow(x: Val, y: Val) -> Val:
    magnitude = _pow32(x, y) if x.type == "float" else _pow64(x.abs(), y)
    return _pow_special(x, y, magnitude)


def _pow32(x: Val, y: Val) -> Val:
    """exp2(y log2 |x|) in float64, where twelve bits to spare make up for the size of the exponent."""
    em = x.em
    a, b = x.to("double").abs(), y.to("double")
    product = (log_lite(a) * b).min_c(110.0).max_c(-110.0)
    r, bits = reduce_ln2(product, FORMATS["double"].bias)
    e = em.fma(r * r, em.horner(r, table.EXP_LITE), r) + 1.0
    return (e * power_of_two(bits, e.type)).to("float")


def _two_sum(a: Val, b: Val) -> tuple[Val, Val]:
    """The rounded sum and its error; |a| >= |b|."""
    total = a + b
    return total, (a - total) + b


def _log_pair(a: Val) -> tuple[Val, Val]:
    """log(a) as an unevaluated sum of two floats with about 68 good bits, for finite a > 0.

    log(1 + f) = 2 atanh(s), s = f / (2 + f), with s and the cubic term in two parts.
    """
    em, form = a.em, FORMATS["double"]
    e, f, _ = split(a)
    d, d_low = _two_sum(em.const(a.type, 2.0), f)
    s = f / d
    # what the division left: (f - s d - s d_low) / d
    s_low = em.fma(-s, d_low, em.fma_exact(-s, d, f)) / d
    z = s * s
    z_low = em.fma(2.0 * s, s_low, em.fma_exact(s, s, -z))
    # 2 s + s z (2/3 + z Q(z)): the coefficient 2/3 in two parts
    q = em.horner(z, table.ATANH_F64)
    c = em.fma(z, q, 2.0 / 3.0)
    c_low = em.fma(z, q, 2.0 / 3.0 - c) + float.fromhex("0x1.5555555555555p-55")
    cube = s * z
    cube_low = em.fma(s, z_low, em.fma(s_low, z, em.fma_exact(s, z, -cube)))
    term = cube * c
    term_low = em.fma(cube, c_low, em.fma(cube_low, c, em.fma_exact(cube, c, -term)))
    high, low = _two_sum(s + s, term)
    low = low + (term_low + (s_low + s_low))
    base = e * form.ln2_high
    total, lost = _two_sum(base, high)
    return _two_sum(total, em.fma(e, form.ln2_low, low) + lost)


def _pow64(a: Val, y: Val) -> Val:
    em, form = a.em, FORMATS["double"]
    high, low = _log_pair(a)
    product = high * y
    rest = em.fma(low, y, em.fma_exact(high, y, -product))
    clamped = product.min_c(750.0).max_c(-800.0)
    rest = em.select(clamped.eq(product), rest, 0.0)
    r, bits = reduce_ln2(clamped, 2 * form.bias)
    r = r + rest
    return scale(em.fma(r * r, em.horner(r, table.EXP_F64), r) + 1.0, bits)


def _pow_special(x: Val, y: Val, magnitude: Val) -> Val:
    """The cases of C's pow around |x| ** y for finite nonzero x."""
    em, type = x.em, x.type
    inf, zero, one, nan = (em.const(type, v) for v in (math.inf, 0.0, 1.0, math.nan))
    a, b = x.abs(), y.abs()
    whole = em.call("llvm.trunc", y).eq(y)
    half = y * 0.5
    odd = whole & em.call("llvm.trunc", half).ne(half)
    # 0 and infinity as base: 0 or infinity, by the sign of y
    up = a.gt(1.0).eq(y.gt(0.0))
    extreme = em.select(up, inf, zero)
    result = em.select(a.eq(0.0) | a.eq(math.inf) | b.eq(math.inf), extreme, magnitude)
    result = em.select(x.lt(0.0) & ~whole & a.ne(math.inf), nan, result)
    negative = x.bits().lt(0) & odd
    result = em.select(negative, -result, result)
    result = em.select(a.eq(1.0) & b.eq(math.inf), one, result)
    result = em.select(x.compare("uno", y), x + y, result)
    return em.select(x.eq(1.0) | y.eq(0.0), one, result)


BINARY = {"pow": pow}
