"""Functions of single elements. Operands are joined by the standard's rules (`dtypes.py`), then PyTorch's function of
the same meaning runs.

Written out are only those where PyTorch's values are not the standard's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight.array_api.dtypes import iinfo, isdtype, operands

_UNARY = {
    "abs": "Absolute values; of complex numbers, their real magnitudes.",
    "acos": "Inverse cosine, in radians.",
    "acosh": "Inverse hyperbolic cosine.",
    "asin": "Inverse sine, in radians.",
    "asinh": "Inverse hyperbolic sine.",
    "atan": "Inverse tangent, in radians.",
    "atanh": "Inverse hyperbolic tangent.",
    "ceil": "The smallest integers not below the elements, in the same dtype.",
    "cos": "Cosine of radians.",
    "cosh": "Hyperbolic cosine.",
    "exp": "Exponential function.",
    "expm1": "exp(x) - 1, accurate near zero.",
    "floor": "The largest integers not above the elements, in the same dtype.",
    "isfinite": "Where elements are neither infinite nor NaN.",
    "isinf": "Where elements are infinite.",
    "isnan": "Where elements are NaN.",
    "log": "Natural logarithm.",
    "log10": "Logarithm to base 10.",
    "log1p": "log(1 + x), accurate near zero.",
    "log2": "Logarithm to base 2.",
    "reciprocal": "1 / x.",
    "signbit": "Where the sign bit is set, also that of -0.0 and NaN.",
    "sin": "Sine of radians.",
    "sinh": "Hyperbolic sine.",
    "sqrt": "Principal square root.",
    "square": "x * x.",
    "tan": "Tangent of radians.",
    "tanh": "Hyperbolic tangent.",
    "trunc": "The integers next to the elements towards zero, in the same dtype.",
    "bitwise_invert": "Every bit turned; logical not of bool.",
    "logical_not": "Where elements are false.",
    "negative": "-x.",
}
_BINARY = {
    "add": "Sums.",
    "atan2": "The angle of the point (x2, x1), in radians from -pi to pi.",
    "bitwise_and": "AND of every bit.",
    "bitwise_left_shift": "Bits of `x1` moved left by `x2` places; zero where all have left.",
    "bitwise_or": "OR of every bit.",
    "bitwise_right_shift": "Bits of `x1` moved right by `x2` places, with the sign; the sign alone where all have left.",
    "bitwise_xor": "Exclusive OR of every bit.",
    "copysign": "Magnitude of `x1`, sign of `x2`.",
    "divide": "Quotients; of integers, in the default floating point dtype.",
    "equal": "Where x1 == x2.",
    "greater": "Where x1 > x2.",
    "greater_equal": "Where x1 >= x2.",
    "hypot": "sqrt(x1**2 + x2**2) without overflow.",
    "less": "Where x1 < x2.",
    "less_equal": "Where x1 <= x2.",
    "logaddexp": "log(exp(x1) + exp(x2)) without overflow.",
    "logical_and": "Where both are true.",
    "logical_or": "Where one is true or both.",
    "logical_xor": "Where exactly one is true.",
    "maximum": "The larger of both; NaN where one is NaN.",
    "minimum": "The smaller of both; NaN where one is NaN.",
    "multiply": "Products.",
    "nextafter": "The number next to `x1` on the way to `x2`.",
    "not_equal": "Where x1 != x2.",
    "pow": "x1 to the power of x2.",
    "subtract": "Differences.",
}
_WRITTEN = ("clip", "conj", "floor_divide", "imag", "positive", "real", "remainder", "round", "sign")
_PYTORCH_NAMES = {"bitwise_invert": "bitwise_not", "equal": "eq"}

__all__ = [*_UNARY, *_BINARY, *_WRITTEN]  # noqa: PLE0604


def _unary(name: str, text: str) -> Callable[[Tensor], Tensor]:
    function = getattr(rushlight, _PYTORCH_NAMES.get(name, name))

    def of(x: Tensor, /) -> Tensor:
        return function(x)

    of.__name__ = of.__qualname__ = name
    of.__doc__ = text
    return of


def _binary(name: str, text: str) -> Callable[[Any, Any], Tensor]:
    function = getattr(rushlight, _PYTORCH_NAMES.get(name, name))

    def of(x1: Any, x2: Any, /) -> Tensor:
        return function(*operands(name, x1, x2))

    of.__name__ = of.__qualname__ = name
    of.__doc__ = text + " One operand may be a Python number."
    return of


globals().update({name: _unary(name, text) for name, text in _UNARY.items()})
globals().update({name: _binary(name, text) for name, text in _BINARY.items()})


def positive(x: Tensor, /) -> Tensor:
    """+x: a copy."""
    return x.clone()


def conj(x: Tensor, /) -> Tensor:
    """Complex conjugates; a copy of real numbers."""
    return rushlight.conj_physical(x) if x.dtype.is_complex else x.clone()


def real(x: Tensor, /) -> Tensor:
    """Real parts, as a view where the dtype is complex."""
    return rushlight.real(x)


def imag(x: Tensor, /) -> Tensor:
    """Imaginary parts, as a view where the dtype is complex; zeros for real numbers."""
    return rushlight.imag(x) if x.dtype.is_complex else rushlight.zeros_like(x)


def sign(x: Tensor, /) -> Tensor:
    """-1, 0 or 1 as the element is negative, zero or positive; NaN of NaN; z / abs(z) of complex numbers.

    >>> import rushlight.array_api as xp
    >>> xp.sign(xp.asarray([-3.0, 0.0, xp.nan]))
    tensor([-1., 0., nan])
    """
    if x.dtype.is_complex:
        return rushlight.sgn(x)
    return rushlight.where(x != x, x, rushlight.sign(x)) if x.dtype.is_floating_point else rushlight.sign(x)


def round(x: Tensor, /) -> Tensor:
    """The nearest integers in the same dtype, halves to even; of complex numbers, part by part."""
    if x.dtype.is_complex:
        return rushlight.complex(rushlight.round(x.real), rushlight.round(x.imag))
    return rushlight.round(x)


def floor_divide(x1: Any, x2: Any, /) -> Tensor:
    """The largest integers not above x1 / x2; infinite where the quotient is, as the standard says (PyTorch's is then
    NaN).

    >>> import rushlight.array_api as xp
    >>> xp.floor_divide(xp.asarray([7.0, -7.0, xp.inf]), 2.0)
    tensor([ 3., -4., inf])
    """
    x1, x2 = operands("floor_divide", x1, x2)
    quotient = rushlight.floor_divide(x1, x2)
    if not x1.dtype.is_floating_point:
        return quotient
    unbounded = rushlight.isinf(x1) | rushlight.isinf(x2)
    return rushlight.where(unbounded, rushlight.floor(x1 / x2), quotient)


def remainder(x1: Any, x2: Any, /) -> Tensor:
    """x1 - x2 * floor(x1 / x2): the remainder with the sign of `x2`, also that of a zero.

    >>> import rushlight.array_api as xp
    >>> xp.remainder(xp.asarray([7, -7, 7]), xp.asarray([3, 3, -3]))
    tensor([ 1,  2, -2])
    """
    x1, x2 = operands("remainder", x1, x2)
    left = rushlight.remainder(x1, x2)
    return rushlight.where(left == 0, rushlight.copysign(left, x2), left) if x1.dtype.is_floating_point else left


def _bound(x: Tensor, value: Any) -> Any:
    """A bound of `clip` in the dtype of `x`: one that integers cannot reach becomes their own limit."""
    if isinstance(value, Tensor):
        if isdtype(x.dtype, "integral") and isdtype(value.dtype, "integral") and value.dtype != x.dtype:
            here, there = iinfo(x.dtype), iinfo(value.dtype)
            value = value.clamp(max(here.min, there.min), min(here.max, there.max))
        return value.to(x.dtype)
    if isdtype(x.dtype, "integral") and isinstance(value, int):
        limits = iinfo(x.dtype)
        value = sorted((limits.min, value, limits.max))[1]
    return rushlight.tensor(value, dtype=x.dtype, device=x.device)


def clip(x: Tensor, /, min: Any = None, max: Any = None) -> Tensor:
    """Elements below `min` become it, then those above `max` become that; NaN where one of the three is.

    Bounds are numbers or arrays that broadcast with `x`. The result has the dtype of `x`.

        >>> import rushlight.array_api as xp
        >>> xp.clip(xp.arange(5), 1, 3)
        tensor([1, 1, 2, 3, 3])
    """
    made = x.clone()
    if min is not None:
        made = rushlight.maximum(made, _bound(x, min))
    if max is not None:
        made = rushlight.minimum(made, _bound(x, max))
    return made
