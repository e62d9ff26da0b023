"""Matrix products that are too small to pack, in the native language: blocks of `SmallTile` over operands where they lie.

An operand whose rows do not lie side by side is transposed into memory on the stack first.  Which products are computed
here depends on sizes and strides alone: `is_small` decides when a call is planned, and `small_ints` says how.
"""

from __future__ import annotations

from typing import NamedTuple

from rushlight._backends.cpu.epilogue.epilogue_native import E_DIMS, run_epilogue
from rushlight._backends.cpu.gemm.blas_native import (
    A_INDEX,
    AFTER,
    ALPHA,
    C_COL,
    C_ROW,
    CHUNK,
    SUMS_BYTES,
    TILE_M,
    TOTAL,
    K,
    M,
    N,
    add_offsets,
    pitch_of,
)
from rushlight._backends.cpu.gemm.gemm_blocks_native import make_transpose
from rushlight._backends.cpu.gemm.product_spec import ProductShape
from rushlight._backends.cpu.microkernels.small_tile import SmallTile
from rushlight._backends.cpu.scratch_native import borrow, borrowed, give_back
from rushlight._native import Type, extern, i32, i64, load, native, stack, store
from rushlight._native.function import NativeFunction

__all__ = ["is_small", "make_small", "small_ints"]

rl_fail = extern("rl_fail", "i32(ptr, i64, i64, i64, i64, i64)")
SMALL_BYTES, ROW_BYTES = 1 << 15, 1 << 13  # most bytes of an operand that is transposed, and for a result of one row
# With fewer than `FEW` rows or columns, sums of more than `LONG` steps are the library's: additions in order wait for
# each other, and a transposed operand is used too rarely.  See bench/small_products.py for all these limits.
FEW, LONG = 4, 32

# The words of `gemm_ints` that have another meaning here: whether the operands are swapped, the pitch of sums; rows and columns after
# that, elements from one column of B to the next (1: as they lie) and from one row to the next; the steps of `SmallTile`.
SWAPPED, PITCH = C_ROW, C_COL
ROWS, COLUMNS, B_COLUMN, B_ROW = range(ALPHA, ALPHA + 4)
STEPS = TILE_M


class _Arranged(NamedTuple):
    """A product as the blocks compute it: C, or where that lies better C transposed = B transposed @ A transposed."""

    swapped: bool
    m: int
    n: int
    a: tuple[int, int]
    b: tuple[int, int]
    c: tuple[int, int]


def _arranged(shape: ProductShape) -> _Arranged:
    (m, n, _), (a, b, c) = shape.sizes, shape.strides
    if c[1] != 1 or (n == 1 and (m >= FEW or a[0] == 1)):
        swapped = c[0] == 1
    else:
        swapped = m == 1 and n < FEW and b[1] != 1
    return _Arranged(True, n, m, b[::-1], a[::-1], c[::-1]) if swapped else _Arranged(False, m, n, a, b, c)


def is_small(shape: ProductShape, size: int, most: int) -> bool:
    """Whether a product of numbers of `size` bytes is computed here, of at most `most` multiplications."""
    k, made = shape.k, _arranged(shape)
    m, n, b_col = made.m, made.n, made.b[1]
    if not 0 < m * n * k <= most or (n > 1 and made.c[1] != 1) or (k > LONG and n < FEW):
        return False
    if n == 1 or b_col == 1:
        return True
    seldom = (m < FEW and k > LONG) or (m == 1 and k < FEW and n > LONG)
    return not seldom and k * n * size <= (ROW_BYTES if m == 1 else SMALL_BYTES)


def small_ints(ints: list[int], shape: ProductShape, size: int) -> list[int]:
    """Constants of a small product, from those of `gemm_ints`."""
    made = _arranged(shape)
    turned = made.n > 1 and made.b[1] != 1
    b_row = made.n if turned else made.b[0]
    words = [made.m, made.n, made.b[1] if turned else 1, made.b[0]]
    steps = [size * step for step in (*made.a, b_row, made.c[0])]
    out = list(ints)
    out[SWAPPED], out[PITCH] = int(made.swapped), pitch_of(shape.n)
    out[ROWS : ROWS + 4], out[STEPS : STEPS + 4] = words, steps
    return out


