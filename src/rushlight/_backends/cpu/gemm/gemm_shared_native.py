"""Large matrix products of our own, in the native language: one kernel packs both operands once for all pieces, another
multiplies.

One of them may stay packed from call to call (see `pinned_native`).
"""

from __future__ import annotations

from collections.abc import Sequence

from rushlight._backends.cpu.epilogue.epilogue_native import run_epilogue
from rushlight._backends.cpu.gemm.blas_native import (
    A_COL,
    A_INDEX,
    A_ROW,
    AFTER,
    B_COL,
    B_ROW,
    BATCHES,
    C_COL,
    C_ROW,
    TILE_M,
    TILE_N,
    TILES_N,
    K,
    M,
    N,
)
from rushlight._backends.cpu.gemm.gemm_blocks_native import make_finish, make_macro, make_packs
from rushlight._backends.cpu.gemm.gemm_form import COLUMNS, Form, round_up, scratch_bytes
from rushlight._backends.cpu.pinned_native import LEAD, NEVER, PACKED, begin_packing, end_packing, pinned_panels
from rushlight._backends.cpu.scratch_native import borrow, borrowed, give_back
from rushlight._native import extern, i32, i64, native, ptr
from rushlight._native.function import NativeFunction

__all__ = ["PACK_CONSTANTS", "P_BEFORE", "P_PINNED", "make_shared", "packed_as"]

rl_fail = extern("rl_fail", "i32(ptr, i64, i64, i64, i64, i64)")

# words after those of every product (no batches): length of a block of k, pieces that pack A; and for A, then for B:
# rows of A or columns of B in one piece of packing, elements of k in it, offset of the prologue's words (0: the operand
# is in memory), whether rows of its rectangles run along k
P_DEPTH, P_PIECES, P_CHUNK = BATCHES, BATCHES + 1, BATCHES + 2
P_REACH, P_BEFORE, P_ALONG = P_CHUNK + 2, P_CHUNK + 4, P_CHUNK + 6
P_PINNED, P_SIDE = P_CHUNK + 8, P_CHUNK + 9  # the address of PINNED (0: none); which operand it is of, 0 A or 1 B
PACK_CONSTANTS = 12
# rows of A or columns of B that a prologue computes at once, about, and blocks of k, if they run along k; otherwise it
# computes MADE * SPAN of them for one block of k
MADE, SPAN = 16, 4


def packed_as(ints: Sequence[int]) -> tuple[int, ...]:
    """Properties on which the packed form of the pinned operand, and its pieces, depend beside the kernel."""
    side = ints[P_SIDE]
    own = (N, K, B_ROW, B_COL) if side else (M, K, A_ROW, A_COL)
    words = (*own, P_DEPTH, P_SIDE, *(k + side for k in (P_CHUNK, P_REACH, P_BEFORE, P_ALONG)))
    return tuple(ints[k] for k in words)


