"""Weighted gathers: weighted sums of elements whose indices are data, in the native language.

A piece is some points with all channels, or some channels with all points if the result is indexed by the gather's
indices.  One index and its weight serve four channels at once.  Blocks of points whose indices are all inside the
array, the usual case, check no bounds.
"""

from __future__ import annotations

from collections.abc import Callable

from rushlight._native import NativeFunction, Type, Words, f32, f64, i64, load, memset, native, store

__all__ = ["POINTS", "GATHER", "TOGETHER", "make_gather_weights", "make_weighted_scatter", "make_weighted_gather"]

REAL: dict[str, Type] = {"float32": f32, "float64": f64}
# items, channels, elements of a channel, taps, points of an item; pieces of an item, points or channels of a piece
T = GATHER = Words("items channels size taps points parts chunk", first=8)
POINTS = 128  # of a block, for which all channels are computed
TOGETHER = 4  # taps whose weights one kernel computes
COUNTS = (4, 3, 2, 1)  # channels computed at once

# (elements of all channels, results of all channels, each tap's indices, each tap's weights, first point of the weights
# and indices, points, taps, elements of a channel, results of a channel)
LOOP = "void(ptr, ptr, ptr, ptr, i64, i64, i64, i64, i64)"


@native("i64(ptr, i64, i64, i64)")
def signs_of(indices, at, m, taps):
    """Negative if a tap of one of m points is outside."""
    signs = 0
    for k in range(taps):
        row = indices.ptr[k] + 8 * at
        for p in range(m):
            signs |= row.i64[p]
    return signs


def _make_sums(real: Type, count: int, inside: bool) -> NativeFunction:
    """Results of `count` channels."""

    @native(LOOP, name=f"tap_sums_{real.name}_{count}_{int(inside)}")
    def sums(x, y, indices, weights, at, m, taps, size, points):
        for p in range(m):
            a, b, c, d = real(0), real(0), real(0), real(0)
            for k in range(taps):
                index, w = indices.ptr[k].i64[at + p], load(real, weights.ptr[k], at + p)
                if inside or index >= 0:
                    a += load(real, x, index) * w
                    if count > 1:
                        b += load(real, x, index + size) * w
                    if count > 2:
                        c += load(real, x, index + 2 * size) * w
                    if count > 3:
                        d += load(real, x, index + 3 * size) * w
                else:
                    zero = real(0) * w
                    a, b, c, d = a + zero, b + zero, c + zero, d + zero
            store(real, y, p, a)
            if count > 1:
                store(real, y, p + points, b)
            if count > 2:
                store(real, y, p + 2 * points, c)
            if count > 3:
                store(real, y, p + 3 * points, d)

    return sums


def _make_pours(real: Type, count: int, inside: bool) -> NativeFunction:
    """Add results of `count` channels to the elements that they came from."""

    @native("void(ptr, i64, VALUE)".replace("VALUE", real.name), name=f"tap_pour_{real.name}", inline=True)
    def pour(x, index, value):
        store(real, x, index, load(real, x, index) + value)

    @native(LOOP, name=f"tap_pours_{real.name}_{count}_{int(inside)}")
    def pours(x, y, indices, weights, at, m, taps, size, points):
        b, c, d = real(0), real(0), real(0)
        for p in range(m):
            a = load(real, y, p)
            if count > 1:
                b = load(real, y, p + points)
            if count > 2:
                c = load(real, y, p + 2 * points)
            if count > 3:
                d = load(real, y, p + 3 * points)
            for k in range(taps):
                index, w = indices.ptr[k].i64[at + p], load(real, weights.ptr[k], at + p)
                if inside or index >= 0:
                    pour(x, index, a * w)
                    if count > 1:
                        pour(x, index + size, b * w)
                    if count > 2:
                        pour(x, index + 2 * size, c * w)
                    if count > 3:
                        pour(x, index + 3 * size, d * w)

    return pours


def _make_dots(real: Type, count: int, inside: bool) -> NativeFunction:
    """Add the terms of `count` channels to the weights."""

    @native(LOOP, name=f"tap_dots_{real.name}_{count}_{int(inside)}")
    def dots(x, y, indices, weights, at, m, taps, size, points):
        b, c, d = real(0), real(0), real(0)
        for p in range(m):
            a = load(real, y, p)
            if count > 1:
                b = load(real, y, p + points)
            if count > 2:
                c = load(real, y, p + 2 * points)
            if count > 3:
                d = load(real, y, p + 3 * points)
            for k in range(taps):
                index = indices.ptr[k].i64[at + p]
                if inside or index >= 0:
                    total = a * load(real, x, index)
                    if count > 1:
                        total += b * load(real, x, index + size)
                    if count > 2:
                        total += c * load(real, x, index + 2 * size)
                    if count > 3:
                        total += d * load(real, x, index + 3 * size)
                    store(real, weights.ptr[k], at + p, load(real, weights.ptr[k], at + p) + total)

    return dots


