"""Sorting a long row on all threads: a stable radix sort whose passes are cut into parts.

A part counts its digits; from all counts together it knows where its elements go, behind those of the parts before it that have the same digit.  So
the order is that of one pass over the whole row, whoever does the parts.  Keys are those of `sort_native`, less the least of them: what remains has
few digits where the values of a row lie close together.  Where key and place fit into one word of 64 bits they are moved as one.
"""

from __future__ import annotations

from functools import cache

from rushlight._backends.cpu.sort_native import DESCENDING, ROWS, SORTS, N, make_key, make_value
from rushlight._backends.native import (
    NativeFunction,
    clz,
    extern,
    i32,
    i64,
    load,
    memset,
    native,
    stack,
    store,
    u32,
    u64,
)

__all__ = [
    "COUNT", "COUNTS", "FLIP", "LEAST", "LONG", "MOST_PARTS", "MOST_ROWS", "ROW", "SHIFT", "SIZE", "TABLE", "cut_row", "key_bits", "make_extremes",
    "make_long_sort", "work_bytes",
]  # fmt: skip

LONG = 1 << 16  # elements of a row from which on all threads sort it
MOST_ROWS = 7  # of such rows; more of them give every thread enough
PART = 1 << 14  # elements of a part at least
MOST_PARTS = 64
LINE = 64
COUNTS = 256 * 4

# what the parts are given: pointers, then numbers
VALUES, INDEX, ROW, FROM, TO, FROM_PLACES, TO_PLACES, TABLE = range(8)
COUNT, SIZE, SHIFT, FLIP, LEAST = range(5)

rl_parallel_for = extern("rl_parallel_for", "i32(ptr, ptr, ptr, i64)")


def work_bytes(n: int, dtype: str) -> int:
    """Memory that sorting a row of n takes: two arrays of words, two of places where they are apart, and what the parts count."""
    apart = SORTS[dtype][1].itemsize == 8
    return n * (24 if apart else 16) + MOST_PARTS * COUNTS + LINE


@cache
def make_extremes(dtype: str) -> NativeFunction:
    """The least and the greatest key of a part."""
    memory, key, _ = SORTS[dtype]
    key_of = make_key(dtype)

    @native("i32(ptr, ptr, i64)", name=f"extremes_{dtype}")
    def extremes(bufs, ints, part):
        x, out = bufs.ptr[ROW], bufs.ptr[TABLE] + part * COUNTS
        flip: key = key(ints.i64[FLIP])
        least: key = key(0) - key(1)
        greatest: key = key(0)
        first = part * ints.i64[SIZE]
        for i in range(first, min(first + ints.i64[SIZE], ints.i64[COUNT])):
            k: key = key_of(load(memory, x, i)) ^ flip
            least = min(least, k)
            greatest = max(greatest, k)
        out.u64[0] = u64(least)
        out.u64[1] = u64(greatest)
        return 0

    return extremes


