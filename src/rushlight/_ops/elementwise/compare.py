"""Comparisons, logic, bits, and selection."""

from __future__ import annotations

import math
from collections.abc import Callable
from operator import ge, gt, le, lt
from typing import Any

from rushlight._base.errors import warn_once
from rushlight._ops.bodies import C_NAME, as_bool, is_weak, isnan, number_kind, number_value, pair, refuse, wide
from rushlight._ops.table import default_node_name, operator
from rushlight._prims import build, prim
from rushlight._types.dtype import BOOL, FLOAT8, INT64
from rushlight._types.layout import broadcast_shapes
from rushlight._types.promotion import default_dtype

__all__: list[str] = []

BOTH = ("input", "other")
Rule = Callable[[Any, Any], Any]


# ***** comparing *****


def _comparison(name: str, alias: str, doc: str, compare: Rule) -> None:
    def body(x: Any, y: Any) -> Any:
        x, y = pair(x, y)
        if name not in ("eq", "ne"):
            refuse(x, name, "c", joined=True)
        return compare(x, y)

    operator(
        f"{name}(Tensor input, Tensor other) -> Tensor",
        promote="same",
        numbers=("other",),
        out=True,
        inplace=True,
        inplace_spaces=(),
        aliases=(alias,) if alias else (),
        doc=doc,
        tags=("no_history_of_out",),
        node=lambda other, **_: f"{name.title()}Backward{int(hasattr(other, 'shape'))}",
    )(body)


_comparison("eq", "", "input == other.", build.eq)
_comparison("ne", "not_equal", "input != other.", build.ne)
_comparison("lt", "less", "input < other.", lt)
_comparison("le", "less_equal", "input <= other.", le)
_comparison("gt", "greater", "input > other.", gt)
_comparison("ge", "greater_equal", "input >= other.", ge)


@operator(
    "isclose(Tensor input, Tensor other, float rtol=1e-05, float atol=1e-08, bool equal_nan=False) -> Tensor",
    like="operands",
)
def isclose(x: Any, y: Any, rtol: float, atol: float, equal_nan: bool) -> Any:
    """|input - other| <= atol + rtol * |other|, or equal; `equal_nan` makes NaN close to NaN."""
    if x.dtype is not y.dtype:
        raise RuntimeError(f"{x.dtype.scalar} did not match {y.dtype.scalar}")
    if rtol < 0 or atol < 0:
        which, value = ("rtol", rtol) if rtol < 0 else ("atol", atol)
        raise RuntimeError(f"{which} must be greater than or equal to zero, but got {value}")
    if x.dtype in FLOAT8 and (rtol or atol):  # what is stored only can be equal, not near
        raise NotImplementedError(f"\"mul_cpu_reduced_float\" not implemented for '{x.dtype.scalar}'")
    x, y = pair(wide(x), wide(y))
    close = prim.eq(x, y)
    exact = x.dtype.kind in "bui"
    if equal_nan and not exact:
        close = close | (isnan(x) & isnan(y))
    if rtol == 0 and atol == 0:
        return close
    if exact:
        x, y = (wide(build.convert(v, default_dtype())) for v in (x, y))
    gap = prim.abs(x - y)
    return close | ((gap <= rtol * prim.abs(y) + atol) & (gap < math.inf))


# ***** logic: any dtype counts as x != 0 *****


def _logical(name: str, primitive: str, doc: str) -> None:
    def body(x: Any, y: Any) -> Any:
        shape = broadcast_shapes(x.shape, y.shape)
        return getattr(prim, primitive)(*(build.broadcast_to(as_bool(wide(v)), shape) for v in (x, y)))

    operator(
        f"{name}(Tensor input, Tensor other) -> Tensor",
        like="operands",
        out=True,
        inplace=True,
        inplace_spaces=(),
        doc=doc,
        tags=("no_history",),
    )(body)


_logical("logical_and", "bitwise_and", "input != 0 and other != 0.")
_logical("logical_or", "bitwise_or", "input != 0 or other != 0.")
_logical("logical_xor", "bitwise_xor", "(input != 0) != (other != 0).")


