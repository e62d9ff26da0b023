"""Adafactor's update of many parameters at once: each needs sums over its rows and columns, so a parameter is never
divided.

A row of the table: number of elements, parameter, gradient, averages of rows, of columns, of all elements (addresses),
rows and columns of its matrices (0 for a vector), the decay of the old averages, the rate before it is scaled (floats).
"""

from __future__ import annotations

from functools import cache
from typing import Any

from rushlight._backends.cpu.optim.optimizers import PIECE_WORDS, PIECES_AT
from rushlight._backends.cpu.runtime.stubs import make_kernel_callable, native_address
from rushlight._native import NativeFunction, f32, f64, fma, load, native, select, sqrt, stack, store
from rushlight._native import ptr as ptr_type

__all__ = ["ROW", "adafactor_kernel"]

ROW = 10
SIZE, PARAM, GRAD, OVER_ROWS, OVER_COLUMNS, MOMENTS, ROWS, COLUMNS, SHARE, RATE = range(ROW)

_LANES = 16  # partial sums, the lanes of vectors


def _squares(T: Any) -> NativeFunction:
    """The sum of the squares of n elements."""
    width = 4 if T is f32 else 8

    @native("f64(ptr, i64)", name=f"rl_squares_{T}")
    def squares(p, n):
        partial = stack(_LANES * 8)
        for j in range(_LANES):
            store(T, partial, j, T(0.0))
        whole = n - n % _LANES
        i = 0
        while i < whole:
            part = p + i * width
            for j in range(_LANES):
                x = load(T, part, j)
                store(T, partial, j, fma(x, x, load(T, partial, j)))
            i += _LANES
        total = 0.0
        for j in range(_LANES):
            total += f64(load(T, partial, j))
        while i < n:
            last = f64(load(T, p, i))
            total += last * last
            i += 1
        return total

    return squares


def _update(T: Any) -> NativeFunction:
    """One element of the update: the gradient over the root of its second moment, which is r c / mean and at least
    `floor`."""

    @native(f"{T}({T}, {T}, {T}, {T}, {T})", name=f"rl_adafactor_update_{T}", inline=True)
    def update(g, c, r, mean, floor):
        moment = r * c / mean
        return T(1.0) / sqrt(select(moment < floor, floor, moment)) * g

    return update


def _measure(T: Any) -> NativeFunction:
    """The sum of the squares of the update of n elements."""
    width = 4 if T is f32 else 8
    update = _update(T)

    @native(f"f64(ptr, ptr, i64, {T}, {T}, {T})", name=f"rl_adafactor_measure_{T}")
    def measure(g, c, n, r, mean, floor):
        partial = stack(_LANES * 8)
        for j in range(_LANES):
            store(T, partial, j, T(0.0))
        whole = n - n % _LANES
        i = 0
        while i < whole:
            gs = g + i * width
            cs = c + i * width
            for j in range(_LANES):
                u = update(load(T, gs, j), load(T, cs, j), r, mean, floor)
                store(T, partial, j, fma(u, u, load(T, partial, j)))
            i += _LANES
        total = 0.0
        for j in range(_LANES):
            total += f64(load(T, partial, j))
        while i < n:
            last = f64(update(load(T, g, i), load(T, c, i), r, mean, floor))
            total += last * last
            i += 1
        return total

    return measure


def _move(T: Any) -> NativeFunction:
    """Shrink n elements and add the update."""
    update = _update(T)

    @native(f"void(ptr, ptr, ptr, i64, {T}, {T}, {T}, {T}, {T})", name=f"rl_adafactor_move_{T}")
    def move(p, g, c, n, r, mean, floor, shrink, rate):
        for i in range(n):
            u = update(load(T, g, i), load(T, c, i), r, mean, floor)
            store(T, p, i, fma(u, rate, load(T, p, i) * shrink))

    return move


def _averages(T: Any, squares: NativeFunction) -> NativeFunction:
    """Move the averages of the rows and columns of a matrix."""
    width = 4 if T is f32 else 8

    @native("void(ptr, ptr, ptr, i64, i64, f64)", name=f"rl_adafactor_averages_{T}")
    def averages(g, over_rows, over_columns, rows, columns, decay):
        share = T(decay)
        part = T(decay / f64(rows))
        for j in range(columns):
            old = load(T, over_columns, j)
            store(T, over_columns, j, old - share * old)
        for i in range(rows):
            line = g + i * columns * width
            old = load(T, over_rows, i)
            store(T, over_rows, i, fma(share, T(squares(line, columns) / f64(columns)) - old, old))
            for j in range(columns):
                x = load(T, line, j)
                store(T, over_columns, j, fma(part * x, x, load(T, over_columns, j)))

    return averages


