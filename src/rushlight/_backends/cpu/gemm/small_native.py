"""Matrix products that are too small to pack, in the native language: blocks of `SmallTile` over operands where they lie.

An operand whose rows do not lie side by side is transposed into memory on the stack first.  Which products are computed
here depends on sizes and strides alone.
"""

from __future__ import annotations

from rushlight._backends.cpu.gemm.blas_native import A_COL, A_ROW, ALPHA, B_COL, B_ROW, BETA, K
from rushlight._backends.cpu.gemm.gemm_blocks_native import make_transpose
from rushlight._backends.cpu.gemm.product_spec import ProductShape
from rushlight._backends.cpu.microkernels.small_tile import SmallTile
from rushlight._native import Record, Type, extern, i64, load, native, ptr, stack, store
from rushlight._native.function import NativeFunction

__all__ = ["is_small", "make_run", "make_small"]

SMALL_BYTES, ROW_BYTES = 1 << 15, 1 << 13  # most bytes of an operand that is transposed, and for a result of one row
# With fewer than `FEW` rows or columns, sums of more than `LONG` steps are the library's: additions in order wait for
# each other, and a transposed operand is used too rarely.  See bench/small_products.py for all these limits.
FEW, LONG = 4, 32
CALL = Record(
    "small_product",
    ("a_row", i64, "bytes from one row of A to the next: these four are the steps of `SmallTile`"),
    ("a_col", i64, "the same of columns of A"),
    ("b_row", i64, "the same of rows of B"),
    ("c_row", i64, "the same of rows of C"),
    ("b_col", i64, "elements from one column of B to the next"),
    ("a", ptr, "A"),
    ("b", ptr, "B"),
    ("c", ptr, "C"),
    ("m", i64, "rows"),
    ("n", i64, "columns"),
    ("k", i64, "steps"),
)
CALL_BYTES = 8 * len(CALL)


def is_small(shape: ProductShape, size: int, most: int) -> bool:
    """Whether a product of numbers of `size` bytes is computed here: what `make_small` decides, in Python."""
    (m, n, k), ((a_row, _), (_, b_col), (c_row, c_col)) = shape.sizes, shape.strides
    if m * n * k > most or k == 0:
        return False
    if c_row == 1 if c_col != 1 or (n == 1 and (m >= FEW or a_row == 1)) else m == 1 and n < FEW and b_col != 1:
        m, n, b_col, c_col = n, m, a_row, c_row
    if n > 1 and c_col != 1 or k > LONG and n < FEW:
        return False
    if n == 1 or b_col == 1:
        return True
    seldom = m < FEW and k > LONG or m == 1 and k < FEW and n > LONG
    return not seldom and k * n * size <= (ROW_BYTES if m == 1 else SMALL_BYTES)


def make_small(kind: str, size: int, run: NativeFunction, most: int) -> NativeFunction:
    """`i32(ints, c, c_row, c_col, a, b, m, n)`: a rectangle of C as A @ B by `run`, k > 0; 2 where it is not small.

    `most`: multiplications up to which it is; `size`: bytes of a number.
    """

    @native("i32(ptr, ptr, i64, i64, ptr, ptr, i64, i64)", name=f"small_{kind}")
    def small(ints, c, c_row, c_col, a, b, m, n):
        k = ints.i64[K]
        if m * n * k > most or ints.f64[ALPHA] != 1.0 or ints.f64[BETA] != 0.0:
            return 2
        a_row, a_col, b_row, b_col = ints.i64[A_ROW], ints.i64[A_COL], ints.i64[B_ROW], ints.i64[B_COL]
        if c_col != 1 or (n == 1 and (m >= FEW or a_row == 1)):
            swapped = c_row == 1  # C transposed = B transposed @ A transposed
        else:
            swapped = m == 1 and n < FEW and b_col != 1
        if swapped:
            a, b, m, n = b, a, n, m
            a_row, a_col, b_row, b_col = b_col, b_row, a_col, a_row
            c_row, c_col = c_col, c_row
        if n > 1 and c_col != 1:
            return 2
        if k > LONG and n < FEW:
            return 2
        if n > 1 and b_col != 1:
            if k * n * size > (ROW_BYTES if m == 1 else SMALL_BYTES):
                return 2
            if (m < FEW and k > LONG) or (m == 1 and k < FEW and n > LONG):
                return 2
        call = stack(CALL_BYTES)
        call[CALL.a], call[CALL.b], call[CALL.c] = a, b, c
        call[CALL.m], call[CALL.n], call[CALL.k] = m, n, k
        call[CALL.a_row], call[CALL.a_col], call[CALL.c_row] = a_row * size, a_col * size, c_row * size
        call[CALL.b_row], call[CALL.b_col] = b_row * size, b_col
        run(call)
        return 0

    return small


def make_run(kind: str, real: Type, tile: SmallTile) -> NativeFunction:
    """`void(call)`: the product of a CALL.  It is not part of `make_small`'s function: a large frame takes time."""
    four, two, one = (_make_columns(tile, real.itemsize, height) for height in (4, 2, 1))
    size, lanes, turn = real.itemsize, tile.lanes, _make_turn(kind, real, tile)

    @native("void(ptr)", name=f"run_small_{kind}")
    def run(call):
        room = stack(SMALL_BYTES)
        m, n, k, b = call[CALL.m], call[CALL.n], call[CALL.k], call[CALL.b]
        if n > 1 and call[CALL.b_col] != 1:
            turn(room, b, n, call[CALL.b_col], call[CALL.b_row] // size, k)
            call[CALL.b_row] = n * size
            b = room
        if m >= 4:
            four(call[CALL.a], b, call[CALL.c], k, call, m, n)
        elif m >= 2 and n >= lanes:
            two(call[CALL.a], b, call[CALL.c], k, call, m, n)
        else:
            one(call[CALL.a], b, call[CALL.c], k, call, m, n)

    return run


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
