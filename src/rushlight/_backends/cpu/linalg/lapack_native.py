"""One kernel that calls any LAPACK routine for every matrix of a batch, in the native language.

Fortran passes everything by address, so a call is a list of addresses: the kernel lays out a workspace (numbers and
letters first, then the matrices, column-major, then the routine's work arrays), copies the operands in, calls, and
copies the results out, whatever their strides.  One piece is some consecutive matrices, each computed by one thread.

The constants `ints[8...]` are named below; `lapack.py` writes them.  Steps count bytes.
"""

from __future__ import annotations

from rushlight._backends.cpu.gemm.blas_native import enter_blas
from rushlight._native import (
    Type,
    call_ptr,
    extern,
    f32,
    f64,
    i32,
    i64,
    isnan,
    load,
    memcpy,
    native,
    ptr,
    store,
    u32,
    u64,
)
from rushlight._native.function import NativeFunction

__all__ = ["ARGS", "FIXED", "HEAD", "MOST_ARGS", "OPERAND", "SLOTS", "make_lapack"]

CHUNK, TOTAL, DIMS, SPACE, OPERANDS, GATED, ROUTINE, INFO = range(8, 16)
HEAD = 16  # the addresses of the call follow: offsets into the workspace, or the negative of a plain number
MOST_ARGS = 20
ARGS = HEAD
FIXED = ARGS + MOST_ARGS  # the first words of every workspace
SLOTS = 32
FIRST = FIXED + SLOTS  # the operands, then the batch dims: size, and each operand's step
OPERAND = 10
BUF, SIZE, ROWS, COLS, ROW, COL, AT, MODE, EXTRA = range(9)
PULL, PULL_INTS, PUSH, PUSH_LOWER, PUSH_INTS, PUSH_VALUES, PUSH_VECTORS = range(7)

malloc = extern("malloc", "ptr(i64)")
free = extern("free", "void(ptr)")
rl_fail = extern("rl_fail", "i32(ptr, i64, i64, i64, i64, i64)")


def _make_move(unit: Type, count: int) -> NativeFunction:
    size = unit.itemsize * count

    @native("void(ptr, i64, i64, ptr, i64, i64, i64, i64)", name=f"move_{size}")
    def move(to, to_row, to_col, source, row, col, rows, cols):
        """Copy a matrix of `size` bytes an element; tiles of rows keep transposition within the cache."""
        if to_row == size and row == size:
            for j in range(cols):
                memcpy(to + j * to_col, source + j * col, rows * size)
            return
        for start in range(0, rows, 16):
            stop = min(start + 16, rows)
            for j in range(cols):
                p, q = to + j * to_col, source + j * col
                for i in range(start, stop):
                    store(unit, p + i * to_row, 0, load(unit, q + i * row, 0))
                    if count == 2:
                        store(unit, p + i * to_row, 1, load(unit, q + i * row, 1))

    return move


move_4, move_8, move_16 = _make_move(u32, 1), _make_move(u64, 1), _make_move(u64, 2)


@native("void(ptr, i64, i64, ptr, i64, i64, i64, i64, i64)")
def move_matrix(to, to_row, to_col, source, row, col, rows, cols, size):
    if size == 4:
        move_4(to, to_row, to_col, source, row, col, rows, cols)
    elif size == 8:
        move_8(to, to_row, to_col, source, row, col, rows, cols)
    else:
        move_16(to, to_row, to_col, source, row, col, rows, cols)


@native("void(ptr, i64, i64, i64, i64, i64)")
def clear_above(to, row, col, rows, cols, size):
    """Set elements above the diagonal to zero."""
    for j in range(cols):
        for i in range(min(j, rows)):
            p = to + i * row + j * col
            p.u32[0] = u32(0)
            if size > 4:
                p.u32[1] = u32(0)
            if size > 8:
                p.u64[1] = u64(0)


