"""Sorting rows: a stable sort of keys with indices, by digits or (short rows) by comparing all with all, row after row
in a piece.

A key is an unsigned integer that orders as PyTorch orders values: NaN above everything, -0.0 equal to 0.0; for
descending order its bits are inverted (`flip`), so equal values keep their order either way.  Digits that all keys of a
row share are skipped.

A row is sorted as two arrays, of keys and of indices (u32), which are moved together.
"""

from __future__ import annotations

from functools import cache

from rushlight._native import (
    NativeFunction,
    extern,
    i8,
    i16,
    i32,
    i64,
    load,
    memcpy,
    memset,
    native,
    stack,
    store,
    u8,
    u16,
    u32,
    u64,
)
from rushlight._native.types import Type

__all__ = [
    "CHUNK", "DESCENDING", "ROWS", "SORTS", "N", "free", "make_extent", "make_first_sorted", "make_insertion", "make_key", "make_listed", "make_moves",
    "make_picked", "make_sort", "make_squeezed", "make_value", "malloc", "rl_fail",
]  # fmt: skip

# constants of a kernel
ROWS, N, DESCENDING, CHUNK = 8, 9, 10, 11
SHORT = 24  # most elements for which insertion is faster
RANKED = 128  # most elements for which comparing all with all is faster than counting digits

malloc = extern("malloc", "ptr(i64)")
free = extern("free", "void(ptr)")
rl_fail = extern("rl_fail", "i32(ptr, i64, i64, i64, i64, i64)")

# dtype -> (type in memory, type of keys, conversion of values to keys)
SORTS: dict[str, tuple[Type, Type, str]] = {
    "bool": (u8, u32, "unsigned"), "uint8": (u8, u32, "unsigned"), "uint16": (u16, u32, "unsigned"), "uint32": (u32, u32, "unsigned"),
    "uint64": (u64, u64, "unsigned"), "int8": (i8, u32, "signed"), "int16": (i16, u32, "signed"), "int32": (i32, u32, "signed"),
    "int64": (i64, u64, "signed"), "float32": (u32, u32, "float"), "float64": (u64, u64, "float"), "float16": (u16, u32, "half"),
    "bfloat16": (u16, u32, "brain"),
}  # fmt: skip


@cache
def make_key(dtype: str) -> NativeFunction:
    """The function from the bits of a value to its key."""
    memory, key, how = SORTS[dtype]
    bits = 8 * (key.itemsize if how == "float" else memory.itemsize)
    top = 1 << (bits - 1)
    infinity = {"float": 0x7F800000 if bits == 32 else 0x7FF0000000000000, "half": 0x7C00, "brain": 0x7F80}.get(how, 0)
    everything = (1 << bits) - 1

    @native(f"{key.name}({memory.name})", name=f"key_{dtype}", inline=True)
    def key_of(x):
        if how == "unsigned":
            return key(x)
        if how == "signed":
            wide: key = key(i64(x) + top) if bits < 64 else key(x) ^ key(top)
            return wide
        value: key = key(x)
        size = value & key(top - 1)
        if size > key(infinity):
            return key(everything)
        if size == key(0):
            return key(top)
        return value ^ key(everything) if value & key(top) != key(0) else value | key(top)

    return key_of


@cache
def make_value(dtype: str) -> NativeFunction:
    """The function from a key, the row and the index of its value to the bits of the value, which are read where
    several values share a key."""
    memory, key, how = SORTS[dtype]
    bits = 8 * (key.itemsize if how == "float" else memory.itemsize)
    top, everything = 1 << (bits - 1), (1 << bits) - 1

    @native(f"{memory.name}({key.name}, ptr, i64)", name=f"value_{dtype}", inline=True)
    def value_of(k, x, index):
        if how == "unsigned":
            return memory(k)
        if how == "signed":
            return memory(k ^ key(top))
        if k == key(top) or k == key(everything):  # zeros and NaNs
            return load(memory, x, index)
        return memory(k ^ key(top)) if k & key(top) != key(0) else memory(k ^ key(everything))

    return value_of


@cache
def make_listed(dtype: str) -> NativeFunction:
    """`listed(x, n, flip, keys, indices)`: the keys of a row, in its order."""
    memory, key, _ = SORTS[dtype]
    key_of = make_key(dtype)

    @native(f"void(ptr, i64, {key.name}, ptr, ptr)", name=f"listed_{dtype}", inline=True)
    def listed(x, n, flip, keys, indices):
        for i in range(n):
            store(key, keys, i, key_of(load(memory, x, i)) ^ flip)
            indices.u32[i] = u32(i)

    return listed


# ***** keys with their indices *****