def make_small(kind: str, real: Type, tile: SmallTile) -> NativeFunction:
    """The kernel `rl_small_{kind}` of small products, with the constants of `small_ints`."""
    size, multiply, turned = real.itemsize, _make_multiply(tile, real.itemsize), _make_turned(kind, real, tile)

    @native("void(ptr, ptr, ptr, ptr)", name=f"one_small_{kind}", inline=True)
    def one(ints, c, a, b):
        if ints.i64[SWAPPED] != 0:
            a, b = b, a
        if ints.i64[B_COLUMN] != 1:
            turned(ints, c, a, b)
        else:
            multiply(ints, c, a, b)

    @native("i32(ptr, ptr, i64, i64, i64)", name=f"fused_small_{kind}")
    def fused(bufs, ints, piece, first, last):
        operands = bufs + 8 * ints.i64[A_INDEX]
        pitch, nbytes = ints.i64[PITCH], size * ints.i64[M] * ints.i64[PITCH]
        sums = stack(SUMS_BYTES)
        slot: i64 = -1
        if nbytes > SUMS_BYTES:
            slot = borrow(nbytes)
            if slot < 0:
                return rl_fail(bufs, piece, 4, 0, 0, 0)
            sums = borrowed(slot)
        failed: i32 = 0
        at = stack(24)
        for batch in range(first, last):
            at.i64[0], at.i64[1] = i64(0), i64(0)
            add_offsets(ints, batch, at)
            one(ints, sums, operands.ptr[0] + size * at.i64[0], operands.ptr[1] + size * at.i64[1])
            given, row = ints + 8 * ints.i64[AFTER], i64(0)
            if given.i64[E_DIMS] == 0:  # blocks of the rows of one product
                row = batch * ints.i64[M]
            failed = failed | run_epilogue(
                bufs, given, piece, sums, pitch, batch, row, i64(0), ints.i64[M], ints.i64[N]
            )
        if slot >= 0:
            give_back(slot)
        return failed

    @native("i32(ptr, ptr, i64)", name=f"rl_small_{kind}")
    def small(bufs, ints, piece):
        first = piece * ints.i64[CHUNK]
        last = min(first + ints.i64[CHUNK], ints.i64[TOTAL])
        operands = bufs + 8 * ints.i64[A_INDEX]
        if ints.i64[AFTER] == 0:
            at = stack(24)
            for batch in range(first, last):
                at.i64[0], at.i64[1], at.i64[2] = i64(0), i64(0), i64(0)
                add_offsets(ints, batch, at)
                c = bufs.ptr[0] + size * at.i64[2]
                one(ints, c, operands.ptr[0] + size * at.i64[0], operands.ptr[1] + size * at.i64[1])
            return 0
        return fused(bufs, ints, piece, first, last)

    return small


def _make_multiply(tile: SmallTile, size: int) -> NativeFunction:
    """`void(ints, c, a, b)`: the product of operands whose rows of B lie side by side."""
    four, two, one = (_make_columns(tile, size, height) for height in (4, 2, 1))
    lanes = tile.lanes

    @native("void(ptr, ptr, ptr, ptr)", name=f"multiply_{tile.kind}")
    def multiply(ints, c, a, b):
        m, n, k, steps = ints.i64[ROWS], ints.i64[COLUMNS], ints.i64[K], ints + 8 * STEPS
        if m >= 4:
            four(a, b, c, k, steps, m, n)
        elif m >= 2 and n >= lanes:
            two(a, b, c, k, steps, m, n)
        else:
            one(a, b, c, k, steps, m, n)

    return multiply


def _make_turned(kind: str, real: Type, tile: SmallTile) -> NativeFunction:
    """The same with B transposed first: a function of its own for its large frame."""
    multiply, turn = _make_multiply(tile, real.itemsize), _make_turn(kind, real, tile)

    @native("void(ptr, ptr, ptr, ptr)", name=f"turned_{kind}")
    def turned(ints, c, a, b):
        room = stack(SMALL_BYTES)
        turn(room, b, ints.i64[COLUMNS], ints.i64[B_COLUMN], ints.i64[B_ROW], ints.i64[K])
        multiply(ints, c, a, room)

    return turned


