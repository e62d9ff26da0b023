"""Gradients by the weights of convolutions by matrix tiles (`AmxTile`), in the native language.

As a convolution, such a gradient has a kernel as large as a plane (the cotangents) and a result as small as a kernel;
its images are the channels, its channels are the images of a batch.  Rows of the tile are its images, columns its output
channels, and the steps along k are the positions of the kernel in the order of memory.

For each column of the result the slab has a copy of the image, shifted so that its windows are contiguous: rows of just
the positions that meet the kernel, with zeros where they are outside.  The windows of all rows of the result are then
stretches of the copy.  Where a stretch is no multiple of a word, its last part is copied apart and filled with zeros, as
what follows it may be infinite.  Rows of the image are sorted by their remainder modulo the distance of the kernel's
rows.
"""

from __future__ import annotations

from rushlight._backends.cpu.conv.conv_descriptor import BOX, BOX_BYTES, NO_EPILOGUE, W_BYTES, W, find_box, find_part
from rushlight._backends.cpu.conv.conv_native import (
    LINE,
    SLACK,
    first_bias,
    first_result,
    item_of,
    make_put_positions,
    parts_of,
    whole_lines,
)
from rushlight._backends.cpu.conv.conv_slab import RUN
from rushlight._backends.cpu.conv.matrix_tiles_native import ITEM, PADDED, SUM, WORD, MatrixForm, make_transposed, up
from rushlight._backends.cpu.gemm.pack_native import make_pack_b_amx
from rushlight._backends.cpu.scratch_native import borrow, borrowed, give_back
from rushlight._native import Record, extern, i32, i64, memset, native, ptr, stack
from rushlight._native.function import NativeFunction

__all__ = ["SumsForm", "make_matrix_sums"]

rl_fail = extern("rl_fail", "i32(ptr, i64, i64, i64, i64, i64)")


class SumsForm(MatrixForm):
    """The parts of a gradient by the weights by `matrix` tiles."""

    __slots__ = ()

    def giving(self, target: str) -> SumsForm:
        return SumsForm(super().giving(target), self.matrix)

    @property
    def name(self) -> str:
        return f"{self.matrix.kind}_sums_{self.source}_{self.target}"


# The slab of a part, in elements.
SLAB = Record(
    "slab",
    ("wide", i64, "positions in a row of the kernel"),
    ("high", i64, "rows of the kernel"),
    ("run", i64, "positions of the kernel in one image"),
    ("words", i64, "words that hold them"),
    ("phase_rows", i64, "rows of the image with one remainder"),
    ("ends", i64, "offset of the last parts of stretches in an image"),
    ("image", i64, "elements of one image of the batch"),
    ("row", i64, "elements of one row of a tile"),
    ("copy", i64, "elements of one copy"),
)
SLAB_BYTES = 8 * len(SLAB)


def _make_lay(form: SumsForm) -> NativeFunction:
    group = form.matrix.group

    @native("void(ptr, ptr, ptr)", name=f"lay_{form.name}")
    def lay(desc, box, slab):
        """Lay out the slab of a part."""
        wide, high = box.i64[BOX.tw1] - box.i64[BOX.tw0], box.i64[BOX.th1] - box.i64[BOX.th0]
        gap = desc.i64[W.gap_h]
        slab[SLAB.wide] = wide
        slab[SLAB.high] = high
        slab[SLAB.run] = wide * high
        slab[SLAB.words] = up(wide * high, group)
        slab[SLAB.phase_rows] = up(box.i64[BOX.len_h], gap)
        ends = up(min(gap, box.i64[BOX.len_h]) * slab[SLAB.phase_rows] * wide, group) * group
        slab[SLAB.ends] = ends
        slab[SLAB.image] = ends + (desc.i64[W.h] * group if wide * high % group != 0 else i64(0))
        row = slab[SLAB.image] * (box.i64[BOX.c1] - box.i64[BOX.c0])
        if row % 2048 == 0:
            row = row + group  # else all rows share the same cache sets
        slab[SLAB.row] = row
        slab[SLAB.copy] = row * (box.i64[BOX.n1] - box.i64[BOX.n0])

    return lay


