"""Functions of one number: powers, exponential, trigonometric and special functions, rounding, sign."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from rushlight._ops.bodies import given_dtype, isinf, isnan, largest_finite, like_input, narrow, refuse, wide
from rushlight._ops.table import Operator, operator
from rushlight._prims import build, prim
from rushlight._types.dtype import BOOL, FLOAT16, FLOAT32, FLOAT64, INT64
from rushlight._types.promotion import default_dtype

__all__: list[str] = []

Body = Callable[..., Any]


def _unary(name: str, doc: str, body: Body, promote: str = "float", refused: str = "", **options: Any) -> Operator:
    """Declare `name(Tensor input) -> Tensor` with in-place and `out=` forms; `refused` lists kinds of dtypes that it
    does not support."""

    def checked(x: Any) -> Any:
        refuse(x, name, refused)
        return body(x)

    settings: dict[str, Any] = {"promote": promote, "inplace": True, "doc": doc, **options}
    # Without promotion PyTorch does not cast to `out` either.
    settings.setdefault("out", "exact" if promote == "same" and name != "square" else True)
    return operator(f"{name}(Tensor input) -> Tensor", **settings)(checked if refused else body)


def _same(name: str) -> Body:
    """A body that is the primitive of this name."""
    return lambda x: getattr(prim, name)(x)


# ***** exponentials and logarithms *****

_unary("exp", "e^x.", _same("exp"))
_unary("exp2", "2^x.", _same("exp2"), aliases=("special.exp2",))
_unary("expm1", "e^x - 1, exact where x is near 0.", _same("expm1"), aliases=("special.expm1",))
_unary("log", "ln(x).", _same("log"))
_unary("log2", "ln(x) / ln(2).", _same("log2"))
_unary("log10", "ln(x) / ln(10).", _same("log10"))
_unary("log1p", "log(1 + x), exact where x is near 0.", _same("log1p"), aliases=("special.log1p",))

# ***** powers *****

_unary("sqrt", "x^(1/2); NaN for negative numbers.", _same("sqrt"))
_unary("rsqrt", "1 / sqrt(x).", _same("rsqrt"))


def _square(x: Any) -> Any:
    x = build.convert(x, INT64) if x.dtype is BOOL else x
    return x * x


_unary("square", "x * x.", _square, "same", node="PowBackward0")
_reciprocal = _unary("reciprocal", "1 / x.", lambda x: 1.0 / x)


@_reciprocal.gradient
def _(ct: Any, out: Any, x: Any) -> Any:
    return -(ct * build.conj(out * out))


# ***** circles and hyperbolas *****

_unary("sin", "sin(x), x in radians.", _same("sin"))
_unary("cos", "cos(x), x in radians.", _same("cos"))
_unary("tan", "sin(x) / cos(x), x in radians.", _same("tan"))
_unary("asin", "asin(x) in [-pi/2, pi/2]; NaN beyond [-1, 1].", _same("asin"), aliases=("arcsin",))
_unary("acos", "acos(x) in [0, pi]; NaN beyond [-1, 1].", _same("acos"), aliases=("arccos",))
_unary("atan", "atan(x) in [-pi/2, pi/2].", _same("atan"), aliases=("arctan",))
_unary("sinh", "(e^x - e^-x) / 2.", _same("sinh"))
_unary("cosh", "(e^x + e^-x) / 2.", _same("cosh"))
_unary("tanh", "(e^x - e^-x) / (e^x + e^-x).", _same("tanh"), aliases=("nn.functional.tanh",))
_unary("asinh", "log(x + sqrt(x^2 + 1)).", _same("asinh"), aliases=("arcsinh",))
_unary("acosh", "log(x + sqrt(x^2 - 1)); NaN below 1.", _same("acosh"), aliases=("arccosh",))
_unary("atanh", "log((1 + x) / (1 - x)) / 2; NaN beyond [-1, 1].", _same("atanh"), aliases=("arctanh",))


def _sinc(x: Any) -> Any:
    """By its series near 0, where the derivatives of the quotient lose all digits."""
    angle = x * math.pi
    near = prim.abs(angle) < 0.5
    away, square = build.select(near, 1.0, angle), build.select(near, angle, 0.0) * build.select(near, angle, 0.0)
    series = build.full_like(square, (-1) ** 6 / math.factorial(13))
    for k in range(5, -1, -1):
        series = series * square + (-1) ** k / math.factorial(2 * k + 1)
    return build.select(near, series, prim.sin(away) / away)


_unary("sinc", "sin(pi x) / (pi x), and 1 at 0.", _sinc, aliases=("special.sinc",))
_unary("deg2rad", "x * pi / 180.", lambda x: x * (math.pi / 180.0), refused="c", like=like_input)
_unary("rad2deg", "x * 180 / pi.", lambda x: x * (180.0 / math.pi), refused="c", like=like_input)

# ***** special functions *****

_unary(
    "erf", "2 / sqrt(pi) times the integral of exp(-t^2), 0..x.", _same("erf"), refused="c", aliases=("special.erf",)
)
_unary("erfc", "1 - erf(x), exact in the tail.", _same("erfc"), refused="c", aliases=("special.erfc",))
_unary("erfinv", "y with erf(y) = x.", _same("erfinv"), refused="c", inplace_spaces=(), aliases=("special.erfinv",))
_unary("lgamma", "log |gamma(x)|.", _same("lgamma"), refused="c", inplace_spaces=(), aliases=("special.gammaln",))
_unary("digamma", "(d/dx) log gamma(x).", _same("digamma"), refused="c", inplace_spaces=(),
       aliases=("special.digamma", "special.psi"))  # fmt: skip

sigmoid = _unary(
    "sigmoid",
    "1 / (1 + exp(-x)).",
    lambda x: 1.0 / (1.0 + prim.exp(-x)),
    aliases=("special.expit", "nn.functional.sigmoid"),
)


@sigmoid.gradient
def _(ct: Any, out: Any, x: Any) -> Any:
    return ct * build.conj((1.0 - out) * out)


@operator(
    "logit(Tensor input, float? eps=None) -> Tensor",
    promote="float",
    inplace=True,
    out=True,
    aliases=("special.logit",),
)
def logit(x: Any, eps: float | None) -> Any:
    """log(x / (1 - x)), the inverse of `sigmoid`; `eps` keeps x within [eps, 1 - eps]."""
    refuse(x, "logit", "c")
    if eps is not None:
        x = build.select(x < eps, eps, build.select(x > 1.0 - eps, 1.0 - eps, x))
    return prim.log(x / (1.0 - x))


@logit.gradient
def _(ct: Any, out: Any, x: Any, eps: float | None) -> Any:
    slope = ct / (x * (1.0 - x))
    low, high = (0.0, 1.0) if eps is None else (eps, 1.0 - eps)
    return build.select((x < low) | (x > high), math.nan if eps is None else 0.0, slope)


# ***** rounding; whole numbers stay as they are *****


def _rounding(name: str, doc: str, **options: Any) -> None:
    def body(x: Any) -> Any:
        return getattr(prim, name)(x) if x.dtype.is_floating_point else x

    _unary(name, doc, body, "same", "bc", **options)


_rounding("floor", "the greatest whole n <= x.")
_rounding("ceil", "the least whole n >= x.")
_rounding("trunc", "The whole number next toward 0.", aliases=("fix",))
_unary("frac", "x - trunc(x).", lambda x: x - prim.trunc(x), "same", "buic")


@operator(
    "round(Tensor input, *, int decimals=0) -> Tensor",
    promote="same",
    inplace=True,
    out="exact",
    aliases=("special.round",),
    node=lambda input, decimals: f"RoundBackward{int(decimals != 0)}",
)
def round_(x: Any, *, decimals: int) -> Any:
    """rint(x * 10^decimals) / 10^decimals, halves to the even number; negative `decimals` round to tens, hundreds, ..."""
    refuse(x, "round_cpu", "bc" if decimals == 0 else "buic")
    if not x.dtype.is_floating_point:
        return x
    if decimals == 0:
        return prim.round(x)
    power = 10.0 ** abs(decimals)
    return prim.round(x * power) / power if decimals > 0 else prim.round(x / power) * power


# ***** sign *****


def _abs(x: Any) -> Any:
    return x if x.dtype.kind in "u" else prim.abs(x)


_unary("abs", "The distance from 0; real for complex numbers.", _abs, "same", "b", aliases=("absolute",))


def _neg(x: Any) -> Any:
    if x.dtype is BOOL:
        raise RuntimeError(
            "Negation, the `-` operator, on a bool tensor is not supported. "
            "If you are trying to invert a mask, use the `~` or `logical_not()` operator instead."
        )
    return prim.neg(x)


_unary("neg", "-x.", _neg, "same", aliases=("negative",))


def _sign(x: Any) -> Any:
    return x if x.dtype is BOOL else prim.sign(x)


_unary("sign", "-1, 0 or 1.", _sign, "same", "c", inplace_spaces=())
_unary("sgn", "-1, 0 or 1; x / |x| for complex numbers.", _sign, "same", inplace_spaces=())
_unary(
    "signbit",
    "Whether the sign is set (also of -0.0).",
    lambda x: build.full_like(x, False) if x.dtype is BOOL else prim.signbit(x),
    "same",
    "c",
    inplace=False,
)


# ***** what kind of number *****


def _test(name: str, doc: str, body: Body, exact: bool, method: bool = True) -> None:
    """A predicate with bool results; `exact` is the result for integers and bool, which are never NaN or infinite."""

    def answer(x: Any) -> Any:
        if x.dtype.is_floating_point or x.dtype.is_complex:
            return body(wide(x))
        return build.full(x.shape, exact, BOOL)

    operator(f"{name}(Tensor input) -> Tensor", like="operands", doc=doc, method=method)(answer)


def _finite(x: Any) -> Any:
    if x.dtype.is_complex:
        return _finite(prim.real(x)) & _finite(prim.imag(x))
    return prim.abs(x) < math.inf


def _isinf(x: Any) -> Any:
    if x.dtype.is_complex:
        return isinf(prim.real(x)) | isinf(prim.imag(x))
    return isinf(x)


_test("isnan", "x != x.", isnan, False)
_test("isinf", "|x| = inf.", _isinf, False)
_test("isfinite", "|x| < inf.", _finite, True)
_test(
    "isreal",
    "Whether the imaginary part is 0.",
    lambda x: build.eq(prim.imag(x), 0.0) if x.dtype.is_complex else build.full(x.shape, True, BOOL),
    True,
)


def _signed_infinity(name: str, doc: str, value: float) -> None:
    def body(x: Any) -> Any:
        refuse(x, name, "c")
        return build.eq(wide(x), value) if x.dtype.is_floating_point else build.full(x.shape, False, BOOL)

    operator(f"{name}(Tensor input) -> Tensor", like="operands", out="exact", doc=doc)(body)


_signed_infinity("isposinf", "x = inf.", math.inf)
_signed_infinity("isneginf", "Whether it is -inf.", -math.inf)


@operator(
    "nan_to_num(Tensor input, float? nan=None, float? posinf=None, float? neginf=None) -> Tensor",
    promote="same",
    like=like_input,
    inplace=True,
    out="exact",
)
def nan_to_num(x: Any, nan: float | None, posinf: float | None, neginf: float | None) -> Any:
    """NaN and infinities replaced: by 0, and by the greatest and least finite numbers of the dtype, where not given."""
    if not (x.dtype.is_floating_point or x.dtype.is_complex):
        return x
    if x.dtype.is_complex:
        parts = (nan_to_num(part, nan, posinf, neginf) for part in (prim.real(x), prim.imag(x)))
        return prim.complex(*parts)
    top = largest_finite(given_dtype(x).to_real())
    result = build.select(isnan(x), 0.0 if nan is None else nan, x)
    result = build.select(build.eq(x, math.inf), top if posinf is None else posinf, result)
    return build.select(build.eq(x, -math.inf), -top if neginf is None else neginf, result)


@nan_to_num.gradient
def _(ct: Any, out: Any, x: Any, nan: float | None, posinf: float | None, neginf: float | None) -> Any:
    if x.dtype.is_complex:
        ok = [_finite(part) for part in (prim.real(x), prim.imag(x))]
        return prim.complex(build.select(ok[0], prim.real(ct), 0.0), build.select(ok[1], prim.imag(ct), 0.0))
    return build.select(_finite(x), ct, 0.0)


# ***** complex numbers *****


@operator("angle(Tensor input) -> Tensor", out=True, like="operands")
def angle(x: Any) -> Any:
    """The angle of a complex number; pi for negative numbers, 0 for others, NaN for NaN."""
    if x.dtype.is_complex:
        return prim.atan2(prim.imag(x), prim.real(x))
    if not x.dtype.is_floating_point:
        x = build.convert(x, default_dtype())
    wider = wide(x)
    return narrow(
        build.select(isnan(wider), wider, build.select(wider < 0.0, math.pi, build.zeros_like(wider))), x.dtype
    )


@angle.gradient
def _(ct: Any, out: Any, x: Any) -> Any:
    if not x.dtype.is_complex:
        return build.zeros_like(x)
    re, im = prim.real(x), prim.imag(x)
    size = re * re + im * im
    zero = build.eq(size, 0.0)
    safe = build.select(zero, 1.0, size)
    return prim.complex(build.select(zero, 0.0, -(ct * im) / safe), build.select(zero, 0.0, ct * re / safe))


@operator("complex(Tensor real, Tensor imag) -> Tensor", method=False, out="exact", like="operands")
def complex_(real: Any, imag: Any) -> Any:
    """real + imag i."""
    for part in (real, imag):
        if part.dtype not in (FLOAT16, FLOAT32, FLOAT64):
            raise RuntimeError(
                f"Expected both inputs to be Half, Float or Double tensors but got {real.dtype.scalar} and {imag.dtype.scalar}"
            )
    if real.dtype is not imag.dtype:
        raise RuntimeError(
            f"Expected object of scalar type {real.dtype.scalar} but got scalar type {imag.dtype.scalar} for second argument"
        )
    return build.convert(prim.complex(*build.match(wide(real), wide(imag))), real.dtype.to_complex())


@operator("polar(Tensor abs, Tensor angle) -> Tensor", method=False, out="exact", like="operands")
def polar(abs: Any, angle: Any) -> Any:
    """abs * (cos(angle) + i sin(angle))."""
    kinds = [abs.dtype, angle.dtype]
    if not all(dtype.is_floating_point and dtype.itemsize > 2 for dtype in kinds):
        raise RuntimeError(
            f"Expected both inputs to be Half, Float or Double tensors but got {kinds[0].scalar} and {kinds[1].scalar}"
        )
    if kinds[0] is not kinds[1]:
        raise RuntimeError(
            f"Expected object of scalar type {kinds[0].scalar} but got scalar type {kinds[1].scalar} for second argument"
        )
    abs, angle = build.match(abs, angle)
    return prim.complex(abs * prim.cos(angle), abs * prim.sin(angle))


@polar.gradient
def _(ct: Any, out: Any, abs: Any, angle: Any) -> Any:
    """By the result: its direction is e^(i angle), so that a negative `abs` counts as a rotation, and a zero has no
    slope."""
    conjugate = prim.conj(ct)
    zero = build.zeros_like(abs)
    return prim.real(conjugate * prim.sign(out)), prim.real(conjugate * out * prim.complex(zero, zero + 1.0))


@operator("conj_physical(Tensor input) -> Tensor", inplace=True, out="exact", like="operands")
def conj_physical(x: Any) -> Any:
    """re(x) - im(x) i, computed as new numbers."""
    return build.conj(x)


# ***** numbers kept within a range *****


@operator("threshold(Tensor input, Scalar threshold, Scalar value) -> Tensor", promote="same", promote_over=("input",), inplace=True,
          out=True, method=False, spaces=("torch", "nn.functional"), tags=("inplace_flag",))  # fmt: skip
def threshold(x: Any, threshold: Any, value: Any) -> Any:
    """x if x > threshold else value."""
    return build.select(build.binary("le", x, threshold), value, x)


@threshold.gradient
def _(ct: Any, out: Any, x: Any, threshold: Any, value: Any) -> Any:
    return build.select(build.binary("le", x, threshold), 0.0, ct)
