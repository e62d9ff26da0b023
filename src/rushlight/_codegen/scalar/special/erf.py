"""The error function and its kin."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from .. import coefficients as table
from ..explog import FORMATS, log, log_lite, reduce_ln2, scale

if TYPE_CHECKING:
    from ..writer import Val


def erf(x: Val) -> Val:
    return _erf32(x) if x.type == "float" else _erf64(x)


def _erf32(x: Val) -> Val:
    """x + x P(x*x) below 1.2, above 1 - Q(|x|)**4: the fourth root of erfc is nearly a straight line."""
    em = x.em
    a = x.abs().min_c(4.0)
    z = a * a
    small = em.fma(a, em.horner(z, table.ERF_F32), a)
    root = em.horner(a, table.ERF_TAIL_F32)
    square = root * root
    tail = em.fma(-square, square, 1.0)
    return em.select(a.lt(1.2), small, tail).copysign(x)


def _erfc_positive(a: Val, coefficients: tuple[float, ...], exp_coefficients: tuple[float, ...]) -> Val:
    """erfc(a) for a >= 0: exp(-a*a), with the rounding error of the square put back, times a polynomial in
    (a-4)/(a+4).
    """
    em, f = a.em, FORMATS[a.type]
    a = a.min_c(27.5)
    p = em.horner((a - 4.0) / (a + 4.0), coefficients)
    square = a * a
    lost = em.fma_exact(a, a, -square) if len(exp_coefficients) > 8 else None
    r, bits = reduce_ln2(-square, 2 * f.bias)
    e = em.fma(r * r, em.horner(r, exp_coefficients), r) + 1.0
    y = e * p / em.fma(2.0, a, 1.0)
    if lost is not None:
        y = em.fma(y, -lost, y)
    return scale(y, bits)


def _erf64(x: Val) -> Val:
    em, a = x.em, x.abs()
    small = em.fma(a, em.horner(a * a, table.ERF_F64), a)
    tail = 1.0 - _erfc_positive(a.min_c(6.0), table.ERFCX_F64, table.EXP_F64)
    return em.select(a.lt(1.0), small, tail).copysign(x)


def erfc(x: Val) -> Val:
    """float32 goes through float64 with short polynomials."""
    if x.type == "float":
        wide = x.to("double")
        y = _erfc_positive(wide.abs().min_c(10.5), table.ERFCX_LITE, table.EXP_LITE)
        return x.em.select(wide.lt(0.0), 2.0 - y, y).to("float")
    em, a = x.em, x.abs()
    far = _erfc_positive(a, table.ERFCX_F64, table.EXP_F64)
    far = em.select(x.lt(0.0), 2.0 - far, far)
    # between the two there is no cancellation in 1 - erf
    return em.select(a.lt(0.5), 1.0 - em.fma(x, em.horner(x * x, table.ERF_F64), x), far)


def erfinv(x: Val) -> Val:
    """x times a polynomial in w = -log(1 - x*x), or in sqrt(w) where w is large."""
    if x.type == "float":
        return _erfinv(x.to("double"), lite=True).to("float")
    return _erfinv(x, lite=False)


def _erfinv(x: Val, lite: bool) -> Val:
    em = x.em
    w = -(log_lite if lite else log)((1.0 - x) * (1.0 + x))
    near = em.horner(w - 3.0, table.ERFINV_F32 if lite else table.ERFINV_F64)
    t = em.call("llvm.sqrt", w) - 4.25
    far = em.horner(t, table.ERFINV_TAIL_F32 if lite else table.ERFINV_TAIL_F64)
    if not lite:
        far = em.select(t.gt(0.0), em.horner(t, table.ERFINV_END_F64), far)
    y = em.select(w.lt(6.0), near, far) * x
    edge = em.select(x.abs().eq(1.0), x * math.inf, math.nan)
    return em.select(x.abs().lt(1.0), y, edge)


UNARY = {"erf": erf, "erfc": erfc, "erfinv": erfinv}
