"""Direct convolution around the blocks of `direct_tile`, in the native language: finds or prepares rows, calls blocks,
writes edges.

A piece is some images' groups (or blocks of groups whose only channels are contiguous) and a band of result rows.
Blocks read input rows in place; rows that must be sorted, widened or dilated are prepared just before
(`direct_rows_native`).
"""

from __future__ import annotations

from rushlight._backends.cpu.conv.conv_descriptor import NO_EPILOGUE, POSITION_ROWS
from rushlight._backends.cpu.conv.direct_descriptor import D_BYTES, REAL, T_BYTES, D, T, item_of
from rushlight._backends.cpu.conv.direct_pack_native import make_load_weights
from rushlight._backends.cpu.conv.direct_rows_native import make_fill, make_find_lines, make_movers, make_ready
from rushlight._backends.cpu.conv.direct_tile import RowMover
from rushlight._backends.cpu.conv.direct_transpose_native import make_transposed, make_transposes
from rushlight._backends.cpu.epilogue.epilogue_native import run_epilogue
from rushlight._backends.cpu.microkernels.register_tile import RegisterTile
from rushlight._backends.cpu.scratch_native import borrow, borrowed, give_back
from rushlight._native import NativeFunction, Record, Type, call_ptr, extern, i32, i64, memcpy, memset, native, stack

__all__ = ["make_direct"]

SIGNATURE = "void(ptr, ptr, i64, ptr, ptr, i64)"
rl_fail = extern("rl_fail", "i32(ptr, i64, i64, i64, i64, i64)")


@native("i64(ptr)", inline=True)
def near(ints):
    """Whether the elements of a vector of results are contiguous in memory."""
    if ints.i64[D.together] != 0:
        return i64(ints.i64[D.y_g] == 1)
    return i64(ints.i64[D.y_w] == 1)


@native("i64(ptr, i64)", inline=True)
def first_position(ints, column):
    """The row position at which a block begins to read for results from `column` on."""
    if ints.i64[D.placed] == 0:
        return column
    return column * ints.i64[D.stride_w] - ints.i64[D.shift]


@native("i64(ptr, i64, i64)", inline=True)
def inside(ints, position, valid):
    """Whether a block reads only elements inside the image for all its vectors from a position on."""
    if ints.i64[D.placed] == 0:
        return 1
    whole = ints.i64[D.together] == 0 or valid == ints.i64[D.lanes]
    return i64(whole and position >= 0 and position + ints.i64[D.extent] <= ints.i64[D.in_w])


def _make_block_desc(source: str) -> NativeFunction:
    size = REAL[source].itemsize

    @native("void(ptr, ptr, i64)", name=f"direct_block_desc_{source}")
    def tell(ints, block_desc, valid):
        """Fill the block descriptor with the input's layout."""
        unit = ints.i64[D.lanes] if ints.i64[D.together] != 0 else i64(1)
        block_desc.i64[T.plane], block_desc.i64[T.planes] = (
            8 * ints.i64[D.rows],
            ints.i64[D.depth] * ints.i64[D.kernel_d],
        )
        block_desc.i64[T.step], block_desc.i64[T.steps] = 8 * ints.i64[D.dilation_h], ints.i64[D.steps]
        block_desc.i64[T.phase], block_desc.i64[T.unit], block_desc.i64[T.position] = (
            size * ints.i64[D.phase],
            size * unit,
            size * unit,
        )
        block_desc.i64[T.stride], block_desc.i64[T.width], block_desc.i64[T.channels] = (
            ints.i64[D.stride_w],
            ints.i64[D.in_w],
            valid,
        )
        if ints.i64[D.placed] != 0:
            position_bytes = size * ints.i64[D.x_w]
            block_desc.i64[T.phase], block_desc.i64[T.unit], block_desc.i64[T.position] = (
                position_bytes,
                position_bytes * ints.i64[D.stride_w],
                position_bytes,
            )

    return tell


# ***** blocks *****


