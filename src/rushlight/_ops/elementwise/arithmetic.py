"""Arithmetic of two numbers, and operators derived from it."""

from __future__ import annotations

import math
from collections.abc import Callable
from operator import ge, le
from typing import Any

from rushlight._ops.bodies import (
    C_NAME,
    HALF,
    as_float,
    check_range,
    common,
    div_floor,
    given_dtype,
    is_number,
    is_weak,
    isinf,
    isnan,
    logistic,
    narrow,
    not_implemented,
    number_kind,
    number_value,
    pair,
    refuse,
    rounded,
    wide,
)
from rushlight._ops.table import operator
from rushlight._prims import build, prim
from rushlight._types.dtype import BFLOAT16, BOOL, COMPLEX64, COMPLEX128, FLOAT64, INT16, INT32, INT64, DType
from rushlight._types.promotion import default_dtype

__all__: list[str] = []

BOTH = ("input", "other")


# ***** adding *****


def _alpha(alpha: Any, x: Any, other: Any) -> Any:
    """alpha * other; `other` itself for a literal 1."""
    kind = number_kind(alpha)
    if kind == "b" and x.dtype is not BOOL:
        raise RuntimeError("Boolean alpha only supported for Boolean results.")
    if kind == "f" and not (x.dtype.is_floating_point or x.dtype.is_complex):
        raise RuntimeError("For integral input tensors, argument alpha must not be a floating point number.")
    if kind == "c" and not x.dtype.is_complex:
        raise RuntimeError("For non-complex input tensors, argument alpha must not be a complex number.")
    if is_number(alpha) and alpha == 1:
        return other
    return other & alpha if x.dtype is BOOL else other * alpha


def _added(x: Any, y: Any, alpha: Any, subtracts: bool = False) -> Any:
    """x + alpha * y, or x - alpha * y; a sum of real floats is rounded once, as in PyTorch's vector code."""
    if (is_number(alpha) and alpha == 1) or not _single(x):
        return x + _alpha(alpha, x, y)
    _alpha(alpha, x, y)
    low = given_dtype(x)
    # PyTorch's kernel converts a number to the tensors' dtype
    if low.wide is x.dtype and low is not x.dtype and given_dtype(y) is low:
        alpha = build.convert(
            build.convert(build.full((), alpha, x.dtype) if is_number(alpha) else alpha, low), x.dtype
        )
    return fused(-y if subtracts else y, alpha, x)


def _single(*values: Any) -> bool:
    """Whether these are real floats without a wider dtype of computation."""
    return all(v.dtype.kind == "f" and v.dtype.wide is v.dtype for v in values)


def fused(a: Any, b: Any, c: Any) -> Any:
    """a * b + c, broadcast, with one rounding."""
    return prim.fma(*build.match(a, b, c))


@operator("add(Tensor input, Tensor other, *, Scalar alpha=1) -> Tensor", promote="same", promote_over=BOTH, numbers=BOTH, inplace=True,
          inplace_spaces=(), out=True, tags=("numbers",))  # fmt: skip
def add(x: Any, y: Any, *, alpha: Any) -> Any:
    """input + alpha * other (`or` for bool)."""
    x, y = pair(x, y)
    return x | _alpha(alpha, x, y) if x.dtype is BOOL else _added(x, y, alpha)


def _no_bool(x: Any, y: Any) -> None:
    kinds = [
        v.dtype is BOOL
        if is_weak(v) and not is_number(v)
        else v.__class__ is bool
        if is_number(v)
        else given_dtype(v) is BOOL
        for v in (x, y)
    ]
    if all(kinds):
        raise RuntimeError(
            "Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or `logical_xor()` operator instead."
        )
    if any(kinds):
        raise RuntimeError(
            "Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying to invert a mask, "
            "use the `~` or `logical_not()` operator instead."
        )


@operator("sub(Tensor input, Tensor other, *, Scalar alpha=1) -> Tensor", promote="same", promote_over=BOTH, numbers=BOTH, inplace=True,
          inplace_spaces=(), out=True, tags=("numbers",), aliases=("subtract",))  # fmt: skip
