"""The derivative of attention without a matrix of scores, in the native language.

A piece is some keys of one head (Dao et al., 2022, algorithm 4, its outer loop).  For each block of queries it
recomputes the weights of a block of keys, from the logarithms of the rows' sums, and adds three products: for the
piece's values and keys, in its own memory; for the queries, directly in the result if the piece has all keys, else in
memory of its own, which `make_collect` adds in order.  So no two pieces write to the same memory, and the order of
every sum depends on sizes alone.

As in the forward, features or keys are rows and queries columns; the weights are transposed once for the products that
sum over queries.
"""

from __future__ import annotations

from rushlight._backends.cpu.attention.attention_native import (
    ADDED,
    CAUSAL,
    Parts,
    announce,
    bounds,
    matrix_offsets,
    rl_fail,
    up,
)
from rushlight._backends.cpu.scratch_native import borrow, borrowed, give_back
from rushlight._native import i64, load, memcpy, memset, native, stack, store
from rushlight._native.function import NativeFunction

__all__ = ["GRAD_SLOTS", "STRETCH", "block_queries", "make_attention_grad", "make_collect"]

# ints[8 + ...]; `span` keys make a piece, `parts` pieces a head; `own`: sums for the queries are collected later;
# `first`: the first operand's buffer
GRAD_SLOTS = (
    "queries", "keys", "width", "depth", "scale", "masking", "span", "heads", "dims", "parts", "own", "first",
    "ct_row", "ct_col", "q_row", "q_col", "k_row", "k_col", "v_row", "v_col", "mask_row", "mask_col",
    "dq_row", "dq_col", "dk_row", "dk_col", "dv_row", "dv_col",
)  # fmt: skip
(
    QUERIES, KEYS, WIDTH, DEPTH, SCALE, MASKING, SPAN, HEADS, DIMS, PARTS, OWN, FIRST, CT_ROW, CT_COL, Q_ROW, Q_COL, K_ROW, K_COL, V_ROW, V_COL,
    MASK_ROW, MASK_COL, DQ_ROW, DQ_COL, DK_ROW, DK_COL, DV_ROW, DV_COL,
) = range(8, 8 + len(GRAD_SLOTS))  # fmt: skip
LEAD = 8 + len(GRAD_SLOTS)
STRETCH = 1024  # keys whose sums a piece holds at a time, about
OPERANDS = 8  # operands in the table of leading dims: ct, q, k, v, mask, dq, dk, dv