def _make_written(target: str, real: Type) -> NativeFunction:
    size = real.itemsize

    @native("void(ptr, ptr, ptr, ptr, ptr, i64, i64)", name=f"written_{target}")
    def written(ints, block_desc, lines, weights, y, times, valid):
        """Compute `times` vertically adjacent blocks over the whole width and write results directly."""
        lanes, width, high = ints.i64[D.lanes], ints.i64[D.out_w], ints.i64[D.height_tile]
        together = ints.i64[D.together] != 0
        across = i64(1) if together else lanes  # columns of a vector
        gap = size * ints.i64[D.y_w] if together else size * lanes
        step = block_desc.i64[T.position] * (ints.i64[D.stride_w] if ints.i64[D.placed] != 0 else i64(1))
        block_desc.i64[T.row], block_desc.i64[T.channel], block_desc.i64[T.vector] = (
            size * ints.i64[D.y_h],
            size * ints.i64[D.y_o],
            gap,
        )
        column: i64 = 0
        while column < width:
            vectors, count, left = ints.i64[D.vectors], times, (width - column + across - 1) // across
            position = first_position(ints, column)
            run = i64(1)  # horizontally adjacent blocks
            tile = ints.ptr[D.edge]
            if left <= ints.i64[D.vectors_last]:
                vectors = ints.i64[D.vectors_last]
                tile = ints.ptr[D.edge_last]
            elif inside(ints, position, valid) != 0:
                tile = ints.ptr[D.tile]
                if times == 1:
                    run = (left - ints.i64[D.vectors_last]) // vectors
                    if ints.i64[D.placed] != 0:
                        run = min(
                            run,
                            (ints.i64[D.in_w] - ints.i64[D.extent] - position)
                            // (vectors * across * ints.i64[D.stride_w])
                            + 1,
                        )
                    count = run
            block_desc.i64[T.valid] = valid if together else min(width - column - (vectors - 1) * lanes, lanes)
            block_desc.i64[T.down], block_desc.i64[T.along], block_desc.i64[T.on] = (
                0,
                vectors * across * step,
                vectors * gap,
            )
            if times > 1:
                block_desc.i64[T.down], block_desc.i64[T.along], block_desc.i64[T.on] = (
                    8 * high * ints.i64[D.stride_h],
                    0,
                    size * high * ints.i64[D.y_h],
                )
            call_ptr(SIGNATURE, tile, block_desc, lines, position, weights, y + size * column * ints.i64[D.y_w], count)
            column += run * vectors * across

    return written


def _make_block(target: str, real: Type, mover: RowMover, put: NativeFunction) -> NativeFunction:
    size, item = real.itemsize, item_of(target)
    brain, narrowed = target == "bf16", extern(mover.narrowed, "void(ptr, i64, ptr, i64, i64, i64)")

    @native("void(ptr, ptr, ptr, ptr, ptr, ptr, i64, i64)", name=f"block_{target}")
    def block(ints, block_desc, lines, weights, y, aside, rows, valid):
        """Compute `rows` rows of results over the whole width through a buffer (`aside`)."""
        lanes, outs, width, high = ints.i64[D.lanes], ints.i64[D.outs], ints.i64[D.out_w], ints.i64[D.height_tile]
        together = ints.i64[D.together] != 0
        across = i64(1) if together else lanes  # columns of a vector
        row = ints.i64[D.span] * lanes  # length of a buffered row: some vectors, which are written together
        block_desc.i64[T.row], block_desc.i64[T.channel], block_desc.i64[T.vector], block_desc.i64[T.valid] = (
            size * row,
            size * row * high,
            size * lanes,
            lanes,
        )
        block_desc.i64[T.down], block_desc.i64[T.along], block_desc.i64[T.on] = 0, 0, 0
        column: i64 = 0
        begun: i64 = 0
        buffered: i64 = 0
        while column < width:
            left = width - column
            vectors, position = ints.i64[D.vectors], first_position(ints, column)
            tile = ints.ptr[D.edge]
            if left <= ints.i64[D.vectors_last] * across:
                vectors = ints.i64[D.vectors_last]
                tile = ints.ptr[D.edge_last]
            elif inside(ints, position, valid) != 0:
                tile = ints.ptr[D.tile]
            columns = min(left, vectors * across)
            call_ptr(SIGNATURE, tile, block_desc, lines, position, weights, aside + size * buffered * lanes, i64(1))
            buffered += vectors
            some = column + columns - begun
            if buffered + ints.i64[D.vectors] > ints.i64[D.span] or column + columns == width:
                to = y + item * begun * ints.i64[D.y_w]
                for o in range(outs):
                    for r in range(rows):
                        sums = aside + size * row * (o * high + r)
                        at = to + item * (o * ints.i64[D.y_o] + r * ints.i64[D.y_h])
                        if together and brain and near(ints) != 0:
                            narrowed(at, item * ints.i64[D.y_w], sums, size * lanes, some, valid)
                        elif together:
                            for j in range(some):
                                put(at + item * j * ints.i64[D.y_w], ints.i64[D.y_g], sums + size * j * lanes, valid)
                        else:
                            put(at, ints.i64[D.y_w], sums, some)
                buffered = 0
                begun = column + columns
            column += vectors * across

    return block


