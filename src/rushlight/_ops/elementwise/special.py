"""Functions of `torch.special` beyond the elementary ones: Bessel functions, the normal distribution, zeta,
polynomials.

Bessel and Airy functions are Chebyshev series near 0 and their asymptotic forms, with series for their smooth factors,
far away (Abramowitz and Stegun, chapters 9 and 10); the coefficients are computed, not copied:
tools/tables/make_special_tables.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from rushlight._ops.bodies import (
    as_float,
    given_dtype,
    is_number,
    isnan,
    narrow,
    not_implemented,
    number_kind,
    number_value,
    pair,
    refuse,
    rounded,
)
from rushlight._ops.elementwise import special_tables as tables
from rushlight._ops.table import Operator, operator
from rushlight._prims import build, prim
from rushlight._prims.elementwise.pointwise import trigamma
from rushlight._types.dtype import FLOAT64, INT32, INT64
from rushlight._types.promotion import default_dtype

__all__: list[str] = []

ROOT_2_OVER_PI = math.sqrt(2.0 / math.pi)
SPECIAL: dict[str, Any] = {
    "promote": "float",
    "spaces": ("special",),
    "method": False,
    "out": True,
    "tags": ("no_history_of_out",),
}


def series(coefficients: Sequence[float], x: Any, low: float, high: float) -> Any:
    """A Chebyshev series on [low, high], summed by Clenshaw's rule."""
    t = (x - (low + high) / 2.0) * (4.0 / (high - low))
    ahead, current = build.zeros_like(x), build.full_like(x, coefficients[-1])
    for coefficient in reversed(coefficients[1:-1]):
        current, ahead = t * current - ahead + coefficient, current
    return t * current * 0.5 - ahead + coefficients[0]


def _function(name: str, doc: str, body: Callable[[Any], Any], key: str = "", **options: Any) -> Operator:
    def checked(x: Any) -> Any:
        refuse(x, name, "c")
        return body(x)

    settings = {**SPECIAL, "name": key or f"special_{name}", "doc": doc, **options}
    return operator(f"{name}(Tensor input) -> Tensor", **settings)(checked)


# ***** modified Bessel functions *****


NEAR_ZERO = 1e-18  # below it an odd function is linear in any dtype, and quotients by it overflow


def _size(x: Any) -> Any:
    """|x| with a slope of 1 at 0, so that an odd function of it keeps its own."""
    return build.select(x < 0.0, -x, x)


def _scaled_i(n: int, x: Any) -> Any:
    """exp(-|x|) I_n(|x|)."""
    size = _size(x)
    near, far = (tables.I0_NEAR, tables.I0_FAR) if n == 0 else (tables.I1_NEAR, tables.I1_FAR)
    small = build.select(size < 8.0, size, 8.0)
    large = build.select(size < 8.0, 8.0, size)
    first = series(near, small, 0.0, 8.0)
    first = first if n == 0 else first * small
    second = series(far, 1.0 / large, 0.0, 0.125) * prim.rsqrt(large)
    return build.select(size < 8.0, first, second)


def _odd(x: Any, value: Any) -> Any:
    return build.select(x < 0.0, -value, value)


def _i0(x: Any) -> Any:
    return prim.exp(prim.abs(x)) * _scaled_i(0, x)


def _i1(x: Any) -> Any:
    return _odd(x, prim.exp(prim.abs(x)) * _scaled_i(1, x))


_i0_op = _function(
    "i0",
    "The modified Bessel function I0.",
    _i0,
    key="i0",
    spaces=("torch", "special"),
    method=True,
    inplace=True,
    inplace_spaces=("torch",),
)
_i0e_op = _function("i0e", "exp(-|x|) I0(x).", lambda x: _scaled_i(0, x))
_i1_op = _function("i1", "The modified Bessel function I1.", _i1)
_i1e_op = _function("i1e", "exp(-|x|) I1(x).", lambda x: _odd(x, _scaled_i(1, x)))
_function("modified_bessel_i0", "The modified Bessel function I0.", _i0)
_function("modified_bessel_i1", "The modified Bessel function I1.", _i1)
_i0_op.gradient(lambda ct, out, x: ct * _i1(x))
_i0e_op.gradient(lambda ct, out, x: ct * (_odd(x, _scaled_i(1, x)) - prim.sign(x) * out))