def sub(x: Any, y: Any, *, alpha: Any) -> Any:
    """input - alpha * other."""
    _no_bool(x, y)
    x, y = pair(x, y)
    if is_number(alpha) and alpha == 1:
        return x - y
    return _added(x, y, alpha, subtracts=True) if _single(x) else x - _alpha(alpha, x, y)


@operator(
    "rsub(Tensor input, Tensor other, *, Scalar alpha=1) -> Tensor",
    promote="same",
    promote_over=BOTH,
    numbers=("other",),
    node=lambda input, other, alpha: "RsubBackward0" if hasattr(other, "shape") else "RsubBackward1",
)
def rsub(x: Any, y: Any, *, alpha: Any) -> Any:
    """other - alpha * input."""
    return sub(y, x, alpha=alpha)


# ***** multiplying and dividing *****


@operator("mul(Tensor input, Tensor other) -> Tensor", promote="same", numbers=BOTH, inplace=True, inplace_spaces=(), out=True, tags=("numbers",),
          aliases=("multiply",))  # fmt: skip
def mul(x: Any, y: Any) -> Any:
    """input * other (`and` for bool)."""
    x, y = pair(x, y)
    return x & y if x.dtype is BOOL else x * y


def _floats(x: Any, y: Any) -> tuple[Any, Any]:
    """Operands of a true division.  A number becomes a float at once: a uint8 tensor that 300 divides cannot hold 300."""
    return pair(*[v if is_weak(v) else as_float(v) for v in (x, y)])


def _floor_quotient(x: Any, y: Any) -> Any:
    """floor(x / y) without the error of rounding x / y first."""
    rest = prim.rem_trunc(x, y)
    quotient = (x - rest) / y
    quotient = build.select(build.ne(rest, 0.0) & prim.ne(y < 0.0, rest < 0.0), quotient - 1.0, quotient)
    whole = prim.floor(quotient)
    whole = build.select(quotient - whole > 0.5, whole + 1.0, whole)
    whole = build.select(build.eq(quotient, 0.0), prim.copysign(build.zeros_like(x), x / y), whole)
    return build.select(build.eq(y, 0.0), x / y, whole)


def _divide(x: Any, y: Any, rounding_mode: str | None) -> Any:
    if rounding_mode is None:
        x, y = _floats(x, y)
        # Integers become the default dtype, which may be a half type.
        return narrow(wide(x) / wide(y), x.dtype)
    if rounding_mode not in ("trunc", "floor"):
        raise RuntimeError(
            f"div expected rounding_mode to be one of None, 'trunc', or 'floor' but found '{rounding_mode}'"
        )
    operand_dtype = next(given_dtype(v) for v in (x, y) if not is_weak(v))
    x, y = pair(x, y)
    refuse(x, f"div_{rounding_mode}_cpu", "bc", joined=True)
    if x.dtype.is_floating_point:
        return prim.trunc(rounded(x / y, operand_dtype)) if rounding_mode == "trunc" else _floor_quotient(x, y)
    return prim.div_trunc(x, y) if rounding_mode == "trunc" else div_floor(x, y)


@operator("div(Tensor input, Tensor other, *, str? rounding_mode=None) -> Tensor", promote="same", numbers=BOTH, inplace=True,
          inplace_spaces=(), out=True, tags=("numbers",), aliases=("divide",),
          node=lambda input, other, rounding_mode: "DivBackward0" if rounding_mode is None else "DivBackward2")  # fmt: skip
def div(x: Any, y: Any, *, rounding_mode: str | None) -> Any:
    """input / other, always a float; or rounded toward 0 ("trunc") or downward ("floor"), then of the operands' dtype."""
    return _divide(x, y, rounding_mode)


