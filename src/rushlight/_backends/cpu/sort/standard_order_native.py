"""`partial_sort`, `nth_element` and `sort` of the GNU C++ library, step by step: they decide which of equal elements
PyTorch takes.

They work on keys with indices (see `sort_native`).  A heap has the greatest key at its top.
"""

from __future__ import annotations

from functools import cache

from rushlight._backends.cpu.sort.sort_native import SORTS, make_insertion, make_moves
from rushlight._native import NativeFunction, load, native, stack

__all__ = ["make_heap", "make_order", "make_selection"]

FEW_LEFT = 3  # elements that selection sorts by insertion
UNPARTED = 16  # elements that sorting leaves to one insertion sort at the end
MOST_WAITING = 80  # pending parts; their depth is at most twice the 32 bits of an index


@cache
def make_heap(dtype: str) -> tuple[NativeFunction, NativeFunction, NativeFunction]:
    """`sink(keys, indices, hole, n, key, index)` fills the hole of a heap of n; `heaped(keys, indices, n)` makes a
    heap, and `lined_up(keys, indices, n)` sorts one.
    """
    key = SORTS[dtype][1]
    put, move, _ = make_moves(dtype)

    @native(f"void(ptr, ptr, i64, i64, {key.name}, u32)", name=f"sink_{dtype}")
    def sink(keys, indices, hole, n, k, p):
        """Move the hole down to a leaf along greater children, then the new element up."""
        top, child = hole, hole
        while child < (n - 1) // 2:
            child = 2 * (child + 1)
            if load(key, keys, child) < load(key, keys, child - 1):
                child -= 1
            move(keys, indices, hole, child)
            hole = child
        if n % 2 == 0 and child == (n - 2) // 2:
            child = 2 * child + 1
            move(keys, indices, hole, child)
            hole = child
        while hole > top and load(key, keys, (hole - 1) // 2) < k:
            parent = (hole - 1) // 2
            move(keys, indices, hole, parent)
            hole = parent
        put(keys, indices, hole, k, p)

    @native("void(ptr, ptr, i64)", name=f"heaped_{dtype}")
    def heaped(keys, indices, n):
        for i in range(n // 2):
            at = n // 2 - 1 - i
            sink(keys, indices, at, n, load(key, keys, at), indices.u32[at])

    @native("void(ptr, ptr, i64)", name=f"lined_up_{dtype}")
    def lined_up(keys, indices, n):
        for i in range(n - 1):
            last = n - 1 - i
            k: key = load(key, keys, last)
            p = indices.u32[last]
            move(keys, indices, last, 0)
            sink(keys, indices, 0, last, k, p)

    return sink, heaped, lined_up


@cache
def _make_least(dtype: str) -> NativeFunction:
    """`least(keys, indices, count, n)`: the least `count` of n, as a heap at the front."""
    key = SORTS[dtype][1]
    _, move, _ = make_moves(dtype)
    sink, heaped, _ = make_heap(dtype)

    @native("void(ptr, ptr, i64, i64)", name=f"least_{dtype}")
    def least(keys, indices, count, n):
        heaped(keys, indices, count)
        for i in range(count, n):
            k: key = load(key, keys, i)
            if k < load(key, keys, 0):
                p = indices.u32[i]
                move(keys, indices, i, 0)
                sink(keys, indices, 0, count, k, p)

    return least


@cache
def _make_parted(dtype: str) -> NativeFunction:
    """`parted(keys, indices, first, last)`: partitions [first, last) at the median of three; returns the start of the
    second part."""
    key = SORTS[dtype][1]
    _, _, swap = make_moves(dtype)

    @native("i64(ptr, ptr, i64, i64)", name=f"parted_{dtype}")
    def parted(keys, indices, first, last):
        a, b, c = first + 1, first + (last - first) // 2, last - 1
        x: key = load(key, keys, a)
        y: key = load(key, keys, b)
        z: key = load(key, keys, c)
        middle = a
        if x < y:
            if y < z:
                middle = b
            elif x < z:
                middle = c
        elif not x < z:
            middle = c if y < z else b
        swap(keys, indices, first, middle)
        pivot: key = load(key, keys, first)
        i, j = first + 1, last
        while True:
            while load(key, keys, i) < pivot:
                i += 1
            j -= 1
            while pivot < load(key, keys, j):
                j -= 1
            if i >= j:
                return i
            swap(keys, indices, i, j)
            i += 1

    return parted


@native("i64(i64)", inline=True)
def depth_of(n):
    """The number of partitions of n elements before a heap takes over: parts that stay large would take too long."""
    depth = 0
    while n > 1:
        depth += 2
        n //= 2
    return depth


def make_selection(dtype: str) -> NativeFunction:
    """`nth(keys, indices, n, rank)`: moves the element of the rank to its index, and lesser ones before it."""
    width = SORTS[dtype][1].itemsize
    (_, insertion), (_, _, swap) = make_insertion(dtype), make_moves(dtype)
    least, parted = _make_least(dtype), _make_parted(dtype)

    @native("void(ptr, ptr, i64, i64)", name=f"nth_{dtype}")
    def nth(keys, indices, n, rank):
        first, last = 0, n
        depth = depth_of(n)
        while last - first > FEW_LEFT:
            if depth == 0:
                least(keys + first * width, indices + first * 4, rank + 1 - first, last - first)
                swap(keys, indices, first, rank)
                return
            depth -= 1
            cut = parted(keys, indices, first, last)
            if cut <= rank:
                first = cut
            else:
                last = cut
        insertion(keys + first * width, indices + first * 4, last - first)

    return nth


def make_order(dtype: str) -> NativeFunction:
    """`order(keys, indices, n)`: sorts all."""
    width = SORTS[dtype][1].itemsize
    (_, insertion), (_, heaped, lined_up), parted = make_insertion(dtype), make_heap(dtype), _make_parted(dtype)

    @native("void(ptr, ptr, i64)", name=f"ordered_{dtype}")
    def order(keys, indices, n):
        waiting = stack(3 * 8 * MOST_WAITING)
        count = 1
        waiting.i64[0] = 0
        waiting.i64[1] = n
        waiting.i64[2] = depth_of(n)
        while count > 0:
            count -= 1
            first, last, depth = waiting.i64[3 * count], waiting.i64[3 * count + 1], waiting.i64[3 * count + 2]
            while last - first > UNPARTED:
                if depth == 0:
                    heaped(keys + first * width, indices + first * 4, last - first)
                    lined_up(keys + first * width, indices + first * 4, last - first)
                    break
                depth -= 1
                cut = parted(keys, indices, first, last)
                waiting.i64[3 * count] = cut
                waiting.i64[3 * count + 1] = last
                waiting.i64[3 * count + 2] = depth
                count += 1
                last = cut
        insertion(keys, indices, n)

    return order
