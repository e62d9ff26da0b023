"""Tables of the functions that lower primitives, for each kind of dtype."""

from __future__ import annotations

from typing import Any

from . import arith, complexes, explog, hyper, power, trig
from .arith import BOOL_BINARY, BOOL_UNARY, INT_BINARY, INT_UNARY
from .special import erf, gamma, gammainc, polynomials, zeta

__all__ = ["BINARY", "BOOL_BINARY", "BOOL_UNARY", "COMPLEX_BINARY", "COMPLEX_UNARY", "INT_BINARY", "INT_UNARY", "UNARY"]

UNARY: dict[str, Any] = {**arith.FLOAT_UNARY, **explog.UNARY, **trig.UNARY, **hyper.UNARY, **erf.UNARY, **gamma.UNARY}
BINARY: dict[str, Any] = {
    **arith.FLOAT_BINARY,
    **trig.BINARY,
    **power.BINARY,
    **gammainc.BINARY,
    **polynomials.BINARY,
    **zeta.BINARY,
}
COMPLEX_UNARY: dict[str, Any] = complexes.UNARY
COMPLEX_BINARY: dict[str, Any] = complexes.BINARY
