"""Factorisations and triangular systems of small real matrices, one matrix in each lane of a vector.

A piece is some groups of matrices.  A group's matrices are copied to a workspace in which the lanes of element (i, j)
are contiguous, so that every step is done for all of them at once; lanes differ only where rows are exchanged.  Lanes
beyond the last matrix hold copies of it, whose results are discarded.

The constants `ints[8...]` are named below; `small_factors.py` writes them.  Steps count bytes.
"""

from __future__ import annotations

from rushlight._native import (
    Type,
    extern,
    f32,
    f64,
    i32,
    i64,
    load,
    native,
    select,
    sqrt,
    stack,
    store,
    subtract_products,
)
from rushlight._native.function import NativeFunction
from rushlight._native.types import Words

__all__ = ["AT", "LANE_BYTES", "OPERAND", "SMALL"]

LANE_BYTES = 64  # bytes of the lanes of an element
# Then the operands, then the batch dims: size, and each operand's step
AT = Words("chunk total dims space operands upper unit first", first=8)
OPERAND = Words("buffer rows columns row column")
FIELDS = len(OPERAND)

malloc = extern("malloc", "ptr(i64)")
free = extern("free", "void(ptr)")
rl_fail = extern("rl_fail", "i32(ptr, i64, i64, i64, i64, i64)")


@native("ptr(ptr, ptr, i64, i64)", name="small_matrix")
def matrix_address(ints, bufs, operand, batch):
    """The address of an operand's matrix of this number."""
    count = ints.i64[AT.operands]
    base = bufs.ptr[ints.i64[AT.first + operand * FIELDS + OPERAND.buffer]]
    rest, d = batch, ints.i64[AT.dims] - 1
    while d >= 0:
        words = ints + 8 * (AT.first + count * FIELDS + d * (count + 1))
        base = base + (rest % words.i64[0]) * words.i64[1 + operand]
        rest = rest // words.i64[0]
        d -= 1
    return base


