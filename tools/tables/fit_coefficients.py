"""Compute the polynomial coefficients of `rushlight._codegen.scalar.coefficients` (needs mpmath).

    python tools/tables/fit_coefficients.py > src/rushlight/_codegen/scalar/coefficients.py
    python tools/tables/fit_coefficients.py NAME ...     # only these, to look at

Every row of `FITS` is a function, an interval and a weight; the polynomial found has the least possible maximum of
weight * error (Remez' exchange).  Low coefficients are rounded to the target precision one after the other, the rest being
fitted again each time, so that rounding does not cost accuracy where it matters.  Printed with each: the largest weighted error
as a power of two.
"""

from __future__ import annotations

import functools
import struct
import sys
from collections.abc import Callable
from typing import NamedTuple

from mpmath import mp, mpf

mp.dps = 50
Function = Callable[[mpf], mpf]


class Fit(NamedTuple):
    function: Function
    low: float
    high: float
    degree: int
    weight: Function
    bits: int  # 24 or 53: the precision that the coefficients are rounded to
    refits: int = 3


def polynomial(coefficients: list[mpf], t: mpf) -> mpf:
    total = mpf(0)
    for c in reversed(coefficients):
        total = total * t + c
    return total


def _solve(values: list[mpf], nodes: list[mpf], weights: list[mpf], degree: int) -> list[mpf]:
    rows = len(nodes)
    matrix = mp.matrix(rows, rows)
    right = mp.matrix(rows, 1)
    for i, t in enumerate(nodes):
        for k in range(degree + 1):
            matrix[i, k] = t**k
        matrix[i, rows - 1] = (-1) ** i / weights[i]
        right[i] = values[i]
    return list(mp.lu_solve(matrix, right))[: degree + 1]


def remez(fit: Fit, points: int = 60, rounds: int = 12) -> tuple[list[mpf], mpf]:
    """Coefficients, lowest power first, and the largest weighted error on the grid."""
    count = fit.degree + 2
    low, high = mpf(fit.low), mpf(fit.high)
    size = points * count
    grid = [(low + high) / 2 - (high - low) / 2 * mp.cos(mp.pi * (k + mpf(1) / 2) / size) for k in range(size)]
    values = [fit.function(t) for t in grid]
    weights = [fit.weight(t) for t in grid]
    at = [round((k + 0.5) * size / count - 0.5) for k in range(count)]
    best: tuple[list[mpf], mpf] | None = None
    for _ in range(rounds):
        found = _solve([values[i] for i in at], [grid[i] for i in at], [weights[i] for i in at], fit.degree)
        errors = [(v - polynomial(found, t)) * w for v, t, w in zip(values, grid, weights)]
        worst = max(abs(e) for e in errors)
        if best is None or worst < best[1]:
            best = (found, worst)
        extrema = _alternating_extrema(errors, count)
        if extrema is None or extrema == at:
            break
        at = extrema
    assert best is not None
    return best


def _alternating_extrema(errors: list[mpf], count: int) -> list[int] | None:
    peaks: list[int] = []
    for i, e in enumerate(errors):
        if peaks and (errors[peaks[-1]] > 0) == (e > 0):
            if abs(e) > abs(errors[peaks[-1]]):
                peaks[-1] = i
        else:
            peaks.append(i)
    while len(peaks) > count:  # drop the weaker end
        peaks.pop(0 if abs(errors[peaks[0]]) < abs(errors[peaks[-1]]) else -1)
    return peaks if len(peaks) == count else None


def rounded(value: mpf, bits: int) -> mpf:
    if bits == 24:
        return mpf(struct.unpack("<f", struct.pack("<f", float(value)))[0])
    return mpf(float(value))


def run(fit: Fit) -> tuple[list[mpf], float]:
    """Rounded coefficients and log2 of the largest weighted error with them."""
    fixed: list[mpf] = []
    current = fit
    for _ in range(min(fit.refits, fit.degree)):
        coefficients, _ = remez(current)
        c = rounded(coefficients[0], fit.bits)
        fixed.append(c)
        current = current._replace(
            function=lambda t, f=current.function, c=c: (f(t) - c) / t,
            weight=lambda t, w=current.weight: w(t) * t,
            degree=current.degree - 1,
        )
    coefficients, _ = remez(current)
    result = fixed + [rounded(c, fit.bits) for c in coefficients]
    low, high = mpf(fit.low), mpf(fit.high)
    grid = [low + (high - low) * (k + mpf(1) / 2) / 2000 for k in range(2000)]
    worst = max(abs((fit.function(t) - polynomial(result, t)) * fit.weight(t)) for t in grid)
    return result, float(mp.log(worst, 2))


