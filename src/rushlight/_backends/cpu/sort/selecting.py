"""Kernels whose result size depends on the data: counting, listing and gathering the elements that a mask selects.

A mask of n bytes is processed in pieces of `PIECE` bytes on all threads: `count_true` stores the count before each
piece, which gives each piece the offset of its results.
"""

from __future__ import annotations

from typing import Any

from rushlight._native import (
    ctz,
    extern,
    i64,
    load,
    native,
    popcount,
    set_bytes,
    stack,
    store,
    store_chosen,
    store_places,
    u8,
    u16,
    u32,
    u64,
)

__all__ = ["PIECE", "compactors", "count_true", "list_true", "unravel"]

PIECE = 1 << 16
UNRAVEL = 1 << 14  # indices in a piece that is converted to coordinates

rl_parallel_for = extern("rl_parallel_for", "i32(ptr, ptr, ptr, i64)")


@native("i32(ptr, ptr, i64)")
def count_piece(bufs, ints, piece):
    mask = bufs.ptr[0]
    i = piece * PIECE
    stop = min(i + PIECE, ints.i64[0])
    total = 0
    while i + 64 <= stop:
        total += i64(popcount(set_bytes(mask + i)))
        i += 64
    while i < stop:
        total += i64(mask.u8[i] != 0)
        i += 1
    bufs.ptr[1].i64[piece] = total
    return 0


@native("i64(ptr, i64, ptr)")
def count_true(mask, n, before):
    """Count the nonzero bytes of n; before[k] becomes the count before piece k, the last one the total."""
    bufs, ints = stack(16), stack(8)
    bufs.ptr[0] = mask
    bufs.ptr[1] = before
    ints.i64[0] = n
    pieces = (n + PIECE - 1) // PIECE
    rl_parallel_for(count_piece, bufs, ints, pieces)
    total = 0
    for k in range(pieces):
        count = before.i64[k]
        before.i64[k] = total
        total += count
    before.i64[pieces] = total
    return total


@native("i32(ptr, ptr, i64)")
def list_piece(bufs, ints, piece):
    mask, out = bufs.ptr[0], bufs.ptr[2]
    i = piece * PIECE
    stop = min(i + PIECE, ints.i64[0])
    k, end = bufs.ptr[1].i64[piece], bufs.ptr[1].i64[piece + 1]
    while i + 64 <= stop and k < end:
        bits = set_bytes(mask + i)
        if k + 72 <= end and popcount(bits) > 8:
            for part in range(8):
                few = (bits >> u64(8 * part)) & u64(255)
                store_places(out + 8 * k, i + 8 * part, few)
                k += i64(popcount(few))
        else:
            while bits != u64(0):
                out.i64[k] = i + i64(ctz(bits))
                bits &= bits - u64(1)
                k += 1
        i += 64
    while i < stop and k < end:
        if mask.u8[i] != 0:
            out.i64[k] = i
            k += 1
        i += 1
    return 0


@native("void(ptr, i64, ptr, ptr)")
def list_true(mask, n, before, out):
    """The indices of the nonzero bytes; `before` is the result of `count_true`."""
    bufs, ints = stack(24), stack(8)
    bufs.ptr[0] = mask
    bufs.ptr[1] = before
    bufs.ptr[2] = out
    ints.i64[0] = n
    rl_parallel_for(list_piece, bufs, ints, (n + PIECE - 1) // PIECE)


@native("i32(ptr, ptr, i64)")
def unravel_piece(bufs, ints, piece):
    """Indices increase, so most are in the same row as the one before: only the others need divisions."""
    flat, sizes, out = bufs.ptr[0], bufs.ptr[1], bufs.ptr[2]
    n, ndim = ints.i64[0], ints.i64[1]
    first = piece * UNRAVEL
    width = sizes.i64[ndim - 1]
    row = 0
    for k in range(first, min(first + UNRAVEL, n)):
        column = flat.i64[k] - row
        if k > first and column < width:
            for d in range(ndim - 1):
                out.i64[d * n + k] = out.i64[d * n + k - 1]
        else:
            rest = flat.i64[k]
            for j in range(ndim):
                d = ndim - 1 - j
                q = rest // sizes.i64[d]
                out.i64[d * n + k] = rest - q * sizes.i64[d]
                rest = q
            column = out.i64[(ndim - 1) * n + k]
            row = flat.i64[k] - column
        out.i64[(ndim - 1) * n + k] = column
    return 0


@native("void(ptr, i64, ptr, i64, ptr)")
def unravel(flat, n, sizes, ndim, out):
    """Flat indices, in increasing order, as ndim coordinates each; all those of dim 0 come first."""
    bufs, ints = stack(24), stack(16)
    bufs.ptr[0] = flat
    bufs.ptr[1] = sizes
    bufs.ptr[2] = out
    ints.i64[0] = n
    ints.i64[1] = ndim
    rl_parallel_for(unravel_piece, bufs, ints, (n + UNRAVEL - 1) // UNRAVEL)


def _compact(element: Any, name: str) -> Any:
    size, lanes = element.itemsize, 64 // element.itemsize

    @native("i32(ptr, ptr, i64)", name=f"compact_piece_{name}")
    def compact_piece(bufs, ints, piece):
        mask, source, out = bufs.ptr[0], bufs.ptr[2], bufs.ptr[3]
        i = piece * PIECE
        stop = min(i + PIECE, ints.i64[0])
        k, end = bufs.ptr[1].i64[piece], bufs.ptr[1].i64[piece + 1]
        while i + 64 <= stop and k < end:
            bits = set_bytes(mask + i)
            if k + 64 + lanes <= end and popcount(bits) > 8:
                for part in range(size):
                    few = bits >> u64(lanes * part)
                    if lanes < 64:
                        few &= u64((1 << lanes) - 1)
                    store_chosen(element, out + size * k, source + size * (i + lanes * part), few)
                    k += i64(popcount(few))
            else:
                while bits != u64(0):
                    store(element, out, k, load(element, source, i + i64(ctz(bits))))
                    bits &= bits - u64(1)
                    k += 1
            i += 64
        while i < stop and k < end:
            if mask.u8[i] != 0:
                store(element, out, k, load(element, source, i))
                k += 1
            i += 1
        return 0

    @native("void(ptr, ptr, i64, ptr, ptr)", name=f"compact_{name}")
    def compact(source, mask, n, before, out):
        """The elements where the mask is set, contiguous; `before` is the result of `count_true`."""
        bufs, ints = stack(32), stack(8)
        bufs.ptr[0] = mask
        bufs.ptr[1] = before
        bufs.ptr[2] = source
        bufs.ptr[3] = out
        ints.i64[0] = n
        rl_parallel_for(compact_piece, bufs, ints, (n + PIECE - 1) // PIECE)

    return compact


compactors = {size: _compact(kind, f"{8 * size}") for size, kind in ((1, u8), (2, u16), (4, u32), (8, u64))}
