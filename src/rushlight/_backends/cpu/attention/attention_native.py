"""Attention without a matrix of scores, forward, in the native language.

The method of FlashAttention (Dao et al., 2022, algorithm 1; Rabe and Staats, "Self-attention does not need O(n^2)
memory", 2021): a piece is some queries of one head; for each panel of queries (as many as the register tile has
columns) it computes the scores of a block of keys, continues the softmax over them, and adds their product with the
values.  Everything is transposed, features or keys as rows and queries as columns, so that a query is a lane and the
weights have the layout of the second product's operand.
"""

from __future__ import annotations

from typing import Any

from rushlight._backends.cpu.gemm.gemm_blocks_native import make_transpose
from rushlight._backends.cpu.gemm.pack_native import make_pack, make_pack_a_amx, make_pack_b_amx, make_wide_pack
from rushlight._backends.cpu.microkernels.amx_tile import AmxTile
from rushlight._backends.cpu.microkernels.attention_panel import AttentionPanel
from rushlight._backends.cpu.microkernels.kernel_text import KernelText
from rushlight._backends.cpu.microkernels.panels import Cast, Panels
from rushlight._backends.cpu.microkernels.register_tile import RegisterTile
from rushlight._backends.cpu.scratch_native import borrow, borrowed, give_back
from rushlight._native import Type, extern, f32, f64, i32, i64, load, memcpy, memset, native, prefetch, stack, store
from rushlight._native.function import NativeFunction
from rushlight._types.dtype import FLOAT32, FLOAT64, DType

__all__ = ["ADDED", "CAUSAL", "MASK_KINDS", "SLOTS", "Blocks", "Parts", "make_attention"]

# ints[8 + ...]; they end, for each leading dim, with its size and the strides of the operands in the order of the
# buffers
SLOTS = (
    "queries", "keys", "width", "depth", "scale", "masking", "block", "heads", "dims",
    "q_row", "q_col", "k_row", "k_col", "v_row", "v_col", "mask_row", "mask_col", "out_row", "out_col",
)  # fmt: skip
(
    QUERIES, KEYS, WIDTH, DEPTH, SCALE, MASKING, BLOCK, HEADS, DIMS, Q_ROW, Q_COL, K_ROW, K_COL, V_ROW, V_COL, MASK_ROW, MASK_COL, OUT_ROW, OUT_COL,
) = range(8, 8 + len(SLOTS))  # fmt: skip
LEAD = 8 + len(SLOTS)
NO_MASK, CAUSAL, ADDED, SELECTED = range(4)
MASK_KINDS = {"plain": NO_MASK, "causal": CAUSAL, "add": ADDED, "pick": SELECTED}
REALS: dict[str, Type] = {"f32": f32, "f64": f64}
STEPS = 64  # keys in a block, about: as many rows of a panel stay in the L1 cache beside the packed operands
STRETCH = 512  # keys packed at a time, about: they stay in the L2 cache

rl_fail = extern("rl_fail", "i32(ptr, i64, i64, i64, i64, i64)")


