"""The descriptor of a convolution, in the native language: sizes and blocking, the box of a piece, its parts, and their
tables."""

from __future__ import annotations

from rushlight._backends.cpu.program.steps import RectangleStep
from rushlight._native import Words, i64, native, stack

__all__ = [
    "BOTH",
    "BOX",
    "BOX_BYTES",
    "CHANNELS",
    "LOW",
    "NO_EPILOGUE",
    "POSITIONS",
    "POSITIONS_LOW",
    "POSITION_ROWS",
    "W",
    "W_BYTES",
    "epilogue_layout",
    "filled_channels",
    "find_box",
    "find_part",
    "lay_slab",
    "list_moves",
    "list_positions",
    "list_steps",
    "next_row",
    "panel_offset",
]

# The descriptor of one part of the work, words of 8 bytes; strides count elements of x [N, G, C, D, H, W], w [G, O, C,
# D, H, W] and y [N, G, O, D, H, W].
W = Words("""pieces x_n x_g x_c x_d x_h x_w w_base w_g w_o w_c w_d w_h w_w y_base y_n y_g y_o y_d y_h y_w y_chunk bias_g bias_o
n g c o in_d in_h in_w d h w k_d k_h k_w step_d step_h step_w gap_d gap_h gap_w lo_d lo_h lo_w
block_n block_d block_h block_w block_o blocks_n blocks_d blocks_h blocks_w blocks_o part_c part_d part_h part_w parts_c parts_d parts_h parts_w
chunk chunks images_inside channels_inside form flip taps_first packed operand epilogue epilogue_at apart pinned""")
# form: rows of the register tile (CHANNELS or POSITIONS) plus its tile (BOTH or LOW).
# images_inside: 0: positions along the width are contiguous in the slab; 1: all images of the box are; n > 1: blocks of
# n images, which are panels already.
# channels_inside: 0, or the channels of a position are contiguous in the slab, padded to packed words of this many; the
# tile reads them in place.
# taps_first: kernel taps are the outer loop of the steps and channels the inner one; 0: the other way round.
# packed: offset in bytes of the weights' panels in memory packed in advance; -1: each piece packs its own.
# operand: index of x among the arrays of the call; w and the bias follow.
# epilogue: NO_EPILOGUE, or the layout of the rectangles it takes.  epilogue_at: offset in bytes of its constants from
# here.  apart: its rectangles hold every first, second, ... position of a row (where sums of chunks are added).
# pinned: the address of PINNED of the weights, of a convolution whose weights may stay packed; else 0.

# The box of a piece and of one part of its steps: first and one past the last of each.
BOX = Words("""n0 n1 d0 d1 h0 h1 w0 w1 o0 o1 group chunk_no c0 c1 td0 td1 th0 th1 tw0 tw1
s_c s_n s_d s_h s_w phase len_d len_h len_w columns steps""")
# Values of `form`: the rows of the register tile are output channels or positions; BOTH uses the tile with fewer rows
# for a remainder, LOW for all rows.
CHANNELS, POSITIONS = 0, 2
BOTH, LOW = 0, 1
POSITIONS_LOW = POSITIONS + LOW
# Values of `epilogue`: rectangles of channels x positions, or of positions x channels.
NO_EPILOGUE, CHANNEL_ROWS, POSITION_ROWS = range(3)

W_BYTES, BOX_BYTES = 8 * len(W), 8 * (len(BOX) + 1)


def epilogue_layout(epilogue: RectangleStep | None) -> int:
    """The `epilogue` field for a step's epilogue."""
    return NO_EPILOGUE if epilogue is None else POSITION_ROWS if epilogue.part.transposed else CHANNEL_ROWS


# ***** which box a piece is, and its parts *****


@native("void(ptr, i64, ptr, i64, i64, i64)", inline=True)
def next_run(box, first, rest, runs, each, size):
    """Take the last digit of the mixed-radix number `rest`: the range of the box along one dim, words `first` and
    `first + 1`.

    The dim's `size` positions have `runs` ranges of `each`.
    """
    digit = rest.i64[0] % runs
    rest.i64[0] = rest.i64[0] // runs
    box.i64[first], box.i64[first + 1] = digit * each, min(size, (digit + 1) * each)