@operator(
    "logical_not(Tensor input) -> Tensor",
    like="operands",
    out=True,
    inplace=True,
    inplace_spaces=(),
    tags=("no_history",),
)
def logical_not(x: Any) -> Any:
    """Whether it is 0."""
    return ~as_bool(wide(x))


# ***** bits *****


def _bits(name: str, primitive: str, kinds: str, doc: str) -> None:
    """Declare an operator of two numbers' bits; dtypes of these kinds have none."""

    def body(x: Any, y: Any) -> Any:
        x, y = pair(x, y)
        refuse(x, f"{primitive}_cpu", kinds, joined=True)
        return getattr(prim, primitive)(x, y)

    operator(
        f"{name}(Tensor input, Tensor other) -> Tensor",
        promote="same",
        numbers=BOTH,
        out=True,
        inplace=True,
        inplace_spaces=(),
        doc=doc,
    )(body)


_bits("bitwise_and", "bitwise_and", "fc", "input & other: bits set in both (`and` for bool).")
_bits("bitwise_or", "bitwise_or", "fc", "input | other: bits set in either (`or` for bool).")
_bits("bitwise_xor", "bitwise_xor", "fc", "Bits set in one of the two (`!=` for bool).")


@operator("bitwise_not(Tensor input) -> Tensor", promote="same", out="exact", inplace=True, inplace_spaces=())
def bitwise_not(x: Any) -> Any:
    """~input: every bit flipped (`not` for bool)."""
    refuse(x, "bitwise_not_cpu", "fc")
    return build.invert(x)


_bits("bitwise_left_shift", "shift_left", "bfc", "input << other: bits shifted left by `other`.")
_bits("bitwise_right_shift", "shift_right", "bfc", "input >> other: bits shifted right by `other`; the sign stays.")


# ***** choosing *****


def _numbers_alone(x: Any, y: Any) -> list[Any]:
    """Two numbers as values of PyTorch's dtype for numbers."""
    order = "bifc"
    kind = order[max(order.index(number_kind(v)) for v in (x, y))]
    dtype = {"b": BOOL, "i": INT64, "f": default_dtype(), "c": default_dtype().to_complex()}[kind]
    return [number_value(v, dtype) for v in (x, y)]


@operator("where(Tensor condition, Tensor input, Tensor other) -> Tensor", promote="same", promote_over=BOTH, numbers=BOTH, out="exact",
          method=False, tags=("fits",))  # fmt: skip
def where(condition: Any, x: Any, y: Any) -> Any:
    """out[i] = input[i] if condition[i] else other[i]; the three broadcast."""
    if condition.dtype.name == "uint8":
        warn_once(
            "where received a uint8 condition tensor. This behavior is deprecated and will be removed in a future version of PyTorch. Use a boolean "
            "condition instead."
        )
        condition = as_bool(condition)
    if condition.dtype is not BOOL:
        raise RuntimeError(
            f"where expected condition to be a boolean tensor, but got a tensor with dtype {condition.dtype.scalar}"
        )
    if is_weak(x) and is_weak(y):
        x, y = _numbers_alone(x, y)
    return build.select(condition, x, y)


@operator("masked_fill(Tensor input, Tensor mask, Tensor value) -> Tensor", numbers=("value",), like="contiguous", inplace=True,
          inplace_spaces=(), tags=("fits",),
          node=lambda input, mask, value: f"MaskedFillBackward{int(hasattr(value, 'shape'))}")  # fmt: skip
def masked_fill(x: Any, mask: Any, value: Any) -> Any:
    """out[i] = value if mask[i] else input[i]; the mask broadcasts to the input."""
    if mask.dtype is not BOOL:
        raise RuntimeError(
            f"masked_fill_ only supports boolean masks, but got mask with dtype {C_NAME[mask.dtype.name]}"
        )
    if not is_weak(value) and value.shape:
        raise RuntimeError(
            f"masked_fill_ only supports a 0-dimensional value tensor, but got tensor with {len(value.shape)} dimension(s)."
        )
    if not is_weak(value) and value.dtype.is_complex and x.dtype.kind in "uif":
        raise RuntimeError(f"value cannot be converted to type {x.dtype.name} without overflow")
    return build.select(mask, number_value(value, x.dtype) if is_weak(value) else build.convert(value, x.dtype), x)