@_i1_op.gradient
def _(ct: Any, out: Any, x: Any) -> Any:
    away = prim.abs(x) > NEAR_ZERO  # false for NaN, where PyTorch's gradient is 1/2 too
    return ct * build.select(away, _i0(x) - out / build.select(away, x, 1.0), 0.5)


@_i1e_op.gradient
def _(ct: Any, out: Any, x: Any) -> Any:
    away = prim.abs(x) > NEAR_ZERO
    safe = build.select(away, x, 1.0)
    return ct * build.select(away, _scaled_i(0, x) - out * (prim.sign(x) + 1.0 / safe), 0.5)


def _scaled_k(n: int, x: Any) -> Any:
    """exp(x) K_n(x); inf at 0, NaN below."""
    small = build.select((x > 0.0) & (x < 2.0), x, 1.0)
    large = build.select(x < 2.0, 2.0, x)
    square, half_log = small * small, prim.log(small * 0.5)
    if n == 0:
        near = series(tables.K0_NEAR, square, 0.0, 4.0) - half_log * _i0(small)
        far = tables.K0_FAR
    else:
        near = series(tables.K1_NEAR, square, 0.0, 4.0) / small + half_log * _i1(small)
        far = tables.K1_FAR
    value = build.select(x < 2.0, near * prim.exp(small), series(far, 1.0 / large, 0.0, 0.5) * prim.rsqrt(large))
    return _positive_only(x, value, math.inf)


def _positive_only(x: Any, value: Any, at_zero: float) -> Any:
    value = build.select(build.eq(x, 0.0), at_zero, value)
    return build.select((x < 0.0) | isnan(x), math.nan, value)


for _n in (0, 1):
    _function(f"scaled_modified_bessel_k{_n}", f"exp(x) K{_n}(x).", lambda x, n=_n: _scaled_k(n, x))  # type: ignore[misc]
    _function(
        f"modified_bessel_k{_n}",
        f"The modified Bessel function K{_n}.",
        lambda x, n=_n: prim.exp(-x) * _scaled_k(n, x),  # type: ignore[misc]
    )

# ***** Bessel functions *****


def _hankel(n: int, size: Any) -> tuple[Any, Any, Any]:
    """(sqrt(2 / pi x), P, Q) of the asymptotic form, for x >= 8."""
    s = 1.0 / (size * size)
    p, q = (tables.P0_FAR, tables.Q0_FAR) if n == 0 else (tables.P1_FAR, tables.Q1_FAR)
    return prim.rsqrt(size) * ROOT_2_OVER_PI, series(p, s, 0.0, 1.0 / 64.0), series(q, s, 0.0, 1.0 / 64.0) / size


def _bessel_j(n: int, x: Any) -> Any:
    size = prim.abs(x)
    small, large = build.select(size < 8.0, size, 0.0), build.select(size < 8.0, 8.0, size)
    near = series(tables.J0_NEAR if n == 0 else tables.J1_NEAR, small * small, 0.0, 64.0)
    near = near if n == 0 else near * small
    scale, p, q = _hankel(n, large)
    angle = large - (2 * n + 1) * (math.pi / 4.0)
    far = scale * (p * prim.cos(angle) - q * prim.sin(angle))
    value = build.select(size < 8.0, near, far)
    return value if n == 0 else _odd(x, value)


def _bessel_y(n: int, x: Any) -> Any:
    small = build.select((x > 0.0) & (x < 8.0), x, 1.0)
    large = build.select(x < 8.0, 8.0, x)
    square, log = small * small, prim.log(small) * (2.0 / math.pi)
    if n == 0:
        near = series(tables.Y0_NEAR, square, 0.0, 64.0) + log * series(tables.J0_NEAR, square, 0.0, 64.0)
    else:
        near = series(tables.Y1_NEAR, square, 0.0, 64.0) / small + log * small * series(
            tables.J1_NEAR, square, 0.0, 64.0
        )
    scale, p, q = _hankel(n, large)
    angle = large - (2 * n + 1) * (math.pi / 4.0)
    far = scale * (p * prim.sin(angle) + q * prim.cos(angle))
    return _positive_only(x, build.select(x < 8.0, near, far), -math.inf)


for _n in (0, 1):
    _function(f"bessel_j{_n}", f"The Bessel function J{_n}.", lambda x, n=_n: _bessel_j(n, x))  # type: ignore[misc]
    _function(f"bessel_y{_n}", f"The Bessel function Y{_n}.", lambda x, n=_n: _bessel_y(n, x))  # type: ignore[misc]