@cache
def make_moves(dtype: str) -> tuple[NativeFunction, NativeFunction, NativeFunction]:
    """`put(keys, indices, at, key, index)`, `move(keys, indices, to, at)` and `swap(keys, indices, i, j)`."""
    key = SORTS[dtype][1]

    @native(f"void(ptr, ptr, i64, {key.name}, u32)", name=f"put_{dtype}", inline=True)
    def put(keys, indices, at, k, p):
        store(key, keys, at, k)
        indices.u32[at] = p

    @native("void(ptr, ptr, i64, i64)", name=f"move_{dtype}", inline=True)
    def move(keys, indices, to, at):
        store(key, keys, to, load(key, keys, at))
        indices.u32[to] = indices.u32[at]

    @native("void(ptr, ptr, i64, i64)", name=f"swap_{dtype}", inline=True)
    def swap(keys, indices, i, j):
        k: key = load(key, keys, i)
        p = indices.u32[i]
        move(keys, indices, i, j)
        put(keys, indices, j, k, p)

    return put, move, swap


@cache
def make_insertion(dtype: str) -> tuple[NativeFunction, NativeFunction]:
    """`insert(keys, indices, held, key, index)` among `held` sorted ones, behind its equals; `insertion(keys, indices,
    n)` sorts with it."""
    key = SORTS[dtype][1]
    put, move, _ = make_moves(dtype)

    @native(f"void(ptr, ptr, i64, {key.name}, u32)", name=f"insert_{dtype}", inline=True)
    def insert(keys, indices, count, k, p):
        j = count
        while j > 0 and load(key, keys, j - 1) > k:
            move(keys, indices, j, j - 1)
            j -= 1
        put(keys, indices, j, k, p)

    @native("void(ptr, ptr, i64)", name=f"insertion_{dtype}")
    def insertion(keys, indices, n):
        for i in range(1, n):
            insert(keys, indices, i, load(key, keys, i), indices.u32[i])

    return insert, insertion


@cache
def make_radix(dtype: str) -> NativeFunction:
    """`radix(keys, indices, other_keys, other_indices, n)`: sorts byte by byte; returns which pair of arrays holds the
    result."""
    memory, key, how = SORTS[dtype]
    put, _, _ = make_moves(dtype)
    digits = key.itemsize if how == "float" or key.itemsize == 8 else memory.itemsize

    @native("i32(ptr, ptr, ptr, ptr, i64)", name=f"radix_{dtype}")
    def radix(keys, indices, other_keys, other_indices, n):
        counts = stack(256 * 8 * 8)
        memset(counts, 0, 256 * 8 * digits)
        for i in range(n):
            k: key = load(key, keys, i)
            for d in range(digits):
                at = d * 256 + i64((k >> key(8 * d)) & key(255))
                counts.i64[at] = counts.i64[at] + 1
        swapped: i32 = 0
        a, b, p, q = keys, other_keys, indices, other_indices
        for d in range(digits):
            row = counts + 2048 * d
            first = i64((load(key, a, 0) >> key(8 * d)) & key(255))
            if row.i64[first] == n:
                continue
            total = 0
            for v in range(256):
                c = row.i64[v]
                row.i64[v] = total
                total += c
            for i in range(n):
                k2: key = load(key, a, i)
                at = i64((k2 >> key(8 * d)) & key(255))
                to = row.i64[at]
                row.i64[at] = to + 1
                put(b, q, to, k2, p.u32[i])
            a, b = b, a
            p, q = q, p
            swapped = i32(1) - swapped
        return swapped

    return radix


@cache
def make_extent(key: Type) -> NativeFunction:
    """`extent(keys, n, both)`: the least and the greatest key."""

    @native("void(ptr, i64, ptr)", name=f"extent_{key.name}", inline=True)
    def extent(keys, n, both):
        least: key = key(0) - key(1)
        most: key = key(0)
        for i in range(n):
            k: key = load(key, keys, i)
            least = min(least, k)
            most = max(most, k)
        store(key, both, 0, least)
        store(key, both, 1, most)

    return extent


@cache
def make_squeezed(key: Type) -> NativeFunction:
    """`squeezed(keys, n, short)`: the keys less the least of them as u32, if that holds them: numbers of one row are
    mostly close together."""
    extent = make_extent(key)

    @native("i32(ptr, i64, ptr)", name=f"squeezed_{key.name}", inline=True)
    def squeezed(keys, n, short):
        both = stack(16)
        extent(keys, n, both)
        least: key = load(key, both, 0)
        if u64(load(key, both, 1) - least) > u64(0xFFFFFFFF):
            return 0
        for i in range(n):
            short.u32[i] = u32(load(key, keys, i) - least)
        return 1

    return squeezed


@cache
def make_lesser(key: Type) -> NativeFunction:
    """`lesser(keys, counts, n)`: adds to each of `counts` (u32) the number of keys less than the key at its index, four
    of them at a time."""

    @native("void(ptr, ptr, i64)", name=f"lesser_{key.name}", inline=True)
    def lesser(keys, counts, n):
        whole = n // 4 * 4
        for j in range(0, whole, 4):
            a: key = load(key, keys, j)
            b: key = load(key, keys, j + 1)
            c: key = load(key, keys, j + 2)
            d: key = load(key, keys, j + 3)
            for i in range(n):
                k: key = load(key, keys, i)
                counts.u32[i] += (u32(a < k) + u32(b < k)) + (u32(c < k) + u32(d < k))
        for j in range(whole, n):
            e: key = load(key, keys, j)
            for i in range(n):
                counts.u32[i] += u32(e < load(key, keys, i))

    return lesser


