"""Sorting a long row on all threads: into buckets by the highest bits of the keys, then each bucket by digits, within a
cache.

The row is divided into parts.  Each part counts its highest bits; the counts of all parts tell it where its elements
go, behind those of the parts before it with the same bits, so the order is that of one pass over the whole row,
whichever threads do the parts.  One thread then sorts a bucket, by a stable radix sort from its lowest digit.  (Passes
over the whole row in parts would move every cache line from core to core in every pass: up to two million elements that
takes longer than one thread alone.)  Larger buckets, of rows whose keys share their highest bits, are sorted in parts
nevertheless.

Keys are those of `sort_native`, less the least of them: the remainder has few digits where the values of a row are
close together.  The bits of a key below its bucket's, and the index, are moved as one word of 64 bits if they fit.
"""

from __future__ import annotations

from functools import cache

from rushlight._backends.cpu.sort.sort_native import DESCENDING, ROWS, SHORT, SORTS, N, make_key, make_value
from rushlight._native import NativeFunction, clz, extern, i32, i64, load, memset, native, stack, store, u32, u64

__all__ = [
    "COUNT", "COUNTS", "FLIP", "LEAST", "LONG", "MOST_PARTS", "MOST_ROWS", "ROW", "SHIFT", "SIZE", "TABLE", "cut_row", "key_bits", "make_extremes",
    "make_long_sort", "work_bytes",
]  # fmt: skip

LONG = 1 << 16  # fewest elements of a row that all threads sort
MOST_ROWS = 7  # most such rows; with more of them every thread has enough work
PART = 1 << 14  # least elements of a part
MOST_PARTS = 64
MOST_TOP = 11  # most bits that choose a bucket
BUCKET = 10  # bits of the number of elements in a bucket, if all buckets were equal
HEAVY = 1 << 21  # fewest elements of a bucket that all threads sort
LINE = 64
COUNTS = 256 * 4  # bytes between the counts of parts
TABLE_BYTES = (MOST_PARTS + 2) * (4 << MOST_TOP)

# the constants of the parts: pointers, then numbers
VALUES, INDEX, ROW, FROM, TO, FROM_INDICES, TO_INDICES, TABLE, ENDS = range(9)
COUNT, SIZE, SHIFT, FLIP, LEAST, DIGITS, LEFT, BEFORE = range(8)

rl_parallel_for = extern("rl_parallel_for", "i32(ptr, ptr, ptr, i64)")


