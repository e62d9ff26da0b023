"""Packing of a convolution's operands, in the native language: a box of the image into a slab, weights into panels.

Elements are of dtype `source` (f32, f64, f16, bf16) in memory and of a tile's `kind` when packed; where those differ,
they are widened.
"""

from __future__ import annotations

from rushlight._backends.cpu.conv.conv_descriptor import BOX, W, filled_channels
from rushlight._backends.cpu.gemm.pack_native import make_pack
from rushlight._backends.cpu.microkernels.panel_gather import Spaced
from rushlight._backends.cpu.microkernels.panels import Panels
from rushlight._backends.cpu.microkernels.register_tile import RegisterTile
from rushlight._native import (
    Type,
    bitcast,
    extern,
    f32,
    f64,
    i64,
    load,
    memcpy,
    memset,
    native,
    prefetch,
    select,
    stack,
    store,
    u16,
    u32,
)
from rushlight._native.function import NativeFunction

__all__ = ["fetch_of", "held_type", "make_block", "make_run", "make_scattered", "make_slab", "make_weights"]


@native("f32(u16)", inline=True)
def from_half(h):
    """Convert a float16 to float32; a multiplication moves the exponent, which handles subnormals too."""
    wide = u32(h)
    magnitude = bitcast(u32, bitcast(f32, (wide & 0x7FFF) << 13) * f32(2.0**112))
    magnitude = select((wide & 0x7C00) == 0x7C00, magnitude | 0x7F800000, magnitude)
    return bitcast(f32, magnitude | ((wide & 0x8000) << 16))


@native("f32(u16)", inline=True)
def from_brain(h):
    """Convert a bfloat16 to float32."""
    return bitcast(f32, u32(h) << 16)


# ***** the slab *****


def held_type(kind: str) -> Type:
    """The type of an element in a slab or panel for a tile of `kind`."""
    return {"f64": f64, "bf16": u16}.get(kind, f32)


def fetch_of(source: str, kind: str) -> tuple[Type, NativeFunction]:
    """(type in memory, function that reads element i as the packed type of `kind`)."""
    real = held_type(kind)
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


# ***** the slab *****


RUN = "void(ptr, ptr, i64, i64)"
SCATTER = "void(ptr, ptr, i64, i64, i64, i64, i64, i64)"


def make_run(kind: str, source: str) -> NativeFunction:
    """`RUN`: a row of the image made contiguous.  A loop for the vectoriser, compiled apart from its callers."""
    (memory, fetch), real = fetch_of(source, kind), held_type(kind)
    plain, size = memory is real, real.itemsize
    every_second = extern(f"rl_every_second_{size}", "void(ptr, ptr, i64)")

    @native("void(ptr, ptr, i64, i64)", name=f"run_{source}_{kind}")
    def copy_run(out, x, step, count):
        """Copy `count` elements, `step` apart, to contiguous ones."""
        if plain and step == 1:
            memcpy(out, x, size * count)
        elif step == 1:
            for i in range(count):
                store(real, out, i, fetch(x, i))
        elif plain and step == 2:
            every_second(out, x, count)
        else:
            for i in range(count):
                store(real, out, i, fetch(x, step * i))

    return copy_run


def make_block(kind: str, source: str, panels: Panels) -> NativeFunction:
    """`void(out, x, rows, count, x_row, x_step, out_row, out_step)`: copies a matrix to another layout."""
    memory, real = fetch_of(source, kind)[0], held_type(kind)
    size, given_size, n8 = real.itemsize, memory.itemsize, panels.n
    transposes = memory is real
    copy_run, transpose = (
        extern(f"run_{source}_{kind}", RUN),
        extern(panels.transpose_symbol, "void(ptr, ptr, i64, i64, i64)"),
    )

    @native("void(ptr, ptr, i64, i64, i64, i64)", name=f"transposed_{source}_{kind}")
    def copy_transposed(out, x, rows, count, x_row, out_step):
        """Copy a row-major matrix to columns, by transposed squares; the last square may overlap the one before."""
        whole = count // n8 * n8
        i: i64 = 0
        while i < rows:
            start = min(i, rows - n8)
            transpose(out + size * start, x + size * start * x_row, x_row, out_step, whole)
            i += n8
        for j in range(whole, count):
            copy_run(out + size * j * out_step, x + size * j, x_row, rows)

    @native("void(ptr, ptr, i64, i64, i64, i64, i64, i64)", name=f"block_{source}_{kind}")
    def copy_block(out, x, rows, count, x_row, x_step, out_row, out_step):
        """Copy a matrix [rows, count] of any strides to contiguous rows or contiguous columns."""
        many = transposes and rows >= n8 and count >= n8
        if many and out_row == 1 and x_step == 1 and x_row != 1:
            copy_transposed(out, x, rows, count, x_row, out_step)
        elif many and out_step == 1 and x_row == 1 and x_step != 1:
            copy_transposed(out, x, count, rows, x_step, out_row)
        elif out_step == 1:
            for i in range(rows):
                copy_run(out + size * i * out_row, x + given_size * i * x_row, x_step, count)
        else:
            for j in range(count):
                copy_run(out + size * j * out_step, x + given_size * j * x_step, x_row, rows)

    return copy_block


