"""Convolutions as matrix products whose windows are never written out, in the native language.

The structure is that of a matrix product (see `gemm_native.py`): panels of the weights meet panels of the windows in a tile of registers.
What differs is where panels of windows come from: a box of the image is laid into a *slab* (padded with zeros, converted, turned so that
places which follow each other lie side by side, steps of a stride sorted by their rest), and an element of the windows lies in the slab at
`offset of the step k + offset of the place`, two tables (Dukhan, "The Indirect Convolution Algorithm", 2019, has one of pointers).  So any stride,
dilation, padding and layout costs one reading of the box, and the inner loops know nothing of them.

A piece of work is a box of places of some images and a run of output channels; what it adds up stays in a block of memory of its own
until it is written out, with the bias, in the layout and the dtype of the result.
"""

from __future__ import annotations

from rushlight._backends.cpu.gemm_native import make_turned
from rushlight._backends.cpu.mt19937 import bfloat_bits, half_bits
from rushlight._backends.native import (
    Type,
    atomic_cas,
    atomic_store,
    bitcast,
    extern,
    f32,
    f64,
    i32,
    i64,
    load,
    memcpy,
    memset,
    native,
    ptr,
    select,
    stack,
    static,
    store,
    u16,
    u32,
)  # fmt: skip
from rushlight._backends.native.function import NativeFunction
from rushlight._kernels.panel_gather import PanelGather
from rushlight._kernels.register_tile import RegisterTile

__all__ = ["W", "make_conv", "make_sum_chunks"]

# The words of one part of the work, as places of 8 bytes; strides count elements, of x [N, G, C, D, H, W], w [G, O, C, D, H, W], y [N, G, O, D, H, W].
_NAMES = """pieces x_n x_g x_c x_d x_h x_w w_base w_g w_o w_c w_d w_h w_w y_base y_n y_g y_o y_d y_h y_w y_chunk bias_g bias_o
n g c o in_d in_h in_w d h w k_d k_h k_w step_d step_h step_w gap_d gap_h gap_w lo_d lo_h lo_w
block_n block_d block_h block_w block_o blocks_n blocks_d blocks_h blocks_w blocks_o part_c part_d part_h part_w parts_c parts_d parts_h parts_w
chunk chunks images_inside form""".split()
W = {name: n for n, name in enumerate(_NAMES)}
(PIECES, X_N, X_G, X_C, X_D, X_H, X_W, W_BASE, W_G, W_O, W_C, W_D, W_H, W_W, Y_BASE, Y_N, Y_G, Y_O, Y_D, Y_H, Y_W, Y_CHUNK, BIAS_G, BIAS_O,
 N, G, C, O, IN_D, IN_H, IN_W, D, H, WIDE, K_D, K_H, K_W, STEP_D, STEP_H, STEP_W, GAP_D, GAP_H, GAP_W, LO_D, LO_H, LO_W,
 BLOCK_N, BLOCK_D, BLOCK_H, BLOCK_W, BLOCK_O, BLOCKS_N, BLOCKS_D, BLOCKS_H, BLOCKS_W, BLOCKS_O, PART_C, PART_D, PART_H, PART_W,
 PARTS_C, PARTS_D, PARTS_H, PARTS_W, CHUNK, CHUNKS, IMAGES_INSIDE, FORM) = range(68)  # fmt: skip
WORDS = 68

# The box of a piece and of one part of its steps: first and one past the last of each.
(N0, N1, D0, D1, H0, H1, W0, W1, O0, O1, GROUP, CHUNK_NO, C0, C1, TD0, TD1, TH0, TH1, TW0, TW1,
 S_C, S_N, S_D, S_H, S_W, PHASE, LEN_D, LEN_H, LEN_W, COLUMNS, STEPS) = range(31)  # fmt: skip
BOX_BYTES = 8 * 32

SLOTS = 256
SLACK = 512  # bytes that may be read or written behind a block
SCRATCH = static("conv_scratch", 24 * SLOTS)  # for each slot: whether it is taken, its memory, and how large that is
aligned_alloc, free = extern("aligned_alloc", "ptr(i64, i64)"), extern("free", "void(ptr)")
rl_fail = extern("rl_fail", "i32(ptr, i64, i64, i64, i64, i64)")

# form: 0 and 1 have output channels as the rows of the tile, 2 and 3 places; 1 and 3 use the tile with fewer rows


