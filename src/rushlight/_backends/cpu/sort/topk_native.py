"""The first elements of rows in order, and the element of one rank, without sorting whole rows where possible.

Of equal elements they take the same as PyTorch.
"""

from __future__ import annotations

from functools import cache

from rushlight._backends.cpu.sort.sort_native import (
    CHUNK,
    DESCENDING,
    ROWS,
    SORTS,
    N,
    free,
    make_extent,
    make_first_sorted,
    make_insertion,
    make_key,
    make_listed,
    make_moves,
    make_picked,
    make_squeezed,
    malloc,
    rl_fail,
)
from rushlight._backends.cpu.sort.standard_order_native import make_heap, make_order, make_selection
from rushlight._native import NativeFunction, i64, load, native, stack, store, u32
from rushlight._native.types import Type

__all__ = ["HOARE", "ORDER", "TIES", "K", "make_kth", "make_quickselect", "make_topk"]

K, SORTED, TIES = 12, 13, 13  # constants of a kernel, after those of `sort_native`
ORDER, HOARE = 0, 1  # the choice among equal elements of a rank
LENGTH = 256  # elements for each selected one from which keeping the best is faster than bisection
BLOCK = 64  # elements whose least is found at once, before any of them is compared
FEW = 64  # most results that are inserted one by one
RARE = 4096  # float32 numbers among which two are rarely equal


# ***** the best of a long row: hardly any of its elements comes in, so most blocks are passed over by their least key *****


@cache
def make_block(dtype: str) -> NativeFunction:
    """`read_block(x, m, flip, block)`: the keys of m elements; returns the least of them."""
    memory, key, _ = SORTS[dtype]
    key_of = make_key(dtype)

    @native(f"{key.name}(ptr, i64, {key.name}, ptr)", name=f"read_block_{dtype}", inline=True)
    def read_block(x, m, flip, block):
        least: key = key(0) - key(1)
        for i in range(m):
            k: key = key_of(load(memory, x, i)) ^ flip
            store(key, block, i, k)
            least = min(least, k)
        return least

    return read_block


@cache
def make_best(dtype: str) -> NativeFunction:
    """`best(x, n, count, flip, keys, indices)`: the least `count` keys of a row in order, and their indices; the best
    so far are kept sorted."""
    memory, key, _ = SORTS[dtype]
    size, read_block, (insert, _) = memory.itemsize, make_block(dtype), make_insertion(dtype)

    @native(f"void(ptr, i64, i64, {key.name}, ptr, ptr)", name=f"best_{dtype}")
    def best(x, n, count, flip, keys, indices):
        block = stack(8 * BLOCK)
        kept = 0
        worst: key = key(0)
        at = 0
        while at < n:
            m = min(n - at, BLOCK)
            least: key = read_block(x + at * size, m, flip, block)
            if kept == count and least >= worst:
                at += m
                continue
            for i in range(m):
                k: key = load(key, block, i)
                if kept == count:
                    if k >= worst:
                        continue
                    kept -= 1
                insert(keys, indices, kept, k, u32(at + i))
                kept += 1
                worst = load(key, keys, kept - 1)
            at += m

    return best


@cache
def make_best_many(dtype: str) -> NativeFunction:
    """`best(x, n, count, flip, work, room)`: the same for more of them, in arrays of `room` >= 4 `count` + `BLOCK`:
    keys, others, indices, others.

    Candidates better than the last so far are collected, and sorted when there are four times as many.
    """
    memory, key, _ = SORTS[dtype]
    size, width = memory.itemsize, key.itemsize
    read_block, first_sorted, (put, _, _) = make_block(dtype), make_first_sorted(dtype), make_moves(dtype)

    @native(f"void(ptr, i64, i64, {key.name}, ptr, i64)", name=f"best_many_{dtype}")
    def best(x, n, count, flip, work, room):
        other_keys = work + room * width
        indices = work + 2 * room * width
        other_indices = indices + 4 * room
        block = stack(8 * BLOCK)
        kept = 0
        full = False
        worst: key = key(0)
        at = 0
        while at < n:
            m = min(n - at, BLOCK)
            least: key = read_block(x + at * size, m, flip, block)
            if not full or least < worst:
                for i in range(m):
                    k: key = load(key, block, i)
                    put(work, indices, kept, k, u32(at + i))
                    kept += i64(not full or k < worst)
                if kept >= 4 * count:
                    first_sorted(work, indices, other_keys, other_indices, kept, count)
                    kept = count
                    worst = load(key, work, count - 1)
                    full = True
            at += m
        first_sorted(work, indices, other_keys, other_indices, kept, min(kept, count))

    return best


