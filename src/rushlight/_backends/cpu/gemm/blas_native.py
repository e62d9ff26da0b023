"""Matrix products by BLAS, as kernels of the usual form, in the native language.

`C[b] = alpha * A[b] @ B[b] + beta * C[b]`, any strides, any number of batch dims.  One piece is a rectangle of C for
some consecutive batches.  Pieces depend on the sizes alone and each calls BLAS with one thread, so results do not
depend on the number of threads, and BLAS's threads do not compete with ours.

The constants `ints[8...]` are named below.  Strides count elements.
"""

from __future__ import annotations

from collections.abc import Callable

from rushlight._backends.cpu.epilogue.epilogue_native import AFTER, run_epilogue
from rushlight._backends.cpu.scratch_native import borrow, borrowed, give_back
from rushlight._native import (
    Type,
    atomic_cas,
    atomic_store,
    extern,
    extern_data,
    f32,
    f64,
    i8,
    i16,
    i32,
    i64,
    load,
    memcpy,
    memset,
    native,
    pause,
    ptr,
    stack,
    store,
    u8,
)
from rushlight._native.function import NativeFunction

__all__ = ["AFTER", "BATCHES", "G", "KINDS", "make_driver", "make_gemm"]

# ints[8 + ...]; they end with size and strides of A, B, C for each batch dim
G = {name: 8 + n for n, name in enumerate(
    ("m", "n", "k", "a_row", "a_col", "b_row", "b_col", "c_row", "c_col", "alpha", "alpha_im", "beta", "beta_im",
     "tile_m", "tile_n", "tiles_m", "tiles_n", "chunk", "total", "dims", "after", "a_index")
)}  # fmt: skip
M, N, K, A_ROW, A_COL, B_ROW, B_COL, C_ROW, C_COL, ALPHA, ALPHA_IM, BETA, BETA_IM = range(8, 21)
TILE_M, TILE_N, TILES_M, TILES_N, CHUNK, TOTAL, DIMS = range(21, 28)
A_INDEX = (
    AFTER + 1
    # `after`: offset of the epilogue's words (0: no epilogue, the sums are C); index of A among the call's arrays; B
    # follows
)
BATCHES = 30

# (letter of BLAS, type of a real element, elements per number)
KINDS: dict[str, tuple[str, Type, int]] = {
    "f32": ("s", f32, 1), "f64": ("d", f64, 1), "c64": ("c", f32, 2), "c128": ("z", f64, 2),
    "i64": ("", i64, 1), "i32": ("", i32, 1), "i16": ("", i16, 1), "i8": ("", i8, 1), "u8": ("", u8, 1),
}  # fmt: skip

ROW_MAJOR, PLAIN, TRANSPOSED = 101, 111, 112
PLAIN_WORK = 512  # multiplications up to which a plain loop is faster than a call of BLAS
TINY_WORK = 64  # the same for loops compiled without a vectoriser
SUMS_BYTES = 1 << 12  # most bytes of sums that wait for an epilogue on the stack
SINGLE = 1 << 18  # most multiplications for which OpenBLAS uses one thread by itself
GATE = extern_data("rl_blas_gate")  # lock, calls inside, the user's thread count: shared by all kernels of a process

rl_fail = extern("rl_fail", "i32(ptr, i64, i64, i64, i64, i64)")
malloc = extern("malloc", "ptr(i64)")
free = extern("free", "void(ptr)")
set_threads = extern("rl_blas_set_threads", "void(i32)")
get_threads = extern("rl_blas_get_threads", "i32()")


@native("void(i64)")
def enter_blas(step):
    """+1: limit BLAS to one thread; -1: the last caller restores the user's number of threads."""
    while atomic_cas(i32, GATE, 0, 0, 1) != 0:
        pause()
    inside = GATE.i64[1] + step
    GATE.i64[1] = inside
    if step > 0 and inside == 1:
        GATE.i32[4] = get_threads()
        set_threads(1)
    if inside == 0:
        set_threads(GATE.i32[4])
    atomic_store(i32, GATE, 0, 0)


def make_gemm(
    kind: str,
    blas: bool,
    int_type: Type,
    gated: bool,
    generated: Callable[[NativeFunction], NativeFunction] | None = None,
) -> NativeFunction:
    """The kernel for numbers of `kind` (see `KINDS`).

    `blas` says whether the symbols rl_cblas_?gemm and rl_cblas_?gemv exist, with `int_type` as their integers; `gated`
    whether BLAS has threads of its own that must be limited (rl_blas_set_threads).  `generated` makes the function that
    computes a rectangle in place of BLAS, from the function that serves the cases it declines.
    """
    letter, real, width = KINDS[kind]
    blas = blas and letter != ""
    simple = _make_simple(kind, real, width)
    block = _make_blas(kind, letter, real, width, int_type, gated) if blas else simple
    if generated is not None:
        block = generated(block)
    size = real.itemsize * width
    few = TINY_WORK if generated is not None else PLAIN_WORK if blas else 1 << 62
    return make_driver(f"rl_gemm_{kind}", size, size, block, simple, few)