def _make_join(real: Type) -> tuple[NativeFunction, NativeFunction]:
    """Convert geev's results for real matrices to complex numbers."""

    @native("void(ptr, i64, ptr, ptr, i64)", name=f"join_values_{real}")
    def join_values(to, step, re, im, n):
        for i in range(n):
            store(real, to + i * step, 0, load(real, re, i))
            store(real, to + i * step, 1, load(real, im, i))

    @native("void(ptr, i64, i64, ptr, ptr, i64)", name=f"join_vectors_{real}")
    def join_vectors(to, row, col, v, im, n):
        """Columns j and j + 1 are the real and imaginary part where eigenvalue j is not real, and j + 1 its conjugate."""
        j = 0
        while j < n:
            pair = load(real, im, j) != real(0) and j + 1 < n
            for i in range(n):
                p = to + i * row + j * col
                store(real, p, 0, load(real, v, j * n + i))
                store(real, p, 1, real(0))
                if pair:
                    part = load(real, v, j * n + n + i)
                    store(real, p, 1, part)
                    store(real, p + col, 0, load(real, v, j * n + i))
                    store(real, p + col, 1, -part)
            j += 2 if pair else 1

    return join_values, join_vectors


values_f32, vectors_f32 = _make_join(f32)
values_f64, vectors_f64 = _make_join(f64)


@native("ptr(ptr, ptr, i64)", name="lapack_argument", inline=True)
def argument(ints, space, k):
    at = ints.i64[ARGS + k]
    base: ptr = None
    return space + at if at >= 0 else base + (0 - at)


@native("void(ptr, ptr)", name="lapack_call")
def call(ints, p):
    call_ptr(
        "void(ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr)",
        ints.ptr[ROUTINE],
        argument(ints, p, 0),
        argument(ints, p, 1),
        argument(ints, p, 2),
        argument(ints, p, 3),
        argument(ints, p, 4),
        argument(ints, p, 5),
        argument(ints, p, 6),
        argument(ints, p, 7),
        argument(ints, p, 8),
        argument(ints, p, 9),
        argument(ints, p, 10),
        argument(ints, p, 11),
        argument(ints, p, 12),
        argument(ints, p, 13),
        argument(ints, p, 14),
        argument(ints, p, 15),
        argument(ints, p, 16),
        argument(ints, p, 17),
        argument(ints, p, 18),
        argument(ints, p, 19),
    )


@native("ptr(ptr, ptr, i64, i64)", name="lapack_matrix")
def matrix_address(ints, bufs, operand, batch):
    """The address of an operand's matrix of this number."""
    count = ints.i64[OPERANDS]
    base = bufs.ptr[ints.i64[FIRST + operand * OPERAND + BUF]]
    rest, d = batch, ints.i64[DIMS] - 1
    while d >= 0:
        words = ints + 8 * (FIRST + count * OPERAND + d * (count + 1))
        base = base + (rest % words.i64[0]) * words.i64[1 + operand]
        rest = rest // words.i64[0]
        d -= 1
    return base


def _make_copies(integer: Type) -> tuple[NativeFunction, NativeFunction]:
    """`pull(op, source, space)` copies an operand's matrix into the workspace, `push(op, to, space)` a result's out of
    it."""

    @native("void(ptr, ptr, ptr)", name="pull_operand")
    def pull(op, source, space):
        rows, cols, size = op.i64[ROWS], op.i64[COLS], op.i64[SIZE]
        to = space + op.i64[AT]
        if op.i64[MODE] == PULL:
            move_matrix(to, size, size * rows, source, op.i64[ROW], op.i64[COL], rows, cols, size)
        else:
            for i in range(rows):
                store(integer, to, i, integer(load(i32, source + i * op.i64[ROW], 0)))

    @native("void(ptr, ptr, ptr)", name="push_operand")
    def push(op, to, space):
        rows, cols, size, mode = op.i64[ROWS], op.i64[COLS], op.i64[SIZE], op.i64[MODE]
        row, col = op.i64[ROW], op.i64[COL]
        source, more = space + op.i64[AT], space + op.i64[EXTRA]
        if mode == PUSH or mode == PUSH_LOWER:
            move_matrix(to, row, col, source, size, size * rows, rows, cols, size)
            if mode == PUSH_LOWER:
                clear_above(to, row, col, rows, cols, size)
        elif mode == PUSH_INTS:
            for i in range(rows):
                store(i32, to + i * row, 0, i32(load(integer, source, i)))
        elif mode == PUSH_VALUES:
            if size == 8:
                values_f32(to, row, source, more, rows)
            else:
                values_f64(to, row, source, more, rows)
        elif size == 8:
            vectors_f32(to, row, col, source, more, rows)
        else:
            vectors_f64(to, row, col, source, more, rows)

    return pull, push


