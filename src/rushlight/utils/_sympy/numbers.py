"""`torch.utils._sympy.numbers`: the integer that is greater than all others.

>>> int_oo, -int_oo, 5 < int_oo
(int_oo, -int_oo, True)
"""

from __future__ import annotations

__all__ = ["IntInfinity", "int_oo"]


class IntInfinity(float):
    """An infinite bound of integers."""

    def __new__(cls, sign: int = 1) -> IntInfinity:
        return super().__new__(cls, sign * float("inf"))

    def __neg__(self) -> IntInfinity:
        return IntInfinity(-1 if self > 0 else 1)

    def __repr__(self) -> str:
        return "int_oo" if self > 0 else "-int_oo"

    __str__ = __repr__


int_oo = IntInfinity()
