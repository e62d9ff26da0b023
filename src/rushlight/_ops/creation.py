"""Values from nothing: the cores of `arange`, `linspace` and their kin, over `iota`.  They take no tensors."""

from __future__ import annotations

import math
from typing import Any

from rushlight._ops.bodies import number_value
from rushlight._ops.table import operator
from rushlight._prims import build, prim
from rushlight._types.dtype import BOOL, COMPLEX128, FLOAT32, FLOAT64, INT64, DType

__all__: list[str] = []

CORE: dict[str, Any] = {"spaces": (), "method": False}


def _index(shape: tuple[int, ...], dim: int, dtype: DType) -> Any:
    return prim.iota(shape=shape, dim=dim, dtype=dtype)


@operator("arange_core(Scalar start, Scalar step, int length, dtype dtype) -> Tensor", **CORE)
def arange_core(start: Any, step: Any, length: int, dtype: DType) -> Any:
    """start + i * step, computed in double precision (or int64) and rounded once."""
    wide = INT64 if dtype.is_integer else FLOAT64
    steps = _index((length,), 0, wide) * number_value(step, wide)
    return build.convert(steps + number_value(start, wide), dtype)


def _line(start: Any, end: Any, steps: int, dtype: DType) -> Any:
    """From both ends toward the middle, in `dtype`: the ends are exact and the halves mirror each other."""
    wide = dtype if dtype in (FLOAT32, FLOAT64) else COMPLEX128 if dtype.is_complex else FLOAT32
    first, last = number_value(start, wide), number_value(end, wide)
    if steps == 1:
        return build.broadcast_to(first, (1,))
    at = _index((steps,), 0, wide if not wide.is_complex else FLOAT64)
    index = build.complex_(at) if wide.is_complex else at
    step = (last - first) / float(steps - 1)
    shape = (steps,)
    first, last, step = (build.broadcast_to(v, shape) for v in (first, last, step))
    low = _index(shape, 0, INT64) < steps // 2
    return build.select(low, first + step * index, last - step * (float(steps - 1) - index))


@operator("linspace_core(Scalar start, Scalar end, int steps, dtype dtype) -> Tensor", **CORE)
def linspace_core(start: Any, end: Any, steps: int, dtype: DType) -> Any:
    """start + i * (end - start) / (steps - 1): `steps` numbers at equal distances."""
    if steps == 0:
        return build.full((0,), 0, dtype)
    if dtype.is_integer:
        return _whole_line(start, end, steps, dtype)
    return build.convert(_line(start, end, steps, dtype), dtype)


def _whole_line(start: Any, end: Any, steps: int, dtype: DType) -> Any:
    """Whole numbers: ends cut toward 0 first, then what lies between."""
    first, last = (build.convert(number_value(v, INT64), FLOAT64) for v in (start, end))
    if steps == 1:
        return build.convert(build.broadcast_to(first, (1,)), dtype)
    shape = (steps,)
    step = build.convert(build.convert((last - first) / float(steps - 1), FLOAT32), FLOAT64)
    first, last, step = (build.broadcast_to(v, shape) for v in (first, last, step))
    at = _index(shape, 0, FLOAT64)
    low = _index(shape, 0, INT64) < steps // 2
    return build.convert(prim.trunc(build.select(low, first + step * at, last - step * (float(steps - 1) - at))), dtype)


@operator("logspace_core(Scalar start, Scalar end, int steps, float base, dtype dtype) -> Tensor", **CORE)
def logspace_core(start: Any, end: Any, steps: int, base: float, dtype: DType) -> Any:
    """base ^ (start + i * (end - start) / (steps - 1)): `steps` numbers."""
    if steps == 0:
        return build.full((0,), 0, dtype)
    line = _line(start, end, steps, FLOAT64 if dtype.is_integer else dtype)
    return build.convert(prim.pow(build.full_like(line, base), line), dtype)


@operator("eye_core(int n, int m, dtype dtype) -> Tensor", **CORE)
def eye_core(n: int, m: int, dtype: DType) -> Any:
    """1 on the main diagonal, 0 elsewhere."""
    here = prim.eq(_index((n, m), 0, INT64), _index((n, m), 1, INT64))
    return here if dtype is BOOL else build.convert(here, dtype)


@operator("tril_indices_core(int row, int col, int offset, dtype dtype) -> Tensor", **CORE)
def tril_indices_core(row: int, col: int, offset: int, dtype: DType) -> Any:
    """(i, j) with j - i <= offset: rows and columns of the places on and below a diagonal, as a (2, n) tensor."""
    counts = [min(max(i + offset + 1, 0), col) for i in range(row)]
    return _places([(i, 0, n) for i, n in enumerate(counts)], dtype)


@operator("triu_indices_core(int row, int col, int offset, dtype dtype) -> Tensor", **CORE)
def triu_indices_core(row: int, col: int, offset: int, dtype: DType) -> Any:
    """(i, j) with j - i >= offset: rows and columns of the places on and above a diagonal, as a (2, n) tensor."""
    starts = [min(max(i + offset, 0), col) for i in range(row)]
    return _places([(i, start, col - start) for i, start in enumerate(starts)], dtype)


def _places(runs: list[tuple[int, int, int]], dtype: DType) -> Any:
    """(row, first column, how many) as two rows of indices."""
    runs = [run for run in runs if run[2]]
    if not runs:
        return build.full((2, 0), 0, dtype)
    rows = [build.full((1, n), i, INT64) for i, _, n in runs]
    columns = [_index((1, n), 1, INT64) + start for _, start, n in runs]
    return build.convert(prim.cat(prim.cat(*rows, dim=1), prim.cat(*columns, dim=1), dim=0), dtype)


# ***** windows for signals: cosines over a period *****


@operator("cosine_window_core(int length, bool periodic, float[] coefficients, dtype dtype) -> Tensor", **CORE)
def cosine_window_core(length: int, periodic: bool, coefficients: Any, dtype: DType) -> Any:
    """sum of (-1)^k c_k cos(2 pi k n / N): the windows of Hann, Hamming and Blackman."""
    if length <= 1:
        return build.full((length,), 1.0, dtype)
    span = float(length if periodic else length - 1)
    angle = _index((length,), 0, FLOAT64) * (2.0 * math.pi / span)
    total = build.full_like(angle, coefficients[0])
    for k, coefficient in enumerate(coefficients[1:], 1):
        total = total + prim.cos(angle * float(k)) * (coefficient * (-1.0) ** k)
    return build.convert(total, dtype)


@operator("bartlett_window_core(int length, bool periodic, dtype dtype) -> Tensor", **CORE)
def bartlett_window_core(length: int, periodic: bool, dtype: DType) -> Any:
    """A triangle from 0 to 1 and back."""
    if length <= 1:
        return build.full((length,), 1.0, dtype)
    span = float(length if periodic else length - 1)
    rising = _index((length,), 0, FLOAT64) * (2.0 / span)
    return build.convert(build.select(rising <= 1.0, rising, 2.0 - rising), dtype)
