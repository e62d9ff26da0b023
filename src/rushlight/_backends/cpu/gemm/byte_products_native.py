"""Products of bytes whose rows are windows, in the native language: the windows are read in place, in segments."""

from __future__ import annotations

from collections.abc import Sequence

from rushlight._backends.cpu.epilogue.epilogue_native import run_epilogue
from rushlight._backends.cpu.microkernels.amx_tile import PlacedAmxTile
from rushlight._backends.cpu.microkernels.byte_tile import ByteTile
from rushlight._backends.cpu.microkernels.dot_tile import DotTile
from rushlight._backends.cpu.microkernels.padded_rows import PaddedRows
from rushlight._backends.cpu.microkernels.panels import Panels
from rushlight._backends.cpu.scratch_native import borrow, borrowed, give_back
from rushlight._native import Extern, Words, extern, i16, i32, i64, memcpy, memset, native, stack
from rushlight._native.function import NativeFunction

__all__ = ["D", "make_byte_product", "make_dot_product", "make_matrix_product"]

# Sizes of a product: `rows` windows of `depth` bytes, `outs` columns.  A piece has `group` columns (one of `groups`) and
# `chunk` rows, taken `block` at a time.  A window is `segments` runs of `run` bytes, `words` words each, `split` of them
# adjacent; `part` segments are multiplied before the next tile.  Rows are counted along three dims `move` bytes apart,
# segments along two dims `gap` bytes apart.  room: the most words of a panel set apart,
# or 0: weights are not looked at.  By matrix tiles windows are packed, so that each is one segment of whole words of 64
# bytes, and `part` of these are multiplied before the next tile; `nbytes` are those of x if tiles read windows in
# place, else 0.  operand: the place of x among the arrays of the call.  epilogue: its
# constants' offset in bytes, or 0.
D = Words("""outs depth rows group groups chunk block segments split words run part count_1 count_2 count_3
move_n move_1 move_2 move_3 taps_1 taps_2 gap_1 gap_2 room operand epilogue nbytes""")
# Tiles by the number of words in a step, or of operands widened to 16 bits.
ONE, TWO, WIDE = range(3)
MOST_HIGH = 16  # bytes of 128 and more in a block whose products are added one by one
NONE, UNFIT = -1, -2  # places of words set apart: behind the last; of a panel with too many
HIGH = 0x8080808080808080 - (1 << 64)  # the high bits of eight bytes

rl_fail = extern("rl_fail", "i32(ptr, i64, i64, i64, i64, i64)")


@native("void(ptr, ptr, i64, i64, i64)")
def list_rows(desc, positions, first, count, padded):
    """The offsets of `count` rows from `first` on; the last is repeated until there are `padded`."""
    wide, high, deep = desc.i64[D.count_3], desc.i64[D.count_2], desc.i64[D.count_1]
    w, rest = first % wide, first // wide
    h, rest = rest % high, rest // high
    d, n = rest % deep, rest // deep
    i: i64 = 0
    at: i64 = 0
    while i < count:
        at = n * desc.i64[D.move_n] + d * desc.i64[D.move_1] + h * desc.i64[D.move_2] + w * desc.i64[D.move_3]
        some = min(wide - w, count - i)
        for _ in range(some):
            positions.i64[i] = at
            at += desc.i64[D.move_3]
            i += 1
        at = at - desc.i64[D.move_3]
        w = 0
        h += 1
        if h == high:
            h = 0
            d += 1
            if d == deep:
                d = 0
                n += 1
    while i < padded:
        positions.i64[i] = at
        i += 1


@native("void(ptr, ptr)")
def list_segments(desc, offsets):
    """The offset of each segment in a window."""
    split, apart = desc.i64[D.split], desc.i64[D.run]
    k: i64 = 0
    for i in range(desc.i64[D.taps_1]):
        for j in range(desc.i64[D.taps_2]):
            for s in range(split):
                offsets.i64[k] = i * desc.i64[D.gap_1] + j * desc.i64[D.gap_2] + s * apart
                k += 1


