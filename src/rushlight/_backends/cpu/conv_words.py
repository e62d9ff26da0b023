"""The work of a convolution in numbers: its words, the box of a piece, the parts of its steps and the tables over them, in the native language."""

from __future__ import annotations

from rushlight._backends.native import i64, native

__all__ = ["BOX_BYTES", "W", "WORDS", "find_box", "find_part", "lay_slab", "list_moves", "list_steps", "panel_place"]

# The words of one part of the work, as places of 8 bytes; strides count elements, of x [N, G, C, D, H, W], w [G, O, C, D, H, W] and
# y [N, G, O, D, H, W].
_NAMES = """pieces x_n x_g x_c x_d x_h x_w w_base w_g w_o w_c w_d w_h w_w y_base y_n y_g y_o y_d y_h y_w y_chunk bias_g bias_o
n g c o in_d in_h in_w d h w k_d k_h k_w step_d step_h step_w gap_d gap_h gap_w lo_d lo_h lo_w
block_n block_d block_h block_w block_o blocks_n blocks_d blocks_h blocks_w blocks_o part_c part_d part_h part_w parts_c parts_d parts_h parts_w
chunk chunks images_inside form flip taps_first packed operand after""".split()
# form: 0 and 1 have output channels as the rows of the tile, 2 and 3 places; 1 and 3 use the tile with fewer rows.
# images_inside: 0: places along the width lie side by side in the slab; 1: all images of the box; more: blocks of as many images, which are
# panels as they lie.
# taps_first: the steps go over the kernel first, for each of its elements over the channels; else the other way round.
# packed: where the panels of the weights begin, in bytes, in the memory that holds them packed; -1: each piece packs its own.
# operand: which word of the call x is; then come w and the bias.  after: 1: the words of an epilogue follow these, which takes rectangles of
# channels x places; 2: of places x channels; 0: there is none.
W = {name: n for n, name in enumerate(_NAMES)}
(PIECES, X_N, X_G, X_C, X_D, X_H, X_W, W_BASE, W_G, W_O, W_C, W_D, W_H, W_W, Y_BASE, Y_N, Y_G, Y_O, Y_D, Y_H, Y_W, Y_CHUNK, BIAS_G, BIAS_O,
 N, G, C, O, IN_D, IN_H, IN_W, D, H, WIDE, K_D, K_H, K_W, STEP_D, STEP_H, STEP_W, GAP_D, GAP_H, GAP_W, LO_D, LO_H, LO_W,
 BLOCK_N, BLOCK_D, BLOCK_H, BLOCK_W, BLOCK_O, BLOCKS_N, BLOCKS_D, BLOCKS_H, BLOCKS_W, BLOCKS_O, PART_C, PART_D, PART_H, PART_W,
 PARTS_C, PARTS_D, PARTS_H, PARTS_W, CHUNK, CHUNKS, IMAGES_INSIDE, FORM, FLIP, TAPS_FIRST, PACKED, OPERAND, AFTER) = range(73)  # fmt: skip
WORDS = 73

# The box of a piece and of one part of its steps: first and one past the last of each.
(N0, N1, D0, D1, H0, H1, W0, W1, O0, O1, GROUP, CHUNK_NO, C0, C1, TD0, TD1, TH0, TH1, TW0, TW1,
 S_C, S_N, S_D, S_H, S_W, PHASE, LEN_D, LEN_H, LEN_W, COLUMNS, STEPS) = range(31)  # fmt: skip
BOX_BYTES = 8 * 32


# ***** which box a piece is, and its parts *****