# ***** keeping within bounds *****


def _bounds(x: Any, low: Any, high: Any) -> tuple[Any, Any, Any]:
    """All three in one shape and dtype; a missing bound stays None."""
    refuse(x, "clamp", "c", joined=True)
    if low is None and high is None:
        raise RuntimeError("torch.clamp: At least one of 'min' or 'max' must not be None")
    bounds = [v for v in (low, high) if v is not None]
    x, *rest = build.match(x, *bounds)
    shape = broadcast_shapes(x.shape, *(v.shape for v in rest))
    x, *rest = (build.broadcast_to(v, shape) for v in (x, *rest))
    return x, rest.pop(0) if low is not None else None, rest.pop(0) if high is not None else None


def _raise_to(x: Any, low: Any) -> Any:
    return x | low if x.dtype is BOOL else prim.maximum(x, low)


def _cut_to(x: Any, high: Any) -> Any:
    return x & high if x.dtype is BOOL else prim.minimum(x, high)


@operator("clamp(Tensor input, Tensor? min=None, Tensor? max=None) -> Tensor", promote="same", numbers=("min", "max"), inplace=True, out=True,
          aliases=("clip",), tags=("fits",),
          node=lambda input, min, max: "ClampBackward0" if hasattr(min, "shape") or hasattr(max, "shape") else "ClampBackward1")  # fmt: skip
def clamp(x: Any, min: Any, max: Any) -> Any:
    """`input` kept within [min, max]; `max` wins where they cross."""
    if (
        min is not None
        and max is not None
        and is_weak(min) is not is_weak(max)
        and (max if is_weak(min) else min).shape
    ):
        raise TypeError(
            "clamp() received an invalid combination of arguments: one bound is a tensor and the other a number"
        )
    x, low, high = _bounds(x, min, max)
    x = x if low is None else _raise_to(x, low)
    return x if high is None else _cut_to(x, high)


@clamp.gradient
def _(ct: Any, out: Any, x: Any, min: Any, max: Any) -> Any:
    bounds = [None if b is None or is_weak(b) else b for b in (min, max)]
    x, low, high = _bounds(x, min, max)
    inside = x >= low if low is not None else None
    if high is not None:
        below = x <= high
        inside = below if inside is None else inside & below
    to_low = to_high = None
    if bounds[0] is not None:
        hit = x < low if high is None else (x < low) & (low < high)
        to_low = build.select(hit, ct, 0)
    if bounds[1] is not None:
        hit = x > high if low is None else (x > high) | (high < low)
        to_high = build.select(hit, ct, 0)
    return build.select(inside, ct, 0), to_low, to_high


def _one_bound(name: str, argument: str, doc: str, logic: Rule, inside: Rule, hit: Rule) -> None:
    def body(x: Any, bound: Any) -> Any:
        refuse(x, name, "c", joined=True)
        return logic(*pair(x, bound))

    stem = default_node_name(name)[:-1]
    declared = operator(
        f"{name}(Tensor input, Tensor {argument}) -> Tensor",
        promote="same",
        numbers=(argument,),
        inplace=True,
        out=True,
        tags=("fits",),
        doc=doc,
        node=lambda **given: f"{stem}{int(hasattr(given[argument], 'shape'))}",
    )(body)

    def rule(ct: Any, out: Any, x: Any, bound: Any) -> Any:
        weak = is_weak(bound)
        x, bound = pair(x, bound)
        return build.select(inside(x, bound), ct, 0), None if weak else build.select(hit(x, bound), ct, 0)

    declared.gradient(rule)


_one_bound("clamp_min", "min", "max(input, min): not below `min`.", _raise_to, ge, lt)
_one_bound("clamp_max", "max", "min(input, max): not above `max`.", _cut_to, le, gt)
