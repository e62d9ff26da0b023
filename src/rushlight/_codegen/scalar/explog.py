"""Exponentials and logarithms.

exp: x = n ln2 + r with |r| <= ln2 / 2, a polynomial in r, and two multiplications that add n to the exponent, so that
overflow and subnormal results come out right without a branch.
log: x = 2**e (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)), and a polynomial in f.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from rushlight._base.lazy import require

from . import coefficients as table

if TYPE_CHECKING:
    from .writer import Val


class Format(NamedTuple):
    """The numbers of a float format that the reductions need."""

    int_type: str
    mantissa: int  # stored bits
    bias: int
    magic: float  # adding it rounds to an integer and leaves that in the low bits
    ln2_high: float
    ln2_low: float
    exp_low: float  # here and below both factors of `scale` are 0: x86 takes 150 cycles for a product that underflows
    exp_high: float  # exp is infinite from here on
    smallest_normal: float


FORMATS = {
    "float": Format("i32", 23, 127, 1.5 * 2.0**23, 0.693145751953125, 1.42860682030941723212e-6, -176.0, 89.0, 2.0**-126),
    "double": Format(
        "i64", 52, 1023, 1.5 * 2.0**52, float.fromhex("0x1.62e42fee00000p-1"), 1.90821492927058770002e-10, -1418.0, 710.0,
        2.0**-1022,
    ),
}  # fmt: skip
_EXP = {"float": table.EXP_F32, "double": table.EXP_F64}
_EXPM1 = {"float": table.EXPM1_F32, "double": table.EXPM1_F64}
_EXP2 = {"float": table.EXP2_F32, "double": table.EXP2_F64}
_LOG = {"float": table.LOG_F32, "double": table.LOG_F64}


def round_to_int(x: Val, factor: float, offset: float = 0.0) -> tuple[Val, Val]:
    """(round(x * factor) as a float, bits whose low part is that integer plus `offset`); |x * factor| < 2**21."""
    em, magic = x.em, FORMATS[x.type].magic + offset
    shifted = em.fma(x, factor, magic)
    return shifted - magic, shifted.bits()


def reduce_ln2(x: Val, offset: float) -> tuple[Val, Val]:
    """(r, bits): x = n ln2 + r, and n + `offset` in the low bits of `bits`."""
    em, f = x.em, FORMATS[x.type]
    n, bits = round_to_int(x, 1 / math.log(2), offset)
    r = em.fma(n, -f.ln2_high, x)  # exact: ln2_high has few bits
    return em.fma(n, -f.ln2_low, r), bits


def scale(p: Val, bits: Val) -> Val:
    """p * 2**n, where `bits` end in n + 2 * bias: half of n at a time, so that the exponent may leave the normal
    range.
    """
    em, f = p.em, FORMATS[p.type]
    half = bits.lshr(1)
    return p * em.bitcast(half << f.mantissa, p.type) * em.bitcast((bits - half) << f.mantissa, p.type)


def power_of_two(bits: Val, type: str) -> Val:
    """2**n for `bits` that end in n + bias, within the normal range."""
    return bits.em.bitcast(bits << FORMATS[type].mantissa, type)


def exp(x: Val) -> Val:
    f = FORMATS[x.type]
    r, bits = reduce_ln2(x.min_c(f.exp_high).max_c(f.exp_low), 2 * f.bias)
    return scale(exp_reduced(r), bits)


def exp_reduced(r: Val) -> Val:
    """exp(r) for |r| <= ln2 / 2."""
    return r.em.fma(r * r, r.em.horner(r, _EXP[r.type]), r) + 1.0


def exp2(x: Val) -> Val:
    em, f = x.em, FORMATS[x.type]
    x = x.min_c(float(f.bias + 2)).max_c(-2.0 * f.bias)  # as `exp_low`
    n, bits = round_to_int(x, 1.0, 2 * f.bias)
    r = x - n
    return scale(em.fma(r, em.horner(r, _EXP2[x.type]), 1.0), bits)


def expm1_reduced(r: Val) -> Val:
    """exp(r) - 1 for |r| <= ln2 / 2, to half an ulp or so."""
    return r.em.fma(r * r, r.em.horner(r, _EXPM1[r.type]), r)


def expm1(x: Val) -> Val:
    """2**n (exp(r) - 1) + (2**n - 1), all of it halved until the end because 2**128 does not exist."""
    em, f = x.em, FORMATS[x.type]
    lowest = -18.0 if x.type == "float" else -38.0
    r, bits = reduce_ln2(x.min_c(f.exp_high).max_c(lowest), f.bias - 1)
    half = power_of_two(bits, x.type)
    y = em.fma(half, expm1_reduced(r), half - 0.5)
    return em.select(x.eq(0.0), x, y + y)


def exp_half(a: Val) -> Val:
    """exp(a) / 2 for a >= 0, finite up to where cosh is."""
    f = FORMATS[a.type]
    r, bits = reduce_ln2(a.min_c(f.exp_high + 1.0), f.bias - 2)
    y = (expm1_reduced(r) + 1.0) * power_of_two(bits, a.type)
    return y + y


# ***** logarithms *****


def split(x: Val, subnormal: bool = True) -> tuple[Val, Val, Val]:
    """(e, f, e as an integer): x = 2**e (1 + f) for finite x > 0, 1 + f within [sqrt(1/2), sqrt(2)).

    The integer lacks what subnormal numbers add to e; without `subnormal` they are not expected.
    """
    em, f = x.em, FORMATS[x.type]
    shift = float(f.mantissa + 2)
    tiny = x.lt(f.smallest_normal)
    if subnormal:
        x = em.select(tiny, x * 2.0**shift, x)
    root = em.const(x.type, math.sqrt(0.5)).bits()
    exponent = (x.bits() - root) >> f.mantissa
    m = em.bitcast(x.bits() - (exponent << f.mantissa), x.type)
    e = exponent.to(x.type)
    if subnormal:
        e = e - em.select(tiny, em.const(x.type, shift), 0.0)
    return e, m - 1.0, exponent


def log_special(x: Val, y: Val) -> Val:
    """y for finite x > 0; -inf at 0, NaN below, x itself for infinity and NaN."""
    em = x.em
    outside = em.select(x.eq(0.0), em.const(x.type, -math.inf), em.select(x.lt(0.0), em.const(x.type, math.nan), x))
    # one unsigned comparison of bits: positive numbers are ordered like them, and the rest is larger
    bits = x.bits()
    f = FORMATS[x.type]
    infinity = (2 * f.bias + 1) << f.mantissa
    return em.select((bits - 1).lt(infinity - 1, signed=False), y, outside)


def log(x: Val) -> Val:
    e, f, _ = split(x)
    return log_special(x, _log_sum(e, f))


def _log_sum(e: Val, f: Val, lite: bool = False) -> Val:
    """e ln2 + log(1 + f)."""
    em, form = f.em, FORMATS[f.type]
    rest = em.fma(e, form.ln2_low, (f * f) * em.horner(f, table.LOG_LITE if lite else _LOG[f.type]))
    return em.fma(e, form.ln2_high, f + rest)


def log_lite(x: Val) -> Val:
    """log(x) of a positive normal double to about 33 bits, for results in float32."""
    e, f, _ = split(x, subnormal=False)
    return x.em.fma(e, math.log(2), x.em.fma(f * f, x.em.horner(f, table.LOG_LITE), f))


def _log_of_base(x: Val, unit_high: float, unit_low: float, two_high: float, two_low: float) -> Val:
    """log(x) in another base: unit = 1 / ln(base) and two = log of 2 in that base, each in two parts.

    f * unit_high is exact in the fused multiplication; what the parts leave out is added first.
    """
    em = x.em
    e, f, _ = split(x)
    q = (f * f) * em.horner(f, _LOG[f.type])
    product = f * unit_high
    error = em.fma_exact(f, unit_high, -product)
    rest = em.fma(q, unit_high, em.fma(f + q, unit_low, error))
    if two_low:
        rest = em.fma(e, two_low, rest)
    # e * two_high is exact; of it and `product` the larger comes first, so the sum's error is known
    whole = e * two_high if two_high != 1.0 else e
    total = whole + product
    return log_special(x, total + (rest + ((whole - total) + product)))


def _parts(value: str, type: str, keep: int) -> tuple[float, float]:
    """A constant given to 40 digits as a part of `keep` bits and the rest."""
    Decimal = require("decimal").Decimal

    whole = Decimal(value)
    mantissa, exponent = math.frexp(float(whole))
    high = math.ldexp(float(int(mantissa * 2.0**keep)), exponent - keep)
    return high, float(whole - Decimal(high))


_LOG2_E = "1.4426950408889634073599246810018921374266459541530"
_LOG10_E = "0.43429448190325182765112891891660508229439700580367"
_LOG10_2 = "0.30102999566398119521373889472449302676818988146211"


def log2(x: Val) -> Val:
    keep = 24 if x.type == "float" else 53
    return _log_of_base(x, *_parts(_LOG2_E, x.type, keep), 1.0, 0.0)


def log10(x: Val) -> Val:
    keep, short = (24, 16) if x.type == "float" else (53, 42)
    return _log_of_base(x, *_parts(_LOG10_E, x.type, keep), *_parts(_LOG10_2, x.type, short))


def log1p(x: Val, lite: bool = False) -> Val:
    """log(u) with u = 1 + x rounded, and what the rounding lost put back into the reduced argument.

    `lite`: in double to about 33 bits.
    """
    em, form = x.em, FORMATS[x.type]
    u = x + 1.0
    moved = u - 1.0
    lost = (1.0 - (u - moved)) + (x - moved)
    e, f, exponent = split(u, subnormal=False)
    # at the largest exponent nothing is lost that matters
    exponent = em.call("llvm.smin", exponent, em.const(exponent.type, form.bias - 1))
    back = em.bitcast((form.bias << form.mantissa) - (exponent << form.mantissa), x.type)
    f = em.fma(lost, back, f)
    y = log_special(u, _log_sum(e, f, lite))
    return em.select(x.eq(0.0), x, y)


UNARY = {"exp": exp, "exp2": exp2, "expm1": expm1, "log": log, "log2": log2, "log10": log10, "log1p": log1p}
