"""Convolutions with kernels of 3 x 3 by Winograd's method (see `_backends/cpu/microkernels/winograd.py`), in the native
language.

One kernel transforms the weights, once for all pieces.  In the other a piece is a box of tiles of 2 x 2 results and a
range of output channels: for boxes and slab, a convolution with windows of 4 x 4 and strides of 2 (`conv_native.py`).
Some tiles at a time are transformed to 16 panels, multiplied, and transformed back to results.

A piece with a result that is not finite is computed again as a plain convolution: an infinity or NaN would spread to
results whose windows do not contain it, and sums of large numbers could overflow where those of a plain convolution do
not.
"""

from __future__ import annotations

from rushlight._backends.cpu.conv.conv_descriptor import (
    BOX,
    BOX_BYTES,
    NO_EPILOGUE,
    POSITION_ROWS,
    W_BYTES,
    W,
    find_box,
    find_part,
    lay_slab,
    list_moves,
    next_row,
)
from rushlight._backends.cpu.conv.conv_native import SLACK, ConvForm, kept_weights, make_write, rl_fail
from rushlight._backends.cpu.conv.conv_slab import make_block, make_slab, make_weights
from rushlight._backends.cpu.microkernels.register_tile import RegisterTile
from rushlight._backends.cpu.microkernels.winograd import TAPS, Winograd
from rushlight._backends.cpu.pinned_native import NEVER, PACKED, begin_packing, end_packing, place_to_pack
from rushlight._backends.cpu.scratch_native import borrow, borrowed, give_back
from rushlight._native import NativeFunction, Words, call_ptr, extern, f32, i32, i64, memcpy, memset, native, ptr, stack

__all__ = ["DEPTH", "MORE", "make_winograd", "make_winograd_weights"]

# The fields after the plain convolution's descriptor: address of a register tile, its rows, the most panels of tiles
# that meet the weights at a time, and the index of the transformed weights among the arrays of the call.
MORE = Words("tile rows together weights", first=len(W))
DEPTH = 128  # channels transformed at a time
SIZE = 4
TILE = "void(ptr, ptr, ptr, i64, i64, i64)"


@native("i64(i64, i64)", inline=True)
def panel_bytes(channels, rows):
    """Bytes of a panel of transformed weights, with room for a vector written behind it."""
    return (SIZE * channels * rows + 127) // 64 * 64


def make_winograd_weights(form: ConvForm, tile: RegisterTile) -> NativeFunction:
    """The kernel that transforms weights.  bufs: [groups][16][panels][channels][rows], w; a piece is one panel of one
    group."""
    rows, work = tile.rows, Winograd(tile.lanes, tile.rows)
    pack = make_weights(form.kind, form.source, tile, rows)
    transform = extern(work.weight_symbol, "void(ptr, i64, ptr, i64, i64, i64, i64)")

    @native("i32(ptr, ptr, i64)", name=f"rl_winograd_weights_{form.name}_{rows}")
    def weights(bufs, ints, piece):
        desc = ints + 64
        box = stack(BOX_BYTES)
        count = (desc.i64[W.o] + rows - 1) // rows
        panel, group = piece % count, piece // count
        channels, each = desc.i64[W.c], panel_bytes(desc.i64[W.c], i64(rows))
        box.i64[BOX.group] = group
        box.i64[BOX.o0], box.i64[BOX.o1] = panel * rows, min(panel * rows + rows, desc.i64[W.o])
        box.i64[BOX.td0], box.i64[BOX.td1], box.i64[BOX.th0] = 0, 1, 0
        box.i64[BOX.th1], box.i64[BOX.tw0], box.i64[BOX.tw1] = desc.i64[W.k_h], 0, desc.i64[W.k_w]
        place, mark, state = bufs.ptr[0], i64(PACKED), desc.ptr[W.pinned]
        if state is not None:
            place = place_to_pack(state, bufs.ptr[0], bufs.i64[1])
            if bufs.ptr[0].ptr[0] is not None:
                mark = begin_packing(state, piece)
                if mark == PACKED:
                    return 0
        slot = borrow(SIZE * 9 * rows * min(channels, DEPTH) + SLACK)
        if slot < 0:
            if mark != PACKED:
                end_packing(state, piece, NEVER)
            return rl_fail(bufs, piece, 4, 0, 0, 0)
        out = place + each * (group * TAPS * count + panel)
        for c in range(0, channels, DEPTH):
            box.i64[BOX.c0], box.i64[BOX.c1] = c, min(c + DEPTH, channels)
            pack(desc, box, borrowed(slot), bufs.ptr[1])
            some = box.i64[BOX.c1] - c
            tap, channel = i64(SIZE * rows), i64(SIZE * 9 * rows)
            if desc.i64[W.taps_first] != 0:
                tap, channel = SIZE * rows * some, i64(SIZE * rows)
            first = i64(0)
            if desc.i64[W.flip] != 0:  # packed in memory order
                first, tap = 8 * tap, -tap
            transform(out + SIZE * rows * c, each * count, borrowed(slot), first, tap, channel, some)
        give_back(slot)
        if mark != PACKED:
            end_packing(state, piece, mark)
        return 0

    return weights


