"""Complex primitives on pairs (re, im).

Sums, products and quotients are computed in the parts' own precision, as PyTorch does.  The transcendental functions of
complex64 go through float64: then no intermediate result leaves the range, and the parts are right to about an ulp
wherever they do not cancel.  The inverse functions follow W. Kahan, "Branch cuts for complex elementary functions".
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from . import explog, hyper, trig
from .power import pow as real_pow

if TYPE_CHECKING:
    from collections.abc import Callable

    from .writer import Val

    Pair = tuple[Val, Val]

# ***** arithmetic *****


def add(z: Pair, w: Pair) -> Pair:
    return z[0] + w[0], z[1] + w[1]


def sub(z: Pair, w: Pair) -> Pair:
    return z[0] - w[0], z[1] - w[1]


def mul(z: Pair, w: Pair) -> Pair:
    (a, b), (c, d) = z, w
    return a * c - b * d, a * d + b * c


def div(z: Pair, w: Pair) -> Pair:
    """Smith's division, which divides by the larger part of the divisor first; by 0 it divides each part alone."""
    (a, b), (c, d) = z, w
    em = a.em
    wide = c.abs().ge(d.abs())
    large, small = em.select(wide, c, d), em.select(wide, d, c)
    p, q = em.select(wide, a, b), em.select(wide, b, a)
    nothing, zero = large.eq(0.0) & small.eq(0.0), em.const(a.type, 0.0)
    ratio = small / large
    with_p, with_q = (em.select(nothing, zero, part * ratio) for part in (p, q))
    scale = 1.0 / em.select(nothing, zero, large + small * ratio)
    return (p + with_q) * scale, em.select(wide, q - with_p, with_p - q) * scale


def square_norm(z: Pair) -> Val:
    return z[0].em.fma(z[0], z[0], z[1] * z[1])


def modulus(z: Pair) -> Val:
    """|z| without intermediate overflow; infinite if a part is."""
    em, type = z[0].em, z[0].type
    if type == "float":
        wide = (z[0].to("double"), z[1].to("double"))
        result = em.call("llvm.sqrt", square_norm(wide)).to("float")
        a, b = z[0].abs(), z[1].abs()
    else:
        a, b = z[0].abs(), z[1].abs()
        first = a.gt(b)
        large, small = em.select(first, a, b), em.select(first, b, a)
        ratio = em.select(large.eq(0.0), em.const(type, 0.0), small / large)
        result = large * em.call("llvm.sqrt", em.fma(ratio, ratio, 1.0))
    result = em.select(a.compare("uno", b), a + b, result)
    return em.select(_endless(z), em.const(type, math.inf), result)


def _endless(z: Pair) -> Val:
    return z[0].abs().eq(math.inf) | z[1].abs().eq(math.inf)


def sign(z: Pair) -> Pair:
    """z / |z|, and 0 at 0."""
    r = modulus(z)
    zero = r.eq(0.0)
    return tuple(r.em.select(zero, r.em.const(r.type, 0.0), part / r) for part in z)  # type: ignore[return-value]


def equal(z: Pair, w: Pair) -> Val:
    return z[0].eq(w[0]) & z[1].eq(w[1])


def not_equal(z: Pair, w: Pair) -> Val:
    return z[0].ne(w[0]) | z[1].ne(w[1])


# ***** exponentials and roots, in double *****


def sqrt(z: Pair) -> Pair:
    x, y = z
    em = x.em
    r = modulus(z)
    t = em.call("llvm.sqrt", r * 0.5 + x.abs() * 0.5)
    other = (y.abs() / t) * 0.5
    other = em.select(t.eq(0.0), em.const(x.type, 0.0), other)
    right = x.ge(0.0)
    endless = y.abs().eq(math.inf)
    re = em.select(endless, em.const(x.type, math.inf), em.select(right, t, other))
    im = em.select(endless, em.const(x.type, math.inf), em.select(right, other, t))
    # -inf + y i: the ratio above is inf / inf only when y is infinite too
    return re, im.copysign(y)