@native("i64(i64)")
def take_room(nbytes):
    """The number of a slot with at least `nbytes` of memory that are ours until `give_room`; -1 where there is none."""
    for slot in range(SLOTS):
        if SCRATCH.i32[6 * slot] == 0:
            if atomic_cas(i32, SCRATCH, 6 * slot, 0, 1) == 0:
                if SCRATCH.i64[3 * slot + 2] < nbytes:
                    free(SCRATCH.ptr[3 * slot + 1])
                    rounded = (nbytes + 4095) // 4096 * 4096
                    SCRATCH.ptr[3 * slot + 1] = aligned_alloc(64, rounded)
                    SCRATCH.i64[3 * slot + 2] = rounded
                if SCRATCH.ptr[3 * slot + 1] is None:
                    SCRATCH.i64[3 * slot + 2] = 0
                    atomic_store(i32, SCRATCH, 6 * slot, 0)
                    return -1
                return slot
    return -1


@native("void(i64)")
def give_room(slot):
    """The slot may be taken again."""
    atomic_store(i32, SCRATCH, 6 * slot, 0)


@native("f32(u16)", inline=True)
def from_half(h):
    """A float16 as float32: the exponent is moved by a multiplication, which makes subnormals right too."""
    wide = u32(h)
    magnitude = bitcast(u32, bitcast(f32, (wide & 0x7FFF) << 13) * f32(2.0**112))
    magnitude = select((wide & 0x7C00) == 0x7C00, magnitude | 0x7F800000, magnitude)
    return bitcast(f32, magnitude | ((wide & 0x8000) << 16))


@native("f32(u16)", inline=True)
def from_brain(h):
    """A bfloat16 as float32."""
    return bitcast(f32, u32(h) << 16)


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
    box.i64[COLUMNS] = (box.i64[N1] - box.i64[N0]) * area


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
    images = box.i64[N1] - box.i64[N0]
    if at.i64[IMAGES_INSIDE] != 0:
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
    k: i64 = 0
    for c in range(box.i64[C1] - box.i64[C0]):
        for d in range(box.i64[TD1] - box.i64[TD0]):
            for h in range(box.i64[TH1] - box.i64[TH0]):
                row = c * box.i64[S_C] + d * at.i64[GAP_D] * box.i64[S_D] + h * at.i64[GAP_H] * box.i64[S_H]
                for w in range(box.i64[TW1] - box.i64[TW0]):
                    offsets.i64[k] = size * (row + width_place(at, box, w * at.i64[GAP_W]))
                    k += 1


@native("i64(ptr, ptr, ptr, i64, i64, i64, i64, i64)")
def list_moves(at, box, moves, first, width, lanes, size, cell):
    """The moves that fill a panel with the places from `first` on: pairs (from, to); how many there are."""
    last = min(first + width, box.i64[COLUMNS])
    inside = at.i64[IMAGES_INSIDE] != 0
    images, high, wide = box.i64[N1] - box.i64[N0], box.i64[H1] - box.i64[H0], box.i64[W1] - box.i64[W0]
    run = images if inside else wide
    column = first
    n: i64 = 0
    while column < last:
        start = column % run
        rest = column // run
        count = min(run - start, last - column)
        place: i64 = 0
        if inside:
            w = rest % wide
            rest = rest // wide
            place = start + w * at.i64[STEP_W] * box.i64[S_W]
        else:
            place = start
        place += rest % high * at.i64[STEP_H] * box.i64[S_H]
        rest = rest // high
        if inside:
            place += rest * at.i64[STEP_D] * box.i64[S_D]
        else:
            deep = box.i64[D1] - box.i64[D0]
            place += rest % deep * at.i64[STEP_D] * box.i64[S_D] + rest // deep * box.i64[S_N]
        v: i64 = 0
        while v < count:
            moves.i64[2 * n] = size * (place + v)
            moves.i64[2 * n + 1] = cell * (column - first + v)
            n += 1
            v += lanes
        column += count
    return n


# ***** the slab *****