@native("i64(ptr, ptr, ptr, ptr, ptr, i64)")
def list_runs(desc, whole, box, cursor, runs, width):
    """List the runs of tiles in the next panel: offset of their results, results in a row, whether there is a second
    row, and first column in the panel.  `cursor` holds the next tile (4 numbers), initially zeros."""
    high, wide = box.i64[BOX.h1] - box.i64[BOX.h0], box.i64[BOX.w1] - box.i64[BOX.w0]
    deep, images = box.i64[BOX.d1] - box.i64[BOX.d0], box.i64[BOX.n1] - box.i64[BOX.n0]
    w, tile = cursor.i64[0], cursor + 8
    filled: i64 = 0
    count: i64 = 0
    while filled < width and tile.i64[2] < images:
        h, d, n = tile.i64[0], tile.i64[1], tile.i64[2]
        some = min(wide - w, width - filled)
        row, column = 2 * (box.i64[BOX.h0] + h), 2 * (box.i64[BOX.w0] + w)
        offset = (box.i64[BOX.n0] + n) * whole.i64[W.y_n] + (box.i64[BOX.d0] + d) * whole.i64[W.y_d]
        runs.i64[4 * count] = offset + row * whole.i64[W.y_h] + column * whole.i64[W.y_w]
        runs.i64[4 * count + 1] = min(2 * some, whole.i64[W.w] - column)
        runs.i64[4 * count + 2] = i64(row + 1 < whole.i64[W.h])
        runs.i64[4 * count + 3] = 2 * filled
        count += 1
        filled += some
        w += some
        if w == wide:
            w = 0
            next_row(tile, high, deep)
    cursor.i64[0] = w
    return count


