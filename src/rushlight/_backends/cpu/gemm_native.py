"""Matrix products of our own: packing and blocking around a tile kernel, in the native language.

Blocks of A and B are packed into panels (BLIS's structure, see `_kernels/register_tile.py`), zeros filling up the last panel of each; alpha
goes into A.  Each call works on one rectangle of C with memory that it takes from a few blocks kept for the purpose, one for each thread
that is at work.
"""

from __future__ import annotations

from rushlight._backends.cpu.blas_native import A_COL, A_ROW, ALPHA, B_COL, B_ROW, BETA, C_COL, C_ROW, KINDS, K
from rushlight._backends.native import (
    Type,
    atomic_cas,
    atomic_store,
    extern,
    i32,
    i64,
    load,
    memcpy,
    native,
    stack,
    static,
    store,
)
from rushlight._backends.native.function import NativeFunction
from rushlight._kernels.register_tile import RegisterTile

__all__ = ["DEPTH", "ROWS", "make_generated"]

DEPTH = 256  # steps of k in one block: a panel of B stays in the first cache
ROWS = 192  # rows of A in one block: it stays in the second cache
COLUMNS = 512  # columns of B in one block
SLOTS = 256

SCRATCH = static("gemm_scratch", 16 * SLOTS)  # for each slot: whether it is taken, and its memory
aligned_alloc = extern("aligned_alloc", "ptr(i64, i64)")


@native("i64(i64)")
def take_scratch(nbytes):
    """The number of a slot whose memory is ours until `give_scratch`; -1 where there is none."""
    for slot in range(SLOTS):
        if SCRATCH.i32[4 * slot] == 0:
            if atomic_cas(i32, SCRATCH, 4 * slot, 0, 1) == 0:
                if SCRATCH.ptr[2 * slot + 1] is None:
                    SCRATCH.ptr[2 * slot + 1] = aligned_alloc(64, nbytes)
                if SCRATCH.ptr[2 * slot + 1] is None:
                    atomic_store(i32, SCRATCH, 4 * slot, 0)
                    return -1
                return slot
    return -1


@native("void(i64)")
def give_scratch(slot):
    """The slot may be taken again."""
    atomic_store(i32, SCRATCH, 4 * slot, 0)


def _make_turned(kind: str, real: Type, tile: RegisterTile) -> NativeFunction:
    """Packs a panel whose elements lie along k: squares of them are turned in registers."""
    size, n = real.itemsize, tile.turned
    turn = extern(tile.turn_symbol, "void(ptr, ptr, i64, i64, i64)")

    @native("void(ptr, ptr, i64, i64, i64)", name=f"turned_{kind}_{tile.rows}")
    def turned(out, x, width, row, depth):
        """`width` rows, `row` elements apart, of `depth` elements each, as a panel [k][width]; the last square may overlap the one before."""
        whole = depth // n * n
        if whole > 0:
            for i in range(0, width, n):
                at = min(i, width - n)
                turn(out + size * at, x + size * at * row, row, width, whole)
        for k in range(whole, depth):
            for i in range(width):
                store(real, out, k * width + i, load(real, x, i * row + k))

    return turned


def _make_pack_a(kind: str, real: Type, mr: int, turned: NativeFunction) -> NativeFunction:
    size = real.itemsize

    @native("void(ptr, ptr, i64, i64, i64, i64, f64)", name=f"pack_a_{kind}_{mr}")
    def pack_a(out, a, rows, depth, a_row, a_col, alpha):
        """Panels [k][mr] of alpha * A."""
        scale = real(alpha)
        for i in range(0, rows, mr):
            part = a + size * i * a_row
            if rows - i >= mr:
                if a_row == 1 and alpha == 1.0:
                    for k in range(depth):
                        memcpy(out + size * k * mr, part + size * k * a_col, size * mr)
                elif a_col == 1 and alpha == 1.0:
                    turned(out, part, mr, a_row, depth)
                else:
                    for k in range(depth):
                        for r in range(mr):
                            store(real, out, k * mr + r, load(real, part, r * a_row + k * a_col) * scale)
            else:
                for k in range(depth):
                    for r in range(mr):
                        x = real(0)
                        if i + r < rows:
                            x = load(real, part, r * a_row + k * a_col) * scale
                        store(real, out, k * mr + r, x)
            out = out + size * mr * depth

    return pack_a


def _make_pack_b(kind: str, real: Type, nr: int, turned: NativeFunction) -> NativeFunction:
    size = real.itemsize
    name = f"pack_b_{turned.symbol}"

    @native("void(ptr, ptr, i64, i64, i64, i64)", name=name)
    def pack_b(out, b, depth, columns, b_row, b_col):
        """Panels [k][nr] of B."""
        for j in range(0, columns, nr):
            part = b + size * j * b_col
            if columns - j >= nr:
                if b_col == 1:
                    for k in range(depth):
                        memcpy(out + size * k * nr, part + size * k * b_row, size * nr)
                elif b_row == 1:
                    turned(out, part, nr, b_col, depth)
                else:
                    for k in range(depth):
                        for c in range(nr):
                            store(real, out, k * nr + c, load(real, part, c * b_col + k * b_row))
            else:
                for k in range(depth):
                    for c in range(nr):
                        x = real(0)
                        if j + c < columns:
                            x = load(real, part, c * b_col + k * b_row)
                        store(real, out, k * nr + c, x)
            out = out + size * nr * depth

    return pack_b


