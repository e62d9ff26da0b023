"""Matrix products of our own: packing and blocking around a tile kernel, in the native language.

Blocks of A and B are packed into panels (BLIS's structure, see `_backends/cpu/microkernels/register_tile.py`).  There
are two ways to run them.  `make_tiled` computes one rectangle of C: it packs its operands into memory borrowed from a
few blocks, one for each active thread.  `gemm_shared_native.py` is for large products, where many rectangles need the
same operands.
"""

from __future__ import annotations

from collections.abc import Sequence

from rushlight._backends.cpu.gemm.blas_native import (
    A_COL,
    A_ROW,
    ALPHA,
    ALPHA_IM,
    B_COL,
    B_ROW,
    BATCHES,
    BETA,
    BETA_IM,
    C_COL,
    C_ROW,
    K,
)
from rushlight._backends.cpu.gemm.gemm_blocks_native import (
    make_converted,
    make_direct,
    make_finish,
    make_macro,
    make_packs,
    make_transpose,
    make_whole,
)
from rushlight._backends.cpu.gemm.gemm_form import COLUMNS, ROWS, SUMS, WORDS, Form, round_up, scratch_bytes
from rushlight._backends.cpu.microkernels.register_tile import RegisterTile
from rushlight._backends.cpu.scratch_native import borrow, borrowed, give_back
from rushlight._native import Type, i64, load, memcpy, native, stack, store
from rushlight._native.function import NativeFunction

__all__ = ["make_tiled"]