def rsqrt(z: Pair) -> Pair:
    one, zero = z[0].em.const(z[0].type, 1.0), z[0].em.const(z[0].type, 0.0)
    return div((one, zero), sqrt(z))


def _times(factor: Val, part: Val, angle: Val) -> Val:
    """factor * part, but where the angle is 0 a signed 0, even if the factor is infinite or NaN."""
    em = factor.em
    sign = em.select(factor.lt(0.0), em.const(factor.type, -1.0), 1.0)
    return em.select(angle.eq(0.0), sign * angle, factor * part)


_STEP = 680.0  # exp(x) overflows above 709; exp(x - 680) does not where exp(x) times a sine may be finite


def _lowered(x: Val, size: Val) -> tuple[Val, Val]:
    """(x', factor): exp(x) = exp(x') * factor for a large x, sinh and cosh likewise for a large |x|; the product comes
    after one with a sine.
    """
    em = x.em
    far = size.gt(709.0)
    return em.select(far, x - em.const(x.type, _STEP).copysign(x), x), em.select(
        far, em.const(x.type, math.exp(_STEP)), 1.0
    )


def exp(z: Pair) -> Pair:
    lower, factor = _lowered(z[0], z[0])
    return _polar(explog.exp(lower), factor, z[0], z[1])


def _polar(e: Val, factor: Val, x: Val, y: Val) -> Pair:
    """The number of modulus e * factor, the exponential of x, and angle y."""
    em = e.em
    re, im = e * trig.cos(y) * factor, _times(e, trig.sin(y), y) * factor
    # C's rules for a modulus of inf, and one of 0, without a direction
    re = em.select(x.eq(math.inf) & re.is_nan(), e, re)
    lost = x.eq(-math.inf) & re.is_nan()
    zero = em.const(e.type, 0.0)
    return em.select(lost, zero, re), em.select(lost, zero.copysign(y), im)


def exp2(z: Pair) -> Pair:
    x = z[0]
    far = x.gt(1023.0)
    lower = x.em.select(far, x - 1000.0, x)
    return _polar(explog.exp2(lower), x.em.select(far, x.em.const(x.type, 2.0**1000), 1.0), x, z[1] * math.log(2))


def expm1(z: Pair) -> Pair:
    x, y = z
    half = trig.sin(y * 0.5)
    re = x.em.fma(explog.expm1(x), trig.cos(y), -2.0 * half * half)
    limit, im = exp(z)
    return x.em.select(x.abs().eq(math.inf), limit - 1.0, re), im


def _log_modulus(z: Pair) -> Val:
    """log |z|, accurate where |z| is near 1."""
    em = z[0].em
    r = modulus(z)
    a, b = z[0].abs(), z[1].abs()
    first = a.gt(b)
    large, small = em.select(first, a, b), em.select(first, b, a)
    near = explog.log1p(em.fma(small, small, (large - 1.0) * (large + 1.0))) * 0.5
    return em.select(r.gt(0.5) & r.lt(2.0), near, explog.log(r))


def log(z: Pair) -> Pair:
    return _log_modulus(z), trig.atan2(z[1], z[0])


def _log_in_base(factor: float) -> Callable[[Pair], Pair]:
    def lowering(z: Pair) -> Pair:
        re, im = log(z)
        return re * factor, im * factor

    return lowering


def log1p(z: Pair) -> Pair:
    """log|1 + z| from x (2 + x) + y*y where z is small."""
    x, y = z
    em = x.em
    small = explog.log1p(em.fma(x, x + 2.0, y * y)) * 0.5
    far = x.abs().gt(0.5) | y.abs().gt(0.5)
    return em.select(far, _log_modulus((x + 1.0, y)), small), trig.atan2(y, x + 1.0)


