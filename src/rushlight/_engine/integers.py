"""Integers and flags that say how an operation is done (sizes, dims, counts), as callers write them: ints, NumPy's, tensors that hold one.

True is none, nor is 2.0; what 64 bits cannot hold is a ValueError, as in PyTorch.
"""

from __future__ import annotations

import operator
from typing import Any

from rushlight._engine.tensor import Tensor

__all__ = ["as_flag", "as_int", "as_ints", "integer", "is_numpy_scalar"]

_SIGNED = 2**63


def integer(value: Any, item: bool = False) -> int:
    """The int; a bare TypeError for what is none.

    A tensor of integers stands for one if it has no dims, or one element where the int is an `item` of a list; an array only there.
    """
    if isinstance(value, (bool, float, complex)):
        raise TypeError
    if isinstance(value, Tensor):
        if not value._spec.dtype.is_integer or value._spec.numel != 1 or (value._spec.ndim and not item):
            raise TypeError
        return int(value.item())
    if hasattr(value, "__setitem__") and not item:  # an array without dims has an index too: it may stand in a list
        raise TypeError
    found = operator.index(value)
    if not -_SIGNED <= found < _SIGNED:
        raise ValueError("Overflow when unpacking long long")
    return found


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
            found.append(each if type(each) is int else int(each) if place and isinstance(each, bool) else integer(each, True))
        except TypeError:
            raise TypeError(
                f"{name}(): argument '{argument}' must be tuple of ints, but found element of type {type(each).__name__} at pos {place}"
            ) from None
    return tuple(found)


def is_numpy_scalar(value: Any) -> bool:
    """Whether it is one of NumPy's numbers; an array without dims is none."""
    return type(value).__module__ == "numpy" and hasattr(value, "item") and not hasattr(value, "__setitem__")