@native("i64(ptr, ptr, i64)", inline=True)
def stretch(desc, slab, h):
    """The offset in a copy of the windows of a row of the result."""
    reach = h * desc.i64[W.step_h]
    row = reach % desc.i64[W.gap_h] * slab[SLAB.phase_rows] + reach // desc.i64[W.gap_h]
    return row * slab[SLAB.wide]


def _make_words(form: SumsForm) -> NativeFunction:
    group = form.matrix.group

    @native("void(ptr, ptr, ptr, ptr)", name=f"list_{form.name}")
    def list_words(desc, box, slab, offsets):
        """The offset in bytes of each word, for each row of the result."""
        k: i64 = 0
        for h in range(desc.i64[W.h]):
            for c in range(box.i64[BOX.c1] - box.i64[BOX.c0]):
                begin = c * slab[SLAB.image] + stretch(desc, slab, h)
                for i in range(slab[SLAB.words]):
                    offsets.i64[k] = ITEM * (begin + i * group)
                    k += 1
                if slab[SLAB.run] % group != 0:
                    offsets.i64[k - 1] = ITEM * (c * slab[SLAB.image] + slab[SLAB.ends] + h * group)

    return list_words


def _make_rows(form: SumsForm) -> NativeFunction:
    padded, copy_run = extern(*PADDED), extern(f"run_{form.source}_{form.kind}", RUN)
    transposed = make_transposed(form.panels)

    @native("void(ptr, ptr, ptr, ptr, ptr, ptr)", name=f"shifted_{form.name}")
    def fill_shifted(desc, box, slab, out, x, line):
        """Fill a row of all copies for all images (the channels of the layer); x: this row of the first one, or None
        for a row outside of the image."""
        images, gap, in_w = box.i64[BOX.n1] - box.i64[BOX.n0], desc.i64[W.gap_w], desc.i64[W.in_w]
        pitch, from_, apart = ITEM * slab[SLAB.row], x, desc.i64[W.x_n]
        if x is not None:
            if desc.i64[W.x_w] != 1 and desc.i64[W.x_n] == 1:
                transposed(line, x, in_w, images, desc.i64[W.x_w], in_w)
                from_, apart = line, in_w
            elif desc.i64[W.x_w] != 1:
                for n in range(images):
                    copy_run(line + ITEM * n * in_w, x + ITEM * n * desc.i64[W.x_n], desc.i64[W.x_w], in_w)
                from_, apart = line, in_w
            if gap > 1:  # sorted by remainder
                line, x, each = line + ITEM * images * in_w, from_, up(in_w, gap)
                for p in range(min(gap, in_w)):
                    for n in range(images):
                        there = line + ITEM * (p * images + n) * each
                        copy_run(there, x + ITEM * (n * apart + p), gap, up(in_w - p, gap))
                from_, apart = line, each
        for w in range(desc.i64[W.w]):
            to = out + ITEM * w * slab[SLAB.copy]
            at = w * desc.i64[W.step_w] + box.i64[BOX.tw0] * gap - desc.i64[W.lo_w]
            phase = (at % gap + gap) % gap
            index, count = (at - phase) // gap, i64(0)
            if from_ is not None:
                count = up(max(in_w - phase, 0), gap)
            here = from_
            if count > 0:
                here = from_ + ITEM * (index + phase * images * apart if gap > 1 else index)
            padded(to, here, images, pitch, ITEM * apart, slab[SLAB.wide], -index, count - index)

    return fill_shifted


