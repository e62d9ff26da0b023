"""The element of one rank in a long row, on all threads: digit by digit from the highest, by counting.

The key of the rank has the digit at which the counts of all lower digits reach the rank; the next digit is counted
among the keys with the digits found so far.
"""

from __future__ import annotations

from functools import cache

from rushlight._backends.cpu.sort.long_sort_native import (
    COUNT,
    COUNTS,
    FLIP,
    LEAST,
    MOST_PARTS,
    ROW,
    SHIFT,
    SIZE,
    TABLE,
    cut_row,
    key_bits,
    make_extremes,
)
from rushlight._backends.cpu.sort.sort_native import ROWS, SORTS, N, free, make_key, make_listed, malloc, rl_fail
from rushlight._backends.cpu.sort.topk_native import HOARE, TIES, K, make_quickselect
from rushlight._native import NativeFunction, extern, i64, load, memset, native, stack, store, u32, u64

__all__ = ["WORK_BYTES", "make_long_kth"]

DIGIT = 11  # bits counted at once
WIDTH = (1 << DIGIT) * 4  # bytes of a part's counts
WORK_BYTES = MOST_PARTS * WIDTH
# Numbers after those of `long_sort_native`: the digits found so far, and a mask of the bits below them
ABOVE, LEFT = 5, 6

rl_parallel_for = extern("rl_parallel_for", "i32(ptr, ptr, ptr, i64)")


@cache
def _make_counting(dtype: str) -> NativeFunction:
    """Count each digit in a part, among the keys with the digits found so far."""
    memory, key, _ = SORTS[dtype]
    key_of = make_key(dtype)

    @native("i32(ptr, ptr, i64)", name=f"counting_{dtype}")
    def counting(bufs, ints, part):
        x, counts = bufs.ptr[ROW], bufs.ptr[TABLE] + part * WIDTH
        least, shift, left, above = (
            key(u64(ints.i64[LEAST])),
            u64(ints.i64[SHIFT]),
            u64(ints.i64[LEFT]),
            u64(ints.i64[ABOVE]),
        )
        memset(counts, 0, WIDTH)
        first = part * ints.i64[SIZE]
        for i in range(first, min(first + ints.i64[SIZE], ints.i64[COUNT])):
            k = u64(key_of(load(memory, x, i)) - least)
            if k >> left >> u64(1) == above:
                digit = i64(k >> shift & u64((1 << DIGIT) - 1))
                counts.u32[digit] += u32(1)
        return 0

    return counting


@cache
def _make_finding(dtype: str) -> NativeFunction:
    """Count the elements of a part with the key `ABOVE`."""
    memory, key, _ = SORTS[dtype]
    key_of = make_key(dtype)

    @native("i32(ptr, ptr, i64)", name=f"finding_{dtype}")
    def finding(bufs, ints, part):
        x, wanted = bufs.ptr[ROW], key(u64(ints.i64[LEAST]) + u64(ints.i64[ABOVE]))
        first = part * ints.i64[SIZE]
        last = min(first + ints.i64[SIZE], ints.i64[COUNT])
        count: u32 = 0
        for i in range(first, last):
            count += u32(key_of(load(memory, x, i)) == wanted)
        (bufs.ptr[TABLE] + part * COUNTS).i64[0] = i64(count)
        return 0

    return finding


@native("i64(ptr, i64, i64, ptr)")
def digit_of(table, parts, rank, count):
    """The digit that holds the rank; `count` receives the number of keys with it, and of keys with lower ones."""
    before = 0
    for digit in range(1 << DIGIT):
        total = 0
        for part in range(parts):
            total += i64(table.u32[part * (1 << DIGIT) + digit])
        if before + total > rank:
            count.i64[0] = total
            count.i64[1] = before
            return digit
        before += total
    return 0


def make_long_kth(dtype: str) -> NativeFunction:
    """The kernel that finds the element of rank `K` in each of a few long rows.  bufs: values, indices (int64), scratch
    memory, rows.

    Of equal elements it finds the one that a stable sort would put there; with `HOARE` the one at which Hoare's
    selection ends: there a row with equal elements is selected from once more.
    """
    memory, key, _ = SORTS[dtype]
    size, width = memory.itemsize, key.itemsize
    extremes, counting, finding = make_extremes(dtype), _make_counting(dtype), _make_finding(dtype)
    key_of, listed, quickselect = make_key(dtype), make_listed(dtype), make_quickselect(dtype)

    @native("i64(ptr, ptr, i64, i64, ptr)", name=f"sought_{dtype}")
    def sought(pointers, numbers, parts, rank, skipped):
        """Find the key of the rank, less the least, into `ABOVE`; return how often it occurs, and how many of these are
        `skipped` before the rank."""
        table, count = pointers.ptr[TABLE], stack(16)
        rl_parallel_for(extremes, pointers, numbers, parts)
        left = key_bits(table, numbers, parts)
        numbers.i64[ABOVE] = 0
        count.i64[0] = numbers.i64[COUNT]
        while left > 0:
            shift = max(left - DIGIT, i64(0))
            numbers.i64[SHIFT] = shift
            numbers.i64[LEFT] = left - 1
            rl_parallel_for(counting, pointers, numbers, parts)
            digit = digit_of(table, parts, rank, count)
            rank -= count.i64[1]
            numbers.i64[ABOVE] = (numbers.i64[ABOVE] << (left - shift)) | (digit & ((1 << (left - shift)) - 1))
            left = shift
        skipped.i64[0] = rank
        return count.i64[0]

    @native("i64(ptr, ptr, i64, i64)", name=f"index_{dtype}")
    def index_of(pointers, numbers, parts, skipped):
        """The index of the element with the key `ABOVE` that `skipped` others precede."""
        rl_parallel_for(finding, pointers, numbers, parts)
        part = 0
        while part < parts - 1 and skipped >= (pointers.ptr[TABLE] + part * COUNTS).i64[0]:
            skipped -= (pointers.ptr[TABLE] + part * COUNTS).i64[0]
            part += 1
        x, wanted = pointers.ptr[ROW], key(u64(numbers.i64[LEAST]) + u64(numbers.i64[ABOVE]))
        i = part * numbers.i64[SIZE]
        while True:
            if key_of(load(memory, x, i)) == wanted:
                if skipped == 0:
                    return i
                skipped -= 1
            i += 1

    @native("i32(ptr, ptr, i64)", name=f"rl_long_kth_{dtype}")
    def kth(bufs, ints, piece):
        n, rank = ints.i64[N], ints.i64[K]
        pointers, numbers, skipped = stack(8 * 8), stack(8 * 8), stack(8)
        parts = cut_row(numbers, n)
        numbers.i64[FLIP] = 0
        pointers.ptr[TABLE] = bufs.ptr[2]
        for r in range(ints.i64[ROWS]):
            x = bufs.ptr[3] + r * n * size
            pointers.ptr[ROW] = x
            index = 0
            if sought(pointers, numbers, parts, rank, skipped) == 1 or ints.i64[TIES] != HOARE:
                index = index_of(pointers, numbers, parts, skipped.i64[0])
            else:
                keys = malloc(n * (width + 4))
                if keys is None:
                    return rl_fail(bufs, piece, 4, 0, 0, 0)
                listed(x, n, key(0), keys, keys + n * width)
                index = quickselect(keys, keys + n * width, n, rank)
                free(keys)
            bufs.ptr[1].i64[r] = index
            store(memory, bufs.ptr[0], r, load(memory, x, index))
        return 0

    return kth
