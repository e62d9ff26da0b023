"""Integers and flags that say how an operation is done (sizes, dims, counts), as callers write them: ints, NumPy's,
tensors that hold one.

True is none, nor is 2.0; what 64 bits cannot hold is a ValueError, as in PyTorch.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from rushlight._engine.core.tensor import Tensor
from rushlight._types.symbols import as_index

__all__ = ["as_flag", "as_int", "as_ints", "integer", "is_numpy_scalar", "number_in_range", "numpy_number", "too_large"]

_SIGNED = 2**63


def integer(value: Any, item: bool = False) -> int:
    """The int; a bare TypeError for what is none.

    A tensor of integers stands for one if it has no dims, or one element where the int is an `item` of a list; an array
    only there.
    """
    if isinstance(value, (bool, float, complex)):
        raise TypeError
    if isinstance(value, Tensor):
        if not value._spec.dtype.is_integer or value._spec.numel != 1 or (value._spec.ndim and not item):
            raise TypeError
        return int(value.item())
    if hasattr(value, "__setitem__") and not item:  # an array without dims has an index too: it may stand in a list
        raise TypeError
    found = as_index(value)
    if not -_SIGNED <= found < _SIGNED:
        raise ValueError("Overflow when unpacking long long")
    return found


def _item(value: Any, place: int) -> int:
    """One int of a list, where True may stand after the first."""
    if type(value) is int and -_SIGNED <= value < _SIGNED:
        return value
    return int(value) if place and isinstance(value, bool) else integer(value, True)


def too_large(name: str, argument: str, values: Sequence[Any], error: ValueError) -> TypeError:
    """The error for a list with an int that 64 bits cannot hold."""
    place = next((k for k, v in enumerate(values) if not -_SIGNED <= operator.index(v) < _SIGNED), 0)
    return TypeError(
        f"{name}(): argument '{argument}' failed to unpack the object at pos {place + 1} with error \"{error}\""
    )


def as_int(name: str, argument: str, value: Any) -> int:
    """The int that was given as an argument of a function; TypeError that names both."""
    if type(value) is int and -_SIGNED <= value < _SIGNED:
        return value
    try:
        return integer(value)
    except TypeError:
        raise TypeError(f"{name}(): argument '{argument}' must be int, not {type(value).__name__}") from None


def as_flag(name: str, argument: str, value: Any) -> bool:
    """The bool that was given as an argument of a function; TypeError that names both."""
    if not isinstance(value, bool):
        raise TypeError(f"{name}(): argument '{argument}' must be bool, not {type(value).__name__}")
    return value


def as_ints(name: str, argument: str, value: Any) -> tuple[int, ...]:
    """A tuple or list of ints that was given as an argument of a function; TypeError that names both.

    PyTorch's parser looks at the first item: True may stand after it.
    """
    if not isinstance(value, (tuple, list)):
        raise TypeError(f"{name}(): argument '{argument}' must be tuple of ints, not {type(value).__name__}")
    found = []
    for place, each in enumerate(value):
        try:
            found.append(_item(each, place))
        except TypeError:
            raise TypeError(
                f"{name}(): argument '{argument}' must be tuple of ints, but found element of type {type(each).__name__} at pos {place}"
            ) from None
        except ValueError as error:
            raise too_large(name, argument, value, error) from None
    return tuple(found)


def number_in_range(value: Any) -> Any:
    """A number as it is; OverflowError for an int that 64 bits hold neither with a sign nor without."""
    if type(value) is int and not -_SIGNED <= value < 2 * _SIGNED:
        raise OverflowError("int too big to convert" if value > 0 else "can't convert negative int to unsigned")
    return value


def is_numpy_scalar(value: Any) -> bool:
    """Whether it is one of NumPy's scalars, a number or not; an array without dims is none."""
    return type(value).__module__ == "numpy" and hasattr(value, "item") and not hasattr(value, "__setitem__")


def numpy_number(value: Any) -> int | float | complex | None:
    """A NumPy number as Python's; None for text, dates, arrays and what is not NumPy's.

    `numpy.bool` counts as the float 1.0 or 0.0, as in PyTorch.  TypeError for an unsigned number beyond 63 bits.
    """
    if not is_numpy_scalar(value):
        return None
    kind = value.dtype.kind
    if kind in "iu":
        found = int(value)
        if found >= _SIGNED:
            raise TypeError("an integer is required")
        return found
    if kind in "fb":
        return float(value)
    return complex(value) if kind == "c" else None