@native("i64(ptr, i64)")
def cut_row(numbers, n):
    """How a row of n elements is cut, for its parts; how many these are."""
    numbers.i64[COUNT] = n
    numbers.i64[SIZE] = max(i64(PART), (n + MOST_PARTS - 1) // MOST_PARTS)
    return (n + numbers.i64[SIZE] - 1) // numbers.i64[SIZE]


@native("i64(ptr, ptr, i64)")
def key_bits(table, numbers, parts):
    """From the extremes of all parts the least key, and how many bits the keys have without it."""
    least, greatest = table.u64[0], table.u64[1]
    for part in range(1, parts):
        least = min(least, table.u64[part * (COUNTS // 8)])
        greatest = max(greatest, table.u64[part * (COUNTS // 8) + 1])
    numbers.i64[LEAST] = i64(least)
    if greatest > least:
        return 64 - i64(clz(greatest - least))
    return 0


@cache
def _make_listing(dtype: str, apart: bool) -> NativeFunction:
    """The words of a part: keys above places, or keys alone and places beside them."""
    memory, key, _ = SORTS[dtype]
    key_of = make_key(dtype)

    @native("i32(ptr, ptr, i64)", name=f"listing_{dtype}{'_apart' if apart else ''}")
    def listing(bufs, ints, part):
        x, words, places = bufs.ptr[ROW], bufs.ptr[FROM], bufs.ptr[FROM_PLACES]
        flip, least = key(ints.i64[FLIP]), u64(ints.i64[LEAST])
        first = part * ints.i64[SIZE]
        for i in range(first, min(first + ints.i64[SIZE], ints.i64[COUNT])):
            k = u64(key_of(load(memory, x, i)) ^ flip) - least
            if apart:
                words.u64[i] = k
                places.u32[i] = u32(i)
            else:
                words.u64[i] = k << u64(32) | u64(i)
        return 0

    return listing


@native("i32(ptr, ptr, i64)")
def count_digits(bufs, ints, part):
    """How often each digit occurs in a part."""
    words, counts, shift = bufs.ptr[FROM], bufs.ptr[TABLE] + part * COUNTS, u64(ints.i64[SHIFT])
    memset(counts, 0, COUNTS)
    first = part * ints.i64[SIZE]
    for i in range(first, min(first + ints.i64[SIZE], ints.i64[COUNT])):
        digit = i64(words.u64[i] >> shift & u64(255))
        counts.u32[digit] += u32(1)
    return 0


@native("i32(ptr, i64, i64)")
def add_counts(table, parts, n):
    """Counts become the places where each part's elements of a digit begin; whether there is more than one digit."""
    total = u32(0)
    differ = 1
    for digit in range(256):
        before = total
        for part in range(parts):
            at = part * 256 + digit
            count = table.u32[at]
            table.u32[at] = total
            total += count
        if i64(total - before) == n:
            differ = 0
    return i32(differ)


@cache
def _make_moving(apart: bool) -> NativeFunction:
    """Every word of a part to its place."""

    @native("i32(ptr, ptr, i64)", name=f"moving{'_apart' if apart else ''}")
    def moving(bufs, ints, part):
        words, places, shift = bufs.ptr[FROM], bufs.ptr[FROM_PLACES], u64(ints.i64[SHIFT])
        to, to_places, starts = bufs.ptr[TO], bufs.ptr[TO_PLACES], bufs.ptr[TABLE] + part * COUNTS
        first = part * ints.i64[SIZE]
        for i in range(first, min(first + ints.i64[SIZE], ints.i64[COUNT])):
            word = words.u64[i]
            digit = i64(word >> shift & u64(255))
            at = starts.u32[digit]
            starts.u32[digit] = at + u32(1)
            to.u64[i64(at)] = word
            if apart:
                to_places.u32[i64(at)] = places.u32[i]
        return 0

    return moving


@cache
def _make_writing(dtype: str, apart: bool) -> NativeFunction:
    """Values and places of a part of the sorted row."""
    memory, key, _ = SORTS[dtype]
    value_of = make_value(dtype)

    @native("i32(ptr, ptr, i64)", name=f"writing_{dtype}{'_apart' if apart else ''}")
    def writing(bufs, ints, part):
        x, words, places, values, index = bufs.ptr[ROW], bufs.ptr[FROM], bufs.ptr[FROM_PLACES], bufs.ptr[VALUES], bufs.ptr[INDEX]
        flip, least = key(ints.i64[FLIP]), u64(ints.i64[LEAST])
        first = part * ints.i64[SIZE]
        for i in range(first, min(first + ints.i64[SIZE], ints.i64[COUNT])):
            word = words.u64[i]
            place = i64(word & u64(0xFFFFFFFF))
            if apart:
                place = i64(places.u32[i])
            else:
                word >>= u64(32)
            index.i64[i] = place
            store(memory, values, i, value_of(key(word + least) ^ flip, x, place))
        return 0

    return writing


@cache
def _make_passes(dtype: str, apart: bool) -> NativeFunction:
    """`passes(bufs, ints, parts, bits)`: sorts a row whose keys, less the least, have so many bits."""
    listing, moving, writing = _make_listing(dtype, apart), _make_moving(apart), _make_writing(dtype, apart)
    low = 0 if apart else 32

    @native("void(ptr, ptr, i64, i64)", name=f"passes_{dtype}{'_apart' if apart else ''}")
    def passes(bufs, ints, parts, bits):
        rl_parallel_for(listing, bufs, ints, parts)
        for shift in range(low, low + bits, 8):
            ints.i64[SHIFT] = shift
            rl_parallel_for(count_digits, bufs, ints, parts)
            if add_counts(bufs.ptr[TABLE], parts, ints.i64[COUNT]) != 0:
                rl_parallel_for(moving, bufs, ints, parts)
                words, places = bufs.ptr[FROM], bufs.ptr[FROM_PLACES]
                bufs.ptr[FROM] = bufs.ptr[TO]
                bufs.ptr[FROM_PLACES] = bufs.ptr[TO_PLACES]
                bufs.ptr[TO] = words
                bufs.ptr[TO_PLACES] = places
        rl_parallel_for(writing, bufs, ints, parts)

    return passes


def make_long_sort(dtype: str) -> NativeFunction:
    """The kernel that sorts a few long rows of `dtype`: bufs are values, places (int64), memory to work in, then the rows, all contiguous."""
    memory, key, _ = SORTS[dtype]
    size, wide = memory.itemsize, key.itemsize == 8
    extremes, together, apart = make_extremes(dtype), _make_passes(dtype, False), _make_passes(dtype, True)

    @native("i32(ptr, ptr, i64)", name=f"rl_long_sort_{dtype}")
    def sort(bufs, ints, piece):
        n = ints.i64[N]
        held, numbers = stack(8 * 8), stack(8 * 8)
        parts = cut_row(numbers, n)
        numbers.i64[FLIP] = 0 if ints.i64[DESCENDING] == 0 else -1
        table = bufs.ptr[2]
        words = table + (MOST_PARTS * COUNTS + LINE)
        for r in range(ints.i64[ROWS]):
            held.ptr[VALUES] = bufs.ptr[0] + r * n * size
            held.ptr[INDEX] = bufs.ptr[1] + r * n * 8
            held.ptr[ROW] = bufs.ptr[3] + r * n * size
            held.ptr[TABLE] = table
            held.ptr[FROM] = words
            held.ptr[TO] = words + 8 * n
            held.ptr[FROM_PLACES] = words + 16 * n
            held.ptr[TO_PLACES] = words + 20 * n
            rl_parallel_for(extremes, held, numbers, parts)
            bits = key_bits(table, numbers, parts)
            if wide and bits > 32:
                apart(held, numbers, parts, bits)
            else:
                together(held, numbers, parts, bits)
        return 0

    return sort