# ***** the functions *****

HALF_LN2 = float(mp.log(2) / 2) * 1.0002
ROOT_LOW, ROOT_HIGH = float(mp.sqrt(0.5)) - 1, float(mp.sqrt(2)) - 1
SMALL = mpf(10) ** -12


def _series(function: Function, at_zero: Function) -> Function:
    """`function`, but `at_zero` where it would divide by (almost) nothing."""
    return lambda t: at_zero(t) if abs(t) < SMALL else function(t)


# exp(r) = 1 + r + r*r*Q(r)
_exp = _series(lambda r: (mp.exp(r) - 1 - r) / r**2, lambda r: mpf(1) / 2 + r / 6)
# 2**r = 1 + r*Q(r)
_exp2 = _series(lambda r: (mpf(2) ** r - 1) / r, lambda r: mp.log(2) + mp.log(2) ** 2 * r / 2)
# log(1 + f) = f + f*f*Q(f)
_log = _series(lambda f: (mp.log(1 + f) - f) / f**2, lambda f: -mpf(1) / 2 + f / 3)
_log_weight = _series(lambda f: f**2 / mp.log(1 + f), lambda f: f)
# sin(r) = r + r*z*Q(z), z = r*r;  cos(r) = 1 + z*Q(z);  tan likewise
_sin = _series(lambda z: (mp.sin(mp.sqrt(z)) / mp.sqrt(z) - 1) / z, lambda z: -mpf(1) / 6 + z / 120)
_sin_weight = _series(lambda z: z * mp.sqrt(z) / mp.sin(mp.sqrt(z)), lambda z: z)
_cos = _series(lambda z: (mp.cos(mp.sqrt(z)) - 1 + z / 2) / z**2, lambda z: mpf(1) / 24 - z / 720)
_tan = _series(lambda z: (mp.tan(mp.sqrt(z)) / mp.sqrt(z) - 1) / z, lambda z: mpf(1) / 3 + 2 * z / 15)
_atan = _series(lambda z: (mp.atan(mp.sqrt(z)) / mp.sqrt(z) - 1) / z, lambda z: -mpf(1) / 3 + z / 5)
_atan_weight = _series(lambda z: z * mp.sqrt(z) / mp.atan(mp.sqrt(z)), lambda z: z)
_asin = _series(lambda z: (mp.asin(mp.sqrt(z)) / mp.sqrt(z) - 1) / z, lambda z: mpf(1) / 6 + 3 * z / 40)
_asin_weight = _series(lambda z: z * mp.sqrt(z) / mp.asin(mp.sqrt(z)), lambda z: z)
# 2 atanh(s) = 2 s + s*z*(2/3 + z*Q(z)), z = s*s
_atanh = _series(
    lambda z: ((2 * mp.atanh(mp.sqrt(z)) / mp.sqrt(z) - 2) / z - mpf(2) / 3) / z, lambda z: mpf(2) / 5 + 2 * z / 7
)
_sinh = _series(lambda z: (mp.sinh(mp.sqrt(z)) / mp.sqrt(z) - 1) / z, lambda z: mpf(1) / 6 + z / 120)
_tanh = _series(lambda z: (mp.tanh(mp.sqrt(z)) / mp.sqrt(z) - 1) / z, lambda z: -mpf(1) / 3 + 2 * z / 15)
_tanh_weight = _series(lambda z: z * mp.sqrt(z) / mp.tanh(mp.sqrt(z)), lambda z: z)
# erf(x) = x + x * Q(x*x) for small x; 1 - Q(x)**4 for x from ERF_SPLIT on
ERF_SPLIT, ERF_END = 1.2, 4.0
_erf_small = _series(lambda s: mp.erf(mp.sqrt(s)) / mp.sqrt(s) - 1, lambda s: 2 / mp.sqrt(mp.pi) * (1 - s / 3) - 1)
_erf_small_weight = _series(lambda s: mp.sqrt(s) / mp.erf(mp.sqrt(s)), lambda s: mp.sqrt(mp.pi) / 2)

