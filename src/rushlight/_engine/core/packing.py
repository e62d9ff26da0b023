"""Python numbers to the bytes of a dtype, with PyTorch's conversions and errors, without NumPy.

>>> from rushlight._types.dtype import INT32
>>> pack_numbers([1, 2.7, True], INT32).tolist()
[1, 2, 1]
"""

from __future__ import annotations

import math
import sys
from array import array
from struct import pack
from typing import Any

from rushlight._types.dtype import BFLOAT16, BOOL, COMPLEX32, FLOAT8, FLOAT16, DType
from rushlight._types.float8 import encode
from rushlight._types.symbols import finite

__all__ = ["array_types", "check_number", "is_array", "number_bounds", "pack_numbers"]

_CODES = {
    "uint8": "B", "uint16": "H", "uint32": "I", "uint64": "Q", "int8": "b", "int16": "h", "int32": "i", "int64": "q",
    "float32": "f", "float64": "d", "complex64": "f", "complex128": "d",
}  # fmt: skip


def array_types() -> tuple[Any, ...]:
    """NumPy's array and scalar types; none while NumPy is not loaded, because then there is no such object."""
    numpy = sys.modules.get("numpy")
    return (numpy.ndarray, numpy.generic) if numpy is not None and hasattr(numpy, "generic") else ()


def is_array(value: Any) -> bool:
    """Whether it is a NumPy array."""
    kind = type(value)
    if kind is list or kind is tuple or kind is int or kind is float:
        return False
    if kind is _ARRAY[0]:
        return True
    numpy = sys.modules.get("numpy")
    if numpy is None or not hasattr(numpy, "ndarray"):
        return False
    _ARRAY[0] = numpy.ndarray
    return isinstance(value, numpy.ndarray)


_ARRAY: list[Any] = [None]  # NumPy's class of arrays, once one was asked about


def pack_numbers(values: list[Any], dtype: DType) -> array[Any]:
    """An array of machine numbers (half types as their bits, complex ones as pairs) that `values` become in `dtype`.

    Raises what PyTorch raises: RuntimeError, ValueError or OverflowError for an integer that does not fit, TypeError
    for a complex number where there is only room for a real one, OverflowError for an int beyond every float.  Floats
    beyond the range of `dtype` become infinite.
    """
    if dtype is BOOL:
        return array("B", [1 if v else 0 for v in values])
    if dtype.is_integer:
        return array(_CODES[dtype.name], _integers(values, dtype))
    if dtype is COMPLEX32:
        return _half(array("f", [part for v in values for part in (v.real, v.imag)]))
    if dtype in FLOAT8:
        return array("B", [encode(dtype.name, v) for v in values])
    if dtype.kind in "xq":
        raise NotImplementedError(f"\"store_scalar\" not implemented for '{dtype.scalar}'")
    if dtype.is_complex:
        return array(_CODES[dtype.name], [part for v in values for part in (v.real, v.imag)])
    if dtype is FLOAT16:
        return _half(array("f", values))
    return _brain(array("f", values)) if dtype is BFLOAT16 else array(_CODES[dtype.name], values)


def _integers(values: list[Any], dtype: DType) -> list[int]:
    if set(map(type, values)) != {int}:
        values = [v if type(v) is int else _integer(v, dtype) for v in values]
    if not values:
        return values
    low, high = min(values), max(values)
    bits = 8 * dtype.itemsize
    if dtype.name == "uint64":
        if low < 0 or high >= 1 << 64:
            raise OverflowError("can't convert negative int to unsigned" if low < 0 else "int too big to convert")
        return values
    if low < -(1 << 63) or high >= 1 << 63:
        raise ValueError("Overflow when unpacking long long")
    if dtype.is_signed:
        fits = low >= -(1 << bits - 1) and high < 1 << bits - 1
    else:  # a negative number wraps around once
        fits = low > -(1 << bits) and high < 1 << bits
    if not fits:
        raise RuntimeError(f"value cannot be converted to type {dtype.name} without overflow")
    return values if dtype.is_signed or low >= 0 else [v & (1 << bits) - 1 for v in values]


def number_bounds(dtype: DType) -> tuple[int, int] | None:
    """The least and the largest int that `check_number` lets pass (and 62 bits hold); None where it lets all pass."""
    if dtype is BOOL or dtype.is_floating_point or dtype.is_complex:
        return None
    high = (1 << 8 * dtype.itemsize - dtype.is_signed) - 1
    return max(-high - dtype.is_signed, -1 << 62), min(high, 1 << 62)


def check_number(value: Any, dtype: DType) -> None:
    """RuntimeError where a Python number lies outside of the range of an integer dtype, or has an imaginary part that
    the dtype has not.

    Floats have infinities.
    """
    if isinstance(value, complex) and value.imag and not (dtype.is_complex or dtype is BOOL):
        raise RuntimeError(f"value cannot be converted to type {dtype.name} without overflow")
    if dtype is BOOL or dtype.is_floating_point or dtype.is_complex or isinstance(value, complex):
        return
    high = (1 << 8 * dtype.itemsize - dtype.is_signed) - 1
    if not (finite(value) and -high - dtype.is_signed <= value <= high):  # a negative number wraps around once
        raise RuntimeError(f"value cannot be converted to type {dtype.name}_t without overflow")


def _integer(value: Any, dtype: DType) -> int:
    """A bool, float or complex number as an int."""
    if isinstance(value, complex):
        raise TypeError("'complex' object cannot be interpreted as an integer")
    if not math.isfinite(value):
        raise RuntimeError(f"value cannot be converted to type {dtype.name} without overflow")
    return int(value)


def _half(values: array[float]) -> array[int]:
    """float16 bits; `struct` refuses what rounds to infinity, which starts half a step above the largest number."""
    most = 65520.0
    fitting = [v if -most < v < most or v != v else math.copysign(math.inf, v) for v in values]
    return array("H", pack(f"<{len(fitting)}e", *fitting))


def _brain(values: array[float]) -> array[int]:
    """bfloat16 bits: the upper half of a float32, rounded to even."""
    found = array("H")
    for value, bits in zip(values, memoryview(values).cast("B").cast("I"), strict=True):
        found.append(0x7FC0 if value != value else (bits + 0x7FFF + (bits >> 16 & 1)) >> 16)
    return found
