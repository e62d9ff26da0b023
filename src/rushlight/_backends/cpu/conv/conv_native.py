"""Convolutions as matrix products without a matrix of windows, in the native language.

The structure is that of a matrix product (see `gemm_blocks_native.py`): panels of the weights meet panels of the
windows in a register tile.  The difference is the source of the windows' panels.  A box of the image is copied to a
*slab*: padded with zeros, converted, consecutive positions contiguous, positions sorted by their remainder modulo the
stride.  The window element of step k at a position lies in the slab at `offset of k + offset of the position`, two
tables (Dukhan, "The Indirect Convolution Algorithm", 2019, has one of pointers).  Any stride, dilation, padding and
layout therefore costs one reading of the box, and the inner loops know nothing of them.

Where many images have few positions each (a gradient of the weights, whose images are channels), images are contiguous
in the slab instead, and blocks of them are panels already: the tile reads them in place.

Where the channels of a position are contiguous (channels-last images), they stay so in the slab and nothing is
gathered: positions are the rows of the tile, which reads a packed word of channels of each at `offset of the word +
offset of the position`.

A piece is a box of positions of some images and a range of output channels.  Its sums stay in a block of memory of its
own until they are written, with the bias, in the layout and dtype of the result.
"""

from __future__ import annotations

from rushlight._backends.cpu.conv.conv_descriptor import (
    BOTH,
    BOX,
    BOX_BYTES,
    CHANNELS,
    LOW,
    NO_EPILOGUE,
    POSITION_ROWS,
    POSITIONS,
    POSITIONS_LOW,
    W_BYTES,
    W,
    find_box,
    find_part,
    lay_slab,
    list_moves,
    list_positions,
    list_steps,
    panel_offset,
)
from rushlight._backends.cpu.conv.conv_slab import (
    fetch_of,
    from_brain,
    from_half,
    held_type,
    make_run,
    make_scattered,
    make_slab,
    make_weights,
)
from rushlight._backends.cpu.epilogue.epilogue_native import run_epilogue
from rushlight._backends.cpu.microkernels.panel_gather import Apart, Every, PanelGather, Spaced
from rushlight._backends.cpu.microkernels.panels import Panels
from rushlight._backends.cpu.microkernels.register_tile import RegisterTile
from rushlight._backends.cpu.pinned_native import PACKED, begin_packing, end_packing, packed_place, place_to_pack
from rushlight._backends.cpu.random.mt19937 import bfloat_bits, half_bits
from rushlight._backends.cpu.scratch_native import borrow, borrowed, give_back
from rushlight._native import extern, f32, f64, i32, i64, load, memcpy, memset, native, ptr, stack, store
from rushlight._native.function import NativeFunction

__all__ = [
    "ConvForm",
    "from_brain",
    "from_half",
    "kept_weights",
    "first_bias",
    "first_result",
    "make_conv",
    "make_loops",
    "make_pack_all",
    "make_packing",
    "make_put_positions",
    "make_sum_chunks",
    "make_sum_run",
    "make_write",
]

LINE = 64  # positions whose sums are transposed at a time
MASKED = 64  # bytes of vectors that a machine writes with masked lanes at no extra cost
SLACK = 512  # bytes behind a block that may be read or written
rl_fail = extern("rl_fail", "i32(ptr, i64, i64, i64, i64, i64)")