# Scratch memory of a piece: where its parts begin, in bytes.  Weights are at 0.
SCRATCH = Record(
    "scratch",
    ("each", i64, "bytes of the weights of one block of outputs"),
    ("aside", i64, "sums that do not fit into the result"),
    ("lines", i64, "addresses of rows"),
    ("rows", i64, "rows that are prepared, and one of zeros"),
    ("transposed", i64, "an image and a result with positions as lanes"),
    ("results", i64, "results for the epilogue"),
)
SCRATCH_BYTES = 8 * len(SCRATCH)


def _make_divide(source: str) -> NativeFunction:
    size, item = REAL[source].itemsize, item_of(source)

    @native("void(ptr, ptr)", name=f"direct_scratch_{source}")
    def divide(ints, scratch):
        """Divide the scratch memory of a piece."""
        lanes, outs = ints.i64[D.lanes], ints.i64[D.outs]
        width = lanes if ints.i64[D.together] != 0 else i64(1)
        taps = ints.i64[D.kernel_d] * ints.i64[D.kernel_h] * ints.i64[D.kernel_w]
        each = size * (ints.i64[D.depth] * ints.i64[D.mix] * taps + 1) * outs * width
        planes = ints.i64[D.depth] * ints.i64[D.kernel_d]
        rows_bytes = ints.i64[D.nothing]
        if ints.i64[D.placed] == 0:
            rows_bytes += size * ints.i64[D.rows] * ints.i64[D.pitch] * planes
        transposed_bytes: i64 = 0
        if ints.i64[D.y_transpose] != 0:
            positions = ints.i64[D.in_h] * ints.i64[D.in_w] + ints.i64[D.out_h] * ints.i64[D.out_w]
            transposed_bytes = size * lanes * (positions if item == size else 2 * positions)
        at = (each * ints.i64[D.blocks] + 63) // 64 * 64
        scratch[SCRATCH.each] = each
        scratch[SCRATCH.aside] = at
        at += size * outs * ints.i64[D.height_tile] * ints.i64[D.span] * lanes
        scratch[SCRATCH.lines] = at
        at += (8 * ints.i64[D.rows] * planes + 63) // 64 * 64
        scratch[SCRATCH.rows] = at
        scratch[SCRATCH.transposed] = at + rows_bytes
        scratch[SCRATCH.results] = at + rows_bytes + transposed_bytes

    return divide