def block_queries(columns: int) -> int:
    """Queries in a block: enough that adding to the sums for the keys costs little."""
    return -(-64 // columns) * columns


# offsets in `room`, in numbers: keys and values of a piece, then a block of queries
AREAS = (
    "keys", "values", "features", "to_keys", "to_values",
    "q_lanes", "ct_lanes", "q_rows", "ct_rows", "norm", "delta",
    "weights", "slopes", "weights_transposed", "slopes_transposed", "to_queries", "bias", "aside", "end",
)  # fmt: skip
(
    A_KEYS, A_VALUES, A_FEATURES, A_TO_KEYS, A_TO_VALUES, A_Q_LANES, A_CT_LANES, A_Q_ROWS, A_CT_ROWS, A_NORM, A_DELTA, A_WEIGHTS, A_SLOPES,
    A_WT, A_ST, A_TO_QUERIES, A_BIAS, A_ASIDE, A_END,
) = range(len(AREAS))  # fmt: skip


def _make_layout(parts: Parts) -> NativeFunction:
    mr, nr, steps, rows = parts.tile.rows, parts.tile.columns, parts.blocks.steps, block_queries(parts.tile.columns)
    side = max(steps, rows)

    @native("void(ptr, i64, i64, i64)", name=f"areas_{parts.name}")
    def areas(at, keys, width, depth):
        """The offset of each area, for `keys` keys."""
        wide, deep = up(width, mr), up(depth, mr)
        at.i64[A_KEYS] = 0
        at.i64[A_VALUES] = keys * width
        at.i64[A_FEATURES] = at.i64[A_VALUES] + keys * depth
        at.i64[A_TO_KEYS] = at.i64[A_FEATURES] + keys * wide
        at.i64[A_TO_VALUES] = at.i64[A_TO_KEYS] + keys * wide
        at.i64[A_Q_LANES] = at.i64[A_TO_VALUES] + keys * deep
        at.i64[A_CT_LANES] = at.i64[A_Q_LANES] + rows * width
        at.i64[A_Q_ROWS] = at.i64[A_CT_LANES] + rows * depth
        at.i64[A_CT_ROWS] = at.i64[A_Q_ROWS] + rows * wide
        at.i64[A_NORM] = at.i64[A_CT_ROWS] + rows * deep
        at.i64[A_DELTA] = at.i64[A_NORM] + rows
        at.i64[A_WEIGHTS] = at.i64[A_DELTA] + rows
        at.i64[A_SLOPES] = at.i64[A_WEIGHTS] + rows * steps
        at.i64[A_WT] = at.i64[A_SLOPES] + rows * steps
        at.i64[A_ST] = at.i64[A_WT] + rows * steps
        at.i64[A_TO_QUERIES] = at.i64[A_ST] + rows * steps
        at.i64[A_BIAS] = at.i64[A_TO_QUERIES] + rows * wide
        at.i64[A_ASIDE] = at.i64[A_BIAS] + nr * steps
        at.i64[A_END] = at.i64[A_ASIDE] + side * max(max(wide, deep), i64(side))

    return areas


def _make_pack_keys(parts: Parts) -> NativeFunction:
    size, item, mr, steps, group = parts.real.itemsize, parts.item, parts.tile.rows, parts.blocks.steps, parts.group
    pack = parts.pack_rows

    @native("void(ptr, ptr, ptr, ptr, ptr, i64, i64)", name=f"pack_keys_{parts.name}")
    def pack_keys(ints, room, at, k, v, n, keys):
        """Pack n keys and values in all the layouts that are needed; their sums begin at 0."""
        width, depth = ints.i64[WIDTH], ints.i64[DEPTH]
        wide = up(width, mr)
        aside = room + size * at.i64[A_ASIDE]
        announce(k, min(n, i64(steps)), item * ints.i64[K_ROW], item * width)
        announce(v, min(n, i64(steps)), item * ints.i64[V_ROW], item * depth)
        pack(room + size * at.i64[A_KEYS], k, n, width, ints.i64[K_ROW], ints.i64[K_COL], aside)
        pack(room + size * at.i64[A_VALUES], v, n, depth, ints.i64[V_ROW], ints.i64[V_COL], aside)
        for b in range(0, n, steps):
            out = room + size * (at.i64[A_FEATURES] + b // group * wide)
            pack(
                out,
                k + item * b * ints.i64[K_ROW],
                width,
                min(i64(steps), n - b),
                ints.i64[K_COL],
                ints.i64[K_ROW],
                aside,
            )
        memset(room + size * at.i64[A_TO_KEYS], 0, size * keys * (wide + up(depth, mr)))

    return pack_keys


def _make_pack_queries(parts: Parts) -> NativeFunction:
    real, size, item, nr = parts.real, parts.real.itemsize, parts.item, parts.tile.columns
    lanes = parts.pack_lanes
    pack = lanes if parts.tiles else parts.pack_rows  # of sums over queries matrix tiles take the weights as rows
    rows = block_queries(nr)
    high = float("inf")

    @native("void(ptr, ptr, ptr, ptr, ptr, ptr, ptr, i64)", name=f"pack_queries_{parts.name}")
    def pack_queries(ints, room, at, q, ct, norm, delta, n):
        """Pack n queries and cotangents in all the layouts that are needed; missing queries have weights of 0."""
        width, depth = ints.i64[WIDTH], ints.i64[DEPTH]
        aside = room + size * at.i64[A_ASIDE]
        announce(ct, n, item * ints.i64[CT_ROW], item * depth)
        lanes(room + size * at.i64[A_Q_LANES], q, n, width, ints.i64[Q_ROW], ints.i64[Q_COL], aside)
        lanes(room + size * at.i64[A_CT_LANES], ct, n, depth, ints.i64[CT_ROW], ints.i64[CT_COL], aside)
        pack(room + size * at.i64[A_Q_ROWS], q, width, n, ints.i64[Q_COL], ints.i64[Q_ROW], aside)
        pack(room + size * at.i64[A_CT_ROWS], ct, depth, n, ints.i64[CT_COL], ints.i64[CT_ROW], aside)
        memcpy(room + size * at.i64[A_NORM], norm, size * n)
        memcpy(room + size * at.i64[A_DELTA], delta, size * n)
        for i in range(n, rows):
            store(real, room, at.i64[A_NORM] + i, real(high))
            store(real, room, at.i64[A_DELTA] + i, real(0))

    return pack_queries


def _make_panel(parts: Parts) -> NativeFunction:
    real, size, mr, nr, group = parts.real, parts.real.itemsize, parts.tile.rows, parts.tile.columns, parts.group
    rows, steps, words_of = block_queries(parts.tile.columns), parts.blocks.steps, parts.words
    kernel, again, slope, bias = parts.kernel, parts.masked["again"], parts.slope, parts.bias
    lanes_of, transposed_lanes, closed = parts.lanes_of, parts.transposed_lanes, parts.closed

    @native("i64(ptr, ptr, ptr, ptr, i64, i64, i64, i64, i64, i64)", name=f"panel_{parts.name}")
    def panel(ints, room, at, mask, p, b, n, packed, valid, shift):
        """Compute weights and slopes of a panel of queries, at offset p of the block, for n of the `packed` keys from b
        on; add their terms for the queries.

        Returns 0 where the mask excludes all of them: then all of that is 0.
        """
        width, depth, masking = words_of(ints.i64[WIDTH]), words_of(ints.i64[DEPTH]), ints.i64[MASKING]
        wide, words = up(ints.i64[WIDTH], mr), words_of(n)
        weights = room + size * (at.i64[A_WEIGHTS] + p * steps)
        slopes = room + size * (at.i64[A_SLOPES] + p * steps)
        keys, queries = room + size * (at.i64[A_KEYS] + b * width), room + size * (at.i64[A_Q_LANES] + p * width)
        values, ct = room + size * (at.i64[A_VALUES] + b * depth), room + size * (at.i64[A_CT_LANES] + p * depth)
        out, transposed_at = room + size * (at.i64[A_TO_QUERIES] + p * wide), size * (p // group * nr)
        biases, aside = room + size * at.i64[A_BIAS], room + size * at.i64[A_ASIDE]
        if masking >= ADDED:
            bias(masking, biases, mask, valid, n, ints.i64[MASK_ROW], ints.i64[MASK_COL], aside)
            if closed(biases, n) != 0:
                if b == 0:
                    memset(out, 0, size * wide * nr)
                for c in range(0, n, nr):
                    offset = transposed_at + size * (c * (rows // group))
                    memset(room + size * at.i64[A_WT] + offset, 0, size * (nr // group * nr))
                    memset(room + size * at.i64[A_ST] + offset, 0, size * (nr // group * nr))
                return 0
        for r in range(0, n, mr):
            kernel(keys + size * r * width, queries, weights + size * r * nr, nr, width, 0)
            kernel(values + size * r * depth, ct, slopes + size * r * nr, nr, depth, 0)
        again(masking, weights, n, ints.f64[SCALE], room + size * (at.i64[A_NORM] + p), biases, shift)
        slope(weights, slopes, n, room + size * (at.i64[A_DELTA] + p), real(ints.f64[SCALE]))
        features = room + size * (at.i64[A_FEATURES] + b // group * wide)
        slope_lanes = lanes_of(biases, slopes, n, aside)
        for r in range(0, wide, mr):
            kernel(features + size * r * words_of(packed), slope_lanes, out + size * r * nr, nr, words, i64(b > 0))
        transposed_lanes(room + size * at.i64[A_WT] + transposed_at, weights, n, rows // group * nr, aside)
        transposed_lanes(room + size * at.i64[A_ST] + transposed_at, slopes, n, rows // group * nr, aside)
        return 1

    return panel


def _make_sums(parts: Parts) -> NativeFunction:
    size, mr, nr = parts.real.itemsize, parts.tile.rows, parts.tile.columns
    rows, kernel, group, words_of = block_queries(parts.tile.columns), parts.kernel, parts.group, parts.words

    @native("void(ptr, ptr, ptr, i64, i64, i64, i64, i64)", name=f"sums_{parts.name}")
    def sums(ints, room, at, b, n, queries, keys, lead):
        """Add the terms of a block of queries for n keys from b on; `lead`: index of the first of these less that of
        the first query."""
        words = words_of(queries)
        for c in range(0, n, nr):
            skipped: i64 = 0
            if ints.i64[MASKING] == CAUSAL:
                skipped = max(i64(0), (lead + c) // nr * nr)
            if skipped >= queries:
                break
            first = skipped // group
            weights = room + size * (at.i64[A_WT] + c * (rows // group) + first * nr)
            slopes = room + size * (at.i64[A_ST] + c * (rows // group) + first * nr)
            for r in range(0, ints.i64[DEPTH], mr):
                out = room + size * (at.i64[A_TO_VALUES] + r * keys + b + c)
                kernel(room + size * (at.i64[A_CT_ROWS] + r * words + first * mr), weights, out, keys, words - first, 1)
            for r in range(0, ints.i64[WIDTH], mr):
                out = room + size * (at.i64[A_TO_KEYS] + r * keys + b + c)
                kernel(room + size * (at.i64[A_Q_ROWS] + r * words + first * mr), slopes, out, keys, words - first, 1)

    return sums


def _make_clear(mr: int, nr: int) -> NativeFunction:
    @native("void(ptr, ptr, ptr, i64)", name="clear_rows")
    def clear(weights, slopes, pairs, n):
        """Zeros for the keys from n on that a matrix tile takes in excess."""
        skip = 2 * nr * n
        memset(weights + skip, 0, 2 * nr * mr - skip)
        memset(slopes + skip, 0, 2 * nr * mr - skip)
        if n % 2 != 0:
            for i in range(nr):
                pairs.u16[nr * (n - 1) + 2 * i + 1] = 0
            skip += 2 * nr
        memset(pairs + skip, 0, 2 * nr * mr - skip)

    return clear


def _make_tiles_panel(parts: Parts) -> NativeFunction:
    """`panel` by matrix tiles: weights and slopes become rows [keys / 32][queries / 32][32][32] of the products that
    sum over queries."""
    size, mr, nr = parts.real.itemsize, parts.tile.rows, parts.tile.columns
    rows, steps, words_of = block_queries(parts.tile.columns), parts.blocks.steps, parts.words
    kernel, slopes_of, bias, closed, clear = parts.kernel, parts.slopes, parts.bias, parts.closed, _make_clear(mr, nr)

    @native("i64(ptr, ptr, ptr, ptr, i64, i64, i64, i64, i64, i64)", name=f"panel_{parts.name}")
    def panel(ints, room, at, mask, p, b, n, packed, valid, shift):
        width, depth, masking = words_of(ints.i64[WIDTH]), words_of(ints.i64[DEPTH]), ints.i64[MASKING]
        wide = up(ints.i64[WIDTH], mr)
        scores, shares, biases = (
            room + size * at.i64[A_WEIGHTS],
            room + size * at.i64[A_SLOPES],
            room + size * at.i64[A_BIAS],
        )
        pairs = scores + size * steps * nr
        keys, queries = room + size * (at.i64[A_KEYS] + b * width), room + size * (at.i64[A_Q_LANES] + p * width)
        values, ct = room + size * (at.i64[A_VALUES] + b * depth), room + size * (at.i64[A_CT_LANES] + p * depth)
        weight_rows, slope_rows = (
            room + size * (at.i64[A_WT] + p * (nr // 2)),
            room + size * (at.i64[A_ST] + p * (nr // 2)),
        )
        out = room + size * (at.i64[A_TO_QUERIES] + p * wide)
        if masking >= ADDED:
            bias(masking, biases, mask, valid, n, ints.i64[MASK_ROW], ints.i64[MASK_COL], room + size * at.i64[A_ASIDE])
            if closed(biases, n) != 0:
                if b == 0:
                    memset(out, 0, size * wide * nr)
                for c in range(0, n, mr):
                    memset(weight_rows + size * c * (rows // 2), 0, size * mr * (nr // 2))
                    memset(slope_rows + size * c * (rows // 2), 0, size * mr * (nr // 2))
                return 0
        for r in range(0, n, mr):
            kernel(keys + size * r * width, queries, scores + size * r * nr, nr, width, 0)
            kernel(values + size * r * depth, ct, shares + size * r * nr, nr, depth, 0)
        norm, delta = room + size * (at.i64[A_NORM] + p), room + size * (at.i64[A_DELTA] + p)
        for r in range(0, n, mr):
            skip, to, count = size * r * nr, size * r * (rows // 2), min(i64(mr), n - r)
            slopes_of(
                masking,
                scores + skip,
                shares + skip,
                count,
                ints.f64[SCALE],
                norm,
                delta,
                biases + skip,
                shift - r,
                weight_rows + to,
                slope_rows + to,
                pairs + skip // 2,
            )
            if count < mr:
                clear(weight_rows + to, slope_rows + to, pairs + skip // 2, count)
        features = room + size * (at.i64[A_FEATURES] + b // 2 * wide)
        for r in range(0, wide, mr):
            kernel(features + size * r * words_of(packed), pairs, out + size * r * nr, nr, words_of(n), i64(b > 0))
        return 1

    return panel


def _make_tiles_sums(parts: Parts) -> NativeFunction:
    """`sums` by matrix tiles, as rows [keys][features]."""
    size, mr, nr = parts.real.itemsize, parts.tile.rows, parts.tile.columns
    rows, kernel, words_of = block_queries(parts.tile.columns), parts.kernel, parts.words

    @native("void(ptr, ptr, ptr, i64, i64, i64, i64, i64)", name=f"sums_{parts.name}")
    def sums(ints, room, at, b, n, queries, keys, lead):
        words, wide, deep = words_of(queries), up(ints.i64[WIDTH], nr), up(ints.i64[DEPTH], nr)
        for c in range(0, n, mr):
            skipped: i64 = 0
            if ints.i64[MASKING] == CAUSAL:
                skipped = max(i64(0), (lead + c) // nr * nr)
            if skipped >= queries:
                break
            first = skipped // 2
            weights = room + size * (at.i64[A_WT] + c * (rows // 2) + first * mr)
            slopes = room + size * (at.i64[A_ST] + c * (rows // 2) + first * mr)
            for r in range(0, deep, nr):
                out = room + size * (at.i64[A_TO_VALUES] + (b + c) * deep + r)
                kernel(weights, room + size * (at.i64[A_CT_ROWS] + r * words + first * nr), out, deep, words - first, 1)
            for r in range(0, wide, nr):
                out = room + size * (at.i64[A_TO_KEYS] + (b + c) * wide + r)
                kernel(slopes, room + size * (at.i64[A_Q_ROWS] + r * words + first * nr), out, wide, words - first, 1)

    return sums


def _make_write(parts: Parts) -> tuple[NativeFunction, NativeFunction]:
    real, size, item, mr, nr = parts.real, parts.real.itemsize, parts.item, parts.tile.rows, parts.tile.columns
    steps, tiles = parts.blocks.steps, parts.tiles
    transpose, scatter = parts.transpose, parts.scatter

    @native("void(ptr, ptr, i64, i64, i64, i64, i64, ptr)", name=f"write_keys_{parts.name}")
    def write_keys(out, x, n, width, keys, row, col, aside):
        """Write the sums for n keys, [width][keys] or by matrix tiles [keys][width], as rows."""
        wide = up(width, mr)
        if tiles:
            scatter(out, x, n, width, wide, row, col)
            return
        for c in range(0, n, steps):
            part = min(i64(steps), n - c)
            transpose(aside, x + size * c, wide, keys, part)
            scatter(out + item * c * row, aside, part, width, wide, row, col)

    @native("void(ptr, ptr, ptr, ptr, ptr, i64, i64, i64, i64)", name=f"write_queries_{parts.name}")
    def write_queries(ints, room, at, dq, own, i, n, more, piece):
        """Write the sums for n queries from i on: to rows of the result, or to the piece's own memory, added to it if
        `more`."""
        wide = up(ints.i64[WIDTH], mr)
        x = room + size * at.i64[A_TO_QUERIES]
        aside = room + size * at.i64[A_ASIDE]
        row = ints.i64[DQ_ROW]
        if ints.i64[OWN] == 0:
            for p in range(0, n, nr):
                transpose(aside, x + size * p * wide, wide, nr, nr)
                scatter(
                    dq + item * (i + p) * row, aside, min(i64(nr), n - p), ints.i64[WIDTH], wide, row, ints.i64[DQ_COL]
                )
            return
        sums = own + size * (piece * up(ints.i64[QUERIES], nr) + i) * wide
        count = up(n, nr) * wide
        if more == 0:
            memcpy(sums, x, size * count)
        else:
            for j in range(count):
                store(real, sums, j, load(real, sums, j) + load(real, x, j))

    return write_keys, write_queries


def _make_block_grad(parts: Parts) -> NativeFunction:
    size, mr, nr, steps = parts.real.itemsize, parts.tile.rows, parts.tile.columns, parts.blocks.steps
    rows, makers = (
        block_queries(nr),
        (_make_tiles_panel, _make_tiles_sums) if parts.tiles else (_make_panel, _make_sums),
    )
    panel, sums = (make(parts) for make in makers)

    @native("void(ptr, ptr, ptr, ptr, ptr, i64, i64, i64, i64)", name=f"block_grad_{parts.name}")
    def block_grad(bufs, ints, room, at, from_, i, start, n, keys):
        """A block of queries, from i on, with the n keys from `start` on."""
        queries, wide = min(i64(rows), ints.i64[QUERIES] - i), up(ints.i64[WIDTH], mr)
        each = size if ints.i64[MASKING] == ADDED else 1
        for b in range(0, n, steps):
            if ints.i64[MASKING] == CAUSAL and start + b > i + queries - 1:
                break
            part = min(i64(steps), n - b)
            opened: i64 = 0
            for p in range(0, queries, nr):
                seen = part
                if ints.i64[MASKING] == CAUSAL:
                    seen = min(part, i + p + nr - start - b)
                if seen <= 0:
                    if b == 0:
                        memset(room + size * (at.i64[A_TO_QUERIES] + p * wide), 0, size * wide * nr)
                    continue
                mask = bufs
                if ints.i64[MASKING] >= ADDED:
                    mask_at = from_.i64[4] + (i + p) * ints.i64[MASK_ROW] + (start + b) * ints.i64[MASK_COL]
                    mask = bufs.ptr[ints.i64[FIRST] + 6] + each * mask_at
                opened += panel(ints, room, at, mask, p, b, seen, part, min(i64(nr), queries - p), i + p - start - b)
            if opened > 0:
                sums(ints, room, at, b, part, queries, keys, start + b - i)

    return block_grad


def make_attention_grad(parts: Parts) -> NativeFunction:
    """The kernel of one piece: some keys of one head.  bufs: dq, dk, dv, the pieces' own sums if any, then ct, q, k, v,
    norm, delta, mask."""
    size, item, steps = parts.real.itemsize, parts.item, parts.blocks.steps
    rows, stretch = block_queries(parts.tile.columns), -(-STRETCH // steps) * steps
    areas, pack_keys, pack_queries = (make(parts) for make in (_make_layout, _make_pack_keys, _make_pack_queries))
    block_grad = _make_block_grad(parts)
    write_keys, write_queries = _make_write(parts)
    tiles, (begin, end) = parts.tiles, bounds(parts)

    @native("i32(ptr, ptr, i64)", name="rl_attention_grad")
    def attention_grad(bufs, ints, piece):
        heads, width, depth, first = ints.i64[HEADS], ints.i64[WIDTH], ints.i64[DEPTH], ints.i64[FIRST]
        head = piece % heads
        at_key = piece // heads * ints.i64[SPAN]
        last = min(at_key + ints.i64[SPAN], ints.i64[KEYS])
        keys = min(i64(stretch), up(last - at_key, steps))
        at = stack(8 * 32)
        if tiles:
            areas(at, keys, max(width, i64(16)), max(depth, i64(16)))  # a packed row has at least 16 words
        else:
            areas(at, keys, width, depth)
        slot = borrow(size * at.i64[A_END] + 256)
        if slot < 0:
            return rl_fail(bufs, piece, 4, 0, 0, 0)
        room = borrowed(slot)
        from_ = stack(8 * 8)
        matrix_offsets(from_, ints + 8 * LEAD, ints.i64[DIMS], head, 8)
        ct, q = bufs.ptr[first] + item * from_.i64[0], bufs.ptr[first + 1] + item * from_.i64[1]
        k, v = bufs.ptr[first + 2] + item * from_.i64[2], bufs.ptr[first + 3] + item * from_.i64[3]
        dq, dk, dv = (
            bufs.ptr[0] + item * from_.i64[5],
            bufs.ptr[1] + item * from_.i64[6],
            bufs.ptr[2] + item * from_.i64[7],
        )
        rows_at = size * head * ints.i64[QUERIES]
        norm, delta = bufs.ptr[first + 4] + rows_at, bufs.ptr[first + 5] + rows_at
        aside = room + size * at.i64[A_ASIDE]
        begin()
        for start in range(at_key, last, stretch):
            n = min(i64(stretch), last - start)
            pack_keys(ints, room, at, k + item * start * ints.i64[K_ROW], v + item * start * ints.i64[V_ROW], n, keys)
            i: i64 = 0
            if ints.i64[MASKING] == CAUSAL:
                i = start // rows * rows
            while i < ints.i64[QUERIES]:
                queries = min(i64(rows), ints.i64[QUERIES] - i)
                if ints.i64[MASKING] != CAUSAL or start < i + queries:
                    q_at, ct_at = q + item * i * ints.i64[Q_ROW], ct + item * i * ints.i64[CT_ROW]
                    pack_queries(ints, room, at, q_at, ct_at, norm + size * i, delta + size * i, queries)
                    block_grad(bufs, ints, room, at, from_, i, start, n, keys)
                    write_queries(ints, room, at, dq, bufs.ptr[3], i, queries, i64(start > at_key), piece)
                i += rows
            row, col = ints.i64[DK_ROW], ints.i64[DK_COL]
            write_keys(dk + item * start * row, room + size * at.i64[A_TO_KEYS], n, width, keys, row, col, aside)
            row, col = ints.i64[DV_ROW], ints.i64[DV_COL]
            write_keys(dv + item * start * row, room + size * at.i64[A_TO_VALUES], n, depth, keys, row, col, aside)
        end()
        give_back(slot)
        return 0

    return attention_grad


def make_collect(parts: Parts) -> NativeFunction:
    """The kernel that adds the sums of all pieces for a block of queries of one head.  bufs: dq, the pieces' sums."""
    real, size, item, mr, nr = parts.real, parts.real.itemsize, parts.item, parts.tile.rows, parts.tile.columns
    rows = block_queries(nr)
    transpose, scatter = parts.transpose, parts.scatter

    @native("i32(ptr, ptr, i64)", name="rl_attention_collect")
    def collect(bufs, ints, piece):
        heads, wide, queries = ints.i64[HEADS], up(ints.i64[WIDTH], mr), ints.i64[QUERIES]
        head = piece % heads
        i = piece // heads * rows
        n = min(i64(rows), queries - i)
        slot = borrow(size * 2 * rows * wide + 256)
        if slot < 0:
            return rl_fail(bufs, piece, 4, 0, 0, 0)
        total = borrowed(slot)
        aside = total + size * rows * wide
        count = up(n, nr) * wide
        for part in range(ints.i64[PARTS]):
            sums = bufs.ptr[1] + size * ((part * heads + head) * up(queries, nr) + i) * wide
            if part == 0:
                memcpy(total, sums, size * count)
            elif ints.i64[MASKING] != CAUSAL or part * ints.i64[SPAN] < i + n:
                for j in range(count):
                    store(real, total, j, load(real, total, j) + load(real, sums, j))
        from_ = stack(8 * 8)
        matrix_offsets(from_, ints + 8 * LEAD, ints.i64[DIMS], head, 8)
        dq, row = bufs.ptr[0] + item * from_.i64[5], ints.i64[DQ_ROW]
        for p in range(0, n, nr):
            transpose(aside, total + size * p * wide, wide, nr, nr)
            scatter(dq + item * (i + p) * row, aside, min(i64(nr), n - p), ints.i64[WIDTH], wide, row, ints.i64[DQ_COL])
        give_back(slot)
        return 0

    return collect