def _make_macro(kind: str, real: Type, tile: RegisterTile) -> NativeFunction:
    size, mr, nr = real.itemsize, tile.rows, tile.columns
    kernel = extern(tile.symbol, "void(ptr, ptr, ptr, i64, i64, i64)")

    @native("void(ptr, ptr, ptr, i64, i64, i64, i64, i64, i64)", name=f"edge_{kind}_{mr}")
    def edge(a, b, c, c_row, c_col, depth, rows, columns, add):
        """A tile that is not whole, or of which the columns lie apart: computed aside."""
        aside = stack(size * mr * nr)
        kernel(a, b, aside, nr, depth, 0)
        for i in range(rows):
            for j in range(columns):
                x = load(real, aside, i * nr + j)
                if add != 0:
                    x = x + load(real, c, i * c_row + j * c_col)
                store(real, c, i * c_row + j * c_col, x)

    @native("void(ptr, ptr, ptr, i64, i64, i64, i64, i64, i64)", name=f"macro_{kind}_{mr}")
    def macro(a, b, c, c_row, c_col, depth, rows, columns, add):
        """All tiles of packed blocks."""
        for j in range(0, columns, nr):
            for i in range(0, rows, mr):
                to = c + size * (i * c_row + j * c_col)
                if c_col == 1 and rows - i >= mr and columns - j >= nr:
                    kernel(a + size * i * depth, b + size * j * depth, to, c_row, depth, add)
                else:
                    edge(a + size * i * depth, b + size * j * depth, to, c_row, c_col, depth, min(i64(mr), rows - i), min(i64(nr), columns - j), add)

    return macro


def make_generated(kind: str, tiles: tuple[RegisterTile, ...], other: NativeFunction, least: int) -> NativeFunction:
    """One rectangle of C by our own kernels: `i32(ints, c, a, b, m, n)`.

    `other` serves thin products and those of fewer than `least` multiplications, which packing does not pay for.

    The second tile, if there is one, has fewer rows: it takes the products that fill the first one badly.
    """
    first = _make_blocked(kind, tiles[0], other, least)
    if len(tiles) == 1:
        return first
    second = _make_blocked(kind, tiles[1], other, least)
    high, low = tiles[0].rows, tiles[1].rows

    @native("i32(ptr, ptr, ptr, ptr, i64, i64)", name=f"chosen_{kind}")
    def chosen(ints, c, a, b, m, n):
        rows = n if ints.i64[C_COL] != 1 and ints.i64[C_ROW] == 1 else m
        if (rows + low - 1) // low * low * 31 < (rows + high - 1) // high * high * 30:
            return second(ints, c, a, b, m, n)
        return first(ints, c, a, b, m, n)

    return chosen


def _make_blocked(kind: str, tile: RegisterTile, other: NativeFunction, least: int) -> NativeFunction:
    """The same around one tile."""
    _, real, _ = KINDS[kind]
    size = real.itemsize
    turned = _make_turned(kind, real, tile)
    pack_a, pack_b = _make_pack_a(kind, real, tile.rows, turned), _make_pack_b(kind, real, tile.columns, turned)
    macro = _make_macro(kind, real, tile)
    rows_max = -(-ROWS // tile.rows) * tile.rows
    columns_max = -(-COLUMNS // tile.columns) * tile.columns
    a_bytes, b_bytes = size * rows_max * DEPTH, size * columns_max * DEPTH
    least_m, least_n = 4, 8

    @native("void(ptr, ptr, i64, i64, i64, i64)", name=f"scaled_{kind}_{tile.rows}")
    def scaled(ints, c, rows, columns, c_row, c_col):
        """C times beta, where beta is neither 0 nor 1."""
        beta = real(ints.f64[BETA])
        for i in range(rows):
            for j in range(columns):
                store(real, c, i * c_row + j * c_col, load(real, c, i * c_row + j * c_col) * beta)

    @native("i32(ptr, ptr, ptr, ptr, i64, i64)", name=f"generated_{kind}_{tile.rows}")
    def generated(ints, c, a, b, m, n):
        if m < least_m or n < least_n or m * n * ints.i64[K] < least:
            return other(ints, c, a, b, m, n)
        slot = take_scratch(a_bytes + b_bytes)
        if slot < 0:
            return other(ints, c, a, b, m, n)
        k = ints.i64[K]
        a_row, a_col, b_row, b_col = ints.i64[A_ROW], ints.i64[A_COL], ints.i64[B_ROW], ints.i64[B_COL]
        c_row, c_col = ints.i64[C_ROW], ints.i64[C_COL]
        if c_col != 1 and c_row == 1:  # C transposed = B transposed @ A transposed
            a, b, m, n = b, a, n, m
            a_row, a_col, b_row, b_col = b_col, b_row, a_col, a_row
            c_row, c_col = c_col, c_row
        pa = SCRATCH.ptr[2 * slot + 1]
        pb = pa + a_bytes
        beta = ints.f64[BETA]
        if beta != 0.0 and beta != 1.0:
            scaled(ints, c, m, n, c_row, c_col)
        depth = (k + (k + DEPTH - 1) // DEPTH - 1) // ((k + DEPTH - 1) // DEPTH)
        for j in range(0, n, columns_max):
            columns = min(i64(columns_max), n - j)
            p: i64 = 0
            while p < k:
                steps = min(depth, k - p)
                pack_b(pb, b + size * (p * b_row + j * b_col), steps, columns, b_row, b_col)
                for i in range(0, m, rows_max):
                    rows = min(i64(rows_max), m - i)
                    pack_a(pa, a + size * (i * a_row + p * a_col), rows, steps, a_row, a_col, ints.f64[ALPHA])
                    macro(pa, pb, c + size * (i * c_row + j * c_col), c_row, c_col, steps, rows, columns, i64(p > 0 or beta != 0.0))
                p += depth
        give_scratch(slot)
        return 0

    return generated


