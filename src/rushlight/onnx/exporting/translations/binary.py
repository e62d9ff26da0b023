"""Operators of two tensors, element by element, and what promotes their dtypes."""

from __future__ import annotations

import math
from typing import Any

import rushlight
from rushlight.onnx.exporting.table import Call, translates
from rushlight.onnx.exporting.values import Value


def _category(dtype: Any) -> int:
    return 3 if dtype.is_complex else 2 if dtype.is_floating_point else 0 if dtype == rushlight.bool else 1


def _kind_of(item: Any) -> tuple[int, Any]:
    """(rank in promotion: 2 with dims, 1 without, 0 for numbers; dtype)."""
    if isinstance(item, Value):
        if item.number:
            return 0, rushlight.get_default_dtype() if item.dtype.is_floating_point else item.dtype
        return 2 if item.shape is None or len(item.shape) else 1, item.dtype
    if isinstance(item, bool):
        return 0, rushlight.bool
    if isinstance(item, complex):
        return 0, rushlight.complex64
    return 0, rushlight.int64 if isinstance(item, int) else rushlight.get_default_dtype()


def promoted(*items: Any) -> Any:
    """The dtype in which an operator computes: tensors with dims decide, then those without, then numbers."""
    found: Any = None
    for rank in (2, 1, 0):
        mine: Any = None
        for item in items:
            r, dtype = _kind_of(item)
            if r == rank:
                mine = dtype if mine is None else rushlight.promote_types(mine, dtype)
        if mine is not None:
            if found is None:
                found = mine
            elif _category(mine) > _category(found):
                found = mine if _category(mine) != 3 else rushlight.promote_types(found, mine)
    return found


def common(call: Call, *items: Any, dtype: Any = None) -> list[Value]:
    """Operands in one dtype."""
    dtype = promoted(*items) if dtype is None else dtype
    return [call.scalar(i, dtype) if not isinstance(i, Value) or i.number else call.cast(i, dtype) for i in items]


def as_float(call: Call, x: Value) -> Value:
    """A float tensor: integers in the default dtype."""
    return x if x.dtype.is_floating_point else call.cast(x, rushlight.get_default_dtype())


def _scaled(call: Call, other: Value, alpha: Any) -> Value:
    return (
        other if not isinstance(alpha, Value) and alpha == 1 else call.op("Mul", other, call.scalar(alpha, other.dtype))
    )


@translates("aten::add.Tensor", "aten::add.Scalar", "aten::add_.Tensor")
def add(call: Call, x: Any, other: Any, alpha_: Any = 1, *, alpha: Any = 1) -> Value:
    alpha = alpha if alpha_ == 1 else alpha_
    if call.dtype == rushlight.bool:
        return call.out("Or", *common(call, x, other, dtype=call.dtype))
    a, b = common(call, x, other, dtype=call.dtype)
    return call.out("Add", a, _scaled(call, b, alpha))


@translates("aten::sub.Tensor", "aten::sub.Scalar", "aten::subtract.Tensor", "aten::subtract.Scalar")
def sub(call: Call, x: Any, other: Any, alpha_: Any = 1, *, alpha: Any = 1) -> Value:
    alpha = alpha if alpha_ == 1 else alpha_
    a, b = common(call, x, other, dtype=call.dtype)
    return call.out("Sub", a, _scaled(call, b, alpha))


@translates("aten::rsub.Tensor", "aten::rsub.Scalar")
def rsub(call: Call, x: Any, other: Any, alpha_: Any = 1, *, alpha: Any = 1) -> Value:
    return (
        sub(call, other, x, 1)
        if alpha == 1 and alpha_ == 1
        else _rsub_scaled(call, x, other, alpha_ if alpha == 1 else alpha)
    )


def _rsub_scaled(call: Call, x: Any, other: Any, alpha: Any) -> Value:
    a, b = common(call, x, other, dtype=call.dtype)
    return call.out("Sub", b, _scaled(call, a, alpha))


