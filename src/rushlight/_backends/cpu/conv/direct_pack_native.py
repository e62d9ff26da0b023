"""Layout of direct convolutions' weights and initial sums in the order in which blocks read them, in the native
language."""

from __future__ import annotations

from rushlight._backends.cpu.conv.direct_descriptor import REAL, D, item_of
from rushlight._backends.cpu.conv.direct_rows_native import make_movers
from rushlight._backends.cpu.conv.direct_tile import RowMover
from rushlight._backends.cpu.microkernels.register_tile import RegisterTile
from rushlight._native import NativeFunction, Type, extern, i64, native, stack, store

__all__ = ["make_load_weights"]


def _make_taps(source: str, take: NativeFunction, transposer: RegisterTile) -> NativeFunction:
    size, item, n = REAL[source].itemsize, item_of(source), transposer.square
    transpose = extern(transposer.transpose_symbol, "void(ptr, ptr, i64, i64, i64)")

    @native("void(ptr, ptr, ptr, i64, i64, i64)", name=f"transpose_taps_{source}")
    def transpose_taps(ints, to, w, count, lanes, across):
        """Transpose, by squares, the weights of `lanes` lanes, `across` apart, for `count` contiguous taps."""
        widened = stack(size * n * n * 4)
        k: i64 = 0
        while k < count:
            some = min(i64(4 * n), (count - k) // n * n)
            if some == 0:  # a remainder is the end of a square
                k, some = count - n, i64(n)
            for i in range(0, lanes, n):
                if item == size:
                    transpose(
                        to + size * (k * ints.i64[D.lanes] + i),
                        w + item * (i * across + k),
                        across,
                        ints.i64[D.lanes],
                        some,
                    )
                else:
                    for j in range(n):
                        take(widened + size * j * 4 * n, w + item * ((i + j) * across + k), some, 1)
                    transpose(to + size * (k * ints.i64[D.lanes] + i), widened, i64(4 * n), ints.i64[D.lanes], some)
            k += some

    @native("void(ptr, ptr, ptr, i64, i64, i64)", name=f"taps_{source}")
    def taps(ints, to, w, group, first, valid):
        """Load the weights of a block in the order of tiles: of results from `first` on of a group, or of `valid`
        contiguous channels."""
        lanes, outs, mix = ints.i64[D.lanes], ints.i64[D.outs], ints.i64[D.mix]
        base = w + item * (ints.i64[D.w_base] + group // mix * ints.i64[D.w_g] + first * ints.i64[D.w_o])
        wide, high, together = ints.i64[D.kernel_w], ints.i64[D.kernel_h], ints.i64[D.together] != 0
        each = ints.i64[D.kernel_d] * high * wide
        run, across = valid, ints.i64[D.w_g]  # evenly spaced lanes
        if mix > 1:
            across = ints.i64[D.w_o]
            if ints.i64[D.w_g] != mix * across:
                run = mix
        near = (
            ints.i64[D.w_w] == 1
            and ints.i64[D.w_h] == wide
            and (ints.i64[D.w_d] == high * wide or ints.i64[D.kernel_d] == 1)
        )
        if mix > 1 and ints.i64[D.kernel_d] * ints.i64[D.steps] > 1:
            near = False
        if together and near and run % n == 0 and each >= n:
            for c in range(ints.i64[D.depth] * mix):
                for g in range(valid // run):
                    from_ = base + item * (c * ints.i64[D.w_c] + g * run // mix * ints.i64[D.w_g])
                    transpose_taps(ints, to + size * (c * each * lanes + g * run), from_, each, run, across)
            return
        tap = size * (lanes if together else outs)
        rows = high // ints.i64[D.steps]  # kernel rows that a block takes at once
        for c in range(ints.i64[D.depth] * mix):
            for d in range(ints.i64[D.kernel_d]):
                for h in range(high):
                    for v in range(wide):
                        at = base + item * (
                            c * ints.i64[D.w_c] + d * ints.i64[D.w_d] + h * ints.i64[D.w_h] + v * ints.i64[D.w_w]
                        )
                        out = to + tap * (((c * ints.i64[D.kernel_d] + d) * high + h) * wide + v)
                        if mix > 1:
                            out = to + tap * (
                                (((d * ints.i64[D.steps] + h // rows) * mix + c) * rows + h % rows) * wide + v
                            )
                        if not together:
                            take(out, at, outs, ints.i64[D.w_o])
                        else:
                            for g in range(valid // run):
                                take(out + size * g * run, at + item * (g * run // mix * ints.i64[D.w_g]), run, across)

    return taps


def _make_bias(target: str, real: Type, take: NativeFunction) -> NativeFunction:
    item = item_of(target)

    @native("void(ptr, ptr, ptr, i64, i64, i64)", name=f"start_{target}")
    def start(ints, to, bias, group, first, valid):
        """Load the bias of a block's results."""
        together = ints.i64[D.together] != 0
        if ints.i64[D.bias_o] < 0:
            for k in range(ints.i64[D.lanes] if together else ints.i64[D.outs]):
                store(real, to, k, real(-0.0))
        elif together:
            take(to, bias + item * group * ints.i64[D.bias_g], valid, ints.i64[D.bias_g])
        else:
            take(
                to,
                bias + item * (group * ints.i64[D.bias_g] + first * ints.i64[D.bias_o]),
                ints.i64[D.outs],
                ints.i64[D.bias_o],
            )

    return start


def make_load_weights(
    source: str, added: str, mover: RowMover, take: NativeFunction, transposer: RegisterTile
) -> NativeFunction:
    real = REAL[source]
    size, take_added = real.itemsize, take if source == added else make_movers(added, mover)[0]
    taps, bias = _make_taps(source, take, transposer), _make_bias(added, real, take_added)

    @native("void(ptr, ptr, ptr, i64, i64, i64)", name=f"weights_{source}_{added}")
    def load_weights(bufs, ints, memory, each, group, valid):
        """Load the bias of a group's blocks, followed by their weights, `each` bytes apart."""
        outs, width = ints.i64[D.outs], ints.i64[D.lanes] if ints.i64[D.together] != 0 else i64(1)
        for b in range(ints.i64[D.blocks]):
            weights = memory + each * b
            if ints.i64[D.bias_o] < 0:
                bias(ints, weights, None, group, b * outs, valid)
            else:
                bias(ints, weights, bufs.ptr[ints.i64[D.operand] + 2], group, b * outs, valid)
            taps(ints, weights + size * outs * width, bufs.ptr[ints.i64[D.operand] + 1], group, b * outs, valid)

    return load_weights