def _make_slab(kind: str, source: str, real: Type, tile: RegisterTile) -> NativeFunction:
    """Fills the slab; `source` is the kind of the image's elements, `kind` that of the slab's."""
    given, fetch = _fetch(source, real)
    plain = source == kind
    size, given_size, n8 = real.itemsize, given.itemsize, tile.turned
    turn = extern(tile.turn_symbol, "void(ptr, ptr, i64, i64, i64)")
    turns = plain and kind in ("f32", "f64")

    @native("void(ptr, ptr, i64, i64)", name=f"run_{source}_{kind}")
    def copy_run(out, x, step, count):
        """`count` elements, `step` apart, as neighbours."""
        if plain and step == 1:
            memcpy(out, x, size * count)
        elif step == 1:
            for i in range(count):
                store(real, out, i, fetch(x, i))
        elif step == 2:
            for i in range(count):
                store(real, out, i, fetch(x, 2 * i))
        else:
            for i in range(count):
                store(real, out, i, fetch(x, step * i))

    @native("void(ptr, ptr, i64, i64, i64, i64, i64, i64)", name=f"block_{source}_{kind}")
    def copy_block(out, x, rows, count, x_row, x_step, out_row, out_step):
        """A matrix [rows, count] of any strides to rows of neighbours or columns of neighbours."""
        if out_step == 1 and (x_step == 1 or x_row != 1 or rows < n8):
            for i in range(rows):
                copy_run(out + size * i * out_row, x + given_size * i * x_row, x_step, count)
        elif out_row == 1 and (x_row == 1 or x_step != 1 or count < n8):
            for j in range(count):
                copy_run(out + size * j * out_step, x + given_size * j * x_step, x_row, rows)
        elif turns and out_step == 1 and rows >= n8 and count >= n8:  # x along its rows, out along its columns
            whole = rows // n8 * n8
            for j in range(0, count, n8):
                start = min(j, count - n8)
                turn(out + size * start, x + size * start * x_step, x_step, out_row, whole)
            for i in range(whole, rows):
                copy_run(out + size * i * out_row, x + given_size * i * x_row, x_step, count)
        elif turns and out_row == 1 and rows >= n8 and count >= n8:
            whole = count // n8 * n8
            for i in range(0, rows, n8):
                start = min(i, rows - n8)
                turn(out + size * start, x + size * start * x_row, x_row, out_step, whole)
            for j in range(whole, count):
                copy_run(out + size * j * out_step, x + given_size * j * x_step, x_row, rows)
        elif out_step == 1:
            for i in range(rows):
                copy_run(out + size * i * out_row, x + given_size * i * x_row, x_step, count)
        else:
            for j in range(count):
                copy_run(out + size * j * out_step, x + given_size * j * x_step, x_row, rows)

    @native("void(ptr, ptr, ptr, ptr, ptr)", name=f"inside_{source}_{kind}")
    def fill_inside(at, box, valid, slab, x):
        """Images side by side; x: the first position of the first image of the box."""
        images, count = box.i64[N1] - box.i64[N0], valid.i64[5] - valid.i64[4]
        group = images if at.i64[X_N] == 1 else i64(n8)  # else a few, whose rows are read one after the other
        for c in range(box.i64[C1] - box.i64[C0]):
            for d in range(valid.i64[0], valid.i64[1]):
                n: i64 = 0
                while n < images:
                    for h in range(valid.i64[2], valid.i64[3]):
                        to = c * box.i64[S_C] + d * box.i64[S_D] + h * box.i64[S_H] + valid.i64[4] * box.i64[S_W] + n
                        here = c * at.i64[X_C] + n * at.i64[X_N] + d * at.i64[X_D] + h * at.i64[X_H] + valid.i64[4] * at.i64[X_W]
                        rows = min(group, images - n)
                        copy_block(slab + size * to, x + given_size * here, rows, count, at.i64[X_N], at.i64[X_W], i64(1), box.i64[S_W])
                    n += group

    @native("void(ptr, ptr, ptr, ptr, ptr)", name=f"wide_{source}_{kind}")
    def fill_wide(at, box, valid, slab, x):
        """Positions side by side, those of one rest by the stride together."""
        step, images, channels = at.i64[STEP_W], box.i64[N1] - box.i64[N0], box.i64[C1] - box.i64[C0]
        apart = step * at.i64[X_W]
        each = channels if at.i64[X_C] == 1 and apart != 1 else i64(1)  # channels lie side by side: all of them at once
        for p in range(min(step, box.i64[LEN_W])):
            first = max((valid.i64[4] - p + step - 1) // step, i64(0))
            count = max((valid.i64[5] - p + step - 1) // step, first) - first
            high, run = valid.i64[3] - valid.i64[2], count
            if apart == 1 and at.i64[X_H] == count and box.i64[S_H] == count:  # rows that follow each other in both
                run, high = count * high, i64(1)
            c: i64 = 0
            while c < channels:
                for n in range(images):
                    for d in range(valid.i64[0], valid.i64[1]):
                        to = c * box.i64[S_C] + n * box.i64[S_N] + d * box.i64[S_D] + valid.i64[2] * box.i64[S_H] + p * box.i64[PHASE] + first
                        here = (c * at.i64[X_C] + n * at.i64[X_N] + d * at.i64[X_D] + valid.i64[2] * at.i64[X_H]
                                + (p + first * step) * at.i64[X_W])  # fmt: skip
                        for h in range(high):
                            there, source_ = slab + size * (to + h * box.i64[S_H]), x + given_size * (here + h * at.i64[X_H])
                            if each == 1:
                                copy_run(there, source_, apart, run)
                            else:
                                copy_block(there, source_, each, run, i64(1), apart, box.i64[S_C], i64(1))
                c += each

    @native("void(ptr, ptr, ptr, ptr)", name=f"slab_{source}_{kind}")
    def fill_slab(at, box, slab, x):
        """The box of the image that the part needs, zeros around it."""
        valid = stack(64)  # first and one past the last position inside the image, of each dim
        starts = stack(64)
        starts.i64[0] = box.i64[D0] * at.i64[STEP_D] + box.i64[TD0] * at.i64[GAP_D] - at.i64[LO_D]
        starts.i64[1] = box.i64[H0] * at.i64[STEP_H] + box.i64[TH0] * at.i64[GAP_H] - at.i64[LO_H]
        starts.i64[2] = box.i64[W0] * at.i64[STEP_W] + box.i64[TW0] * at.i64[GAP_W] - at.i64[LO_W]
        whole: i64 = 1
        for i in range(3):
            length = box.i64[LEN_D + i]
            valid.i64[2 * i] = min(max(-starts.i64[i], i64(0)), length)
            valid.i64[2 * i + 1] = max(min(length, at.i64[IN_D + i] - starts.i64[i]), valid.i64[2 * i])
            if valid.i64[2 * i + 1] - valid.i64[2 * i] < length:
                whole = 0
        if whole == 0:
            memset(slab, 0, size * box.i64[S_C] * (box.i64[C1] - box.i64[C0]))
        place = box.i64[N0] * at.i64[X_N] + box.i64[GROUP] * at.i64[X_G] + box.i64[C0] * at.i64[X_C]
        place += starts.i64[0] * at.i64[X_D] + starts.i64[1] * at.i64[X_H] + starts.i64[2] * at.i64[X_W]
        if at.i64[IMAGES_INSIDE] != 0:
            fill_inside(at, box, valid, slab, x + given_size * place)
        else:
            fill_wide(at, box, valid, slab, x + given_size * place)

    return fill_slab


def _fetch(source: str, real: Type) -> tuple[Type, NativeFunction]:
    """(type in memory, function that reads element i as a `real`)."""
    if source in ("f16", "bf16") and real is f32:
        widen = from_half if source == "f16" else from_brain

        @native("f32(ptr, i64)", name=f"fetch_{source}", inline=True)
        def fetch(x, i):
            return widen(x.u16[i])

        return u16, fetch

    @native(f"{real}(ptr, i64)", name=f"fetch_{real}", inline=True)  # type: ignore[no-redef]
    def fetch(x, i):
        return load(real, x, i)

    return real, fetch


# ***** panels of the weights *****


def _make_weights(kind: str, source: str, real: Type, tile: RegisterTile) -> NativeFunction:
    given, fetch = _fetch(source, real)
    plain, size, given_size = source == kind, real.itemsize, given.itemsize
    turned = make_turned(kind, real, tile)
    turns = plain and kind in ("f32", "f64")

    @native("void(ptr, ptr, i64, i64, i64, i64, i64)", name=f"weights_run_{source}_{kind}")
    def pack_run(out, w, width, rows, w_o, step, count):
        """`count` steps, `step` apart, of a panel that is `width` wide and has `rows` rows."""
        if turns and step == 1 and rows == width:
            turned(out, w, width, w_o, count)
        elif plain and w_o == 1 and rows == width:
            for k in range(count):
                memcpy(out + size * k * width, w + size * k * step, size * width)
        else:
            for k in range(count):
                for i in range(rows):
                    store(real, out, k * width + i, fetch(w, i * w_o + k * step))
                for i in range(rows, width):
                    store(real, out, k * width + i, real(0))

    @native("void(ptr, ptr, ptr, ptr, i64)", name=f"weights_{source}_{kind}")
    def pack_weights(at, box, out, w, width):
        """Panels [steps][width] of the output channels of the box."""
        channels, deep = box.i64[C1] - box.i64[C0], box.i64[TD1] - box.i64[TD0]
        high, wide = box.i64[TH1] - box.i64[TH0], box.i64[TW1] - box.i64[TW0]
        w = w + given_size * (
            at.i64[W_BASE] + box.i64[GROUP] * at.i64[W_G] + box.i64[C0] * at.i64[W_C]
            + box.i64[TD0] * at.i64[W_D] + box.i64[TH0] * at.i64[W_H] + box.i64[TW0] * at.i64[W_W]
        )  # fmt: skip
        run, step = wide, at.i64[W_W]
        if run == 1:
            step = at.i64[W_H]
        if at.i64[W_H] == run * step or run == 1 or high == 1:  # what lies evenly is one run
            run, high = run * high, i64(1)
            if run == 1:
                step = at.i64[W_D]
            if at.i64[W_D] == run * step or run == 1 or deep == 1:
                run, deep = run * deep, i64(1)
                if run == 1:
                    step = at.i64[W_C]
                if at.i64[W_C] == run * step or run == 1 or channels == 1:
                    run, channels = run * channels, i64(1)
        i = box.i64[O0]
        while i < box.i64[O1]:
            rows = min(width, box.i64[O1] - i)
            for c in range(channels):
                for d in range(deep):
                    for h in range(high):
                        part = w + given_size * (i * at.i64[W_O] + c * at.i64[W_C] + d * at.i64[W_D] + h * at.i64[W_H])
                        pack_run(out, part, width, rows, at.i64[W_O], step, run)
                        out = out + size * width * run
            i += width

    return pack_weights


# ***** the result *****


def _make_writer(kind: str, target: str, real: Type) -> NativeFunction:
    narrow = target in ("f16", "bf16")
    kept = u16 if narrow else real
    rounded = half_bits if target == "f16" else bfloat_bits
    out_size, size = kept.itemsize, real.itemsize

    @native("void(ptr, i64, real, i64, ptr, i64)".replace("real", real.name), name=f"put_{kind}_{target}")
    def put_run(y, step, bias, count, acc, apart):
        """`count` elements that lie `apart`, with the bias of their channel."""
        if step == 1 and apart == 1:
            for i in range(count):
                if narrow:
                    y.u16[i] = rounded(acc.f32[i] + bias)
                else:
                    store(real, y, i, load(real, acc, i) + bias)
        else:
            for i in range(count):
                if narrow:
                    y.u16[i * step] = rounded(acc.f32[i * apart] + bias)
                else:
                    store(real, y, i * step, load(real, acc, i * apart) + bias)

    @native("void(ptr, i64, ptr, i64, i64, ptr)", name=f"channels_{kind}_{target}")
    def put_channels(y, step, bias, bias_step, count, acc):
        """The channels of one place."""
        if bias is None:
            put_run(y, step, real(-0.0), count, acc, i64(1))
        else:
            for i in range(count):
                if narrow:
                    y.u16[i * step] = rounded(acc.f32[i] + load_bias(bias, i * bias_step))
                else:
                    store(real, y, i * step, load(real, acc, i) + load_bias(bias, i * bias_step))

    _, load_bias = _fetch(target, real)

    @native("void(ptr, ptr, ptr, ptr, ptr, i64, i64)", name=f"write_{kind}_{target}")
    def write(at, box, y, bias, acc, acc_o, acc_place):
        """The block of sums `acc`, strided by output channel and by place, into the result."""
        size_o = box.i64[O1] - box.i64[O0]
        y = y + out_size * (at.i64[Y_BASE] + box.i64[CHUNK_NO] * at.i64[Y_CHUNK] + box.i64[GROUP] * at.i64[Y_G] + box.i64[O0] * at.i64[Y_O])
        if bias is not None:
            bias = bias + out_size * (box.i64[GROUP] * at.i64[BIAS_G] + box.i64[O0] * at.i64[BIAS_O])
        inside = at.i64[IMAGES_INSIDE] != 0
        images, deep = box.i64[N1] - box.i64[N0], box.i64[D1] - box.i64[D0]
        high, wide = box.i64[H1] - box.i64[H0], box.i64[W1] - box.i64[W0]
        run, step = wide, at.i64[Y_W]
        if inside:
            run, step = images, at.i64[Y_N]
        elif at.i64[Y_H] == wide * step:  # rows that follow each other
            run, high = wide * high, i64(1)
        outer = i64(1) if inside else images
        inner = wide if inside else i64(1)
        by_channel = acc_place == 1 or at.i64[Y_O] != 1
        for n in range(outer):
            for d in range(deep):
                for h in range(high):
                    for w in range(inner):
                        place = ((n * deep + d) * high + h) * inner + w
                        from_ = acc + size * place * run * acc_place
                        to = y + out_size * ((box.i64[N0] + n) * at.i64[Y_N] + (box.i64[D0] + d) * at.i64[Y_D]
                                             + (box.i64[H0] + h) * at.i64[Y_H] + (box.i64[W0] + w) * at.i64[Y_W])  # fmt: skip
                        if by_channel:
                            for o in range(size_o):
                                b = real(-0.0)  # the number that changes nothing, not even the sign of a zero
                                if bias is not None:
                                    b = load_bias(bias, o * at.i64[BIAS_O])
                                put_run(to + out_size * o * at.i64[Y_O], step, b, run, from_ + size * o * acc_o, acc_place)
                        else:
                            for i in range(run):
                                put_channels(to + out_size * i * step, at.i64[Y_O], bias, at.i64[BIAS_O], size_o, from_ + size * i * acc_place)

    return write


# ***** a piece *****


def make_conv(kind: str, source: str, target: str, tiles: tuple[RegisterTile, ...], gathers: dict[int, PanelGather]) -> NativeFunction:
    """The kernel `i32 (ptr bufs, ptr ints, i64 piece)`; bufs are the result, x, w and, where the words have a stride for it, the bias.

    `kind` is that of the tiles and sums, `source` that of x and w, `target` that of the result and the bias.
    """
    real = f64 if kind == "f64" else f32
    held = real if kind != "bf16" else u16
    size, cell = held.itemsize, real.itemsize
    fill_slab, pack_weights = _make_slab(kind, source, held, tiles[0]), _make_weights(kind, source, held, tiles[0])
    write, lanes = _make_writer(kind, target, real), tiles[0].lanes
    steps_in_cell = cell // size
    wide, high, low = tiles[0].columns, tiles[0].rows, tiles[-1].rows
    tile_high, tile_low = (extern(t.symbol, "void(ptr, ptr, ptr, i64, i64, i64)") for t in (tiles[0], tiles[-1]))
    gather_wide, gather_high, gather_low = (extern(gathers[n].symbol, "void(ptr, ptr, ptr, i64, ptr, i64)") for n in (wide, high, low))

    @native("void(ptr, ptr, ptr, ptr, ptr, ptr, ptr, i64)", name=f"multiply_{kind}_{source}")
    def multiply(at, box, slab, offsets, panel, weights, acc, add):
        """All tiles of the box for one part of the steps."""
        form = at.i64[FORM]
        channels = form < 2
        rows = i64(high if form % 2 == 0 else low)
        width = i64(wide) if channels else rows  # of panels of windows
        other = rows if channels else i64(wide)
        moves = stack(16 * 128)
        steps = box.i64[STEPS]
        count = (steps + steps_in_cell - 1) // steps_in_cell
        outs = box.i64[O1] - box.i64[O0]
        across = (box.i64[COLUMNS] + width - 1) // width * width if channels else (outs + other - 1) // other * other
        j: i64 = 0
        while j < box.i64[COLUMNS]:
            n = list_moves(at, box, moves, j, width, i64(lanes), i64(size), i64(cell))
            if channels:
                gather_wide(panel, slab, offsets, steps, moves, n)
            elif form == 2:
                gather_high(panel, slab, offsets, steps, moves, n)
            else:
                gather_low(panel, slab, offsets, steps, moves, n)
            i: i64 = 0
            while i < outs:
                part = weights + cell * i * count
                if form == 0:
                    tile_high(part, panel, acc + cell * (i * across + j), across, count, add)
                elif form == 1:
                    tile_low(part, panel, acc + cell * (i * across + j), across, count, add)
                elif form == 2:
                    tile_high(panel, part, acc + cell * (j * across + i), across, count, add)
                else:
                    tile_low(panel, part, acc + cell * (j * across + i), across, count, add)
                i += other
            j += width

    @native("i32(ptr, ptr, i64)", name=f"rl_conv_{kind}_{source}_{target}")
    def conv(bufs, ints, piece):
        at = ints + 64
        while piece >= at.i64[PIECES]:
            piece -= at.i64[PIECES]
            at = at + 8 * WORDS
        box = stack(BOX_BYTES)
        find_box(at, box, piece)
        channels = at.i64[FORM] < 2
        rows = i64(high if at.i64[FORM] % 2 == 0 else low)
        width = i64(wide) if channels else rows
        other = rows if channels else i64(wide)
        outs = (box.i64[O1] - box.i64[O0] + other - 1) // other * other
        places = (box.i64[COLUMNS] + width - 1) // width * width
        first = box.i64[CHUNK_NO] * at.i64[CHUNK]
        parts = at.i64[PARTS_C] * at.i64[PARTS_D] * at.i64[PARTS_H] * at.i64[PARTS_W]
        last = min(first + at.i64[CHUNK], parts)
        find_part(at, box, i64(0))  # no part is larger than the first
        lay_slab(at, box)
        most = (box.i64[STEPS] + 2) * size
        slab_bytes = (size * box.i64[S_C] * (box.i64[C1] - box.i64[C0]) + SLACK) // 64 * 64 + 64
        panel_bytes, weight_bytes = (most * width + SLACK) // 64 * 64 + 64, (most * outs) // 64 * 64 + 64
        acc_bytes, table_bytes = (cell * outs * places) // 64 * 64 + 64, (8 * box.i64[STEPS]) // 64 * 64 + 64
        slot = take_room(slab_bytes + panel_bytes + weight_bytes + acc_bytes + table_bytes)
        if slot < 0:
            return rl_fail(bufs, piece, 4, 0, 0, 0)
        acc = SCRATCH.ptr[3 * slot + 1]
        panel = acc + acc_bytes
        weights = panel + panel_bytes
        offsets = weights + weight_bytes
        slab = offsets + table_bytes
        if first >= last:
            memset(acc, 0, acc_bytes)
        for part in range(first, last):
            find_part(at, box, part)
            lay_slab(at, box)
            fill_slab(at, box, slab, bufs.ptr[1])
            list_steps(at, box, offsets, i64(size))
            pack_weights(at, box, weights, bufs.ptr[2], other)
            multiply(at, box, slab, offsets, panel, weights, acc, i64(part > first))
        bias: ptr = None
        if at.i64[BIAS_O] >= 0:
            bias = bufs.ptr[3]
        across = places if channels else outs
        write(at, box, bufs.ptr[0], bias, acc, across if channels else i64(1), i64(1) if channels else across)
        give_room(slot)
        return 0

    return conv


def make_sum_chunks(kind: str) -> NativeFunction:
    """Adds up what chunks of the steps have given, [chunks, G, O, D, H, W, N], into the result; a piece is one output channel."""
    real = f64 if kind == "f64" else f32
    size = real.itemsize

    @native("i32(ptr, ptr, i64)", name=f"rl_conv_sum_{kind}")
    def sum_chunks(bufs, ints, piece):
        at = ints + 64
        group, channel = piece // at.i64[O], piece % at.i64[O]
        area = at.i64[D] * at.i64[H] * at.i64[WIDE]
        step = at.i64[G] * at.i64[O] * area * at.i64[N]
        x = bufs.ptr[1] + size * piece * area * at.i64[N]
        y = bufs.ptr[0] + size * (at.i64[Y_BASE] + group * at.i64[Y_G] + channel * at.i64[Y_O])
        total = stack(8 * 512)
        for place in range(area):
            w = place % at.i64[WIDE]
            rest = place // at.i64[WIDE]
            to = y + size * (rest // at.i64[H] * at.i64[Y_D] + rest % at.i64[H] * at.i64[Y_H] + w * at.i64[Y_W])
            for first in range(0, at.i64[N], 512):
                count = min(i64(512), at.i64[N] - first)
                here = x + size * (place * at.i64[N] + first)
                memcpy(total, here, size * count)
                for chunk in range(1, at.i64[CHUNKS]):
                    there = here + size * chunk * step
                    for i in range(count):
                        store(real, total, i, load(real, total, i) + load(real, there, i))
                for i in range(count):
                    store(real, to, (first + i) * at.i64[Y_N], load(real, total, i))
        return 0

    return sum_chunks