def _make_rectangle(
    name: str, c_size: int, block: NativeFunction, simple: NativeFunction | None, few: int
) -> NativeFunction:
    """`i32(ints, c, a, b, rows, columns)`: one rectangle of C."""
    plain, loops = simple is not None, simple or block

    @native("i32(ptr, ptr, ptr, ptr, i64, i64)", name=f"rectangle_{name}", inline=True)
    def rectangle(ints, c, a, b, rows, columns):
        status: i32 = 2
        if not (plain and rows * columns * ints.i64[K] <= few) and ints.i64[K] > 0:
            status = block(ints, c, a, b, rows, columns)
        if status == 2:
            if plain:
                loops(ints, c, a, b, rows, columns)
            else:
                for i in range(rows):
                    for j in range(columns):
                        memset(c + c_size * (i * ints.i64[C_ROW] + j * ints.i64[C_COL]), 0, c_size)
        return i32(status == 1)

    return rectangle


def pitch_of(columns: int) -> int:
    """Elements from one row of sums that wait for an epilogue to the next."""
    return (columns + 15) // 16 * 16 if columns > 1 else 1


@native("void(ptr, i64, ptr)", inline=True)
def add_offsets(ints, batch, at):
    """Add what lies before a matrix of a batch to the offsets of A, B and C."""
    rest = batch
    d = ints.i64[DIMS] - 1
    while d >= 0:
        dims = ints + 8 * (BATCHES + 4 * d)
        i = rest % dims.i64[0]
        rest = rest // dims.i64[0]
        for side in range(3):
            at.i64[side] += i * dims.i64[1 + side]
        d -= 1


def make_driver(
    name: str, size: int, c_size: int, block: NativeFunction, simple: NativeFunction | None, few: int = 0
) -> NativeFunction:
    """The kernel `name`: splits a piece into rectangles, which `block` computes.

    Elements of A and B have `size` bytes, those of C `c_size`.  `simple` computes rectangles of at most `few`
    multiplications or an empty sum, and those that `block` declines (2); without it these are zero.
    """
    rectangle = _make_rectangle(name, c_size, block, simple, few)

    @native("i32(ptr, ptr, i64)", name=name)
    def gemm(bufs, ints, piece):
        row, column, rows, columns, part = i64(0), i64(0), ints.i64[M], ints.i64[N], piece
        tiles = ints.i64[TILES_M] * ints.i64[TILES_N]
        if tiles != 1:
            tile = piece % tiles
            part = piece // tiles
            row = tile // ints.i64[TILES_N] * ints.i64[TILE_M]
            column = tile % ints.i64[TILES_N] * ints.i64[TILE_N]
            rows = min(ints.i64[TILE_M], rows - row)
            columns = min(ints.i64[TILE_N], columns - column)
        first = part * ints.i64[CHUNK]
        last = min(first + ints.i64[CHUNK], ints.i64[TOTAL])
        index, after = ints.i64[A_INDEX], ints.i64[AFTER] != 0
        to, constants = bufs.ptr[0], ints
        slot: i64 = -1
        pitch = (columns + 15) // 16 * 16 if columns > 1 else i64(1)
        if after:
            to = stack(SUMS_BYTES)
            if c_size * rows * pitch > SUMS_BYTES:
                slot = borrow(c_size * rows * pitch)
                if slot < 0:
                    return rl_fail(bufs, piece, 4, 0, 0, 0)
                to = borrowed(slot)
            constants = stack(8 * BATCHES)
            memcpy(constants, ints, 8 * BATCHES)
            constants.i64[C_ROW], constants.i64[C_COL] = pitch, i64(1)
        failed: i32 = 0
        at = stack(24)
        for batch in range(first, last):
            at.i64[0] = row * ints.i64[A_ROW]
            at.i64[1] = column * ints.i64[B_COL]
            at.i64[2] = row * ints.i64[C_ROW] + column * ints.i64[C_COL]
            add_offsets(ints, batch, at)
            c = to if after else to + c_size * at.i64[2]
            a, b = bufs.ptr[index] + size * at.i64[0], bufs.ptr[index + 1] + size * at.i64[1]
            if rectangle(constants, c, a, b, rows, columns) != 0:
                failed = rl_fail(bufs, piece, 4, 0, 0, 0)
            elif after:
                failed = failed | run_epilogue(
                    bufs, ints + 8 * ints.i64[AFTER], piece, to, pitch, batch, row, column, rows, columns
                )
        if slot >= 0:
            give_back(slot)
        return failed

    return gemm


