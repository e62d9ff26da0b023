"""Convolutions by matrix tiles (`PlacedAmxTile`), in the native language.

The structure is that of `conv_native`: a box of the image is copied to a slab, with zeros around it, and tiles read
windows in place.  Two things differ.  The channels of a position are always contiguous in the slab, padded with zeros to
whole words of 64 bytes.  Positions are sorted by their remainders modulo the strides, along the width and the height,
so that the windows of consecutive results of a row are evenly spaced whatever the stride, as rows of a tile must be.

A tile may run over the end of a row of results into the next: the slab is wider than a row of results by the reach of
the kernel, so the tile also computes the positions between, which are not written.  Each plane of results begins with a
tile of its own.
"""

from __future__ import annotations

from rushlight._backends.cpu.conv.conv_descriptor import (
    BOX,
    BOX_BYTES,
    NO_EPILOGUE,
    W_BYTES,
    W,
    filled_channels,
    find_box,
    find_part,
)
from rushlight._backends.cpu.conv.conv_native import (
    LINE,
    SLACK,
    ConvForm,
    first_bias,
    first_result,
    item_of,
    kept_weights,
    make_packing,
    make_put_positions,
    parts_of,
    whole_lines,
)
from rushlight._backends.cpu.conv.conv_slab import RUN
from rushlight._backends.cpu.gemm.pack_native import make_pack_b_amx
from rushlight._backends.cpu.microkernels.amx_tile import PlacedAmxTile
from rushlight._backends.cpu.microkernels.kernel_text import KernelText
from rushlight._backends.cpu.microkernels.padded_rows import PaddedRows
from rushlight._backends.cpu.microkernels.panels import Panels
from rushlight._backends.cpu.scratch_native import borrow, borrowed, give_back
from rushlight._native import extern, i32, i64, memset, native, ptr, stack
from rushlight._native.function import NativeFunction

__all__ = ["PADDED", "MatrixForm", "make_matrix_conv", "make_matrix_pack", "make_transposed", "up"]

ITEM = 2  # bytes of an element
WORD = 64  # bytes of a word
SUM = 4  # bytes of a sum
PADDED = PaddedRows(2).symbol, "void(ptr, ptr, i64, i64, i64, i64, i64, i64)"
rl_fail = extern("rl_fail", "i32(ptr, i64, i64, i64, i64, i64)")


class MatrixForm(ConvForm):
    """The parts of a convolution by `matrix` tiles; sums are written as those of the register tiles are."""

    __slots__ = ("matrix",)

    def __init__(self, form: ConvForm, matrix: PlacedAmxTile) -> None:
        super().__init__(form.tiles, form.source, form.target)
        self.matrix = matrix

    def giving(self, target: str) -> MatrixForm:
        return MatrixForm(super().giving(target), self.matrix)

    @property
    def parts(self) -> list[KernelText]:  # type: ignore[override]
        return [self.matrix, self.matrix.panels, self.panels, self.tiles[0].panels, PaddedRows(2)]

    @property
    def name(self) -> str:
        return f"{self.matrix.kind}_{self.source}_{self.target}"


# ***** the slab *****


@native("i64(i64, i64)", inline=True)
def up(n, by):
    """`n / by`, rounded up."""
    return (n + by - 1) // by


@native("void(ptr, ptr)")
def lay_sorted(desc, box):
    """The strides of the slab: of channels, positions and rows of the same remainders, remainders, planes, images."""
    along, down = min(desc.i64[W.step_w], box.i64[BOX.len_w]), min(desc.i64[W.step_h], box.i64[BOX.len_h])
    box.i64[BOX.s_c] = 1
    box.i64[BOX.s_w] = filled_channels(desc, box.i64[BOX.c1] - box.i64[BOX.c0])
    box.i64[BOX.s_h] = box.i64[BOX.s_w] * up(box.i64[BOX.len_w], desc.i64[W.step_w])
    box.i64[BOX.phase] = box.i64[BOX.s_h] * up(box.i64[BOX.len_h], desc.i64[W.step_h])
    box.i64[BOX.s_d] = box.i64[BOX.phase] * along * down
    box.i64[BOX.s_n] = box.i64[BOX.s_d] * box.i64[BOX.len_d]


@native("i64(ptr, ptr, i64, i64)", inline=True)
def sorted_offset(desc, box, h, w):
    """The offset in the slab of a position of a plane."""
    along = min(desc.i64[W.step_w], box.i64[BOX.len_w])
    remainder = h % desc.i64[W.step_h] * along + w % desc.i64[W.step_w]
    across = w // desc.i64[W.step_w] * box.i64[BOX.s_w]
    return remainder * box.i64[BOX.phase] + h // desc.i64[W.step_h] * box.i64[BOX.s_h] + across


