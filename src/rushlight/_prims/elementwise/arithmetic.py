"""Functions of two numbers.  Rules have the form `rule(t, c, out, a, b)`, one for each operand; see `families`."""

from __future__ import annotations

from typing import Any

from rushlight._base.errors import DTypeError
from rushlight._base.lazy import numpy as np
from rushlight._prims import build, numbers
from rushlight._prims.families import pointwise
from rushlight._prims.record import not_differentiable, prim
from rushlight._prims.samples import Samples, integers, pointwise_samples
from rushlight._types.dtype import INT32, DType

__all__: list[str] = []

NUMBERS = ("float64", "float32", "complex128", "int64", "int32", "uint8")
REALS = ("float64", "float32")
INTEGERS = ("int64", "int32", "uint8")
WHOLE = not_differentiable("it is for integers")

pointwise(
    "add", "a + b.", kinds="uifc", reference=lambda a, b: np.add(a, b), samples=pointwise_samples(NUMBERS, 2),
    rules=[lambda t, c, out, a, b: t, lambda t, c, out, a, b: t],
)  # fmt: skip
pointwise(
    "sub", "a - b.", kinds="uifc", reference=lambda a, b: np.subtract(a, b), samples=pointwise_samples(NUMBERS, 2),
    rules=[lambda t, c, out, a, b: t, lambda t, c, out, a, b: -t],
)  # fmt: skip
pointwise(
    "mul", "a * b.", kinds="uifc", reference=lambda a, b: np.multiply(a, b), samples=pointwise_samples(NUMBERS, 2),
    rules=[lambda t, c, out, a, b: t * c(b), lambda t, c, out, a, b: t * c(a)],
)  # fmt: skip
pointwise(
    "div",
    "a / b.",
    kinds="fc",
    reference=numbers.wide(lambda a, b: np.divide(a, b)),
    samples=pointwise_samples((*REALS, "complex128"), 2, second=(0.5, 3.0)),
    rules=[lambda t, c, out, a, b: t / c(b), lambda t, c, out, a, b: -(t * c(a / b / b))],
)


def _fma_reference(a: Any, b: Any, c: Any) -> Any:
    if a.dtype == np.float32:
        return (a.astype(np.float64) * b + c).astype(np.float32)
    # Dekker's product and Knuth's sum keep the rounding errors: the result is off by less than the last bit.
    with np.errstate(all="ignore"):
        product = a * b
        parts = []
        for x in (a, b):
            upper = x * 134217729.0
            upper = upper - (upper - x)
            parts.append((upper, x - upper))
        (p, q), (r, s) = parts
        lost = ((p * r - product) + p * s + q * r) + q * s
        total = product + c
        back = total - product
        exact = total + ((product - (total - back)) + (c - back) + lost)
        return np.where(np.isfinite(exact), exact, total)


pointwise(
    "fma", "a * b + c, rounded once where the machine can.", kinds="f", reference=_fma_reference, samples=pointwise_samples(REALS, 3),
    rules=[lambda t, c_, out, a, b, c: t * b, lambda t, c_, out, a, b, c: t * a, lambda t, c_, out, a, b, c: t],
)  # fmt: skip


# ***** products of bytes *****


def _only_int32(dtype: DType) -> DType:
    if dtype is not INT32:
        raise DTypeError(f"prim.dp4a takes int32 words, got {dtype.name}", dtype)
    return dtype


def _dp4a_reference(a: Any, b: Any, c: Any) -> Any:
    bytes_of = [np.ascontiguousarray(x).reshape(-1).view(kind) for x, kind in ((a, np.uint8), (b, np.int8))]
    products = bytes_of[0].astype(np.int64) * bytes_of[1].astype(np.int64)
    return (products.reshape(-1, 4).sum(1).reshape(a.shape) + c).astype(np.int32)


def _word_samples() -> Samples:
    yield [integers((17,), k, -(1 << 31), 1 << 31, dtype="int32") for k in range(3)], {}
    ends = np.array([-1, 0, 0x7F7F7F7F, -0x7F7F7F80, 0x0F0F0F0F], dtype=np.int32)  # bytes at their bounds
    yield [ends[:, None].repeat(5, 1), ends[None, :].repeat(5, 0), np.zeros((5, 5), np.int32)], {}


pointwise(
    "dp4a", "c plus the products of the four unsigned bytes of a with the four signed bytes of b, in 32 bits that wrap (PTX dp4a, x86 vpdpbusd).",
    kinds="i", reference=_dp4a_reference, rules=not_differentiable("it is for integers"), samples=_word_samples, result=_only_int32, arity=3,
)  # fmt: skip


# ***** integer division: by zero is an error at run time *****


def _checked(b: Any) -> Any:
    if b.dtype.kind in "ui" and np.any(b == 0):
        raise ZeroDivisionError("integer division by zero")
    return b