def _make_unit(source: str, target: str, mover: RowMover, take: NativeFunction, put: NativeFunction) -> NativeFunction:
    size, y_item = REAL[source].itemsize, item_of(target)
    fill, find_lines, tell = (
        make_fill(source, make_ready(source, mover, take)),
        make_find_lines(source),
        _make_block_desc(source),
    )
    divide = _make_divide(source)
    block, written = _make_block(target, REAL[source], mover, put), _make_written(target, REAL[source])

    @native("void(ptr, ptr, ptr, ptr, i64, i64, i64, i64)", name=f"unit_{source}_{target}")
    def unit(ints, y, x, memory, begin, end, depth, valid):
        """Compute a band of rows of one group (or of several contiguous ones) at one depth."""
        width = ints.i64[D.lanes] if ints.i64[D.together] != 0 else i64(1)
        outs, high = ints.i64[D.outs], ints.i64[D.height_tile]
        plane = size * ints.i64[D.rows] * ints.i64[D.pitch]
        scratch = stack(SCRATCH_BYTES)
        divide(ints, scratch)
        each, aside, lines = scratch[SCRATCH.each], memory + scratch[SCRATCH.aside], memory + scratch[SCRATCH.lines]
        nothing = memory + scratch[SCRATCH.rows]
        rows = nothing + ints.i64[D.nothing]
        first = begin * ints.i64[D.stride_h] - ints.i64[D.pad_h]
        reach = (ints.i64[D.kernel_h] - 1) * ints.i64[D.dilation_h] + 1
        block_desc = stack(T_BYTES)
        tell(ints, block_desc, valid)
        find_lines(ints, lines, x, rows, nothing, first, depth)
        direct = near(ints) != 0 and y_item == size
        done: i64 = 0
        at = begin
        while at < end:
            have, times = min(high, end - at), i64(1)
            if ints.i64[D.placed] == 0:
                needed = (at + have - 1 - begin) * ints.i64[D.stride_h] + reach
                fill(ints, rows, x, first, needed, done, depth, valid, plane)
                done = max(done, needed)
            elif (
                direct
                and have == high
                and ints.i64[D.out_w] <= (ints.i64[D.vectors] + ints.i64[D.vectors_last]) * ints.i64[D.lanes] // width
            ):
                times = (end - at) // high  # at most two blocks side by side: many below one another
            for b in range(ints.i64[D.blocks]):
                weights, to = memory + each * b, y + y_item * (at * ints.i64[D.y_h] + b * outs * ints.i64[D.y_o])
                line = lines + 8 * (at - begin) * ints.i64[D.stride_h]
                if direct and have == high:
                    written(ints, block_desc, line, weights, to, times, valid)
                else:
                    block(ints, block_desc, line, weights, to, aside, have, valid)
            at += times * high

    return unit


def _make_after(source: str, target: str) -> tuple[NativeFunction, NativeFunction]:
    """Functions that lay out results for an epilogue, and that call it."""

    @native("i64(ptr, ptr, i64)", name=f"collected_{source}_{target}")
    def collected(ints, own, rows):
        """Fill `own` with the descriptor of a result that holds `rows` rows of one bundle of groups; return its number
        of elements."""
        memcpy(own, ints, i64(D_BYTES))
        width = ints.i64[D.out_w]
        channels = ints.i64[D.lanes] if ints.i64[D.together] != 0 else ints.i64[D.outs] * ints.i64[D.blocks]
        position, channel = i64(1), rows * width
        if ints.i64[D.epilogue] == POSITION_ROWS or ints.i64[D.y_transpose] != 0:
            position, channel = channels * ints.i64[D.bundle], i64(1)
        own.i64[D.y_w], own.i64[D.y_h], own.i64[D.y_g], own.i64[D.y_o] = position, position * width, channel, channel
        return channels * ints.i64[D.bundle] * rows * width

    @native("i32(ptr, ptr, ptr, i64, ptr, i64, i64, i64, i64, i64)", name=f"after_{source}_{target}")
    def put_epilogue(bufs, own, constants, piece, results, image, channel, count, position, positions):
        """Give `count` channels at some positions of an image, contiguous in the epilogue's order, to it."""
        if own.i64[D.epilogue] == POSITION_ROWS:
            return run_epilogue(
                bufs, constants, piece, results, own.i64[D.y_w], image, position, channel, positions, count
            )
        return run_epilogue(bufs, constants, piece, results, positions, image, channel, position, count, positions)

    return collected, put_epilogue