@native("void(ptr, i64, i64, i64)")
def ask_for(x, rows, row_bytes, nbytes):
    """Prefetch the first bytes of the rows that the next iteration reads: too short for the hardware prefetcher, too
    many to wait for."""
    if nbytes <= 2048:
        for i in range(rows):
            for descfset in range(0, nbytes, 64):
                prefetch(x + i * row_bytes + descfset)


def _make_inside(kind: str, source: str, panels: Panels) -> NativeFunction:
    size, given_size, n8 = held_type(kind).itemsize, fetch_of(source, kind)[0].itemsize, panels.n
    copy_block = make_block(kind, source, panels)

    @native("void(ptr, ptr, ptr, ptr, ptr)", name=f"inside_{source}_{kind}")
    def fill_inside(desc, box, valid, slab, x):
        """Fill a slab of contiguous images; x: the first position of the first image of the box."""
        images, count, inside = (
            box.i64[BOX.n1] - box.i64[BOX.n0],
            valid.i64[5] - valid.i64[4],
            desc.i64[W.images_inside],
        )
        block = inside if inside > 1 else images
        group = block if desc.i64[W.x_n] == 1 else i64(n8)  # else a few, whose rows are read in turn
        for c in range(box.i64[BOX.c1] - box.i64[BOX.c0]):
            for d in range(valid.i64[0], valid.i64[1]):
                n: i64 = 0
                while n < images:
                    to_n = n // block * box.i64[BOX.s_n] + n % block
                    rows = min(min(group, block - n % block), images - n)
                    if desc.i64[W.x_w] == 1 and n + rows < images:
                        ahead = (
                            c * desc.i64[W.x_c]
                            + (n + rows) * desc.i64[W.x_n]
                            + d * desc.i64[W.x_d]
                            + valid.i64[2] * desc.i64[W.x_h]
                            + valid.i64[4]
                        )
                        span = (valid.i64[3] - valid.i64[2] - 1) * desc.i64[W.x_h] + count
                        ask_for(
                            x + given_size * ahead,
                            min(rows, images - n - rows),
                            given_size * desc.i64[W.x_n],
                            given_size * span,
                        )
                    for h in range(valid.i64[2], valid.i64[3]):
                        to = (
                            c * box.i64[BOX.s_c]
                            + d * box.i64[BOX.s_d]
                            + h * box.i64[BOX.s_h]
                            + valid.i64[4] * box.i64[BOX.s_w]
                            + to_n
                        )
                        here = (
                            c * desc.i64[W.x_c]
                            + n * desc.i64[W.x_n]
                            + d * desc.i64[W.x_d]
                            + h * desc.i64[W.x_h]
                            + valid.i64[4] * desc.i64[W.x_w]
                        )
                        copy_block(
                            slab + size * to,
                            x + given_size * here,
                            rows,
                            count,
                            desc.i64[W.x_n],
                            desc.i64[W.x_w],
                            i64(1),
                            box.i64[BOX.s_w],
                        )
                    n += rows

    return fill_inside