@native("i64(i64, i64, i64)")
def block_depth(k, most, step):
    """`block_of_depth`, in the native language."""
    count = (k + most - 1) // most
    return min(most, ((k + count - 1) // count + step - 1) // step * step)


@native("i1(i64, i64, i64, i64, i64, i64, i64, i64)")
def prefers_transposed(m, n, words, c_row, c_col, mr, nr, cost):
    """Whether C transposed = B transposed @ A transposed is faster: C is column-major, or fills tiles so much better
    that it pays for strided writes.

    Writing one element costs as much as multiplying `cost` words of k for it.
    """
    if c_col != 1:
        return c_row == 1
    plain = (m + mr - 1) // mr * mr * ((n + nr - 1) // nr * nr)
    transposed = (n + mr - 1) // mr * mr * ((m + nr - 1) // nr * nr)
    return (plain - transposed) * words > cost * m * n


@native("i64(i64, i64, i64, i1, i1)", inline=True)
def pitch_of(n, most, nr, whole_rows, once):
    """The row pitch of sums by register tiles that become n elements of C each: the pitch of C, if C is contiguous
    (`whole_rows`)."""
    if not whole_rows or n >= most:
        return most
    # Elements that tiles write beyond a row are overwritten, unless something is added to them
    return n if once else (n + nr - 1) // nr * nr


@native("i64(i64, i64, i64, i1, i1)", inline=True)
def padded_pitch(n, most, nr, whole_rows, once):
    """The same for matrix tiles, which do not write rows in order: none may reach into the next."""
    return min(most, (n + nr - 1) // nr * nr)


def _cost_apart(form: Form) -> NativeFunction:
    """`i64(words)`: the `cost` for `prefers_transposed`.

    Sums that are elements of C are written once and, for each further block of k, read and added to: 2 and 13 words of
    each lane, measured with vectors of 32 bytes.  Other sums are converted once: 8 words.

    Matrix tiles are square: C fills them as well either way.  k may be less than a word of theirs, of which no further
    block may be deduced.
    """
    added = form.narrow is None and isinstance(form.tile, RegisterTile)
    first, again = (2 * form.tile.lanes, 13 * form.tile.lanes) if added else (8 * form.tile.lanes, 0)
    depth = form.depth

    @native("i64(i64)", name=f"cost_apart_{form.name}", inline=True)
    def cost_apart(words):
        return first + again * ((words - 1) // depth)

    return cost_apart


def make_tiled(forms: tuple[Form, ...], other: NativeFunction | None = None, least: int = 0) -> NativeFunction:
    """One rectangle of C by our own kernels: `i32(ints, c, a, b, m, n)`.

    `other` serves thin products and those of fewer than `least` multiplications, too small to pay for packing.

    The second form, if there is one, has a tile of fewer rows: it takes products that fill the first one badly.  A last
    one, with a tile one vector wide, takes those that fill it much better than the others.
    """
    nbytes = max(sum(scratch_bytes(form)) for form in forms)
    fallback = _make_straight(forms[0], nbytes, other) if other is not None else None
    scales = _make_scaled(SUMS[WORDS[forms[0].tile.kind][1]])
    blocked = [_make_blocked(form, nbytes, fallback, least, scales) for form in forms]
    if len(forms) > 1 and forms[-1].tile.vectors == 1:
        return _make_narrower(forms, _make_chosen(forms[:-1], blocked[:-1]), blocked[-1])
    return _make_chosen(forms, blocked)


def _make_chosen(forms: tuple[Form, ...], blocked: Sequence[NativeFunction]) -> NativeFunction:
    """The choice between the first form, and one of fewer rows where there is one."""
    first, second = blocked[0], blocked[-1]
    if len(forms) == 1:
        return first
    high, low, nr = forms[0].tile.rows, forms[1].tile.rows, forms[0].tile.columns
    group, cost_apart = forms[0].tile.group, _cost_apart(forms[0])

    @native("i32(ptr, ptr, ptr, ptr, i64, i64)", name=f"chosen_{forms[0].name}")
    def chosen(ints, c, a, b, m, n):
        words = ints.i64[K] // group
        rows = n if prefers_transposed(m, n, words, ints.i64[C_ROW], ints.i64[C_COL], low, nr, cost_apart(words)) else m
        if (rows + low - 1) // low * low * 31 < (rows + high - 1) // high * high * 30:
            return second(ints, c, a, b, m, n)
        return first(ints, c, a, b, m, n)

    return chosen


def _make_narrower(forms: tuple[Form, ...], usual: NativeFunction, narrow: NativeFunction) -> NativeFunction:
    """The choice between the last form, which has a narrow tile, and the others."""
    pair = forms[0].pair
    high, wide, low, thin = forms[-2].tile.rows, forms[-2].tile.columns, forms[-1].tile.rows, forms[-1].tile.columns

    @native("i64(i64, i64, i64, i64)", name=f"padded_{forms[0].name}", inline=True)
    def padded(m, n, rows, columns):
        """Elements of the tiles that a result occupies."""
        return (m + rows - 1) // rows * rows * ((pair * n + columns - 1) // columns * columns)

    @native("i32(ptr, ptr, ptr, ptr, i64, i64)", name=f"narrower_{forms[0].name}")
    def narrower(ints, c, a, b, m, n):
        filled = padded(m, n, low, thin)
        other_way = padded(n, m, high, wide)  # more expensive, as results are then written transposed
        if filled * 20 < padded(m, n, high, wide) * 17 and (pair == 2 or filled <= other_way):
            return narrow(ints, c, a, b, m, n)
        return usual(ints, c, a, b, m, n)

    return narrower


def _make_scaled(real: Type) -> tuple[NativeFunction, NativeFunction]:
    """For alpha and beta: `void(p, n, x)` multiplies n contiguous numbers by x, and the same for a matrix."""

    @native("void(ptr, i64, f64)", name=f"times_{real.name}")
    def times(p, n, x):
        for i in range(n):
            store(real, p, i, load(real, p, i) * real(x))

    @native("void(ptr, i64, i64, i64, i64, f64)", name=f"scaled_{real.name}")
    def scaled(c, rows, columns, c_row, c_col, x):
        for i in range(rows):
            for j in range(columns):
                store(real, c, i * c_row + j * c_col, load(real, c, i * c_row + j * c_col) * real(x))

    return times, scaled


LEAST_ROWS, LEAST_COLUMNS = 4, 8  # of a rectangle that is packed where a library computes thin ones
THIN = 24  # rows, columns or steps below which little work is not packed


def is_declined(rows: int, columns: int, k: int, least: int) -> bool:
    """`_make_declined` for real numbers, in Python."""
    work = rows * columns * k
    little = work < least or (work < 8 * least and min(rows, columns, k) < THIN)
    return bool(least) and (rows < LEAST_ROWS or columns < LEAST_COLUMNS or little)


def _make_declined(form: Form, least: int) -> NativeFunction:
    """`i1(ints, m, n)`: whether a product is too small to pack, or needs something that tiles of pairs do not support."""
    pair, thin = form.pair, THIN
    least_m, least_n = (LEAST_ROWS, LEAST_COLUMNS) if least else (0, 0)
    if pair == 2:  # four real multiplications in one, and the library's small complex kernels are less efficient
        least, thin = least // 32, 12

    @native("i1(ptr, i64, i64)", name=f"declined_{form.name}", inline=True)
    def declined(ints, m, n):
        k = ints.i64[K]
        work = m * n * k
        if m < least_m or n < least_n or work < least or (work < 8 * least and min(min(m, n), k) < thin):
            return True
        if pair == 2:
            scaled = (
                ints.f64[ALPHA] != 1.0 or ints.f64[ALPHA_IM] != 0.0 or ints.f64[BETA] != 0.0 or ints.f64[BETA_IM] != 0.0
            )
            return ints.i64[C_COL] != 1 or scaled
        return False

    return declined


STRAIGHT = 4096  # most elements of B for which a product too small to pack has B copied to row-major order


def _make_straight(form: Form, nbytes: int, other: NativeFunction) -> NativeFunction:
    """`other`, with a small column-major B copied to rows first: libraries are fast for small products of row-major
    operands only."""
    tile = form.tile
    if not isinstance(tile, RegisterTile) or form.pair == 2 or form.widen[1] is not None:
        return other
    size, least = form.sizes[0], tile.square
    transpose = make_transpose(f"straight_{tile.kind}", SUMS[WORDS[tile.kind][1]], tile.panels)

    @native("i32(ptr, ptr, ptr, ptr, i64, i64)", name=f"straight_{form.name}")
    def straight(ints, c, a, b, m, n):
        k = ints.i64[K]
        if ints.i64[B_ROW] != 1 or ints.i64[B_COL] == 1 or m < 4 or min(n, k) < least or k * n > STRAIGHT:
            return other(ints, c, a, b, m, n)
        slot = borrow(max(i64(nbytes), size * k * n + 64))
        if slot < 0:
            return other(ints, c, a, b, m, n)
        constants = stack(8 * BATCHES)
        memcpy(constants, ints, 8 * BATCHES)
        constants.i64[B_ROW], constants.i64[B_COL] = n, i64(1)
        transpose(borrowed(slot), b, n, ints.i64[B_COL], k)
        status = other(constants, c, a, borrowed(slot), m, n)
        give_back(slot)
        return status

    return straight


# long function: native code of one loop nest
def _make_blocked(
    form: Form, nbytes: int, other: NativeFunction | None, least: int, scales: tuple[NativeFunction, NativeFunction]
) -> NativeFunction:
    """One rectangle of C with one tile; `other` takes what the tile declines."""
    tile, own = form.tile, other is not None
    (_, total), e, group, mr, nr = form.sizes, form.source.itemsize, tile.group, tile.rows, tile.columns
    pair = form.pair
    pack_a, pack_b = make_packs(form)
    macro, whole = make_macro(form), make_whole(tile)
    plain = form.narrow is None
    finish = macro if plain else make_finish(form)
    c_size = form.result.itemsize
    rows_max, columns_max = round_up(ROWS, mr), round_up(COLUMNS, tile.columns) // pair
    depth_max = form.depth * group // pair
    a_bytes, b_bytes, sum_bytes, _ = scratch_bytes(form)
    matrix = not isinstance(tile, RegisterTile)
    rounds, cost_apart = not plain if matrix else form.rounded is not None, _cost_apart(form)
    pitch_between, make_at_once = (padded_pitch, make_converted) if matrix else (pitch_of, make_direct)
    direct = make_at_once(form) if rounds else macro
    may_transpose = pair == 1 and form.other is form.source
    span = 1 << 60 if plain else 2 * rows_max
    times, scaled = scales
    declined, fallback = _make_declined(form, least), other if other is not None else macro

    @native("i32(ptr, ptr, ptr, ptr, i64, i64)", name=f"generated_{form.name}")
    def generated(ints, c, a, b, m, n):
        if own:
            if declined(ints, m, n):
                return fallback(ints, c, a, b, m, n)
        slot = borrow(nbytes)
        if slot < 0:
            if own:
                return fallback(ints, c, a, b, m, n)
            return 1
        k = ints.i64[K]
        a_row, a_col, b_row, b_col = ints.i64[A_ROW], ints.i64[A_COL], ints.i64[B_ROW], ints.i64[B_COL]
        c_row, c_col = ints.i64[C_ROW], ints.i64[C_COL]
        if may_transpose:
            if prefers_transposed(m, n, k // group, c_row, c_col, mr, nr, cost_apart(k // group)):
                a, b, m, n = b, a, n, m
                a_row, a_col, b_row, b_col = b_col, b_row, a_col, a_row
                c_row, c_col = c_col, c_row
        pa = borrowed(slot)
        pb = pa + a_bytes
        sums = pb + b_bytes
        aside = sums + sum_bytes
        start: i64 = 0
        if plain:
            if ints.f64[BETA] != 0.0:
                start = 1
                if ints.f64[BETA] != 1.0:
                    scaled(c, m, n, c_row, c_col, ints.f64[BETA])
        depth = block_depth(k, depth_max, max(4, group))
        pitch = pitch_between(n, columns_max, nr, c_col == 1 and c_row == n, depth >= k)
        at_once = rounds and depth >= k and c_col == 1
        reach = m if at_once else i64(span)
        top: i64 = 0
        while top < m:
            height = min(reach, m - top)
            for j in range(0, n, columns_max):
                columns = min(i64(columns_max), n - j)
                p: i64 = 0
                while p < k:
                    steps = min(depth, k - p)
                    words = (pair * steps + group - 1) // group
                    pack_b(pb, b + e * (p * b_row + j * b_col), columns, steps, b_col, b_row, aside)
                    for i in range(0, height, rows_max):
                        rows = min(i64(rows_max), height - i)
                        pack_a(pa, a + e * ((top + i) * a_row + p * a_col), rows, steps, a_row, a_col, aside)
                        if plain:
                            if ints.f64[ALPHA] != 1.0:
                                times(pa, (rows + mr - 1) // mr * mr * words, ints.f64[ALPHA])
                            to = c + c_size * ((top + i) * c_row + j * c_col)
                            macro(
                                pa, pb, to, pair * c_row, c_col, words, rows, pair * columns, i64(p > 0 or start != 0)
                            )
                        elif at_once:
                            if rounds:
                                direct(pa, pb, c + c_size * ((top + i) * c_row + j), c_row, words, rows, columns)
                        else:
                            whole(pa, pb, sums + total * i * pitch, pitch, words, rows, columns, i64(p > 0))
                    p += depth
                if not plain and not at_once:
                    finish(c + c_size * (top * c_row + j * c_col), c_row, c_col, sums, pitch, height, columns)
            top += reach
        give_back(slot)
        return 0

    return generated