def _make_fill(form: SumsForm) -> NativeFunction:
    group, padded, fill_shifted = form.matrix.group, extern(*PADDED), _make_rows(form)

    @native("void(ptr, ptr, ptr, ptr, ptr, ptr)", name=f"copies_{form.name}")
    def fill_copies(desc, box, slab, out, x, line):
        """Fill the slab with all copies of the box of the image."""
        h0 = box.i64[BOX.h0] * desc.i64[W.step_h] + box.i64[BOX.th0] * desc.i64[W.gap_h] - desc.i64[W.lo_h]
        gap, images, pitch = desc.i64[W.gap_h], box.i64[BOX.n1] - box.i64[BOX.n0], ITEM * slab[SLAB.row]
        rest = slab[SLAB.run] % group
        for c in range(box.i64[BOX.c1] - box.i64[BOX.c0]):
            image = x + ITEM * (
                box.i64[BOX.n0] * desc.i64[W.x_n]
                + box.i64[BOX.group] * desc.i64[W.x_g]
                + (box.i64[BOX.c0] + c) * desc.i64[W.x_c]
            )
            for h in range(box.i64[BOX.len_h]):
                row = h % gap * slab[SLAB.phase_rows] + h // gap
                here: ptr = None
                if 0 <= h0 + h < desc.i64[W.in_h]:
                    here = image + ITEM * (h0 + h) * desc.i64[W.x_h]
                fill_shifted(desc, box, slab, out + ITEM * (c * slab[SLAB.image] + row * slab[SLAB.wide]), here, line)
            if rest != 0:
                for w in range(desc.i64[W.w]):
                    copy = out + ITEM * (w * slab[SLAB.copy] + c * slab[SLAB.image])
                    for h in range(desc.i64[W.h]):
                        from_ = copy + ITEM * (stretch(desc, slab, h) + slab[SLAB.run] - rest)
                        to = copy + ITEM * (slab[SLAB.ends] + h * group)
                        padded(to, from_, images, pitch, pitch, i64(group), i64(0), rest)

    return fill_copies


def _make_columns(form: SumsForm) -> NativeFunction:
    tile = form.matrix
    width, pack_columns = tile.columns, make_pack_b_amx(tile)

    @native("void(ptr, ptr, ptr, ptr, ptr)", name=f"kernels_{form.name}")
    def pack_kernels(desc, box, slab, out, w):
        """Pack the box's part of the kernel as columns of tiles."""
        w = w + ITEM * (
            desc.i64[W.w_base]
            + box.i64[BOX.group] * desc.i64[W.w_g]
            + box.i64[BOX.c0] * desc.i64[W.w_c]
            + box.i64[BOX.th0] * desc.i64[W.w_h]
            + box.i64[BOX.tw0] * desc.i64[W.w_w]
        )
        for i in range(box.i64[BOX.o0], box.i64[BOX.o1], width):
            columns = min(i64(width), box.i64[BOX.o1] - i)
            for c in range(box.i64[BOX.c1] - box.i64[BOX.c0]):
                from_ = w + ITEM * (i * desc.i64[W.w_o] + c * desc.i64[W.w_c])
                pack_columns(out, from_, columns, slab[SLAB.run], desc.i64[W.w_o], desc.i64[W.w_w])
                out = out + WORD * width * slab[SLAB.words]

    return pack_kernels


def _make_multiply(form: SumsForm) -> NativeFunction:
    tile = form.matrix
    high, wide = tile.rows, tile.columns
    multiply_rows = extern(tile.symbol, "void(ptr, ptr, ptr, ptr, i64, i64, i64, i64, i64)")

    @native("void(ptr, ptr, ptr, ptr, ptr, ptr, ptr, i64)", name=f"taps_{form.name}")
    def multiply(desc, box, slab, copies, offsets, panels, acc, add):
        """Multiply all tiles of a box for one part of the steps."""
        words = slab[SLAB.words] * (box.i64[BOX.c1] - box.i64[BOX.c0])
        across = up(box.i64[BOX.o1] - box.i64[BOX.o0], wide) * wide
        images, pitch = box.i64[BOX.n1] - box.i64[BOX.n0], ITEM * slab[SLAB.row]
        tall = up(images, high) * high
        for i in range(0, across, wide):
            panel, to = panels + WORD * i * words, acc + SUM * i
            for w in range(desc.i64[W.w]):
                copy = copies + ITEM * w * slab[SLAB.copy]
                for h in range(desc.i64[W.h]):
                    here = to + SUM * (h * desc.i64[W.w] + w) * tall * across
                    multiply_rows(copy, panel, offsets + 8 * h * words, here, pitch, across, words, add, images)

    return multiply