def make_shared(form: Form) -> tuple[NativeFunction, NativeFunction]:
    """Two kernels of the usual form: one packs A and B (`bufs`: packed, A, B), one multiplies (`bufs`: C, packed).

    All of A is packed first, then all of B: consecutive blocks of `P_DEPTH` elements of k, each of consecutive panels.
    """
    (size, _), group, pair = form.sizes, form.tile.group, form.pair

    @native("i64(i64, i64)", inline=True)
    def a_packed(padded, k):
        """Bytes of all of A, rounded up to whole vectors for B behind it."""
        return (size * padded * ((pair * k + group - 1) // group) + 63) // 64 * 64

    return _make_shared_pack(form, a_packed), _make_shared_multiply(form, a_packed)


def _make_side(form: Form, side: int, pack: NativeFunction) -> NativeFunction:
    """`i32(bufs, ints, piece, out, padded, x, first, count, start, stop, aside)`: packs `count` rows of A (columns of
    B: `side` 1) from `first` on, elements `start` to `stop` of k, into blocks of `padded` rows.  A prologue's results
    are first stored behind `aside`.
    """
    size, group, width, itemsize = (
        form.sizes[0],
        form.tile.group,
        form.widths[side],
        (form.source, form.other)[side].itemsize,
    )
    step_field, k_field = ((A_ROW, A_COL), (B_COL, B_ROW))[side]
    before = form.before if side else 0
    # A complex number of B takes twice the room of one of A, and none has a prologue
    pair, twice = (form.pair, form.pair if side else 1)
    some, raw_bytes, tag = round_up(MADE, width), scratch_bytes(form)[3], f"{'ab'[side]}_{form.name}"

    @native("i32(ptr, ptr, i64, ptr, i64, i64, i64, i64, i64, ptr)", name=f"made_{tag}")
    def pack_made(bufs, ints, piece, out, padded, first, count, start, stop, aside):
        depth, prologue = ints.i64[P_DEPTH], ints + 8 * ints.i64[P_BEFORE + side]
        along, results = ints.i64[P_ALONG + side] != 0, aside + raw_bytes
        chunk, reach, i = i64(SPAN * some), depth, i64(0)
        if along:
            chunk, reach = i64(some), SPAN * depth
        while i < count:
            rows, p = min(chunk, count - i), start
            while p < stop:
                steps, within, status = min(depth, stop - p), (p - start) % reach, i32(0)
                length = min(reach, stop - p + within)
                if along and within == 0:
                    status = run_epilogue(bufs, prologue, piece, results, length, 0, first + i, p, rows, length)
                elif within == 0:
                    status = run_epilogue(bufs, prologue, piece, results, rows, 0, p, first + i, length, rows)
                if status != 0:
                    return status
                words = (steps + group - 1) // group
                to = out + size * ((p // group + p // depth * before) * padded + (first + i) * (words + before))
                if along:
                    pack(to, results + itemsize * within, rows, steps, length, 1, aside)
                else:
                    pack(to, results, rows, steps, 1, rows, aside)
                p += depth
            i += chunk
        return 0

    @native("i32(ptr, ptr, i64, ptr, i64, ptr, i64, i64, i64, i64, ptr)", name=f"side_{tag}")
    def pack_side(bufs, ints, piece, out, padded, x, first, count, start, stop, aside):
        if ints.i64[P_BEFORE + side] != 0:
            return pack_made(bufs, ints, piece, out, padded, first, count, start, stop, aside)
        depth, step, k_step = ints.i64[P_DEPTH], ints.i64[step_field], ints.i64[k_field]
        p = start
        while p < stop:
            words = (pair * min(depth, stop - p) + group - 1) // group
            to = out + size * ((pair * p // group + p // depth * before) * padded + twice * first * (words + before))
            pack(to, x + itemsize * (first * step + p * k_step), count, min(depth, stop - p), step, k_step, aside)
            p += depth
        return 0

    return pack_side


def _make_shared_pack(form: Form, a_packed: NativeFunction) -> NativeFunction:
    """The kernel that packs: half of the pieces of A, all of B, the other half of A.

    Of two threads one takes pieces from the front and one from the end (see `threads_native.py`), here and when they
    multiply: a thread packs the rows of A that it multiplies, so they do not move between caches.
    """
    mr, nr, pair = form.tile.rows, form.tile.columns, form.pair
    a_side, b_side = (_make_side(form, side, pack) for side, pack in enumerate(make_packs(form)))
    raw_bytes = scratch_bytes(form)[3]
    made_bytes = (
        round_up(MADE, max(form.widths))
        * SPAN
        * form.depth
        * form.tile.group
        * max(form.source.itemsize, form.other.itemsize)
    )

    @native("i32(ptr, ptr, i64)", name="rl_pack")
    def pack(bufs, ints, piece):
        k, m, n = ints.i64[K], ints.i64[M], ints.i64[N]
        half, b_chunk, b_reach = ints.i64[P_PIECES] // 2, ints.i64[P_CHUNK + 1], ints.i64[P_REACH + 1]
        b_end = half + (n + b_chunk - 1) // b_chunk * ((k + b_reach - 1) // b_reach)
        is_b = i64(half <= piece < b_end)
        out, state, padded = bufs.ptr[0], ints.ptr[P_PINNED], (m + mr - 1) // mr * mr
        if state is not None:
            out += LEAD
        total, number, mark = m, piece, i64(PACKED)
        if is_b != 0:
            out += a_packed(padded, k)
            padded, total, number = (pair * n + nr - 1) // nr * nr, n, piece - half
        elif piece >= b_end:
            number = piece - b_end + half
        if state is not None:
            if is_b == ints.i64[P_SIDE]:
                kept = pinned_panels(state, bufs.i64[1 + is_b])
                bufs.ptr[0].ptr[0] = kept
                if kept is not None:
                    out, mark = kept, begin_packing(state, number)
                    if mark == PACKED:
                        return 0
        slot: i64 = -1
        aside: ptr = None
        if raw_bytes > 0 or ints.i64[P_BEFORE + is_b] != 0:
            slot = borrow(raw_bytes + made_bytes)
            if slot < 0:
                if mark != PACKED:
                    end_packing(state, number, NEVER)
                return rl_fail(bufs, piece, 4, 0, 0, 0)
            aside = borrowed(slot)
        chunk, reach = ints.i64[P_CHUNK + is_b], ints.i64[P_REACH + is_b]
        chunks = (total + chunk - 1) // chunk
        first, start = number % chunks * chunk, number // chunks * reach
        count, stop = min(chunk, total - first), min(k, start + reach)
        status: i32 = 0
        if is_b != 0:
            status = b_side(bufs, ints, piece, out, padded, bufs.ptr[2], first, count, start, stop, aside)
        else:
            status = a_side(bufs, ints, piece, out, padded, bufs.ptr[1], first, count, start, stop, aside)
        if slot >= 0:
            give_back(slot)
        if mark != PACKED:
            end_packing(state, number, mark if status == 0 else i64(NEVER))
        return status

    return pack


def _make_shared_multiply(form: Form, a_packed: NativeFunction) -> NativeFunction:
    """The kernel that multiplies: a piece is a rectangle of C."""
    tile = form.tile
    (size, _), group, mr, nr = form.sizes, tile.group, tile.rows, tile.columns
    macro = make_macro(form)
    plain = form.narrow is None
    finish = macro if plain else make_finish(form)
    c_size, before = form.result.itemsize, form.before
    sum_bytes, raw_bytes = scratch_bytes(form)[2:]
    columns_max, pair = round_up(COLUMNS, nr), form.pair

    @native("i32(ptr, ptr, i64)", name="rl_multiply")
    def multiply(bufs, ints, piece):
        k, depth, m, n = ints.i64[K], ints.i64[P_DEPTH], ints.i64[M], ints.i64[N]
        c_row, c_col = ints.i64[C_ROW], ints.i64[C_COL]
        row = piece // ints.i64[TILES_N] * ints.i64[TILE_M]
        column = piece % ints.i64[TILES_N] * ints.i64[TILE_N]
        rows, columns = min(ints.i64[TILE_M], m - row), min(ints.i64[TILE_N], n - column)
        m_padded, n_padded = (m + mr - 1) // mr * mr, (pair * n + nr - 1) // nr * nr
        a = bufs.ptr[ints.i64[A_INDEX]]
        head = a
        if ints.i64[P_PINNED] != 0:
            a += LEAD
        b = a + a_packed(m_padded, k)
        if ints.i64[P_PINNED] != 0:
            if head.ptr[0] is not None:
                if ints.i64[P_SIDE] != 0:
                    b = head.ptr[0]
                else:
                    a = head.ptr[0]
        c = bufs.ptr[0] + c_size * (row * c_row + column * c_col)
        slot: i64 = 0
        to, to_row, to_col = c, c_row, c_col
        after = ints.i64[AFTER] != 0
        if not plain or after:
            slot = borrow(max(sum_bytes + raw_bytes, c_size * rows * columns_max))
            if slot < 0:
                return rl_fail(bufs, piece, 4, 0, 0, 0)
            to, to_row, to_col = borrowed(slot), i64(columns_max), i64(1)
        p: i64 = 0
        while p < k:
            words = (pair * min(depth, k - p) + group - 1) // group
            pa = a + size * (pair * p // group * m_padded + row * words)
            pb = b + size * ((pair * p // group + p // depth * before) * n_padded + pair * column * (words + before))
            macro(pa, pb, to, pair * to_row, to_col, words, rows, pair * columns, i64(p > 0))
            p += depth
        status: i32 = 0
        if after:
            status = run_epilogue(bufs, ints + 8 * ints.i64[AFTER], piece, to, to_row, 0, row, column, rows, columns)
        elif not plain:
            finish(c, c_row, c_col, to, to_row, rows, columns)
        if after or not plain:
            give_back(slot)
        return status

    return multiply
