"""Sine, cosine, tangent and their inverses.

sin and cos reduce the argument by multiples of pi, tan by multiples of pi / 2, with the constant in three parts and
fused multiplications whose rounding errors vanish; this holds up to `SMALL_ARGUMENT`. For a larger lane, or infinity,
the C library is called, in double.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from . import coefficients as table
from .explog import FORMATS, round_to_int
from .rare import beyond

if TYPE_CHECKING:
    from .writer import Val

_SIN = {"float": table.SIN_F32, "double": table.SIN_F64}
_TAN = {"float": table.TAN_F32, "double": table.TAN_F64}
_ATAN = {"float": table.ATAN_F32, "double": table.ATAN_F64}
_ASIN = {"float": table.ASIN_F32, "double": table.ASIN_F64}
# beyond it the reduction in three parts would lose bits
SMALL_ARGUMENT = {"float": 2.0**17, "double": 2.0**27}
# pi in three parts of full precision each, largest first; half of each is pi / 2
_PI = {
    "float": tuple(map(float.fromhex, ("0x1.921fb6p+1", "-0x1.777a5cp-24", "-0x1.ee59dap-49"))),
    "double": tuple(map(float.fromhex, ("0x1.921fb54442d18p+1", "0x1.1a62633145c07p-53", "-0x1.f1976b7ed8fbcp-109"))),
}
# pi as the nearest float and what it lacks
_PI_LOW = {"float": float.fromhex("-0x1.777a5cp-24"), "double": float.fromhex("0x1.1a62633145c07p-53")}


def _reduced(x: Val, n: Val, factor: float) -> Val:
    """x - n * pi * factor, to within half an ulp or so."""
    for part in _PI[x.type]:
        x = x.em.fma_exact(n, -part * factor, x)
    return x


def _odd_polynomial(r: Val, coefficients: tuple[float, ...]) -> Val:
    z = r * r
    return r.em.fma(r * z, r.em.horner(z, coefficients), r)


def _flip(x: Val, bits: Val) -> Val:
    """x negated where the lowest of `bits` is set."""
    em = x.em
    sign = FORMATS[x.type].mantissa + (8 if x.type == "float" else 11)
    return em.bitcast(x.bits() ^ (bits << sign), x.type)


def sin(x: Val) -> Val:
    n, bits = round_to_int(x, 1 / math.pi)
    y = _flip(_odd_polynomial(_reduced(x, n, 1.0), _SIN[x.type]), bits)
    y = x.em.select(x.eq(0.0), x, y)
    return beyond("sin", x, y, SMALL_ARGUMENT[x.type])


def cos(x: Val) -> Val:
    """cos(x) = (-1)**(k + 1) sin(x - (k + 1/2) pi), which keeps the zeros of the cosine exact."""
    em, a = x.em, x.abs()
    magic = FORMATS[x.type].magic
    shifted = em.fma(a, 1 / math.pi, -0.5) + (magic + 1.0)  # ends in k + 1
    n = (shifted - magic) - 0.5
    y = _flip(_odd_polynomial(_reduced(a, n, 1.0), _SIN[x.type]), shifted.bits())
    return beyond("cos", x, y, SMALL_ARGUMENT[x.type])


def tan(x: Val) -> Val:
    em = x.em
    n, bits = round_to_int(x, 2 / math.pi)
    first, second, third = (-0.5 * part for part in _PI[x.type])
    rough = em.fma_exact(n, first, x)
    # what the sum of the next part lacks counts, because the tangent is steep
    product = n * second
    r = rough + product
    moved = r - rough
    low = (rough - (r - moved)) + (product - moved)
    low = em.fma_exact(n, third, low + em.fma_exact(n, second, -product))
    z = r * r
    rest = r * z * em.horner(z, _TAN[x.type])
    slope = em.fma(r + rest, r + rest, 1.0)
    y = r + em.fma(low, slope, rest)
    odd = (bits & 1).ne(0)
    y = em.select(odd, em.const(x.type, -1.0), y) / em.select(odd, y, 1.0)
    y = em.select(x.eq(0.0), x, y)
    return beyond("tan", x, y, SMALL_ARGUMENT[x.type])


# ***** inverses *****


def atan(x: Val) -> Val:
    em, a = x.em, x.abs()
    steep = a.gt(1.0)
    one = em.const(x.type, 1.0)
    y = _odd_polynomial(em.select(steep, one, a) / em.select(steep, a, one), _ATAN[x.type])
    y = em.select(steep, math.pi / 2 - (y - _half_pi_low(x)), y)
    return y.copysign(x)


def _half_pi_low(x: Val) -> float:
    return _PI_LOW[x.type] / 2


def atan2(y: Val, x: Val) -> Val:
    """The angle of the point (x, y), in [-pi, pi]; the sign of a zero tells the side, as in C."""
    em, type = x.em, x.type
    a, b = y.abs(), x.abs()
    steep = a.gt(b)
    small, large = em.select(steep, b, a), em.select(steep, a, b)
    t = small / large
    t = em.select(large.eq(0.0), em.const(type, 0.0), t)
    t = em.select(small.eq(math.inf), em.const(type, 1.0), t)
    angle = _odd_polynomial(t, _ATAN[type])
    low = _half_pi_low(x)
    angle = em.select(steep, math.pi / 2 - (angle - low), angle)
    left = x.bits().lt(0)
    angle = em.select(left, math.pi - (angle - 2 * low), angle)
    return em.select(x.compare("uno", y), x + y, angle.copysign(y))


def _asin_parts(x: Val) -> tuple[Val, Val, Val]:
    """(whether |x| > 1/2, s, rest): asin(s) = s + rest with s = |x| or, where that is larger, sqrt((1 - |x|) / 2)."""
    em, a = x.em, x.abs()
    outer = a.gt(0.5)
    z = em.select(outer, (1.0 - a) * 0.5, a * a)
    s = em.select(outer, em.call("llvm.sqrt", z), a)
    return outer, s, s * z * em.horner(z, _ASIN[x.type])


def asin(x: Val) -> Val:
    em = x.em
    outer, s, rest = _asin_parts(x)
    right = em.const(x.type, math.pi / 2)
    double = s + s
    high = right - double
    lost = (right - high) - double
    steep = high - (rest + rest - _half_pi_low(x) - lost)
    return em.select(outer, steep, s + rest).copysign(x)


def acos(x: Val) -> Val:
    em = x.em
    outer, s, rest = _asin_parts(x)
    y = s + rest
    negative = x.lt(0.0)
    low = _half_pi_low(x)
    double = y + y
    outside = em.select(negative, math.pi - (double - 2 * low), double)
    inside = math.pi / 2 - (y.copysign(x) - low)
    return em.select(outer, outside, inside)


UNARY = {"sin": sin, "cos": cos, "tan": tan, "asin": asin, "acos": acos, "atan": atan}
BINARY = {"atan2": atan2}
