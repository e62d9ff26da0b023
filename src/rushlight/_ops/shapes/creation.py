"""Values without tensor operands: the cores of `arange`, `linspace` and their kin, over `iota`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from rushlight._ops.bodies import HALF, number_value, wide
from rushlight._ops.table import operator
from rushlight._prims import build, prim
from rushlight._types.dtype import BOOL, FLOAT32, FLOAT64, INT64, DType
from rushlight._types.symbols import as_double

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


def _fused(first: Any, step: Any, at: Any) -> Any:
    """first + step * at in float64, rounded once: the step is split so that the products are exact."""
    bits = prim.bitcast(step, dtype=INT64)
    high = prim.bitcast(prim.bitwise_and(bits, build.full_like(bits, -(1 << 27))), dtype=FLOAT64)
    part = high * at
    total = first + part
    gone = total - first
    return total + ((first - (total - gone)) + (part - gone) + (step - high) * at)


def _between(first: Any, last: Any, steps: int, combine: Callable[[Any, Any, Any], Any], dtype: DType) -> Any:
    """`steps` points counted from both ends toward the middle, so that the ends are exact and the halves mirror each
    other.

    first and last are values of shape (); `combine(end, step, number of steps)` computes a point.
    """
    shape = (steps,)
    step = (last - first) / as_double(steps - 1)
    first, last, step = (build.broadcast_to(v, shape) for v in (first, last, step))
    at = _index(shape, 0, INT64)
    left, right = (_counted(n, dtype) for n in (at, (steps - 1) - at))
    return build.select(at < steps // 2, combine(first, step, left), combine(last, -step, right))


def _counted(number: Any, dtype: DType) -> Any:
    return build.complex_(build.convert(number, dtype.to_real())) if dtype.is_complex else build.convert(number, dtype)


def _line(start: Any, end: Any, steps: int, dtype: DType) -> Any:
    """Equally spaced numbers, bit for bit as in PyTorch: a product and a sum are rounded once, but twice in half types."""
    first, last = number_value(start, dtype), number_value(end, dtype)
    if steps == 1:
        return build.broadcast_to(first, (1,))
    if dtype in HALF:
        return _half_line(wide(first), wide(last), steps, dtype)
    if dtype.is_complex:
        return _between(first, last, steps, lambda end, step, n: end + step * n, dtype)
    if dtype is FLOAT32:
        step = (last - first) / as_double(steps - 1)
        at = _index((steps,), 0, INT64)
        first, last, step = (build.broadcast_to(build.convert(v, FLOAT64), (steps,)) for v in (first, last, step))
        left, right = (build.convert(n, FLOAT64) for n in (at, (steps - 1) - at))
        return build.convert(build.select(at < steps // 2, first + step * left, last - step * right), FLOAT32)
    return _between(first, last, steps, _fused, FLOAT64)


def _half_line(first: Any, last: Any, steps: int, dtype: DType) -> Any:
    """Ends in float32; every step of the computation is rounded to the half type."""

    def rounded(v: Any) -> Any:
        return build.convert(build.convert(v, dtype), FLOAT32)

    gap = rounded(rounded(last - first) / rounded(build.full((), as_double(steps - 1), FLOAT32)))
    at = _index((steps,), 0, INT64)
    up, down = (rounded(rounded(build.convert(n, FLOAT32)) * gap) for n in (at, (steps - 1) - at))
    return build.convert(build.select(at < steps // 2, up + first, last - down), dtype)


@operator("linspace_core(Scalar start, Scalar end, int steps, dtype dtype) -> Tensor", **CORE)
def linspace_core(start: Any, end: Any, steps: int, dtype: DType) -> Any:
    """`steps` numbers from start to end at equal distances; for integers the ends and then all points are truncated
    toward 0."""
    if steps == 0:
        return build.full((0,), 0, dtype)
    if dtype.is_integer:
        return build.convert(_exponents(start, end, steps, dtype), dtype)
    return _line(start, end, steps, dtype)


def _exponents(start: Any, end: Any, steps: int, dtype: DType) -> Any:
    """Points between ends rounded to `dtype`, in float64."""
    first, last = (build.convert(number_value(v, dtype), FLOAT64) for v in (start, end))
    if steps == 1:
        return build.broadcast_to(first, (1,))
    step_dtype = dtype if dtype in HALF else FLOAT64  # half types keep the step in their own precision
    return _between(
        first,
        last,
        steps,
        lambda end, step, n: end + build.convert(build.convert(step, step_dtype), FLOAT64) * n,
        FLOAT64,
    )


@operator("logspace_core(Scalar start, Scalar end, int steps, Scalar base, dtype dtype) -> Tensor", **CORE)
def logspace_core(start: Any, end: Any, steps: int, base: Any, dtype: DType) -> Any:
    """base to the power of `steps` numbers from start to end."""
    if steps == 0:
        return build.full((0,), 0, dtype)
    line = _line(start, end, steps, dtype) if dtype.is_complex else _exponents(start, end, steps, dtype)
    return build.convert(prim.pow(build.broadcast_to(number_value(base, line.dtype), line.shape), line), dtype)


@operator("eye_core(int n, int m, dtype dtype) -> Tensor", **CORE)
def eye_core(n: int, m: int, dtype: DType) -> Any:
    """1 on the main diagonal, 0 elsewhere."""
    here = prim.eq(_index((n, m), 0, INT64), _index((n, m), 1, INT64))
    return here if dtype is BOOL else build.convert(here, dtype)


@operator("tril_indices_core(int row, int col, int offset, dtype dtype) -> Tensor", **CORE)
def tril_indices_core(row: int, col: int, offset: int, dtype: DType) -> Any:
    """(i, j) with j - i <= offset: rows and columns of the elements on and below a diagonal, as a (2, n) tensor."""
    return _row_ranges(row, col, [0] * row, [min(max(i + offset + 1, 0), col) for i in range(row)], dtype)


@operator("triu_indices_core(int row, int col, int offset, dtype dtype) -> Tensor", **CORE)
def triu_indices_core(row: int, col: int, offset: int, dtype: DType) -> Any:
    """(i, j) with j - i >= offset: rows and columns of the elements on and above a diagonal, as a (2, n) tensor."""
    return _row_ranges(row, col, [min(max(i + offset, 0), col) for i in range(row)], [col] * row, dtype)


def _row_ranges(row: int, col: int, starts: list[int], stops: list[int], dtype: DType) -> Any:
    """The elements start..stop of each row, as two rows of indices.

    Starts and stops change by at most one from row to row, between 0 and `col`: the graph computes both as functions of
    the row, so that its size does not grow with the number of rows.
    """
    total = sum(stop - start for start, stop in zip(starts, stops, strict=True))
    if not total:
        return build.full((2, 0), 0, dtype)
    start, stop = (_ramp_of(numbers, col) for numbers in (starts, stops))
    ends = prim.cumsum(stop - start, dim=0, reverse=False)
    marks = prim.scatter(build.full((total + 1,), 0, INT64), ends, build.full((row,), 1, INT64), dim=0, reduce="add")
    rows = prim.slice(prim.cumsum(marks, dim=0, reverse=False), starts=(0,), stops=(total,), steps=(1,))
    columns = _index((total,), 0, INT64) - prim.index(ends - stop, rows)
    return build.convert(prim.cat(*(build.reshape(v, (1, total)) for v in (rows, columns)), dim=0), dtype)


def _ramp_of(numbers: list[int], top: int) -> Any:
    """Numbers that increase by one from row to row within 0 and `top`, or stay."""
    count = len(numbers)
    at = _index((count,), 0, INT64)
    if numbers[0] == numbers[-1]:
        return build.full((count,), numbers[0], INT64)
    first = next(i for i in range(count) if numbers[i] != numbers[0])  # the ramp begins one row before
    line = at + (numbers[first] - first)
    return build.select(line < numbers[0], numbers[0], build.select(line > top, top, line))


# ***** windows for signals: cosines over a period *****


@operator("cosine_window_core(int length, bool periodic, float[] coefficients, dtype dtype) -> Tensor", **CORE)
def cosine_window_core(length: int, periodic: bool, coefficients: Any, dtype: DType) -> Any:
    """sum of (-1)^k c_k cos(2 pi k n / N): the windows of Hann, Hamming and Blackman."""
    if length <= 1:
        return build.full((length,), 1.0, dtype)
    span = as_double(length if periodic else length - 1)
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
    span = as_double(length if periodic else length - 1)
    rising = _index((length,), 0, FLOAT64) * (2.0 / span)
    return build.convert(build.select(rising <= 1.0, rising, 2.0 - rising), dtype)