def pow(z: Pair, w: Pair) -> Pair:
    """exp(w log z), and 1 for w = 0; at z = 0 it is 0 where w has a positive real part, else NaN."""
    em, type = z[0].em, z[0].type
    radius, angle = log(z)
    re, im = exp(mul(w, (radius, angle)))
    origin = z[0].eq(0.0) & z[1].eq(0.0)
    zero, one, at_origin = (
        em.const(type, 0.0),
        em.const(type, 1.0),
        em.select(w[0].gt(0.0), em.const(type, 0.0), math.nan),
    )
    re, im = em.select(origin, at_origin, re), em.select(origin, at_origin, im)
    plain = w[0].eq(0.0) & w[1].eq(0.0)
    re, im = em.select(plain, one, re), em.select(plain, zero, im)
    # on the positive axis the real function is the more exact one
    real = z[1].eq(0.0) & w[1].eq(0.0) & z[0].gt(0.0)
    return em.select(real, real_pow(z[0], w[0]), re), em.select(real & im.is_nan(), zero, im)


# ***** circular and hyperbolic functions, in double *****


def sinh(z: Pair) -> Pair:
    x, y = z
    lower, factor = _lowered(x, x.abs())
    re = _times(trig.cos(y), hyper.sinh(lower), x) * factor
    re = x.em.select(x.abs().eq(math.inf) & re.is_nan(), x.abs(), re)
    return re, _times(hyper.cosh(lower), trig.sin(y), y) * factor


def cosh(z: Pair) -> Pair:
    x, y = z
    turn, (lower, factor) = trig.sin(y), _lowered(x, x.abs())
    im = hyper.sinh(lower) * turn * factor
    zero, one = x.em.const(x.type, 0.0), x.em.const(x.type, 1.0)
    im = x.em.select(y.eq(0.0), zero.copysign(x) * one.copysign(y), im)
    im = x.em.select(x.eq(0.0) & turn.is_nan(), zero, im)
    re = hyper.cosh(lower) * trig.cos(y) * factor
    return x.em.select(x.abs().eq(math.inf) & re.is_nan(), x.abs(), re), im


def tanh(z: Pair) -> Pair:
    x, y = z
    em, type = x.em, x.type
    t, s = trig.tan(y), hyper.sinh(x)
    beta = em.fma(t, t, 1.0)
    rho = em.call("llvm.sqrt", em.fma(s, s, 1.0))
    below = em.fma(beta * s, s, 1.0)
    re = em.select(x.eq(0.0), x, beta * rho * s / below)
    im = em.select(y.eq(0.0), y, t / below)
    far = x.abs().gt(20.0)
    # 4 sin y cos y exp(-2 |x|), all of it 0 for an infinite x
    decay = explog.exp(x.abs() * -2.0)
    turn = trig.sin(y) * trig.cos(y)
    tail, endless, lost = 4.0 * turn * decay, x.abs().eq(math.inf), turn.is_nan()
    tail = em.select(endless, em.const(type, 0.0).copysign(em.select(lost, y, turn)), tail)
    limit = em.select(lost & ~endless, em.const(type, math.nan), em.const(type, 1.0).copysign(x))
    return em.select(far, limit, re), em.select(far, tail, im)


def asin(z: Pair) -> Pair:
    x, y = z
    minus, plus = sqrt((1.0 - x, -y)), sqrt((x + 1.0, y))
    re = trig.atan2(x, _select_endless(z, y.abs(), minus[0] * plus[0] - minus[1] * plus[1]))
    re = x.em.select(_on_axis(z), x, re)
    return re, _infinite_if_endless(z, hyper.asinh(minus[0] * plus[1] - minus[1] * plus[0])).copysign(y)


def acos(z: Pair) -> Pair:
    x, y = z
    minus, plus = sqrt((1.0 - x, -y)), sqrt((x + 1.0, y))
    re = _select_endless(z, trig.atan2(y.abs(), x), 2.0 * trig.atan2(minus[0], plus[0]))
    re = x.em.select(_on_axis(z), x.em.const(x.type, math.pi / 2), re)
    return re, _infinite_if_endless(z, hyper.asinh(plus[0] * minus[1] - plus[1] * minus[0])).copysign(-y)