def _spherical_j0(x: Any) -> Any:
    small = prim.abs(x) < 0.5
    s = build.select(small, x * x, 0.0)
    near = 1.0 - s / 6.0 * (
        1.0 - s / 20.0 * (1.0 - s / 42.0 * (1.0 - s / 72.0 * (1.0 - s / 110.0 * (1.0 - s / 156.0))))
    )
    safe = build.select(small, 1.0, x)
    return build.select(build.eq(prim.abs(x), math.inf), 0.0, build.select(small, near, prim.sin(safe) / safe))


_function("spherical_bessel_j0", "sin(x) / x.", _spherical_j0)


def _airy(x: Any) -> Any:
    near = series(tables.AI_NEAR, build.select((x >= -6.0) & (x < 2.0), x, 0.0), -6.0, 2.0)
    large = build.select(x < 2.0, 2.0, x)
    z = large * prim.sqrt(large) * (2.0 / 3.0)
    far = (
        series(tables.AI_FAR, 1.0 / z, 0.0, 3.0 / (2.0 * 2.0**1.5))
        * prim.exp(-z)
        / (prim.sqrt(prim.sqrt(large)) * (2.0 * math.sqrt(math.pi)))
    )
    size = build.select(x < -6.0, -x, 6.0)
    w = size * prim.sqrt(size) * (2.0 / 3.0)
    s, edge = 1.0 / (w * w), (2.0 / 3.0 * 6.0**1.5) ** -2
    angle = w + math.pi / 4.0
    wave = prim.sin(angle) * series(tables.AI_P, s, 0.0, edge) - prim.cos(angle) * series(tables.AI_Q, s, 0.0, edge) / w
    wave = wave / (prim.sqrt(prim.sqrt(size)) * math.sqrt(math.pi))
    value = build.select(x < -6.0, wave, build.select(x < 2.0, near, build.select(x > 105.0, 0.0, far)))
    return build.select(isnan(x) | build.eq(prim.abs(x), math.inf), math.nan, value)


# in float64: far below 0 the angle is large, and few digits of it would be left in float32
_function(
    "airy_ai",
    "Ai(x), the solution of y'' = x y that vanishes for large x.",
    lambda x: narrow(_airy(build.convert(x, FLOAT64)), x.dtype),
)

# ***** the normal distribution *****


def scaled_erfc(x: Any) -> Any:
    """exp(x^2) erfc(x)."""
    size = _size(x)
    near, far = build.select(size < 1e8, size, 1e8), build.select(size < 1e8, 1e8, size)
    value = series(tables.ERFCX, (near - 3.75) / (near + 3.75), -1.0, 1.0) / (1.0 + 2.0 * near)
    value = build.select(size < 1e8, value, (1.0 / math.sqrt(math.pi)) / far)
    below = build.select(x < 0.0, x, 0.0)
    return build.select(x < 0.0, 2.0 * prim.exp(below * below) - value, value)


_erfcx = _function("erfcx", "exp(x^2) erfc(x), which neither overflows nor vanishes for large x.", scaled_erfc)


@_erfcx.gradient
def _(ct: Any, out: Any, x: Any) -> Any:
    """2 x erfcx(x) - 2 / sqrt(pi), in float64: for large x the two are nearly equal."""
    wide = build.convert(x, FLOAT64)
    return ct * narrow(2.0 * wide * scaled_erfc(wide) - 2.0 / math.sqrt(math.pi), x.dtype)


_ndtr = _function(
    "ndtr",
    "(1 + erf(x / sqrt(2))) / 2: the normal distribution's function.",
    lambda x: 0.5 * prim.erfc(x * -math.sqrt(0.5)),
)
_ndtr.gradient(lambda ct, out, x: ct * prim.exp(x * x * -0.5) * (1.0 / math.sqrt(2.0 * math.pi)))


def _log_ndtr_body(x: Any) -> Any:
    t = x * math.sqrt(0.5)
    low = build.select(x < -1.0, t, -1.0)
    high = build.select(x < -1.0, 0.0, t)
    return build.select(x < -1.0, prim.log(scaled_erfc(-low) * 0.5) - t * t, prim.log1p(prim.erfc(high) * -0.5))


_log_ndtr = _function("log_ndtr", "log((1 + erf(x / sqrt(2))) / 2), exact in the tail.", _log_ndtr_body)


