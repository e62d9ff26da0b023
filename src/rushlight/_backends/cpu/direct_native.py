"""Direct convolution around the blocks of `direct_tile`: rows made ready, blocks called, edges written; in the native language.

A piece is some images' groups (or blocks of groups whose only channels lie together) and a band of result rows.  The input rows that a block
needs are made ready just before it (`direct_rows_native`).
"""

from __future__ import annotations

from rushlight._backends.cpu.direct_rows_native import make_fill, make_movers, make_ready
from rushlight._backends.cpu.direct_taps_native import make_load_weights
from rushlight._backends.cpu.direct_tile import RowMover
from rushlight._backends.cpu.direct_turns_native import make_turned, make_turns
from rushlight._backends.cpu.direct_words import D_BYTES, REAL, D, item_of
from rushlight._backends.cpu.epilogue_native import run_epilogue
from rushlight._backends.cpu.scratch_native import borrow, borrowed, give_back
from rushlight._backends.native import NativeFunction, Type, call_ptr, extern, i32, i64, memcpy, memset, native, stack
from rushlight._kernels.register_tile import RegisterTile

__all__ = ["make_direct"]

SIGNATURE = "void(ptr, i64, i64, i64, i64, i64, i64, ptr, ptr, ptr, i64, i64, i64, i64)"
rl_fail = extern("rl_fail", "i32(ptr, i64, i64, i64, i64, i64)")


def _make_block(target: str, real: Type, mover: RowMover, put: NativeFunction) -> NativeFunction:
    size, item = real.itemsize, item_of(target)
    brain, narrowed = target == "bf16", extern(mover.narrowed, "void(ptr, i64, ptr, i64, i64, i64)")

    @native("void(ptr, ptr, ptr, ptr, ptr, ptr, i64, i64, i64)", name=f"block_{target}")
    def block(ints, x, taps, start, y, aside, rows, valid, plane):
        """`rows` rows of results over the whole width: x points to the first input row, y to the first result."""
        lanes, outs, width, high = ints.i64[D.lanes], ints.i64[D.outs], ints.i64[D.out_w], ints.i64[D.height_tile]
        together = ints.i64[D.together] != 0
        across = i64(1) if together else lanes  # columns of a vector
        unit = lanes if together else i64(1)
        pitch = size * ints.i64[D.pitch]
        planes = ints.i64[D.depth] * ints.i64[D.kernel_d]
        down, phase = pitch * ints.i64[D.dilation_h], size * ints.i64[D.phase]
        near = ints.i64[D.y_g] == 1 if together else ints.i64[D.y_w] == 1
        direct = near and rows == high and item == size
        row = ints.i64[D.span] * lanes  # of what stands aside: some vectors of each row, which are written together
        column: i64 = 0
        begun: i64 = 0
        held: i64 = 0
        while column < width:
            left = width - column
            vectors, tile = ints.i64[D.vectors], ints.ptr[D.tile]
            if left <= ints.i64[D.vectors_last] * across:
                vectors, tile = ints.i64[D.vectors_last], ints.ptr[D.last]
            columns = min(left, vectors * across)
            to = y + item * column * ints.i64[D.y_w]
            from_ = x + size * column * unit
            if direct:
                gap = size * ints.i64[D.y_w] if together else size * lanes
                kept = valid if together else columns - (vectors - 1) * lanes
                call_ptr(SIGNATURE, tile, from_, pitch, plane, planes, down, ints.i64[D.steps], phase, taps, start,
                         to, size * ints.i64[D.y_h], size * ints.i64[D.y_o], gap, kept)
            else:
                call_ptr(SIGNATURE, tile, from_, pitch, plane, planes, down, ints.i64[D.steps], phase, taps, start,
                         aside + size * held * lanes, size * row, size * row * high, size * lanes, lanes)
                held += vectors
                some = column + columns - begun
                if held + ints.i64[D.vectors] > ints.i64[D.span] or column + columns == width:
                    to = y + item * begun * ints.i64[D.y_w]
                    for o in range(outs):
                        for r in range(rows):
                            made = aside + size * row * (o * high + r)
                            place = to + item * (o * ints.i64[D.y_o] + r * ints.i64[D.y_h])
                            if together and brain and near:
                                narrowed(place, item * ints.i64[D.y_w], made, size * lanes, some, valid)
                            elif together:
                                for j in range(some):
                                    put(place + item * j * ints.i64[D.y_w], ints.i64[D.y_g], made + size * j * lanes, valid)
                            else:
                                put(place, ints.i64[D.y_w], made, some)
                    held = 0
                    begun = column + columns
            column += vectors * across

    return block


