"""Small functions of host code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rushlight._interface.base import trace_marks

from ._semantics.constants import constexpr_function

__all__ = ["cdiv", "next_power_of_2", "set_allocator"]


@constexpr_function
def cdiv(x: int, y: int) -> int:
    """x / y of integers, rounded up; in kernels, of constexpr values."""
    return -(-x // y)


@constexpr_function
def next_power_of_2(n: int) -> int:
    """The least power of 2 that is not below n."""
    return 1 << (n - 1).bit_length() if n > 0 else 0


@trace_marks.changes_later_calls
def set_allocator(allocator: Callable[[int, int, Any], Any]) -> None:
    """Takes a function for scratch memory of kernels; kernels here need none."""
