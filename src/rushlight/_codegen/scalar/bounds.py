"""Largest errors of the functions; tests hold the generated code to them."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["BOUNDS", "Bound"]


class Bound(NamedTuple):
    """Largest error in units in the last place of the exact result, for float32 and float64, with fused multiply-add.

    `absolute32` and `absolute64` are allowed instead where the function crosses zero between its poles: there a
    relative bound is out of reach of a method that adds terms of size one.
    """

    float32: float
    float64: float
    absolute32: float = 0.0
    absolute64: float = 0.0


BOUNDS: dict[str, Bound] = {
    "exp": Bound(1.1, 1.1),
    "exp2": Bound(1.0, 1.0),
    "expm1": Bound(1.6, 1.8),
    "log": Bound(1.0, 1.0),
    "log2": Bound(1.2, 1.2),
    "log10": Bound(1.0, 1.0),
    "log1p": Bound(1.6, 1.5),
    # over the whole range: beyond 2**17 (float64: 2**27) the C library's double function is called
    "sin": Bound(1.8, 1.5),
    "cos": Bound(1.9, 1.5),
    "tan": Bound(1.9, 1.8),
    "asin": Bound(1.4, 1.3),
    "acos": Bound(1.4, 1.3),
    "atan": Bound(1.5, 1.5),
    "sinh": Bound(1.7, 1.5),
    "cosh": Bound(1.6, 1.5),
    "tanh": Bound(1.5, 1.5),
    "asinh": Bound(0.6, 2.0),
    "acosh": Bound(0.6, 2.0),
    "atanh": Bound(0.6, 2.0),
    "erf": Bound(1.8, 1.2),
    "erfc": Bound(0.6, 3.5),
    "erfinv": Bound(0.7, 4.0),
    "lgamma": Bound(0.7, 4.0, 1e-9, 1e-14),
    "digamma": Bound(0.7, 4.0, 1e-9, 1e-14),
    "sqrt": Bound(0.5, 0.5),
    "rsqrt": Bound(1.5, 1.5),
    "pow": Bound(0.6, 1.2),
    "atan2": Bound(1.7, 1.5),
}