@native("void(ptr, ptr, i64)")
def find_box(at, box, piece):
    """The box of a piece."""
    rest = piece
    o = rest % at.i64[BLOCKS_O]
    rest = rest // at.i64[BLOCKS_O]
    w = rest % at.i64[BLOCKS_W]
    rest = rest // at.i64[BLOCKS_W]
    h = rest % at.i64[BLOCKS_H]
    rest = rest // at.i64[BLOCKS_H]
    d = rest % at.i64[BLOCKS_D]
    rest = rest // at.i64[BLOCKS_D]
    n = rest % at.i64[BLOCKS_N]
    rest = rest // at.i64[BLOCKS_N]
    box.i64[GROUP] = rest % at.i64[G]
    box.i64[CHUNK_NO] = rest // at.i64[G]
    box.i64[N0], box.i64[N1] = n * at.i64[BLOCK_N], min(at.i64[N], (n + 1) * at.i64[BLOCK_N])
    box.i64[D0], box.i64[D1] = d * at.i64[BLOCK_D], min(at.i64[D], (d + 1) * at.i64[BLOCK_D])
    box.i64[H0], box.i64[H1] = h * at.i64[BLOCK_H], min(at.i64[H], (h + 1) * at.i64[BLOCK_H])
    box.i64[W0], box.i64[W1] = w * at.i64[BLOCK_W], min(at.i64[WIDE], (w + 1) * at.i64[BLOCK_W])
    box.i64[O0], box.i64[O1] = o * at.i64[BLOCK_O], min(at.i64[O], (o + 1) * at.i64[BLOCK_O])
    area = (box.i64[D1] - box.i64[D0]) * (box.i64[H1] - box.i64[H0]) * (box.i64[W1] - box.i64[W0])
    images, inside = box.i64[N1] - box.i64[N0], at.i64[IMAGES_INSIDE]
    if inside > 1:
        images = (images + inside - 1) // inside * inside
    box.i64[COLUMNS] = images * area


@native("void(ptr, ptr, i64)")
def find_part(at, box, part):
    """The steps of one part, and how its slab lies."""
    rest = part
    w = rest % at.i64[PARTS_W]
    rest = rest // at.i64[PARTS_W]
    h = rest % at.i64[PARTS_H]
    rest = rest // at.i64[PARTS_H]
    d = rest % at.i64[PARTS_D]
    c = rest // at.i64[PARTS_D]
    box.i64[C0], box.i64[C1] = c * at.i64[PART_C], min(at.i64[C], (c + 1) * at.i64[PART_C])
    box.i64[TD0], box.i64[TD1] = d * at.i64[PART_D], min(at.i64[K_D], (d + 1) * at.i64[PART_D])
    box.i64[TH0], box.i64[TH1] = h * at.i64[PART_H], min(at.i64[K_H], (h + 1) * at.i64[PART_H])
    box.i64[TW0], box.i64[TW1] = w * at.i64[PART_W], min(at.i64[K_W], (w + 1) * at.i64[PART_W])
    td, th, tw = box.i64[TD1] - box.i64[TD0], box.i64[TH1] - box.i64[TH0], box.i64[TW1] - box.i64[TW0]
    box.i64[STEPS] = (box.i64[C1] - box.i64[C0]) * td * th * tw
    box.i64[LEN_D] = (box.i64[D1] - box.i64[D0] - 1) * at.i64[STEP_D] + (td - 1) * at.i64[GAP_D] + 1
    box.i64[LEN_H] = (box.i64[H1] - box.i64[H0] - 1) * at.i64[STEP_H] + (th - 1) * at.i64[GAP_H] + 1
    box.i64[LEN_W] = (box.i64[W1] - box.i64[W0] - 1) * at.i64[STEP_W] + (tw - 1) * at.i64[GAP_W] + 1