@native("i64(ptr, i64, ptr)")
def find_high(x, nbytes, places):
    """How many bytes are 128 or more, and where the first MOST_HIGH of them are; more than MOST_HIGH for any more."""
    seen: i64 = 0
    for i in range(nbytes // 8):
        seen = seen | x.i64[i]
    for i in range(nbytes // 8 * 8, nbytes):
        seen = seen | i64(x.u8[i])
    found: i64 = 0
    if (seen & HIGH) != 0:
        for i in range(0, nbytes, 8):
            some: i64 = 0
            for k in range(i, min(i + 8, nbytes)):
                some = some | i64(x.u8[k])
            if some >= 128:
                for k in range(i, min(i + 8, nbytes)):
                    if x.u8[k] >= 128:
                        if found == MOST_HIGH:
                            return MOST_HIGH + 1
                        places.i64[found] = k
                        found += 1
    return found


@native("void(ptr, ptr, i64)")
def lower_rows(out, x, nbytes):
    """Bytes without their high bits."""
    for i in range(nbytes):
        out.u8[i] = x.u8[i] & 127


@native("void(ptr, ptr, ptr, ptr, ptr, i64, ptr, i64, i64, i64)")
def add_high(desc, positions, offsets, w, places, found, sums, pitch, count, outs):
    """Add the products of the high bits at `places` in a block to its sums; `w` is the weight of its first column."""
    run, depth = desc.i64[D.run], desc.i64[D.depth]
    for i in range(count):
        for s in range(desc.i64[D.segments]):
            begin = positions.i64[i] - positions.i64[0] + offsets.i64[s]
            for k in range(found):
                at = places.i64[k] - begin
                if 0 <= at < run:
                    for j in range(outs):
                        sums.i32[i * pitch + j] += i32(w.i8[j * depth + s * run + at]) * 128


@native("void(ptr, ptr, i64)")
def widen_rows(out, x, nbytes):
    """Unsigned bytes as numbers of 16 bits."""
    for i in range(nbytes):
        out.i16[i] = i16(x.u8[i])


@native("void(ptr, ptr, i64, i64)")
def widen_panel(out, x, words, columns):
    """A panel of words of four signed bytes as one of twice as many words of two numbers of 16 bits."""
    for k in range(words):
        for j in range(columns):
            four = x.i32[k * columns + j]
            low, high = four << 24 >> 24, four << 16 >> 24
            out.i32[2 * k * columns + j] = (low & 0xFFFF) | (high << 16)
            low, high = four << 8 >> 24, four >> 24
            out.i32[(2 * k + 1) * columns + j] = (low & 0xFFFF) | (high << 16)


def _make_pack(columns: int, panels: Panels) -> NativeFunction:
    n = panels.n
    transpose = extern(panels.transpose_symbol, "void(ptr, ptr, i64, i64, i64)")

    @native("void(ptr, ptr, ptr, i64)")
    def pack_panel(desc, out, w, outs):
        """Pack `outs` rows of the weights from `w` on as one panel: all segments' words, [word][columns]."""
        depth, words, run = desc.i64[D.depth], desc.i64[D.words], desc.i64[D.run]
        whole: i64 = 0
        if outs >= columns and run % 4 == 0 and depth % 4 == 0:
            whole = run // 4 // n * n  # words beyond the run are zeros
        if run != 4 * words or outs < columns:
            memset(out, 0, 4 * columns * words * desc.i64[D.segments])
        for s in range(desc.i64[D.segments]):
            at, to = w + s * run, out + 4 * columns * words * s
            if whole > 0:
                for j in range(0, columns, n):
                    transpose(to + 4 * j, at + j * depth, depth // 4, i64(columns), whole)
            for j in range(min(i64(columns), outs)):
                for k in range(4 * whole, run):
                    to.u8[k // 4 * (4 * columns) + 4 * j + k % 4] = at.u8[j * depth + k]

    return pack_panel


def _make_set_apart(tile: ByteTile) -> NativeFunction:
    columns = tile.columns
    fits = extern(tile.fits_symbol, "i64(ptr, i64)")

    @native("i1(ptr, ptr, ptr, ptr, ptr)", name="rl_byte_apart")
    def set_apart(desc, panel, offsets, apart, places):
        """Take words out of a panel so that what is left fits the tile of two words, as do those words beside zeros.

        `apart` becomes a panel of them, each with a word of zeros, `places` their offsets in a window, negative behind
        the last.  Where there are more than there is room for, False: the panel is to be packed again.
        """
        words, room, found = desc.i64[D.words], desc.i64[D.room], i64(0)
        for s in range(desc.i64[D.segments]):
            segment = panel + 4 * columns * words * s
            if fits(segment, words) == 0:
                for k in range(0, words, 2):
                    pair = segment + 4 * columns * k
                    if fits(pair, i64(2)) == 0:
                        if found == room:
                            places.i64[0] = UNFIT
                            return False
                        to = apart + 8 * columns * found
                        memcpy(to, pair, 4 * columns)
                        memset(to + 4 * columns, 0, 4 * columns)
                        memset(pair, 0, 4 * columns)
                        places.i64[found] = offsets.i64[s] + 4 * k
                        found += 1
        if found < room:
            places.i64[found] = NONE
        return True

    return set_apart


def _make_multiply(tiles: Sequence[ByteTile]) -> NativeFunction:
    one, two, wide = (extern(t.symbol, "void(ptr, ptr, ptr, ptr, i64, i64, ptr, i64, i64)") for t in tiles)
    rows, columns = tiles[0].rows, tiles[0].columns

    @native("void(ptr, ptr, ptr, ptr, i64, i64, i64, i64, ptr, i64, i64, i64)", name="rl_byte_tiles")
    def multiply(x, positions, panel, offsets, segments, part, length, count, sums, pitch, add, how):
        """The sums of `count` rows with a panel of `segments` of `length` bytes, `part` of them at a time."""
        first: i64 = 0
        while first < segments:
            some = min(part, segments - first)
            for i in range(0, count, rows):
                to = sums + 4 * i * pitch
                if how == TWO:
                    two(x, positions + 8 * i, panel, offsets + 8 * first, some, length, to, pitch, add)
                elif how == ONE:
                    one(x, positions + 8 * i, panel, offsets + 8 * first, some, length, to, pitch, add)
                else:
                    wide(x, positions + 8 * i, panel, offsets + 8 * first, some, length, to, pitch, add)
            panel += columns * length * some
            first += some
            add = 1

    return multiply


def _make_wide(multiply: NativeFunction, tiles: Sequence[ByteTile]) -> NativeFunction:
    rows, columns = tiles[0].rows, tiles[0].columns

    @native("i1(ptr, ptr, ptr, ptr, ptr, ptr, i64, i64, ptr, i64)", name="rl_byte_wide")
    def multiply_wide(desc, x, positions, packed, apart, offsets, count, nbytes, sums, panels):
        """The sums of a block whose `nbytes` from x on hold bytes of 128 or more; whether there was memory for it."""
        words, segments, room = desc.i64[D.words], desc.i64[D.segments], desc.i64[D.room]
        padded, pitch = (count + rows - 1) // rows * rows, panels * columns
        x_bytes, panel_bytes = (2 * nbytes + 63) // 64 * 64, 4 * columns * words * segments
        slot = borrow(x_bytes + 2 * panel_bytes + 16 * columns * room + 8 * (padded + segments + room))
        if slot < 0:
            return False
        image = borrowed(slot)
        panel = image + x_bytes
        more = panel + 2 * panel_bytes
        at = more + 16 * columns * room
        moved, there = at + 8 * padded, at + 8 * (padded + segments)
        widen_rows(image, x + positions.i64[0], nbytes)
        for i in range(padded):
            at.i64[i] = 2 * (positions.i64[i] - positions.i64[0])
        for i in range(segments):
            moved.i64[i] = 2 * offsets.i64[i]
        for p in range(panels):
            to, part = sums + 4 * p * columns, desc.i64[D.part]
            widen_panel(panel, packed + p * panel_bytes, words * segments, i64(columns))
            multiply(image, at, panel, moved, segments, part, 8 * words, count, to, pitch, i64(0), i64(WIDE))
            own, places = apart + 8 * columns * room * p, apart + 8 * room * (columns * panels + p)
            found = count_apart(places, room)
            if found > 0:
                widen_panel(more, own, 2 * found, i64(columns))
                for i in range(found):
                    there.i64[i] = 2 * places.i64[i]
                multiply(image, at, more, there, found, found, i64(16), count, to, pitch, i64(1), i64(WIDE))
        give_back(slot)
        return True

    return multiply_wide


@native("i64(ptr, i64)")
def count_apart(places, room):
    """How many words of a panel were set apart: those with a place."""
    found: i64 = 0
    while found < room and places.i64[found] >= 0:
        found += 1
    return found


def _make_low(multiply: NativeFunction, columns: int) -> NativeFunction:
    @native("void(ptr, ptr, ptr, ptr, ptr, ptr, i64, ptr, i64)", name="rl_byte_block")
    def multiply_low(desc, x, positions, packed, apart, offsets, count, sums, panels):
        """The sums of a block whose bytes are below 128."""
        words, segments, room = desc.i64[D.words], desc.i64[D.segments], desc.i64[D.room]
        pitch, part = panels * columns, desc.i64[D.part]
        for p in range(panels):
            own, places = apart + 8 * columns * room * p, apart + 8 * room * (columns * panels + p)
            to, panel = sums + 4 * p * columns, packed + 4 * columns * words * segments * p
            found, how = i64(0), i64(ONE)
            if room > 0 and places.i64[0] != UNFIT:
                found, how = count_apart(places, room), i64(TWO)
            multiply(x, positions, panel, offsets, segments, part, 4 * words, count, to, pitch, i64(0), how)
            if found > 0:
                multiply(x, positions, own, places, found, found, i64(8), count, to, pitch, i64(1), i64(TWO))

    return multiply_low


def _make_pack_all(tiles: Sequence[ByteTile], panels: Panels) -> NativeFunction:
    columns = tiles[0].columns
    pack, set_apart = _make_pack(columns, panels), _make_set_apart(tiles[1])

    @native("void(ptr, ptr, ptr, ptr, ptr, i64, i64)", name="rl_byte_pack")
    def pack_all(desc, packed, apart, offsets, w, column, count):
        """Pack the weights of a piece."""
        room, panel_bytes = desc.i64[D.room], 4 * columns * desc.i64[D.words] * desc.i64[D.segments]
        for p in range(count):
            at, panel = column + p * columns, packed + p * panel_bytes
            pack(desc, panel, w + at * desc.i64[D.depth], desc.i64[D.outs] - at)
            if room > 0:
                own, places = apart + 8 * columns * room * p, apart + 8 * room * (columns * count + p)
                if not set_apart(desc, panel, offsets, own, places):
                    pack(desc, panel, w + at * desc.i64[D.depth], desc.i64[D.outs] - at)

    return pack_all


@native("i32(ptr, ptr, i64, ptr, i64, i64, i64, i64, i64)", name="rl_byte_finish")
def finish_block(bufs, desc, piece, sums, pitch, row, column, count, outs):
    """Give `count` rows and `outs` columns of sums to the epilogue, or to the result as they are; a status."""
    if desc.i64[D.epilogue] != 0:
        return run_epilogue(bufs, desc + desc.i64[D.epilogue], piece, sums, pitch, 0, row, column, count, outs)
    for i in range(count):
        memcpy(bufs.ptr[0] + 4 * ((row + i) * desc.i64[D.outs] + column), sums + 4 * i * pitch, 4 * outs)
    return 0


def make_byte_product(tiles: Sequence[ByteTile], panels: Panels) -> NativeFunction:
    """The kernel `i32(bufs, ints, piece)`.  bufs: results, x, w, and what the epilogue touches."""
    rows, columns = tiles[0].rows, tiles[0].columns
    multiply, pack_all = _make_multiply(tiles), _make_pack_all(tiles, panels)
    multiply_low, multiply_wide = _make_low(multiply, columns), _make_wide(multiply, tiles)

    @native("i32(ptr, ptr, i64)", name="rl_byte_product")
    def byte_product(bufs, ints, piece):
        desc = ints + 64
        column, row = (piece % desc.i64[D.groups] * desc.i64[D.group], piece // desc.i64[D.groups] * desc.i64[D.chunk])
        outs = min(desc.i64[D.group], desc.i64[D.outs] - column)
        last = min(row + desc.i64[D.chunk], desc.i64[D.rows])
        words, segments, block, room = desc.i64[D.words], desc.i64[D.segments], desc.i64[D.block], desc.i64[D.room]
        panels = (outs + columns - 1) // columns
        packed_bytes, apart_bytes = panels * 4 * columns * words * segments, panels * (8 * columns + 8) * room
        pitch = panels * columns
        x, w = bufs.ptr[desc.i64[D.operand]], bufs.ptr[desc.i64[D.operand] + 1]
        slot = borrow(packed_bytes + apart_bytes + 4 * block * pitch + 8 * (block + segments))
        if slot < 0:
            return rl_fail(bufs, piece, 4, 0, 0, 0)
        packed = borrowed(slot)
        sums = packed + packed_bytes
        apart = sums + 4 * block * pitch
        positions = apart + apart_bytes
        offsets = positions + 8 * block
        highs = stack(8 * MOST_HIGH)
        list_segments(desc, offsets)
        pack_all(desc, packed, apart, offsets, w, column, panels)
        status: i32 = 0
        while row < last:
            count = min(block, last - row)
            list_rows(desc, positions, row, count, (count + rows - 1) // rows * rows)
            nbytes = positions.i64[count - 1] + offsets.i64[segments - 1] + 4 * words - positions.i64[0]
            found = find_high(x + positions.i64[0], nbytes, highs)
            if found == 0:
                multiply_low(desc, x, positions, packed, apart, offsets, count, sums, panels)
            elif found <= MOST_HIGH:
                lowered = borrow(nbytes)
                if lowered < 0:
                    give_back(slot)
                    return rl_fail(bufs, piece, 4, 0, 0, 0)
                lower_rows(borrowed(lowered), x + positions.i64[0], nbytes)
                low = borrowed(lowered) - positions.i64[0]
                multiply_low(desc, low, positions, packed, apart, offsets, count, sums, panels)
                add_high(
                    desc, positions, offsets, w + column * desc.i64[D.depth], highs, found, sums, pitch, count, outs
                )
                give_back(lowered)
            elif not multiply_wide(desc, x, positions, packed, apart, offsets, count, nbytes, sums, panels):
                status = rl_fail(bufs, piece, 4, 0, 0, 0)
            status = status | finish_block(bufs, desc, piece, sums, pitch, row, column, count, outs)
            row += count
        give_back(slot)
        return status

    return byte_product


def make_dot_product(tile: DotTile, panels: Panels) -> NativeFunction:
    """The same kernel around a tile that is exact for any bytes."""
    rows, columns = tile.rows, tile.columns
    pack = _make_pack(columns, panels)
    multiply = extern(tile.symbol, "void(ptr, ptr, ptr, ptr, i64, i64, ptr, i64, i64)")

    @native("i32(ptr, ptr, i64)", name="rl_dot_product")
    def dot_product(bufs, ints, piece):
        desc = ints + 64
        column, row = (piece % desc.i64[D.groups] * desc.i64[D.group], piece // desc.i64[D.groups] * desc.i64[D.chunk])
        outs = min(desc.i64[D.group], desc.i64[D.outs] - column)
        last = min(row + desc.i64[D.chunk], desc.i64[D.rows])
        words, segments, block = desc.i64[D.words], desc.i64[D.segments], desc.i64[D.block]
        count = (outs + columns - 1) // columns
        panel_bytes, pitch = 4 * columns * words * segments, count * columns
        x, w = bufs.ptr[desc.i64[D.operand]], bufs.ptr[desc.i64[D.operand] + 1]
        slot = borrow(count * panel_bytes + 4 * block * pitch + 8 * (block + rows + segments))
        if slot < 0:
            return rl_fail(bufs, piece, 4, 0, 0, 0)
        packed = borrowed(slot)
        sums = packed + count * panel_bytes
        positions = sums + 4 * block * pitch
        offsets = positions + 8 * (block + rows)
        list_segments(desc, offsets)
        for p in range(count):
            at = column + p * columns
            pack(desc, packed + p * panel_bytes, w + at * desc.i64[D.depth], desc.i64[D.outs] - at)
        status: i32 = 0
        while row < last:
            some = min(block, last - row)
            list_rows(desc, positions, row, some, (some + rows - 1) // rows * rows)
            for p in range(count):
                panel, to, first = packed + p * panel_bytes, sums + 4 * p * columns, i64(0)
                while first < segments:
                    part = min(desc.i64[D.part], segments - first)
                    for i in range(0, some, rows):
                        read, sum = positions + 8 * i, to + 4 * i * pitch
                        multiply(x, read, panel, offsets + 8 * first, part, 4 * words, sum, pitch, i64(first > 0))
                    panel += 4 * columns * words * part
                    first += part
            status = status | finish_block(bufs, desc, piece, sums, pitch, row, column, some, outs)
            row += some
        give_back(slot)
        return status

    return dot_product


# ***** matrix tiles *****

LINE = 64  # bytes of a word of a matrix tile

padded_rows = extern(PaddedRows(1).symbol, "void(ptr, ptr, i64, i64, i64, i64, i64, i64)")


@native("void(ptr, ptr, i64, ptr, ptr, ptr, i64, i64)", name="rl_pack_windows")
def pack_windows(desc, out, pitch, x, positions, offsets, row, count):
    """Write the windows of `count` rows from `row` on one after another, each contiguous, `pitch` bytes apart; behind a
    window there is anything."""
    wide, taps = desc.i64[D.count_3], desc.i64[D.taps_1] * desc.i64[D.taps_2]
    run = desc.i64[D.depth] // taps
    i: i64 = 0
    while i < count:
        some = min(wide - (row + i) % wide, count - i)
        to, at = out + i * pitch, x + positions.i64[i]
        for s in range(taps):
            padded_rows(to, at + offsets.i64[s], some, pitch, desc.i64[D.move_3], run, i64(0), run)
            to += run
        i += some


def _make_multiply_packed(tile: PlacedAmxTile, multiply: Extern) -> NativeFunction:
    columns = tile.columns

    @native("void(ptr, ptr, i64, ptr, ptr, i64, ptr, i64)", name="rl_matrix_packed")
    def multiply_packed(desc, image, pitch, places, packed, panels, sums, count):
        """The sums of `count` packed windows."""
        words = 4 * desc.i64[D.words] // LINE
        for p in range(panels):
            panel, first = packed + p * (LINE * words * columns), i64(0)
            while first < words:
                part, to = min(desc.i64[D.part], words - first), sums + 4 * p * columns
                from_ = image + LINE * first
                multiply(from_, panel, places, to, pitch, panels * columns, part, i64(first > 0), count)
                panel += LINE * columns * part
                first += part

    return multiply_packed


def _make_multiply_in_place(tile: PlacedAmxTile, multiply: Extern, packed_ones: NativeFunction) -> NativeFunction:
    columns, half = tile.columns, tile.rows // 2

    @native("void(ptr, ptr, ptr, ptr, ptr, i64, ptr, ptr, i64, ptr, i64, i64)", name="rl_matrix_in_place")
    def multiply_in_place(desc, x, positions, offsets, image, pitch, places, packed, panels, sums, row, count):
        """The sums of the windows of `count` rows from `row` on, read in place; packed where tiles would read behind x.

        What a tile computes behind the end of a line of positions is overwritten by the next one.
        """
        words, wide, step = 4 * desc.i64[D.words] // LINE, desc.i64[D.count_3], desc.i64[D.move_3]
        taps = desc.i64[D.taps_1] * desc.i64[D.taps_2]
        each = words // taps
        inside = places + 8 * words
        for s in range(taps):
            for k in range(each):
                inside.i64[s * each + k] = offsets.i64[s] + LINE * k
        i: i64 = 0
        while i < count:
            some = min(wide - (row + i) % wide, count - i)
            last = positions.i64[i] + ((some + half - 1) // half * half - 1) * step + inside.i64[words - 1] + LINE
            to = sums + 4 * i * panels * columns
            if last <= desc.i64[D.nbytes]:
                for p in range(panels):
                    panel = packed + p * (LINE * words * columns)
                    sum, across = to + 4 * p * columns, panels * columns
                    multiply(x + positions.i64[i], panel, inside, sum, step, across, words, i64(0), some)
            else:
                pack_windows(desc, image, pitch, x, positions + 8 * i, offsets, row + i, some)
                packed_ones(desc, image, pitch, places, packed, panels, to, some)
            i += some

    return multiply_in_place


def make_matrix_product(tile: PlacedAmxTile, panels: Panels) -> NativeFunction:
    """The same kernel around a matrix tile, for windows that are packed, or whose runs are whole words of the tile."""
    columns, half = tile.columns, tile.rows // 2
    pack = _make_pack(columns, panels)
    multiply = extern(tile.symbol, "void(ptr, ptr, ptr, ptr, i64, i64, i64, i64, i64)")
    multiply_packed = _make_multiply_packed(tile, multiply)
    multiply_in_place = _make_multiply_in_place(tile, multiply, multiply_packed)

    @native("i32(ptr, ptr, i64)", name="rl_matrix_product")
    def matrix_product(bufs, ints, piece):
        desc = ints + 64
        column, row = (piece % desc.i64[D.groups] * desc.i64[D.group], piece // desc.i64[D.groups] * desc.i64[D.chunk])
        outs = min(desc.i64[D.group], desc.i64[D.outs] - column)
        last = min(row + desc.i64[D.chunk], desc.i64[D.rows])
        block, words = min(desc.i64[D.block], (last - row + half - 1) // half * half), 4 * desc.i64[D.words] // LINE
        count = (outs + columns - 1) // columns
        panel_bytes, sum_pitch = LINE * words * columns, count * columns
        pitch = LINE * (words | 1)  # windows begin in all sets of the cache
        x, w = bufs.ptr[desc.i64[D.operand]], bufs.ptr[desc.i64[D.operand] + 1]
        taps = desc.i64[D.taps_1] * desc.i64[D.taps_2]
        room = block + half  # a tile writes behind the last row
        slot = borrow(count * panel_bytes + room * (pitch + 4 * sum_pitch) + 8 * (block + taps + 2 * words))
        if slot < 0:
            return rl_fail(bufs, piece, 4, 0, 0, 0)
        packed = borrowed(slot)
        image = packed + count * panel_bytes
        sums = image + room * pitch
        positions = sums + 4 * room * sum_pitch
        offsets = positions + 8 * block
        places = offsets + 8 * taps
        list_segments(desc, offsets)
        for k in range(words):
            places.i64[k] = LINE * k
        for p in range(count):
            at = column + p * columns
            pack(desc, packed + p * panel_bytes, w + at * desc.i64[D.depth], desc.i64[D.outs] - at)
        status: i32 = 0
        while row < last:
            some = min(block, last - row)
            list_rows(desc, positions, row, some, some)
            if desc.i64[D.nbytes] == 0:
                pack_windows(desc, image, pitch, x, positions, offsets, row, some)
                multiply_packed(desc, image, pitch, places, packed, count, sums, some)
            else:
                multiply_in_place(desc, x, positions, offsets, image, pitch, places, packed, count, sums, row, some)
            status = status | finish_block(bufs, desc, piece, sums, sum_pitch, row, column, some, outs)
            row += some
        give_back(slot)
        return status

    return matrix_product