def _make_simple(kind: str, real: Type, width: int) -> NativeFunction:
    """Plain loops for small products, and for types that BLAS does not support; a row of C is the inner loop."""
    size = real.itemsize * width

    @native("void(ptr, i64, i64, ptr, i64, ptr)", name=f"row_{kind}", inline=True)
    def add_row(c, c_col, n, b, b_col, a):
        """c[j] += a * b[j] for a row of n numbers."""
        x = load(real, a, 0)
        if width == 1:
            for j in range(n):
                store(real, c, j * c_col, load(real, c, j * c_col) + x * load(real, b, j * b_col))
        else:
            y = load(real, a, 1)
            for j in range(n):
                u, v = load(real, b, 2 * j * b_col), load(real, b, 2 * j * b_col + 1)
                p, q = 2 * j * c_col, 2 * j * c_col + 1
                store(real, c, p, load(real, c, p) + (x * u - y * v))
                store(real, c, q, load(real, c, q) + (x * v + y * u))

    @native("void(ptr, ptr, i64, i64)", name=f"scale_{kind}", inline=True)
    def scale_row(ints, c, c_col, n):
        """c[j] *= beta for a row of n numbers; beta = 0 overwrites even NaN."""
        beta, gamma = ints.f64[BETA], ints.f64[BETA_IM]
        zero = beta == 0.0 and gamma == 0.0
        if width == 1:
            for j in range(n):
                store(real, c, j * c_col, real(0) if zero else load(real, c, j * c_col) * real(beta))
        else:
            for j in range(n):
                p, q = 2 * j * c_col, 2 * j * c_col + 1
                u, v = load(real, c, p), load(real, c, q)
                x, y = real(beta), real(gamma)
                store(real, c, p, real(0) if zero else u * x - v * y)
                store(real, c, q, real(0) if zero else u * y + v * x)

    @native("i32(ptr, ptr, ptr, ptr, i64, i64)", name=f"simple_{kind}")
    def simple(ints, c, a, b, rows, columns):
        number = stack(16)
        alpha, alpha_im = ints.f64[ALPHA], ints.f64[ALPHA_IM]
        for i in range(rows):
            row = c + size * i * ints.i64[C_ROW]
            scale_row(ints, row, ints.i64[C_COL], columns)
            for k in range(ints.i64[K]):
                x = a + size * (i * ints.i64[A_ROW] + k * ints.i64[A_COL])
                store(real, number, 0, load(real, x, 0) * real(alpha))
                if width == 2:
                    store(real, number, 0, load(real, x, 0) * real(alpha) - load(real, x, 1) * real(alpha_im))
                    store(real, number, 1, load(real, x, 0) * real(alpha_im) + load(real, x, 1) * real(alpha))
                y = b + size * k * ints.i64[B_ROW]
                if ints.i64[C_COL] == 1 and ints.i64[B_COL] == 1:
                    add_row(row, 1, columns, y, 1, number)
                else:
                    add_row(row, ints.i64[C_COL], columns, y, ints.i64[B_COL], number)
        return 0

    return simple


@native("i64(i64, i64, i64, i64)")
def layout(rows, columns, row, column):
    """A matrix's layout for BLAS: its leading dimension, negative if it is read as transposed, 0 if BLAS cannot read
    it."""
    if (column == 1 or columns == 1) and (row >= columns or rows == 1):
        return max(columns if rows == 1 else row, i64(1))
    if (row == 1 or rows == 1) and (column >= rows or columns == 1):
        return -max(rows if columns == 1 else column, i64(1))
    return 0


def _make_packed(kind: str, size: int) -> NativeFunction:
    @native("ptr(ptr, i64, i64, i64, i64)", name=f"packed_{kind}")
    def packed(p, rows, columns, row, column):
        """A contiguous copy of a matrix; null if memory is short."""
        out = malloc(max(size * rows * columns, i64(1)))
        if out is not None:
            for i in range(rows):
                for j in range(columns):
                    memcpy(out + size * (i * columns + j), p + size * (i * row + j * column), size)
        return out

    return packed


def _make_gemv(kind: str, letter: str, real: Type, width: int, integer: Type) -> NativeFunction:
    """A matrix times a column.  A negative leading dimension means that A is read as transposed."""
    size, scalar, t = real.itemsize * width, real.name if width == 1 else "ptr", integer.name
    types = f"i32, i32, {t}, {t}, {scalar}, ptr, {t}, ptr, {t}, {scalar}, ptr, {t}"
    cblas_gemv = extern(f"rl_cblas_{letter}gemv", f"void({types})")

    @native("void(ptr, i64, i64, ptr, ptr, i64, ptr, i64, ptr, i64)", name=f"gemv_{kind}")
    def gemv(ints, m, k, c, a, lda, x, x_step, number, c_step):
        rows, columns, how = integer(m), integer(k), i32(PLAIN)
        if lda < 0:
            rows, columns, how = integer(k), integer(m), i32(TRANSPOSED)
        ld, incx, incy = integer(abs(lda)), integer(x_step), integer(c_step)
        if width == 1:
            alpha, beta = real(ints.f64[ALPHA]), real(ints.f64[BETA])
            cblas_gemv(ROW_MAJOR, how, rows, columns, alpha, a, ld, x, incx, beta, c, incy)
        else:
            cblas_gemv(ROW_MAJOR, how, rows, columns, number, a, ld, x, incx, number + size, c, incy)

    return gemv