def _adafactor(T: Any) -> NativeFunction:
    """Numbers: least mean, least scale, d, least moment, factor for the parameter, minus the sign."""
    width = 4 if T is f32 else 8
    squares, measure, move = _squares(T), _measure(T), _move(T)
    averages = _averages(T, squares)

    @native("T(ptr, i64, f64)".replace("T", str(T)), name=f"rl_adafactor_mean_{T}")
    def mean_of(over_rows, rows, least):
        total = 0.0
        for i in range(rows):
            total += f64(load(T, over_rows, i))
        mean = total / f64(rows)
        return T(select(mean < least, least, mean))

    @native("void(ptr, ptr, ptr, ptr, f64)", name=f"rl_adafactor_matrices_{T}")
    def matrices(numbers, row, p, g, rate):
        over_rows = load(ptr_type, row, OVER_ROWS)
        over_columns = load(ptr_type, row, OVER_COLUMNS)
        rows = row.i64[ROWS]
        columns = row.i64[COLUMNS]
        count = row.i64[SIZE] // (rows * columns)
        floor = T(numbers.f64[3])
        total = 0.0
        for k in range(count):
            start = k * rows * columns
            means = over_rows + k * rows * width
            below = over_columns + k * columns * width
            averages(g + start * width, means, below, rows, columns, row.f64[SHARE])
            mean = mean_of(means, rows, numbers.f64[0])
            for i in range(rows):
                total += measure(g + (start + i * columns) * width, below, columns, load(T, means, i), mean, floor)
        scale = sqrt(total / f64(row.i64[SIZE])) / numbers.f64[2]
        step = T(rate / select(scale > 1.0, scale, 1.0))
        for k in range(count):
            start = k * rows * columns
            means = over_rows + k * rows * width
            below = over_columns + k * columns * width
            mean = mean_of(means, rows, numbers.f64[0])
            for i in range(rows):
                at = (start + i * columns) * width
                move(p + at, g + at, below, columns, load(T, means, i), mean, floor, T(numbers.f64[4]), step)

    @native("void(ptr, ptr, ptr, ptr, f64)", name=f"rl_adafactor_vector_{T}")
    def vector(numbers, row, p, g, rate):
        moments = load(ptr_type, row, MOMENTS)
        n = row.i64[SIZE]
        share = T(row.f64[SHARE])
        floor = T(numbers.f64[3])
        for i in range(n):
            x = load(T, g, i)
            old = load(T, moments, i)
            store(T, moments, i, fma(share, x * x - old, old))
        total = measure(g, moments, n, T(1.0), T(1.0), floor)
        scale = sqrt(total / f64(n)) / numbers.f64[2]
        step = T(rate / select(scale > 1.0, scale, 1.0))
        move(p, g, moments, n, T(1.0), T(1.0), floor, T(numbers.f64[4]), step)

    @native("i32(ptr, ptr, i64)", name=f"rl_adafactor_{T}")
    def adafactor(bufs, ints, piece):
        table = load(ptr_type, bufs, 0)
        numbers = load(ptr_type, bufs, 1)
        work = ints + (PIECES_AT + piece * PIECE_WORDS) * 8
        r = work.i64[0]
        while r < work.i64[1]:
            row = table + r * ROW * 8
            p = load(ptr_type, row, PARAM)
            g = load(ptr_type, row, GRAD)
            size = sqrt(squares(p, row.i64[SIZE]) / f64(row.i64[SIZE]))
            rate = select(size > numbers.f64[1], size, numbers.f64[1]) * row.f64[RATE] * numbers.f64[5]
            if row.i64[COLUMNS] > 0:
                matrices(numbers, row, p, g, rate)
            else:
                vector(numbers, row, p, g, rate)
            r += 1
        return 0

    return adafactor


@cache
def adafactor_kernel(dtype: str) -> Any:
    """The callable kernel for float32 or float64."""
    function = _adafactor(f32 if dtype == "float32" else f64)
    return make_kernel_callable(native_address(function), function.symbol, function, 2)