@translates("aten::mul.Tensor", "aten::mul.Scalar", "aten::multiply.Tensor", "aten::multiply.Scalar")
def mul(call: Call, x: Any, other: Any) -> Value:
    a, b = common(call, x, other, dtype=call.dtype)
    return call.out("And" if call.dtype == rushlight.bool else "Mul", a, b)


@translates(
    "aten::div.Tensor",
    "aten::div.Scalar",
    "aten::divide.Tensor",
    "aten::divide.Scalar",
    "aten::true_divide.Tensor",
    "aten::true_divide.Scalar",
)
def div(call: Call, x: Any, other: Any) -> Value:
    return call.out("Div", *common(call, x, other, dtype=call.dtype))


@translates("aten::div.Tensor_mode", "aten::div.Scalar_mode", "aten::divide.Tensor_mode", "aten::divide.Scalar_mode")
def div_mode(call: Call, x: Any, other: Any, mode_: Any = None, *, rounding_mode: str | None = None) -> Value:
    mode = rounding_mode if mode_ is None else mode_
    if mode is None:
        return div(call, x, other)
    a, b = common(call, x, other, dtype=call.dtype)
    if not call.dtype.is_floating_point:
        if mode == "trunc":
            return call.out("Div", a, b)
        return call.out("Div", call.op("Sub", a, call.op("Mod", a, b)), b)
    made = call.op("Div", a, b)
    if mode == "floor":
        return floored(call, a, b)
    return call.out("Mul", call.op("Sign", made), call.op("Floor", call.op("Abs", made)))


def floored(call: Call, a: Value, b: Value) -> Value:
    """floor(a / b) of floats: from the exact remainder, so that no rounding of the quotient reaches the next number."""
    rest = remainder_of(call, a, b)
    quotient = call.op("Div", call.op("Sub", a, rest), b)
    near = call.op("Round", quotient)
    plain = call.op("Div", a, b)
    zero = call.op("Equal", b, call.const(0.0, b.dtype))
    return call.out("Where", zero, plain, near)


@translates("aten::floor_divide", "aten::floor_divide.Scalar")
def floor_divide(call: Call, x: Any, other: Any) -> Value:
    return div_mode(call, x, other, "floor")


def remainder_of(call: Call, a: Value, b: Value) -> Value:
    """The remainder with the divisor's sign."""
    if not a.dtype.is_floating_point:
        return call.op("Mod", a, b)
    zero = call.const(0.0, a.dtype)
    rest = call.op("Mod", a, b, fmod=1)
    other_side = call.op("Xor", call.op("Less", rest, zero), call.op("Less", b, zero))
    wrong = call.op("And", call.op("Not", call.op("Equal", rest, zero)), other_side)
    return call.op("Where", wrong, call.op("Add", rest, b), rest, dtype=a.dtype)


@translates("aten::remainder.Tensor", "aten::remainder.Scalar", "aten::remainder.Scalar_Tensor")
def remainder(call: Call, x: Any, other: Any) -> Value:
    return remainder_of(call, *common(call, x, other, dtype=call.dtype))


@translates("aten::fmod.Tensor", "aten::fmod.Scalar")
def fmod(call: Call, x: Any, other: Any) -> Value:
    return call.out("Mod", *common(call, x, other, dtype=call.dtype), fmod=1)


@translates(
    "aten::pow.Tensor_Tensor",
    "aten::pow.Tensor_Scalar",
    "aten::pow.Scalar",
    "aten::float_power.Tensor_Tensor",
    "aten::float_power.Tensor_Scalar",
)
def power(call: Call, x: Any, other: Any) -> Value:
    if isinstance(other, (int, float)) and call.dtype.is_floating_point and isinstance(x, Value):
        simple = {1: "Identity", 0.5: "Sqrt", -1: "Reciprocal"}.get(other)
        x = call.cast(x, call.dtype)
        if simple is not None:
            return call.out(simple, x)
        if other == 2:
            return call.out("Mul", x, x)
    return call.out("Pow", *common(call, x, other, dtype=call.dtype))


@translates("aten::maximum", "aten::max.other")
def maximum(call: Call, x: Any, other: Any) -> Value:
    return _extreme(call, "Max", x, other)