def work_bytes(n: int, dtype: str) -> int:
    """Scratch memory for a row of n: two arrays of words, two of indices where these are separate, and the counts of
    the parts."""
    apart = SORTS[dtype][1].itemsize == 8
    return n * (24 if apart else 16) + TABLE_BYTES + LINE


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
    """Divide a row of n elements into parts; return their number."""
    numbers.i64[COUNT] = n
    numbers.i64[SIZE] = max(i64(PART), (n + MOST_PARTS - 1) // MOST_PARTS)
    return (n + numbers.i64[SIZE] - 1) // numbers.i64[SIZE]


@native("i64(ptr, ptr, i64)")
def key_bits(table, numbers, parts):
    """The least key, from the extremes of all parts, and the number of bits of the keys less it."""
    least, greatest = table.u64[0], table.u64[1]
    for part in range(1, parts):
        least = min(least, table.u64[part * (COUNTS // 8)])
        greatest = max(greatest, table.u64[part * (COUNTS // 8) + 1])
    numbers.i64[LEAST] = i64(least)
    if greatest > least:
        return 64 - i64(clz(greatest - least))
    return 0


# ***** passes over parts *****


@native("i32(ptr, ptr, i64)")
def count_digits(bufs, ints, part):
    """Count each digit among the words of a part."""
    digits = ints.i64[DIGITS]
    words, counts, shift, mask = (
        bufs.ptr[FROM],
        bufs.ptr[TABLE] + part * digits * 4,
        u64(ints.i64[SHIFT]),
        u64(digits - 1),
    )
    memset(counts, 0, digits * 4)
    first = part * ints.i64[SIZE]
    for i in range(first, min(first + ints.i64[SIZE], ints.i64[COUNT])):
        digit = i64(words.u64[i] >> shift & mask)
        counts.u32[digit] += u32(1)
    return 0


@native("i32(ptr, ptr, i64, i64, i64)")
def add_counts(table, ends, parts, digits, n):
    """Turn counts into the first index of each part's elements of a digit, and `ends` into the ends of the digits;
    return whether there is more than one."""
    memset(ends, 0, digits * 4)
    for part in range(parts):
        row = table + part * digits * 4
        for digit in range(digits):
            ends.u32[digit] += row.u32[digit]
    total = u32(0)
    differ: i32 = 1
    for digit in range(digits):
        count = ends.u32[digit]
        ends.u32[digit] = total
        total += count
        if i64(count) == n:
            differ = 0
    for part in range(parts):
        row = table + part * digits * 4
        for digit in range(digits):
            count = row.u32[digit]
            row.u32[digit] = ends.u32[digit]
            ends.u32[digit] += count
    return differ


@cache
def _make_moving(apart: bool) -> NativeFunction:
    """Move every word of a part to its index."""

    @native("i32(ptr, ptr, i64)", name=f"moving{'_apart' if apart else ''}")
    def moving(bufs, ints, part):
        digits = ints.i64[DIGITS]
        words, indices, shift, mask = bufs.ptr[FROM], bufs.ptr[FROM_INDICES], u64(ints.i64[SHIFT]), u64(digits - 1)
        to, to_indices, starts = bufs.ptr[TO], bufs.ptr[TO_INDICES], bufs.ptr[TABLE] + part * digits * 4
        first = part * ints.i64[SIZE]
        for i in range(first, min(first + ints.i64[SIZE], ints.i64[COUNT])):
            word = words.u64[i]
            digit = i64(word >> shift & mask)
            at = i64(starts.u32[digit])
            starts.u32[digit] = u32(at + 1)
            to.u64[at] = word
            if apart:
                to_indices.u32[at] = indices.u32[i]
        return 0

    return moving


@cache
def _make_passes(apart: bool, shared: bool) -> NativeFunction:
    """`passes(bufs, ints, bits)`: sorts the words FROM by the bits that a bucket leaves, on all threads or alone; FROM
    holds the result."""
    moving = _make_moving(apart)
    low = 0 if apart else 32

    @native("void(ptr, ptr, i64)", name=f"passes{'_apart' if apart else ''}{'_shared' if shared else ''}")
    def passes(bufs, ints, bits):
        n = ints.i64[COUNT]
        rounds = (bits + 7) // 8
        parts = 1
        if shared:
            parts = cut_row(ints, n)
        else:
            ints.i64[SIZE] = n
        for r in range(rounds):
            first, last = r * bits // rounds, (r + 1) * bits // rounds
            ints.i64[SHIFT] = low + first
            ints.i64[DIGITS] = 1 << (last - first)
            if shared:
                rl_parallel_for(count_digits, bufs, ints, parts)
            else:
                count_digits(bufs, ints, 0)
            if add_counts(bufs.ptr[TABLE], bufs.ptr[ENDS], parts, ints.i64[DIGITS], n) != 0:
                if shared:
                    rl_parallel_for(moving, bufs, ints, parts)
                else:
                    moving(bufs, ints, 0)
                words, indices = bufs.ptr[FROM], bufs.ptr[FROM_INDICES]
                bufs.ptr[FROM] = bufs.ptr[TO]
                bufs.ptr[FROM_INDICES] = bufs.ptr[TO_INDICES]
                bufs.ptr[TO] = words
                bufs.ptr[TO_INDICES] = indices

    return passes


# ***** into buckets *****


@cache
def _make_spread(dtype: str) -> NativeFunction:
    """Count each bucket's elements in a part of the row."""
    memory, key, _ = SORTS[dtype]
    key_of = make_key(dtype)

    @native("i32(ptr, ptr, i64)", name=f"spread_{dtype}")
    def spread(bufs, ints, part):
        digits = ints.i64[DIGITS]
        x, counts, left = bufs.ptr[ROW], bufs.ptr[TABLE] + part * digits * 4, u64(ints.i64[LEFT])
        flip, least = key(ints.i64[FLIP]), u64(ints.i64[LEAST])
        memset(counts, 0, digits * 4)
        first = part * ints.i64[SIZE]
        for i in range(first, min(first + ints.i64[SIZE], ints.i64[COUNT])):
            bucket = i64(u64(key_of(load(memory, x, i)) ^ flip) - least >> left)
            counts.u32[bucket] += u32(1)
        return 0

    return spread


@cache
def _make_filling(dtype: str, apart: bool) -> NativeFunction:
    """Move the elements of a part into their buckets: the rest of the key above the index, or beside it."""
    memory, key, _ = SORTS[dtype]
    key_of = make_key(dtype)

    @native("i32(ptr, ptr, i64)", name=f"filling_{dtype}{'_apart' if apart else ''}")
    def filling(bufs, ints, part):
        digits, left = ints.i64[DIGITS], u64(ints.i64[LEFT])
        x, words, indices, starts = (
            bufs.ptr[ROW],
            bufs.ptr[FROM],
            bufs.ptr[FROM_INDICES],
            bufs.ptr[TABLE] + part * digits * 4,
        )
        flip, least, mask = key(ints.i64[FLIP]), u64(ints.i64[LEAST]), (u64(1) << left) - u64(1)
        first = part * ints.i64[SIZE]
        for i in range(first, min(first + ints.i64[SIZE], ints.i64[COUNT])):
            k = u64(key_of(load(memory, x, i)) ^ flip) - least
            bucket = i64(k >> left)
            at = i64(starts.u32[bucket])
            starts.u32[bucket] = u32(at + 1)
            if apart:
                words.u64[at] = k & mask
                indices.u32[at] = u32(i)
            else:
                words.u64[at] = (k & mask) << u64(32) | u64(i)
        return 0

    return filling


# ***** a bucket *****


@cache
def _make_insertion(apart: bool) -> NativeFunction:
    """`insertion(words, indices, n)`: sorts a few words."""

    @native("void(ptr, ptr, i64)", name=f"insertion_words{'_apart' if apart else ''}")
    def insertion(words, indices, n):
        for i in range(1, n):
            word = words.u64[i]
            index: u32 = u32(0)
            if apart:
                index = indices.u32[i]
            j = i
            while j > 0 and words.u64[j - 1] > word:
                words.u64[j] = words.u64[j - 1]
                if apart:
                    indices.u32[j] = indices.u32[j - 1]
                j -= 1
            words.u64[j] = word
            if apart:
                indices.u32[j] = index

    return insertion


@cache
def _make_writing(dtype: str, apart: bool) -> NativeFunction:
    """`writing(bufs, ints, words, indices, bucket, first, n)`: writes values and indices of a sorted bucket."""
    key = SORTS[dtype][1]
    memory = SORTS[dtype][0]
    value_of = make_value(dtype)

    @native("void(ptr, ptr, ptr, ptr, i64, i64, i64)", name=f"writing_{dtype}{'_apart' if apart else ''}")
    def writing(bufs, ints, words, indices, bucket, first, n):
        x, values, index = bufs.ptr[ROW], bufs.ptr[VALUES], bufs.ptr[INDEX]
        flip, least = key(ints.i64[FLIP]), u64(ints.i64[LEAST]) + (u64(bucket) << u64(ints.i64[LEFT]))
        for i in range(n):
            word = words.u64[i]
            source = i64(word & u64(0xFFFFFFFF))
            if apart:
                source = i64(indices.u32[i])
            else:
                word >>= u64(32)
            index.i64[first + i] = source
            store(memory, values, first + i, value_of(key(word + least) ^ flip, x, source))

    return writing


@cache
def _make_bucket(dtype: str, apart: bool, shared: bool) -> NativeFunction:
    """`one(bufs, ints, bucket, first, n)`: sorts a bucket and writes it."""
    insertion, passes, writing = _make_insertion(apart), _make_passes(apart, shared), _make_writing(dtype, apart)

    @native(
        "void(ptr, ptr, i64, i64, i64)", name=f"bucket_{dtype}{'_apart' if apart else ''}{'_shared' if shared else ''}"
    )
    def one(bufs, ints, bucket, first, n):
        words, indices = bufs.ptr[FROM] + 8 * first, bufs.ptr[FROM_INDICES] + 4 * first
        if n <= SHORT:
            insertion(words, indices, n)
        else:
            pointers, numbers, counts, ends = stack(8 * 9), stack(8 * 8), stack(COUNTS), stack(COUNTS)
            pointers.ptr[FROM] = words
            pointers.ptr[TO] = bufs.ptr[TO] + 8 * first
            pointers.ptr[FROM_INDICES] = indices
            pointers.ptr[TO_INDICES] = bufs.ptr[TO_INDICES] + 4 * first
            pointers.ptr[TABLE] = bufs.ptr[TABLE] if shared else counts
            pointers.ptr[ENDS] = ends
            numbers.i64[COUNT] = n
            passes(pointers, numbers, ints.i64[LEFT])
            words, indices = pointers.ptr[FROM], pointers.ptr[FROM_INDICES]
        writing(bufs, ints, words, indices, bucket, first, n)

    return one


@cache
def _make_buckets(dtype: str, apart: bool) -> NativeFunction:
    """Sort the buckets that begin in a part of the row."""
    one = _make_bucket(dtype, apart, False)

    @native("i32(ptr, ptr, i64)", name=f"buckets_{dtype}{'_apart' if apart else ''}")
    def buckets(bufs, ints, part):
        low, high = part * ints.i64[SIZE], (part + 1) * ints.i64[SIZE]
        begin = 0
        for bucket in range(ints.i64[DIGITS]):
            end = i64(bufs.ptr[ENDS].u32[bucket])
            if begin >= low and begin < high and end > begin and end - begin < HEAVY:
                one(bufs, ints, bucket, begin, end - begin)
            begin = end
        return 0

    return buckets


@cache
def _make_spreading(dtype: str, apart: bool) -> NativeFunction:
    """`spreading(bufs, ints, parts)`: distributes a row into its buckets, and sorts these."""
    filling, buckets, heavy = _make_filling(dtype, apart), _make_buckets(dtype, apart), _make_bucket(dtype, apart, True)

    @native("void(ptr, ptr, i64)", name=f"spreading_{dtype}{'_apart' if apart else ''}")
    def spreading(bufs, ints, parts):
        rl_parallel_for(filling, bufs, ints, parts)
        rl_parallel_for(buckets, bufs, ints, parts)
        begin = 0
        for bucket in range(ints.i64[DIGITS]):
            end = i64(bufs.ptr[ENDS].u32[bucket])
            if end - begin >= HEAVY:
                heavy(bufs, ints, bucket, begin, end - begin)
            begin = end

    return spreading


def make_long_sort(dtype: str) -> NativeFunction:
    """The kernel that sorts a few long rows of `dtype`.  bufs: values, indices (int64), scratch memory, then the rows,
    all contiguous."""
    memory, key, _ = SORTS[dtype]
    size, wide = memory.itemsize, key.itemsize == 8
    extremes, spread = make_extremes(dtype), _make_spread(dtype)
    together, apart = _make_spreading(dtype, False), _make_spreading(dtype, True)

    @native("i32(ptr, ptr, i64)", name=f"rl_long_sort_{dtype}")
    def sort(bufs, ints, piece):
        n = ints.i64[N]
        pointers, numbers = stack(8 * 9), stack(8 * 8)
        parts = cut_row(numbers, n)
        numbers.i64[FLIP] = 0 if ints.i64[DESCENDING] == 0 else -1
        table = bufs.ptr[2]
        words = table + (TABLE_BYTES + LINE)
        most = min(i64(MOST_TOP), 63 - i64(clz(u64(n))) - BUCKET)
        for r in range(ints.i64[ROWS]):
            pointers.ptr[VALUES] = bufs.ptr[0] + r * n * size
            pointers.ptr[INDEX] = bufs.ptr[1] + r * n * 8
            pointers.ptr[ROW] = bufs.ptr[3] + r * n * size
            pointers.ptr[TABLE] = table
            pointers.ptr[ENDS] = table + MOST_PARTS * (4 << MOST_TOP)
            pointers.ptr[FROM] = words
            pointers.ptr[TO] = words + 8 * n
            pointers.ptr[FROM_INDICES] = words + 16 * n
            pointers.ptr[TO_INDICES] = words + 20 * n
            rl_parallel_for(extremes, pointers, numbers, parts)
            bits = key_bits(table, numbers, parts)
            top = min(bits, most)
            numbers.i64[LEFT] = bits - top
            numbers.i64[DIGITS] = 1 << top
            rl_parallel_for(spread, pointers, numbers, parts)
            add_counts(table, pointers.ptr[ENDS], parts, numbers.i64[DIGITS], n)
            if wide and bits - top > 32:
                apart(pointers, numbers, parts)
            else:
                together(pointers, numbers, parts)
        return 0

    return sort