# long function: native code of one loop nest
def make_direct(source: str, target: str, added: str, mover: RowMover, transposer: RegisterTile) -> NativeFunction:
    """The kernel of a convolution with few channels a group, with results of dtype `target` and a bias of dtype
    `added`.  bufs: result, images, weights, and the bias if there is one.

    For an epilogue the results of a band are collected in its order, and given to it.
    """
    real = REAL[source]
    size, item, y_item = real.itemsize, item_of(source), item_of(target)
    take, put = make_movers(source, mover)
    put_target = put if source == target else make_movers(target, mover)[1]
    load_weights = make_load_weights(source, added, mover, take, transposer)
    unit = _make_unit(source, target, mover, take, put_target)
    wide_unit = unit if item == size else _make_unit(mover.kind, mover.kind, mover, *make_movers(mover.kind, mover))
    collected, put_epilogue = _make_after(source, target)
    divide = _make_divide(source)
    convolve_transposed = make_transposed(
        source, wide_unit, make_transposes(source, transposer, take, put), put_epilogue
    )

    # long function: native code of one loop nest
    @native("i32(ptr, ptr, i64)", name=f"rl_direct_{source}_{target}_{added}")
    def direct(bufs, ints, piece):
        while piece >= ints.i64[D.pieces]:
            piece -= ints.i64[D.pieces]
            ints += D_BYTES - 64  # descriptor of the next convolution
        together = ints.i64[D.together] != 0
        lanes, outs = ints.i64[D.lanes], ints.i64[D.outs]
        begin = piece % ints.i64[D.bands] * ints.i64[D.band]
        end = min(begin + ints.i64[D.band], ints.i64[D.out_h])
        own, scratch = stack(D_BYTES), stack(SCRATCH_BYTES)
        kept: i64 = 0
        if ints.i64[D.epilogue] != NO_EPILOGUE:
            kept = size * collected(ints, own, end - begin)
        divide(ints, scratch)
        slot = borrow(scratch[SCRATCH.results] + kept)
        if slot < 0:
            return rl_fail(bufs, piece, 4, 0, 0, 0)
        memory = borrowed(slot)
        memset(memory, 0, scratch[SCRATCH.aside])
        memset(memory + scratch[SCRATCH.rows], 0, scratch[SCRATCH.transposed] - scratch[SCRATCH.rows])
        start = piece // ints.i64[D.bands] * ints.i64[D.chunk]
        stop = min(start + ints.i64[D.chunk], ints.i64[D.batch] * ints.i64[D.groups])
        transposed, done = memory + scratch[SCRATCH.transposed], memory + scratch[SCRATCH.results]
        positions = (end - begin) * ints.i64[D.out_w]
        constants = ints + ints.i64[D.epilogue_at]
        bundled: i64 = 0  # groups of the current bundle so far
        status: i32 = 0
        for number in range(start, stop):
            image, group = number // ints.i64[D.groups], number % ints.i64[D.groups]
            valid, count = lanes, outs * ints.i64[D.blocks]
            channel = group * count
            if together:
                group = group * lanes
                valid = min(lanes, ints.i64[D.singles] - group)
                channel, count = group, valid
            load_weights(bufs, ints, memory, scratch[SCRATCH.each], group, valid)
            if ints.i64[D.y_transpose] != 0:  # one band
                status = status | convolve_transposed(
                    bufs, ints, own, piece, memory, transposed, done, image, group, valid
                )
                continue
            x = bufs.ptr[ints.i64[D.operand]] + item * (image * ints.i64[D.x_n] + group * ints.i64[D.x_g])
            for depth in range(ints.i64[D.out_d]):
                y = bufs.ptr[0] + y_item * (
                    ints.i64[D.y_base] + image * ints.i64[D.y_n] + group * ints.i64[D.y_g] + depth * ints.i64[D.y_d]
                )
                if kept == 0:
                    unit(ints, y, x, memory, begin, end, depth, valid)
                else:
                    before = bundled * (lanes if together else count)  # channels of the bundle
                    unit(
                        own,
                        done + size * (before * own.i64[D.y_o] - begin * own.i64[D.y_h]),
                        x,
                        memory,
                        begin,
                        end,
                        depth,
                        valid,
                    )
                    bundled += 1
                    last = number % ints.i64[D.groups] == ints.i64[D.groups] - 1 or number == stop - 1
                    if bundled == ints.i64[D.bundle] or last:
                        first = (depth * ints.i64[D.out_h] + begin) * ints.i64[D.out_w]
                        status = status | put_epilogue(
                            bufs, own, constants, piece, done, image, channel - before, before + count, first, positions
                        )
                        bundled = 0
        give_back(slot)
        return status

    return direct