Z_TAN = float((mp.pi / 4) ** 2) * 1.001
Z_SIN = float((mp.pi / 2) ** 2) * 1.001


def _cached(function: Function) -> Function:
    return functools.lru_cache(maxsize=None)(function)


def _erfcx_scaled(u: mpf) -> mpf:
    """(1 + 2a) * exp(a*a) * erfc(a) with u = (a - 4) / (a + 4)."""
    a = 4 * (1 + u) / (1 - u)
    if a > 10**4:
        return (1 + 2 * a) / (a * mp.sqrt(mp.pi)) * (1 - 1 / (2 * a * a))
    return (1 + 2 * a) * mp.exp(a * a) * mp.erfc(a)


@_cached
def _erfinv_over_x(w: mpf) -> mpf:
    """erfinv(x) / x as a function of w = -log(1 - x*x)."""
    if w < SMALL:
        return mp.sqrt(mp.pi) / 2
    x = mp.sqrt(-mp.expm1(-w))
    return mp.erfinv(x) / x


def _erfinv_near(t: mpf) -> mpf:
    return _erfinv_over_x(t + 3)


def _erfinv_far(t: mpf) -> mpf:
    return _erfinv_over_x((t + mpf(17) / 4) ** 2)


@_cached
def _lgamma_quotient(t: mpf) -> mpf:
    """lgamma(y) / ((y - 1) (y - 2)) with y = t + 1.5."""
    y = t + mpf(3) / 2
    product = (y - 1) * (y - 2)
    if abs(product) < SMALL:
        return mp.digamma(y) / (2 * y - 3)
    return mp.loggamma(y) / product


@_cached
def _stirling(z: mpf) -> mpf:
    """x * (lgamma(x) - (x - 1/2) log(x) + x - log(2 pi) / 2) with z = 1 / (x*x)."""
    if z < mpf(10) ** -16:
        return mpf(1) / 12 - z / 360
    x = 1 / mp.sqrt(z)
    return x * (mp.loggamma(x) - (x - mpf(1) / 2) * mp.log(x) + x - mp.log(2 * mp.pi) / 2)


@_cached
def _digamma_tail(z: mpf) -> mpf:
    """(log(x) - 1 / (2 x) - digamma(x)) / z with z = 1 / (x*x)."""
    if z < mpf(10) ** -16:
        return mpf(1) / 12 - z / 120
    x = 1 / mp.sqrt(z)
    return (mp.log(x) - 1 / (2 * x) - mp.digamma(x)) / z