def _make_results(form: ConvForm, work: Winograd, wide: int) -> NativeFunction:
    result, copy_block = (
        extern(work.result_symbol, "i64(ptr, ptr, ptr, i64, i64, f32)"),
        make_block(form.kind, form.source, form.panels),
    )

    @native("i64(ptr, ptr, ptr, ptr, i64, ptr, i64, ptr, ptr, i64)", name=f"winograd_results_{form.name}")
    def results(whole, box, rows, sums, apart, runs, count, y, bias, tiles):
        """Write the results of a panel; `rows` has room for two rows of one channel, or of all where channels are
        contiguous in memory."""
        line: i64 = 4 * wide  # elements of both rows
        odd: i64 = 0
        outs, step = box.i64[BOX.o1] - box.i64[BOX.o0], whole.i64[W.y_w]
        for o in range(outs):
            here = rows if step == 1 else rows + SIZE * line * o
            added = f32(-0.0)
            if bias is not None:
                added = bias.f32[o * whole.i64[W.bias_o]]
            odd |= result(here, here + SIZE * 2 * wide, sums + SIZE * wide * o, apart, tiles, added)
            if step == 1:
                to = y + SIZE * o * whole.i64[W.y_o]
                for r in range(count):
                    target, from_, bytes_ = (
                        to + SIZE * runs.i64[4 * r],
                        here + SIZE * runs.i64[4 * r + 3],
                        SIZE * runs.i64[4 * r + 1],
                    )
                    memcpy(target, from_, bytes_)
                    if runs.i64[4 * r + 2] != 0:
                        memcpy(target + SIZE * whole.i64[W.y_h], from_ + SIZE * 2 * wide, bytes_)
        if step != 1:
            for r in range(count):
                target, from_ = y + SIZE * runs.i64[4 * r], rows + SIZE * runs.i64[4 * r + 3]
                copy_block(target, from_, outs, runs.i64[4 * r + 1], line, i64(1), whole.i64[W.y_o], step)
                if runs.i64[4 * r + 2] != 0:
                    below = target + SIZE * whole.i64[W.y_h]
                    copy_block(
                        below, from_ + SIZE * 2 * wide, outs, runs.i64[4 * r + 1], line, i64(1), whole.i64[W.y_o], step
                    )
        return odd

    return results


@native("i64(ptr, ptr, ptr)")
def collected(whole, region, own):
    """Fill `own` with the descriptor of a result that holds `region` alone in the epilogue's order; return the offset
    of its first element."""
    memcpy(own, whole, W_BYTES)
    outs, channel, position = region.i64[BOX.o1] - region.i64[BOX.o0], region.i64[BOX.columns], i64(1)
    if whole.i64[W.epilogue] == POSITION_ROWS:
        channel, position = i64(1), outs
    own.i64[W.y_o], own.i64[W.y_w] = channel, position
    own.i64[W.y_h] = own.i64[W.y_w] * (region.i64[BOX.w1] - region.i64[BOX.w0])
    own.i64[W.y_d] = own.i64[W.y_h] * (region.i64[BOX.h1] - region.i64[BOX.h0])
    own.i64[W.y_n] = own.i64[W.y_d] * (region.i64[BOX.d1] - region.i64[BOX.d0])
    first = region.i64[BOX.n0] * own.i64[W.y_n] + region.i64[BOX.d0] * own.i64[W.y_d]
    return first + region.i64[BOX.h0] * own.i64[W.y_h] + region.i64[BOX.w0] * own.i64[W.y_w]


def _make_transform(form: ConvForm, work: Winograd, wide: int) -> NativeFunction:
    lanes, short = work.lanes, work.short
    image, image_short = (
        extern(s, "void(ptr, i64, ptr, i64, i64, i64, i64, i64, ptr, i64)")
        for s in (work.image_symbol, work.short_symbol)
    )

    @native("void(ptr, ptr, ptr, i64, i64, i64, ptr, i64, i64)", name=f"winograd_image_{form.name}")
    def transform(desc, box, cursor, c, channels, panels, out, apart, size):
        """Transform the next panels of some channels, which are `size` bytes apart; cursor.ptr[5] is the slab."""
        moves = stack(16 * 128)
        few = box.i64[BOX.w1] - box.i64[BOX.w0] <= short
        slab = cursor.ptr[5] + SIZE * c * box.i64[BOX.s_c]
        step, row, phase, width = (
            SIZE * box.i64[BOX.s_c],
            SIZE * box.i64[BOX.s_h],
            SIZE * box.i64[BOX.phase],
            i64(SIZE * wide),
        )
        for j in range(panels):
            n = list_moves(desc, box, cursor, moves, i64(wide), i64(short) if few else i64(lanes), i64(SIZE), i64(SIZE))
            if few:
                image_short(out + j * size, apart, slab, step, row, phase, channels, width, moves, n)
            else:
                image(out + j * size, apart, slab, step, row, phase, channels, width, moves, n)

    return transform