@native("void(ptr, ptr, i64)")
def find_box(desc, box, piece):
    """The box of a piece."""
    rest = stack(8)
    rest.i64[0] = piece
    next_run(box, BOX.o0, rest, desc.i64[W.blocks_o], desc.i64[W.block_o], desc.i64[W.o])
    next_run(box, BOX.w0, rest, desc.i64[W.blocks_w], desc.i64[W.block_w], desc.i64[W.w])
    next_run(box, BOX.h0, rest, desc.i64[W.blocks_h], desc.i64[W.block_h], desc.i64[W.h])
    next_run(box, BOX.d0, rest, desc.i64[W.blocks_d], desc.i64[W.block_d], desc.i64[W.d])
    next_run(box, BOX.n0, rest, desc.i64[W.blocks_n], desc.i64[W.block_n], desc.i64[W.n])
    box.i64[BOX.group] = rest.i64[0] % desc.i64[W.g]
    box.i64[BOX.chunk_no] = rest.i64[0] // desc.i64[W.g]
    area = (
        (box.i64[BOX.d1] - box.i64[BOX.d0]) * (box.i64[BOX.h1] - box.i64[BOX.h0]) * (box.i64[BOX.w1] - box.i64[BOX.w0])
    )
    images, inside = box.i64[BOX.n1] - box.i64[BOX.n0], desc.i64[W.images_inside]
    if inside > 1:
        images = (images + inside - 1) // inside * inside
    box.i64[BOX.columns] = images * area


@native("i64(ptr, i64)", inline=True)
def filled_channels(desc, channels):
    """The number of steps that `channels` take: padded to whole packed words where they are contiguous."""
    word = max(desc.i64[W.channels_inside], i64(1))
    return (channels + word - 1) // word * word


@native("void(ptr, ptr, i64)")
def find_part(desc, box, part):
    """The steps of one part, and the extent of its slab."""
    rest = stack(8)
    rest.i64[0] = part
    next_run(box, BOX.tw0, rest, desc.i64[W.parts_w], desc.i64[W.part_w], desc.i64[W.k_w])
    next_run(box, BOX.th0, rest, desc.i64[W.parts_h], desc.i64[W.part_h], desc.i64[W.k_h])
    next_run(box, BOX.td0, rest, desc.i64[W.parts_d], desc.i64[W.part_d], desc.i64[W.k_d])
    next_run(box, BOX.c0, rest, desc.i64[W.parts_c], desc.i64[W.part_c], desc.i64[W.c])
    td, th, tw = (
        box.i64[BOX.td1] - box.i64[BOX.td0],
        box.i64[BOX.th1] - box.i64[BOX.th0],
        box.i64[BOX.tw1] - box.i64[BOX.tw0],
    )
    box.i64[BOX.steps] = filled_channels(desc, box.i64[BOX.c1] - box.i64[BOX.c0]) * td * th * tw
    box.i64[BOX.len_d] = (box.i64[BOX.d1] - box.i64[BOX.d0] - 1) * desc.i64[W.step_d] + (td - 1) * desc.i64[W.gap_d] + 1
    box.i64[BOX.len_h] = (box.i64[BOX.h1] - box.i64[BOX.h0] - 1) * desc.i64[W.step_h] + (th - 1) * desc.i64[W.gap_h] + 1
    box.i64[BOX.len_w] = (box.i64[BOX.w1] - box.i64[BOX.w0] - 1) * desc.i64[W.step_w] + (tw - 1) * desc.i64[W.gap_w] + 1


