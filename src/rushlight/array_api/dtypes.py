"""Data types by the standard's rules: what joins with what, limits, kinds, casts.

They differ from PyTorch's in two points: an array without dims counts as any other array, and uint16, uint32 and uint64
join other integers.
"""

from __future__ import annotations

from functools import reduce
from typing import Any, NamedTuple

import rushlight
from rushlight import Tensor, dtype
from rushlight._interface.tensors import join

__all__ = ["astype", "can_cast", "finfo", "iinfo", "isdtype", "joined", "operands", "result_type"]

_SIGNED = (rushlight.int8, rushlight.int16, rushlight.int32, rushlight.int64)
_UNSIGNED = (rushlight.uint8, rushlight.uint16, rushlight.uint32, rushlight.uint64)
_REAL = (rushlight.float16, rushlight.bfloat16, rushlight.float32, rushlight.float64)
_COMPLEX = (rushlight.complex64, rushlight.complex128)

KINDS = {
    "bool": (rushlight.bool,),
    "signed integer": _SIGNED,
    "unsigned integer": _UNSIGNED,
    "integral": _SIGNED + _UNSIGNED,
    "real floating": _REAL,
    "complex floating": _COMPLEX,
    "numeric": _SIGNED + _UNSIGNED + _REAL + _COMPLEX,
}


def default_integer() -> dtype:
    """The dtype of integers that nothing else decides."""
    return rushlight.int64


def default_complex() -> dtype:
    """The complex dtype whose parts have the default floating point dtype."""
    return complex_of(rushlight.get_default_dtype())


def complex_of(real: dtype) -> dtype:
    """The complex dtype with the precision of a real one."""
    return rushlight.complex128 if real is rushlight.float64 else rushlight.complex64


def real_of(any_floating: dtype) -> dtype:
    """The real dtype with the precision of a complex one; a real one is itself."""
    if any_floating is rushlight.complex128:
        return rushlight.float64
    return rushlight.float32 if any_floating is rushlight.complex64 else any_floating


def _join_two(a: dtype, b: dtype) -> dtype:
    try:
        return join(a, b)
    except RuntimeError as error:
        raise TypeError(f"no dtype holds the values of both {a!r} and {b!r}") from error


def joined(*dtypes: dtype) -> dtype:
    """The smallest dtype that all convert to."""
    return reduce(_join_two, dtypes)


def _with_number(known: dtype, number: Any) -> dtype:
    """The dtype of an array operation with a Python number: the number gives its kind, the array the precision."""
    if isinstance(number, bool):
        return known
    if isinstance(number, int):
        return default_integer() if known is rushlight.bool else known
    if isinstance(number, float):
        return known if known.is_floating_point or known.is_complex else rushlight.get_default_dtype()
    if known.is_complex:
        return known
    return complex_of(known) if known.is_floating_point else default_complex()


def _number(value: Any) -> bool:
    return isinstance(value, (bool, int, float, complex))


def result_type(*arrays_and_dtypes: Any) -> dtype:
    """The dtype of an operation over arrays, dtypes and Python numbers.

    Raises ValueError where all are numbers, TypeError where no dtype holds all values (uint64 with a signed integer).

        >>> import rushlight.array_api as xp
        >>> xp.result_type(xp.uint16, xp.int8), xp.result_type(xp.asarray(1.0, dtype=xp.float64), xp.float32, 2)
        (torch.int32, torch.float64)
    """
    known, numbers = [], []
    for one in arrays_and_dtypes:
        if isinstance(one, Tensor):
            known.append(one.dtype)
        elif isinstance(one, dtype):
            known.append(one)
        elif _number(one):
            numbers.append(one)
        else:
            raise TypeError(f"result_type: expected arrays, dtypes and numbers, found {type(one).__name__}")
    if not known:
        raise ValueError("result_type: expected at least one array or dtype, found numbers alone")
    return reduce(_with_number, numbers, joined(*known))


