"""Resizing: weighted sums of rows and of elements of rows, in the native language.

A piece is a plane (or an image with contiguous channels) and a band of its result rows: the input rows that the band
needs are first resized along the width, into memory that stays in the cache, and then mixed.
"""

from __future__ import annotations

from rushlight._backends.cpu.scratch_native import borrow, borrowed, give_back
from rushlight._native import NativeFunction, Type, Words, extern, f32, f64, i64, load, memset, native, store

__all__ = ["BACK", "REAL", "RESAMPLE", "make_resample", "make_resample_back"]

REAL: dict[str, Type] = {"float32": f32, "float64": f64}
# ints[8 + ...]: sizes; taps of each dim (0: it is not resized); strides; elements of a position; positions, and rows of
# a band
R = RESAMPLE = Words(
    """units channels in_h in_w out_h out_w taps_h taps_w x_n x_c x_h x_w y_n y_c y_h y_w inner
bands band first_h""",
    first=8,
)
B = BACK = Words(
    """first second third size out taps inner g_first g_second g_third g_along x_first x_second x_third
x_along chunk""",
    first=8,
)

rl_fail = extern("rl_fail", "i32(ptr, i64, i64, i64, i64, i64)")


def _make_mix(dtype: str, real: Type) -> tuple[NativeFunction, NativeFunction]:
    size = real.itemsize

    @native("void(ptr, ptr, ptr, i64, real, real)".replace("real", real.name), name=f"mix_two_{dtype}")
    def mix_two(y, a, b, n, first, second):
        """y = a first + b second, rounded after each step."""
        for k in range(n):
            store(real, y, k, load(real, a, k) * first + load(real, b, k) * second)

    @native("void(ptr, ptr, i64, i64, ptr, ptr, i64, i64, i64)", name=f"mix_{dtype}")
    def mix(y, rows, step, begin, index, weights, apart, taps, n):
        """Mix a row of `n` elements from the rows that an index lists, the first of which is number `begin`."""
        first = rows + size * (index.i64[0] - begin) * step
        if taps == 1:
            for k in range(n):
                store(real, y, k, load(real, first, k) * load(real, weights, 0))
            return
        mix_two(
            y,
            first,
            rows + size * (index.i64[apart] - begin) * step,
            n,
            load(real, weights, 0),
            load(real, weights, apart),
        )
        for t in range(2, taps):
            row = rows + size * (index.i64[t * apart] - begin) * step
            w = load(real, weights, t * apart)
            for k in range(n):
                store(real, y, k, load(real, y, k) + load(real, row, k) * w)

    return mix_two, mix


def _make_widths(dtype: str, real: Type) -> NativeFunction:
    size = real.itemsize

    @native("void(ptr, ptr, ptr, ptr, i64, i64, i64, i64)", name=f"widths_{dtype}")
    def widths(y, x, index, weights, out, taps, step, gap):
        """Resize a row along its elements, `step` apart in x, `gap` in y."""
        if taps == 2 and step == 1 and gap == 1:
            second, other = index + 8 * out, weights + size * out
            for i in range(out):
                a = load(real, x, index.i64[i]) * load(real, weights, i)
                store(real, y, i, a + load(real, x, second.i64[i]) * load(real, other, i))
            return
        for i in range(out):
            total = load(real, x, index.i64[i] * step) * load(real, weights, i)
            for t in range(1, taps):
                total += load(real, x, index.i64[t * out + i] * step) * load(real, weights, t * out + i)
            store(real, y, i * gap, total)

    return widths


def _make_across(dtype: str, real: Type, mix: NativeFunction) -> NativeFunction:
    size = real.itemsize
    widths = _make_widths(dtype, real)

    @native("void(ptr, ptr, ptr, ptr, ptr)", name=f"across_{dtype}")
    def across(ints, y, x, index, weights):
        """Resize a row along its width to contiguous positions of `inner` elements."""
        inner, out = ints.i64[R.inner], ints.i64[R.out_w]
        if ints.i64[R.taps_w] == 0:
            for i in range(out):
                for k in range(inner):
                    store(real, y, i * inner + k, load(real, x, i * ints.i64[R.x_w] + k))
        elif inner == 1:
            widths(y, x, index, weights, out, ints.i64[R.taps_w], ints.i64[R.x_w], 1)
        else:
            for i in range(out):
                mix(
                    y + size * i * inner,
                    x,
                    ints.i64[R.x_w],
                    0,
                    index + 8 * i,
                    weights + size * i,
                    out,
                    ints.i64[R.taps_w],
                    inner,
                )

    return across


def _make_put_row(dtype: str, real: Type) -> NativeFunction:
    @native("void(ptr, ptr, ptr, i64)", name=f"put_row_{dtype}")
    def put_row(ints, y, row, inner):
        """Copy a resized row to the result, whose positions need not be contiguous."""
        for i in range(ints.i64[R.out_w]):
            for k in range(inner):
                store(real, y, i * ints.i64[R.y_w] + k, load(real, row, i * inner + k))

    return put_row