@_log_ndtr.gradient
def _(ct: Any, out: Any, x: Any) -> Any:
    """The density over the function; in the tail both vanish, and their scaled forms do not."""
    low, high = build.select(x < 0.0, x, 0.0), build.select(x < 0.0, 0.0, x)
    tail = math.sqrt(2.0 / math.pi) / scaled_erfc(low * -math.sqrt(0.5))
    rest = (
        prim.exp(high * high * -0.5) * (1.0 / math.sqrt(2.0 * math.pi)) / (1.0 - 0.5 * prim.erfc(high * math.sqrt(0.5)))
    )
    return ct * build.select(x < 0.0, tail, rest)


def _ndtri_body(p: Any) -> Any:
    """Newton's steps on the logarithm of the nearer tail, from its asymptotic form."""
    upper = p > 0.5
    tail = build.select(upper, 1.0 - p, p)
    inside = (tail > 0.0) & (tail < 0.5)
    safe = build.select(inside, tail, 0.25)
    target = prim.log(safe)
    x = -prim.sqrt(target * -2.0) * 0.8
    for _ in range(8):
        t = x * -math.sqrt(0.5)
        ratio = scaled_erfc(t)  # ndtr(x) / density(x) = ratio * sqrt(pi / 2)
        value = prim.log(ratio * 0.5) - t * t
        x = x - (value - target) * ratio * math.sqrt(math.pi / 2.0)
    x = build.select(build.eq(tail, 0.5), 0.0, build.select(build.eq(tail, 0.0), -math.inf, x))
    x = build.select(upper, -x, x)
    return build.select((p < 0.0) | (p > 1.0) | isnan(p), math.nan, x)


_ndtri = _function("ndtri", "sqrt(2) erfinv(2 x - 1): the inverse of `ndtr`.", _ndtri_body)
_ndtri.gradient(lambda ct, out, x: ct * prim.exp(out * out * 0.5) * math.sqrt(2.0 * math.pi))


def _entropy(x: Any) -> Any:
    positive = x > 0.0
    value = build.select(positive, -(x * prim.log(build.select(positive, x, 1.0))), 0.0)
    return build.select(isnan(x), x, build.select(x < 0.0, -math.inf, value))


_entr = _function("entr", "-x log x; 0 at 0, -inf below.", _entropy)


@_entr.gradient
def _(ct: Any, out: Any, x: Any) -> Any:
    return ct * build.select(x < 0.0, math.nan, -prim.log(x) - 1.0)


# ***** zeta and polygamma *****


@operator("zeta(Tensor input, Tensor other) -> Tensor", name="special_zeta", numbers=("input", "other"), **SPECIAL)
def zeta(s: Any, q: Any) -> Any:
    """Hurwitz' zeta function: sum over k >= 0 of (other + k)^-input."""
    s, q = pair(s, q)
    refuse(s, "zeta", "c")
    return prim.zeta(s, q)


def _polygamma(n: int, x: Any) -> Any:
    if n == 0:
        return prim.digamma(x)
    wide = build.convert(x, FLOAT64)
    if n == 1:
        pole = (wide <= 0.0) & build.eq(wide, prim.round(wide)) & (wide > -math.inf)
        return narrow(build.select(pole, math.inf, trigamma(wide)), x.dtype)
    return narrow(
        prim.zeta(build.full_like(wide, n + 1.0), wide) * (math.factorial(n) * (1.0 if n % 2 else -1.0)), x.dtype
    )


@operator("polygamma(int n, Tensor input) -> Tensor", promote="float", promote_over=("input",), out=True, method=False,
          aliases=("special.polygamma",))  # fmt: skip
def polygamma(n: int, x: Any) -> Any:
    """The n-th derivative of digamma."""
    if n < 0:
        raise RuntimeError("polygamma(n, x) does not support negative n.")
    refuse(x, "polygamma", "c")
    return _polygamma(n, x)


polygamma.gradient(lambda ct, out, n, x: ct * rounded(_polygamma(n + 1, x), given_dtype(ct)))


MOST_TERMS = 1 << 24  # most terms of a sum for one element


@operator("mvlgamma(Tensor input, int p) -> Tensor", promote="float", like="contiguous", inplace=True, inplace_spaces=(), out=True,
          aliases=("special.multigammaln",))  # fmt: skip