class _Kit:
    """The kernels for one element type."""

    def __init__(self, real: Type, whole: Type) -> None:
        self.real, self.whole, self.lanes = real, whole, LANE_BYTES // real.itemsize
        self.pull, self.push, self.push_whole = self._copies()

    def _copies(self) -> tuple[NativeFunction, NativeFunction, NativeFunction]:
        T, I, W = self.real, self.whole, self.lanes

        @native("ptr(ptr, ptr, ptr, i64, i64)", name=f"small_pull_{T}")
        def pull(space, ints, bufs, operand, batch):
            """Copy an operand's matrices from number `batch` on into the workspace; returns the end."""
            op = ints + 8 * (AT.first + operand * FIELDS)
            rows, columns, row, column = (
                op.i64[OPERAND.rows],
                op.i64[OPERAND.columns],
                op.i64[OPERAND.row],
                op.i64[OPERAND.column],
            )
            for lane in range(W):
                source, to = (
                    matrix_address(ints, bufs, operand, min(batch + lane, ints.i64[AT.total] - 1)),
                    space + lane * T.itemsize,
                )
                for i in range(rows):
                    for j in range(columns):
                        store(T, to + (i * columns + j) * LANE_BYTES, 0, load(T, source + i * row + j * column, 0))
            return space + rows * columns * LANE_BYTES

        @native("void(ptr, ptr, ptr, i64, i64, i64)", name=f"small_push_{T}")
        def push(space, ints, bufs, operand, batch, lower):
            """Copy matrices to a result; `lower`: with zeros above the diagonal."""
            op = ints + 8 * (AT.first + operand * FIELDS)
            rows, columns, row, column = (
                op.i64[OPERAND.rows],
                op.i64[OPERAND.columns],
                op.i64[OPERAND.row],
                op.i64[OPERAND.column],
            )
            for lane in range(min(i64(W), ints.i64[AT.total] - batch)):
                to, source = matrix_address(ints, bufs, operand, batch + lane), space + lane * T.itemsize
                for i in range(rows):
                    for j in range(columns):
                        x = load(T, source + (i * columns + j) * LANE_BYTES, 0)
                        store(T, to + i * row + j * column, 0, T(0) if lower != 0 and j > i else x)

        @native("void(ptr, ptr, ptr, i64, i64)", name=f"small_push_whole_{T}")
        def push_whole(space, ints, bufs, operand, batch):
            """Copy whole numbers, one a row, to a result."""
            op = ints + 8 * (AT.first + operand * FIELDS)
            for lane in range(min(i64(W), ints.i64[AT.total] - batch)):
                to = matrix_address(ints, bufs, operand, batch + lane)
                for i in range(op.i64[OPERAND.rows]):
                    store(i32, to + i * op.i64[OPERAND.row], 0, i32(load(I, space + i * LANE_BYTES, lane)))

        return pull, push, push_whole

    def cholesky(self) -> NativeFunction:
        T, I, W, pull, push, push_whole = self.real, self.whole, self.lanes, self.pull, self.push, self.push_whole

        @native("void(ptr, ptr, ptr)", name=f"small_going_{T}")
        def going(to, element, info):
            """An element, with zeros for matrices that have failed."""
            for lane in range(W):
                store(T, to, lane, select(load(I, info, lane) == I(0), load(T, element, lane), T(0)))

        @native("void(ptr, ptr, i64)", name=f"small_cholesky_{T}")
        def factor(a, info, n):
            """Compute the lower factor in place of the lower triangles; `info` becomes the first index, from 1, that is
            not positive.

            Such a matrix keeps its values from that column on, as in LAPACK: a column is changed when its turn comes.
            """
            of = stack(LANE_BYTES)
            for k in range(n):
                row, pivot = a + k * n * LANE_BYTES, a + (k * n + k) * LANE_BYTES
                for j in range(k):
                    going(of, row + j * LANE_BYTES, info)
                    subtract_products(T, pivot, of, row + j * LANE_BYTES)
                for lane in range(W):
                    x, known = load(T, pivot, lane), load(I, info, lane)
                    known = select(x > T(0), known, select(known == I(0), I(k + 1), known))
                    store(I, info, lane, known)
                    store(T, pivot, lane, select(known == I(0), sqrt(x), x))
                for j in range(k):
                    going(of, row + j * LANE_BYTES, info)
                    for i in range(k + 1, n):
                        subtract_products(T, a + (i * n + k) * LANE_BYTES, a + (i * n + j) * LANE_BYTES, of)
                for i in range(k + 1, n):
                    entry = a + (i * n + k) * LANE_BYTES
                    for lane in range(W):
                        x = load(T, entry, lane)
                        store(T, entry, lane, select(load(I, info, lane) == I(0), x / load(T, pivot, lane), x))

        @native("i32(ptr, ptr, i64)", name=f"rl_small_cholesky_{T}")
        def small_cholesky(bufs, ints, piece):
            space = malloc(ints.i64[AT.space])
            if space is None:
                return rl_fail(bufs, piece, 4, 0, 0, 0)
            a, info = space + LANE_BYTES, space
            first = piece * ints.i64[AT.chunk]
            for batch in range(first, min(first + ints.i64[AT.chunk], ints.i64[AT.total]), W):
                pull(a, ints, bufs, 2, batch)
                for lane in range(W):
                    store(I, info, lane, I(0))
                factor(a, info, ints.i64[AT.first + OPERAND.rows])
                push(a, ints, bufs, 0, batch, 1)
                push_whole(info, ints, bufs, 1, batch)
            free(space)
            return 0

        return small_cholesky

    def lu(self) -> NativeFunction:
        T, I, W, pull, push, push_whole = self.real, self.whole, self.lanes, self.pull, self.push, self.push_whole

        @native("void(ptr, ptr, ptr, i64, i64)", name=f"small_lu_{T}")
        def factor(a, pivots, info, m, n):
            """Compute both factors in place of the matrices, the row that each was exchanged with, and the first pivot
            that is 0, from 1."""
            best = stack(LANE_BYTES)
            for k in range(min(m, n)):
                pivot, where = a + (k * n + k) * LANE_BYTES, pivots + k * LANE_BYTES
                for lane in range(W):
                    store(T, best, lane, abs(load(T, pivot, lane)))
                    store(I, where, lane, I(k + 1))
                for i in range(k + 1, m):
                    entry = a + (i * n + k) * LANE_BYTES
                    for lane in range(W):
                        x = abs(load(T, entry, lane))
                        larger = x > load(T, best, lane)
                        store(T, best, lane, select(larger, x, load(T, best, lane)))
                        store(I, where, lane, select(larger, I(i + 1), load(I, where, lane)))
                for lane in range(W):
                    other = i64(load(I, where, lane)) - 1
                    if other != k:
                        p, q = a + k * n * LANE_BYTES, a + other * n * LANE_BYTES
                        for j in range(n):
                            saved = load(T, p + j * LANE_BYTES, lane)
                            store(T, p + j * LANE_BYTES, lane, load(T, q + j * LANE_BYTES, lane))
                            store(T, q + j * LANE_BYTES, lane, saved)
                for lane in range(W):
                    x, known = load(T, pivot, lane), load(I, info, lane)
                    store(I, info, lane, select(x == T(0), select(known == I(0), I(k + 1), known), known))
                for i in range(k + 1, m):
                    entry = a + (i * n + k) * LANE_BYTES
                    for lane in range(W):
                        x, y = load(T, entry, lane), load(T, pivot, lane)
                        store(T, entry, lane, select(y == T(0), x, x / y))
                    for j in range(k + 1, n):
                        subtract_products(T, a + (i * n + j) * LANE_BYTES, entry, a + (k * n + j) * LANE_BYTES)

        @native("i32(ptr, ptr, i64)", name=f"rl_small_lu_{T}")
        def small_lu(bufs, ints, piece):
            space = malloc(ints.i64[AT.space])
            if space is None:
                return rl_fail(bufs, piece, 4, 0, 0, 0)
            m, n = ints.i64[AT.first + OPERAND.rows], ints.i64[AT.first + OPERAND.columns]
            info, pivots = space, space + LANE_BYTES
            a = pivots + min(m, n) * LANE_BYTES
            first = piece * ints.i64[AT.chunk]
            for batch in range(first, min(first + ints.i64[AT.chunk], ints.i64[AT.total]), W):
                pull(a, ints, bufs, 3, batch)
                for lane in range(W):
                    store(I, info, lane, I(0))
                factor(a, pivots, info, m, n)
                push(a, ints, bufs, 0, batch, 0)
                push_whole(pivots, ints, bufs, 1, batch)
                push_whole(info, ints, bufs, 2, batch)
            free(space)
            return 0

        return small_lu

    def triangular_solve(self) -> NativeFunction:
        T, W, pull, push = self.real, self.lanes, self.pull, self.push

        @native("void(ptr, ptr, i64, i64, i64, i64)", name=f"small_solve_{T}")
        def solve(a, b, n, columns, upper, unit):
            """Compute X in place of B, from the first row of a lower triangle on, from the last of an upper one."""
            for step in range(n):
                k = n - 1 - step if upper != 0 else step
                row = b + k * columns * LANE_BYTES
                if unit == 0:
                    pivot = a + (k * n + k) * LANE_BYTES
                    for j in range(columns):
                        entry = row + j * LANE_BYTES
                        for lane in range(W):
                            store(T, entry, lane, load(T, entry, lane) / load(T, pivot, lane))
                for i in range(0 if upper != 0 else k + 1, k if upper != 0 else n):
                    factor, other = a + (i * n + k) * LANE_BYTES, b + i * columns * LANE_BYTES
                    for j in range(columns):
                        subtract_products(T, other + j * LANE_BYTES, factor, row + j * LANE_BYTES)

        @native("i32(ptr, ptr, i64)", name=f"rl_small_solve_{T}")
        def small_solve(bufs, ints, piece):
            a = malloc(ints.i64[AT.space])
            if a is None:
                return rl_fail(bufs, piece, 4, 0, 0, 0)
            first = piece * ints.i64[AT.chunk]
            for batch in range(first, min(first + ints.i64[AT.chunk], ints.i64[AT.total]), W):
                b = pull(a, ints, bufs, 1, batch)
                pull(b, ints, bufs, 2, batch)
                n, columns = ints.i64[AT.first + OPERAND.rows], ints.i64[AT.first + OPERAND.columns]
                solve(a, b, n, columns, ints.i64[AT.upper], ints.i64[AT.unit])
                push(b, ints, bufs, 0, batch, 0)
            free(a)
            return 0

        return small_solve


_KITS = {"float32": _Kit(f32, i32), "float64": _Kit(f64, i64)}
SMALL = {
    (name, dtype): getattr(kit, name)()
    for dtype, kit in _KITS.items()
    for name in ("cholesky", "lu", "triangular_solve")
}