def acosh(z: Pair) -> Pair:
    x, y = z
    minus, plus = sqrt((x - 1.0, y)), sqrt((x + 1.0, y))
    im = _select_endless(z, trig.atan2(y, x), 2.0 * trig.atan2(minus[1], plus[0]))
    im = x.em.select(_on_axis(z), x.em.const(x.type, math.pi / 2), im)
    return _infinite_if_endless(z, hyper.asinh(minus[0] * plus[0] + minus[1] * plus[1])), im


def _select_endless(z: Pair, endless: Val, finite: Val) -> Val:
    """The inverse functions at infinity, which depend on the direction alone."""
    return finite.em.select(_endless(z), endless, finite)


def _on_axis(z: Pair) -> Val:
    """0 + NaN i: it lies on the imaginary axis, wherever that is."""
    return z[0].eq(0.0) & z[1].is_nan()


def _infinite_if_endless(z: Pair, finite: Val) -> Val:
    return _select_endless(z, finite.em.const(finite.type, math.inf), finite)


def atanh(z: Pair) -> Pair:
    x, y = z
    em, a = x.em, x.abs()
    gap = 1.0 - a
    tiny = gap.eq(0.0) & y.abs().lt(1e-100) & y.ne(0.0)  # its square would be 0
    high = em.select(tiny, y * 2.0**600, y)
    re = em.fma(
        explog.log1p(4.0 * a / em.fma(gap, gap, high * high)),
        0.25,
        em.select(tiny, em.const(x.type, 300.0 * math.log(2.0)), 0.0),
    )
    im = trig.atan2(y + y, gap * (a + 1.0) - y * y) * 0.5
    # far out the squares would overflow: there it is 1 / z
    wide = a.gt(y.abs())
    large = em.select(wide, a, y.abs())
    p, q = a / large, y / large
    inverse = em.select(large.eq(math.inf), em.const(x.type, 0.0), p / em.fma(p, p, q * q) / large)
    far = a.gt(1e100) | y.abs().gt(1e100)
    zero = em.const(x.type, 0.0)
    # C's rules where a part is NaN: an infinite one, or 0 + NaN i, leaves what does not depend on the other
    unknown = (a.is_nan() & y.abs().lt(math.inf)) | y.is_nan()
    known = a.eq(math.inf) | a.eq(0.0)
    re = em.select(known & unknown, zero, em.select(far & ~unknown, inverse, re))
    im = em.select(far & ~unknown, em.const(x.type, math.pi / 2).copysign(y), im)
    return re.copysign(x), im


def _rotated(function: Callable[[Pair], Pair]) -> Callable[[Pair], Pair]:
    """-i f(i z), which for an odd f is f with both pairs of parts turned round: tan of tanh, sin of sinh, asinh of
    asin, atan of atanh.
    """

    def lowering(z: Pair) -> Pair:
        re, im = function((z[1], z[0]))
        return im, re

    return lowering


def cos(z: Pair) -> Pair:
    return cosh((-z[1], z[0]))


# ***** tables *****


def _wide(function: Callable[..., Pair]) -> Callable[..., Pair]:
    def lowering(*operands: Pair) -> Pair:
        type = operands[0][0].type
        result = function(*((re.to("double"), im.to("double")) for re, im in operands))
        return result[0].to(type), result[1].to(type)

    return lowering


UNARY = {
    "neg": lambda z: (-z[0], -z[1]), "abs": modulus, "sign": sign,
    **{name: _wide(function) for name, function in {
        "sqrt": sqrt, "rsqrt": rsqrt, "exp": exp, "exp2": exp2, "expm1": expm1, "log": log, "log1p": log1p,
        "log2": _log_in_base(1 / math.log(2)), "log10": _log_in_base(1 / math.log(10)),
        "sinh": sinh, "cosh": cosh, "tanh": tanh, "sin": _rotated(sinh), "cos": cos, "tan": _rotated(tanh),
        "asin": asin, "acos": acos, "acosh": acosh, "atanh": atanh, "asinh": _rotated(asin), "atan": _rotated(atanh),
    }.items()},
}  # fmt: skip
BINARY = {"add": add, "sub": sub, "mul": mul, "div": div, "eq": equal, "ne": not_equal, "pow": _wide(pow)}
