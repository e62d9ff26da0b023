"""`torch._prims_common`: sizes, strides, memory formats and promoted dtypes, as libraries beside PyTorch ask for them."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from functools import reduce
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight import dtype as DType
from rushlight.overrides import handle_torch_function, has_torch_function

__all__ = [
    "ELEMENTWISE_TYPE_PROMOTION_KIND",
    "_has_compatible_shallow_copy_type",
    "elementwise_dtypes",
    "is_boolean_dtype",
    "is_complex_dtype",
    "is_float_dtype",
    "is_integer_dtype",
    "make_contiguous_strides_for",
    "suggest_memory_format",
]


def make_contiguous_strides_for(shape: Sequence[int], row_major: bool = True) -> tuple[int, ...]:
    """The strides of a tensor of this shape whose elements follow each other (the last two dims exchanged otherwise).

    >>> make_contiguous_strides_for((2, 3, 4))
    (12, 4, 1)
    """
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    strides.reverse()
    if not row_major and len(shape) > 1:
        strides[-2:] = [1, max(shape[-2], 1)]
    return tuple(strides)


def suggest_memory_format(x: Any) -> Any:
    """The memory format of an image: channels last where its strides say so."""
    last = {4: rushlight.channels_last, 5: rushlight.channels_last_3d}.get(x.dim())
    if last is not None and not x.is_contiguous() and x.is_contiguous(memory_format=last):
        return last
    return rushlight.contiguous_format


class ELEMENTWISE_TYPE_PROMOTION_KIND(Enum):
    """How an operator treats its operands' common dtype."""

    DEFAULT = (0,)
    NO_OPMATH = (1,)
    INT_TO_FLOAT = (2,)
    ALWAYS_BOOL = (3,)
    COMPLEX_TO_FLOAT = (4,)
    BOOL_TO_LONG = (5,)


def elementwise_dtypes(*_args: Any, type_promotion_kind: ELEMENTWISE_TYPE_PROMOTION_KIND) -> tuple[DType, DType]:
    """The dtype in which an operator on tensors and Python numbers computes, and that of its result; None counts for
    nothing.  ValueError for anything else.

    >>> half = rushlight.ones(2, dtype=rushlight.float16)
    >>> elementwise_dtypes(half, 2, type_promotion_kind=ELEMENTWISE_TYPE_PROMOTION_KIND.DEFAULT)
    (torch.float32, torch.float16)
    """
    given = [value for value in _args if value is not None]
    for value in given:
        if not isinstance(value, (Tensor, bool, int, float, complex)):
            raise ValueError(f"Unexpected type {type(value)!s} when computing elementwise type promotion!")
    result = _common_dtype(given) if given else rushlight.bool
    kind = ELEMENTWISE_TYPE_PROMOTION_KIND
    if type_promotion_kind is kind.NO_OPMATH:
        return result, result
    if type_promotion_kind is kind.INT_TO_FLOAT and not (is_float_dtype(result) or is_complex_dtype(result)):
        result = rushlight.get_default_dtype()
    if type_promotion_kind is kind.BOOL_TO_LONG and is_boolean_dtype(result):
        result = rushlight.int64
    wide = _COMPUTED_IN.get(result, result)
    if type_promotion_kind is kind.ALWAYS_BOOL:
        return wide, rushlight.bool
    if type_promotion_kind is kind.COMPLEX_TO_FLOAT and is_complex_dtype(result):
        return wide, result.to_real()
    return wide, result


def _common_dtype(values: Sequence[Any]) -> DType:
    """The promoted dtype of tensors with dims, then of those without, then of numbers, by steps of two."""
    tensors = [value for value in values if isinstance(value, Tensor)]
    found: Any = None
    for shape in ((1,), ()):
        dtypes = [value.dtype for value in tensors if bool(value.dim()) is bool(shape)]
        if dtypes:
            one = rushlight.empty(shape, dtype=reduce(rushlight.promote_types, dtypes), device="meta")
            found = one if found is None else rushlight.empty(1, dtype=rushlight.result_type(found, one), device="meta")
    numbers = sorted((v for v in values if not isinstance(v, Tensor)), key=lambda v: _KINDS.index(type(v)))
    if numbers:
        return rushlight.result_type(numbers[-1] if found is None else found, numbers[-1])
    return found.dtype


_KINDS = (bool, int, float, complex)
_COMPUTED_IN = {
    rushlight.float16: rushlight.float32,
    rushlight.bfloat16: rushlight.float32,
    rushlight.complex32: rushlight.complex64,
}


def is_boolean_dtype(dtype: DType) -> bool:
    """Whether elements are truth values."""
    return dtype is rushlight.bool


def is_integer_dtype(dtype: DType) -> bool:
    """Whether elements are integers; truth values are none."""
    return not (dtype.is_floating_point or dtype.is_complex or dtype is rushlight.bool)


def is_float_dtype(dtype: DType) -> bool:
    """Whether elements are real floating point numbers."""
    return dtype.is_floating_point


def is_complex_dtype(dtype: DType) -> bool:
    """Whether elements are complex numbers."""
    return dtype.is_complex


def _has_compatible_shallow_copy_type(input: Any, other: Any) -> bool:
    """Whether a tensor may take the memory of another in its place: both are plain, or of one class, and both have any."""
    if has_torch_function((input, other)):
        found = handle_torch_function(_has_compatible_shallow_copy_type, (input, other), input, other)
        return bool(found)
    if input.is_meta is not other.is_meta:
        return False
    return type(input) is type(other) or {type(input), type(other)} <= {rushlight.Tensor, rushlight.nn.Parameter}