@cache
def make_best_by_heap(dtype: str) -> NativeFunction:
    """`best(x, n, count, flip, keys, indices)`: as `make_best`, with PyTorch's choice among equal elements of long
    rows."""
    memory, key, _ = SORTS[dtype]
    size, read_block, listed, (sink, heaped, lined_up) = (
        memory.itemsize,
        make_block(dtype),
        make_listed(dtype),
        make_heap(dtype),
    )

    @native(f"void(ptr, i64, i64, {key.name}, ptr, ptr)", name=f"best_by_heap_{dtype}")
    def best(x, n, count, flip, keys, indices):
        block = stack(8 * BLOCK)
        listed(x, count, flip, keys, indices)
        heaped(keys, indices, count)
        at = count
        while at < n:
            m = min(n - at, BLOCK)
            least: key = read_block(x + at * size, m, flip, block)
            if least < load(key, keys, 0):
                for i in range(m):
                    k: key = load(key, block, i)
                    if k < load(key, keys, 0):
                        sink(keys, indices, 0, count, k, u32(at + i))
            at += m
        lined_up(keys, indices, count)

    return best


# ***** the first elements in order *****


def _make_differing(dtype: str) -> NativeFunction:
    """`differing(x, n, count, flip, work, room)`: the first `count` in order, in our own way; returns whether no two of
    them are equal."""
    key = SORTS[dtype][1]
    width = key.itemsize
    listed, first_sorted, best, best_many = (
        make_listed(dtype),
        make_first_sorted(dtype),
        make_best(dtype),
        make_best_many(dtype),
    )

    @native(f"i32(ptr, i64, i64, {key.name}, ptr, i64)", name=f"differing_{dtype}")
    def differing(x, n, count, flip, work, room):
        indices = work + 2 * room * width
        if 4 * count > n:
            listed(x, n, flip, work, indices)
            first_sorted(work, indices, work + room * width, indices + 4 * room, n, count)
        elif count <= FEW:
            best(x, n, count, flip, work, indices)
        else:
            best_many(x, n, count, flip, work, room)
        for i in range(1, count):
            if load(key, work, i) == load(key, work, i - 1):
                return 0
        return 1

    return differing


def make_topk(dtype: str) -> NativeFunction:
    """The kernel that finds the first `K` of each row in order (in PyTorch's order without `SORTED`).  bufs: values,
    indices (int64), then the rows.

    PyTorch goes over a long row with a small heap; so does this.  For other rows the best are found in our own way if
    equal ones among them are unlikely, and, if there are any, once more in PyTorch's.
    """
    memory, key, how = SORTS[dtype]
    differ = 0 if how != "float" else RARE if key.itemsize == 4 else 1 << 62
    size, width = memory.itemsize, key.itemsize
    by_heap, listed, differing = make_best_by_heap(dtype), make_listed(dtype), _make_differing(dtype)
    nth, order, picked = make_selection(dtype), make_order(dtype), make_picked(dtype)

    @native("i32(ptr, ptr, i64)", name=f"rl_topk_{dtype}")
    def topk(bufs, ints, piece):
        n, count = ints.i64[N], ints.i64[K]
        first = piece * ints.i64[CHUNK]
        last = min(first + ints.i64[CHUNK], ints.i64[ROWS])
        few = 64 * count <= n
        room = count if few else n + 4 + BLOCK
        work = malloc(room * 2 * (width + 4))
        if work is None:
            return rl_fail(bufs, piece, 4, 0, 0, 0)
        indices = work + 2 * room * width
        flip: key = key(0)
        if ints.i64[DESCENDING] != 0:
            flip = key(0) - key(1)
        for r in range(first, last):
            x = bufs.ptr[2] + r * n * size
            if few:
                by_heap(x, n, count, flip, work, indices)
            elif ints.i64[SORTED] == 0 or count > differ or differing(x, n, min(count + 1, n), flip, work, room) == 0:
                listed(x, n, flip, work, indices)
                nth(work, indices, n, count - 1)
                if ints.i64[SORTED] != 0:
                    order(work, indices, count - 1)
            picked(bufs.ptr[0] + r * count * size, bufs.ptr[1] + r * count * 8, x, indices, count)
        free(work)
        return 0

    return topk


# ***** the element of one rank *****