@div.gradient
def _(ct: Any, out: Any, x: Any, y: Any, *, rounding_mode: str | None) -> Any:
    if rounding_mode is not None:
        zero = build.zeros_like(ct)
        return zero, zero
    low = given_dtype(ct)
    x, y = _floats(x, y)
    twice = rounded(rounded(x / y, low) / y, low)
    return rounded(ct / build.conj(y), low), -rounded(ct * build.conj(twice), low)


@operator("true_divide(Tensor input, Tensor other) -> Tensor", promote="float", numbers=BOTH, inplace=True, inplace_spaces=(), out=True, tags=("numbers",),
          node="DivBackward0")  # fmt: skip
def true_divide(x: Any, y: Any) -> Any:
    """input / other, always a float."""
    return _divide(x, y, None)


true_divide.gradient(lambda ct, out, x, y: div.gradient_rule(ct, out, x, y, rounding_mode=None))  # type: ignore[misc]


@operator("floor_divide(Tensor input, Tensor other) -> Tensor", promote="same", numbers=BOTH, inplace=True, inplace_spaces=(), out=True, tags=("numbers",),
          underivable="a rounded quotient moves in steps")  # fmt: skip
def floor_divide(x: Any, y: Any) -> Any:
    """input / other rounded downward, in the dtype of the operands."""
    return _divide(x, y, "floor")


@operator(
    "remainder(Tensor input, Tensor other) -> Tensor",
    promote="same",
    node=lambda input, other: "RemainderBackward1" if hasattr(other, "shape") else "RemainderBackward0",
    numbers=BOTH,
    inplace=True,
    inplace_spaces=(),
    out=True,
)
def remainder(x: Any, y: Any) -> Any:
    """input - other * floor(input / other): the remainder of floor division; it has the sign of `other`, as Python's %."""
    x, y = pair(x, y)
    refuse(x, "remainder_cpu", "bc", joined=True)
    rest = prim.rem_trunc(x, y)
    if x.dtype.kind == "u":
        return rest
    zero = 0.0 if x.dtype.is_floating_point else 0
    return build.select(build.ne(rest, zero) & prim.ne(y < zero, rest < zero), rest + y, rest)


@remainder.gradient
def _(ct: Any, out: Any, x: Any, y: Any) -> Any:
    x, y = pair(x, y)
    return ct, -(ct * _floor_quotient(x, y))


@operator(
    "fmod(Tensor input, Tensor other) -> Tensor",
    promote="same",
    node=lambda input, other: "FmodBackward1" if hasattr(other, "shape") else "FmodBackward0",
    numbers=("other",),
    inplace=True,
    inplace_spaces=(),
    out=True,
)
def fmod(x: Any, y: Any) -> Any:
    """input - other * trunc(input / other): the remainder of division toward 0; it has the sign of `input`, as C's
    fmod."""
    x, y = pair(x, y)
    refuse(x, "fmod_cpu", "bc", joined=True)
    return prim.rem_trunc(x, y)


# ***** powers *****


def _power_operands(base: Any, exponent: Any) -> tuple[Any, Any]:
    """Base and exponent in one dtype.  A literal exponent took no part in promotion, so it does here."""
    if is_number(exponent) and not is_number(base):
        kind, dtype = number_kind(exponent), base.dtype
        if kind == "c" and not dtype.is_complex:
            return build.convert(base, COMPLEX128 if dtype is FLOAT64 else COMPLEX64), exponent
        if kind == "f" and not (dtype.is_floating_point or dtype.is_complex):
            return build.convert(base, default_dtype()), exponent
        if kind in "ib" and dtype is BOOL:
            return build.convert(base, INT64), exponent
        return base, exponent
    if is_weak(base):  # PyTorch's kernel converts a number to the tensor's dtype
        base = rounded(number_value(base, exponent.dtype), given_dtype(exponent))
    return pair(base, exponent)


_FIXED_POWERS: dict[Any, Any] = {
    1: lambda x: x,
    2: lambda x: x * x,
    3: lambda x: x * x * x,
    0.5: lambda x: prim.sqrt(x),
    -0.5: lambda x: prim.rsqrt(x),
    -1: lambda x: 1.0 / x,
    -2: lambda x: 1.0 / (x * x),
}