class ConvForm:
    """The parts of a convolution kernel: `tiles` (one, or two of which the second has fewer rows), dtypes of operands
    (`source`) and results (`target`).

    `gathers` fill panels as wide as the tiles' columns and rows (0: columns, in short moves).  `listed` tiles read
    panels in place (none where packed words hold several steps); `placed` tiles read the channels of positions in place
    (also one vector wide, for a remainder); `rounded` are the same with results in their memory dtype (none where the
    machine cannot round so).  `spaced` pad the channels of a position, by their number.  `apart` write contiguous sums
    with a stride (none for rounded results or without masked stores).  `panels` transpose squares of slab elements.
    """

    __slots__ = (
        "apart",
        "gathers",
        "kind",
        "listed",
        "panels",
        "placed",
        "rounded",
        "source",
        "spaced",
        "target",
        "tiles",
    )

    def __init__(self, tiles: tuple[RegisterTile, ...], source: str, target: str) -> None:
        first = tiles[0]
        self.tiles, self.kind, self.source, self.target = tiles, first.kind, source, target
        self.gathers = {width: PanelGather(first, width) for width in (first.columns, first.rows, tiles[-1].rows)}
        self.gathers[0] = PanelGather(first, first.columns, max(first.lanes // 2, 2))
        one = first.group == 1
        self.listed = [t.variant("columns") for t in tiles] if one else list(tiles)
        rounds = (False, True) if first.rounds and target == first.kind else (False,)
        placed = [
            [t.sized(t.rows, n).variant("rows", rounded) for n in (first.vectors, 1) for t in tiles]
            for rounded in rounds
        ]
        self.placed, self.rounded = placed[0], placed[1] if len(placed) > 1 else []
        self.spaced = (
            {channels: Spaced(channels, padded, first.lanes * 4) for channels, padded in ((1, 2), (3, 4))}
            if first.group == 2
            else {}
        )
        masks = first.lanes * held_type(first.kind).itemsize == MASKED and target == first.kind
        self.apart = {step: Apart(target, first.lanes, step) for step in (2, 3, 4)} if masks else {}
        self.panels = first.panels if one else Panels(held_type(first.kind).itemsize, 1, first.panels.n)

    def giving(self, target: str) -> ConvForm:
        """The form with results of dtype `target`."""
        return ConvForm(self.tiles, self.source, target)

    @property
    def parts(self) -> list[RegisterTile | Panels]:
        """The tiles and transposes that the kernel needs."""
        listed = () if self.listed[0] is self.tiles[0] else self.listed
        return [*self.tiles, self.tiles[0].panels, self.panels, *listed, *self.placed, *self.rounded]

    @property
    def moves(self) -> list[PanelGather | Spaced | Every | Apart]:
        """The routines that move data which the kernel needs."""
        every = Every(held_type(self.kind).itemsize, self.tiles[0].lanes * 4)
        return [*self.gathers.values(), *self.spaced.values(), *self.apart.values(), every]

    @property
    def name(self) -> str:
        return f"{self.kind}_{self.source}_{self.target}"


def item_of(form: ConvForm) -> int:
    """Bytes of a result in memory."""
    return 2 if form.target in ("f16", "bf16") else 8 if form.target == "f64" else 4


# ***** the result *****


def make_loops(form: ConvForm) -> list[NativeFunction]:
    """The innermost loops for LLVM's vectoriser, compiled apart from their large callers, which need none."""
    return [
        make_run(form.kind, form.source),
        make_scattered(form.kind, form.source, form.tiles[0].group),
        *_make_put(form),
    ]


def _make_put(form: ConvForm) -> tuple[NativeFunction, NativeFunction]:
    """Functions that write sums plus bias: one channel at contiguous positions, and the channels of one position."""
    real, narrow = f64 if form.kind == "f64" else f32, form.target in ("f16", "bf16")
    rounded, size, out_size = half_bits if form.target == "f16" else bfloat_bits, real.itemsize, item_of(form)
    load_bias = fetch_of(form.target, form.kind if form.kind == "f64" else "f32")[1]
    two, three, four = (
        extern(form.apart[step].symbol, f"void(ptr, ptr, i64, {real})") if form.apart else None for step in (2, 3, 4)
    )

    @native(f"void(ptr, i64, {real}, i64, ptr, i64)", name=f"put_{form.name}")
    def put_run(y, step, bias, count, acc, apart):
        """Write `count` sums, `apart` elements from one another, plus the bias of their channel."""
        if step == 1 and apart == 1:
            for i in range(count):
                if narrow:
                    y.u16[i] = rounded(acc.f32[i] + bias)
                else:
                    store(real, y, i, load(real, acc, i) + bias)
        elif two is not None and apart == 1 and step == 2:
            two(y, acc, count, bias)
        elif three is not None and apart == 1 and step == 3:
            three(y, acc, count, bias)
        elif four is not None and apart == 1 and step == 4:
            four(y, acc, count, bias)
        else:
            for i in range(count):
                if narrow:
                    y.u16[i * step] = rounded(acc.f32[i * apart] + bias)
                else:
                    store(real, y, i * step, load(real, acc, i * apart) + bias)

    @native("void(ptr, i64, ptr, i64, i64, i64, ptr, i64)", name=f"channels_{form.name}")
    def put_channels(y, step, bias, bias_step, run, count, acc, apart):
        """Write `count` contiguous channels of `run` positions that are `step` apart; their sums are `apart`."""
        if bias is None and step == count and apart == count:
            put_run(y, i64(1), real(-0.0), run * count, acc, i64(1))
        else:
            for _ in range(run):
                if bias is None:
                    for i in range(count):
                        if narrow:
                            y.u16[i] = rounded(acc.f32[i])
                        else:
                            store(real, y, i, load(real, acc, i))
                elif bias_step == 1:
                    for i in range(count):
                        if narrow:
                            y.u16[i] = rounded(acc.f32[i] + load_bias(bias, i))
                        else:
                            store(real, y, i, load(real, acc, i) + load_bias(bias, i))
                else:
                    for i in range(count):
                        if narrow:
                            y.u16[i] = rounded(acc.f32[i] + load_bias(bias, i * bias_step))
                        else:
                            store(real, y, i, load(real, acc, i) + load_bias(bias, i * bias_step))
                y = y + out_size * step
                acc = acc + size * apart

    return put_run, put_channels


def _make_transpose_line(form: ConvForm) -> NativeFunction:
    size, panels, group = 8 if form.kind == "f64" else 4, form.tiles[0].panels, form.tiles[0].group
    transpose, n = extern(panels.transpose_symbol, "void(ptr, ptr, i64, i64, i64)"), panels.n

    @native("void(ptr, ptr, i64, i64, i64, i64)", name=f"transpose_line_{form.name}")
    def transpose_line(lines, acc, acc_position, first, some, run):
        """Collect `some` of `run` positions, from `first` on, for each channel.  A few elements before `lines` may be
        overwritten."""
        i: i64 = 0
        while i < some:
            start = min(first + i, run - n)
            transpose(
                lines + size * (start - first),
                acc + size * start * acc_position,
                acc_position * group,
                i64(LINE),
                acc_position,
            )
            i += n

    return transpose_line


def _make_epilogue(form: ConvForm, load_bias: NativeFunction, transpose_line: NativeFunction) -> NativeFunction:
    real, n = (f64 if form.kind == "f64" else f32), form.tiles[0].panels.n

    @native("void(ptr, ptr, ptr, ptr, i64, i64, i64)", name=f"biased_{form.name}")
    def add_bias(desc, box, bias, acc, acc_o, acc_position, run):
        """Add the bias to sums that are not yet written."""
        outs = box.i64[BOX.o1] - box.i64[BOX.o0]
        for o in range(outs):
            b = load_bias(bias, o * desc.i64[W.bias_o])
            for i in range(run):
                store(real, acc, o * acc_o + i * acc_position, load(real, acc, o * acc_o + i * acc_position) + b)

    @native("i32(ptr, ptr, ptr, i64, ptr, ptr, i64, i64, i64, i64, i64, ptr)", name=f"after_{form.name}")
    def put_epilogue(desc, box, bufs, piece, bias, acc, acc_o, acc_position, image, first, run, lines):
        """Give `run` positions of an image, from `first` on, to the epilogue instead of storing them."""
        constants, outs, channel = (
            desc + desc.i64[W.epilogue_at],
            box.i64[BOX.o1] - box.i64[BOX.o0],
            box.i64[BOX.group] * desc.i64[W.o] + box.i64[BOX.o0],
        )
        if bias is not None:
            add_bias(desc, box, bias, acc, acc_o, acc_position, run)
        if desc.i64[W.epilogue] == POSITION_ROWS:
            return run_epilogue(bufs, constants, piece, acc, acc_position, image, first, channel, run, outs)
        if acc_position == 1:
            return run_epilogue(bufs, constants, piece, acc, acc_o, image, channel, first, outs, run)
        status: i32 = 0
        for p in range(0, run, LINE):
            some = min(i64(LINE), run - p)
            if run >= n:
                transpose_line(lines, acc, acc_position, i64(p), some, run)
            else:
                for o in range(outs):
                    for i in range(some):
                        store(real, lines, o * LINE + i, load(real, acc, i * acc_position + o))
            status = status | run_epilogue(
                bufs, constants, piece, lines, i64(LINE), image, channel, first + p * desc.i64[W.y_w], outs, some
            )
        return status

    return put_epilogue


def make_put_positions(form: ConvForm) -> tuple[NativeFunction, NativeFunction]:
    """The functions that write all channels of a run of positions to the result, and that give them to the epilogue."""
    real = f64 if form.kind == "f64" else f32
    out_size, size = item_of(form), real.itemsize
    put_run = extern(f"put_{form.name}", f"void(ptr, i64, {real}, i64, ptr, i64)")
    put_channels = extern(f"channels_{form.name}", "void(ptr, i64, ptr, i64, i64, i64, ptr, i64)")
    load_bias = fetch_of(form.target, form.kind if form.kind == "f64" else "f32")[1]
    n, transpose_line = form.tiles[0].panels.n, _make_transpose_line(form)
    put_epilogue = _make_epilogue(form, load_bias, transpose_line)

    @native("void(ptr, ptr, ptr, ptr, ptr, i64, i64, i64, i64)", name=f"by_channel_{form.name}")
    def put_by_channel(desc, box, y, bias, acc, acc_o, acc_position, run, step):
        """Write each channel of `run` positions whose results are `step` apart."""
        for o in range(box.i64[BOX.o1] - box.i64[BOX.o0]):
            b = real(-0.0)  # changes nothing, not even the sign of a zero
            if bias is not None:
                b = load_bias(bias, o * desc.i64[W.bias_o])
            put_run(y + out_size * o * desc.i64[W.y_o], step, b, run, acc + size * o * acc_o, acc_position)

    @native("void(ptr, ptr, ptr, ptr, ptr, i64, i64, i64, i64, ptr)", name=f"positions_{form.name}")
    def put_positions(desc, box, y, bias, acc, acc_o, acc_position, run, step, lines):
        """Write all channels of `run` positions whose results are `step` apart."""
        outs = box.i64[BOX.o1] - box.i64[BOX.o0]
        if acc_position != 1 and desc.i64[W.y_o] == 1:
            put_channels(y, step, bias, desc.i64[W.bias_o], run, outs, acc, acc_position)
        elif acc_position != 1 and run >= n:
            # Contiguous channels of a position: transposed first, some positions at a time
            for first in range(0, run, LINE):
                some = min(i64(LINE), run - first)
                transpose_line(lines, acc, acc_position, first, some, run)
                put_by_channel(desc, box, y + out_size * first * step, bias, lines, i64(LINE), i64(1), some, step)
        else:
            put_by_channel(desc, box, y, bias, acc, acc_o, acc_position, run, step)

    return put_positions, put_epilogue


@native("ptr(ptr, ptr, ptr, i64)", inline=True)
def first_result(desc, box, y, size):
    """Where the results of a box's first channel begin in `y`, whose elements have `size` bytes, at its first position of all."""
    return y + size * (
        desc.i64[W.y_base]
        + box.i64[BOX.chunk_no] * desc.i64[W.y_chunk]
        + box.i64[BOX.group] * desc.i64[W.y_g]
        + box.i64[BOX.o0] * desc.i64[W.y_o]
    )


@native("ptr(ptr, ptr, ptr, i64)", inline=True)
def first_bias(desc, box, bias, size):
    """Where the bias of a box's first channel is."""
    return bias + size * (box.i64[BOX.group] * desc.i64[W.bias_g] + box.i64[BOX.o0] * desc.i64[W.bias_o])


def make_write(form: ConvForm) -> NativeFunction:
    """The function that writes a block of sums to the result, or gives them to the epilogue."""
    out_size, size = item_of(form), (f64 if form.kind == "f64" else f32).itemsize
    put_positions, put_epilogue = make_put_positions(form)

    @native("i32(ptr, ptr, ptr, i64, ptr, ptr, i64, i64, ptr)", name=f"write_{form.name}")
    def write(desc, box, bufs, piece, bias, acc, acc_o, acc_position, lines):
        """Write the block of sums `acc`, strided by output channel and position, to the result."""
        y = first_result(desc, box, bufs.ptr[0], out_size)
        if bias is not None:
            bias = first_bias(desc, box, bias, out_size)
        inside = desc.i64[W.images_inside]
        images, deep = box.i64[BOX.n1] - box.i64[BOX.n0], box.i64[BOX.d1] - box.i64[BOX.d0]
        high, wide = box.i64[BOX.h1] - box.i64[BOX.h0], box.i64[BOX.w1] - box.i64[BOX.w0]
        run, step, each, outer, inner = wide, desc.i64[W.y_w], i64(1), images, i64(1)
        if inside != 0:  # runs of images
            each = inside if inside > 1 else images
            run, step, outer, inner = each, desc.i64[W.y_n], (images + each - 1) // each, wide
        elif desc.i64[W.y_h] == wide * step:  # consecutive rows
            run, high = wide * high, i64(1)
        status: i32 = 0
        for n in range(outer):
            count = min(run, images - n * each) if inside != 0 else run
            for d in range(deep):
                for h in range(high):
                    for w in range(inner):
                        position = ((n * deep + d) * high + h) * inner + w
                        to = (box.i64[BOX.n0] + n * each) * desc.i64[W.y_n] + (box.i64[BOX.d0] + d) * desc.i64[W.y_d]
                        to = to + (box.i64[BOX.h0] + h) * desc.i64[W.y_h]
                        to += (box.i64[BOX.w0] + w) * desc.i64[W.y_w]
                        sums = acc + size * position * run * acc_position
                        if desc.i64[W.epilogue] == NO_EPILOGUE:
                            put_positions(
                                desc, box, y + out_size * to, bias, sums, acc_o, acc_position, count, step, lines
                            )
                        else:
                            image = box.i64[BOX.n0] + n
                            first = desc.i64[W.y_base] + to - image * desc.i64[W.y_n]
                            status = status | put_epilogue(
                                desc, box, bufs, piece, bias, sums, acc_o, acc_position, image, first, count, lines
                            )
        return status

    return write


# ***** a piece *****


@native("i64(ptr, i64, i64, i64)", inline=True)
def filled_outs(desc, outs, wide, lanes):
    """The channels of panels `wide` that hold `outs`; where channels are read in place, a panel of `lanes` may hold the
    remainder."""
    rest = outs % wide
    if rest == 0:
        return outs
    return outs - rest + (lanes if desc.i64[W.channels_inside] != 0 and rest <= lanes else wide)


def _make_one_of(form: ConvForm, tiles: list[RegisterTile], name: str) -> NativeFunction:
    """The function that calls the `placed` (or `rounded`) tile for given numbers of positions and channels."""
    signature, lanes = "void(ptr, ptr, ptr, ptr, ptr, i64, i64, i64)", form.tiles[0].lanes
    placed, several = [extern(t.symbol, signature) for t in tiles], len(form.tiles)
    rows_high, rows_low, one_high, one_low = placed[0], placed[several - 1], placed[several], placed[-1]

    @native("void(ptr, ptr, ptr, ptr, ptr, i64, i64, i64, i64, i64)", name=f"{name}_{form.name}")
    def one_of(slab, weights, positions, offsets, to, row, words, add, outs, few):
        if outs <= lanes:
            if few != 0:
                one_low(slab, weights, positions, offsets, to, row, words, add)
            else:
                one_high(slab, weights, positions, offsets, to, row, words, add)
        elif few != 0:
            rows_low(slab, weights, positions, offsets, to, row, words, add)
        else:
            rows_high(slab, weights, positions, offsets, to, row, words, add)

    return one_of


def _make_placed(form: ConvForm) -> NativeFunction:
    group, lanes, out_size = form.tiles[0].group, form.tiles[0].lanes, item_of(form)
    cell, size = 8 if form.kind == "f64" else 4, held_type(form.kind).itemsize
    wide, high, low = form.tiles[0].columns, form.tiles[0].rows, form.tiles[-1].rows
    to_sums = _make_one_of(form, form.placed, "sums_of")
    to_results = _make_one_of(form, form.rounded, "rounded_of") if form.rounded else to_sums

    @native("void(ptr, ptr, ptr, ptr, ptr, ptr, ptr, i64)", name=f"placed_{form.name}")
    def multiply_placed(desc, box, slab, offsets, weights, acc, y, add):
        """Multiply all tiles of a box whose channels are contiguous in the slab.  `y`: results of the box, to which
        whole tiles write directly, or None."""
        words, outs = box.i64[BOX.steps] // group, box.i64[BOX.o1] - box.i64[BOX.o0]
        across = filled_outs(desc, outs, i64(wide), i64(lanes))
        positions, cursor = stack(8 * high), stack(32)
        memset(cursor, 0, 32)
        j: i64 = 0
        while j < box.i64[BOX.columns]:
            few = i64(desc.i64[W.form] == POSITIONS_LOW or box.i64[BOX.columns] - j <= low)
            rows = i64(low) if few != 0 else i64(high)
            list_positions(desc, box, cursor, positions, rows, i64(size))
            if y is not None and j + rows <= box.i64[BOX.columns]:
                here = y + out_size * j * desc.i64[W.y_w]
                for i in range(0, outs, wide):
                    to_results(
                        slab,
                        weights + cell * i * words,
                        positions,
                        offsets,
                        here + out_size * i,
                        desc.i64[W.y_w],
                        words,
                        add,
                        outs - i,
                        few,
                    )
            else:
                here = acc + cell * j * across
                for i in range(0, outs, wide):
                    to_sums(
                        slab,
                        weights + cell * i * words,
                        positions,
                        offsets,
                        here + cell * i,
                        across,
                        words,
                        add,
                        outs - i,
                        few,
                    )
            j += rows

    return multiply_placed


def _make_listed(form: ConvForm) -> NativeFunction:
    wide, high, low = form.tiles[0].columns, form.tiles[0].rows, form.tiles[-1].rows
    cell, size = 8 if form.kind == "f64" else 4, held_type(form.kind).itemsize
    at_high, at_low = (
        extern(t.symbol, "void(ptr, ptr, ptr, ptr, i64, i64, i64)") for t in (form.listed[0], form.listed[-1])
    )

    @native("void(ptr, ptr, ptr, ptr, ptr, ptr, i64)", name=f"listed_{form.name}")
    def multiply_listed(desc, box, slab, offsets, weights, acc, add):
        """Multiply all tiles of a box whose window panels are ready in the slab."""
        rows = i64(high if desc.i64[W.form] == CHANNELS else low)
        steps, across, outs = box.i64[BOX.steps], box.i64[BOX.columns], box.i64[BOX.o1] - box.i64[BOX.o0]
        for j in range(0, across, wide):
            panel = slab + size * panel_offset(desc, box, j // wide)
            i: i64 = 0
            while i < outs:
                to = acc + cell * (i * across + j)
                if desc.i64[W.form] == CHANNELS and outs - i > low:
                    at_high(weights + cell * i * steps, panel, offsets, to, across, steps, add)
                else:
                    at_low(weights + cell * i * steps, panel, offsets, to, across, steps, add)
                i += rows

    return multiply_listed


def _make_gathered(form: ConvForm) -> NativeFunction:
    tiles, group = form.tiles, form.tiles[0].group
    cell, size, lanes = 8 if form.kind == "f64" else 4, held_type(form.kind).itemsize, tiles[0].lanes
    wide, high, low = tiles[0].columns, tiles[0].rows, tiles[-1].rows
    tile_high, tile_low = (extern(t.symbol, "void(ptr, ptr, ptr, i64, i64, i64)") for t in (tiles[0], tiles[-1]))
    gather_wide, gather_high, gather_low = (
        extern(form.gathers[n].symbol, "void(ptr, ptr, ptr, i64, ptr, i64)") for n in (wide, high, low)
    )
    gather_short, half = extern(form.gathers[0].symbol, "void(ptr, ptr, ptr, i64, ptr, i64)"), form.gathers[0].lanes

    @native("void(ptr, ptr, ptr, ptr, ptr, ptr, ptr, i64)", name=f"multiply_{form.name}")
    def multiply(desc, box, slab, offsets, panel, weights, acc, add):
        """Multiply all tiles of a box for one part of the steps."""
        tile_form = desc.i64[W.form]
        rows = i64(high if tile_form % 2 == BOTH else low)
        width = i64(wide) if tile_form < POSITIONS else rows  # of panels of windows
        other = rows if tile_form < POSITIONS else i64(wide)
        moves = stack(16 * 128)
        cursor = stack(64)
        memset(cursor, 0, 64)
        run = box.i64[BOX.n1] - box.i64[BOX.n0] if desc.i64[W.images_inside] != 0 else box.i64[BOX.w1] - box.i64[BOX.w0]
        short = run <= half  # runs that fit half a vector
        steps, outs = box.i64[BOX.steps], box.i64[BOX.o1] - box.i64[BOX.o0]
        words = (steps + group - 1) // group
        across = (
            (box.i64[BOX.columns] + width - 1) // width * width
            if tile_form < POSITIONS
            else (outs + other - 1) // other * other
        )
        j: i64 = 0
        while j < box.i64[BOX.columns]:
            # A remainder that fits the tile with fewer rows
            if tile_form == POSITIONS and box.i64[BOX.columns] - j <= low:
                tile_form, width = i64(POSITIONS_LOW), i64(low)
            n = list_moves(
                desc,
                box,
                cursor,
                moves,
                width,
                i64(half) if short and tile_form < POSITIONS else i64(lanes),
                i64(size),
                i64(cell),
            )
            if tile_form < POSITIONS and short:
                gather_short(panel, slab, offsets, steps, moves, n)
            elif tile_form < POSITIONS:
                gather_wide(panel, slab, offsets, steps, moves, n)
            elif tile_form == POSITIONS:
                gather_high(panel, slab, offsets, steps, moves, n)
            else:
                gather_low(panel, slab, offsets, steps, moves, n)
            i: i64 = 0
            while i < outs:
                part = weights + cell * i * words
                if tile_form == CHANNELS and outs - i > low:
                    tile_high(part, panel, acc + cell * (i * across + j), across, words, add)
                elif tile_form < POSITIONS:
                    tile_low(part, panel, acc + cell * (i * across + j), across, words, add)
                elif tile_form == POSITIONS:
                    tile_high(panel, part, acc + cell * (j * across + i), across, words, add)
                else:
                    tile_low(panel, part, acc + cell * (j * across + i), across, words, add)
                i += other
            j += width

    return multiply


def _make_multiply(form: ConvForm) -> NativeFunction:
    """Multiply all tiles of a box for one part of the steps, by how its windows lie in the slab."""
    multiply_placed, multiply_listed, multiply = _make_placed(form), _make_listed(form), _make_gathered(form)
    listed = form.listed[0] is not form.tiles[0]

    @native("void(ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, i64)", name=f"part_{form.name}")
    def multiply_part(desc, box, slab, offsets, panel, weights, acc, y, add):
        if desc.i64[W.channels_inside] != 0:
            multiply_placed(desc, box, slab, offsets, weights, acc, y, add)
        elif listed and desc.i64[W.images_inside] > 1:
            multiply_listed(desc, box, slab, offsets, weights, acc, add)
        else:
            multiply(desc, box, slab, offsets, panel, weights, acc, add)

    return multiply_part


@native("i64(i64)", inline=True)
def whole_lines(nbytes):
    """`nbytes` rounded up to whole cache lines."""
    return (nbytes + 63) // 64 * 64


@native("i64(ptr)", inline=True)
def parts_of(desc):
    """The number of parts of the steps."""
    return desc.i64[W.parts_c] * desc.i64[W.parts_d] * desc.i64[W.parts_h] * desc.i64[W.parts_w]


def _make_pack(form: ConvForm) -> NativeFunction:
    wide, high, low = form.tiles[0].columns, form.tiles[0].rows, form.tiles[-1].rows
    lanes = form.tiles[0].lanes
    pack_wide, pack_one, pack_high, pack_low = (
        make_weights(form.kind, form.source, form.tiles[0], width) for width in (wide, lanes, high, low)
    )
    cell, group = 8 if form.kind == "f64" else 4, form.tiles[0].group

    @native("void(ptr, ptr, ptr, ptr)", name=f"weights_{form.name}")
    def pack_weights(desc, box, out, w):
        """Pack the box's output channels for its part of the steps: panels as high as the tile, and a lower one for a
        remainder that it holds."""
        start, end = box.i64[BOX.o0], box.i64[BOX.o1]
        if desc.i64[W.form] >= POSITIONS:
            rest = (end - start) % wide
            if desc.i64[W.channels_inside] == 0 or rest > lanes:
                rest = 0
            if end - rest > start:
                box.i64[BOX.o1] = end - rest
                pack_wide(desc, box, out, w)
            if rest > 0:
                box.i64[BOX.o0], box.i64[BOX.o1] = end - rest, end
                pack_one(desc, box, out + cell * (end - rest - start) * ((box.i64[BOX.steps] + group - 1) // group), w)
        elif desc.i64[W.form] == LOW:
            pack_low(desc, box, out, w)
        else:
            rest = (end - start) % high
            if rest > low:
                rest = 0
            if end - rest > start:
                box.i64[BOX.o1] = end - rest
                pack_high(desc, box, out, w)
            if rest > 0:
                box.i64[BOX.o0], box.i64[BOX.o1] = end - rest, end
                pack_low(desc, box, out + cell * (end - rest - start) * ((box.i64[BOX.steps] + group - 1) // group), w)
        box.i64[BOX.o0], box.i64[BOX.o1] = start, end

    return pack_weights


@native("ptr(ptr, ptr)", inline=True)
def kept_weights(desc, memory):
    """Where weights were packed in advance, by the call's memory for that."""
    if desc.i64[W.pinned] == 0:
        return memory
    return packed_place(memory)


def _make_weights_offset(form: ConvForm) -> NativeFunction:
    group, cell = form.tiles[0].group, 8 if form.kind == "f64" else 4
    wide, high, low, lanes = form.tiles[0].columns, form.tiles[0].rows, form.tiles[-1].rows, form.tiles[0].lanes

    @native("i64(ptr, ptr, i64, i64)", name=f"weights_offset_{form.name}")
    def weights_offset(desc, box, part, words):
        """The offset of the box's panels among those packed in advance; `words` counts packed words of the largest
        part."""
        width = i64(wide if desc.i64[W.form] >= POSITIONS else high if desc.i64[W.form] == CHANNELS else low)
        each = filled_outs(desc, desc.i64[W.o], width, i64(lanes)) * words
        own = (box.i64[BOX.steps] + group - 1) // group
        return desc.i64[W.packed] + cell * ((box.i64[BOX.group] * parts_of(desc) + part) * each + box.i64[BOX.o0] * own)

    return weights_offset


def make_pack_all(form: ConvForm) -> NativeFunction:
    """The kernel that packs the weights once for all pieces.  bufs: panels, w; a piece is one part of one group."""
    return make_packing(form.name, form.tiles[0].group, _make_pack(form), _make_weights_offset(form))


def make_packing(name: str, group: int, pack_weights: NativeFunction, weights_offset: NativeFunction) -> NativeFunction:
    """The same around the functions that pack a part of a group, and that say where it lies."""

    @native("i32(ptr, ptr, i64)", name=f"rl_conv_pack_{name}")
    def pack_all(bufs, ints, piece):
        desc = ints + 64
        while piece >= desc.i64[W.g] * parts_of(desc):
            piece -= desc.i64[W.g] * parts_of(desc)
            desc = desc + W_BYTES
        box = stack(BOX_BYTES)
        find_box(desc, box, i64(0))
        find_part(desc, box, i64(0))
        words = (box.i64[BOX.steps] + group - 1) // group
        part = piece % parts_of(desc)
        box.i64[BOX.group], box.i64[BOX.o0], box.i64[BOX.o1] = piece // parts_of(desc), 0, desc.i64[W.o]
        find_part(desc, box, part)
        place, mark, state = bufs.ptr[0], i64(PACKED), desc.ptr[W.pinned]
        if state is not None:
            place = place_to_pack(state, bufs.ptr[0], bufs.i64[1])
            if bufs.ptr[0].ptr[0] is not None:
                mark = begin_packing(state, piece)
                if mark == PACKED:
                    return 0
        pack_weights(desc, box, place + weights_offset(desc, box, part, words), bufs.ptr[1])
        if mark != PACKED:
            end_packing(state, piece, mark)
        return 0

    return pack_all


def _make_results(form: ConvForm) -> tuple[NativeFunction, NativeFunction]:
    cell, size, high, low = 8 if form.kind == "f64" else 4, item_of(form), form.tiles[0].rows, form.tiles[-1].rows
    put_channels = extern(f"channels_{form.name}", "void(ptr, i64, ptr, i64, i64, i64, ptr, i64)")

    @native("ptr(ptr, ptr, ptr, i64)", name=f"results_{form.name}")
    def find_results(desc, box, bufs, across):
        """The results of a box to which tiles may write directly, or None: channels must fill vectors and positions
        must be evenly spaced."""
        w, h, d = desc.i64[W.w], desc.i64[W.h], desc.i64[W.d]
        wide, high_, deep = (
            box.i64[BOX.w1] - box.i64[BOX.w0],
            box.i64[BOX.h1] - box.i64[BOX.h0],
            box.i64[BOX.d1] - box.i64[BOX.d0],
        )
        if (
            desc.i64[W.channels_inside] == 0
            or desc.i64[W.epilogue] != NO_EPILOGUE
            or desc.i64[W.bias_o] >= 0
            or desc.i64[W.y_o] != 1
        ):
            return None
        if box.i64[BOX.o1] - box.i64[BOX.o0] != across:
            return None
        even = high_ == 1 or (wide == w and desc.i64[W.y_h] == w * desc.i64[W.y_w])
        even = even and (deep == 1 or (high_ == h and desc.i64[W.y_d] == h * desc.i64[W.y_h]))
        if not even or (
            box.i64[BOX.n1] - box.i64[BOX.n0] > 1 and (deep != d or desc.i64[W.y_n] != d * desc.i64[W.y_d])
        ):
            return None
        offset = (
            desc.i64[W.y_base]
            + box.i64[BOX.chunk_no] * desc.i64[W.y_chunk]
            + box.i64[BOX.group] * desc.i64[W.y_g]
            + box.i64[BOX.o0]
        )
        offset += (
            box.i64[BOX.n0] * desc.i64[W.y_n]
            + box.i64[BOX.d0] * desc.i64[W.y_d]
            + box.i64[BOX.h0] * desc.i64[W.y_h]
            + box.i64[BOX.w0] * desc.i64[W.y_w]
        )
        return bufs.ptr[0] + size * offset

    @native("void(ptr, ptr, ptr, ptr, i64)", name=f"rest_{form.name}")
    def put_rest(desc, box, y, acc, across):
        """Write the positions at the end that fill no tile; their sums are in `acc`."""
        count = box.i64[BOX.columns]
        rows = i64(low) if desc.i64[W.form] == POSITIONS_LOW else i64(high)
        rest = count % rows
        if rest == low:
            rest = 0
        first = count - rest
        put_channels(
            y + size * first * desc.i64[W.y_w],
            desc.i64[W.y_w],
            None,
            i64(0),
            rest,
            across,
            acc + cell * first * across,
            across,
        )

    return find_results, put_rest


def make_conv(form: ConvForm) -> NativeFunction:
    """The kernel `i32 (ptr bufs, ptr ints, i64 piece)`.  bufs: result, x, w (or its panels), and the bias where the
    descriptor has a stride for it."""
    tiles, group = form.tiles, form.tiles[0].group
    cell, size = 8 if form.kind == "f64" else 4, held_type(form.kind).itemsize
    wide, high, low = tiles[0].columns, tiles[0].rows, tiles[-1].rows
    fill_slab = make_slab(form.kind, form.source, form.panels, form.spaced)
    pack_weights, weights_offset = _make_pack(form), _make_weights_offset(form)
    multiply, write = _make_multiply(form), make_write(form)
    real = form.target == ("f64" if form.kind == "f64" else "f32")  # results have the dtype of the sums
    rounded = bool(form.rounded)  # tiles can round their last sums
    find_results, put_rest = _make_results(form)
    lanes = tiles[0].lanes

    @native("i32(ptr, ptr, i64)", name=f"rl_conv_{form.name}")
    def conv(bufs, ints, piece):
        desc = ints + 64
        while piece >= desc.i64[W.pieces]:
            piece -= desc.i64[W.pieces]
            desc = desc + W_BYTES
        box = stack(BOX_BYTES)
        find_box(desc, box, piece)
        channels = desc.i64[W.form] < POSITIONS
        rows = i64(high if desc.i64[W.form] % 2 == BOTH else low)
        width = i64(wide) if channels else rows
        other = rows if channels else i64(wide)
        outs = filled_outs(desc, box.i64[BOX.o1] - box.i64[BOX.o0], other, i64(lanes))
        positions = (box.i64[BOX.columns] + width - 1) // width * width
        first = box.i64[BOX.chunk_no] * desc.i64[W.chunk]
        last = min(first + desc.i64[W.chunk], parts_of(desc))
        find_part(desc, box, i64(0))  # no part is larger than the first
        lay_slab(desc, box)
        ready = desc.i64[W.packed] >= 0
        words = (box.i64[BOX.steps] + group - 1) // group
        acc_bytes, panel_bytes = whole_lines(cell * outs * positions), whole_lines(cell * words * width + SLACK)
        weight_bytes, table_bytes = (
            i64(0) if ready else whole_lines(cell * words * outs),
            whole_lines(8 * box.i64[BOX.steps]),
        )
        slab_bytes = size * box.i64[BOX.s_c] * (box.i64[BOX.c1] - box.i64[BOX.c0]) + SLACK
        if desc.i64[W.channels_inside] != 0:
            slab_bytes = size * box.i64[BOX.s_n] * (box.i64[BOX.n1] - box.i64[BOX.n0])
        line_bytes = i64(0) if channels or desc.i64[W.y_o] == 1 else cell * (LINE * outs + wide)
        slot = borrow(acc_bytes + panel_bytes + weight_bytes + table_bytes + max(slab_bytes, line_bytes))
        if slot < 0:
            return rl_fail(bufs, piece, 4, 0, 0, 0)
        acc = borrowed(slot)
        panel = acc + acc_bytes
        weights = panel + panel_bytes
        offsets = weights + weight_bytes
        slab = offsets + table_bytes
        y: ptr = None  # set where tiles may write sums to the result
        if (real and first < last) or (rounded and last - first == 1):
            y = find_results(desc, box, bufs, outs)
        if first >= last:
            memset(acc, 0, acc_bytes)
        for part in range(first, last):
            find_part(desc, box, part)
            lay_slab(desc, box)
            fill_slab(desc, box, slab, bufs.ptr[desc.i64[W.operand]])
            list_steps(desc, box, offsets, i64(size))
            if ready:
                memory = bufs.ptr[desc.i64[W.operand] + 1]
                weights = kept_weights(desc, memory) + weights_offset(desc, box, part, words)
            else:
                pack_weights(desc, box, weights, bufs.ptr[desc.i64[W.operand] + 1])
            multiply(desc, box, slab, offsets, panel, weights, acc, y, i64(part > first))
        bias: ptr = None
        if desc.i64[W.bias_o] >= 0:
            bias = bufs.ptr[desc.i64[W.operand] + 2]
        across = positions if channels else outs
        if y is not None:
            put_rest(desc, box, y, acc, outs)
            give_back(slot)
            return 0
        status = write(
            desc, box, bufs, piece, bias, acc, across if channels else i64(1), i64(1) if channels else across, slab
        )
        give_back(slot)
        return status

    return conv


def _make_put_sums(kind: str, target: str) -> NativeFunction:
    """Give the sums of one channel and image to the epilogue, as rectangles of one channel."""
    real = f64 if kind == "f64" else f32
    size = real.itemsize

    @native("i32(ptr, ptr, i64, ptr, i64, i64, i64)", name=f"put_rectangle_{kind}_{target}")
    def put_rectangle(desc, bufs, piece, sums, image, first, count):
        """Give `count` positions from `first` on."""
        at = desc + desc.i64[W.epilogue_at]
        if desc.i64[W.epilogue] == POSITION_ROWS:
            return run_epilogue(bufs, at, piece, sums, i64(1), image, first, piece, count, i64(1))
        return run_epilogue(bufs, at, piece, sums, count, image, piece, first, i64(1), count)

    @native("i32(ptr, ptr, i64, ptr, i64)", name=f"put_sums_{kind}_{target}")
    def put_sums(desc, bufs, piece, sums, image):
        """Give all positions of an image; those of a rectangle are `apart`, and are collected first."""
        apart, wide = desc.i64[W.apart], desc.i64[W.w]
        positions = desc.i64[W.d] * desc.i64[W.h] * wide
        if apart <= 1:
            return put_rectangle(desc, bufs, piece, sums, image, i64(0), positions)
        run = positions if wide % apart == 0 else wide  # across rows, positions are evenly apart only there
        slot = borrow(size * run)
        if slot < 0:
            return rl_fail(bufs, piece, 4, 0, 0, 0)
        line, status = borrowed(slot), i32(0)
        for row in range(positions // max(run, 1)):
            begin = row * run
            for phase in range(min(apart, run)):
                count = (run - phase + apart - 1) // apart
                for i in range(count):
                    store(real, line, i, load(real, sums, begin + phase + i * apart))
                status = status | put_rectangle(desc, bufs, piece, line, image, begin + phase, count)
        give_back(slot)
        return status

    return put_sums


def make_sum_run(kind: str, target: str) -> NativeFunction:
    """The loops of `make_sum_chunks` for the vectoriser, compiled apart from their caller."""
    real, narrow = f64 if kind == "f64" else f32, target in ("f16", "bf16")
    rounded, size = half_bits if target == "f16" else bfloat_bits, real.itemsize

    @native(f"void(ptr, ptr, i64, i64, i64, i64, {real})", name=f"sum_run_{kind}_{target}")
    def sum_run(y, x, count, y_step, chunks, step, bias):
        """Sum `count` contiguous elements of x over all chunks and write them `y_step` apart; 0 leaves the sums
        contiguous and unrounded."""
        total = stack(8 * 512)
        for first in range(0, count, 512):
            most = min(i64(512), count - first)
            memcpy(total, x + size * first, size * most)
            for chunk in range(1, chunks):
                there = x + size * (first + chunk * step)
                for i in range(most):
                    store(real, total, i, load(real, total, i) + load(real, there, i))
            for i in range(most):
                if y_step == 0:
                    store(real, y, first + i, load(real, total, i) + bias)
                elif narrow:
                    y.u16[(first + i) * y_step] = rounded(total.f32[i] + bias)
                else:
                    store(real, y, (first + i) * y_step, load(real, total, i) + bias)

    return sum_run


def make_sum_chunks(kind: str, target: str) -> NativeFunction:
    """Add the results of the chunks, [chunks, G, O, D, H, W, N] or [chunks, G, O, N, D, H, W], into the result, or
    (second order) give the sums to the epilogue; a piece is one output channel."""
    real = f64 if kind == "f64" else f32
    size, out_size = real.itemsize, 2 if target in ("f16", "bf16") else real.itemsize
    load_bias, put_sums = fetch_of(target, kind)[1], _make_put_sums(kind, target)
    sum_run = extern(f"sum_run_{kind}_{target}", f"void(ptr, ptr, i64, i64, i64, i64, {real})")

    @native("i32(ptr, ptr, i64)", name=f"rl_conv_sum_{kind}_{target}")
    def sum_chunks(bufs, ints, piece):
        desc = ints + 64
        group, channel = piece // desc.i64[W.o], piece % desc.i64[W.o]
        images, deep, high, wide = desc.i64[W.n], desc.i64[W.d], desc.i64[W.h], desc.i64[W.w]
        all_ = images * deep * high * wide
        step, chunks = desc.i64[W.g] * desc.i64[W.o] * all_, desc.i64[W.chunks]
        x = bufs.ptr[desc.i64[W.operand]] + size * piece * all_
        y = bufs.ptr[0] + out_size * (desc.i64[W.y_base] + group * desc.i64[W.y_g] + channel * desc.i64[W.y_o])
        bias = real(-0.0)
        if desc.i64[W.bias_o] >= 0:
            bias = load_bias(
                bufs.ptr[desc.i64[W.operand] + 2], group * desc.i64[W.bias_g] + channel * desc.i64[W.bias_o]
            )
        if desc.i64[W.epilogue] != NO_EPILOGUE:
            slot = borrow(size * all_)
            if slot < 0:
                return rl_fail(bufs, piece, 4, 0, 0, 0)
            sums, positions = borrowed(slot), deep * high * wide
            sum_run(sums, x, all_, i64(0), chunks, step, bias)
            status: i32 = 0
            for n in range(images):
                status = status | put_sums(desc, bufs, piece, sums + size * n * positions, n)
            give_back(slot)
            return status
        inside = desc.i64[W.images_inside] != 0
        outer, run, y_step, inner = images, wide, desc.i64[W.y_w], i64(1)
        if inside:
            outer, run, y_step, inner = i64(1), images, desc.i64[W.y_n], wide
        if not inside and desc.i64[W.y_h] == wide * desc.i64[W.y_w]:  # consecutive rows
            run, high = wide * high, i64(1)
        for n in range(outer):
            for d in range(deep):
                for h in range(high):
                    for w in range(inner):
                        to = n * desc.i64[W.y_n] + d * desc.i64[W.y_d] + h * desc.i64[W.y_h] + w * desc.i64[W.y_w]
                        sum_run(y + out_size * to, x, run, y_step, chunks, step, bias)
                        x = x + size * run
        return 0

    return sum_chunks