def _make_channels(name: str, real: Type, maker: Callable[[Type, int, bool], NativeFunction]) -> NativeFunction:
    """All channels of the points of a block."""
    width = real.itemsize

    def make_both(count: int) -> NativeFunction:
        within, beyond = maker(real, count, True), maker(real, count, False)

        @native(LOOP.replace(")", ", i64)"), name=f"tap_both_{name}_{real.name}_{count}")
        def both(x, y, indices, weights, at, m, taps, size, points, signs):
            if signs >= 0:
                within(x, y, indices, weights, at, m, taps, size, points)
            else:
                beyond(x, y, indices, weights, at, m, taps, size, points)

        return both

    four, three, two, one = (make_both(count) for count in COUNTS)

    @native(LOOP.replace(")", ", i64)"), name=f"tap_channels_{name}_{real.name}")
    def every(x, y, indices, weights, at, m, taps, size, points, channels):
        signs = signs_of(indices, at, m, taps)
        for c in range(0, channels, 4):
            x_of, y_of = x + width * c * size, y + width * c * points
            if channels - c > 3:
                four(x_of, y_of, indices, weights, at, m, taps, size, points, signs)
            elif channels - c == 3:
                three(x_of, y_of, indices, weights, at, m, taps, size, points, signs)
            elif channels - c == 2:
                two(x_of, y_of, indices, weights, at, m, taps, size, points, signs)
            else:
                one(x_of, y_of, indices, weights, at, m, taps, size, points, signs)

    return every


def _make_by_points(
    name: str, dtype: str, maker: Callable[[Type, int, bool], NativeFunction], first: bool
) -> NativeFunction:
    """A kernel whose piece is a part of the points of an item.  bufs: y, x, each tap's indices, each tap's weights; the
    weights come `first` if they are the result."""
    real = REAL[dtype]
    width, every = real.itemsize, _make_channels(name, real, maker)

    @native("i32(ptr, ptr, i64)", name=f"rl_tap_{name}_{dtype}")
    def by_points(bufs, ints, piece):
        channels, size, taps, points = ints.i64[T.channels], ints.i64[T.size], ints.i64[T.taps], ints.i64[T.points]
        n, part = piece // ints.i64[T.parts], piece % ints.i64[T.parts]
        rest = bufs
        if first:
            rest = bufs + 8 * taps
        y, x = rest.ptr[0] + width * n * channels * points, rest.ptr[1] + width * n * channels * size
        indices = rest + 16
        weights = indices + 8 * taps
        if first:
            weights = bufs
        last = min((part + 1) * ints.i64[T.chunk], points)
        for begin in range(part * ints.i64[T.chunk], last, POINTS):
            m, at = min(last - begin, i64(POINTS)), n * points + begin
            if first:
                for k in range(taps):
                    memset(weights.ptr[k] + width * at, 0, width * m)
            every(x, y + width * begin, indices, weights, at, m, taps, size, points, channels)
        return 0

    return by_points


def make_weighted_gather(dtype: str) -> NativeFunction:
    """The kernel of `weighted_gather`.  bufs: result, x, each tap's indices, each tap's weights; a piece is a part of
    the points of an item."""
    return _make_by_points("sums", dtype, _make_sums, False)


def make_gather_weights(dtype: str) -> NativeFunction:
    """The kernel of `gather_weights`.  bufs: each tap's weights, y, x, each tap's indices; a piece is a part of the
    points of an item."""
    return _make_by_points("dots", dtype, _make_dots, True)


def make_weighted_scatter(dtype: str) -> NativeFunction:
    """The kernel of `weighted_scatter`.  bufs: result, y, each tap's indices, each tap's weights; a piece is a few
    channels of an item."""
    real = REAL[dtype]
    width, every = real.itemsize, _make_channels("pours", real, _make_pours)

    @native("i32(ptr, ptr, i64)", name=f"rl_taps_back_{dtype}")
    def back(bufs, ints, piece):
        channels, size, taps, points = ints.i64[T.channels], ints.i64[T.size], ints.i64[T.taps], ints.i64[T.points]
        n, part = piece // ints.i64[T.parts], piece % ints.i64[T.parts]
        begin = part * ints.i64[T.chunk]
        count = min(ints.i64[T.chunk], channels - begin)
        x, y = (
            bufs.ptr[0] + width * (n * channels + begin) * size,
            bufs.ptr[1] + width * (n * channels + begin) * points,
        )
        memset(x, 0, width * count * size)
        for first in range(0, points, POINTS):
            m = min(points - first, i64(POINTS))
            every(
                x,
                y + width * first,
                bufs + 16,
                bufs + (16 + 8 * taps),
                n * points + first,
                m,
                taps,
                size,
                points,
                count,
            )
        return 0

    return back
