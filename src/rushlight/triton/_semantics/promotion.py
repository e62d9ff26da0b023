"""How operands come to one type and one shape.

A Python number takes the type of the tensor beside it where its kind (bool, integer, float) is not above the tensor's.
Two tensors: the widest float decides, half and bfloat16 give float32, division computes in at least float32; integers
follow C, where at equal width unsigned wins.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .ambient import builder
from .dtypes import BY_TRITON_NAME, dtype
from .values import constant, make, tensor, to_tensor, type_of_number

__all__ = ["broadcast_to_shape", "broadcast_values", "computation_type", "join_shapes", "operands", "promote_integers"]

_FLOAT16, _BFLOAT16, _FLOAT32, _FLOAT64 = (BY_TRITON_NAME[n] for n in ("fp16", "bf16", "fp32", "fp64"))


def promote_integers(a: dtype, b: dtype) -> dtype:
    """C's usual arithmetic conversions."""
    if a.int_signedness == b.int_signedness:
        return a if a.int_bitwidth > b.int_bitwidth else b
    unsigned, signed = (a, b) if a.is_int_unsigned() else (b, a)
    return unsigned if unsigned.int_bitwidth >= signed.int_bitwidth else signed


def computation_type(a: dtype, a_is_number: bool, b: dtype, b_is_number: bool, division: bool = False) -> dtype:
    """The type in which an operator computes."""
    if a_is_number != b_is_number:
        number, other = (a, b) if a_is_number else (b, a)
        if number.kind().value <= other.kind().value:
            a = b = other
    kinds = (a, b)
    if _FLOAT64 in kinds:
        return _FLOAT64
    if division and (a.is_floating() or b.is_floating()):
        return _FLOAT32
    for one in (_FLOAT32, _FLOAT16):
        if one in kinds:
            return one
    if _BFLOAT16 in kinds:
        return _BFLOAT16 if a == b else _FLOAT32
    if a.is_fp8() and b.is_fp8():
        return a if a == b else _FLOAT16
    if not (a.is_int() and b.is_int()):
        raise TypeError(f"unexpected type {a} and {b}")
    if division and a.int_signedness != b.int_signedness:
        raise TypeError(
            f"Cannot use /, //, or % with {a} and {b} because they have different signedness; cast them to the same one"
        )
    return promote_integers(a, b)


def operands(*values: Any, pointers: bool = False, division: bool = False, convert: bool = True) -> tuple[tensor, ...]:
    """Two or three values as tensors of one element type and one shape.

    With `pointers`, pointers may stand among them and keep their types.
    """
    types = [value.dtype if isinstance(value, tensor) else type_of_number(value) for value in values]
    addressed = [t for t in types if t.is_ptr()]
    if addressed:
        _check_pointers(types, pointers)
    if convert and not addressed:
        result = _common(values, types, division)
        values = tuple(cast_operand(value, result) for value in values)
    return broadcast_values(*map(to_tensor, values))


def _check_pointers(types: Sequence[dtype], pointers: bool) -> None:
    first = next(t for t in types if t.is_ptr())
    for other in types:
        if not pointers or other.is_floating() or (other.is_ptr() and other.element_ty != first.element_ty):
            raise TypeError(f"invalid operands of type {types[0]} and {types[1]}")


def _common(values: Sequence[Any], types: Sequence[dtype], division: bool) -> dtype:
    """The type of all tensors among the values, then of the numbers."""
    found: dict[bool, dtype] = {}
    for value, type in zip(values, types, strict=True):
        number = not isinstance(value, tensor)
        found[number] = computation_type(found[number], number, type, number, division) if number in found else type
    if len(found) == 1:
        (one,) = found.values()
        return computation_type(one, False, one, False, division)
    return computation_type(found[False], False, found[True], True, division)


def cast_operand(value: Any, element: dtype) -> tensor:
    """A tensor or a number in the type of a computation; ValueError for a number that it cannot hold."""
    if isinstance(value, tensor):
        return value.to(element)
    if value < 0 and element.is_int_unsigned():
        raise ValueError(
            "Cannot perform a binary operation between an unsigned tensor and a negative scalar. "
            "Perform a explicit cast on one of them."
        )
    if element.is_int() and not element.get_int_min_value() <= value <= element.get_int_max_value():
        raise ValueError(f"Scalar {value} is out of range for type {element}")
    return constant(value, element)


def join_shapes(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """The shape that all broadcast to; ValueError where they do not."""
    ndim = max(map(len, shapes))
    joined = []
    for dims in zip(*((1,) * (ndim - len(s)) + tuple(s) for s in shapes), strict=True):
        sizes = {d for d in dims if d != 1}
        if len(sizes) > 1:
            shown = " and ".join(str(list(s)) for s in shapes)
            raise ValueError(f"Cannot make_shape_compatible: incompatible dimensions in the shapes {shown}")
        joined.append(sizes.pop() if sizes else 1)
    return tuple(joined)


def broadcast_values(*values: tensor) -> tuple[tensor, ...]:
    """The tensors in their common shape."""
    shape = join_shapes([value.shape for value in values])
    return tuple(broadcast_to_shape(value, shape) for value in values)


def broadcast_to_shape(x: tensor, shape: Sequence[int]) -> tensor:
    """A tensor repeated to a shape; ValueError where it does not fit."""
    shape = tuple(shape)
    if x.shape == shape:
        return x
    b = builder()
    handle = x.handle
    if not x.shape:
        return make(b.splat(handle, shape), x.dtype)
    if len(x.shape) > len(shape) or join_shapes([x.shape, shape]) != shape:
        raise ValueError(f"Cannot broadcast, the shape {list(x.shape)} does not fit into {list(shape)}")
    for _ in range(len(shape) - len(x.shape)):
        handle = b.expand_dims(handle, 0)
    return make(b.broadcast(handle, shape), x.dtype)