def power(base: Any, exponent: Any, low: DType | None = None) -> Any:
    """base ^ exponent; a half type `low` rounds a literal exponent, and bfloat16 the steps of fixed powers."""
    if not is_number(exponent):
        return prim.pow(base, exponent)
    whole = base.dtype.is_integer
    if whole and exponent < 0:
        raise RuntimeError("Integers to negative integer powers are not allowed.")
    fixed = _FIXED_POWERS.get(exponent) if not (whole and exponent not in (1, 2, 3)) else None
    if low is BFLOAT16 and exponent in (3, -2):
        square = rounded(base * base, low)
        return square * base if exponent == 3 else 1.0 / square
    return fixed(base) if fixed is not None else prim.pow(base, rounded(build.full_like(base, exponent), low))


def _power_node(input: Any, exponent: Any) -> str:
    if is_number(exponent):
        return "PowBackward0"
    return "PowBackward1" if hasattr(input, "shape") else "PowBackward2"


@operator("pow(Tensor input, Tensor exponent) -> Tensor", promote="same", numbers=("input", "exponent"), static=("exponent",), inplace=True,
          inplace_spaces=(), out=True,
          node=_power_node)  # fmt: skip
def pow_(base: Any, exponent: Any) -> Any:
    """input ^ exponent."""
    if isinstance(exponent, bool) and given_dtype(base) is BOOL:
        return base if exponent else build.full_like(base, True)
    low = given_dtype(exponent if is_weak(base) else base)
    check_range(exponent, low)
    return power(*_power_operands(base, exponent), low)


@pow_.gradient
def _(ct: Any, out: Any, base: Any, exponent: Any) -> Any:
    """Half types round every step, as in PyTorch: a power that overflows there is an infinity, and times 0 it is NaN."""
    low = given_dtype(ct)
    rounded_low = lambda v: rounded(v, low)
    # the logarithm of a number precedes its rounding
    log = prim.log(number_value(base, exponent.dtype)) if is_weak(base) else None
    base, exponent = _power_operands(base, exponent)
    if is_number(exponent):
        if exponent == 0:
            return build.zeros_like(ct), None
        slope = (
            rounded_low(rounded_low(power(base, exponent - 1, low)) * exponent)
            if exponent != 1
            else build.full_like(base, 1)
        )
        return ct * build.conj(slope), None
    less = rounded_low(rounded_low(prim.pow(base, rounded_low(exponent - 1))) * exponent)
    to_base = build.select(build.eq(exponent, 0), 0, rounded_low(ct * build.conj(less)))
    positive = (prim.real(exponent) if exponent.dtype.is_complex else exponent) >= 0
    log = rounded_low(prim.log(base)) if log is None else build.broadcast_to(log, base.shape)
    bend = rounded_low(rounded_low(prim.pow(base, exponent)) * log)
    return to_base, build.select(build.eq(base, 0) & positive, 0, rounded_low(ct * build.conj(bend)))


@operator("float_power(Tensor input, Tensor exponent) -> Tensor", numbers=("input", "exponent"), static=("exponent",), inplace=True,
          inplace_spaces=(), out="exact", like="operands", node=_power_node, tags=("same_dtype_in_place",))  # fmt: skip
def float_power(base: Any, exponent: Any) -> Any:
    """input ^ exponent, computed and returned in double precision."""
    complex_ = any(number_kind(v) == "c" for v in (base, exponent))
    dtype = COMPLEX128 if complex_ else FLOAT64
    base = number_value(base, dtype) if is_weak(base) else build.convert(base, dtype)
    if not is_number(exponent):
        exponent = build.convert(exponent, dtype)
        base, exponent = pair(base, exponent)
    return power(base, exponent)


# ***** two numbers, one function *****


