"""`torch.utils._sympy.value_ranges`: least and greatest value of a symbolic number.

>>> ValueRanges(2, int_oo), 3 in ValueRanges(2, 5)
(VR[2, int_oo], True)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rushlight.utils._sympy.numbers import int_oo

__all__ = ["ValueRangeError", "ValueRanges"]


class ValueRangeError(RuntimeError):
    """Bounds exclude each other."""


@dataclass(frozen=True, repr=False)
class ValueRanges:
    """All values from `lower` to `upper`; ValueRangeError where there are none."""

    lower: Any
    upper: Any

    def __post_init__(self) -> None:
        if self.lower > self.upper:
            raise ValueRangeError(f"Invalid ranges [{self.lower}:{self.upper}]")

    def __contains__(self, x: Any) -> bool:
        return bool(self.lower <= x <= self.upper)

    def __and__(self, other: ValueRanges) -> ValueRanges:
        return ValueRanges(max(self.lower, other.lower), min(self.upper, other.upper))

    def __or__(self, other: ValueRanges) -> ValueRanges:
        return ValueRanges(min(self.lower, other.lower), max(self.upper, other.upper))

    def issubset(self, other: ValueRanges) -> bool:
        """Whether the other range holds all values of this one."""
        return bool(other.lower <= self.lower and self.upper <= other.upper)

    def is_singleton(self) -> bool:
        """Whether there is one value."""
        return bool(self.lower == self.upper)

    def is_bool(self) -> bool:
        """Whether the values are truth values."""
        return isinstance(self.lower, bool)

    @staticmethod
    def unknown_int() -> ValueRanges:
        """All integers."""
        return ValueRanges(-int_oo, int_oo)

    def __repr__(self) -> str:
        return f"VR[{self.lower}, {self.upper}]"
