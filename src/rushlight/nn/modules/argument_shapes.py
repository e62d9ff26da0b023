"""Arguments that may be one number or one number for each dimension."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = ["reverse_repeat_tuple", "spread"]


def spread(value: Any, n: int) -> tuple[Any, ...]:
    """A tuple of `n` values: an iterable is taken as it is, anything else is repeated."""
    return tuple(value) if isinstance(value, Iterable) else (value,) * n


def reverse_repeat_tuple(values: Iterable[int], n: int) -> tuple[int, ...]:
    """`(1, 2)` with n=2 becomes `(2, 2, 1, 1)`: paddings by dimension as `F.pad` wants them, last dimension first."""
    return tuple(value for value in reversed(tuple(values)) for _ in range(n))