def _make_note(integer: Type) -> NativeFunction:
    @native("void(ptr, ptr, ptr)", name="note_nan")
    def note_nan(op, space, info):
        """Report the first NaN on a diagonal as the index where a factorisation stopped: the routine's comparisons miss
        it."""
        n, size, real_size = op.i64[ROWS], op.i64[SIZE], op.i64[EXTRA]
        first = n
        for i in range(n):
            p = space + op.i64[AT] + i * (n + 1) * size
            x: f64 = f64(load(f32, p, 0)) if real_size == 4 else load(f64, p, 0)
            if isnan(x):
                first = min(first, i)
        if first < n and load(integer, info, 0) == integer(0):
            store(integer, info, 0, integer(first + 1))

    return note_nan


def make_lapack(integer: Type, gated: bool) -> NativeFunction:
    """The kernel for a library with these integers; `gated`: it has threads of its own, which are limited meanwhile."""
    (pull, push), note_nan = _make_copies(integer), _make_note(integer)

    @native("i32(ptr, ptr, i64)", name=f"rl_lapack_{integer.itemsize}")
    def lapack(bufs, ints, piece):
        space = malloc(ints.i64[SPACE])
        if space is None:
            return rl_fail(bufs, piece, 4, 0, 0, 0)
        if gated:
            if ints.i64[GATED] != 0:
                enter_blas(1)
        count = ints.i64[OPERANDS]
        first = piece * ints.i64[CHUNK]
        for batch in range(first, min(first + ints.i64[CHUNK], ints.i64[TOTAL])):
            memcpy(space, ints + 8 * FIXED, 8 * SLOTS)
            for k in range(count):
                op = ints + 8 * (FIRST + k * OPERAND)
                if op.i64[MODE] < PUSH:
                    pull(op, matrix_address(ints, bufs, k, batch), space)
            call(ints, space)
            for k in range(count):
                op = ints + 8 * (FIRST + k * OPERAND)
                if op.i64[MODE] == PUSH_LOWER:
                    note_nan(op, space, space + ints.i64[INFO])
                if op.i64[MODE] >= PUSH:
                    push(op, matrix_address(ints, bufs, k, batch), space)
        if gated:
            if ints.i64[GATED] != 0:
                enter_blas(-1)
        free(space)
        return 0

    return lapack


CUT, N_PIVOTS, N_ROWS = 8, 9, 10


@native("i32(ptr, ptr, i64)")
def rl_permutation(bufs, ints, piece):
    """Apply exchanges (contiguous rows of int32) to 0, 1, 2, ...; an index out of range is an error."""
    k, n = ints.i64[N_PIVOTS], ints.i64[N_ROWS]
    for row in range(piece * ints.i64[CUT], min((piece + 1) * ints.i64[CUT], ints.i64[11])):
        order, pivots = bufs.ptr[0] + 8 * n * row, bufs.ptr[1] + 4 * k * row
        for i in range(n):
            order.i64[i] = i
        for j in range(k):
            other = i64(load(i32, pivots, j))
            if other < 1 or other > n:
                return rl_fail(bufs, piece, 1, other, 0, n)
            saved = order.i64[j]
            order.i64[j] = order.i64[other - 1]
            order.i64[other - 1] = saved
    return 0