def _div_trunc(a: Any, b: Any) -> Any:
    quotient = np.floor_divide(a, _checked(b))
    inexact = quotient * b != a
    return (quotient + (inexact & ((a < 0) != (b < 0)))).astype(a.dtype)


pointwise(
    "div_trunc", "Integer division toward zero.", kinds="ui", reference=_div_trunc, rules=WHOLE,
    samples=pointwise_samples(INTEGERS, 2, second=(1, 9)),
)  # fmt: skip
pointwise(
    "rem_trunc",
    "What division toward zero leaves; it has the sign of a (C's %, fmod).",
    kinds="uif",
    reference=lambda a, b: np.fmod(a, _checked(b)),
    samples=pointwise_samples((*REALS, *INTEGERS), 2, second=(0.5, 3.0)),
    rules=[lambda t, c, out, a, b: t, lambda t, c, out, a, b: -(t * prim.trunc(a / b))],
)

pointwise(
    "gcd", "The greatest whole number that divides both, of either sign; 0 where both are 0.", kinds="ui", rules=WHOLE,
    reference=lambda a, b: np.gcd(a, b), samples=pointwise_samples(INTEGERS, 2),
)  # fmt: skip

# ***** powers and angles *****


def _pow_reference(a: Any, b: Any) -> Any:
    if a.dtype.kind in "fc":
        return numbers.wide(lambda x, y: np.power(x, y))(a, b)
    power = np.power(a, np.where(b < 0, 0, b).astype(b.dtype))
    if a.dtype.kind == "u":
        return power
    inverse = np.where(a == 1, 1, np.where(a == -1, np.where(b % 2 == 0, 1, -1), 0))  # the integer part of 1 / a**-b
    return np.where(b < 0, inverse, power).astype(a.dtype)


def _pow_base(t: Any, c: Any, out: Any, a: Any, b: Any) -> Any:
    """b a^(b-1), but 0 for a^0, where 0 * 0^-1 would be NaN."""
    return build.select(build.eq(b, 0.0), build.zeros_like(t), t * c(b * prim.pow(a, b - 1.0)))


def _pow_exponent(t: Any, c: Any, out: Any, a: Any, b: Any) -> Any:
    """a^b log a, but 0 for 0^b with b >= 0, where log 0 would give NaN."""
    positive = (prim.real(b) if b.dtype.is_complex else b) >= 0.0
    return build.select(build.eq(a, 0.0) & positive, build.zeros_like(t), t * c(out * prim.log(a)))


pointwise(
    "pow",
    "a to the power b; integers to negative powers are cut toward zero.",
    kinds="uifc",
    reference=_pow_reference,
    samples=pointwise_samples((*REALS, "complex128", "int64", "uint8"), 2, low=0.2, high=2.0, second=(-2.0, 3.0)),
    rules=[_pow_base, _pow_exponent],
)
pointwise(
    "atan2",
    "The angle of the point (b, a).",
    kinds="f",
    reference=numbers.wide(lambda a, b: np.arctan2(a, b)),
    samples=pointwise_samples(REALS, 2),
    rules=[lambda t, c, out, a, b: t * (b / (a * a + b * b)), lambda t, c, out, a, b: t * (-a / (a * a + b * b))],
)

# ***** choosing one of two: ties share the gradient *****


def _share(t: Any, mine: Any, other: Any, loses: Any) -> Any:
    return build.select(prim.eq(mine, other), t * 0.5, build.select(loses, build.zeros_like(t), t))


pointwise(
    "maximum",
    "The greater; NaN if either is NaN.",
    kinds="uif",
    reference=lambda a, b: np.maximum(a, b),
    samples=pointwise_samples((*REALS, *INTEGERS), 2),
    rules=[lambda t, c, out, a, b: _share(t, a, b, a < b), lambda t, c, out, a, b: _share(t, b, a, b < a)],
)
pointwise(
    "minimum",
    "The lesser; NaN if either is NaN.",
    kinds="uif",
    reference=lambda a, b: np.minimum(a, b),
    samples=pointwise_samples((*REALS, *INTEGERS), 2),
    rules=[lambda t, c, out, a, b: _share(t, a, b, a > b), lambda t, c, out, a, b: _share(t, b, a, b > a)],
)


def _copysign_rule(t: Any, c: Any, out: Any, a: Any, b: Any) -> Any:
    """The sign of the change; 0 at 0, where the result has a corner."""
    signed = build.select(prim.eq(out, a), t, -t)
    return build.select(build.eq(a, 0.0), build.zeros_like(t), signed)


pointwise(
    "copysign", "The size of a with the sign of b.", kinds="f", reference=lambda a, b: np.copysign(a, b),
    samples=pointwise_samples(REALS, 2), rules=[_copysign_rule, None],
)  # fmt: skip
pointwise(
    "nextafter", "The next number after a on the way to b.", kinds="f", reference=lambda a, b: np.nextafter(a, b),
    samples=pointwise_samples(REALS, 2), rules=not_differentiable("it steps between neighbouring numbers"),
)  # fmt: skip