FITS: dict[str, Fit] = {
    "EXP_F32": Fit(_exp, -HALF_LN2, HALF_LN2, 4, lambda r: r**2 / mp.exp(r), 24),
    "EXP_F64": Fit(_exp, -HALF_LN2, HALF_LN2, 9, lambda r: r**2 / mp.exp(r), 53),
    "EXPM1_F32": Fit(_exp, -HALF_LN2, HALF_LN2, 5, _series(lambda r: r**2 / mp.expm1(r), lambda r: r), 24),
    "EXPM1_F64": Fit(_exp, -HALF_LN2, HALF_LN2, 10, _series(lambda r: r**2 / mp.expm1(r), lambda r: r), 53),
    "EXP2_F32": Fit(_exp2, -0.5001, 0.5001, 5, lambda r: r / mpf(2) ** r, 24),
    "EXP2_F64": Fit(_exp2, -0.5001, 0.5001, 11, lambda r: r / mpf(2) ** r, 53),
    "LOG_F32": Fit(_log, ROOT_LOW, ROOT_HIGH, 9, _log_weight, 24),
    "LOG_F64": Fit(_log, ROOT_LOW, ROOT_HIGH, 20, _log_weight, 53),
    "SIN_F32": Fit(_sin, 0, Z_SIN, 3, _sin_weight, 24),
    "SIN_F64": Fit(_sin, 0, Z_SIN, 7, _sin_weight, 53),
    "TAN_F32": Fit(_tan, 0, Z_TAN, 6, lambda z: z, 24),
    "TAN_F64": Fit(_tan, 0, Z_TAN, 14, lambda z: z, 53),
    "ATAN_F32": Fit(_atan, 0, 1, 8, _atan_weight, 24),
    "ATAN_F64": Fit(_atan, 0, 1, 19, _atan_weight, 53),
    "ASIN_F32": Fit(_asin, 0, 0.2501, 4, _asin_weight, 24),
    "ASIN_F64": Fit(_asin, 0, 0.2501, 12, _asin_weight, 53),
    "ATANH_F64": Fit(_atanh, 0, 0.0296, 7, lambda z: z * z / 2, 53),
    "SINH_F32": Fit(_sinh, 0, 1.001, 3, lambda z: z, 24),
    "SINH_F64": Fit(_sinh, 0, 1.001, 6, lambda z: z, 53),
    "TANH_F32": Fit(_tanh, 0, 0.3907, 4, _tanh_weight, 24),
    "TANH_F64": Fit(_tanh, 0, 0.3907, 12, _tanh_weight, 53),
    "ERF_F32": Fit(_erf_small, 0, ERF_SPLIT**2, 6, _erf_small_weight, 24),
    "ERF_TAIL_F32": Fit(
        lambda x: mp.erfc(x) ** mpf("0.25"), ERF_SPLIT, ERF_END, 7, lambda x: 4 * mp.erfc(x) ** mpf("0.75") / mp.erf(x), 24,
    ),
    "ERF_F64": Fit(_erf_small, 0, 1.001, 12, _erf_small_weight, 53),
    "ERFCX_F64": Fit(_erfcx_scaled, -1, 0.75, 26, lambda u: 1 / _erfcx_scaled(u), 53),
    "ERFCX_LITE": Fit(_erfcx_scaled, -1, 0.45, 13, lambda u: 1 / _erfcx_scaled(u), 53),
    "EXP_LITE": Fit(_exp, -HALF_LN2, HALF_LN2, 5, lambda r: r**2 / mp.exp(r), 53),
    "LOG_LITE": Fit(_log, ROOT_LOW, ROOT_HIGH, 11, _log_weight, 53),
    "ERFINV_F32": Fit(_erfinv_near, -3, 3, 11, lambda t: 1 / _erfinv_near(t), 53),
    "ERFINV_TAIL_F32": Fit(_erfinv_far, -1.81, -0.05, 9, lambda t: 1 / _erfinv_far(t), 53),
    "ERFINV_F64": Fit(_erfinv_near, -3, 3, 23, lambda t: 1 / _erfinv_near(t), 53),
    "ERFINV_TAIL_F64": Fit(_erfinv_far, -1.81, 0, 20, lambda t: 1 / _erfinv_far(t), 53),
    "ERFINV_END_F64": Fit(_erfinv_far, -0.01, 1.81, 18, lambda t: 1 / _erfinv_far(t), 53),
    "LGAMMA_F64": Fit(_lgamma_quotient, -0.5, 0.5, 22, lambda t: 1 / _lgamma_quotient(t), 53),
    "LGAMMA_LITE": Fit(_lgamma_quotient, -0.5, 0.5, 13, lambda t: 1 / _lgamma_quotient(t), 53),
    "STIRLING_LITE": Fit(_stirling, 0, 1 / 64, 2, lambda z: mpf(1) / 8, 53),
    "DIGAMMA_LITE": Fit(_digamma_tail, 0, 1 / 64, 3, lambda z: z, 53),
    "SIN_LITE": Fit(_sin, 0, Z_SIN, 5, _sin_weight, 53),
    "TAN_LITE": Fit(_tan, 0, Z_TAN, 8, lambda z: z, 53),
    "STIRLING_F64": Fit(_stirling, 0, 1 / 64, 7, lambda z: mpf(1) / 8, 53),
    "DIGAMMA_F64": Fit(_digamma_tail, 0, 1 / 64, 7, lambda z: z, 53),
}  # fmt: skip


HEADER = '''"""Polynomial coefficients, highest power first, computed by `tools/tables/fit_coefficients.py`; do not edit.

The names end in the precision; LITE ones are evaluated in float64 for results in float32.  The comment gives the largest
error, weighted as that script says (in most rows the relative error of the function).
"""
'''


def main() -> None:
    if len(sys.argv) == 1:
        print(HEADER)
    for name in sys.argv[1:] or FITS:
        fit = FITS[name]
        coefficients, error = run(fit)
        print(f"{name} = (  # error 2**{error:.1f}")
        row = [repr(float(c)) for c in reversed(coefficients)]  # highest power first: the order of Horner's scheme
        for start in range(0, len(row), 4):
            print(f"    {', '.join(row[start : start + 4])},")
        print(")  # fmt: skip")


if __name__ == "__main__":
    main()
