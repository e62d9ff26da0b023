"""Direct convolutions of small planes whose channels are made contiguous first, in the native language.

Rows of such planes are shorter than a vector: squares of channels and positions are transposed, so that a vector holds
channels of one position.
"""

from __future__ import annotations

from rushlight._backends.cpu.conv.conv_descriptor import NO_EPILOGUE, POSITION_ROWS
from rushlight._backends.cpu.conv.direct_descriptor import REAL, D, item_of
from rushlight._backends.cpu.microkernels.register_tile import RegisterTile
from rushlight._native import NativeFunction, extern, i64, load, native, store

__all__ = ["make_transposed", "make_transposes"]


def make_transposes(
    source: str, tile: RegisterTile, take: NativeFunction, put: NativeFunction
) -> tuple[NativeFunction, NativeFunction, NativeFunction]:
    real, n, item = REAL[source], tile.square, item_of(source)
    size = real.itemsize
    transpose = extern(tile.transpose_symbol, "void(ptr, ptr, i64, i64, i64)")

    @native("void(ptr, ptr, ptr, i64, i64)", name=f"transpose_planes_{source}")
    def transpose_planes(ints, to, x, valid, apart):
        """Transpose planes of `valid` channels, `apart` from one another, to one plane whose positions hold a vector of
        channels."""
        plane, lanes = ints.i64[D.in_h] * ints.i64[D.in_w], ints.i64[D.lanes]
        whole = valid // n * n
        if plane < n:
            whole = 0
        for i in range(0, whole, n):
            transpose(to + size * i, x + size * i * apart, apart, lanes, plane // n * n)
            if plane % n != 0:  # the last square overlaps the one before
                transpose(to + size * (i + (plane - n) * lanes), x + size * (i * apart + plane - n), apart, lanes, n)
        for i in range(whole, valid):
            for k in range(plane):
                store(real, to, k * lanes + i, load(real, x, i * apart + k))

    @native("void(ptr, ptr, ptr, ptr, i64)", name=f"transpose_in_{source}")
    def transpose_in(ints, to, x, wide, valid):
        """The same for planes in memory; narrow dtypes are widened to `wide` first."""
        plane, apart = ints.i64[D.in_h] * ints.i64[D.in_w], ints.i64[D.x_transpose]
        if item == size:
            transpose_planes(ints, to, x, valid, apart)
        else:
            for i in range(valid):
                take(wide + size * i * plane, x + item * i * apart, plane, 1)
            transpose_planes(ints, to, wide, valid, plane)

    @native("void(ptr, ptr, ptr, i64, i64)", name=f"transpose_out_{source}")
    def transpose_out(ints, y, from_, valid, apart):
        """The inverse of `transpose_planes`."""
        plane, lanes = ints.i64[D.out_h] * ints.i64[D.out_w], ints.i64[D.lanes]
        whole = valid // n * n
        if plane < n:
            whole = 0
        if whole > 0:
            for k in range(0, plane, n):
                at = min(k, plane - n)
                transpose(y + size * at, from_ + size * at * lanes, lanes, apart, whole)
        for i in range(whole, valid):
            for k in range(plane):
                store(real, y, i * apart + k, load(real, from_, k * lanes + i))

    @native("void(ptr, ptr, ptr, ptr, i64)", name=f"transpose_narrow_{source}")
    def transpose_narrow(ints, y, from_, wide, valid):
        """The inverse of `transpose_in`; narrow dtypes are computed in `wide` first."""
        if item == size:
            transpose_out(ints, y, from_, valid, ints.i64[D.y_transpose])
        else:
            plane = ints.i64[D.out_h] * ints.i64[D.out_w]
            transpose_out(ints, wide, from_, valid, plane)
            for i in range(valid):
                put(y + item * i * ints.i64[D.y_transpose], 1, wide + size * i * plane, plane)

    return transpose_in, transpose_out, transpose_narrow


def make_transposed(
    source: str,
    unit: NativeFunction,
    transposes: tuple[NativeFunction, NativeFunction, NativeFunction],
    put_epilogue: NativeFunction,
) -> NativeFunction:
    """Convolve small planes whose channels are made contiguous first; `unit` convolves contiguous, wide operands."""
    size, item = REAL[source].itemsize, item_of(source)
    transpose_in, transpose_out, transpose_narrow = transposes

    @native("i32(ptr, ptr, ptr, i64, ptr, ptr, ptr, i64, i64, i64)", name=f"direct_transposed_{source}")
    def convolve_transposed(bufs, ints, own, piece, memory, transposed, done, image, group, valid):
        """Convolve `valid` channels of an image from `group` on.  memory: weights and rows; transposed: planes; done:
        results for an epilogue."""
        plane = ints.i64[D.out_h] * ints.i64[D.out_w]
        results = transposed + size * ints.i64[D.lanes] * ints.i64[D.in_h] * ints.i64[D.in_w]
        wide = results + size * ints.i64[D.lanes] * plane  # for narrow planes
        x = bufs.ptr[ints.i64[D.operand]] + item * (
            image * ints.i64[D.x_n] + group * (ints.i64[D.x_g] + ints.i64[D.x_transpose])
        )
        transpose_in(ints, transposed, x, wide, valid)
        unit(ints, results, transposed, memory, i64(0), ints.i64[D.out_h], i64(0), ints.i64[D.lanes])
        if ints.i64[D.epilogue] == NO_EPILOGUE:
            transpose_narrow(
                ints,
                bufs.ptr[0] + item * (image * ints.i64[D.y_n] + group * ints.i64[D.y_transpose]),
                results,
                wide,
                valid,
            )
            return 0
        constants = ints + ints.i64[D.epilogue_at]
        if ints.i64[D.epilogue] == POSITION_ROWS:
            return put_epilogue(bufs, own, constants, piece, results, image, group, valid, i64(0), plane)
        transpose_out(own, done, results, valid, plane)
        return put_epilogue(bufs, own, constants, piece, done, image, group, valid, i64(0), plane)

    return convolve_transposed