@native("void(ptr, ptr, ptr)")
def list_words(desc, box, offsets):
    """The slab offset in bytes of each word of the part: taps, and the channels of each."""
    channels = up(box.i64[BOX.c1] - box.i64[BOX.c0], desc.i64[W.channels_inside])
    deep = box.i64[BOX.td1] - box.i64[BOX.td0]
    high, wide = box.i64[BOX.th1] - box.i64[BOX.th0], box.i64[BOX.tw1] - box.i64[BOX.tw0]
    flipped = desc.i64[W.flip] != 0  # weights are packed in memory order, so windows count from their ends
    k: i64 = 0
    for d in range(deep):
        for h in range(high):
            for w in range(wide):
                td, th, tw = d, h, w
                if flipped:
                    td, th, tw = deep - 1 - d, high - 1 - h, wide - 1 - w
                offset = td * desc.i64[W.gap_d] * box.i64[BOX.s_d]
                offset += sorted_offset(desc, box, th * desc.i64[W.gap_h], tw * desc.i64[W.gap_w])
                for c in range(channels):
                    offsets.i64[k] = ITEM * offset + WORD * c
                    k += 1


def make_transposed(panels: Panels) -> NativeFunction:
    n, transpose = panels.n, extern(panels.transpose_symbol, "void(ptr, ptr, i64, i64, i64)")

    @native("void(ptr, ptr, i64, i64, i64, i64)", name=f"inside_{panels.transpose_symbol}")
    def transposed(out, x, channels, count, x_c, position):
        """Make the channels of `count` adjacent positions contiguous, `position` elements from one position to the
        next; the last squares may overlap those before."""
        if channels < n or count < n:
            for i in range(count):
                for c in range(channels):
                    out.u16[i * position + c] = x.u16[c * x_c + i]
        else:
            whole = count // n * n
            c: i64 = 0
            while c < channels:
                at = min(c, channels - n)
                to, from_ = out + ITEM * at, x + ITEM * at * x_c
                transpose(to, from_, x_c, position, whole)
                if whole < count:
                    transpose(to + ITEM * (count - n) * position, from_ + ITEM * (count - n), x_c, position, n)
                c += n

    return transposed