@operator(
    "atan2(Tensor input, Tensor other) -> Tensor",
    promote="float",
    inplace=True,
    inplace_spaces=(),
    out=True,
    aliases=("arctan2",),
)
def atan2(y: Any, x: Any) -> Any:
    """atan(input / other), in the quadrant of the point (other, input): its angle in (-pi, pi]."""
    return prim.atan2(*pair(y, x))


@atan2.gradient
def _(ct: Any, out: Any, y: Any, x: Any) -> Any:
    y, x = pair(y, x)
    size = x * x + y * y
    share = build.select(build.eq(size, 0.0), 0.0, ct / build.select(build.eq(size, 0.0), 1.0, size))
    return share * x, -(share * y)


def _extreme(name: str, doc: str, logic: str) -> None:
    def body(x: Any, y: Any) -> Any:
        x, y = pair(x, y)
        if x.dtype.is_complex:
            raise RuntimeError(f"{name} not implemented for complex tensors.")
        return getattr(prim, logic)(x, y) if x.dtype is BOOL else getattr(prim, name)(x, y)

    operator(f"{name}(Tensor input, Tensor other) -> Tensor", promote="same", out=True, doc=doc)(body)


_extreme("maximum", "max(input, other); NaN if either is.", "bitwise_or")
_extreme("minimum", "min(input, other); NaN if either is.", "bitwise_and")


def _extreme_but_nan(name: str, doc: str, first: Callable[[Any, Any], Any], logic: str) -> None:
    def body(x: Any, y: Any) -> Any:
        x, y = pair(x, y)
        if x.dtype.is_complex:
            raise RuntimeError(f"{name} not implemented for complex tensors.")
        if x.dtype is BOOL:
            return getattr(prim, logic)(x, y)
        better = first(x, y)
        return build.select(better | isnan(y) if x.dtype.is_floating_point else better, x, y)

    operator(f"{name}(Tensor input, Tensor other) -> Tensor", promote="same", out=True, doc=doc)(body)


_extreme_but_nan("fmax", "max(input, other); a NaN gives way to the other.", ge, "bitwise_or")
_extreme_but_nan("fmin", "min(input, other); a NaN gives way to the other.", le, "bitwise_and")


@operator("hypot(Tensor input, Tensor other) -> Tensor", promote="same", inplace=True, inplace_spaces=(), out=True)
def hypot(x: Any, y: Any) -> Any:
    """sqrt(input^2 + other^2), without overflow between."""
    x, y = pair(x, y)
    refuse(x, "hypot_cpu", "buic", joined=True)
    a, b = prim.abs(x), prim.abs(y)
    great, small = prim.maximum(a, b), prim.minimum(a, b)
    ratio = small / build.select(build.eq(great, 0.0), 1.0, great)
    size = great * prim.sqrt(ratio * ratio + 1.0)
    size = build.select(isnan(x) | isnan(y), math.nan, size)
    return build.select(isinf(x) | isinf(y), math.inf, size)


@hypot.gradient
def _(ct: Any, out: Any, x: Any, y: Any) -> Any:
    return ct * (x / out), ct * (y / out)


@operator(
    "copysign(Tensor input, Tensor other) -> Tensor",
    node=lambda input, other: f"CopysignBackward{int(not hasattr(other, 'shape'))}",
    promote="float",
    numbers=("other",),
    inplace=True,
    inplace_spaces=(),
    out=True,
)
def copysign(x: Any, y: Any) -> Any:
    """|input| with the sign of other."""
    x, y = pair(x, y)
    refuse(x, "copysign", "c")
    return prim.copysign(x, y)


@copysign.gradient
def _(ct: Any, out: Any, x: Any, y: Any) -> Any:
    x, y = pair(x, y)
    ratio = build.select(build.eq(x, 0.0), 0.0, out / build.select(build.eq(x, 0.0), 1.0, x))
    return ct * ratio, build.zeros_like(ct)