def make_resample(dtype: str) -> NativeFunction:
    """The kernel of `resample`; bufs: result, x, then index and weights of the width and of the height, those that are
    resized."""
    real = REAL[dtype]
    size = real.itemsize
    _, mix = _make_mix(dtype, real)
    across, put_row = _make_across(dtype, real, mix), _make_put_row(dtype, real)

    @native("i32(ptr, ptr, i64)", name=f"rl_resample_{dtype}")
    def resample(bufs, ints, piece):
        index_h, weights_h = bufs.ptr[ints.i64[R.first_h]], bufs.ptr[ints.i64[R.first_h] + 1]
        inner, taps, out = ints.i64[R.inner], ints.i64[R.taps_h], ints.i64[R.out_h]
        unit, band = piece // ints.i64[R.bands], piece % ints.i64[R.bands]
        image, channel = unit // ints.i64[R.channels], unit % ints.i64[R.channels]
        x = bufs.ptr[1] + size * (image * ints.i64[R.x_n] + channel * ints.i64[R.x_c])
        y = bufs.ptr[0] + size * (image * ints.i64[R.y_n] + channel * ints.i64[R.y_c])
        begin, end = band * ints.i64[R.band], min((band + 1) * ints.i64[R.band], out)
        low, high = begin, end - 1
        if taps > 0:
            low, high = ints.i64[R.in_h], i64(0)
            for t in range(taps):
                for h in range(begin, end):
                    low, high = min(low, index_h.i64[t * out + h]), max(high, index_h.i64[t * out + h])
        line = ints.i64[R.out_w] * inner
        near = ints.i64[R.y_w] == inner
        ready = ints.i64[R.taps_w] == 0 and ints.i64[R.x_w] == inner and taps > 0  # rows can be mixed in place
        slot = borrow(size * line * (high - low + 2))
        if slot < 0:
            return rl_fail(bufs, piece, 4, 0, 0, 0)
        rows = borrowed(slot)
        aside = rows + size * line * (high - low + 1)
        for h in range(low, high + 1):
            to = rows + size * line * (h - low)
            if taps == 0 and near:
                to = y + size * h * ints.i64[R.y_h]
            if not ready:
                across(ints, to, x + size * h * ints.i64[R.x_h], bufs.ptr[2], bufs.ptr[3])
            if taps == 0 and not near:
                put_row(ints, y + size * h * ints.i64[R.y_h], to, inner)
        if taps > 0:
            for h in range(begin, end):
                to = y + size * h * ints.i64[R.y_h] if near else aside
                if ready:
                    mix(to, x, ints.i64[R.x_h], 0, index_h + 8 * h, weights_h + size * h, out, taps, line)
                else:
                    mix(to, rows, line, low, index_h + 8 * h, weights_h + size * h, out, taps, line)
                if not near:
                    put_row(ints, y + size * h * ints.i64[R.y_h], aside, inner)
        give_back(slot)
        return 0

    return resample


def make_resample_back(dtype: str) -> NativeFunction:
    """The kernel of `resample_back`; bufs: result, cotangent, index, weights.  Three outer loops, `inner` contiguous
    elements."""
    real = REAL[dtype]
    size = real.itemsize

    @native("void(ptr, ptr, ptr, ptr, ptr)", name=f"pour_{dtype}")
    def pour(ints, x, g, index, weights):
        inner, count, out = ints.i64[B.inner], ints.i64[B.size], ints.i64[B.out]
        along, step = ints.i64[B.x_along], ints.i64[B.g_along]
        for j in range(count):
            memset(x + size * j * along, 0, size * inner)
        for t in range(ints.i64[B.taps]):
            for i in range(out):
                to = x + size * index.i64[t * out + i] * along
                from_ = g + size * i * step
                w = load(real, weights, t * out + i)
                for k in range(inner):
                    store(real, to, k, load(real, to, k) + load(real, from_, k) * w)

    @native("void(ptr, ptr, ptr, ptr, ptr)", name=f"pour_row_{dtype}")
    def pour_row(ints, x, g, index, weights):
        """The same for a contiguous dim."""
        memset(x, 0, size * ints.i64[B.size])
        out = ints.i64[B.out]
        for t in range(ints.i64[B.taps]):
            for i in range(out):
                to = index.i64[t * out + i]
                store(real, x, to, load(real, x, to) + load(real, g, i) * load(real, weights, t * out + i))

    @native("i32(ptr, ptr, i64)", name=f"rl_resample_back_{dtype}")
    def back(bufs, ints, piece):
        total = ints.i64[B.first] * ints.i64[B.second] * ints.i64[B.third]
        for number in range(piece * ints.i64[B.chunk], min((piece + 1) * ints.i64[B.chunk], total)):
            c, rest = number % ints.i64[B.third], number // ints.i64[B.third]
            a, b = rest // ints.i64[B.second], rest % ints.i64[B.second]
            x = bufs.ptr[0] + size * (a * ints.i64[B.x_first] + b * ints.i64[B.x_second] + c * ints.i64[B.x_third])
            g = bufs.ptr[1] + size * (a * ints.i64[B.g_first] + b * ints.i64[B.g_second] + c * ints.i64[B.g_third])
            if ints.i64[B.inner] == 1 and ints.i64[B.x_along] == 1 and ints.i64[B.g_along] == 1:
                pour_row(ints, x, g, bufs.ptr[2], bufs.ptr[3])
            else:
                pour(ints, x, g, bufs.ptr[2], bufs.ptr[3])
        return 0

    return back
