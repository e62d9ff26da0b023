"""Operators and casts: Python's on tensors, and the functions of the language for them."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

from rushlight._interface.blocks import BY_NAME, Value

from .ambient import builder, builtin
from .constants import unwrap
from .dtypes import BY_TRITON_NAME, dtype, number_of, pointed_to, scalar_of
from .promotion import broadcast_values, operands
from .values import constant, make, member, tensor, to_tensor

__all__ = [
    "PropagateNan", "add", "binary", "bitcast", "cast", "clamp", "compute", "logical_and", "logical_not", "logical_or",
    "maximum", "minimum", "mul", "sub", "unary", "where",
]  # fmt: skip

_BOOL, _INT32, _INT64 = BY_TRITON_NAME["int1"], BY_TRITON_NAME["int32"], BY_TRITON_NAME["int64"]
_FLOAT32, _UINT8 = BY_TRITON_NAME["fp32"], BY_TRITON_NAME["uint8"]
_LARGEST_E5M2 = 57344.0
_MOVING = ("convert", "bitcast", "select")
# Arithmetic on masks is arithmetic modulo 2.
_ON_MASKS = {"add": "bitwise_xor", "sub": "bitwise_xor", "mul": "bitwise_and"}


class PropagateNan(enum.IntEnum):
    """Whether `maximum`, `minimum` and `clamp` give NaN where one operand is NaN."""

    NONE = 0
    ALL = 0xFFFF


def compute(prim: str, *xs: Value, **params: Any) -> Value:
    """A pointwise primitive; narrow floats are computed in float32 and rounded once."""
    b = builder()
    narrow = None if prim in _MOVING else next((x.dtype for x in xs if x.dtype.wide is not x.dtype), None)
    if narrow is None:
        return b.pointwise(prim, *xs, **params)
    result = b.pointwise(prim, *(b.convert(x, x.dtype.wide) for x in xs), **params)
    return b.convert(result, narrow) if result.dtype is narrow.wide else result


def binary(prim: str, a: Any, b: Any, **rules: bool) -> tensor:
    """A primitive on two promoted operands."""
    x, y = operands(a, b, **rules)
    if x.dtype.is_int1() and prim in _ON_MASKS:
        prim = _ON_MASKS[prim]
    return make(compute(prim, x.handle, y.handle), x.dtype)


def unary(prim: str, x: tensor) -> tensor:
    return make(compute(prim, x.handle), x.dtype)


# ***** operators *****


def _sum(a: Any, b: Any) -> tensor:
    x, y = operands(a, b, pointers=True)
    if y.dtype.is_ptr():
        x, y = y, x
    if not x.dtype.is_ptr():
        return make(compute("bitwise_xor" if x.dtype.is_int1() else "add", x.handle, y.handle), x.dtype)
    if y.dtype.is_ptr():
        raise TypeError("cannot add pointers together")
    if y.dtype.is_int_unsigned() and y.dtype.int_bitwidth < 64:
        y = cast(y, _INT64)  # offsets are signed
    return make(builder().offset(x.handle, y.handle), x.dtype)


def _difference(a: Any, b: Any) -> tensor:
    if isinstance(a, tensor) and a.dtype.is_ptr():
        return _sum(a, -to_tensor(b))
    return binary("sub", a, b)


def _quotient(a: Any, b: Any) -> tensor:
    x, y = operands(a, b, division=True)
    if x.dtype.is_int():
        x, y = cast(x, _FLOAT32), cast(y, _FLOAT32)
    return make(compute("div", x.handle, y.handle), x.dtype)


def _whole_quotient(a: Any, b: Any) -> tensor:
    x, y = operands(a, b, division=True)
    if not x.dtype.is_int():
        raise TypeError(f"unexpected type {x.dtype}: // divides integers")
    return _of_integers("div_trunc", x, y)


def _remainder(a: Any, b: Any) -> tensor:
    return _of_integers("rem_trunc", *operands(a, b, division=True))


def _of_integers(prim: str, x: tensor, y: tensor) -> tensor:
    """A primitive that has no form for masks: there the lowest bit of what it gives for bytes."""
    if not x.dtype.is_int1():
        return make(compute(prim, x.handle, y.handle), x.dtype)
    bytes = (cast(v, _UINT8).handle for v in (x, y))
    return cast(make(compute(prim, *bytes), _UINT8) & 1, _BOOL)


def _integers(a: Any, b: Any) -> tuple[tensor, tensor]:
    """Operands of an operator on bits."""
    x, y = operands(a, b)
    if not (x.dtype.is_int() and y.dtype.is_int()):
        raise TypeError(f"invalid operands of type {x.dtype} and {y.dtype}")
    return x, y


def _bits(prim: str) -> Callable[[Any, Any], tensor]:
    def operator(a: Any, b: Any) -> tensor:
        x, y = _integers(a, b)
        return make(compute(prim, x.handle, y.handle), x.dtype)

    return operator


def _shift_left(a: Any, b: Any) -> tensor:
    return _of_integers("shift_left", *_integers(a, b))


def _shift_right(a: Any, b: Any) -> tensor:
    """The sign is repeated where the first operand has one, also where the common type has none."""
    x, y = _integers(a, b)
    first = a if isinstance(a, tensor) else b
    if not first.dtype.is_int_signed() or x.dtype.is_int_signed():
        return _of_integers("shift_right", x, y)
    signed = BY_TRITON_NAME[x.dtype.name.removeprefix("u")]
    bits = (_same_bits(v, signed).handle for v in (x, y))
    return _same_bits(make(compute("shift_right", *bits), signed), x.dtype)


def _compare(prim: str, swap: bool = False) -> Callable[[Any, Any], tensor]:
    def operator(a: Any, b: Any) -> tensor:
        x, y = operands(b, a, pointers=True) if swap else operands(a, b, pointers=True)
        if x.dtype.is_ptr() or y.dtype.is_ptr():
            x, y = (cast(v, BY_TRITON_NAME["uint64"]) for v in (x, y))
        elif x.dtype.is_int1() and prim in ("lt", "le"):
            x, y = (cast(v, _INT32) for v in (x, y))
        return make(compute(prim, x.handle, y.handle), _BOOL)

    return operator


def _negative(x: tensor) -> tensor:
    if x.dtype.is_ptr():
        raise ValueError(f"wrong type argument to unary minus ({x.dtype})")
    return x if x.dtype.is_int1() else unary("neg", x)


def _inverted(x: tensor) -> tensor:
    if not x.dtype.is_int():
        raise ValueError(f"wrong type argument to unary invert ({x.dtype})")
    ones = constant(True if x.dtype.is_int1() else -1, x.dtype, x.shape)
    return make(compute("bitwise_xor", x.handle, ones.handle), x.dtype)


def _attach() -> None:
    """Python's operators on tensors."""
    both: dict[str, Callable[[Any, Any], tensor]] = {
        "add": _sum, "sub": _difference, "mul": lambda a, b: binary("mul", a, b), "truediv": _quotient,
        "floordiv": _whole_quotient, "mod": _remainder, "and": _bits("bitwise_and"), "or": _bits("bitwise_or"),
        "xor": _bits("bitwise_xor"), "lshift": _shift_left, "rshift": _shift_right,
    }  # fmt: skip
    for name, function in both.items():
        setattr(tensor, f"__{name}__", lambda a, b, f=function: f(unwrap(a), unwrap(b)))
        setattr(tensor, f"__r{name}__", lambda a, b, f=function: f(unwrap(b), unwrap(a)))
    comparisons = {
        "eq": _compare("eq"), "ne": _compare("ne"), "lt": _compare("lt"), "le": _compare("le"),
        "gt": _compare("lt", swap=True), "ge": _compare("le", swap=True),
    }  # fmt: skip
    for name, function in comparisons.items():
        setattr(tensor, f"__{name}__", lambda a, b, f=function: f(a, unwrap(b)))
    single = {"neg": _negative, "pos": lambda x: x, "invert": _inverted}
    for name, one in single.items():
        setattr(tensor, f"__{name}__", one)


