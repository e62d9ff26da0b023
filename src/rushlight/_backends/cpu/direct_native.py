"""Direct convolution around the blocks of `direct_tile`: rows made ready, blocks called, edges written; in the native language.

A piece is some images' groups (or blocks of groups whose only channels lie together) and a band of result rows.  The input rows that a block
needs are copied just before it: zeros stand around them (and between them, where the input is spread), every `stride`-th element lies
together, channels that lie together stay so, narrow dtypes become float32.
"""

from __future__ import annotations

from rushlight._backends.cpu.conv_native import from_brain, from_half
from rushlight._backends.cpu.direct_tile import RowMover
from rushlight._backends.cpu.epilogue_native import run_epilogue
from rushlight._backends.cpu.mt19937 import bfloat_bits, half_bits
from rushlight._backends.cpu.scratch_native import borrow, borrowed, give_back
from rushlight._backends.native import (
    Extern,
    NativeFunction,
    Type,
    Words,
    call_ptr,
    extern,
    f32,
    f64,
    i32,
    i64,
    load,
    memcpy,
    memset,
    native,
    stack,
    store,
    u16,
)
from rushlight._kernels.register_tile import RegisterTile

__all__ = ["D_BYTES", "REAL", "D", "item_of", "make_direct", "make_movers", "make_ready", "places_of"]

REAL: dict[str, Type] = {"f32": f32, "f64": f64, "f16": f32, "bf16": f32}

# ints[8 + ...]: the blocks; what there is, how it is cut; the geometry in three dims of space; strides in elements; rows that are kept ready;
# how many groups are given to the epilogue together; the last three as in `conv_words.W`, but that `given` counts from the first of the constants.
# together: lanes are channels, `mix` of them of one group; `x_g`, `y_g` and `bias_g` are strides of channels then, `groups` counts vectors.
D = Words("""tile last height_tile vectors vectors_last span lanes outs together mix blocks steps
batch groups depth chunk bands band singles
in_d in_h in_w out_d out_h out_w kernel_d kernel_h kernel_w
stride_d stride_h stride_w dilation_d dilation_h dilation_w pad_d pad_h pad_w spread_d spread_h spread_w
x_n x_g x_c x_d x_h x_w w_base w_g w_o w_c w_d w_h w_w
y_n y_g y_o y_d y_h y_w bias_g bias_o pitch phase lead rows x_turn y_turn bundle operand after given""", first=8)
D_BYTES = 8 * (8 + len(D))

SOME = 128  # pairs of narrow numbers of a row that are widened before they are sorted
SIGNATURE = "void(ptr, i64, i64, i64, i64, i64, i64, ptr, ptr, ptr, i64, i64, i64, i64)"
rl_fail = extern("rl_fail", "i32(ptr, i64, i64, i64, i64, i64)")


# ***** elements and rows from memory, and back *****


def item_of(dtype: str) -> int:
    """Bytes of an element in memory: narrow ones are wider while they are summed (`REAL`)."""
    return 2 if dtype in ("f16", "bf16") else REAL[dtype].itemsize


def make_movers(source: str, mover: RowMover) -> tuple[NativeFunction, NativeFunction]:
    """(`take(to, x, n, step)`: every `step`-th element, as numbers of the sums' type; `put(y, step, x, n)`: the way back)."""
    real = REAL[source]
    held = real if len(source) == 3 and source != "f16" else u16
    widen, narrow = (from_half, half_bits) if source == "f16" else (from_brain, bfloat_bits)
    copy = extern(mover.copy, "void(ptr, ptr, i64)")

    @native("void(ptr, ptr, i64, i64)", name=f"take_{source}")
    def take(to, x, n, step):
        if held is u16:
            if step == 1:
                for k in range(n):
                    to.f32[k] = widen(x.u16[k])
            else:
                for k in range(n):
                    to.f32[k] = widen(x.u16[k * step])
        elif step == 1:
            copy(to, x, n)
        elif step == 0:  # one number for all, as the gradient of a sum is
            value = load(real, x, 0)
            for k in range(n):
                store(real, to, k, value)
        else:
            for k in range(n):
                store(real, to, k, load(real, x, k * step))

    @native("void(ptr, i64, ptr, i64)", name=f"put_{source}")
    def put(y, step, x, n):
        if held is u16:
            if step == 1:
                for k in range(n):
                    y.u16[k] = narrow(x.f32[k])
            else:
                for k in range(n):
                    y.u16[k * step] = narrow(x.f32[k])
        elif step == 1:
            copy(y, x, n)
        else:
            for k in range(n):
                store(real, y, k * step, load(real, x, k))

    return take, put


