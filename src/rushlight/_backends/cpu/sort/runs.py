"""Runs of equal neighbours: the start of each, the run number of each element, the length of each.

A vector is processed in pieces on all threads, those of `selecting`: a mask of the starts of runs, counted there, gives
each piece the number of its first run.
"""

from __future__ import annotations

from typing import Any

from rushlight._backends.cpu.sort.selecting import PIECE
from rushlight._native import extern, f32, f64, i64, load, native, stack, u8, u16, u32, u64

__all__ = ["markers", "number_runs", "run_lengths"]

rl_parallel_for = extern("rl_parallel_for", "i32(ptr, ptr, ptr, i64)")


def _marker(element: Any, name: str, infinity: int = 0) -> Any:
    """`mark(x, n, mask)` for elements of one type; numbers of 16 bits, with this infinity, are compared by their bits."""

    @native("i32(ptr, ptr, i64)", name=f"mark_piece_{name}")
    def mark_piece(bufs, ints, piece):
        x, mask = bufs.ptr[0], bufs.ptr[1]
        first = piece * PIECE
        stop = min(first + PIECE, ints.i64[0])
        if first == 0:
            mask.u8[0] = u8(1)
            first = 1
        for i in range(first, stop):
            new: element = load(element, x, i)
            previous: element = load(element, x, i - 1)
            if infinity:
                size = new & element(0x7FFF)
                zeros = u8((new | previous) & element(0x7FFF) == element(0))
                mask.u8[i] = (u8(new != previous) & (u8(1) - zeros)) | u8(size > element(infinity))
            else:
                mask.u8[i] = u8(new != previous)
        return 0

    @native("void(ptr, i64, ptr)", name=f"mark_{name}")
    def mark(x, n, mask):
        """A byte for each of n > 0 elements: whether it differs from the one before it."""
        bufs, ints = stack(16), stack(8)
        bufs.ptr[0] = x
        bufs.ptr[1] = mask
        ints.i64[0] = n
        rl_parallel_for(mark_piece, bufs, ints, (n + PIECE - 1) // PIECE)

    return mark


_KINDS: dict[str, tuple[Any, ...]] = {
    **{f"{sign}int{8 * size}": (kind, kind.name) for size, kind in ((1, u8), (2, u16), (4, u32), (8, u64)) for sign in ("", "u")},
    "bool": (u8, "u8"), "float32": (f32, "f32"), "float64": (f64, "f64"), "float16": (u16, "f16", 0x7C00), "bfloat16": (u16, "bf16", 0x7F80),
}  # fmt: skip
_MADE = {kind[1]: _marker(*kind) for kind in _KINDS.values()}
markers = {dtype: _MADE[kind[1]] for dtype, kind in _KINDS.items()}


@native("i32(ptr, ptr, i64)")
def number_piece(bufs, ints, piece):
    mask, order, out = bufs.ptr[0], bufs.ptr[2], bufs.ptr[3]
    first = piece * PIECE
    stop = min(first + PIECE, ints.i64[0])
    number = bufs.ptr[1].i64[piece] - 1
    if order is None:
        for i in range(first, stop):
            number += i64(mask.u8[i])
            out.i64[i] = number
    else:
        for i in range(first, stop):
            number += i64(mask.u8[i])
            out.i64[order.i64[i]] = number
    return 0


@native("void(ptr, i64, ptr, ptr, ptr)")
def number_runs(mask, n, before, order, out):
    """The run number of each element, at its index in `order` if given; `before` is the result of `count_true`."""
    bufs, ints = stack(32), stack(8)
    bufs.ptr[0] = mask
    bufs.ptr[1] = before
    bufs.ptr[2] = order
    bufs.ptr[3] = out
    ints.i64[0] = n
    rl_parallel_for(number_piece, bufs, ints, (n + PIECE - 1) // PIECE)


@native("i32(ptr, ptr, i64)")
def length_piece(bufs, ints, piece):
    starts, out, last = bufs.ptr[0], bufs.ptr[1], ints.i64[0] - 1
    first = piece * PIECE
    for k in range(first, min(first + PIECE, last)):
        out.i64[k] = starts.i64[k + 1] - starts.i64[k]
    if last < first + PIECE:
        out.i64[last] = ints.i64[1] - starts.i64[last]
    return 0


@native("void(ptr, i64, i64, ptr)")
def run_lengths(starts, count, n, out):
    """The lengths of `count` > 0 runs that begin at these indices of n elements."""
    bufs, ints = stack(16), stack(16)
    bufs.ptr[0] = starts
    bufs.ptr[1] = out
    ints.i64[0] = count
    ints.i64[1] = n
    rl_parallel_for(length_piece, bufs, ints, (count + PIECE - 1) // PIECE)