def _make_wide(kind: str, source: str, panels: Panels) -> NativeFunction:
    size, given_size = held_type(kind).itemsize, fetch_of(source, kind)[0].itemsize
    copy_run, copy_block = extern(f"run_{source}_{kind}", RUN), make_block(kind, source, panels)

    @native("void(ptr, ptr, ptr, ptr, ptr)", name=f"wide_{source}_{kind}")
    def fill_wide(desc, box, valid, slab, x):
        """Fill a slab of contiguous positions, sorted by remainder modulo the stride; x: the first position of the
        first image of the box."""
        step, images, channels = (
            desc.i64[W.step_w],
            box.i64[BOX.n1] - box.i64[BOX.n0],
            box.i64[BOX.c1] - box.i64[BOX.c0],
        )
        apart = step * desc.i64[W.x_w]
        each = channels if desc.i64[W.x_c] == 1 and apart != 1 else i64(1)  # contiguous channels: all at once
        for p in range(min(step, box.i64[BOX.len_w])):
            first = max((valid.i64[4] - p + step - 1) // step, i64(0))
            count = max((valid.i64[5] - p + step - 1) // step, first) - first
            high, run = valid.i64[3] - valid.i64[2], count
            if apart == 1 and desc.i64[W.x_h] == count and box.i64[BOX.s_h] == count:  # rows are consecutive in both
                run, high = count * high, i64(1)
            c: i64 = 0
            while c < channels:
                for n in range(images):
                    for d in range(valid.i64[0], valid.i64[1]):
                        to = (
                            c * box.i64[BOX.s_c]
                            + n * box.i64[BOX.s_n]
                            + d * box.i64[BOX.s_d]
                            + valid.i64[2] * box.i64[BOX.s_h]
                        )
                        to = to + p * box.i64[BOX.phase] + first
                        here = (
                            c * desc.i64[W.x_c]
                            + n * desc.i64[W.x_n]
                            + d * desc.i64[W.x_d]
                            + valid.i64[2] * desc.i64[W.x_h]
                            + (p + first * step) * desc.i64[W.x_w]
                        )
                        for h in range(high):
                            there, from_ = (
                                slab + size * (to + h * box.i64[BOX.s_h]),
                                x + given_size * (here + h * desc.i64[W.x_h]),
                            )
                            if each == 1:
                                copy_run(there, from_, apart, run)
                            else:
                                copy_block(there, from_, each, run, i64(1), apart, box.i64[BOX.s_c], i64(1))
                c += each

    return fill_wide


def _make_channels(kind: str, source: str, spaced: dict[int, Spaced]) -> NativeFunction:
    real = held_type(kind)
    size, given_size = real.itemsize, fetch_of(source, kind)[0].itemsize
    copy_run = extern(f"run_{source}_{kind}", RUN)
    fills = bool(spaced)
    of_one, of_three = (
        extern(spaced[channels_in].symbol, "void(ptr, ptr, i64)") if fills else copy_run for channels_in in (1, 3)
    )

    @native("void(ptr, ptr, ptr, i64, i64, i64, i64)", name=f"positions_{source}_{kind}")
    def fill_positions(desc, there, here, count, channels, filled, position_bytes):
        """Copy the channels of `count` positions, padded with zeros to `filled`."""
        near = desc.i64[W.x_w] == channels and desc.i64[W.x_c] == 1
        if near and position_bytes == size * channels:  # positions are consecutive in both
            copy_run(there, here, i64(1), count * channels)
        elif fills and near and channels == 1 and position_bytes == 4:
            of_one(there, here, count)
        elif fills and near and channels == 3 and position_bytes == 8:
            of_three(there, here, count)
        else:
            for _ in range(count):
                copy_run(there, here, desc.i64[W.x_c], channels)
                for c in range(channels, filled):
                    store(real, there, c, real(0))
                here, there = here + given_size * desc.i64[W.x_w], there + position_bytes

    @native("void(ptr, ptr, ptr, ptr, ptr)", name=f"channels_{source}_{kind}")
    def fill_channels(desc, box, valid, slab, x):
        """Fill a slab of contiguous channels, with zeros around the image and in incomplete words; x: the first
        position of the first image of the box."""
        channels, images = box.i64[BOX.c1] - box.i64[BOX.c0], box.i64[BOX.n1] - box.i64[BOX.n0]
        position_bytes, wide, row = size * box.i64[BOX.s_w], box.i64[BOX.len_w], size * box.i64[BOX.s_h]
        first, last = valid.i64[4], valid.i64[5]
        filled = filled_channels(desc, channels)
        for n in range(images):
            for d in range(box.i64[BOX.len_d]):
                for h in range(box.i64[BOX.len_h]):
                    there = slab + size * (n * box.i64[BOX.s_n] + d * box.i64[BOX.s_d]) + h * row
                    if d < valid.i64[0] or d >= valid.i64[1] or h < valid.i64[2] or h >= valid.i64[3] or first >= last:
                        memset(there, 0, row)
                    else:
                        here = x + given_size * (
                            n * desc.i64[W.x_n] + d * desc.i64[W.x_d] + h * desc.i64[W.x_h] + first * desc.i64[W.x_w]
                        )
                        memset(there, 0, first * position_bytes)
                        memset(there + last * position_bytes, 0, (wide - last) * position_bytes)
                        fill_positions(
                            desc, there + first * position_bytes, here, last - first, channels, filled, position_bytes
                        )

    return fill_channels


def make_slab(kind: str, source: str, panels: Panels, spaced: dict[int, Spaced]) -> NativeFunction:
    """`void(desc, box, slab, x)`: fills the slab.  `panels` transpose squares of packed elements, `spaced` pad
    positions of so many channels."""
    size, given_size = held_type(kind).itemsize, fetch_of(source, kind)[0].itemsize
    fill_inside, fill_wide, fill_channels = (
        _make_inside(kind, source, panels),
        _make_wide(kind, source, panels),
        _make_channels(kind, source, spaced),
    )

    @native("void(ptr, ptr, ptr, ptr)", name=f"slab_{source}_{kind}")
    def fill_slab(desc, box, slab, x):
        """Fill the slab with the box of the image that the part needs, and zeros around it."""
        valid = stack(64)  # first and one past the last position inside the image, of each dim
        starts = stack(64)
        starts.i64[0] = box.i64[BOX.d0] * desc.i64[W.step_d] + box.i64[BOX.td0] * desc.i64[W.gap_d] - desc.i64[W.lo_d]
        starts.i64[1] = box.i64[BOX.h0] * desc.i64[W.step_h] + box.i64[BOX.th0] * desc.i64[W.gap_h] - desc.i64[W.lo_h]
        starts.i64[2] = box.i64[BOX.w0] * desc.i64[W.step_w] + box.i64[BOX.tw0] * desc.i64[W.gap_w] - desc.i64[W.lo_w]
        whole: i64 = 1
        for i in range(3):
            length = box.i64[BOX.len_d + i]
            valid.i64[2 * i] = min(max(-starts.i64[i], i64(0)), length)
            valid.i64[2 * i + 1] = max(min(length, desc.i64[W.in_d + i] - starts.i64[i]), valid.i64[2 * i])
            if valid.i64[2 * i + 1] - valid.i64[2 * i] < length:
                whole = 0
        if whole == 0 and desc.i64[W.channels_inside] == 0:
            memset(slab, 0, size * box.i64[BOX.s_c] * (box.i64[BOX.c1] - box.i64[BOX.c0]))
        offset = (
            box.i64[BOX.n0] * desc.i64[W.x_n] + box.i64[BOX.group] * desc.i64[W.x_g] + box.i64[BOX.c0] * desc.i64[W.x_c]
        )
        offset += starts.i64[0] * desc.i64[W.x_d] + starts.i64[1] * desc.i64[W.x_h] + starts.i64[2] * desc.i64[W.x_w]
        if desc.i64[W.channels_inside] != 0:
            fill_channels(desc, box, valid, slab, x + given_size * offset)
        elif desc.i64[W.images_inside] != 0:
            fill_inside(desc, box, valid, slab, x + given_size * offset)
        else:
            fill_wide(desc, box, valid, slab, x + given_size * offset)

    return fill_slab


# ***** panels of the weights *****


def make_scattered(kind: str, source: str, group: int) -> NativeFunction:
    """`SCATTER`: fills steps of a panel element by element; compiled apart."""
    fetch, real = fetch_of(source, kind)[1], held_type(kind)

    @native(SCATTER, name=f"scattered_{source}_{kind}")
    def scattered(out, w, width, rows, first, count, w_o, step):
        """Fill the steps of a panel from `first` on; `out` holds zeros."""
        for k in range(count):
            to = (first + k) // group * group * width + (first + k) % group
            for i in range(rows):
                store(real, out, to + i * group, fetch(w, i * w_o + k * step))

    return scattered


def make_weights(kind: str, source: str, tile: RegisterTile, width: int) -> NativeFunction:
    """`void(desc, box, out, w)`: packs the box's output channels as panels of `width`, [words of steps][width][steps in
    a word]."""
    memory, real = fetch_of(source, kind)[0], held_type(kind)
    plain, size, given_size, group = memory is real, real.itemsize, memory.itemsize, tile.group
    pack, scattered = make_pack(tile.panels, width), extern(f"scattered_{source}_{kind}", SCATTER)
    cell = size * group

    @native("void(ptr, ptr, ptr, ptr)", name=f"weights_{source}_{kind}_{width}")
    def pack_weights(desc, box, out, w):
        channels, deep = box.i64[BOX.c1] - box.i64[BOX.c0], box.i64[BOX.td1] - box.i64[BOX.td0]
        high, wide = box.i64[BOX.th1] - box.i64[BOX.th0], box.i64[BOX.tw1] - box.i64[BOX.tw0]
        words = (box.i64[BOX.steps] + group - 1) // group
        word = max(desc.i64[W.channels_inside], i64(1))
        td, th, tw = box.i64[BOX.td0], box.i64[BOX.th0], box.i64[BOX.tw0]
        if desc.i64[W.flip] != 0:
            td, th, tw = (
                desc.i64[W.k_d] - box.i64[BOX.td1],
                desc.i64[W.k_h] - box.i64[BOX.th1],
                desc.i64[W.k_w] - box.i64[BOX.tw1],
            )
        w = w + given_size * (
            desc.i64[W.w_base]
            + box.i64[BOX.group] * desc.i64[W.w_g]
            + box.i64[BOX.c0] * desc.i64[W.w_c]
            + td * desc.i64[W.w_d]
            + th * desc.i64[W.w_h]
            + tw * desc.i64[W.w_w]
        )
        # Steps as four loops, the innermost a contiguous run; loops with even strides join it.
        n0, n1, n2, run = channels, deep, high, wide
        s0, s1, s2, step = desc.i64[W.w_c], desc.i64[W.w_d], desc.i64[W.w_h], desc.i64[W.w_w]
        if desc.i64[W.taps_first] != 0:
            n0, n1, n2, run = deep, high, wide, channels
            s0, s1, s2, step = desc.i64[W.w_d], desc.i64[W.w_h], desc.i64[W.w_w], desc.i64[W.w_c]
        if run == 1:
            step = s2 if n2 > 1 else s1 if n1 > 1 else s0
        if run % word == 0 and (n2 == 1 or run == 1 or s2 == run * step):
            run, n2 = run * n2, i64(1)
            if n1 == 1 or run == 1 or s1 == run * step:
                run, n1 = run * n1, i64(1)
                if n0 == 1 or run == 1 or s0 == run * step:
                    run, n0 = run * n0, i64(1)
        packs = plain and (n0 * n1 * n2 == 1 or run % group == 0)
        i = box.i64[BOX.o0]
        while i < box.i64[BOX.o1]:
            rows = min(i64(width), box.i64[BOX.o1] - i)
            if not packs:
                memset(out, 0, cell * width * words)
            elif i + rows < box.i64[BOX.o1] and step == 1 and n0 * n1 * n2 == 1:
                row = given_size * desc.i64[W.w_o]
                ask_for(w + (i + rows) * row, min(i64(width), box.i64[BOX.o1] - i - rows), row, given_size * run)
            first: i64 = 0
            for a in range(n0):
                for b in range(n1):
                    for c in range(n2):
                        part = w + given_size * (i * desc.i64[W.w_o] + a * s0 + b * s1 + c * s2)
                        if packs:
                            pack(out + cell * width * (first // group), part, rows, run, desc.i64[W.w_o], step)
                        else:
                            scattered(out, part, i64(width), rows, first, run, desc.i64[W.w_o], step)
                        first += (run + word - 1) // word * word
            out = out + cell * width * words
            i += width

    return pack_weights