def places_of(source: str, mover: RowMover) -> Extern | None:
    """The kernel that brings vectors of channels at some places from memory; None for dtypes that have none."""
    if source == "f16":
        return None
    return extern(mover.widened if source == "bf16" else mover.places, "void(ptr, i64, ptr, i64, i64, i64)")


def make_ready(source: str, mover: RowMover, take: NativeFunction) -> NativeFunction:
    """`ready(ints, to, x, valid)`: brings a row to where blocks read it."""
    size, item = REAL[source].itemsize, item_of(source)
    part, places = extern(mover.part, "void(ptr, ptr, ptr, i64)"), places_of(source, mover)

    @native("void(ptr, ptr, ptr, i64)", name=f"ready_together_{source}")
    def ready_together(ints, to, x, valid):
        """The same for channels that lie together: places are as wide as a vector."""
        width, step, pad, stride, apart = ints.i64[D.in_w], ints.i64[D.stride_w], ints.i64[D.pad_w], ints.i64[D.x_w], ints.i64[D.spread_w]
        phase, lanes = ints.i64[D.phase], ints.i64[D.lanes]
        if stride == lanes and step == 1 and apart == 1:
            begin = max(i64(0), -pad)
            if width > begin:
                take(to + size * (begin + pad) * lanes, x + item * begin * stride, (width - begin) * lanes, 1)
            return
        if places is not None and apart == 1:
            for f in range(step):
                u = f - pad
                j: i64 = 0
                if u < 0:
                    j = (step - 1 - u) // step
                    u += j * step
                count = (width - u + step - 1) // step
                places(to + size * (f * phase + j * lanes), size * lanes, x + item * u * stride, item * step * stride, count, valid)
            return
        if places is not None and step == 1:
            u = max(i64(0), (apart - 1 - pad) // apart)
            places(to + size * (u * apart + pad) * lanes, size * lanes * apart, x + item * u * stride, item * stride, width - u, valid)
            return
        for u in range(width):
            at = u * apart + pad
            if at >= 0:
                take(to + size * (at % step * phase + at // step * lanes), x + item * u * stride, valid, 1)

    @native("void(ptr, ptr, ptr, i64)", name=f"ready_{source}")
    def ready(ints, to, x, valid):
        """A row of the input: element u comes to phase (u * spread + padding) % stride, place (u * spread + padding) // stride."""
        if ints.i64[D.together] != 0:
            ready_together(ints, to, x, valid)
            return
        width, step, pad, stride, apart = ints.i64[D.in_w], ints.i64[D.stride_w], ints.i64[D.pad_w], ints.i64[D.x_w], ints.i64[D.spread_w]
        phase = ints.i64[D.phase]
        to = to + size * ints.i64[D.lead]
        if step == 1 and apart == 1:
            first = max(i64(0), -pad)
            if width > first:
                take(to + size * (first + pad), x + item * first * stride, width - first, stride)
            return
        if stride == 1 and step == 2 and apart == 1 and pad >= 0:
            pairs = width // 2
            place = to + size * (pad // 2)
            other = place + size * phase
            if pad % 2 == 1:
                place, other = other, place + size
            if item == size:
                part(place, other, x, pairs)
            else:  # some at a time are widened, then sorted
                some = stack(2 * size * SOME)
                for k in range(0, pairs, SOME):
                    count = min(i64(SOME), pairs - k)
                    take(some, x + item * 2 * k, 2 * count, 1)
                    part(place + size * k, other + size * k, some, count)
            if width % 2 == 1:
                take(place + size * pairs, x + item * (width - 1), 1, 1)
            return
        if apart > 1:
            for u in range(width):
                if u * apart + pad >= 0:
                    take(to + size * (u * apart + pad), x + item * u * stride, 1, 1)
            return
        for f in range(step):
            first = f - pad
            j: i64 = 0
            if first < 0:
                j = (step - 1 - first) // step
                first += j * step
            take(to + size * (f * phase + j), x + item * first * stride, (width - first + step - 1) // step, step * stride)

    return ready


def _make_fill(source: str, ready: NativeFunction) -> NativeFunction:
    size, item = REAL[source].itemsize, item_of(source)

    @native("void(ptr, ptr, ptr, i64, i64, i64, i64, i64, i64)", name=f"fill_{source}")
    def fill(ints, rows, x, first, count, done, depth, valid, plane):
        """Brings the input rows `done`..`count` of a band that begins at row `first` to where blocks read them, in all planes."""
        for c in range(ints.i64[D.depth]):
            for d in range(ints.i64[D.kernel_d]):
                at = depth * ints.i64[D.stride_d] + d * ints.i64[D.dilation_d] - ints.i64[D.pad_d]
                to = rows + plane * (c * ints.i64[D.kernel_d] + d)
                inside = at >= 0 and at % ints.i64[D.spread_d] == 0 and at // ints.i64[D.spread_d] < ints.i64[D.in_d]
                for i in range(done, count):
                    h = first + i
                    if h >= 0 and h % ints.i64[D.spread_h] == 0 and h // ints.i64[D.spread_h] < ints.i64[D.in_h]:
                        line = to + size * i * ints.i64[D.pitch]
                        if inside:
                            from_ = c * ints.i64[D.x_c] + at // ints.i64[D.spread_d] * ints.i64[D.x_d] + h // ints.i64[D.spread_h] * ints.i64[D.x_h]
                            ready(ints, line, x + item * from_, valid)
                        elif ints.i64[D.kernel_d] > 1 or ints.i64[D.out_d] > 1:  # another depth may have left its rows here
                            memset(line, 0, size * ints.i64[D.pitch])

    return fill


# ***** small planes whose channels are brought together *****


def _make_turns(source: str, tile: RegisterTile, take: NativeFunction, put: NativeFunction) -> tuple[NativeFunction, NativeFunction, NativeFunction]:
    real, n, item = REAL[source], tile.turned, item_of(source)
    size = real.itemsize
    turn = extern(tile.turn_symbol, "void(ptr, ptr, i64, i64, i64)")

    @native("void(ptr, ptr, ptr, i64, i64)", name=f"turn_planes_{source}")
    def turn_planes(ints, to, x, valid, apart):
        """Planes of `valid` channels, `apart` from one another, as one plane whose places hold a vector of them."""
        plane, lanes = ints.i64[D.in_h] * ints.i64[D.in_w], ints.i64[D.lanes]
        whole = valid // n * n
        if plane < n:
            whole = 0
        for i in range(0, whole, n):
            turn(to + size * i, x + size * i * apart, apart, lanes, plane // n * n)
            if plane % n != 0:  # the last square overlaps the one before
                turn(to + size * (i + (plane - n) * lanes), x + size * (i * apart + plane - n), apart, lanes, n)
        for i in range(whole, valid):
            for k in range(plane):
                store(real, to, k * lanes + i, load(real, x, i * apart + k))

    @native("void(ptr, ptr, ptr, ptr, i64)", name=f"turn_in_{source}")
    def turn_in(ints, to, x, wide, valid):
        """The same of planes in memory; narrow ones are widened to `wide` before."""
        plane, apart = ints.i64[D.in_h] * ints.i64[D.in_w], ints.i64[D.x_turn]
        if item == size:
            turn_planes(ints, to, x, valid, apart)
        else:
            for i in range(valid):
                take(wide + size * i * plane, x + item * i * apart, plane, 1)
            turn_planes(ints, to, wide, valid, plane)

    @native("void(ptr, ptr, ptr, i64, i64)", name=f"turn_out_{source}")
    def turn_out(ints, y, from_, valid, apart):
        """The way back."""
        plane, lanes = ints.i64[D.out_h] * ints.i64[D.out_w], ints.i64[D.lanes]
        whole = valid // n * n
        if plane < n:
            whole = 0
        if whole > 0:
            for k in range(0, plane, n):
                at = min(k, plane - n)
                turn(y + size * at, from_ + size * at * lanes, lanes, apart, whole)
        for i in range(whole, valid):
            for k in range(plane):
                store(real, y, i * apart + k, load(real, from_, k * lanes + i))

    @native("void(ptr, ptr, ptr, ptr, i64)", name=f"turn_narrow_{source}")
    def turn_narrow(ints, y, from_, wide, valid):
        """The way back to memory; what is narrow there lies in `wide` before."""
        if item == size:
            turn_out(ints, y, from_, valid, ints.i64[D.y_turn])
        else:
            plane = ints.i64[D.out_h] * ints.i64[D.out_w]
            turn_out(ints, wide, from_, valid, plane)
            for i in range(valid):
                put(y + item * i * ints.i64[D.y_turn], 1, wide + size * i * plane, plane)

    return turn_in, turn_out, turn_narrow


# ***** weights *****


def _make_taps(source: str, take: NativeFunction, turner: RegisterTile) -> NativeFunction:
    size, item, n = REAL[source].itemsize, item_of(source), turner.turned
    turn = extern(turner.turn_symbol, "void(ptr, ptr, i64, i64, i64)")

    @native("void(ptr, ptr, ptr, i64, i64, i64)", name=f"turn_taps_{source}")
    def turn_taps(ints, to, w, count, lanes, across):
        """The weights of `lanes` lanes, which lie `across` apart, for `count` elements that lie side by side, by squares."""
        held = stack(size * n * n * 4)
        k: i64 = 0
        while k < count:
            some = min(i64(4 * n), (count - k) // n * n)
            if some == 0:  # a rest is the end of a square
                k, some = count - n, i64(n)
            for i in range(0, lanes, n):
                if item == size:
                    turn(to + size * (k * ints.i64[D.lanes] + i), w + item * (i * across + k), across, ints.i64[D.lanes], some)
                else:
                    for j in range(n):
                        take(held + size * j * 4 * n, w + item * ((i + j) * across + k), some, 1)
                    turn(to + size * (k * ints.i64[D.lanes] + i), held, i64(4 * n), ints.i64[D.lanes], some)
            k += some

    @native("void(ptr, ptr, ptr, i64, i64, i64)", name=f"taps_{source}")
    def taps(ints, to, w, group, first, valid):
        """The weights of a block: of results `first`.. of a group, or of `valid` channels that lie together; in the order of tiles."""
        lanes, outs, mix = ints.i64[D.lanes], ints.i64[D.outs], ints.i64[D.mix]
        base = w + item * (ints.i64[D.w_base] + group // mix * ints.i64[D.w_g] + first * ints.i64[D.w_o])
        wide, high, together = ints.i64[D.kernel_w], ints.i64[D.kernel_h], ints.i64[D.together] != 0
        each = ints.i64[D.kernel_d] * high * wide
        run, across = valid, ints.i64[D.w_g]  # lanes that lie evenly
        if mix > 1:
            across = ints.i64[D.w_o]
            if ints.i64[D.w_g] != mix * across:
                run = mix
        near = ints.i64[D.w_w] == 1 and ints.i64[D.w_h] == wide and (ints.i64[D.w_d] == high * wide or ints.i64[D.kernel_d] == 1)
        if mix > 1 and ints.i64[D.kernel_d] * ints.i64[D.steps] > 1:
            near = False
        if together and near and run % n == 0 and each >= n:
            for c in range(ints.i64[D.depth] * mix):
                for g in range(valid // run):
                    from_ = base + item * (c * ints.i64[D.w_c] + g * run // mix * ints.i64[D.w_g])
                    turn_taps(ints, to + size * (c * each * lanes + g * run), from_, each, run, across)
            return
        tap = size * (lanes if together else outs)
        rows = high // ints.i64[D.steps]  # of the kernel that a block takes together
        for c in range(ints.i64[D.depth] * mix):
            for d in range(ints.i64[D.kernel_d]):
                for h in range(high):
                    for v in range(wide):
                        at = base + item * (c * ints.i64[D.w_c] + d * ints.i64[D.w_d] + h * ints.i64[D.w_h] + v * ints.i64[D.w_w])
                        place = to + tap * (((c * ints.i64[D.kernel_d] + d) * high + h) * wide + v)
                        if mix > 1:
                            place = to + tap * ((((d * ints.i64[D.steps] + h // rows) * mix + c) * rows + h % rows) * wide + v)
                        if not together:
                            take(place, at, outs, ints.i64[D.w_o])
                        else:
                            for g in range(valid // run):
                                take(place + size * g * run, at + item * (g * run // mix * ints.i64[D.w_g]), run, across)

    return taps


def _make_bias(target: str, real: Type, take: NativeFunction) -> NativeFunction:
    item = item_of(target)

    @native("void(ptr, ptr, ptr, i64, i64, i64)", name=f"start_{target}")
    def start(ints, to, bias, group, first, valid):
        """What is added to the results of a block."""
        together = ints.i64[D.together] != 0
        if ints.i64[D.bias_o] < 0:
            for k in range(ints.i64[D.lanes] if together else ints.i64[D.outs]):
                store(real, to, k, real(-0.0))
        elif together:
            take(to, bias + item * group * ints.i64[D.bias_g], valid, ints.i64[D.bias_g])
        else:
            take(to, bias + item * (group * ints.i64[D.bias_g] + first * ints.i64[D.bias_o]), ints.i64[D.outs], ints.i64[D.bias_o])

    return start


# ***** blocks *****


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
    fill, block = _make_fill(source, make_ready(source, mover, take)), _make_block(target, REAL[source], mover, put)

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


def _make_load_weights(source: str, added: str, mover: RowMover, take: NativeFunction, turner: RegisterTile) -> NativeFunction:
    real = REAL[source]
    size, take_added = real.itemsize, take if source == added else make_movers(added, mover)[0]
    taps, bias = _make_taps(source, take, turner), _make_bias(added, real, take_added)

    @native("void(ptr, ptr, ptr, i64, i64, i64)", name=f"weights_{source}_{added}")
    def load_weights(bufs, ints, memory, each, group, valid):
        """What blocks of a group begin with, and their weights behind it, `each` bytes apart."""
        outs, width = ints.i64[D.outs], ints.i64[D.lanes] if ints.i64[D.together] != 0 else i64(1)
        for b in range(ints.i64[D.blocks]):
            weights = memory + each * b
            if ints.i64[D.bias_o] < 0:
                bias(ints, weights, None, group, b * outs, valid)
            else:
                bias(ints, weights, bufs.ptr[ints.i64[D.operand] + 2], group, b * outs, valid)
            taps(ints, weights + size * outs * width, bufs.ptr[ints.i64[D.operand] + 1], group, b * outs, valid)

    return load_weights


def _make_turned(
    source: str, unit: NativeFunction, turns: tuple[NativeFunction, NativeFunction, NativeFunction], put_epilogue: NativeFunction
) -> NativeFunction:
    """Convolves small planes whose channels are brought together first; `unit` convolves what lies together and is wide."""
    size, item = REAL[source].itemsize, item_of(source)
    turn_in, turn_out, turn_narrow = turns

    @native("i32(ptr, ptr, ptr, i64, ptr, ptr, ptr, i64, i64, i64)", name=f"direct_turned_{source}")
    def convolve_turned(bufs, ints, own, piece, memory, turned, done, image, group, valid):
        """`valid` channels of an image from `group` on.  memory: weights and rows; turned: planes; done: what is collected for an epilogue."""
        plane = ints.i64[D.out_h] * ints.i64[D.out_w]
        made = turned + size * ints.i64[D.lanes] * ints.i64[D.in_h] * ints.i64[D.in_w]
        wide = made + size * ints.i64[D.lanes] * plane  # for narrow planes
        x = bufs.ptr[ints.i64[D.operand]] + item * (image * ints.i64[D.x_n] + group * (ints.i64[D.x_g] + ints.i64[D.x_turn]))
        turn_in(ints, turned, x, wide, valid)
        unit(ints, made, turned, memory, i64(0), ints.i64[D.out_h], i64(0), ints.i64[D.lanes])
        if ints.i64[D.after] == 0:
            turn_narrow(ints, bufs.ptr[0] + item * (image * ints.i64[D.y_n] + group * ints.i64[D.y_turn]), made, wide, valid)
            return 0
        given = ints + ints.i64[D.given]
        if ints.i64[D.after] == 2:
            return put_epilogue(bufs, own, given, piece, made, image, group, valid, i64(0), plane)
        turn_out(own, done, made, valid, plane)
        return put_epilogue(bufs, own, given, piece, done, image, group, valid, i64(0), plane)

    return convolve_turned


def make_direct(source: str, target: str, added: str, mover: RowMover, turner: RegisterTile) -> NativeFunction:
    """The kernel of a convolution with few channels a group, with results of dtype `target` and a bias of dtype `added`: bufs are the result, the
    images, the weights, and the bias if there is one.

    Where there is an epilogue, the results of a band are collected in the order that it takes, and given to it.
    """
    real = REAL[source]
    size, item, y_item = real.itemsize, item_of(source), item_of(target)
    take, put = make_movers(source, mover)
    put_target = put if source == target else make_movers(target, mover)[1]
    load_weights = _make_load_weights(source, added, mover, take, turner)
    unit = _make_unit(source, target, mover, take, put_target)
    wide_unit = unit if item == size else _make_unit(mover.kind, mover.kind, mover, *make_movers(mover.kind, mover))
    collected, put_epilogue = _make_after(source, target)
    convolve_turned = _make_turned(source, wide_unit, _make_turns(source, turner, take, put), put_epilogue)

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
