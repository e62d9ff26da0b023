"""The gradient by the weights of convolutions with few channels a group: sums over all positions, in the native
language.

The operands are those of a `conv_windows` whose kernel is the cotangents: images [B, G, N, *S], cotangents [G, O, N,
*P], results [B, G, O, *K].  A piece is some of the B x G pairs; it goes over the images in turn and sums each by itself
first.
"""

from __future__ import annotations

from rushlight._backends.cpu.conv.direct_descriptor import REAL, D, item_of
from rushlight._backends.cpu.conv.direct_rows_native import make_movers, make_ready, positions_of
from rushlight._backends.cpu.conv.direct_tile import RowMover
from rushlight._backends.cpu.scratch_native import borrow, borrowed, give_back
from rushlight._native import NativeFunction, call_ptr, extern, i64, load, memset, native, store

__all__ = ["make_weight_gradient"]

SIGNATURE = "void(ptr, i64, i64, ptr, i64, ptr, i64, i64, i64)"
rl_fail = extern("rl_fail", "i32(ptr, i64, i64, i64, i64, i64)")


def _make_rows(source: str, mover: RowMover, take: NativeFunction) -> NativeFunction:
    size, item = REAL[source].itemsize, item_of(source)
    ready, move_positions = make_ready(source, mover, take), positions_of(source, mover)

    @native("void(ptr, ptr, ptr, ptr, ptr, ptr, i64, i64, i64)", name=f"rows_{source}")
    def rows_of(ints, sums, rows, aside, x, ct, begin, end, valid):
        """Add result rows `begin`..`end` of one plane; x and ct point to the planes."""
        lanes, pitch = ints.i64[D.lanes], size * ints.i64[D.pitch]
        together = ints.i64[D.together] != 0
        first = begin * ints.i64[D.stride_h] - ints.i64[D.pad_h]
        reach = (ints.i64[D.kernel_h] - 1) * ints.i64[D.dilation_h] + 1
        kept = lanes if together else ints.i64[D.out_w] - (ints.i64[D.vectors] - 1) * lanes
        line = size * ints.i64[D.vectors] * lanes
        other = size * lanes * ints.i64[D.kernel_d] * ints.i64[D.kernel_h] * ints.i64[D.kernel_w]
        high = ints.i64[D.kernel_h] // ints.i64[D.steps]
        done: i64 = 0
        at = begin
        while at < end:
            have, tile = ints.i64[D.height_tile], ints.ptr[D.tile]
            if end - at < have:
                have, tile = i64(1), ints.ptr[D.last]
            needed = (at + have - 1 - begin) * ints.i64[D.stride_h] + reach
            for i in range(done, needed):
                h = first + i
                if h >= 0 and h < ints.i64[D.in_h]:
                    ready(ints, rows + pitch * i, x + item * h * ints.i64[D.x_h], valid)
                else:
                    memset(rows + pitch * i, 0, pitch)
            done = max(done, needed)
            for o in range(ints.i64[D.outs]):
                for r in range(have):
                    from_ = ct + item * (o * ints.i64[D.w_o] + (at + r) * ints.i64[D.w_h])
                    if move_positions is not None and together:
                        move_positions(
                            aside + line * r, size * lanes, from_, item * ints.i64[D.w_w], ints.i64[D.out_w], valid
                        )
                    elif together:
                        for v in range(ints.i64[D.out_w]):
                            take(aside + line * r + size * v * lanes, from_ + item * v * ints.i64[D.w_w], valid, 1)
                    else:
                        take(aside + line * r, from_, ints.i64[D.out_w], ints.i64[D.w_w])
                for b in range(ints.i64[D.steps]):
                    here = rows + pitch * ((at - begin) * ints.i64[D.stride_h] + b * high * ints.i64[D.dilation_h])
                    there = (
                        sums
                        + size
                        * lanes
                        * (o * ints.i64[D.kernel_d] * ints.i64[D.kernel_h] + b * high)
                        * ints.i64[D.kernel_w]
                    )
                    call_ptr(
                        SIGNATURE,
                        tile,
                        here,
                        pitch,
                        size * ints.i64[D.phase],
                        aside,
                        line,
                        there,
                        other,
                        ints.i64[D.vectors],
                        kept,
                    )
            at += have

    return rows_of