def mvlgamma(x: Any, p: int) -> Any:
    """p (p - 1) / 4 log(pi) + sum over k < p of lgamma(x - k / 2)."""
    if p < 1:
        raise RuntimeError("p has to be greater than or equal to 1")
    if p > MOST_TERMS:
        raise RuntimeError(
            f"mvlgamma(): p = {p} means as many values of lgamma for each element; at most {MOST_TERMS} are summed"
        )
    constant = p * (p - 1) / 4.0 * math.log(math.pi)
    if p <= 16:
        total = prim.lgamma(x)
        for k in range(1, p):
            total = total + prim.lgamma(x - 0.5 * k)
        return total + constant
    shape = (*x.shape, p)
    steps = build.convert(prim.iota(shape=shape, dim=len(x.shape), dtype=INT64), x.dtype)
    terms = prim.lgamma(build.broadcast_to(build.expand_dims(x, (len(x.shape),)), shape) - 0.5 * steps)
    return prim.sum(terms, dims=(len(x.shape),)) + constant


# ***** polynomials of Chebyshev, by angles within [-1, 1] and hyperbolic angles beyond *****


def _parity(n: Any) -> Any:
    """-1 for odd n, 1 for even ones."""
    return 1.0 - 2.0 * prim.abs(prim.rem_trunc(n, build.full_like(n, 2.0)))


def _angles(x: Any) -> tuple[Any, Any, Any]:
    """(|x| <= 1, the angle whose cosine is x, the hyperbolic angle of |x|)."""
    size = prim.abs(x)
    inside = size <= 1.0
    return inside, prim.acos(build.select(inside, x, 0.0)), prim.acosh(build.select(inside, 1.0, size))


def _first_kind(x: Any, n: Any) -> Any:
    inside, angle, beyond = _angles(x)
    sign = build.select(x < 0.0, _parity(n), 1.0)
    return build.select(inside, prim.cos(n * angle), sign * prim.cosh(n * beyond))


def _second_kind(x: Any, n: Any) -> Any:
    inside, angle, beyond = _angles(x)
    sign = build.select(x < 0.0, _parity(n), 1.0)
    edge = build.eq(prim.abs(x), 1.0)
    sine, wide = prim.sin(build.select(edge, 1.0, angle)), prim.sinh(build.select(inside, 1.0, beyond))
    value = build.select(inside, prim.sin((n + 1.0) * angle) / sine, sign * prim.sinh((n + 1.0) * beyond) / wide)
    return build.select(edge, sign * (n + 1.0), value)


def _third_kind(x: Any, n: Any) -> Any:
    """cos((n + 1/2) a) / cos(a / 2)."""
    inside, angle, beyond = _angles(x)
    edge = build.eq(x, -1.0)
    near = prim.cos((n + 0.5) * angle) / prim.cos(build.select(edge, 0.0, angle) * 0.5)
    above = prim.cosh((n + 0.5) * beyond) / prim.cosh(beyond * 0.5)
    below = _parity(n) * prim.sinh((n + 0.5) * beyond) / prim.sinh(build.select(inside, 1.0, beyond) * 0.5)
    value = build.select(inside, near, build.select(x < 0.0, below, above))
    return build.select(edge, _parity(n) * (2.0 * n + 1.0), value)


def _fourth_kind(x: Any, n: Any) -> Any:
    return _parity(n) * _third_kind(-x, n)