@native("i64(i64, i64)", inline=True)
def panels_apart(channels, wide):
    """Bytes between the 16 panels of transformed windows, so that they do not share cache sets."""
    return SIZE * min(channels, i64(DEPTH)) * wide + 64


@native("i64(i64, i64)", inline=True)
def sums_apart(outs, wide):
    """Bytes between the 16 panels of sums."""
    return SIZE * outs * wide + 64


def _make_products(form: ConvForm, work: Winograd, wide: int) -> NativeFunction:
    transform = _make_transform(form, work, wide)

    @native("void(ptr, ptr, ptr, ptr, ptr, ptr, ptr, i64, i64)", name=f"winograd_products_{form.name}", inline=True)
    def products(desc, whole, box, start, weights, panels, sums, outs, now):
        """Multiply the next `now` panels of tiles by the transformed weights, into `sums`; `start` is the cursor of the
        tiles."""
        tile_of, rows, channels = whole.ptr[MORE.tile], whole.i64[MORE.rows], desc.i64[W.c]
        each, count = panel_bytes(channels, rows), (desc.i64[W.o] + rows - 1) // rows
        apart, between, cursor = panels_apart(channels, i64(wide)), sums_apart(outs, i64(wide)), stack(64)
        for c in range(0, channels, DEPTH):
            some = min(channels - c, i64(DEPTH))
            memcpy(cursor, start, 64)
            transform(desc, box, cursor, c, some, now, panels, apart, TAPS * apart)
            for k in range(TAPS):
                of = weights + each * count * k + SIZE * rows * c
                for j in range(now):
                    i: i64 = 0
                    while i < outs:
                        to = sums + (j * TAPS + k) * between + SIZE * wide * i
                        call_ptr(
                            TILE,
                            tile_of,
                            of + each * (i // rows),
                            panels + (j * TAPS + k) * apart,
                            to,
                            i64(wide),
                            some,
                            i64(c > 0),
                        )
                        i += rows
        memcpy(start, cursor, 64)

    return products


def _make_region(form: ConvForm, work: Winograd, wide: int) -> NativeFunction:
    products, results = _make_products(form, work, wide), _make_results(form, work, wide)

    @native("i64(ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, i64)", name=f"winograd_region_{form.name}")
    def convolve(desc, result_desc, box, slab, weights, sums, y, bias, together):
        """Compute all results of a box, into y with the strides of `result_desc`, `together` panels of tiles at a time;
        nonzero where one is not finite.  Room for the panels and for lines of results follows the sums."""
        whole = desc + W_BYTES
        rows, start, behind, runs = whole.i64[MORE.rows], stack(64), stack(64), stack(32 * 128)
        outs = (box.i64[BOX.o1] - box.i64[BOX.o0] + rows - 1) // rows * rows
        between = sums_apart(outs, i64(wide))
        panels = sums + together * TAPS * between
        lines = panels + together * TAPS * panels_apart(desc.i64[W.c], i64(wide))
        memset(start, 0, 64)
        memset(behind, 0, 64)
        start.ptr[5] = slab
        odd: i64 = 0
        first: i64 = 0
        while first < box.i64[BOX.columns]:
            now = min(together, (box.i64[BOX.columns] - first + wide - 1) // wide)
            products(desc, whole, box, start, weights, panels, sums, outs, now)
            for j in range(now):
                n = list_runs(desc, result_desc, box, behind, runs, i64(wide))
                odd |= results(
                    result_desc,
                    box,
                    lines,
                    sums + j * TAPS * between,
                    between,
                    runs,
                    n,
                    y,
                    bias,
                    min(i64(wide), box.i64[BOX.columns] - first),
                )
                first += wide
        return odd

    return convolve


def make_winograd(form: ConvForm) -> NativeFunction:
    """The kernel `i32 (ptr bufs, ptr ints, i64 piece)`.  bufs: those of the plain convolution, then the transformed
    weights.  ints[8...]: the descriptor in tiles, the plain convolution's, cut the same way, and `MORE`.

    Before an epilogue the results of a piece are collected: it may overwrite what it reads, so it must not run before
    all results are known to be finite.
    """
    tile = form.tiles[0]
    wide, work = tile.columns, Winograd(tile.lanes, tile.rows)
    fill_slab = make_slab(form.kind, form.source, form.panels, form.spaced)
    convolve = _make_region(form, work, wide)
    plain, write = extern(f"rl_conv_{form.name}", "i32(ptr, ptr, i64)"), make_write(form)

    @native("i32(ptr, ptr, i64)", name=f"rl_winograd_{form.name}")
    def winograd(bufs, ints, piece):
        desc = ints + 64
        whole = desc + W_BYTES
        rows, box = whole.i64[MORE.rows], stack(BOX_BYTES)
        find_box(desc, box, piece)
        find_part(desc, box, i64(0))
        lay_slab(desc, box)
        channels, outs = desc.i64[W.c], (box.i64[BOX.o1] - box.i64[BOX.o0] + rows - 1) // rows * rows
        each, count = panel_bytes(channels, rows), (desc.i64[W.o] + rows - 1) // rows
        panel = TAPS * (panels_apart(channels, i64(wide)) + sums_apart(outs, i64(wide)))
        together = min(whole.i64[MORE.together], (box.i64[BOX.columns] + wide - 1) // wide)
        begin: i64 = 0
        kept: i64 = 0
        region, own = stack(BOX_BYTES), stack(W_BYTES)
        result_desc = whole  # the descriptor whose strides results are written with
        if whole.i64[W.epilogue] != NO_EPILOGUE:
            find_box(whole, region, piece)
            begin = collected(whole, region, own)
            kept = (SIZE * region.i64[BOX.columns] * (region.i64[BOX.o1] - region.i64[BOX.o0]) + 63) // 64 * 64
            result_desc = own
        room = SIZE * 4 * wide * (i64(1) if result_desc.i64[W.y_w] == 1 else outs)
        slot = borrow(together * panel + room + kept + SIZE * box.i64[BOX.s_c] * channels + SLACK)
        if slot < 0:
            return rl_fail(bufs, piece, 4, 0, 0, 0)
        sums = borrowed(slot)
        lines = sums + together * panel
        done, slab = lines + room, lines + room + kept
        fill_slab(desc, box, slab, bufs.ptr[whole.i64[W.operand]])
        weights = kept_weights(desc, bufs.ptr[whole.i64[MORE.weights]])
        weights += each * (box.i64[BOX.group] * TAPS * count + box.i64[BOX.o0] // rows)
        y = bufs.ptr[0] + SIZE * (
            whole.i64[W.y_base] + box.i64[BOX.group] * whole.i64[W.y_g] + box.i64[BOX.o0] * whole.i64[W.y_o]
        )
        if kept > 0:
            y = done - SIZE * begin
        bias: ptr = None
        if whole.i64[W.bias_o] >= 0:
            bias = bufs.ptr[whole.i64[W.operand] + 2] + SIZE * (
                box.i64[BOX.group] * whole.i64[W.bias_g] + box.i64[BOX.o0] * whole.i64[W.bias_o]
            )
        odd = convolve(desc, result_desc, box, slab, weights, sums, y, bias, together)
        status: i32 = 0
        if kept > 0 and odd == 0:
            status = write(whole, region, bufs, piece, None, done, own.i64[W.y_o], own.i64[W.y_w], lines)
        give_back(slot)
        if odd != 0:
            status = plain(bufs, ints + W_BYTES, piece)
        return status

    return winograd