@cache
def make_ranks(dtype: str) -> NativeFunction:
    """`ranks(keys, indices, other_keys, other_indices, n)`: counts for each of a few keys the lesser ones, in vectors;
    the other arrays hold the result."""
    key = SORTS[dtype][1]
    put, _, _ = make_moves(dtype)
    counted, counted_short, squeezed = make_lesser(key), make_lesser(u32), make_squeezed(key)

    @native("i32(ptr, ptr, ptr, ptr, i64)", name=f"ranks_{dtype}")
    def ranks(keys, indices, other_keys, other_indices, n):
        counts, equals = stack(4 * RANKED), stack(4 * RANKED)
        memset(counts, 0, 4 * n)
        memset(equals, 0, 4 * n)
        if key.itemsize == 8 and squeezed(keys, n, other_keys) == 1:
            counted_short(other_keys, counts, n)
        else:
            counted(keys, counts, n)
        for i in range(n):
            rank = i64(counts.u32[i])
            before = equals.u32[rank]
            equals.u32[rank] = before + u32(1)
            put(other_keys, other_indices, rank + i64(before), load(key, keys, i), indices.u32[i])
        return 1

    return ranks


@cache
def make_arranged(dtype: str) -> NativeFunction:
    """`arranged(keys, indices, other_keys, other_indices, n)`: sorts in the way that is fastest for n; 1 if the other
    arrays hold the result."""
    (_, insertion), ranks, radix = make_insertion(dtype), make_ranks(dtype), make_radix(dtype)

    @native("i32(ptr, ptr, ptr, ptr, i64)", name=f"arranged_{dtype}")
    def arranged(keys, indices, other_keys, other_indices, n):
        if n <= SHORT:
            insertion(keys, indices, n)
            return 0
        if n <= RANKED:
            return ranks(keys, indices, other_keys, other_indices, n)
        return radix(keys, indices, other_keys, other_indices, n)

    return arranged


@cache
def make_first_sorted(dtype: str) -> NativeFunction:
    """`first_sorted(keys, indices, other_keys, other_indices, n, count)`: sorts the first `count`; the others are lost."""
    width = SORTS[dtype][1].itemsize
    arranged = make_arranged(dtype)

    @native("void(ptr, ptr, ptr, ptr, i64, i64)", name=f"first_sorted_{dtype}")
    def first_sorted(keys, indices, other_keys, other_indices, n, count):
        if arranged(keys, indices, other_keys, other_indices, n) == 1:
            memcpy(keys, other_keys, count * width)
            memcpy(indices, other_indices, count * 4)

    return first_sorted


# ***** the kernel *****


@cache
def make_picked(dtype: str) -> NativeFunction:
    """`picked(values, index, x, indices, n)`: writes the elements of a row `x` at the first n indices, and the indices
    as int64."""
    memory = SORTS[dtype][0]

    @native("void(ptr, ptr, ptr, ptr, i64)", name=f"picked_{dtype}", inline=True)
    def picked(values, index, x, indices, n):
        for i in range(n):
            p = i64(indices.u32[i])
            index.i64[i] = p
            store(memory, values, i, load(memory, x, p))

    return picked


def make_sort(dtype: str) -> NativeFunction:
    """The kernel that sorts rows of `dtype`.  bufs: values, indices (int64), then the rows, all contiguous."""
    memory, key, _ = SORTS[dtype]
    size, width = memory.itemsize, key.itemsize
    listed, arranged, picked = make_listed(dtype), make_arranged(dtype), make_picked(dtype)

    @native("i32(ptr, ptr, i64)", name=f"rl_sort_{dtype}")
    def sort(bufs, ints, piece):
        n = ints.i64[N]
        first = piece * ints.i64[CHUNK]
        last = min(first + ints.i64[CHUNK], ints.i64[ROWS])
        work = malloc(2 * n * (width + 4))
        if work is None:
            return rl_fail(bufs, piece, 4, 0, 0, 0)
        flip: key = key(0)
        if ints.i64[DESCENDING] != 0:
            flip = key(0) - key(1)
        keys = work
        other_keys = work + n * width
        indices = work + 2 * n * width
        other_indices = indices + 4 * n
        for r in range(first, last):
            values = bufs.ptr[0] + r * n * size
            index = bufs.ptr[1] + r * n * 8
            x = bufs.ptr[2] + r * n * size
            listed(x, n, flip, keys, indices)
            swapped = arranged(keys, indices, other_keys, other_indices, n)
            picked(values, index, x, other_indices if swapped == 1 else indices, n)
        free(work)
        return 0

    return sort
