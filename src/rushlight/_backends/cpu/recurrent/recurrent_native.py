"""Recurrent layers over whole sequences, in the native language: the steps around a tile of the matrix product and a
cell.

Sequences are independent, so a piece takes some sequences through all steps and no thread waits for another.  Where all
sequences make one piece, and the weight is large, threads share the units of each step instead (`make_shared_forward`).
The recurrent weight is packed once into panels; each step multiplies the states by it, a few hidden units at a time,
and the cell takes the product while it is in the L1 cache.  In the backward the slopes of a step are multiplied by the
weight, and sums over steps are left to large products.
"""

from __future__ import annotations

import math

from rushlight._backends.cpu.microkernels.register_tile import RegisterTile
from rushlight._backends.cpu.recurrent.recurrent_cells import BACKWARD_CELL, FORWARD_CELL
from rushlight._native import (
    Record,
    Type,
    atomic_add,
    atomic_cas,
    atomic_load,
    extern,
    f32,
    f64,
    i64,
    load,
    memcpy,
    memset,
    native,
    pause,
    prefetch,
    ptr,
    stack,
    store,
)
from rushlight._native.function import NativeFunction
from rushlight._prims.nn.recurrent_cell import GATES, KEPT, SLOPES

__all__ = [
    "DEPTH", "LINE", "Shape", "make_backward", "make_forward", "make_pack_backward", "make_pack_forward", "make_shared_forward", "make_sums",
]  # fmt: skip

OUTPUTS = 2
STEPS, BATCH, TOTAL, UNITS, CHUNK, REVERSE, PACKED, KEEP, WEIGHTS, EACH, PRODUCT, PIECES, SHARED, PARTS = range(8, 22)
DEPTH = 256  # steps of a product over slopes in one block: a panel of the weight stays in the L1 cache

LINE = 64  # bytes between words that different threads write

sched_yield = extern("sched_yield", "i32()")
rl_fail = extern("rl_fail", "i32(ptr, i64, i64, i64, i64, i64)")