def _make_turn(kind: str, real: Type, tile: SmallTile) -> NativeFunction:
    """`void(out, x, n, step, k_step, k)`: n columns, `step` elements apart, as rows [k][n] side by side."""
    wide, narrow = tile.squares[0], tile.squares[-1]
    by_wide, by_narrow = (make_transpose(f"small_{kind}", real, square) for square in (wide, narrow))
    wide_side, narrow_side, size = wide.n, narrow.n, real.itemsize

    @native("void(ptr, ptr, i64, i64, i64, i64)", name=f"turn_{kind}")
    def turn(out, x, n, step, k_step, k):
        if k_step == 1 and min(n, k) >= wide_side:
            by_wide(out, x, n, step, k)
        elif k_step == 1 and min(n, k) >= narrow_side:
            by_narrow(out, x, n, step, k)
        else:
            for j in range(n):
                to, at = out + j * size, x + j * step * size
                for _p in range(k):
                    store(real, to, 0, load(real, at, 0))
                    to += n * size
                    at += k_step * size

    return turn


def _make_strip(tile: SmallTile, rows: int, vectors: int, lanes: int) -> NativeFunction:
    """`void(a, b, c, last, k, steps, m)`: all rows of some columns; the last block may overlap the one before."""
    block = extern(tile.symbol_of((rows, vectors, lanes)), "void(ptr, ptr, ptr, i64, i64, ptr)")

    @native("void(ptr, ptr, ptr, i64, i64, ptr, i64)", name=f"strip_{tile.kind}_{rows}x{vectors}x{lanes}", inline=True)
    def strip(a, b, c, last, k, steps, m):
        for i in range(0, m, rows):
            at = min(i, m - rows)
            block(a + at * steps.i64[0], b, c + at * steps.i64[3], last, k, steps)

    return strip


def _make_columns(tile: SmallTile, size: int, height: int) -> NativeFunction:
    """`void(a, b, c, k, steps, m, n)`: a result of at least `height` rows; 2 rows need a vector of columns."""
    lanes, strips = tile.lanes, {block[1:]: _make_strip(tile, *block) for block in tile.blocks if block[0] == height}
    vector, most = lanes * size, max(vectors for vectors, wide in strips if wide == lanes)
    widest, pair, single = (strips[vectors, lanes] for vectors in (most, 2, 1))
    short = _make_short(tile, size, height, lanes // 2, strips) if height != 2 else single
    may_be_short = height != 2

    @native("void(ptr, ptr, ptr, i64, ptr, i64, i64)", name=f"columns_{tile.kind}_{height}")
    def columns(a, b, c, k, steps, m, n):
        if may_be_short and n < lanes:
            short(a, b, c, k, steps, m, n)
            return
        left, at, end = (n + lanes - 1) // lanes, i64(0), size * (n - lanes)
        while left >= most:
            widest(a, b + at, c + at, min(vector * (most - 1), end - at), k, steps, m)
            at += vector * most
            left -= most
        if left >= 2:
            pair(a, b + at, c + at, min(i64(vector), end - at), k, steps, m)
            left -= 2
        if left > 0:
            single(a, b + end, c + end, i64(0), k, steps, m)

    return columns


def _make_short(
    tile: SmallTile, size: int, height: int, lanes: int, strips: dict[tuple[int, int], NativeFunction]
) -> NativeFunction:
    """The same for fewer than 2 * `lanes` columns."""
    single = strips[1, lanes]
    pair = strips.get((2, lanes), single)
    shorter = _make_short(tile, size, height, lanes // 2, strips) if lanes > 1 else single
    least = lanes if lanes > 1 else 0

    @native("void(ptr, ptr, ptr, i64, ptr, i64, i64)", name=f"short_{tile.kind}_{height}_{lanes}", inline=True)
    def short(a, b, c, k, steps, m, n):
        if least and n < least:
            shorter(a, b, c, k, steps, m, n)
        elif n > lanes:
            pair(a, b, c, size * (n - lanes), k, steps, m)
        else:
            single(a, b, c, i64(0), k, steps, m)

    return short