def _make_write(form: SumsForm) -> NativeFunction:
    out_size, high = item_of(form), form.matrix.rows
    put_positions, put_epilogue = make_put_positions(form)

    @native("i32(ptr, ptr, ptr, i64, ptr, ptr, i64, ptr)", name=f"write_taps_{form.name}")
    def write(desc, box, bufs, piece, bias, acc, across, lines):
        """Write the sums to the result, or give them to the epilogue."""
        y = first_result(desc, box, bufs.ptr[0], out_size)
        if bias is not None:
            bias = first_bias(desc, box, bias, out_size)
        images = box.i64[BOX.n1] - box.i64[BOX.n0]
        tall, status = up(images, high) * high, i32(0)
        for h in range(desc.i64[W.h]):
            for w in range(desc.i64[W.w]):
                sums = acc + SUM * (h * desc.i64[W.w] + w) * tall * across
                to = h * desc.i64[W.y_h] + w * desc.i64[W.y_w]
                if desc.i64[W.epilogue] == NO_EPILOGUE:
                    there = y + out_size * (to + box.i64[BOX.n0] * desc.i64[W.y_n])
                    put_positions(desc, box, there, bias, sums, i64(1), across, images, desc.i64[W.y_n], lines)
                else:
                    for n in range(images):
                        status = status | put_epilogue(
                            desc, box, bufs, piece, bias, sums + SUM * n * across, i64(1), across,
                            box.i64[BOX.n0] + n, desc.i64[W.y_base] + to, i64(1), lines,
                        )  # fmt: skip
        return status

    return write


def make_matrix_sums(form: SumsForm) -> NativeFunction:
    """The kernel `i32 (ptr bufs, ptr ints, i64 piece)`, as `make_conv`; planes of one row or more, no third dim."""
    tile = form.matrix
    high, wide, group = tile.rows, tile.columns, tile.group
    lay, list_words, fill_copies, pack_kernels = (
        _make_lay(form),
        _make_words(form),
        _make_fill(form),
        _make_columns(form),
    )
    multiply, write = _make_multiply(form), _make_write(form)

    @native("i32(ptr, ptr, i64)", name=f"rl_conv_{form.name}")
    def conv(bufs, ints, piece):
        desc = ints + 64
        while piece >= desc.i64[W.pieces]:
            piece -= desc.i64[W.pieces]
            desc = desc + W_BYTES
        box, slab = stack(BOX_BYTES), stack(SLAB_BYTES)
        find_box(desc, box, piece)
        outs, images = box.i64[BOX.o1] - box.i64[BOX.o0], box.i64[BOX.n1] - box.i64[BOX.n0]
        across = up(outs, wide) * wide
        first = box.i64[BOX.chunk_no] * desc.i64[W.chunk]
        last = min(first + desc.i64[W.chunk], parts_of(desc))
        find_part(desc, box, i64(0))  # no part is larger than the first
        lay(desc, box, slab)
        words = slab[SLAB.words] * (box.i64[BOX.c1] - box.i64[BOX.c0])
        acc_bytes = SUM * across * desc.i64[W.h] * desc.i64[W.w] * up(images, high) * high
        panel_bytes, table_bytes = WORD * words * across, whole_lines(8 * words * desc.i64[W.h])
        line_bytes = max(SUM * (LINE * across + wide), ITEM * 2 * images * (desc.i64[W.in_w] + desc.i64[W.gap_w]))
        slab_bytes = ITEM * (slab[SLAB.copy] * desc.i64[W.w] + high * slab[SLAB.row] + group)
        slot = borrow(acc_bytes + panel_bytes + table_bytes + whole_lines(slab_bytes) + line_bytes + 2 * SLACK)
        if slot < 0:
            return rl_fail(bufs, piece, 4, 0, 0, 0)
        acc = borrowed(slot)
        panels = acc + acc_bytes
        offsets = panels + panel_bytes
        copies = offsets + table_bytes
        line = copies + whole_lines(slab_bytes) + SLACK
        if first >= last:
            memset(acc, 0, acc_bytes)
        x, w = bufs.ptr[desc.i64[W.operand]], bufs.ptr[desc.i64[W.operand] + 1]
        for part in range(first, last):
            find_part(desc, box, part)
            lay(desc, box, slab)
            fill_copies(desc, box, slab, copies, x, line)
            list_words(desc, box, slab, offsets)
            pack_kernels(desc, box, slab, panels, w)
            multiply(desc, box, slab, copies, offsets, panels, acc, i64(part > first))
        bias: ptr = None
        if desc.i64[W.bias_o] >= 0:
            bias = bufs.ptr[desc.i64[W.operand] + 2]
        status = write(desc, box, bufs, piece, bias, acc, across, line)
        give_back(slot)
        return status

    return conv