@operator("nextafter(Tensor input, Tensor other) -> Tensor", like="operands", inplace=True, inplace_spaces=(), out=True)
def nextafter(x: Any, y: Any) -> Any:
    """input + one step of its dtype in the direction of other: the next representable number."""
    x, y = common((x, y))
    if not x.dtype.is_floating_point:
        raise not_implemented("nextafter", x.dtype)
    x, y = pair(x, y)
    return _next_half(x, y) if x.dtype in HALF else prim.nextafter(x, y)


def _next_half(x: Any, y: Any) -> Any:
    """The same for half types: their bits, read as an integer, count the numbers away from zero."""
    a, b = wide(x), wide(y)
    bits = build.convert(prim.bitcast(x, dtype=INT16), INT32)
    away = build.select(prim.eq(b > a, a > 0.0), build.full_like(bits, 1), -1)
    least = build.select(b > 0.0, build.full_like(bits, 1), 1 - (1 << 15))
    moved = prim.bitcast(build.convert(build.select(build.eq(a, 0.0), least, bits + away), INT16), dtype=x.dtype)
    result = prim.select(prim.eq(a, b), y, moved)
    return prim.select(isnan(a) | isnan(b), build.full_like(x, math.nan), result)


@nextafter.gradient
def _(ct: Any, out: Any, x: Any, y: Any) -> Any:
    """A step has constant length wherever one is made."""
    x, y = pair(*common((x, y)))
    return build.select(prim.eq(wide(x), wide(y)), 0.0, ct), build.zeros_like(ct)


def _log_sum(x: Any, y: Any, exp: str, log: Any) -> Any:
    """log(b^x + b^y) relative to the greater of the two."""
    great = prim.maximum(x, y)
    equal_infinite = prim.eq(x, y) & isinf(x)
    apart = build.select(equal_infinite, 0.0, -prim.abs(x - y))
    return build.select(equal_infinite, x, great + log(getattr(prim, exp)(apart)))


@operator("logaddexp(Tensor input, Tensor other) -> Tensor", promote="same", out=True)
def logaddexp(x: Any, y: Any) -> Any:
    """log(exp(input) + exp(other)), without overflow."""
    x, y = pair(x, y)
    refuse(x, "logaddexp", "bui", joined=True)
    if x.dtype.is_complex:
        swap = prim.real(x) < prim.real(y)
        great, small = build.select(swap, y, x), build.select(swap, x, y)
        sums = great + prim.log1p(prim.exp(small - great))
        level = prim.real(great)
        endless = build.eq(prim.real(small), level) & build.eq(prim.abs(level), math.inf)  # no difference then
        sums = build.select(endless, build.select(level < 0, y, prim.log(prim.exp(x) + prim.exp(y))), sums)
        return build.select(isnan(x) | isnan(y), complex(math.nan, math.nan), sums)
    return _log_sum(x, y, "exp", lambda v: prim.log1p(v))


@logaddexp.gradient
def _(ct: Any, out: Any, x: Any, y: Any) -> Any:
    x, y = pair(x, y)
    return ct * build.conj(logistic(x - y)), ct * build.conj(logistic(y - x))


@operator("logaddexp2(Tensor input, Tensor other) -> Tensor", promote="same", out=True)
def logaddexp2(x: Any, y: Any) -> Any:
    """log2(2^input + 2^other), without overflow."""
    x, y = pair(x, y)
    refuse(x, "logaddexp2", "buic", joined=True)
    return _log_sum(x, y, "exp2", lambda v: prim.log1p(v) * (1.0 / math.log(2.0)))


@logaddexp2.gradient
def _(ct: Any, out: Any, x: Any, y: Any) -> Any:
    x, y = pair(x, y)
    apart = (x - y) * math.log(2.0)
    return ct * logistic(apart), ct * logistic(-apart)


def _x_times(x: Any, y: Any, log: Any) -> Any:
    return build.select(isnan(y), math.nan, build.select(build.eq(x, 0.0), 0.0, x * log(y)))


def _by_numbers(stem: str) -> Callable[..., str]:
    """The node's name, by which of the two operands is a number."""
    return lambda input, other: (
        f"{stem}Backward{1 if not hasattr(input, 'shape') else 2 if not hasattr(other, 'shape') else 0}"
    )