@translates("aten::minimum", "aten::min.other")
def minimum(call: Call, x: Any, other: Any) -> Value:
    return _extreme(call, "Min", x, other)


def _extreme(call: Call, kind: str, x: Any, other: Any) -> Value:
    if call.dtype == rushlight.bool:
        return call.out("Or" if kind == "Max" else "And", *common(call, x, other, dtype=call.dtype))
    return call.out(kind, *common(call, x, other, dtype=call.dtype))


@translates("aten::fmax", "aten::fmin")
def fmax(call: Call, x: Any, other: Any) -> Value:
    """The greater (smaller) number; the other one where one is NaN."""
    a, b = common(call, x, other, dtype=call.dtype)
    made = _extreme(call, "Max" if "fmax" in call.name else "Min", a, b)
    if not call.dtype.is_floating_point:
        return made
    made = call.op("Where", call.op("IsNaN", a), b, made, dtype=call.dtype)
    return call.out("Where", call.op("IsNaN", b), a, made)


# ***** comparisons *****

_COMPARED = {
    "eq": "Equal", "lt": "Less", "le": "LessOrEqual", "gt": "Greater", "ge": "GreaterOrEqual", "less": "Less", "less_equal": "LessOrEqual",
    "greater": "Greater", "greater_equal": "GreaterOrEqual",
}  # fmt: skip


def compare(call: Call, kind: str, x: Any, other: Any) -> Value:
    """A comparison, in the operands' common dtype."""
    a, b = common(call, x, other)
    if a.dtype == rushlight.bool and kind != "Equal":
        a, b = call.cast(a, rushlight.int32), call.cast(b, rushlight.int32)
    return call.out(kind, a, b)


def _compared(name: str, kind: str) -> None:
    @translates(f"aten::{name}.Tensor", f"aten::{name}.Scalar")
    def translate(call: Call, x: Any, other: Any) -> Value:
        return compare(call, kind, x, other)


for _name, _kind in _COMPARED.items():
    _compared(_name, _kind)


@translates("aten::ne.Tensor", "aten::ne.Scalar", "aten::not_equal.Tensor", "aten::not_equal.Scalar")
def ne(call: Call, x: Any, other: Any) -> Value:
    return call.out("Not", call.op("Equal", *common(call, x, other)))


