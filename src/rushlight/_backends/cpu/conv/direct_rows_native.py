"""Preparation of rows for direct convolutions, in the native language: elements from memory and back, with zeros around
and between them.

Every `stride`-th element of a row becomes contiguous, contiguous channels stay so, narrow dtypes become float32.
"""

from __future__ import annotations

from rushlight._backends.cpu.conv.conv_native import from_brain, from_half
from rushlight._backends.cpu.conv.direct_descriptor import REAL, D, item_of
from rushlight._backends.cpu.conv.direct_tile import RowMover
from rushlight._backends.cpu.random.mt19937 import bfloat_bits, half_bits
from rushlight._native import Extern, NativeFunction, extern, i64, load, native, stack, store, u16

__all__ = ["make_fill", "make_find_lines", "make_movers", "make_ready", "positions_of"]

SOME = 128  # pairs of narrow numbers of a row widened before they are sorted


def make_movers(source: str, mover: RowMover) -> tuple[NativeFunction, NativeFunction]:
    """(`take(to, x, n, step)`: every `step`-th element, as numbers of the sums' type; `put(y, step, x, n)`: the
    reverse)."""
    real = REAL[source]
    memory = real if len(source) == 3 and source != "f16" else u16
    widen, narrow = (from_half, half_bits) if source == "f16" else (from_brain, bfloat_bits)
    copy = extern(mover.copy, "void(ptr, ptr, i64)")

    @native("void(ptr, ptr, i64, i64)", name=f"take_{source}")
    def take(to, x, n, step):
        if memory is u16:
            if step == 1:
                for k in range(n):
                    to.f32[k] = widen(x.u16[k])
            else:
                for k in range(n):
                    to.f32[k] = widen(x.u16[k * step])
        elif step == 1:
            copy(to, x, n)
        elif step == 0:  # one number for all, as in the gradient of a sum
            value = load(real, x, 0)
            for k in range(n):
                store(real, to, k, value)
        else:
            for k in range(n):
                store(real, to, k, load(real, x, k * step))

    @native("void(ptr, i64, ptr, i64)", name=f"put_{source}")
    def put(y, step, x, n):
        if memory is u16:
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


def positions_of(source: str, mover: RowMover) -> Extern | None:
    """The kernel that loads vectors of channels at some positions; None for dtypes that have none."""
    if source == "f16":
        return None
    return extern(mover.widened if source == "bf16" else mover.positions, "void(ptr, i64, ptr, i64, i64, i64)")