def _make_fill(form: MatrixForm) -> NativeFunction:
    copy_run, transposed = extern(f"run_{form.source}_{form.kind}", RUN), make_transposed(form.panels)
    padded = extern(*PADDED)

    @native("void(ptr, ptr, ptr, ptr, i64, i64, i64, ptr)", name=f"sorted_row_{form.name}")
    def fill_row(desc, box, there, x, first, last, channels, line):
        """Fill the row of the slab that begins at `there` from positions `first` to `last` of the image."""
        step, s_w, count = desc.i64[W.step_w], box.i64[BOX.s_w], last - first
        along = min(step, box.i64[BOX.len_w])
        slots = up(box.i64[BOX.len_w], step)
        inside = desc.i64[W.x_c] == 1
        from_, each = x, desc.i64[W.x_w]
        if not inside and each == 1:
            transposed(line, x, channels, count, desc.i64[W.x_c], channels)
            from_, each, inside = line, channels, True
        for p in range(along):
            to = there + ITEM * p * box.i64[BOX.phase]
            before, after = up(max(first - p, 0), step), up(max(last - p, 0), step)
            skipped = before * step + p - first
            memset(to, 0, ITEM * s_w * before)
            memset(to + ITEM * s_w * after, 0, ITEM * s_w * (slots - after))
            to, here = to + ITEM * s_w * before, from_ + ITEM * skipped * each
            if inside:
                padded(to, here, after - before, ITEM * s_w, ITEM * step * each, s_w, i64(0), channels)
            else:
                for i in range(after - before):
                    padded(to, to, i64(1), i64(0), i64(0), s_w, i64(0), i64(0))
                    copy_run(to, here + ITEM * i * step * each, desc.i64[W.x_c], channels)
                    to = to + ITEM * s_w

    @native("void(ptr, ptr, ptr, ptr, ptr)", name=f"sorted_{form.name}")
    def fill_sorted(desc, box, slab, x, line):
        """Fill the slab with the box of the image that the part needs, and zeros around it and in incomplete words."""
        d0 = box.i64[BOX.d0] * desc.i64[W.step_d] + box.i64[BOX.td0] * desc.i64[W.gap_d] - desc.i64[W.lo_d]
        h0 = box.i64[BOX.h0] * desc.i64[W.step_h] + box.i64[BOX.th0] * desc.i64[W.gap_h] - desc.i64[W.lo_h]
        w0 = box.i64[BOX.w0] * desc.i64[W.step_w] + box.i64[BOX.tw0] * desc.i64[W.gap_w] - desc.i64[W.lo_w]
        first = min(max(-w0, 0), box.i64[BOX.len_w])
        last = max(min(box.i64[BOX.len_w], desc.i64[W.in_w] - w0), first)
        channels, step = box.i64[BOX.c1] - box.i64[BOX.c0], desc.i64[W.step_h]
        along = min(desc.i64[W.step_w], box.i64[BOX.len_w])
        slots = up(box.i64[BOX.len_w], desc.i64[W.step_w])
        for n in range(box.i64[BOX.n1] - box.i64[BOX.n0]):
            image = x + ITEM * (
                (box.i64[BOX.n0] + n) * desc.i64[W.x_n]
                + box.i64[BOX.group] * desc.i64[W.x_g]
                + box.i64[BOX.c0] * desc.i64[W.x_c]
                + (w0 + first) * desc.i64[W.x_w]
            )
            for d in range(box.i64[BOX.len_d]):
                plane = slab + ITEM * (n * box.i64[BOX.s_n] + d * box.i64[BOX.s_d])
                for h in range(box.i64[BOX.len_h]):
                    there = plane + ITEM * (h % step * along * box.i64[BOX.phase] + h // step * box.i64[BOX.s_h])
                    if 0 <= d0 + d < desc.i64[W.in_d] and 0 <= h0 + h < desc.i64[W.in_h] and first < last:
                        here = image + ITEM * ((d0 + d) * desc.i64[W.x_d] + (h0 + h) * desc.i64[W.x_h])
                        fill_row(desc, box, there, here, first, last, channels, line)
                    else:
                        for p in range(along):
                            memset(there + ITEM * p * box.i64[BOX.phase], 0, ITEM * box.i64[BOX.s_w] * slots)

    return fill_sorted


# ***** the weights *****


def _make_columns(form: MatrixForm) -> NativeFunction:
    tile = form.matrix
    width, group, pack_columns = tile.columns, tile.group, make_pack_b_amx(tile)
    transposed, n = make_transposed(form.panels), form.panels.n

    @native("void(ptr, ptr, i64, i64, i64, i64)", name=f"columns_of_taps_{form.name}")
    def pack_taps(out, w, columns, channels, taps, w_o):
        """Pack the columns of one panel whose taps are contiguous, and the channels of an output channel too."""
        slot = borrow(ITEM * width * channels * taps)
        rows, step, k_step = w, w_o, taps  # without memory: element by element, where they lie
        if slot >= 0:
            rows, step, k_step = borrowed(slot), i64(1), width * taps
            transposed(rows, w, columns, channels * taps, w_o, i64(width))
        for k in range(taps):
            from_ = rows + ITEM * k * (k_step // taps)
            pack_columns(out, from_, columns, channels, step, k_step)
            out = out + WORD * width * up(channels, group)
        if slot >= 0:
            give_back(slot)

    @native("void(ptr, ptr, ptr, ptr)", name=f"columns_{form.name}")
    def pack_weights(desc, box, out, w):
        """Pack the box's output channels for its part of the steps as columns of tiles: taps, and the words of each."""
        channels, deep = box.i64[BOX.c1] - box.i64[BOX.c0], box.i64[BOX.td1] - box.i64[BOX.td0]
        high, wide = box.i64[BOX.th1] - box.i64[BOX.th0], box.i64[BOX.tw1] - box.i64[BOX.tw0]
        td, th, tw = box.i64[BOX.td0], box.i64[BOX.th0], box.i64[BOX.tw0]
        if desc.i64[W.flip] != 0:
            td, th, tw = (
                desc.i64[W.k_d] - box.i64[BOX.td1],
                desc.i64[W.k_h] - box.i64[BOX.th1],
                desc.i64[W.k_w] - box.i64[BOX.tw1],
            )
        w = w + ITEM * (
            desc.i64[W.w_base]
            + box.i64[BOX.group] * desc.i64[W.w_g]
            + box.i64[BOX.c0] * desc.i64[W.w_c]
            + td * desc.i64[W.w_d]
            + th * desc.i64[W.w_h]
            + tw * desc.i64[W.w_w]
        )
        each = WORD * width * up(channels, group)
        even = desc.i64[W.w_w] == 1 and (high == 1 or desc.i64[W.w_h] == wide)
        even = even and (deep == 1 or desc.i64[W.w_d] == high * wide)
        even = even and desc.i64[W.w_c] == deep * high * wide and desc.i64[W.w_c] > 1
        for i in range(box.i64[BOX.o0], box.i64[BOX.o1], width):
            columns = min(i64(width), box.i64[BOX.o1] - i)
            taps = deep * high * wide
            if even and columns >= n:
                pack_taps(out, w + ITEM * i * desc.i64[W.w_o], columns, channels, taps, desc.i64[W.w_o])
                out, taps = out + each * taps, i64(0)
            for d in range(deep if taps > 0 else i64(0)):
                for h in range(high):
                    for k in range(wide):
                        tap = d * desc.i64[W.w_d] + h * desc.i64[W.w_h] + k * desc.i64[W.w_w]
                        from_ = w + ITEM * (i * desc.i64[W.w_o] + tap)
                        pack_columns(out, from_, columns, channels, desc.i64[W.w_o], desc.i64[W.w_c])
                        out = out + each

    return pack_weights


def _make_offset(form: MatrixForm) -> NativeFunction:
    width, group = form.matrix.columns, form.matrix.group

    @native("i64(ptr, ptr, i64, i64)", name=f"columns_offset_{form.name}")
    def weights_offset(desc, box, part, words):
        """The offset of the box's panels among those packed in advance; `words` counts words of the largest part."""
        each = up(desc.i64[W.o], width) * width * words
        own = box.i64[BOX.o0] * box.i64[BOX.steps] // group
        return desc.i64[W.packed] + WORD * ((box.i64[BOX.group] * parts_of(desc) + part) * each + own)

    return weights_offset


def make_matrix_pack(form: MatrixForm) -> NativeFunction:
    """The kernel that packs the weights once for all pieces."""
    return make_packing(form.name, form.matrix.group, _make_columns(form), _make_offset(form))


# ***** a piece *****


@native("i64(ptr, ptr)", inline=True)
def plane_rows(desc, box):
    """The rows of sums from the first position of a plane to its last, with the positions between."""
    wide, slots = box.i64[BOX.w1] - box.i64[BOX.w0], up(box.i64[BOX.len_w], desc.i64[W.step_w])
    return (box.i64[BOX.h1] - box.i64[BOX.h0] - 1) * slots + wide


def _make_multiply(form: MatrixForm) -> NativeFunction:
    tile = form.matrix
    high, wide, group = tile.rows, tile.columns, tile.group
    multiply_rows = extern(tile.symbol, "void(ptr, ptr, ptr, ptr, i64, i64, i64, i64, i64)")

    @native("void(ptr, ptr, ptr, ptr, ptr, ptr, i64)", name=f"planes_{form.name}")
    def multiply(desc, box, slab, offsets, weights, acc, add):
        """Multiply all tiles of a box for one part of the steps."""
        words, rows = box.i64[BOX.steps] // group, plane_rows(desc, box)
        across = up(box.i64[BOX.o1] - box.i64[BOX.o0], wide) * wide
        deep = box.i64[BOX.d1] - box.i64[BOX.d0]
        planes = (box.i64[BOX.n1] - box.i64[BOX.n0]) * deep
        apart = ITEM * box.i64[BOX.s_w]
        for i in range(0, across, wide):
            to = acc + SUM * i
            for plane in range(planes):
                begin = plane // deep * box.i64[BOX.s_n] + plane % deep * desc.i64[W.step_d] * box.i64[BOX.s_d]
                from_, panel = slab + ITEM * begin, weights + WORD * i * words
                multiply_rows(from_, panel, offsets, to, apart, across, words, add, rows)
                to = to + SUM * up(rows, high) * high * across

    return multiply


def _make_write(form: MatrixForm) -> NativeFunction:
    out_size, high = item_of(form), form.matrix.rows
    put_positions, put_epilogue = make_put_positions(form)

    @native("i32(ptr, ptr, ptr, i64, ptr, ptr, i64, ptr)", name=f"write_planes_{form.name}")
    def write(desc, box, bufs, piece, bias, acc, across, lines):
        """Write the sums of all planes to the result, or give them to the epilogue."""
        y = first_result(desc, box, bufs.ptr[0], out_size)
        if bias is not None:
            bias = first_bias(desc, box, bias, out_size)
        rows, tall, run = box.i64[BOX.h1] - box.i64[BOX.h0], up(plane_rows(desc, box), high) * high, i64(0)
        slots, step = up(box.i64[BOX.len_w], desc.i64[W.step_w]), desc.i64[W.y_w]
        run = box.i64[BOX.w1] - box.i64[BOX.w0]
        if slots == run and desc.i64[W.y_h] == run * step:  # consecutive rows
            run, rows = run * rows, i64(1)
        deep = box.i64[BOX.d1] - box.i64[BOX.d0]
        status: i32 = 0
        for plane in range((box.i64[BOX.n1] - box.i64[BOX.n0]) * deep):
            image = box.i64[BOX.n0] + plane // deep
            for h in range(rows):
                to = image * desc.i64[W.y_n] + (box.i64[BOX.d0] + plane % deep) * desc.i64[W.y_d]
                to += (box.i64[BOX.h0] + h) * desc.i64[W.y_h] + box.i64[BOX.w0] * step
                sums = acc + SUM * across * (plane * tall + h * slots)
                if desc.i64[W.epilogue] == NO_EPILOGUE:
                    put_positions(desc, box, y + out_size * to, bias, sums, i64(1), across, run, step, lines)
                else:
                    first = desc.i64[W.y_base] + to - image * desc.i64[W.y_n]
                    status = status | put_epilogue(
                        desc, box, bufs, piece, bias, sums, i64(1), across, image, first, run, lines
                    )
        return status

    return write


def make_matrix_conv(form: MatrixForm) -> NativeFunction:
    """The kernel `i32 (ptr bufs, ptr ints, i64 piece)`, as `make_conv`."""
    tile = form.matrix
    high, wide, group = tile.rows, tile.columns, tile.group
    fill_sorted, pack_weights, weights_offset = _make_fill(form), _make_columns(form), _make_offset(form)
    multiply, write = _make_multiply(form), _make_write(form)

    @native("i32(ptr, ptr, i64)", name=f"rl_conv_{form.name}")
    def conv(bufs, ints, piece):
        desc = ints + 64
        while piece >= desc.i64[W.pieces]:
            piece -= desc.i64[W.pieces]
            desc = desc + W_BYTES
        box = stack(BOX_BYTES)
        find_box(desc, box, piece)
        outs = box.i64[BOX.o1] - box.i64[BOX.o0]
        across = up(outs, wide) * wide
        planes = (box.i64[BOX.n1] - box.i64[BOX.n0]) * (box.i64[BOX.d1] - box.i64[BOX.d0])
        first = box.i64[BOX.chunk_no] * desc.i64[W.chunk]
        last = min(first + desc.i64[W.chunk], parts_of(desc))
        find_part(desc, box, i64(0))  # no part is larger than the first
        lay_sorted(desc, box)
        ready, words = desc.i64[W.packed] >= 0, box.i64[BOX.steps] // group
        acc_bytes = SUM * across * planes * up(plane_rows(desc, box), high) * high
        weight_bytes = i64(0) if ready else WORD * words * across
        table_bytes, line_bytes = (
            whole_lines(8 * words),
            SUM * (LINE * across + wide) + ITEM * box.i64[BOX.len_w] * box.i64[BOX.s_w],
        )
        slab_bytes = ITEM * (box.i64[BOX.s_n] * (box.i64[BOX.n1] - box.i64[BOX.n0]) + high * box.i64[BOX.s_w])
        slot = borrow(acc_bytes + weight_bytes + table_bytes + whole_lines(slab_bytes) + line_bytes + 2 * SLACK)
        if slot < 0:
            return rl_fail(bufs, piece, 4, 0, 0, 0)
        acc = borrowed(slot)
        weights = acc + acc_bytes
        offsets = weights + weight_bytes
        slab = offsets + table_bytes
        line = slab + whole_lines(slab_bytes) + SLACK
        if first >= last:
            memset(acc, 0, acc_bytes)
        for part in range(first, last):
            find_part(desc, box, part)
            lay_sorted(desc, box)
            fill_sorted(desc, box, slab, bufs.ptr[desc.i64[W.operand]], line)
            list_words(desc, box, offsets)
            memory = bufs.ptr[desc.i64[W.operand] + 1]
            if ready:
                weights = kept_weights(desc, memory) + weights_offset(desc, box, part, words)
            else:
                pack_weights(desc, box, weights, memory)
            multiply(desc, box, slab, offsets, weights, acc, i64(part > first))
        find_part(desc, box, i64(0))
        bias: ptr = None
        if desc.i64[W.bias_o] >= 0:
            bias = bufs.ptr[desc.i64[W.operand] + 2]
        status = write(desc, box, bufs, piece, bias, acc, across, line)
        give_back(slot)
        return status

    return conv