@translates("aten::isclose")
def isclose(
    call: Call, x: Value, other: Value, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Value:
    a, b = common(call, x, other)
    if not a.dtype.is_floating_point:
        a, b = call.cast(a, rushlight.float64), call.cast(b, rushlight.float64)
    limit = call.op("Add", call.const(atol, a.dtype), call.op("Mul", call.const(rtol, a.dtype), call.op("Abs", b)))
    near = call.op("LessOrEqual", call.op("Abs", call.op("Sub", a, b)), limit)
    near = call.op("And", near, call.op("Not", call.op("IsInf", call.cast(limit, rushlight.float32))))
    made = call.op("Or", near, call.op("Equal", a, b))
    if equal_nan:
        made = call.op("Or", made, call.op("And", call.op("IsNaN", a), call.op("IsNaN", b)))
    return call.out("Identity", made)


# ***** logic and bits *****


def _logical(name: str, kind: str) -> None:
    @translates(f"aten::logical_{name}")
    def translate(call: Call, x: Any, other: Any) -> Value:
        return call.out(kind, *common(call, x, other, dtype=rushlight.bool))


for _name, _kind in (("and", "And"), ("or", "Or"), ("xor", "Xor")):
    _logical(_name, _kind)


def _bitwise(name: str, kind: str) -> None:
    names = [f"aten::bitwise_{name}.{o}" for o in ("Tensor", "Scalar", "Scalar_Tensor")]

    @translates(*names, f"aten::__{name}__.Tensor", f"aten::__{name}__.Scalar")
    def translate(call: Call, x: Any, other: Any) -> Value:
        a, b = common(call, x, other, dtype=call.dtype)
        if call.dtype == rushlight.bool:
            return call.out(kind, a, b)
        call.need(18)
        return call.out(f"Bitwise{kind}", a, b)


for _name, _kind in (("and", "And"), ("or", "Or"), ("xor", "Xor")):
    _bitwise(_name, _kind)


def _shifted(call: Call, x: Any, other: Any, left: bool) -> Value:
    """Shifts as products and floors of quotients: BitShift takes unsigned integers only."""
    a, b = common(call, x, other, dtype=call.dtype)
    if a.dtype in (rushlight.uint8, rushlight.uint16, rushlight.uint32, rushlight.uint64):
        return call.out("BitShift", a, b, direction="LEFT" if left else "RIGHT")
    wide = call.cast(b, rushlight.int64)
    factor = call.cast(call.op("Pow", call.const(2, rushlight.int64), wide), call.dtype)
    if left:
        return call.out("Mul", a, factor)
    return call.out("Div", call.op("Sub", a, call.op("Mod", a, factor)), factor)


@translates("aten::bitwise_left_shift.Tensor", "aten::bitwise_left_shift.Tensor_Scalar", "aten::bitwise_left_shift.Scalar_Tensor",
            "aten::__lshift__.Tensor", "aten::__lshift__.Scalar")  # fmt: skip
def left_shift(call: Call, x: Any, other: Any) -> Value:
    return _shifted(call, x, other, True)


@translates("aten::bitwise_right_shift.Tensor", "aten::bitwise_right_shift.Tensor_Scalar", "aten::bitwise_right_shift.Scalar_Tensor",
            "aten::__rshift__.Tensor", "aten::__rshift__.Scalar")  # fmt: skip
def right_shift(call: Call, x: Any, other: Any) -> Value:
    return _shifted(call, x, other, False)


# ***** of several operands *****


@translates("aten::where.self", "aten::where.ScalarOther", "aten::where.ScalarSelf", "aten::where.Scalar")
def where(call: Call, condition: Value, x: Any, other: Any) -> Value:
    a, b = common(call, x, other, dtype=call.dtype)
    return call.out("Where", call.cast(condition, rushlight.bool), a, b)


@translates("aten::masked_fill.Scalar", "aten::masked_fill.Tensor")
def masked_fill(call: Call, x: Value, mask: Value, value: Any) -> Value:
    return call.out("Where", mask, call.scalar(value, call.dtype), x)


@translates("aten::lerp.Tensor", "aten::lerp.Scalar")
def lerp(call: Call, start: Value, end: Value, weight: Any) -> Value:
    """From the nearer end, as PyTorch computes it."""
    w = call.scalar(weight, call.dtype)
    gap = call.op("Sub", end, start)
    near = call.op("Add", start, call.op("Mul", w, gap))
    far = call.op("Sub", end, call.op("Mul", gap, call.op("Sub", call.const(1.0, w.dtype), w)))
    return call.out("Where", call.op("Less", call.op("Abs", w), call.const(0.5, w.dtype)), near, far)


@translates("aten::addcmul")
def addcmul(call: Call, x: Value, a: Value, b: Value, *, value: Any = 1) -> Value:
    x, a, b = common(call, x, a, b, dtype=call.dtype)
    return call.out("Add", x, _scaled(call, call.op("Mul", a, b), value))


@translates("aten::addcdiv")
def addcdiv(call: Call, x: Value, a: Value, b: Value, *, value: Any = 1) -> Value:
    x, a, b = common(call, x, a, b, dtype=call.dtype)
    return call.out("Add", x, _scaled(call, call.op("Div", a, b), value))


@translates("aten::atan2", "aten::arctan2")
def atan2(call: Call, y: Value, x: Value) -> Value:
    """From the angle's tangent, moved to its quadrant."""
    y, x = common(call, y, x, dtype=call.dtype)
    zero, pi = call.const(0.0, x.dtype), call.const(math.pi, x.dtype)
    slope = call.op("Atan", call.op("Div", y, x))
    below = call.op("Less", y, zero)
    moved = call.op("Where", below, call.op("Sub", slope, pi), call.op("Add", slope, pi), dtype=x.dtype)
    made = call.op("Where", call.op("Less", x, zero), moved, slope, dtype=x.dtype)
    # Both zero: 0 / 0 is no angle, and PyTorch says 0.
    none = call.op("And", call.op("Equal", x, zero), call.op("Equal", y, zero))
    return call.out("Where", none, zero, made)


@translates("aten::hypot")
def hypot(call: Call, x: Value, y: Value) -> Value:
    x, y = common(call, x, y, dtype=call.dtype)
    return call.out("Sqrt", call.op("Add", call.op("Mul", x, x), call.op("Mul", y, y)))


def _gap(call: Call, x: Value, y: Value) -> Value:
    """x - y; 0 of equal ones, infinite ones too."""
    return call.op("Where", call.op("Equal", x, y), call.const(0.0, x.dtype), call.op("Sub", x, y), dtype=x.dtype)


@translates("aten::logaddexp")
def logaddexp(call: Call, x: Value, y: Value) -> Value:
    x, y = common(call, x, y, dtype=call.dtype)
    gap = call.op("Neg", call.op("Abs", _gap(call, x, y)))
    return call.out("Add", call.op("Max", x, y), call.op("Softplus", gap))


@translates("aten::logaddexp2")
def logaddexp2(call: Call, x: Value, y: Value) -> Value:
    x, y = common(call, x, y, dtype=call.dtype)
    ln2 = call.const(math.log(2), x.dtype)
    gap = call.op("Neg", call.op("Mul", call.op("Abs", _gap(call, x, y)), ln2))
    return call.out("Add", call.op("Max", x, y), call.op("Div", call.op("Softplus", gap), ln2))


@translates("aten::xlogy.Tensor", "aten::xlogy.Scalar_Other", "aten::xlogy.Scalar_Self", "aten::special_xlogy")
def xlogy(call: Call, x: Any, y: Any) -> Value:
    a, b = common(call, x, y, dtype=call.dtype)
    zero = call.const(0.0, a.dtype)
    made = call.op("Where", call.op("Equal", a, zero), zero, call.op("Mul", a, call.op("Log", b)), dtype=a.dtype)
    return call.out("Where", call.op("IsNaN", b), b, made)


@translates("aten::copysign.Tensor", "aten::copysign.Scalar")
def copysign(call: Call, x: Value, sign: Any) -> Value:
    a, b = common(call, x, sign, dtype=call.dtype)
    size = call.op("Abs", a)
    return call.out("Where", call.op("Less", b, call.const(0.0, b.dtype)), call.op("Neg", size), size)


__all__ = ["add", "as_float", "common", "compare", "div", "div_mode", "promoted", "remainder_of"]


@translates("aten::ldexp.Tensor")
def ldexp(call: Call, x: Value, power_: Value) -> Value:
    a, b = common(call, x, power_, dtype=call.dtype)
    return call.out("Mul", a, call.op("Pow", call.const(2.0, call.dtype), b))


@translates("aten::special_xlog1py", "aten::special_xlog1py.other_scalar", "aten::special_xlog1py.self_scalar")
def xlog1py(call: Call, x: Any, y: Any) -> Value:
    a, b = common(call, x, y, dtype=call.dtype)
    zero, one = call.const(0.0, a.dtype), call.const(1.0, a.dtype)
    u = call.op("Add", one, b)
    less = call.op("Sub", u, one)
    same = call.op("Equal", less, zero)
    log = call.op("Mul", call.op("Log", u), call.op("Div", b, call.op("Where", same, one, less, dtype=a.dtype)))
    log = call.op("Where", same, b, log, dtype=a.dtype)
    made = call.op("Where", call.op("Equal", a, zero), zero, call.op("Mul", a, log), dtype=a.dtype)
    return call.out("Where", call.op("IsNaN", b), b, made)


@translates("aten::special_entr")
def entr(call: Call, x: Value) -> Value:
    x = call.cast(x, call.dtype)
    zero = call.const(0.0, x.dtype)
    made = call.op("Neg", call.op("Mul", x, call.op("Log", x)))
    made = call.op("Where", call.op("Equal", x, zero), zero, made, dtype=x.dtype)
    below = call.op("Less", x, zero)
    return call.out("Where", below, call.const(-math.inf, x.dtype), made)