def make_quickselect(dtype: str) -> NativeFunction:
    """`quickselect(keys, indices, n, rank)`: Hoare's, with the median of three as pivot; returns the index of the
    element that ends at this rank."""
    key = SORTS[dtype][1]
    _, _, swap = make_moves(dtype)

    @native("i64(ptr, ptr, i64, i64)", name=f"quickselect_{dtype}")
    def quickselect(keys, indices, n, rank):
        left, right = 0, n - 1
        while right > left + 1:
            swap(keys, indices, left + (right - left) // 2, left + 1)
            if load(key, keys, left + 1) > load(key, keys, right):
                swap(keys, indices, left + 1, right)
            if load(key, keys, left) > load(key, keys, right):
                swap(keys, indices, left, right)
            if load(key, keys, left + 1) > load(key, keys, left):
                swap(keys, indices, left + 1, left)
            pivot: key = load(key, keys, left)
            i, j = left + 1, right
            while i <= j:
                i += 1
                while pivot > load(key, keys, i):
                    i += 1
                j -= 1
                while load(key, keys, j) > pivot:
                    j -= 1
                if i <= j:
                    swap(keys, indices, i, j)
            swap(keys, indices, left, j)
            if j >= rank:
                right = j - 1
            if j <= rank:
                left = i
        if right == left + 1 and load(key, keys, left) > load(key, keys, right):
            swap(keys, indices, left, right)
        return i64(indices.u32[rank])

    return quickselect


@cache
def make_bounded(key: Type) -> NativeFunction:
    """`bounded(keys, n, rank, both, counts)`: narrows the range of keys `both` around the key of a rank by bisection.

    It ends with one element of the row or one key in the range.  `counts` receives the number of keys below, and of
    keys in the range.
    """

    @native("void(ptr, i64, i64, ptr, ptr)", name=f"bounded_{key.name}")
    def bounded(keys, n, rank, both, counts):
        low: key = load(key, both, 0)
        high: key = load(key, both, 1)
        below, upto = 0, n
        while low < high and upto - below > 1:
            middle: key = low + (high - low) // key(2)
            count: u32 = 0
            for i in range(n):
                count += u32(load(key, keys, i) <= middle)
            if i64(count) > rank:
                high = middle
                upto = i64(count)
            else:
                low = middle + key(1)
                below = i64(count)
        store(key, both, 0, low)
        store(key, both, 1, high)
        counts.i64[0] = below
        counts.i64[1] = upto - below

    return bounded


@cache
def make_placed(key: Type) -> NativeFunction:
    """`placed(keys, n, both, skipped)`: the index of the key in the range `both` that `skipped` others precede."""

    @native("i64(ptr, i64, ptr, i64)", name=f"placed_{key.name}")
    def placed(keys, n, both, skipped):
        low: key = load(key, both, 0)
        high: key = load(key, both, 1)
        for i in range(n):
            k: key = load(key, keys, i)
            if low <= k and k <= high:
                if skipped == 0:
                    return i
                skipped -= 1
        return n

    return placed


def make_kth(dtype: str) -> NativeFunction:
    """The kernel that finds the element of rank `K` of each row.  bufs: values, indices (int64), then the rows.

    It finds the key by bisection between the least and the greatest; for a long row's lowest ranks, by keeping the
    best.  Of equal elements it takes the one that a stable sort would put there, or (`HOARE`) the one at which Hoare's
    selection ends, which runs only if there are equal ones.
    """
    memory, key, _ = SORTS[dtype]
    size, width = memory.itemsize, key.itemsize
    listed, best, quickselect = make_listed(dtype), make_best(dtype), make_quickselect(dtype)
    extent, extent_short, squeezed = make_extent(key), make_extent(u32), make_squeezed(key)
    bounded, placed, bounded_short, placed_short = (
        make_bounded(key),
        make_placed(key),
        make_bounded(u32),
        make_placed(u32),
    )

    @native("i32(ptr, ptr, i64)", name=f"rl_kth_{dtype}")
    def kth(bufs, ints, piece):
        n, rank = ints.i64[N], ints.i64[K]
        first = piece * ints.i64[CHUNK]
        last = min(first + ints.i64[CHUNK], ints.i64[ROWS])
        keys = malloc(n * (width + 8))
        if keys is None:
            return rl_fail(bufs, piece, 4, 0, 0, 0)
        indices = keys + n * width
        both, counts = stack(16), stack(16)
        for r in range(first, last):
            x = bufs.ptr[2] + r * n * size
            index = 0
            counts.i64[1] = 0
            if rank < FEW and LENGTH * (rank + 1) <= n and ints.i64[TIES] != HOARE:
                best(x, n, rank + 1, key(0), keys, indices)
                index = i64(indices.u32[rank])
            else:
                listed(x, n, key(0), keys, indices)
                if width == 8 and squeezed(keys, n, indices) == 1:
                    extent_short(indices, n, both)
                    bounded_short(indices, n, rank, both, counts)
                    index = placed_short(indices, n, both, rank - counts.i64[0])
                else:
                    extent(keys, n, both)
                    bounded(keys, n, rank, both, counts)
                    index = placed(keys, n, both, rank - counts.i64[0])
                if counts.i64[1] > 1 and ints.i64[TIES] == HOARE:
                    for i in range(n):
                        indices.u32[i] = u32(i)
                    index = quickselect(keys, indices, n, rank)
            bufs.ptr[1].i64[r] = index
            store(memory, bufs.ptr[0], r, load(memory, x, index))
        free(keys)
        return 0

    return kth