def _make_unit(source: str, target: str, mover: RowMover, take: NativeFunction, put: NativeFunction) -> NativeFunction:
    size, y_item = REAL[source].itemsize, item_of(target)
    fill, block = make_fill(source, make_ready(source, mover, take)), _make_block(target, REAL[source], mover, put)

    @native("void(ptr, ptr, ptr, ptr, i64, i64, i64, i64)", name=f"unit_{source}_{target}")
    def unit(ints, y, x, memory, begin, end, depth, valid):
        """A band of rows of one group (or of several that lie together) at one depth."""
        width = ints.i64[D.lanes] if ints.i64[D.together] != 0 else i64(1)
        plane = size * ints.i64[D.rows] * ints.i64[D.pitch]
        outs = ints.i64[D.outs]
        each = size * (ints.i64[D.depth] * ints.i64[D.mix] * ints.i64[D.kernel_d] * ints.i64[D.kernel_h] * ints.i64[D.kernel_w] + 1) * outs * width
        aside = memory + (each * ints.i64[D.blocks] + 63) // 64 * 64
        rows = aside + size * outs * ints.i64[D.height_tile] * ints.i64[D.span] * ints.i64[D.lanes]
        first = begin * ints.i64[D.stride_h] - ints.i64[D.pad_h]
        reach = (ints.i64[D.kernel_h] - 1) * ints.i64[D.dilation_h] + 1
        done: i64 = 0
        at = begin
        while at < end:
            have = min(ints.i64[D.height_tile], end - at)
            needed = (at + have - 1 - begin) * ints.i64[D.stride_h] + reach
            fill(ints, rows, x, first, needed, done, depth, valid, plane)
            done = max(done, needed)
            for b in range(ints.i64[D.blocks]):
                weights = memory + each * b
                block(ints, rows + size * (at - begin) * ints.i64[D.stride_h] * ints.i64[D.pitch], weights + size * outs * width, weights,
                      y + y_item * (at * ints.i64[D.y_h] + b * outs * ints.i64[D.y_o]), aside, have, valid, plane)
            at += ints.i64[D.height_tile]

    return unit


def _make_after(source: str, target: str) -> tuple[NativeFunction, NativeFunction]:
    """Functions that lay out what is collected for an epilogue, and that call it."""

    @native("i64(ptr, ptr, i64)", name=f"collected_{source}_{target}")
    def collected(ints, own, rows):
        """`own` are the words of a result that holds `rows` rows of a bundle of groups alone; how many elements it has."""
        memcpy(own, ints, i64(D_BYTES))
        width = ints.i64[D.out_w]
        channels = ints.i64[D.lanes] if ints.i64[D.together] != 0 else ints.i64[D.outs] * ints.i64[D.blocks]
        place, channel = i64(1), rows * width
        if ints.i64[D.after] == 2 or ints.i64[D.y_turn] != 0:
            place, channel = channels * ints.i64[D.bundle], i64(1)
        own.i64[D.y_w], own.i64[D.y_h], own.i64[D.y_g], own.i64[D.y_o] = place, place * width, channel, channel
        return channels * ints.i64[D.bundle] * rows * width

    @native("i32(ptr, ptr, ptr, i64, ptr, i64, i64, i64, i64, i64)", name=f"after_{source}_{target}")
    def put_epilogue(bufs, own, given, piece, made, image, channel, count, place, places):
        """What is done to `count` channels at some places of an image, which lie side by side in the order that it takes."""
        if own.i64[D.after] == 2:
            return run_epilogue(bufs, given, piece, made, own.i64[D.y_w], image, place, channel, places, count)
        return run_epilogue(bufs, given, piece, made, places, image, channel, place, count, places)

    return collected, put_epilogue