def _make_gemm(kind: str, letter: str, real: Type, width: int, integer: Type) -> NativeFunction:
    """A matrix times a matrix.  A negative leading dimension means that an operand is read as transposed."""
    size, scalar, t = real.itemsize * width, real.name if width == 1 else "ptr", integer.name
    types = f"i32, i32, i32, {t}, {t}, {t}, {scalar}, ptr, {t}, ptr, {t}, {scalar}, ptr, {t}"
    cblas_gemm = extern(f"rl_cblas_{letter}gemm", f"void({types})")

    @native("void(ptr, i64, i64, ptr, i64, ptr, i64, ptr, i64, ptr)", name=f"gemm_{kind}")
    def gemm(ints, rows, columns, c, c_step, a, a_step, b, b_step, number):
        m, n, k = integer(rows), integer(columns), integer(ints.i64[K])
        lda, ldb, ldc = integer(abs(a_step)), integer(abs(b_step)), integer(c_step)
        ta = i32(TRANSPOSED if a_step < 0 else PLAIN)
        tb = i32(TRANSPOSED if b_step < 0 else PLAIN)
        if width == 1:
            alpha, beta = real(ints.f64[ALPHA]), real(ints.f64[BETA])
            cblas_gemm(ROW_MAJOR, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
        else:
            cblas_gemm(ROW_MAJOR, ta, tb, m, n, k, number, a, lda, b, ldb, number + size, c, ldc)

    return gemm


def _make_blas(kind: str, letter: str, real: Type, width: int, integer: Type, gated: bool) -> NativeFunction:
    """One block by BLAS: operands with strides that it does not support are copied, C is written in place."""
    packed = _make_packed(kind, real.itemsize * width)
    gemv = _make_gemv(kind, letter, real, width, integer)
    gemm = _make_gemm(kind, letter, real, width, integer)

    @native("i32(ptr, ptr, ptr, ptr, i64, i64)", name=f"block_{kind}")
    def block(ints, c, a, b, m, n):
        """One rectangle of C; 1 if memory for a copy is short, 2 if BLAS cannot write a C of these strides."""
        k = ints.i64[K]
        a_row, a_col, b_row, b_col = ints.i64[A_ROW], ints.i64[A_COL], ints.i64[B_ROW], ints.i64[B_COL]
        c_row, c_col = ints.i64[C_ROW], ints.i64[C_COL]
        if m == 1 or (n > 1 and c_col != 1):  # C transposed = B transposed @ A transposed
            a, b, m, n = b, a, n, m
            a_row, a_col, b_row, b_col = b_col, b_row, a_col, a_row
            c_row, c_col = c_col, c_row
        # a column needs a positive step only; otherwise rows of C must be contiguous and disjoint
        if (n == 1 and m > 1 and c_row < 1) or (n > 1 and (c_col != 1 or (m > 1 and c_row < n))):
            return 2
        number = stack(64)
        store(real, number, 0, real(ints.f64[ALPHA]))
        store(real, number, 1, real(ints.f64[ALPHA_IM]))
        store(real, number, width, real(ints.f64[BETA]))
        store(real, number, 2 * width - 1, real(ints.f64[BETA_IM if width == 2 else BETA]))
        free_a: ptr = None
        free_b: ptr = None
        lda = layout(m, k, a_row, a_col)
        if lda == 0:
            free_a = packed(a, m, k, a_row, a_col)
            a, lda = free_a, k
        ldb = layout(k, n, b_row, b_col)
        if n == 1:
            ldb = b_row if k > 1 else i64(1)
        if ldb == 0 or (n == 1 and ldb < 0):
            free_b = packed(b, k, n, b_row, b_col)
            b, ldb = free_b, n
        status = i32(a is None or b is None)
        if status == 0:
            if gated:
                if m * n * k > SINGLE:
                    enter_blas(1)
            if n == 1:
                gemv(ints, m, k, c, a, lda, b, ldb, number, c_row if m > 1 else i64(1))
            else:
                gemm(ints, m, n, c, c_row if m > 1 else n, a, lda, b, ldb, number)
            if gated:
                if m * n * k > SINGLE:
                    enter_blas(-1)
        free(free_a)
        free(free_b)
        return status

    return block