class Blocks:
    """Block sizes around a tile: `steps` keys make a block, `stretch` are packed at a time; both are multiples of the
    tile's sides."""

    __slots__ = ("steps", "stretch")

    def __init__(self, tile: RegisterTile | AmxTile) -> None:
        common = tile.rows
        while common % tile.columns:
            common += tile.rows
        self.steps = -(-STEPS // common) * common
        self.stretch = -(-STRETCH // self.steps) * self.steps


class Parts:
    """The routines of forward and backward, for operands of `dtype` and arithmetic in `tile`'s kind.

    `needs` are the routines to link with (`text`, `symbols`).  A tile may take its operands in words of `group`
    elements: weights are rounded to its kind before they are multiplied (`lanes_of`, `transposed_lanes`).  Lengths of
    packed operands are in such words (`words`), as many bytes as a sum.

    Matrix tiles (`tiles`) take sixteen words at a time, and are configured by `begin` until `end`: zeros pad operands,
    and the softmax itself writes the weights as operands (`weigh_pairs`, `slopes`).
    """

    def __init__(self, dtype: DType, tile: RegisterTile | AmxTile) -> None:
        real_dtype = FLOAT64 if tile.kind == "f64" else FLOAT32
        kind = "f64" if tile.kind == "f64" else "f32"
        self.dtype, self.tile, self.kind, self.real, self.item, self.group = (
            dtype,
            tile,
            kind,
            REALS[kind],
            dtype.itemsize,
            tile.panels.group,
        )
        self.tiles = isinstance(tile, AmxTile)
        self.wide = dtype is not real_dtype and self.group == 1
        self.blocks = Blocks(tile)
        self.name = f"{tile.kind}_{dtype.name}"
        panel = AttentionPanel(kind, tile.lanes, tile.vectors, tile.fma, self.tiles)
        casts = Cast(dtype, real_dtype, tile.lanes, tile.fma), Cast(real_dtype, dtype, tile.lanes, tile.fma)
        # Only its packing is used: it transposes results
        sums = RegisterTile(kind, tile.lanes, tile.rows, tile.vectors, tile.fma)
        raw = Panels(dtype.itemsize, 1, sums.square) if self.wide else tile.panels
        self.needs: tuple[KernelText, ...] = (
            tile,
            panel,
            *casts,
            *{panels.key: panels for panels in (tile.panels, sums.panels, raw)}.values(),
        )
        real, prefix = self.real.name, panel.prefix
        self.words = self._words()
        self.kernel = self._kernel()
        self.transpose = make_transpose(kind, self.real, sums.panels)
        self.weigh = extern(f"{prefix}weigh", "i32(ptr, i64, ptr, ptr, ptr, ptr)")
        self.rescale = extern(f"{prefix}rescale", "void(ptr, i64, ptr)")
        self.finish = extern(f"{prefix}finish", "void(ptr, i64, ptr, ptr, ptr)")
        self.slope = extern(f"{prefix}slope", f"void(ptr, ptr, i64, ptr, {real})")
        self.allow = extern(f"{prefix}allow", "void(ptr, ptr, i64)")
        self.closed = extern(f"{prefix}closed", "i32(ptr, i64)")
        self.narrow = extern(casts[1].symbol, "void(ptr, ptr, i64)")
        self.masked = {
            part: self._masked(
                part,
                *(extern(f"{prefix}{part}_{mask}", f"void(ptr, i64, {real}, ptr, ptr, i64)") for mask in MASK_KINDS),
            )
            for part in ("peak", "again")
        }
        self.scatter, self.bias = self._scatter(), self._bias()
        if isinstance(tile, AmxTile):
            self.pack_rows, self.pack_lanes = self._wrap(make_pack_a_amx(tile)), self._wrap(make_pack_b_amx(tile))
            self.begin, self.end = (extern(symbol, "void()") for symbol in tile.bounds)
            self.weigh_pairs = extern(f"{prefix}weigh_pairs", "i32(ptr, i64, ptr, ptr, ptr, ptr, ptr)")
            self.slopes = self._masked_slopes(prefix)
            self.exclude = self._exclude()
        else:
            self.pack_rows, self.pack_lanes = (self._pack(raw, casts[0], width) for width in (tile.rows, tile.columns))
        self.lanes_of, self.transposed_lanes = self._lanes()

    def _words(self) -> NativeFunction:
        group, tiles = self.group, self.tiles

        @native("i64(i64)", name=f"words_{self.name}", inline=True)
        def words(n):
            """The words of n elements, as they are packed."""
            if tiles:
                return (n + 31) // 32 * 16
            return (n + group - 1) // group

        return words

    def _kernel(self) -> Any:
        kernel = extern(self.tile.symbol, "void(ptr, ptr, ptr, i64, i64, i64)")
        if not self.tiles:
            return kernel

        @native("void(ptr, ptr, ptr, i64, i64, i64)", name=f"multiply_{self.name}", inline=True)
        def multiply(a, b, c, row, words, add):
            kernel(a, b, c, row, words // 16, add)

        return multiply

    def _wrap(self, pack: NativeFunction) -> NativeFunction:
        @native("void(ptr, ptr, i64, i64, i64, i64, ptr)", name=f"pack_{self.name}_{pack.symbol}", inline=True)
        def wrap(out, x, count, depth, step, k_step, aside):
            pack(out, x, count, depth, step, k_step)

        return wrap

    def _exclude(self) -> NativeFunction:
        real, nr, low = self.real, self.tile.columns, float("-inf")

        @native("void(ptr, i64)", name=f"exclude_{self.name}")
        def exclude(scores, n):
            """Exclude the keys from n on that a matrix tile takes in excess."""
            for j in range(n * nr, up(n, i64(32)) * nr):
                store(real, scores, j, real(low))

        return exclude

    def _masked_slopes(self, prefix: str) -> NativeFunction:
        real = self.real
        signature = f"void(ptr, ptr, i64, {real.name}, ptr, ptr, ptr, i64, ptr, ptr, ptr)"
        plain, causal, add, pick = (extern(f"{prefix}slopes_{mask}", signature) for mask in MASK_KINDS)

        @native("void(i64, ptr, ptr, i64, f64, ptr, ptr, ptr, i64, ptr, ptr, ptr)", name=f"slopes_{self.name}")
        def slopes(masking, scores, shares, n, scale, norm, delta, bias, shift, weights, rows, pairs):
            """`slopes` with the mask in use."""
            if masking == NO_MASK or (masking == CAUSAL and n - 1 <= shift):
                plain(scores, shares, n, real(scale), norm, delta, bias, shift, weights, rows, pairs)
            elif masking == CAUSAL:
                causal(scores, shares, n, real(scale), norm, delta, bias, shift, weights, rows, pairs)
            elif masking == ADDED:
                add(scores, shares, n, real(scale), norm, delta, bias, shift, weights, rows, pairs)
            else:
                pick(scores, shares, n, real(scale), norm, delta, bias, shift, weights, rows, pairs)

        return slopes

    def _masked(self, part: str, plain: Any, causal: Any, add: Any, pick: Any) -> NativeFunction:
        real = self.real

        @native("void(i64, ptr, i64, f64, ptr, ptr, i64)", name=f"{part}_{self.kind}")
        def masked(masking, scores, n, scale, numbers, bias, shift):
            """`peak` or `again` with the mask in use; `shift`: the index of the first query less that of the first key."""
            if masking == NO_MASK or (masking == CAUSAL and n - 1 <= shift):
                plain(scores, n, real(scale), numbers, bias, shift)
            elif masking == CAUSAL:
                causal(scores, n, real(scale), numbers, bias, shift)
            elif masking == ADDED:
                add(scores, n, real(scale), numbers, bias, shift)
            else:
                pick(scores, n, real(scale), numbers, bias, shift)

        return masked

    def _scatter(self) -> NativeFunction:
        narrow, item, size = self.narrow, self.item, self.real.itemsize

        @native("void(ptr, ptr, i64, i64, i64, i64, i64)", name=f"scatter_{self.name}")
        def scatter(out, x, rows, n, step, row, col):
            """Copy rows that are `step` apart, n elements of each, to the result's layout."""
            for i in range(rows):
                if col != 1:
                    for j in range(n):
                        narrow(out + item * (i * row + j * col), x + size * (i * step + j), 1)
                elif item != size:
                    narrow(out + item * i * row, x + size * i * step, n)
                else:
                    memcpy(out + item * i * row, x + size * i * step, size * n)

        return scatter

    def _pack(self, raw: Panels, cast: Cast, width: int) -> NativeFunction:
        if self.wide:
            return make_wide_pack(raw, cast, width)
        plain = make_pack(raw, width)

        @native("void(ptr, ptr, i64, i64, i64, i64, ptr)", name=f"pack_{self.name}_{width}")
        def pack(out, x, count, depth, step, k_step, aside):
            """Pack `count` rows of `depth` elements as panels [depth][width]; `aside` has room for one."""
            plain(out, x, count, depth, step, k_step)

        return pack

    def _lanes(self) -> tuple[NativeFunction, NativeFunction]:
        group, nr, item, size = self.group, self.tile.columns, self.item, self.real.itemsize
        narrow, pack, transpose = self.narrow, self.pack_lanes, self.transpose

        @native("ptr(ptr, ptr, i64, ptr)", name=f"lanes_of_{self.name}")
        def lanes_of(out, x, n, aside):
            """Convert a panel [n][columns] of sums to an operand of the tile; `out` and `aside` have room for it."""
            if group == 1:
                return x
            narrow(aside, x, n * nr)
            pack(out, aside, nr, n, 1, nr, aside)
            return out

        @native("void(ptr, ptr, i64, i64, ptr)", name=f"transposed_lanes_{self.name}")
        def transposed_lanes(out, x, n, step, aside):
            """The same, transposed: panels [columns][columns] of n rows each, `step` words apart."""
            if group == 1:
                for c in range(0, n, nr):
                    transpose(out + size * (c // nr) * step, x + size * c * nr, nr, nr, nr)
            else:
                narrow(aside, x, (n + nr - 1) // nr * nr * nr)
                for c in range(0, n, nr):
                    pack(out + size * (c // nr) * step, aside + item * c * nr, nr, nr, nr, 1, aside)

        return lanes_of, transposed_lanes

    def _bias(self) -> NativeFunction:
        real, size, transpose, allow, lanes = (
            self.real,
            self.real.itemsize,
            self.transpose,
            self.allow,
            self.tile.columns,
        )
        steps = self.blocks.steps

        @native("void(i64, ptr, ptr, i64, i64, i64, i64, ptr)", name=f"bias_{self.kind}")
        def bias(masking, out, mask, valid, n, row, col, aside):
            """The mask of `valid` queries for n keys, as a panel; missing queries repeat the last one's."""
            if masking == ADDED and col == 1 and valid == lanes:
                transpose(out, mask, lanes, row, n)
                return
            for i in range(lanes):
                part = aside + size * i * steps
                at = min(i, valid - 1) * row
                if i > 0 and (row == 0 or i >= valid):
                    memcpy(part, part - size * steps, size * n)
                elif masking == ADDED:
                    for j in range(n):
                        store(real, part, j, load(real, mask, at + j * col))
                elif col == 1:
                    allow(part, mask + at, n)
                else:
                    for j in range(n):
                        allow(part + size * j, mask + (at + j * col), 1)
            transpose(out, aside, lanes, steps, n)

        return bias


@native("void(ptr, ptr, i64, i64, i64)")
def matrix_offsets(out, table, dims, head, count):
    """The offsets, in elements, of a head's matrices in each of `count` operands; table: for each leading dim its size,
    and strides."""
    for x in range(count):
        out.i64[x] = 0
    rest = head
    d = dims - 1
    while d >= 0:
        row = table + 8 * (count + 1) * d
        i = rest % row.i64[0]
        rest = rest // row.i64[0]
        for x in range(count):
            out.i64[x] = out.i64[x] + i * row.i64[x + 1]
        d -= 1


@native("void(ptr, i64, i64, i64)")
def announce(x, rows, row, nbytes):
    """Prefetch rows that are read soon, `row` bytes apart: too many for the hardware prefetcher."""
    for i in range(rows):
        for j in range(0, nbytes, 64):
            prefetch(x + i * row + j)


@native("i64(i64, i64)", inline=True)
def up(n, step):
    """n rounded up to a multiple of `step`."""
    return (n + step - 1) // step * step


def _make_queries(parts: Parts) -> NativeFunction:
    real, size, item, nr, lanes = parts.real, parts.real.itemsize, parts.item, parts.tile.columns, parts.pack_lanes
    low = float("-inf")

    @native("void(ptr, ptr, ptr, ptr, i64, i64, i64, i64)", name=f"queries_{parts.name}")
    def pack_queries(ints, room, q, aside, first, last, words, state):
        """Pack the panels of some queries, and reset their state."""
        row, col = ints.i64[Q_ROW], ints.i64[Q_COL]
        for at in range(first, last, nr):
            p = (at - first) // nr
            lanes(
                room + size * p * words * nr,
                q + item * at * row,
                min(i64(nr), last - at),
                ints.i64[WIDTH],
                row,
                col,
                aside,
            )
            numbers = room + size * (ints.i64[BLOCK] * words + p * state)
            for j in range(nr):
                store(real, numbers, j, real(low))
                store(real, numbers, nr + j, real(low))
                store(real, numbers, 2 * nr + j, real(0))

    return pack_queries


def _make_keys(parts: Parts) -> NativeFunction:
    size, item, mr, steps, group = parts.real.itemsize, parts.item, parts.tile.rows, parts.blocks.steps, parts.group
    pack, words_of = parts.pack_rows, parts.words

    @native("void(ptr, ptr, ptr, ptr, ptr, ptr, i64)", name=f"keys_{parts.name}")
    def pack_keys(ints, packed, values, k, v, aside, n):
        """Pack n keys and their values, block by block."""
        width, words, depth = ints.i64[WIDTH], words_of(ints.i64[WIDTH]), up(ints.i64[DEPTH], mr)
        k_row, v_row = ints.i64[K_ROW], ints.i64[V_ROW]
        announce(k, min(i64(steps), n), item * k_row, item * width)
        for b in range(0, n, steps):
            part = min(i64(steps), n - b)
            announce(v + item * b * v_row, part, item * v_row, item * ints.i64[DEPTH])
            pack(packed + size * b * words, k + item * b * k_row, part, width, k_row, ints.i64[K_COL], aside)
            if b + steps < n:
                announce(k + item * (b + steps) * k_row, min(i64(steps), n - b - steps), item * k_row, item * width)
            pack(
                values + size * (b // group) * depth,
                v + item * b * v_row,
                ints.i64[DEPTH],
                part,
                ints.i64[V_COL],
                v_row,
                aside,
            )

    return pack_keys


def _make_results(parts: Parts) -> NativeFunction:
    size, nr = parts.real.itemsize, parts.tile.columns
    finish, transpose, scatter = parts.finish, parts.transpose, parts.scatter

    @native("void(ptr, ptr, ptr, ptr, ptr, i64, i64)", name=f"results_{parts.name}")
    def write_results(ints, numbers, out, norm, aside, n, depth):
        """Write one panel's results, divided by its sums, as rows."""
        sums = numbers + size * 3 * nr
        finish(sums + size * nr, depth, numbers, numbers + size * 2 * nr, sums)
        memcpy(norm, sums, size * n)
        transpose(aside, sums + size * nr, depth, nr, nr)
        scatter(out, aside, n, ints.i64[DEPTH], depth, ints.i64[OUT_ROW], ints.i64[OUT_COL])

    return write_results


def bounds(parts: Parts) -> tuple[NativeFunction, NativeFunction]:
    """Functions before and after all products of a piece."""
    tiles = parts.tiles
    first, last = (parts.begin, parts.end) if tiles else (None, None)

    @native("void()", name=f"begin_{parts.name}", inline=True)
    def begin():
        if tiles:
            first()

    @native("void()", name=f"end_{parts.name}", inline=True)
    def end():
        if tiles:
            last()

    return begin, end


def make_attention(parts: Parts) -> NativeFunction:
    """The kernel of one piece: a block of queries of one head.  bufs: out, norm, q, k, v, and the mask if there is one."""
    size, item, mr, nr = parts.real.itemsize, parts.item, parts.tile.rows, parts.tile.columns
    steps, stretch, tiles, words_of = parts.blocks.steps, parts.blocks.stretch, parts.tiles, parts.words
    begin, end = bounds(parts)
    pack_queries, pack_keys, panel, write_results = (
        make(parts) for make in (_make_queries, _make_keys, _make_panel, _make_results)
    )

    @native("i32(ptr, ptr, i64)", name="rl_attention")
    def attention(bufs, ints, piece):
        heads, width, depth = ints.i64[HEADS], ints.i64[WIDTH], up(ints.i64[DEPTH], mr)
        head = piece % heads
        # Blocks with most keys come first
        first = ((ints.i64[QUERIES] - 1) // ints.i64[BLOCK] - piece // heads) * ints.i64[BLOCK]
        last = min(first + ints.i64[BLOCK], ints.i64[QUERIES])
        keys = ints.i64[KEYS]
        if ints.i64[MASKING] == CAUSAL:
            keys = min(keys, last)
        words = words_of(width)
        if tiles:
            width = max(width, i64(16))  # words of a packed row, at least
        state = (depth + 4) * nr  # maximum, the one before, sum, room for one number a query; then the results
        aside_n = max(i64(steps), i64(nr)) * max(max(width, depth), i64(max(steps, nr)))
        slot = borrow(
            size * (ints.i64[BLOCK] * (width + depth + 4) + stretch * (width + depth) + 3 * steps * nr + aside_n) + 256
        )
        if slot < 0:
            return rl_fail(bufs, piece, 4, 0, 0, 0)
        room = borrowed(slot)
        numbers = room + size * ints.i64[BLOCK] * words
        packed = numbers + size * (ints.i64[BLOCK] // nr) * state
        values = packed + size * stretch * words
        scores = values + size * stretch * depth
        aside = scores + size * 3 * steps * nr
        at = stack(64)
        matrix_offsets(at, ints + 8 * LEAD, ints.i64[DIMS], head, 5)
        q, k, v = bufs.ptr[2] + item * at.i64[0], bufs.ptr[3] + item * at.i64[1], bufs.ptr[4] + item * at.i64[2]
        begin()
        pack_queries(ints, room, q, aside, first, last, words, state)
        for start in range(0, keys, stretch):
            n = min(i64(stretch), keys - start)
            pack_keys(
                ints, packed, values, k + item * start * ints.i64[K_ROW], v + item * start * ints.i64[V_ROW], aside, n
            )
            for i in range(first, last, nr):
                p = (i - first) // nr
                panel(
                    bufs,
                    ints,
                    room + size * p * words * nr,
                    numbers + size * p * state,
                    packed,
                    values,
                    scores,
                    aside,
                    at.i64[3],
                    i,
                    start,
                    n,
                )
        for i in range(first, last, nr):
            out = bufs.ptr[0] + item * (at.i64[4] + i * ints.i64[OUT_ROW])
            norm = bufs.ptr[1] + size * (head * ints.i64[QUERIES] + i)
            write_results(
                ints, numbers + size * ((i - first) // nr) * state, out, norm, aside, min(i64(nr), last - i), depth
            )
        end()
        give_back(slot)
        return 0

    return attention


def _make_panel(parts: Parts) -> NativeFunction:
    size, mr, nr, steps, group = (
        parts.real.itemsize,
        parts.tile.rows,
        parts.tile.columns,
        parts.blocks.steps,
        parts.group,
    )
    words_of, block = parts.words, _make_block(parts)

    @native("void(ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, i64, i64, i64, i64)", name=f"panel_{parts.name}")
    def panel(bufs, ints, queries, numbers, packed, values, scores, aside, mask_at, i, start, n):
        """The queries from i on with the n packed keys from `start` on."""
        words, depth = words_of(ints.i64[WIDTH]), up(ints.i64[DEPTH], mr)
        last = n
        if ints.i64[MASKING] == CAUSAL:
            last = min(n, i + nr - start)
        for b in range(0, last, steps):
            keys, values_at = packed + size * b * words, values + size * (b // group) * depth
            used, whole = min(i64(steps), last - b), min(i64(steps), n - b)
            block(bufs, ints, queries, numbers, keys, values_at, scores, aside, mask_at, i, start + b, used, whole)

    return panel


def _make_block(parts: Parts) -> NativeFunction:
    """One panel of queries with one block of keys."""
    size, mr, nr, steps = parts.real.itemsize, parts.tile.rows, parts.tile.columns, parts.blocks.steps
    kernel, peak, weigh, rescale, bias = parts.kernel, parts.masked["peak"], parts.weigh, parts.rescale, parts.bias
    lanes_of, closed, words_of, tiles = parts.lanes_of, parts.closed, parts.words, parts.tiles
    weigh_pairs, exclude = (parts.weigh_pairs, parts.exclude) if tiles else (None, None)

    @native("void(ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, i64, i64, i64, i64, i64)", name=f"block_{parts.name}")
    def block(bufs, ints, queries, numbers, keys, values, scores, aside, mask_at, i, j, n, packed_keys):
        """The first n of `packed_keys` packed keys take part; nothing is computed if the mask excludes all of them."""
        words, depth, masking = words_of(ints.i64[WIDTH]), up(ints.i64[DEPTH], mr), ints.i64[MASKING]
        factor = numbers + size * 3 * nr
        results = numbers + size * 4 * nr
        biases = scores + size * steps * nr
        if masking >= ADDED:
            each = size if masking == ADDED else 1
            mask = bufs.ptr[5] + each * (mask_at + i * ints.i64[MASK_ROW] + j * ints.i64[MASK_COL])
            bias(
                masking,
                biases,
                mask,
                min(i64(nr), ints.i64[QUERIES] - i),
                n,
                ints.i64[MASK_ROW],
                ints.i64[MASK_COL],
                aside,
            )
            if closed(biases, n) != 0:
                if j == 0:
                    memset(results, 0, size * depth * nr)
                return
        for r in range(0, n, mr):
            kernel(keys + size * r * words, queries, scores + size * r * nr, nr, words, 0)
        peak(masking, scores, n, ints.f64[SCALE], numbers, biases, i - j)
        weights, before, total = scores + size * 2 * steps * nr, numbers + size * nr, numbers + size * 2 * nr
        changed: i32 = 0
        if tiles:
            exclude(scores, n)
            changed = weigh_pairs(scores, up(n, i64(32)), numbers, before, total, factor, weights)
        else:
            changed = weigh(scores, n, numbers, before, total, factor)
        if changed != 0:
            if j > 0:
                rescale(results, depth, factor)
        if not tiles:
            weights = lanes_of(weights, scores, n, aside)
        for r in range(0, depth, mr):
            kernel(
                values + size * r * words_of(packed_keys), weights, results + size * r * nr, nr, words_of(n), i64(j > 0)
            )

    return block