def _make_ready_together(source: str, mover: RowMover, take: NativeFunction) -> NativeFunction:
    """The same as `make_ready` for contiguous channels: a position is as wide as a vector."""
    size, item, move_positions = REAL[source].itemsize, item_of(source), positions_of(source, mover)

    @native("void(ptr, ptr, ptr, i64)", name=f"ready_together_{source}")
    def ready_together(ints, to, x, valid):
        width, step, pad, stride, apart = (
            ints.i64[D.in_w],
            ints.i64[D.stride_w],
            ints.i64[D.pad_w],
            ints.i64[D.x_w],
            ints.i64[D.spread_w],
        )
        phase, lanes = ints.i64[D.phase], ints.i64[D.lanes]
        if stride == lanes and step == 1 and apart == 1:
            begin = max(i64(0), -pad)
            if width > begin:
                take(to + size * (begin + pad) * lanes, x + item * begin * stride, (width - begin) * lanes, 1)
            return
        if move_positions is not None and apart == 1:
            for f in range(step):
                u = f - pad
                j: i64 = 0
                if u < 0:
                    j = (step - 1 - u) // step
                    u += j * step
                count = (width - u + step - 1) // step
                move_positions(
                    to + size * (f * phase + j * lanes),
                    size * lanes,
                    x + item * u * stride,
                    item * step * stride,
                    count,
                    valid,
                )
            return
        if move_positions is not None and step == 1:
            u = max(i64(0), (apart - 1 - pad) // apart)
            move_positions(
                to + size * (u * apart + pad) * lanes,
                size * lanes * apart,
                x + item * u * stride,
                item * stride,
                width - u,
                valid,
            )
            return
        for u in range(width):
            at = u * apart + pad
            if at >= 0:
                take(to + size * (at % step * phase + at // step * lanes), x + item * u * stride, valid, 1)

    return ready_together


def make_ready(source: str, mover: RowMover, take: NativeFunction) -> NativeFunction:
    """`ready(ints, to, x, valid)`: prepares a row for blocks."""
    size, item = REAL[source].itemsize, item_of(source)
    part, ready_together = extern(mover.part, "void(ptr, ptr, ptr, i64)"), _make_ready_together(source, mover, take)

    @native("void(ptr, ptr, ptr, i64)", name=f"ready_{source}")
    def ready(ints, to, x, valid):
        """Prepare an input row: element u goes to phase (u * spread + padding) % stride, index (u * spread + padding)
        // stride."""
        if ints.i64[D.together] != 0:
            ready_together(ints, to, x, valid)
            return
        width, step, pad, stride, apart = (
            ints.i64[D.in_w],
            ints.i64[D.stride_w],
            ints.i64[D.pad_w],
            ints.i64[D.x_w],
            ints.i64[D.spread_w],
        )
        phase = ints.i64[D.phase]
        to = to + size * ints.i64[D.lead]
        if step == 1 and apart == 1:
            first = max(i64(0), -pad)
            if width > first:
                take(to + size * (first + pad), x + item * first * stride, width - first, stride)
            return
        if stride == 1 and step == 2 and apart == 1 and pad >= 0:
            pairs = width // 2
            target = to + size * (pad // 2)
            other = target + size * phase
            if pad % 2 == 1:
                target, other = other, target + size
            if item == size:
                part(target, other, x, pairs)
            else:  # widened some at a time, then sorted
                some = stack(2 * size * SOME)
                for k in range(0, pairs, SOME):
                    count = min(i64(SOME), pairs - k)
                    take(some, x + item * 2 * k, 2 * count, 1)
                    part(target + size * k, other + size * k, some, count)
            if width % 2 == 1:
                take(target + size * pairs, x + item * (width - 1), 1, 1)
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
            take(
                to + size * (f * phase + j),
                x + item * first * stride,
                (width - first + step - 1) // step,
                step * stride,
            )

    return ready


def make_fill(source: str, ready: NativeFunction) -> NativeFunction:
    """`fill(...)`: prepares the rows of a band for blocks."""
    size, item = REAL[source].itemsize, item_of(source)

    @native("void(ptr, ptr, ptr, i64, i64, i64, i64, i64, i64)", name=f"fill_{source}")
    def fill(ints, rows, x, first, count, done, depth, valid, plane):
        """Prepare the input rows `done`..`count` of a band that begins at row `first`, in all planes."""
        for c in range(ints.i64[D.depth]):
            for d in range(ints.i64[D.kernel_d]):
                at = depth * ints.i64[D.stride_d] + d * ints.i64[D.dilation_d] - ints.i64[D.pad_d]
                to = rows + plane * (c * ints.i64[D.kernel_d] + d)
                if at >= 0 and at % ints.i64[D.spread_d] == 0 and at // ints.i64[D.spread_d] < ints.i64[D.in_d]:
                    for i in range(done, count):
                        h = first + i
                        if h >= 0 and h % ints.i64[D.spread_h] == 0 and h // ints.i64[D.spread_h] < ints.i64[D.in_h]:
                            from_ = (
                                c * ints.i64[D.x_c]
                                + at // ints.i64[D.spread_d] * ints.i64[D.x_d]
                                + h // ints.i64[D.spread_h] * ints.i64[D.x_h]
                            )
                            ready(ints, to + size * i * ints.i64[D.pitch], x + item * from_, valid)

    return fill


def make_find_lines(source: str) -> NativeFunction:
    """`find_lines(ints, lines, x, rows, nothing, first, depth)`: the addresses of the input rows of a band from row
    `first` on, in all planes."""
    size, item = REAL[source].itemsize, item_of(source)

    @native("void(ptr, ptr, ptr, ptr, ptr, i64, i64)", name=f"lines_{source}")
    def find_lines(ints, lines, x, rows, nothing, first, depth):
        """Rows are in the image, or among the prepared `rows`; rows outside the image (or between its rows) are
        `nothing`."""
        count, apart = ints.i64[D.rows], ints.i64[D.spread_h]
        placed = ints.i64[D.placed] != 0
        gap = item * ints.i64[D.x_h] if placed else size * ints.i64[D.pitch]
        low = min(max(-first, i64(0)), count)
        high = max(min((ints.i64[D.in_h] - 1) * apart + 1 - first, count), low)
        for c in range(ints.i64[D.depth]):
            for d in range(ints.i64[D.kernel_d]):
                at = depth * ints.i64[D.stride_d] + d * ints.i64[D.dilation_d] - ints.i64[D.pad_d]
                here = lines + 8 * count * (c * ints.i64[D.kernel_d] + d)
                begin, end = low, high
                if at < 0 or at % ints.i64[D.spread_d] != 0 or at // ints.i64[D.spread_d] >= ints.i64[D.in_d]:
                    end = begin
                from_ = rows + gap * count * (c * ints.i64[D.kernel_d] + d)
                if placed:
                    from_ = x + item * (c * ints.i64[D.x_c] + at * ints.i64[D.x_d]) + gap * first
                for i in range(begin):
                    here.ptr[i] = nothing
                for i in range(begin, end):
                    here.ptr[i] = from_ + gap * i
                for i in range(end, count):
                    here.ptr[i] = nothing
                if apart > 1:
                    for i in range(begin, end):
                        if (first + i) % apart != 0:
                            here.ptr[i] = nothing

    return find_lines