@operator("xlogy(Tensor input, Tensor other) -> Tensor", node=_by_numbers("Xlogy"), promote="float", numbers=BOTH, inplace=True, inplace_spaces=("torch",), out=True,
          aliases=("special.xlogy",))  # fmt: skip
def xlogy(x: Any, y: Any) -> Any:
    """input * log(other), 0 where input is 0 (unless other is NaN)."""
    x, y = pair(x, y)
    refuse(x, "xlogy", "c")
    return _x_times(x, y, prim.log)


@xlogy.gradient
def _(ct: Any, out: Any, x: Any, y: Any) -> Any:
    x, y = pair(x, y)
    dead = build.eq(x, 0.0) & (y <= 0.0)
    return build.select(dead, 0.0, _x_times(ct, y, prim.log)), ct * x / y


@operator("xlog1py(Tensor input, Tensor other) -> Tensor", name="special_xlog1py", node=_by_numbers("SpecialXlog1Py"), promote="float", numbers=BOTH, out=True,
          spaces=("special",), method=False)  # fmt: skip
def xlog1py(x: Any, y: Any) -> Any:
    """input * log1p(other), 0 where input is 0 (unless other is NaN)."""
    refuse(y, "xlog1py_cpu", "c")
    return _x_times(*pair(x, y), prim.log1p)


@xlog1py.gradient
def _(ct: Any, out: Any, x: Any, y: Any) -> Any:
    x, y = pair(x, y)
    dead = build.eq(x, 0.0) & (y <= -1.0)
    return build.select(dead, 0.0, _x_times(ct, y, prim.log1p)), ct * x / (y + 1.0)


@operator(
    "ldexp(Tensor input, Tensor other) -> Tensor",
    promote="float",
    inplace=True,
    inplace_spaces=("torch",),
    out=True,
    node="MulBackward0",
)
def ldexp(x: Any, y: Any) -> Any:
    """input * 2^other."""
    x, y = pair(x, y)
    return x * prim.pow(build.full_like(y, 2.0), y)


# ***** three numbers *****


@operator("lerp(Tensor input, Tensor end, Tensor weight) -> Tensor", promote="same", numbers=("weight",), inplace=True,
          inplace_spaces=(), out=True,
          node=lambda input, end, weight: "LerpBackward1" if hasattr(weight, "shape") else "LerpBackward0")  # fmt: skip
def lerp(x: Any, end: Any, weight: Any) -> Any:
    """input + weight * (end - input), from the nearer end."""
    _equal_dtypes(x, end, "end")
    if not is_weak(weight) and weight.shape:  # without dims it takes part in promotion like a number
        _equal_dtypes(x, weight, "weight")
    elif is_weak(weight) and number_kind(weight) == "c" and not given_dtype(x).is_complex:
        raise RuntimeError(f"value cannot be converted to type {given_dtype(x).name} without overflow")
    plain = is_weak(weight)
    refuse(x, "lerp_kernel_scalar" if plain else "lerp_kernel_tensor", "bui", joined=not plain)
    shape = build.match(x, end, weight)[0].shape
    x, end, weight = (build.broadcast_to(v, shape) for v in build.match(x, end, weight))
    gap = end - x
    near = prim.abs(weight) < 0.5
    if _single(x):
        return fused(build.select(near, weight, weight - 1.0), gap, build.select(near, x, end))
    return build.select(near, x + weight * gap, end - gap * (1.0 - weight))


@lerp.gradient
def _(ct: Any, out: Any, x: Any, end: Any, weight: Any) -> Any:
    x, end, w = build.match(x, end, weight)
    return ct * build.conj(1.0 - w), ct * build.conj(w), None if is_weak(weight) else ct * build.conj(end - x)


