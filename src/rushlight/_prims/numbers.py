"""Arithmetic of the references: in a wider dtype, rounded once; and the few functions that NumPy lacks.

bfloat16, float8 and complex32 have no NumPy dtypes.  References store them as float32 or complex64 arrays of rounded
values.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from rushlight._base.lazy import numpy as np
from rushlight._types.dtype import BFLOAT16, COMPLEX32, FLOAT8, DType
from rushlight._types.float8 import encode, values

__all__ = ["digamma", "erf", "erfc", "erfinv", "holder", "lgamma", "round_to_bfloat16", "rounded", "stored", "wide"]

_WIDER = {"float16": "float64", "float32": "float64", "complex64": "complex128"}


def holder(dtype: DType) -> str:
    """The NumPy dtype in which references store `dtype`."""
    if dtype.kind in "xq":
        return f"uint{8 * dtype.itemsize}"
    return dtype.name if dtype.numpy_name else dtype.wide.name


def rounded(x: Any, dtype: DType) -> Any:
    """Values rounded to `dtype`, in the array type that stores it."""
    if dtype is BFLOAT16:
        return round_to_bfloat16(x)
    if dtype is COMPLEX32:
        x = np.asarray(x, dtype=np.complex64)
        return (x.real.astype(np.float16) + np.complex64(1j) * x.imag.astype(np.float16)).astype(np.complex64)
    if dtype in FLOAT8:
        single = np.asarray(x, dtype=np.float32)
        codes = [encode(dtype.name, v) for v in single.ravel().tolist()]
        return np.array(values(dtype.name), dtype=np.float32)[codes].reshape(single.shape)
    return x


def round_to_bfloat16(x: Any) -> Any:
    """Float32 values rounded to the nearest bfloat16, ties to even; NaN stays NaN."""
    single = np.asarray(x, dtype=np.float32)
    bits = single.view(np.uint32).astype(np.uint64)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)
    return np.where(np.isnan(single), single, rounded)


def stored(x: Any, dtype: DType) -> Any:
    """`x` converted to `dtype` as a C cast does (floats to integers toward zero), in the array type that stores it."""
    x = np.asarray(x)
    if dtype.is_floating_point and dtype.wide is not dtype and not dtype.numpy_name:
        return rounded(x.real if x.dtype.kind == "c" else x, dtype)
    if dtype is COMPLEX32:
        return rounded(x, dtype)
    if x.dtype.kind == "c" and not dtype.is_complex and dtype.kind != "b":
        x = x.real
    if x.dtype.kind == "f" and dtype.is_integer:
        x = x.astype(np.int64)
    return x.astype(dtype.name)


def wide(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compute in double precision and round once to the operands' dtype."""

    def reference(*xs: Any) -> Any:
        name = xs[0].dtype.name
        return np.asarray(function(*(x.astype(_WIDER.get(name, name)) for x in xs))).astype(name)

    return reference


def _scalarwise(function: Callable[[float], float]) -> Callable[..., Any]:
    def apply(x: Any) -> Any:
        x = np.asarray(x)
        return np.array([function(float(v)) for v in x.ravel()], dtype=np.float64).reshape(x.shape)

    return apply


def _erfinv(x: float) -> float:
    if math.isnan(x) or abs(x) > 1:
        return math.nan
    if abs(x) == 1:
        return math.copysign(math.inf, x)
    log = math.log((1 - x) * (1 + x))  # Winitzki's approximation, then Newton's method on erf or, in the tail, on erfc
    lead = 2 / (math.pi * 0.147) + log / 2
    y = math.copysign(math.sqrt(max(math.sqrt(lead * lead - log / 0.147) - lead, 0.0)), x)
    for _ in range(4):
        error = math.erf(y) - x if abs(x) < 0.5 else math.copysign(1.0, x) * ((1 - abs(x)) - math.erfc(abs(y)))
        y -= error * math.sqrt(math.pi) / 2 * math.exp(y * y)
    return y if x else x


def _lgamma(x: float) -> float:
    try:
        return math.lgamma(x)
    except ValueError:  # a pole
        return math.inf


def _digamma(x: float) -> float:
    if math.isnan(x) or x == -math.inf or (x < 0 and x == math.floor(x)):
        return math.nan
    if x == 0:
        return math.copysign(math.inf, -x)
    if x == math.inf:
        return math.inf
    if x < 0:
        return _digamma(1 - x) - math.pi / math.tan(math.pi * (x % 1.0))
    shifted = 0.0
    while x < 10:
        shifted -= 1 / x
        x += 1
    square = 1 / (x * x)
    series = square * (
        1 / 12
        - square * (1 / 120 - square * (1 / 252 - square * (1 / 240 - square * (1 / 132 - square * 691 / 32760))))
    )
    return shifted + math.log(x) - 0.5 / x - series


erf = _scalarwise(math.erf)
erfc = _scalarwise(math.erfc)
erfinv = _scalarwise(_erfinv)
lgamma = _scalarwise(_lgamma)
digamma = _scalarwise(_digamma)