def _make_image(source: str, rows_of: NativeFunction) -> NativeFunction:
    real = REAL[source]
    size, item = real.itemsize, item_of(source)

    @native("void(ptr, ptr, ptr, ptr, ptr, i64)", name=f"image_{source}")
    def image(ints, total, memory, x, ct, valid):
        """Add one image; memory: its own sums, rows of cotangents, input rows."""
        lanes = ints.i64[D.lanes]
        taps = ints.i64[D.kernel_d] * ints.i64[D.kernel_h] * ints.i64[D.kernel_w]
        count = ints.i64[D.outs] * ints.i64[D.mix] * taps * lanes
        aside = memory + (size * count + 63) // 64 * 64
        rows = aside + size * ints.i64[D.height_tile] * ints.i64[D.vectors] * lanes
        memset(memory, 0, size * count)
        for d in range(ints.i64[D.kernel_d]):
            for p in range(ints.i64[D.out_d]):
                depth = d * ints.i64[D.dilation_d] + p * ints.i64[D.stride_d] - ints.i64[D.pad_d]
                if depth >= 0 and depth < ints.i64[D.in_d]:
                    begin: i64 = 0
                    while begin < ints.i64[D.out_h]:
                        sums = memory + size * d * ints.i64[D.kernel_h] * ints.i64[D.kernel_w] * lanes
                        end = min(begin + ints.i64[D.blocks], ints.i64[D.out_h])
                        rows_of(
                            ints,
                            sums,
                            rows,
                            aside,
                            x + item * depth * ints.i64[D.x_d],
                            ct + item * p * ints.i64[D.w_d],
                            begin,
                            end,
                            valid,
                        )
                        begin += ints.i64[D.blocks]
        for k in range(count):
            store(real, total, k, load(real, total, k) + load(real, memory, k))

    return image


def _make_results(source: str, target: str, put: NativeFunction) -> NativeFunction:
    real = REAL[source]
    size, y_item = real.itemsize, item_of(target)

    @native("void(ptr, ptr, ptr, i64)", name=f"results_{source}_{target}")
    def results(ints, y, total, valid):
        """Write the sums of a piece: over all lanes, or each lane's own."""
        lanes = ints.i64[D.lanes]
        at: i64 = 0
        mix, outer = ints.i64[D.mix], ints.i64[D.y_n] if ints.i64[D.mix] > 1 else ints.i64[D.y_o]
        for o in range(ints.i64[D.outs] * mix):
            for d in range(ints.i64[D.kernel_d]):
                for h in range(ints.i64[D.kernel_h]):
                    for w in range(ints.i64[D.kernel_w]):
                        out = y + y_item * (o * outer + d * ints.i64[D.y_d] + h * ints.i64[D.y_h] + w * ints.i64[D.y_w])
                        if mix > 1:
                            for g in range(valid // mix):
                                put(
                                    out + y_item * g * ints.i64[D.y_g],
                                    ints.i64[D.y_o],
                                    total + size * (at + g * mix),
                                    mix,
                                )
                        elif ints.i64[D.together] != 0:
                            put(out, ints.i64[D.y_g], total + size * at, valid)
                        else:
                            half = lanes // 2
                            while half > 0:
                                for k in range(half):
                                    store(
                                        real,
                                        total,
                                        at + k,
                                        load(real, total, at + k) + load(real, total, at + k + half),
                                    )
                                half = half // 2
                            put(out, 1, total + size * at, 1)
                        at += lanes

    return results


def make_weight_gradient(source: str, target: str, mover: RowMover) -> NativeFunction:
    """The kernel; bufs: result, images, cotangents."""
    size, item, y_item = REAL[source].itemsize, item_of(source), item_of(target)
    take, put = make_movers(source, mover)
    if source != target:
        _, put = make_movers(target, mover)
    image, results = _make_image(source, _make_rows(source, mover, take)), _make_results(source, target, put)

    @native("i32(ptr, ptr, i64)", name=f"rl_weights_{source}_{target}")
    def weights(bufs, ints, piece):
        lanes = ints.i64[D.lanes]
        count = (
            ints.i64[D.outs]
            * ints.i64[D.mix]
            * ints.i64[D.kernel_d]
            * ints.i64[D.kernel_h]
            * ints.i64[D.kernel_w]
            * lanes
        )
        sums_bytes = (size * count + 63) // 64 * 64
        more = size * (ints.i64[D.height_tile] * ints.i64[D.vectors] * lanes + ints.i64[D.rows] * ints.i64[D.pitch])
        slot = borrow(2 * sums_bytes + more)
        if slot < 0:
            return rl_fail(bufs, piece, 4, 0, 0, 0)
        total = borrowed(slot)
        memset(total, 0, 2 * sums_bytes + more)
        for number in range(
            piece * ints.i64[D.chunk], min((piece + 1) * ints.i64[D.chunk], ints.i64[D.batch] * ints.i64[D.groups])
        ):
            b, group = number // ints.i64[D.groups], number % ints.i64[D.groups]
            valid = lanes
            if ints.i64[D.together] != 0:
                group = group * lanes
                valid = min(lanes, ints.i64[D.singles] - group)
            x = bufs.ptr[1] + item * (b * ints.i64[D.x_n] + group * ints.i64[D.x_g])
            ct = bufs.ptr[2] + item * (ints.i64[D.w_base] + group * ints.i64[D.w_g])
            memset(total, 0, size * count)
            for n in range(ints.i64[D.depth]):
                image(
                    ints,
                    total,
                    total + sums_bytes,
                    x + item * n * ints.i64[D.x_c],
                    ct + item * n * ints.i64[D.w_c],
                    valid,
                )
            results(
                ints,
                bufs.ptr[0] + y_item * (b * ints.i64[D.y_n] + group // ints.i64[D.mix] * ints.i64[D.y_g]),
                total,
                valid,
            )
        give_back(slot)
        return 0

    return weights