def _equal_dtypes(x: Any, other: Any, what: str) -> None:
    if given_dtype(x) is not given_dtype(other):
        raise RuntimeError(
            f"expected dtype {C_NAME[given_dtype(x).name]} for `{what}` but got dtype {C_NAME[given_dtype(other).name]}"
        )


def _scaled(value: Any, term: Any) -> Any:
    return term if is_number(value) and value == 1 and not isinstance(value, bool) else term * value


@operator("addcmul(Tensor input, Tensor tensor1, Tensor tensor2, *, Scalar value=1) -> Tensor", promote="same",
          promote_over=("input", "tensor1", "tensor2"), inplace=True, inplace_spaces=(), out=True)  # fmt: skip
def addcmul(x: Any, a: Any, b: Any, *, value: Any) -> Any:
    """input + value * tensor1 * tensor2."""
    refuse(x, "addcmul_cpu_out", "b", joined=True)
    scaled = _scaled(value, a)
    return fused(scaled, b, x) if _single(x, scaled, b) else x + scaled * b


@operator("addcdiv(Tensor input, Tensor tensor1, Tensor tensor2, *, Scalar value=1) -> Tensor", promote="same",
          promote_over=("input", "tensor1", "tensor2"), inplace=True, inplace_spaces=(), out=True)  # fmt: skip
def addcdiv(x: Any, a: Any, b: Any, *, value: Any) -> Any:
    """input + value * tensor1 / tensor2, for floats."""
    if all(given_dtype(v).kind in "bui" for v in (a, b)):
        raise RuntimeError(
            "Integer division with addcdiv is no longer supported, and in a future  release addcdiv will perform a true division of "
            "tensor1 and tensor2. The historic addcdiv behavior can be implemented as (input + value * torch.trunc(tensor1 / tensor2))"
            ".to(input.dtype) for integer inputs and as (input + value * tensor1 / tensor2) for float inputs."
        )
    return x + _scaled(value, a) / b


@operator(
    "heaviside(Tensor input, Tensor values) -> Tensor",
    like="operands",
    inplace=True,
    inplace_spaces=(),
    out="exact",
    underivable="it is a step",
)
def heaviside(x: Any, values: Any) -> Any:
    """0 below 0, 1 above, `values` at 0."""
    if x.dtype is not values.dtype:
        raise RuntimeError("heaviside is not yet implemented for tensors with different dtypes.")
    refuse(x, "heaviside", "c")
    dtype = x.dtype
    x, values = pair(wide(x), wide(values))
    if dtype is BOOL:
        return x | values
    step = build.select(x > 0, build.full_like(x, 1), build.zeros_like(x))
    return build.convert(build.select(build.eq(x, 0), values, step), dtype)


@operator("gcd(Tensor input, Tensor other) -> Tensor", promote="same", inplace=True, out=True)
def gcd(x: Any, y: Any) -> Any:
    """gcd(input, other): the greatest common divisor of whole numbers."""
    x, y = pair(x, y)
    refuse(x, "gcd", "bfc", joined=True)
    return prim.gcd(x, y)


@operator("lcm(Tensor input, Tensor other) -> Tensor", promote="same", inplace=True, out=True)
def lcm(x: Any, y: Any) -> Any:
    """|input * other| / gcd(input, other): the least common multiple of whole numbers."""
    x, y = pair(x, y)
    refuse(x, "lcm", "bfc", joined=True)
    divisor = prim.gcd(x, y)
    none = build.eq(divisor, 0)
    product = prim.div_trunc(x, build.select(none, 1, divisor)) * y
    return build.select(none, 0, prim.abs(product) if x.dtype.kind == "i" else product)


@operator("running_average(Tensor input, Tensor other, Scalar momentum) -> Tensor", spaces=(), promote="opmath", inplace=True,
          method=False, like="operands")  # fmt: skip
def running_average(x: Any, y: Any, momentum: Any) -> Any:
    """(1 - momentum) * input + momentum * other: how batch norm follows its statistics."""
    weight = number_value(momentum, x.dtype)
    return build.convert(y, x.dtype) * weight + x * (1.0 - weight)
