"""Unpooling, the scatter of values to one position of each window, as in the gradient of max pooling, in the native
language.

A piece is some planes (or blocks of contiguous channels) and a band of rows of the result.  The windows that meet the
band are visited in order, and their values are added in memory that stays in the cache, as wide as the windows reach;
then the band is written, rounded once.  Every element is summed in the order of the windows, whatever the pieces.
"""

from __future__ import annotations

from rushlight._backends.cpu.conv.conv_slab import fetch_of
from rushlight._backends.cpu.random.mt19937 import bfloat_bits, half_bits
from rushlight._backends.cpu.scratch_native import borrow, borrowed, give_back
from rushlight._native import (
    NativeFunction,
    Type,
    Words,
    extern,
    f32,
    f64,
    i8,
    i32,
    i64,
    load,
    memset,
    native,
    select,
    store,
)

__all__ = ["UNPOOL", "make_unpool"]

# ints[8 + ...]: windows, result, kernel and its geometry; channels of a block; elements of a row of sums; rows of a
# band; strides
U = UNPOOL = Words(
    """channels out_h out_w high wide kernel_h kernel_w stride_h stride_w dilation_h dilation_w lo_h lo_w
block blocks line band bands chunk total ct_n ct_c ct_h ct_w position_n position_c position_h position_w y_n y_c y_h y_w""",
    first=8,
)
_SHORT = {"float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16"}

rl_fail = extern("rl_fail", "i32(ptr, i64, i64, i64, i64, i64)")


def _make_send(short: str, kind: str, number: Type) -> tuple[NativeFunction, NativeFunction]:
    (memory, fetch), real = fetch_of(short, kind), f64 if kind == "f64" else f32
    size, item, word = real.itemsize, memory.itemsize, f"{short}_{number.name}"

    @native("void(ptr, ptr, ptr, ptr, ptr)", name=f"send_{word}")
    def send(ints, sums, table, ct, position):
        """Add the values of a row of windows, element by element; `sums` is at the first position of the first window."""
        step, apart, stride = ints.i64[U.ct_w], ints.i64[U.position_w], ints.i64[U.stride_w]
        for w in range(ints.i64[U.out_w]):
            to = w * stride + table.i64[i64(load(number, position, w * apart))]
            store(real, sums, to, load(real, sums, to) + fetch(ct, w * step))

    @native("void(ptr, ptr, ptr, ptr, ptr, i64)", name=f"send_block_{word}")
    def send_block(ints, sums, table, ct, position, count):
        """The same for `count` contiguous channels: each position collects from those that send to it."""
        block = ints.i64[U.block]
        for w in range(ints.i64[U.out_w]):
            here = sums + size * w * ints.i64[U.stride_w] * block
            from_, where = ct + item * w * ints.i64[U.ct_w], position + number.itemsize * w * ints.i64[U.position_w]
            for k in range(ints.i64[U.kernel_h] * ints.i64[U.kernel_w]):
                to, k_ = here + size * table.i64[k] * block, number(k)
                for c in range(count):
                    store(
                        real, to, c, load(real, to, c) + select(load(number, where, c) == k_, fetch(from_, c), real(0))
                    )

    return send, send_block