@native("void(ptr, ptr)")
def lay_slab(at, box):
    """The strides of the slab: images side by side, or places along the width, those of one rest by the stride together."""
    images, inside = box.i64[N1] - box.i64[N0], at.i64[IMAGES_INSIDE]
    if inside > 1:
        box.i64[PHASE] = 0
        box.i64[S_W] = inside
        box.i64[S_H] = inside * box.i64[LEN_W]
        box.i64[S_D] = box.i64[S_H] * box.i64[LEN_H]
        box.i64[S_N] = box.i64[S_D] * box.i64[LEN_D]  # of a block
        box.i64[S_C] = box.i64[S_N] * ((images + inside - 1) // inside)
    elif inside != 0:
        box.i64[PHASE] = 0
        box.i64[S_N] = 1
        box.i64[S_W] = (images + 15) // 16 * 16
        box.i64[S_H] = box.i64[S_W] * box.i64[LEN_W]
        box.i64[S_D] = box.i64[S_H] * box.i64[LEN_H]
        box.i64[S_C] = box.i64[S_D] * box.i64[LEN_D]
    else:
        box.i64[PHASE] = (box.i64[LEN_W] + at.i64[STEP_W] - 1) // at.i64[STEP_W]
        box.i64[S_W] = 1
        box.i64[S_H] = box.i64[PHASE] * at.i64[STEP_W]
        box.i64[S_D] = box.i64[S_H] * box.i64[LEN_H]
        box.i64[S_N] = box.i64[S_D] * box.i64[LEN_D]
        box.i64[S_C] = box.i64[S_N] * images
        if box.i64[S_C] % 512 == 0:
            box.i64[S_C] = box.i64[S_C] + 16  # else all channels meet in the same places of the cache


@native("i64(ptr, ptr, i64)", inline=True)
def width_place(at, box, position):
    """Where a position along the width lies in a row of the slab."""
    if at.i64[IMAGES_INSIDE] != 0:
        return position * box.i64[S_W]
    return position % at.i64[STEP_W] * box.i64[PHASE] + position // at.i64[STEP_W]


# ***** tables *****


@native("void(ptr, ptr, ptr, i64)")
def list_steps(at, box, offsets, size):
    """For each step of the part, how many bytes it lies into the slab."""
    channels, deep, high, wide = box.i64[C1] - box.i64[C0], box.i64[TD1] - box.i64[TD0], box.i64[TH1] - box.i64[TH0], box.i64[TW1] - box.i64[TW0]
    turned = at.i64[FLIP] != 0  # weights are packed as they lie, and the windows counted from their ends
    k_tap, k_channel = i64(1), deep * high * wide
    if at.i64[TAPS_FIRST] != 0:
        k_tap, k_channel = channels, i64(1)
    for d in range(deep):
        for h in range(high):
            for w in range(wide):
                td, th, tw = d, h, w
                if turned:
                    td, th, tw = deep - 1 - d, high - 1 - h, wide - 1 - w
                place = td * at.i64[GAP_D] * box.i64[S_D] + th * at.i64[GAP_H] * box.i64[S_H] + width_place(at, box, tw * at.i64[GAP_W])
                k = k_tap * ((d * high + h) * wide + w)
                for c in range(channels):
                    offsets.i64[k + c * k_channel] = size * (place + c * box.i64[S_C])


@native("i64(ptr, ptr, ptr, ptr, i64, i64, i64, i64)")
def list_moves(at, box, cursor, moves, width, lanes, size, cell):
    """The moves that fill the next panel: pairs (from, to); how many there are.  `cursor` holds the next place (5 numbers), at first zeros."""
    inside = at.i64[IMAGES_INSIDE] != 0
    images, high, wide = box.i64[N1] - box.i64[N0], box.i64[H1] - box.i64[H0], box.i64[W1] - box.i64[W0]
    deep = box.i64[D1] - box.i64[D0]
    run = images if inside else wide
    start, w, h, d, outer = cursor.i64[0], cursor.i64[1], cursor.i64[2], cursor.i64[3], cursor.i64[4]
    filled: i64 = 0
    n: i64 = 0
    while filled < width and outer < (i64(1) if inside else images):
        count = min(run - start, width - filled)
        place = start + w * at.i64[STEP_W] * box.i64[S_W] + h * at.i64[STEP_H] * box.i64[S_H] + d * at.i64[STEP_D] * box.i64[S_D]
        place += outer * box.i64[S_N]
        v: i64 = 0
        while v < count:
            moves.i64[2 * n] = size * (place + v)
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
                h += 1
                if h == high:
                    h = 0
                    d += 1
                    if d == deep:
                        d = 0
                        outer += 1
    cursor.i64[0], cursor.i64[1], cursor.i64[2], cursor.i64[3], cursor.i64[4] = start, w, h, d, outer
    return n


@native("i64(ptr, ptr, i64)")
def panel_place(at, box, panel):
    """Where a panel lies in the slab as it is, where blocks of images lie side by side."""
    high, wide = box.i64[H1] - box.i64[H0], box.i64[W1] - box.i64[W0]
    deep = box.i64[D1] - box.i64[D0]
    w, rest = panel % wide, panel // wide
    h, rest = rest % high, rest // high
    place = w * at.i64[STEP_W] * box.i64[S_W] + h * at.i64[STEP_H] * box.i64[S_H]
    return place + rest % deep * at.i64[STEP_D] * box.i64[S_D] + rest // deep * box.i64[S_N]