_attach()


@builtin
def add(x: Any, y: Any, sanitize_overflow: bool = True) -> tensor:
    """x + y, also of two numbers."""
    return _sum(x, y)


@builtin
def sub(x: Any, y: Any, sanitize_overflow: bool = True) -> tensor:
    """x - y, also of two numbers."""
    return _difference(x, y)


@builtin
def mul(x: Any, y: Any, sanitize_overflow: bool = True) -> tensor:
    """x * y, also of two numbers."""
    return binary("mul", x, y)


# ***** logic *****


def truth(x: Any) -> tensor:
    """A tensor as a mask: whether elements differ from 0."""
    return cast(to_tensor(x), _BOOL)


@member()
def logical_and(a: Any, b: Any) -> tensor:
    """Python's `and` of values of a running kernel."""
    return truth(a) & truth(b)


@member()
def logical_or(a: Any, b: Any) -> tensor:
    return truth(a) | truth(b)


def logical_not(a: Any) -> tensor:
    return ~truth(a)


# ***** casts *****


@member("to", "cast")
@builtin
def cast(input: Any, dtype: Any, fp_downcast_rounding: str | None = None, bitcast: bool = False) -> tensor:
    """Elements in another type: floats rounded to nearest (`fp_downcast_rounding="rtz"`: toward zero), floats to integers
    toward zero, anything to `int1` as whether it differs from 0.  With `bitcast` the same bits.
    """
    x = to_tensor(input)
    wanted = dtype.scalar
    if fp_downcast_rounding not in (None, "rtne", "rtz"):
        raise ValueError(f"fp_downcast_rounding is rtne or rtz, not {fp_downcast_rounding!r}")
    if bitcast:
        return _same_bits(x, wanted)
    if x.dtype == wanted:
        return x
    narrower = x.dtype.is_floating() and wanted.is_floating() and x.dtype.primitive_bitwidth > wanted.primitive_bitwidth
    if fp_downcast_rounding is not None and not narrower:
        raise ValueError(
            "fp_downcast_rounding should be set only for truncating fp conversions. "
            f"Source scalar type is {x.dtype} and destination type is {wanted}"
        )
    if x.dtype.is_ptr() or wanted.is_ptr():
        return _cast_pointer(x, wanted)
    if wanted.is_int1() and x.dtype.is_floating():
        zero = constant(0.0, x.dtype, x.shape)
        return make(compute("ne", x.handle, zero.handle), wanted)
    if fp_downcast_rounding == "rtz":
        return _toward_zero(x, wanted)
    if narrower and wanted.name == "fp8e5":  # as GPUs do, what is too large becomes the largest number
        x = clamp(x, -_LARGEST_E5M2, _LARGEST_E5M2, PropagateNan.ALL)
    return make(builder().convert(x.handle, number_of(wanted)), wanted)