def make_unpool(dtype: str, position_bytes: int) -> NativeFunction:
    """The kernel of `unpool`.  bufs: result, values, their indices."""
    short, number = _SHORT[dtype], i8 if position_bytes == 1 else i32
    kind = "f64" if short == "f64" else "f32"
    real, item = f64 if kind == "f64" else f32, 2 if short in ("f16", "bf16") else 8 if kind == "f64" else 4
    size, narrow, rounded = real.itemsize, item == 2, half_bits if short == "f16" else bfloat_bits
    send, send_block = _make_send(short, kind, number)

    @native("void(ptr, ptr, i64)", name=f"put_sums_{short}")
    def put_sums(y, sums, count):
        """Write contiguous sums, rounded."""
        for k in range(count):
            if narrow:
                y.u16[k] = rounded(sums.f32[k])
            else:
                store(real, y, k, load(real, sums, k))

    @native("void(ptr, ptr, ptr, i64)", name=f"put_line_{short}")
    def put_line(ints, y, sums, count):
        """Write a row of results; `count` channels of each position."""
        block, step = ints.i64[U.block], ints.i64[U.y_w]
        if block == 1 and step == 1:
            put_sums(y, sums, ints.i64[U.wide])
        else:
            for w in range(ints.i64[U.wide]):
                put_sums(y + item * w * step, sums + size * w * block, count)

    @native("void(ptr, ptr, ptr, ptr, i64, i64, i64)", name=f"unpool_band_{short}_{number.name}")
    def unpool_band(bufs, ints, sums, table, image, channel, begin):
        """Compute rows `begin`.. of the result, of the channels from `channel` on."""
        block, step, line = ints.i64[U.block], ints.i64[U.stride_h], ints.i64[U.line]
        end = min(begin + ints.i64[U.band], ints.i64[U.high])
        below = (ints.i64[U.kernel_h] - 1) * ints.i64[U.dilation_h]
        # The first row of windows that reaches the band
        first = max(i64(0), begin + ints.i64[U.lo_h] - below + step - 1) // step
        last = min((end - 1 + ints.i64[U.lo_h]) // step + 1, ints.i64[U.out_h])
        start, count = begin + ints.i64[U.lo_h] - below, min(block, ints.i64[U.channels] - channel)
        memset(sums, 0, size * (end - begin + 2 * below) * line * block)
        for h in range(first, last):
            to = sums + size * (h * step - start) * line * block
            ct = bufs.ptr[1] + item * (image * ints.i64[U.ct_n] + channel * ints.i64[U.ct_c] + h * ints.i64[U.ct_h])
            position = bufs.ptr[2] + position_bytes * (
                image * ints.i64[U.position_n] + channel * ints.i64[U.position_c] + h * ints.i64[U.position_h]
            )
            if block == 1:
                send(ints, to, table, ct, position)
            else:
                send_block(ints, to, table, ct, position, count)
        for h in range(begin, end):
            y = bufs.ptr[0] + item * (image * ints.i64[U.y_n] + channel * ints.i64[U.y_c] + h * ints.i64[U.y_h])
            put_line(ints, y, sums + size * ((h + ints.i64[U.lo_h] - start) * line + ints.i64[U.lo_w]) * block, count)

    @native("i32(ptr, ptr, i64)", name=f"rl_unpool_{short}_{number.name}")
    def unpool(bufs, ints, piece):
        high, wide, line = ints.i64[U.kernel_h], ints.i64[U.kernel_w], ints.i64[U.line]
        table_bytes = (8 * high * wide + 63) // 64 * 64
        slot = borrow(
            table_bytes + size * (ints.i64[U.band] + 2 * (high - 1) * ints.i64[U.dilation_h]) * line * ints.i64[U.block]
        )
        if slot < 0:
            return rl_fail(bufs, piece, 4, 0, 0, 0)
        table = borrowed(slot)
        for h in range(high):  # distance of each position of a window from its first
            for w in range(wide):
                table.i64[h * wide + w] = h * ints.i64[U.dilation_h] * line + w * ints.i64[U.dilation_w]
        for at in range(piece * ints.i64[U.chunk], min((piece + 1) * ints.i64[U.chunk], ints.i64[U.total])):
            unit = at // ints.i64[U.bands]
            image, channel = unit // ints.i64[U.blocks], unit % ints.i64[U.blocks] * ints.i64[U.block]
            unpool_band(
                bufs, ints, table + table_bytes, table, image, channel, at % ints.i64[U.bands] * ints.i64[U.band]
            )
        give_back(slot)
        return 0

    return unpool