def make_direct(source: str, target: str, added: str, mover: RowMover, turner: RegisterTile) -> NativeFunction:
    """The kernel of a convolution with few channels a group, with results of dtype `target` and a bias of dtype `added`: bufs are the result, the
    images, the weights, and the bias if there is one.

    Where there is an epilogue, the results of a band are collected in the order that it takes, and given to it.
    """
    real = REAL[source]
    size, item, y_item = real.itemsize, item_of(source), item_of(target)
    take, put = make_movers(source, mover)
    put_target = put if source == target else make_movers(target, mover)[1]
    load_weights = make_load_weights(source, added, mover, take, turner)
    unit = _make_unit(source, target, mover, take, put_target)
    wide_unit = unit if item == size else _make_unit(mover.kind, mover.kind, mover, *make_movers(mover.kind, mover))
    collected, put_epilogue = _make_after(source, target)
    convolve_turned = make_turned(source, wide_unit, make_turns(source, turner, take, put), put_epilogue)

    @native("i32(ptr, ptr, i64)", name=f"rl_direct_{source}_{target}_{added}")
    def direct(bufs, ints, piece):
        together = ints.i64[D.together] != 0
        lanes, outs = ints.i64[D.lanes], ints.i64[D.outs]
        width = lanes if together else i64(1)
        each = size * (ints.i64[D.depth] * ints.i64[D.mix] * ints.i64[D.kernel_d] * ints.i64[D.kernel_h] * ints.i64[D.kernel_w] + 1) * outs * width
        weights_bytes = (each * ints.i64[D.blocks] + 63) // 64 * 64
        aside_bytes = size * outs * ints.i64[D.height_tile] * ints.i64[D.span] * lanes
        rows_bytes = size * ints.i64[D.rows] * ints.i64[D.pitch] * ints.i64[D.depth] * ints.i64[D.kernel_d]
        turned_bytes: i64 = 0
        if ints.i64[D.y_turn] != 0:
            planes = ints.i64[D.in_h] * ints.i64[D.in_w] + ints.i64[D.out_h] * ints.i64[D.out_w]
            turned_bytes = size * lanes * (planes if item == size else 2 * planes)
        begin = piece % ints.i64[D.bands] * ints.i64[D.band]
        end = min(begin + ints.i64[D.band], ints.i64[D.out_h])
        own = stack(D_BYTES)
        kept: i64 = 0
        if ints.i64[D.after] != 0:
            kept = size * collected(ints, own, end - begin)
        slot = borrow(weights_bytes + aside_bytes + rows_bytes + turned_bytes + kept)
        if slot < 0:
            return rl_fail(bufs, piece, 4, 0, 0, 0)
        memory = borrowed(slot)
        memset(memory, 0, weights_bytes)
        memset(memory + weights_bytes + aside_bytes, 0, rows_bytes)
        start = piece // ints.i64[D.bands] * ints.i64[D.chunk]
        stop = min(start + ints.i64[D.chunk], ints.i64[D.batch] * ints.i64[D.groups])
        turned = memory + weights_bytes + aside_bytes + rows_bytes
        done, places = turned + turned_bytes, (end - begin) * ints.i64[D.out_w]
        given = ints + ints.i64[D.given]
        held: i64 = 0  # groups of a bundle that are there
        status: i32 = 0
        for number in range(start, stop):
            image, group = number // ints.i64[D.groups], number % ints.i64[D.groups]
            valid, count = lanes, outs * ints.i64[D.blocks]
            channel = group * count
            if together:
                group = group * lanes
                valid = min(lanes, ints.i64[D.singles] - group)
                channel, count = group, valid
            load_weights(bufs, ints, memory, each, group, valid)
            if ints.i64[D.y_turn] != 0:  # one band
                status = status | convolve_turned(bufs, ints, own, piece, memory, turned, done, image, group, valid)
                continue
            x = bufs.ptr[ints.i64[D.operand]] + item * (image * ints.i64[D.x_n] + group * ints.i64[D.x_g])
            for depth in range(ints.i64[D.out_d]):
                y = bufs.ptr[0] + y_item * (image * ints.i64[D.y_n] + group * ints.i64[D.y_g] + depth * ints.i64[D.y_d])
                if kept == 0:
                    unit(ints, y, x, memory, begin, end, depth, valid)
                else:
                    unit(own, done + size * (held * count * own.i64[D.y_o] - begin * own.i64[D.y_h]), x, memory, begin, end, depth, valid)
                    held += 1
                    if held == ints.i64[D.bundle] or group == ints.i64[D.groups] - 1 or number == stop - 1:
                        first = (depth * ints.i64[D.out_h] + begin) * ints.i64[D.out_w]
                        some = held * count
                        status = status | put_epilogue(bufs, own, given, piece, done, image, channel + count - some, some, first, places)
                        held = 0
        give_back(slot)
        return status

    return direct