def _overflowing(body: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """A closed form that is NaN where the recurrence is: once the value two degrees before has overflown, infinities
    are subtracted."""

    def function(x: Any, n: Any) -> Any:
        wide, degree = build.convert(x, FLOAT64), prim.trunc(build.convert(n, FLOAT64))
        value = narrow(body(wide, degree), x.dtype)
        before = narrow(body(wide, prim.maximum(degree - 2.0, build.zeros_like(degree))), x.dtype)
        value = build.select(build.eq(prim.abs(before), math.inf), math.nan, value)
        one = build.eq(degree, 1.0)
        value = build.select(
            build.eq(prim.abs(wide), math.inf) & (degree <= 2.0), build.select(one, x, math.inf), value
        )
        value = build.select(build.eq(degree, 0.0), 1.0, value)
        return build.select((degree >= 0.0) & (degree < 2.0**63), value, 0.0)

    return function


def _polynomial(name: str, doc: str, body: Callable[[Any, Any], Any], shifted: bool = False) -> None:
    def function(x: Any, n: Any) -> Any:
        if "c" in (number_kind(x), number_kind(n)):
            raise not_implemented(f"{name}_cpu", default_dtype().to_complex())
        strong = next(v for v in (x, n) if not getattr(v, "weak", False) and not is_number(v))
        x, n = pair(
            number_value(x, strong.dtype) if is_number(x) else x, number_value(n, strong.dtype) if is_number(n) else n
        )
        refuse(x, f"{name}_cpu", "c")
        x, n = as_float(x), as_float(n)
        return body(x * 2.0 - 1.0 if shifted else x, n)

    operator(
        f"{name}(Tensor input, Tensor n) -> Tensor", name=f"special_{name}", numbers=("input", "n"), doc=doc, **SPECIAL
    )(function)


for _letter, _body in (("t", _first_kind), ("u", _second_kind), ("v", _third_kind), ("w", _fourth_kind)):
    _kind, _shape = {
        "t": ("first", "cos(n t)"),
        "u": ("second", "sin((n + 1) t) / sin(t)"),
        "v": ("third", "cos((n + 1/2) t) / cos(t / 2)"),
        "w": ("fourth", "sin((n + 1/2) t) / sin(t / 2)"),
    }[_letter]
    _text = f"{_shape} with cos(t) = x: Chebyshev's polynomial of the {_kind} kind and degree n"
    _polynomial(f"chebyshev_polynomial_{_letter}", f"{_text}.", _overflowing(_body))
    _polynomial(f"shifted_chebyshev_polynomial_{_letter}", f"{_text} at 2 x - 1.", _overflowing(_body), shifted=True)

# ***** polynomials by their recurrences *****


def _recurrence(family: str) -> Callable[[Any, Any], Any]:
    return lambda x, n: prim.polynomial(x, n, family=family)


_polynomial(
    "hermite_polynomial_h",
    "Hermite's polynomial of degree n (physics): e^(x^2) (-d/dx)^n e^(-x^2).",
    _recurrence("hermite_h"),
)
_polynomial(
    "hermite_polynomial_he",
    "Hermite's polynomial of degree n (statistics): e^(x^2 / 2) (-d/dx)^n e^(-x^2 / 2).",
    _recurrence("hermite_he"),
)
_polynomial(
    "laguerre_polynomial_l", "Laguerre's polynomial of degree n: e^x / n! (d/dx)^n (e^-x x^n).", _recurrence("laguerre")
)
_polynomial(
    "legendre_polynomial_p",
    "Legendre's polynomial of degree n: 1 / (2^n n!) (d/dx)^n (x^2 - 1)^n.",
    _recurrence("legendre"),
)

# ***** the incomplete gamma functions *****


def _incomplete(name: str, doc: str, primitive: Callable[[Any, Any], Any]) -> None:
    def function(a: Any, x: Any) -> Any:
        a, x = pair(a, x)
        refuse(a, f"{name}_cpu", "buic", joined=True)
        return primitive(a, x)

    operator(
        f"{name}(Tensor input, Tensor other) -> Tensor",
        promote="same",
        inplace=True,
        inplace_spaces=(),
        out=True,
        doc=doc,
        aliases=(f"special.gammainc{name[6:]}",),
    )(function)


_incomplete(
    "igamma",
    "The regularised lower incomplete gamma function P(input, other): 1 / gamma(a) times the integral of t^(a-1) e^-t, 0..x.",
    prim.gammainc,
)
_incomplete(
    "igammac", "The regularised upper incomplete gamma function Q(input, other) = 1 - P(input, other).", prim.gammaincc
)

# ***** taking floats apart *****


@operator("frexp(Tensor input) -> (Tensor mantissa, Tensor exponent)", like="operands", out="exact")
def frexp(x: Any) -> tuple[Any, Any]:
    """mantissa and exponent with input = mantissa * 2^exponent and 0.5 <= |mantissa| < 1; zeros, infinities and NaN
    have exponent 0."""
    dtype = given_dtype(x)
    if not dtype.is_floating_point:
        raise RuntimeError("torch.frexp() only supports floating-point dtypes")
    double = build.convert(x, FLOAT64)
    tiny = (prim.abs(double) < 2.0**-1022) & build.ne(double, 0.0)  # float64's subnormal numbers
    scaled = build.select(tiny, double * 2.0**54, double)
    bits = prim.bitcast(scaled, dtype=INT64) & (0x7FF << 52)
    field = prim.shift_right(bits, build.full_like(bits, 52)) - 1022
    plain = build.ne(double, 0.0) & build.ne(field, 0x7FF - 1022)
    exponent = build.select(plain, field - build.select(tiny, build.full_like(field, 54), 0), 0)
    # Constant between the powers of two
    power = prim.exp2(build.convert(prim.neg(build.select(plain, field, 0)), FLOAT64))
    return build.convert(scaled * power, dtype), build.convert(exponent, INT32)