def operands(name: str, x1: Any, x2: Any) -> tuple[Any, Any]:
    """Both operands of a function as arrays of their common dtype; one may be a Python number."""
    if isinstance(x1, Tensor) and isinstance(x2, Tensor):
        if x1.dtype is x2.dtype:
            return x1, x2
        common = joined(x1.dtype, x2.dtype)
        return x1.to(common), x2.to(common)
    array, number = (x1, x2) if isinstance(x1, Tensor) else (x2, x1)
    if hasattr(number, "dtype") and hasattr(number, "item"):
        number = number.item()  # a NumPy scalar
    if not isinstance(array, Tensor) or not _number(number):
        raise TypeError(
            f"{name}: expected arrays, or an array and a number, found {type(x1).__name__} and {type(x2).__name__}"
        )
    common = _with_number(array.dtype, number)
    array, made = array.to(common), rushlight.tensor(number, dtype=common, device=array.device)
    return (array, made) if isinstance(x1, Tensor) else (made, array)


def can_cast(from_: Any, to: dtype, /) -> bool:
    """Whether every value of `from_` (an array or a dtype) has a place in `to` by the rules of promotion.

    >>> import rushlight.array_api as xp
    >>> xp.can_cast(xp.int32, xp.int64), xp.can_cast(xp.int64, xp.int32), xp.can_cast(xp.uint8, xp.int8)
    (True, False, False)
    """
    source = from_.dtype if isinstance(from_, Tensor) else from_
    if not isinstance(source, dtype) or not isinstance(to, dtype):
        raise TypeError(f"can_cast: expected an array or a dtype, and a dtype; found {source!r} and {to!r}")
    try:
        return joined(source, to) is to
    except TypeError:
        return False


def isdtype(dtype: dtype, kind: Any) -> bool:
    """Whether a dtype is of a kind: a dtype, "bool", "signed integer", "unsigned integer", "integral", "real floating",
    "complex floating", "numeric", or a tuple of these.

        >>> import rushlight.array_api as xp
        >>> xp.isdtype(xp.int8, "integral"), xp.isdtype(xp.int8, ("bool", xp.float32))
        (True, False)
    """
    if isinstance(kind, tuple):
        return any(isdtype(dtype, one) for one in kind)
    if isinstance(kind, str):
        if kind not in KINDS:
            raise ValueError(f"isdtype: expected one of {', '.join(map(repr, KINDS))}, found {kind!r}")
        return dtype in KINDS[kind]
    if not isinstance(kind, rushlight.dtype):
        raise TypeError(f"isdtype: expected a dtype, a string or a tuple of these, found {type(kind).__name__}")
    return dtype is kind


class FloatLimits(NamedTuple):
    """Limits of a floating point dtype; of a complex one, those of its parts."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: dtype


class IntegerLimits(NamedTuple):
    """Limits of an integer dtype."""

    bits: int
    max: int
    min: int
    dtype: dtype


def finfo(type: Any, /) -> FloatLimits:
    """Limits of a floating point dtype, or of an array's.

    >>> import rushlight.array_api as xp
    >>> xp.finfo(xp.float32).eps, xp.finfo(xp.complex128).dtype
    (1.1920928955078125e-07, torch.float64)
    """
    asked = type.dtype if isinstance(type, Tensor) else type
    if asked not in _REAL + _COMPLEX:
        raise TypeError(f"finfo: expected a floating point dtype, found {asked!r}")
    limits, real = rushlight.finfo(asked), real_of(asked)
    return FloatLimits(real.itemsize * 8, limits.eps, limits.max, limits.min, limits.smallest_normal, real)


def iinfo(type: Any, /) -> IntegerLimits:
    """Limits of an integer dtype, or of an array's.

    >>> import rushlight.array_api as xp
    >>> xp.iinfo(xp.uint16).max
    65535
    """
    asked = type.dtype if isinstance(type, Tensor) else type
    if asked not in KINDS["integral"]:
        raise TypeError(f"iinfo: expected an integer dtype, found {asked!r}")
    limits = rushlight.iinfo(asked)
    return IntegerLimits(limits.bits, limits.max, limits.min, asked)


def astype(x: Tensor, dtype: dtype, /, *, copy: bool = True, device: Any = None) -> Tensor:
    """The values in another dtype; `x` itself where nothing changes and `copy` is False.

    Raises TypeError for complex values in a real dtype: take `real` or `abs` of them.

        >>> import rushlight.array_api as xp
        >>> xp.astype(xp.asarray([0.5, 2.5]), xp.int8)
        tensor([0, 2], dtype=torch.int8)
    """
    if x.dtype.is_complex and not dtype.is_complex and dtype is not rushlight.bool:
        raise TypeError(f"astype: complex values have no place in {dtype!r}; take `real(x)` or `abs(x)`")
    return x.to(device=device, dtype=dtype, copy=copy)