class Shape:
    """The division of a layer's units into panels of a tile: `groups` of `blocks` vectors of units, `panels` for each
    group."""

    __slots__ = (
        "blocks",
        "columns",
        "extra",
        "lanes",
        "mode",
        "panels",
        "real",
        "rows",
        "tile",
        "transposer",
        "vectors",
    )

    def __init__(
        self, mode: str, kind: str, tile: RegisterTile, transposer: RegisterTile, extra: bool = False, units: int = 0
    ) -> None:
        """`transposer` is the tile whose packing routine is used for weights; `extra`: in the backward, saved values
        have cotangents too.

        The numbers that a cell reads and writes for a group of a multiple of `units` are whole lines of memory.
        """
        gates = GATES[mode]
        self.mode, self.tile, self.transposer, self.extra = mode, tile, transposer, extra
        self.real: Type = f32 if kind == "f32" else f64
        self.lanes, self.vectors, self.columns, self.rows = tile.lanes, tile.vectors, tile.columns, tile.rows
        lines = max(1, LINE // (self.lanes * self.real.itemsize))
        least = lines if units and units % (lines * self.lanes) == 0 else 1
        self.blocks = next(n for n in range(least, least + self.vectors) if n * gates % self.vectors == 0)
        self.panels = self.blocks * gates // self.vectors

    def groups(self, units: int) -> int:
        """The number of groups that the units fill."""
        return -(-units // (self.lanes * self.blocks))

    @property
    def name(self) -> str:
        blocks = f"_{self.blocks}" if self.blocks > self.vectors // math.gcd(self.vectors, GATES[self.mode]) else ""
        return f"{self.mode}_{self.tile.kind}_{self.rows}x{self.vectors}{blocks}{'_extra' if self.extra else ''}"


# ***** packing *****


def make_pack_forward(shape: Shape) -> NativeFunction:
    """The weight [gates * units, units] as panels of its transpose; bufs: panels, weight; a piece is a group."""
    real, size, lanes, columns = shape.real, shape.real.itemsize, shape.lanes, shape.columns
    vectors, panels, blocks, gates, square = (
        shape.vectors,
        shape.panels,
        shape.blocks,
        GATES[shape.mode],
        shape.transposer.square,
    )
    transpose = extern(shape.transposer.transpose_symbol, "void(ptr, ptr, i64, i64, i64)")

    @native("i32(ptr, ptr, i64)", name=f"rl_pack_{shape.name}")
    def pack(bufs, ints, piece):
        units = ints.i64[UNITS]
        if piece == 0:
            memset(bufs.ptr[0] + ints.i64[SHARED], 0, LINE * (1 + ints.i64[PARTS]))
        whole = units // square * square
        for k in range(panels * vectors):
            unit = (piece * blocks + k // gates) * lanes
            have = max(min(units - unit, i64(lanes)), i64(0))
            out = bufs.ptr[0] + size * (((piece * panels + k // vectors) * units) * columns + k % vectors * lanes)
            x = bufs.ptr[1] + size * (k % gates * units + unit) * units
            first: i64 = 0
            if have == lanes:
                first = whole
                if whole > 0:
                    for i in range(0, lanes, square):
                        transpose(out + size * i, x + size * i * units, units, columns, whole)
            for d in range(first, units):
                for lane in range(lanes):
                    value = real(0)
                    if lane < have:
                        value = load(real, x, lane * units + d)
                    store(real, out, d * columns + lane, value)
        return 0

    return pack


def make_pack_backward(shape: Shape) -> NativeFunction:
    """The weight as panels of its columns, its rows in the order of the slopes; a piece is a panel."""
    real, size, columns, parts = shape.real, shape.real.itemsize, shape.columns, GATES[shape.mode]
    shift = 2 if shape.mode == "gru" else 0

    @native("i32(ptr, ptr, i64)", name=f"rl_pack_back_{shape.name}")
    def pack(bufs, ints, piece):
        units = ints.i64[UNITS]
        first = piece * columns
        have = min(units - first, i64(columns))
        out = bufs.ptr[0] + size * first * units * parts
        for part in range(parts):
            x = bufs.ptr[1] + size * ((part + shift) % parts * units * units + first)
            for d in range(units):
                if have == columns:
                    memcpy(out, x + size * d * units, size * columns)
                else:
                    for k in range(columns):
                        value = real(0)
                        if k < have:
                            value = load(real, x, d * units + k)
                        store(real, out, k, value)
                out = out + size * columns
        return 0

    return pack


def _make_pack_rows(shape: Shape) -> NativeFunction:
    """Pack rows as a panel [k][rows of the tile], with zeros for missing rows."""
    real, size, high, square = shape.real, shape.real.itemsize, shape.rows, shape.tile.square
    transpose = extern(shape.tile.transpose_symbol, "void(ptr, ptr, i64, i64, i64)")

    @native("void(ptr, ptr, i64, i64, i64)", name=f"pack_rows_{shape.name}")
    def pack_rows(out, x, rows, row, depth):
        if high == 1:
            memcpy(out, x, size * depth)
            return
        first: i64 = 0
        if rows == high:
            first = depth // square * square
            if first > 0:
                for i in range(0, high, square):
                    at = min(i, high - square)  # the last square may overlap the one before
                    transpose(out + size * at, x + size * at * row, row, high, first)
        for k in range(first, depth):
            for r in range(high):
                value = real(0)
                if r < rows:
                    value = load(real, x, r * row + k)
                store(real, out, k * high + r, value)

    return pack_rows


# ***** forward *****


@native("void(ptr, i64, i64, i64)")
def expect(x, rows, row, nbytes):
    """Prefetch memory that a cell reads soon: its short rows are too many for the hardware prefetcher."""
    for r in range(rows):
        for k in range(0, nbytes, 64):
            prefetch(x + r * row + k)


def _make_groups(shape: Shape) -> NativeFunction:
    mode, kind = shape.mode, shape.tile.kind
    size, lanes, columns, high = shape.real.itemsize, shape.lanes, shape.columns, shape.rows
    panels, blocks, gates = shape.panels, shape.blocks, GATES[mode]
    product = extern(shape.tile.symbol, "void(ptr, ptr, ptr, i64, i64, i64)")
    cell = extern(f"rl_cell_{mode}_{kind}", FORWARD_CELL)
    width, kept = panels * columns, KEPT[mode]

    @native("void(ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, i64, i64, i64, i64)", name=f"groups_{shape.name}")
    def some_groups(weight, a, z, x, b, h, c, hs, g, cs, units, rows, first, last):
        """Compute some groups of units in one step: the pointers are to the first row that takes part."""
        for group in range(first, last):
            at = size * group * blocks * lanes
            expect(x + at, rows * gates, size * units, size * lanes * blocks)
            if g is not None:
                expect(g + at, rows * kept, size * units, size * lanes * blocks)
            for p in range(panels):
                panel = weight + size * (group * panels + p) * units * columns
                for r in range(0, rows, high):
                    product(a + size * r * units, panel, z + size * (r * width + p * columns), width, units, 0)
            for k in range(blocks):
                unit = (group * blocks + k) * lanes
                if unit < units:
                    at = size * unit
                    kept_at = g if g is None else g + at
                    cell(
                        z + size * k * gates * lanes,
                        width,
                        x + at,
                        units,
                        b + at,
                        h + at,
                        c + at,
                        hs + at,
                        kept_at,
                        cs + at,
                        rows,
                        min(units - unit, i64(lanes)),
                    )

    return some_groups


def _make_step(shape: Shape) -> NativeFunction:
    size, gates, kept, lstm = shape.real.itemsize, GATES[shape.mode], KEPT[shape.mode], shape.mode == "lstm"
    states = 2 if lstm else 1
    some_groups = _make_groups(shape)

    @native("void(ptr, ptr, ptr, ptr, ptr, ptr, i64, i64, i64, i64)", name=f"step_{shape.name}")
    def step(bufs, ints, a, z, h, c, at, rows, first, last):
        """Compute some groups of units in one step, whose rows begin at row `at`: `a` holds the packed states, `z` is
        memory for their product."""
        operands = bufs + 8 * ints.i64[OUTPUTS]
        units = ints.i64[UNITS]
        row = size * units
        g: ptr = None
        cs = h
        if kept > 0 and ints.i64[KEEP] != 0:
            g = bufs.ptr[1 + states] + at * row * kept
            if lstm:
                cs = bufs.ptr[2 + states] + at * row
        some_groups(
            operands.ptr[0],
            a,
            z,
            operands.ptr[1] + at * row * gates,
            operands.ptr[3],
            h,
            c,
            bufs.ptr[0] + at * row,
            g,
            cs,
            units,
            rows,
            first,
            last,
        )

    return step


def make_forward(shape: Shape) -> NativeFunction:
    """`recurrence`; bufs: results, scratch memory that begins with the packed weight, operands; a piece is CHUNK
    sequences."""
    size, lstm = shape.real.itemsize, shape.mode == "lstm"
    states = 2 if lstm else 1
    step, pack_rows = _make_step(shape), _make_pack_rows(shape)
    high, wide = shape.rows, shape.lanes * shape.blocks

    @native("i32(ptr, ptr, i64)", name=f"rl_recurrence_{shape.name}")
    def forward(bufs, ints, piece):
        operands = bufs + 8 * ints.i64[OUTPUTS]
        batch, total, units, reverse = ints.i64[BATCH], ints.i64[TOTAL], ints.i64[UNITS], ints.i64[REVERSE]
        first = piece * ints.i64[CHUNK]
        sequences = min(ints.i64[CHUNK], batch - first)
        row = size * units
        h = bufs.ptr[1] + first * row
        memcpy(h, operands.ptr[4] + first * row, sequences * row)
        c = h
        if lstm:
            c = bufs.ptr[2] + first * row
            memcpy(c, operands.ptr[5] + first * row, sequences * row)
        a = operands.ptr[0] + ints.i64[WEIGHTS] + piece * ints.i64[EACH]
        step_row = total if reverse != 0 else i64(0)
        for s in range(ints.i64[STEPS]):
            count = batch
            if ints.i64[PACKED] != 0:
                count = operands.ptr[4 + states].i64[ints.i64[STEPS] - 1 - s if reverse != 0 else s]
            if reverse != 0:
                step_row -= count
            if count < 0 or count > batch or step_row < 0 or step_row + count > total:
                return rl_fail(bufs, piece, 6, count, 0, 0)
            rows = min(count - first, sequences)
            if rows > 0:
                for r in range(0, rows, high):
                    pack_rows(a + r * row, h + r * row, min(rows - r, i64(high)), units, units)
                step(bufs, ints, a, a + ints.i64[PRODUCT], h, c, step_row + first, rows, 0, (units + wide - 1) // wide)
            if reverse == 0:
                step_row += count
        return 0

    return forward


# ***** forward, few sequences *****


@native("void(ptr, i64)")
def await_count(count, wanted):
    """Wait until the counter reaches `wanted`: for the parts of a step that other threads have taken."""
    k = 0
    while atomic_load(i64, count, 0) < wanted:
        pause()
        k += 1
        if k & 1023 == 0:
            sched_yield()


def make_shared_forward(shape: Shape) -> NativeFunction:
    """`recurrence` where all sequences fill one tile: threads share the units of each step, so that each reads only its
    part of the weight.

    A piece is one participating thread.  It takes free parts of a step, first those that it had before, because their
    weights are in its cache; then it waits for the parts that others took.  A late thread finds nothing left to do.
    """
    size, lstm = shape.real.itemsize, shape.mode == "lstm"
    high, wide = shape.rows, shape.lanes * shape.blocks
    step, pack_rows = _make_step(shape), _make_pack_rows(shape)

    @native("void(ptr, ptr, i64, i64)", name=f"part_{shape.name}")
    def run_part(bufs, ints, phase, part):
        """The units of a part: their initial states in phase 0, then a step in each phase."""
        operands = bufs + 8 * ints.i64[OUTPUTS]
        batch, units, parts, groups = (
            ints.i64[BATCH],
            ints.i64[UNITS],
            ints.i64[PARTS],
            (ints.i64[UNITS] + wide - 1) // wide,
        )
        first, last = part * groups // parts, (part + 1) * groups // parts
        row, unit = size * units, first * wide
        have = min(last * wide, units) - unit
        h, c = bufs.ptr[1], bufs.ptr[1]
        if lstm:
            c = bufs.ptr[2]
        # Packed states: those that this step reads, and those that it writes
        turns = operands.ptr[0] + ints.i64[WEIGHTS]
        if phase == 0:
            for r in range(batch):
                memcpy(h + r * row + size * unit, operands.ptr[4] + r * row + size * unit, size * have)
                if lstm:
                    memcpy(c + r * row + size * unit, operands.ptr[5] + r * row + size * unit, size * have)
        else:
            at = (phase - 1) * batch
            if ints.i64[REVERSE] != 0:
                at = (ints.i64[STEPS] - phase) * batch
            step(
                bufs,
                ints,
                turns + (phase + 1) % 2 * high * row,
                turns + ints.i64[PRODUCT] + part * ints.i64[EACH],
                h,
                c,
                at,
                batch,
                first,
                last,
            )
        pack_rows(turns + phase % 2 * high * row + size * high * unit, h + size * unit, batch, units, have)

    @native("i32(ptr, ptr, i64)", name=f"rl_recurrence_shared_{shape.name}")
    def shared(bufs, ints, piece):
        parts, phases = ints.i64[PARTS], ints.i64[STEPS] + 1
        count = bufs.ptr[ints.i64[OUTPUTS]] + ints.i64[SHARED]
        taken = count + LINE
        way = i64(1) if 2 * piece < parts else parts - 1  # the caller has the first piece, other threads the last ones
        phase = atomic_load(i64, count, 0) // parts
        while phase < phases:
            part = piece
            for _k in range(parts):
                if atomic_load(i64, taken + LINE * part, 0) == phase:
                    if atomic_cas(i64, taken + LINE * part, 0, phase, phase + 1) == phase:
                        run_part(bufs, ints, phase, part)
                        atomic_add(i64, count, 0, 1)
                part = (part + way) % parts
            phase += 1
            await_count(count, phase * parts)
        return 0

    return shared


# ***** backward *****


def _make_product(shape: Shape) -> NativeFunction:
    real, size, columns, high = shape.real, shape.real.itemsize, shape.columns, shape.rows
    parts, slopes, adds = GATES[shape.mode], SLOPES[shape.mode], int(shape.mode == "gru")
    kernel = extern(shape.tile.symbol, "void(ptr, ptr, ptr, i64, i64, i64)")
    pack_rows = _make_pack_rows(shape)

    @native("void(ptr, ptr, ptr, i64, i64, i64, i64, i64)", name=f"edge_{shape.name}")
    def edge(a, b, out, row, depth, rows, have, add):
        """A partial tile: only some rows and columns exist."""
        aside = stack(size * high * columns)
        kernel(a, b, aside, columns, depth, 0)
        for i in range(rows):
            for j in range(have):
                value = load(real, aside, i * columns + j)
                if add != 0:
                    value = value + load(real, out, i * row + j)
                store(real, out, i * row + j, value)

    @native("void(ptr, ptr, ptr, ptr, i64, i64)", name=f"through_{shape.name}")
    def through(weight, a, d, out, units, rows):
        """out = slopes @ weight, added to `out` for a GRU."""
        inner = parts * units
        for p in range(0, inner, DEPTH):
            depth = min(i64(DEPTH), inner - p)
            for r in range(0, rows, high):
                pack_rows(
                    a + size * r * depth,
                    d + size * (r * slopes * units + p),
                    min(rows - r, i64(high)),
                    slopes * units,
                    depth,
                )
            add = i64(adds != 0 or p > 0)
            for n in range(0, units, columns):
                panel = weight + size * (n * inner + p * columns)
                for r in range(0, rows, high):
                    to = out + size * (r * units + n)
                    if rows - r >= high and units - n >= columns:
                        kernel(a + size * r * depth, panel, to, units, depth, add)
                    else:
                        edge(
                            a + size * r * depth,
                            panel,
                            to,
                            units,
                            depth,
                            min(rows - r, i64(high)),
                            min(units - n, i64(columns)),
                            add,
                        )

    return through


def make_backward(shape: Shape) -> NativeFunction:
    """`recurrence_grad`; bufs: results, scratch memory that begins with the packed weight, operands."""
    mode = shape.mode
    size, kept, slopes, lstm = shape.real.itemsize, KEPT[mode], SLOPES[mode], mode == "lstm"
    has_gates = int(kept > 0)
    # indices of the operands, after the memory and the weight
    gates_at, hs_at = 2, 2 + has_gates
    cs_at = hs_at + 1
    h_at = cs_at + int(lstm)
    c_at = h_at + 1
    ct_at = c_at + int(lstm)
    ctg_at = ct_at + 2 + int(lstm)
    extra = shape.extra and has_gates
    sizes_at = ctg_at + (1 + int(lstm) if extra else 0)
    through = _make_product(shape)
    cell = extern(f"rl_back_{mode}_{shape.tile.kind}{'_extra' if shape.extra else ''}", BACKWARD_CELL)

    @native("void(ptr, ptr, ptr, i64, i64, i64, i64, i64, ptr, ptr)", name=f"back_{shape.name}")
    def back(bufs, operands, sums, units, first, at, skip, rows, h_before, c_before):
        """The cells of `rows` rows from row `skip` on."""
        row = size * units
        row_offset, state = (at + skip) * row, (first + skip) * row
        dc, cs, g, ctg, ctc = bufs.ptr[3] + state, h_before, h_before, h_before, h_before
        if extra:
            ctg = operands.ptr[ctg_at] + row_offset * kept
        if lstm:
            dc = bufs.ptr[4] + state
            cs = operands.ptr[cs_at] + row_offset
            if extra:
                ctc = operands.ptr[ctg_at + 1] + row_offset
        if has_gates:
            g = operands.ptr[gates_at] + row_offset * kept
        cell(
            bufs.ptr[3] + state,
            dc,
            operands.ptr[ct_at] + row_offset,
            ctg,
            ctc,
            g,
            operands.ptr[hs_at] + row_offset,
            cs,
            h_before,
            c_before,
            bufs.ptr[0] + row_offset * slopes,
            bufs.ptr[1] + row_offset,
            sums,
            units,
            rows,
            units,
        )

    return _make_steps(shape, back, through, (hs_at, cs_at, h_at, c_at, ct_at, sizes_at))


# A step of the backward: its rows among those of all steps.
STEP = Record(
    "step",
    ("row", i64, "its first row"),
    ("count", i64, "its rows: one for each sequence that has the step"),
    ("before", i64, "the first row of the previous step in the layer's direction"),
    ("old", i64, "the rows of that"),
    ("next", i64, "where the rows of the next step of the backward end, or begin if the layer is reversed"),
)
STEP_BYTES = 8 * len(STEP)


@native("i1(ptr, ptr, ptr, i64)")
def find_step(ints, sizes, step, number):
    """Fill the record of a step, after that of the one before; False where the sizes of packed sequences make no sense.
    `sizes` is where their address is.
    """
    batch, total, steps = ints.i64[BATCH], ints.i64[TOTAL], ints.i64[STEPS]
    reverse, packed = ints.i64[REVERSE] != 0, ints.i64[PACKED] != 0
    t = number if reverse else steps - 1 - number
    other = t + 1 if reverse else t - 1
    count, old, row = batch, batch, step[STEP.next]
    if packed:
        count = sizes.ptr[0].i64[t]
    if other < 0 or other >= steps:
        old = 0
    elif packed:
        old = sizes.ptr[0].i64[other]
    if not reverse:
        row -= count
    before = row + count if reverse else row - old
    step[STEP.row], step[STEP.count] = row, count
    step[STEP.before], step[STEP.old] = before, old
    step[STEP.next] = row + count if reverse else row
    known = 0 <= count <= batch and 0 <= old <= batch
    return known and row >= 0 and row + count <= total and before >= 0 and before + old <= total


def _make_steps(shape: Shape, back: NativeFunction, through: NativeFunction, slots: tuple[int, ...]) -> NativeFunction:
    size, slopes, lstm = shape.real.itemsize, SLOPES[shape.mode], shape.mode == "lstm"
    hs_at, cs_at, h_at, c_at, ct_at, sizes_at = slots

    @native("i32(ptr, ptr, i64)", name=f"rl_recurrence_grad_{shape.name}")
    def backward(bufs, ints, piece):
        operands = bufs + 8 * ints.i64[OUTPUTS]
        units, first = ints.i64[UNITS], piece * ints.i64[CHUNK]
        sequences = min(ints.i64[CHUNK], ints.i64[BATCH] - first)
        row = size * units
        dh = bufs.ptr[3] + first * row
        memcpy(dh, operands.ptr[ct_at + 1] + first * row, sequences * row)
        if lstm:
            memcpy(bufs.ptr[4] + first * row, operands.ptr[ct_at + 2] + first * row, sequences * row)
        a = operands.ptr[0] + ints.i64[WEIGHTS] + piece * ints.i64[EACH]
        sums = a + ints.i64[PRODUCT]
        memset(sums, 0, row * slopes)
        step = stack(STEP_BYTES)
        step[STEP.next] = i64(0) if ints.i64[REVERSE] != 0 else ints.i64[TOTAL]
        for number in range(ints.i64[STEPS]):
            if not find_step(ints, operands + 8 * sizes_at, step, number):
                return rl_fail(bufs, piece, 6, step[STEP.count], 0, 0)
            rows = min(step[STEP.count] - first, sequences)
            if rows > 0:
                at = step[STEP.row] + first
                running = max(min(step[STEP.old] - first, rows), i64(0))
                if running > 0:
                    near = (step[STEP.before] + first) * row
                    h, c = operands.ptr[hs_at] + near, operands.ptr[cs_at] + near
                    back(bufs, operands, sums, units, first, at, 0, running, h, c)
                if running < rows:
                    start = (first + running) * row
                    h, c = operands.ptr[h_at] + start, operands.ptr[c_at] + start
                    back(bufs, operands, sums, units, first, at, running, rows - running, h, c)
                through(operands.ptr[0], a, bufs.ptr[0] + at * row * slopes, dh, units, rows)
        return 0

    return backward


def make_sums(shape: Shape) -> NativeFunction:
    """The sum of the slopes over pieces; bufs: sums, scratch memory."""
    real, slopes = shape.real, SLOPES[shape.mode]

    @native("i32(ptr, ptr, i64)", name=f"rl_sums_{shape.name}")
    def total(bufs, ints, piece):
        sums = bufs.ptr[1] + ints.i64[WEIGHTS] + ints.i64[PRODUCT]
        for k in range(slopes * ints.i64[UNITS]):
            value = real(0)
            for n in range(ints.i64[PIECES]):
                value += load(real, sums + n * ints.i64[EACH], k)
            store(real, bufs.ptr[0], k, value)
        return 0

    return total