def bitcast(x: tensor, wanted: dtype) -> tensor:
    return _same_bits(x, wanted)


def _same_bits(x: tensor, wanted: dtype) -> tensor:
    if x.dtype == wanted:
        return x
    if x.dtype.is_ptr() or wanted.is_ptr():
        return _cast_pointer(x, wanted)
    if x.dtype.primitive_bitwidth != wanted.primitive_bitwidth:
        raise ValueError(
            f"Cannot bitcast data-type of size {x.dtype.primitive_bitwidth} to data-type of size {wanted.primitive_bitwidth}"
        )
    return make(builder().pointwise("bitcast", x.handle, dtype=scalar_of(wanted)), wanted)


def _cast_pointer(x: tensor, wanted: dtype) -> tensor:
    b = builder()
    if x.dtype.is_ptr() and wanted.is_ptr():
        return make(b.value("pointer_cast", x.handle, to=pointed_to(wanted)), wanted)
    if wanted.is_ptr():
        if not x.dtype.is_int():
            raise TypeError(f"cannot cast {x.dtype} to {wanted}")
        wide = b.convert(x.handle, BY_NAME["int64"])
        return make(b.value("pointer_cast", wide, to=pointed_to(wanted)), wanted)
    if wanted.is_int1():
        return cast(make(b.value("address", x.handle, dtype=BY_NAME["int64"]), _INT64), wanted)
    if not (wanted.is_int() and wanted.primitive_bitwidth == 64):
        raise TypeError(f"cannot cast {x.dtype} to {wanted}")
    return make(b.value("address", x.handle, dtype=scalar_of(wanted)), wanted)


def _toward_zero(x: tensor, wanted: dtype) -> tensor:
    """A float with fewer bits, rounded toward zero: the nearest one, or its neighbour where that is larger."""
    near = cast(x, wanted)
    size = BY_TRITON_NAME[f"uint{wanted.primitive_bitwidth}"]
    bits = _same_bits(near, size)
    too_large = abs_of(cast(near, x.dtype)) > abs_of(x)
    return _same_bits(bits - cast(too_large, size), wanted)


def abs_of(x: tensor) -> tensor:
    """|x|; unsigned numbers as they are."""
    return x if x.dtype.is_int_unsigned() else unary("abs", x)


# ***** selection *****


@builtin
def where(condition: Any, x: Any, y: Any) -> tensor:
    """`x` where the condition holds, else `y`.  Both are computed."""
    condition = truth(condition)
    a, b = operands(x, y, pointers=True)
    condition, a, b = broadcast_values(condition, a, b)
    return make(_select(condition.handle, a.handle, b.handle), a.dtype)


def _select(condition: Value, a: Value, b: Value) -> Value:
    """`select`, of addresses too."""
    build = builder()
    if not hasattr(a.type.element, "to"):
        return build.pointwise("select", condition, a, b)
    to = a.type.element.to
    one, other = (build.value("address", v, dtype=BY_NAME["int64"]) for v in (a, b))
    return build.value("pointer_cast", build.pointwise("select", condition, one, other), to=to)


@builtin
def maximum(x: Any, y: Any, propagate_nan: PropagateNan = PropagateNan.NONE) -> tensor:
    """The greater.  Where one is NaN, the other, unless `propagate_nan` is `tl.PropagateNan.ALL`."""
    return _extreme("maximum", x, y, propagate_nan)


@builtin
def minimum(x: Any, y: Any, propagate_nan: PropagateNan = PropagateNan.NONE) -> tensor:
    """The lesser.  Where one is NaN, the other, unless `propagate_nan` is `tl.PropagateNan.ALL`."""
    return _extreme("minimum", x, y, propagate_nan)


def _extreme(prim: str, x: Any, y: Any, propagate_nan: Any) -> tensor:
    a, b = operands(x, y)
    if a.dtype.is_int1():
        return a | b if prim == "maximum" else a & b
    if not a.dtype.is_floating() or propagate_nan == PropagateNan.ALL:
        return make(compute(prim, a.handle, b.handle), a.dtype)
    first = (b < a if prim == "maximum" else a < b) | (b != b)
    return make(compute("select", first.handle, a.handle, b.handle), a.dtype)


@builtin
def clamp(x: Any, min: Any, max: Any, propagate_nan: PropagateNan = PropagateNan.NONE) -> tensor:
    """`x` cut to the range from `min` to `max`."""
    x, low, high = operands(x, min, max)
    return minimum(maximum(x, low, propagate_nan), high, propagate_nan)