@native("void(ptr, ptr)")
def lay_slab(desc, box):
    """The strides of the slab; contiguous are channels, images, or positions along the width that share a remainder
    modulo the stride."""
    images, inside = box.i64[BOX.n1] - box.i64[BOX.n0], desc.i64[W.images_inside]
    if desc.i64[W.channels_inside] != 0:
        box.i64[BOX.phase] = 0
        box.i64[BOX.s_c] = 1
        box.i64[BOX.s_w] = filled_channels(desc, box.i64[BOX.c1] - box.i64[BOX.c0])
        if box.i64[BOX.s_w] % 256 == 0:
            box.i64[BOX.s_w] = box.i64[BOX.s_w] + 16  # else all positions share the same cache sets
        box.i64[BOX.s_h] = box.i64[BOX.s_w] * box.i64[BOX.len_w]
        box.i64[BOX.s_d] = box.i64[BOX.s_h] * box.i64[BOX.len_h]
        box.i64[BOX.s_n] = box.i64[BOX.s_d] * box.i64[BOX.len_d]
    elif inside > 1:
        box.i64[BOX.phase] = 0
        box.i64[BOX.s_w] = inside
        box.i64[BOX.s_h] = inside * box.i64[BOX.len_w]
        box.i64[BOX.s_d] = box.i64[BOX.s_h] * box.i64[BOX.len_h]
        box.i64[BOX.s_n] = box.i64[BOX.s_d] * box.i64[BOX.len_d]  # of a block
        box.i64[BOX.s_c] = box.i64[BOX.s_n] * ((images + inside - 1) // inside)
    elif inside != 0:
        box.i64[BOX.phase] = 0
        box.i64[BOX.s_n] = 1
        box.i64[BOX.s_w] = (images + 15) // 16 * 16
        box.i64[BOX.s_h] = box.i64[BOX.s_w] * box.i64[BOX.len_w]
        box.i64[BOX.s_d] = box.i64[BOX.s_h] * box.i64[BOX.len_h]
        box.i64[BOX.s_c] = box.i64[BOX.s_d] * box.i64[BOX.len_d]
    else:
        box.i64[BOX.phase] = (box.i64[BOX.len_w] + desc.i64[W.step_w] - 1) // desc.i64[W.step_w]
        box.i64[BOX.s_w] = 1
        box.i64[BOX.s_h] = box.i64[BOX.phase] * desc.i64[W.step_w]
        box.i64[BOX.s_d] = box.i64[BOX.s_h] * box.i64[BOX.len_h]
        box.i64[BOX.s_n] = box.i64[BOX.s_d] * box.i64[BOX.len_d]
        box.i64[BOX.s_c] = box.i64[BOX.s_n] * images
        if box.i64[BOX.s_c] % 512 == 0:
            box.i64[BOX.s_c] = box.i64[BOX.s_c] + 16  # else all channels share the same cache sets


@native("i64(ptr, ptr, i64)", inline=True)
def width_offset(desc, box, position):
    """The offset in a row of the slab of a position along the width."""
    if desc.i64[W.images_inside] != 0 or desc.i64[W.channels_inside] != 0:
        return position * box.i64[BOX.s_w]
    return position % desc.i64[W.step_w] * box.i64[BOX.phase] + position // desc.i64[W.step_w]


# ***** tables *****


@native("void(ptr, ptr, ptr, i64)")
def list_steps(desc, box, offsets, size):
    """The slab offset in bytes of each step of the part, or of each packed word of steps where channels are contiguous."""
    word = max(desc.i64[W.channels_inside], i64(1))
    channels = (box.i64[BOX.c1] - box.i64[BOX.c0] + word - 1) // word
    deep = box.i64[BOX.td1] - box.i64[BOX.td0]
    high, wide = box.i64[BOX.th1] - box.i64[BOX.th0], box.i64[BOX.tw1] - box.i64[BOX.tw0]
    flipped = desc.i64[W.flip] != 0  # weights are packed in memory order, so windows count from their ends
    k_tap, k_channel = i64(1), deep * high * wide
    if desc.i64[W.taps_first] != 0:
        k_tap, k_channel = channels, i64(1)
    for d in range(deep):
        for h in range(high):
            for w in range(wide):
                td, th, tw = d, h, w
                if flipped:
                    td, th, tw = deep - 1 - d, high - 1 - h, wide - 1 - w
                offset = (
                    td * desc.i64[W.gap_d] * box.i64[BOX.s_d]
                    + th * desc.i64[W.gap_h] * box.i64[BOX.s_h]
                    + width_offset(desc, box, tw * desc.i64[W.gap_w])
                )
                k = k_tap * ((d * high + h) * wide + w)
                for c in range(channels):
                    offsets.i64[k + c * k_channel] = size * (offset + c * word * box.i64[BOX.s_c])


@native("void(ptr, i64, i64)", inline=True)
def next_row(row, high, deep):
    """Advance `row` (row in its plane, plane, image) in boxes of `deep` planes of `high` rows."""
    row.i64[0] = row.i64[0] + 1
    if row.i64[0] == high:
        row.i64[0], row.i64[1] = 0, row.i64[1] + 1
        if row.i64[1] == deep:
            row.i64[1], row.i64[2] = 0, row.i64[2] + 1


@native("i64(ptr, ptr, i64, i64, i64)", inline=True)
def row_offset(desc, box, h, d, n):
    """The slab offset at which a row of results begins to read."""
    return h * desc.i64[W.step_h] * box.i64[BOX.s_h] + d * desc.i64[W.step_d] * box.i64[BOX.s_d] + n * box.i64[BOX.s_n]


@native("i64(ptr, ptr, ptr, ptr, i64, i64, i64, i64)")
def list_moves(desc, box, cursor, moves, width, lanes, size, cell):
    """List the moves (from, to) that fill the next panel; return their number.  `cursor` holds the next position (5
    numbers), initially zeros."""
    inside = desc.i64[W.images_inside] != 0
    images, high, wide = (
        box.i64[BOX.n1] - box.i64[BOX.n0],
        box.i64[BOX.h1] - box.i64[BOX.h0],
        box.i64[BOX.w1] - box.i64[BOX.w0],
    )
    deep = box.i64[BOX.d1] - box.i64[BOX.d0]
    run = images if inside else wide
    start, w, row = cursor.i64[0], cursor.i64[1], cursor + 16
    filled: i64 = 0
    n: i64 = 0
    while filled < width and row.i64[2] < (i64(1) if inside else images):
        count = min(run - start, width - filled)
        offset = (
            start
            + w * desc.i64[W.step_w] * box.i64[BOX.s_w]
            + row_offset(desc, box, row.i64[0], row.i64[1], row.i64[2])
        )
        v: i64 = 0
        while v < count:
            moves.i64[2 * n] = size * (offset + v)
            moves.i64[2 * n + 1] = cell * (filled + v)
            n += 1
            v += lanes
        filled += count
        start += count
        if start == run:
            start = 0
            w += 1
            if not inside or w == wide:
                w = 0
                next_row(row, high, deep)
    cursor.i64[0], cursor.i64[1] = start, w
    return n


@native("void(ptr, ptr, ptr, ptr, i64, i64)")
def list_positions(desc, box, cursor, positions, count, size):
    """The slab offsets in bytes of the next `count` positions; past the end the last one repeats.  `cursor` holds the
    next (4 numbers), initially zeros."""
    w, row = cursor.i64[0], cursor + 8
    high, wide = box.i64[BOX.h1] - box.i64[BOX.h0], box.i64[BOX.w1] - box.i64[BOX.w0]
    images, deep = box.i64[BOX.n1] - box.i64[BOX.n0], box.i64[BOX.d1] - box.i64[BOX.d0]
    step = size * desc.i64[W.step_w] * box.i64[BOX.s_w]
    offset: i64 = 0
    i: i64 = 0
    while i < count:
        if row.i64[2] < images:
            some = min(wide - w, count - i)
            offset = size * row_offset(desc, box, row.i64[0], row.i64[1], row.i64[2]) + w * step
            for _ in range(some):
                positions.i64[i] = offset
                offset += step
                i += 1
            offset = offset - step
            w += some
            if w == wide:
                w = 0
                next_row(row, high, deep)
        else:
            positions.i64[i] = offset
            i += 1
    cursor.i64[0] = w


@native("i64(ptr, ptr, i64)")
def panel_offset(desc, box, panel):
    """The offset of a panel in a slab of contiguous blocks of images."""
    high, wide = box.i64[BOX.h1] - box.i64[BOX.h0], box.i64[BOX.w1] - box.i64[BOX.w0]
    deep = box.i64[BOX.d1] - box.i64[BOX.d0]
    w, rest = panel % wide, panel // wide
    h, rest = rest % high, rest // high
    return w * desc.i64[W.step_w] * box.i64[BOX.s_w] + row_offset(desc, box, h, rest % deep, rest // deep)
