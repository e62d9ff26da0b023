"""Sorting rows: a stable radix sort of keys with places, one row after another in a piece.

A key is an unsigned integer that orders as PyTorch orders values: NaN above everything, -0.0 equal to 0.0; for descending
order its bits are inverted, so equal values keep their order either way.  Digits that all keys of a row share are skipped.
"""

from __future__ import annotations

from rushlight._backends.native import (
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
from rushlight._backends.native.types import Type

__all__ = ["FEW", "SORTS", "make_kth", "make_sort", "make_topk", "make_topk_many"]

FEW = 64  # results up to which each is put into its place at once

ROWS, N, DESCENDING, CHUNK, K = 8, 9, 10, 11, 12
SHORT = 48  # elements up to which insertion is faster

malloc = extern("malloc", "ptr(i64)")
free = extern("free", "void(ptr)")
rl_fail = extern("rl_fail", "i32(ptr, i64, i64, i64, i64, i64)")

# dtype -> (type in memory, type of keys, what makes a key)
SORTS: dict[str, tuple[Type, Type, str]] = {
    "bool": (u8, u32, "unsigned"), "uint8": (u8, u32, "unsigned"), "uint16": (u16, u32, "unsigned"), "uint32": (u32, u32, "unsigned"),
    "uint64": (u64, u64, "unsigned"), "int8": (i8, u32, "signed"), "int16": (i16, u32, "signed"), "int32": (i32, u32, "signed"),
    "int64": (i64, u64, "signed"), "float32": (u32, u32, "float"), "float64": (u64, u64, "float"), "float16": (u16, u32, "half"),
    "bfloat16": (u16, u32, "brain"),
}  # fmt: skip


def make_key(name: str, memory: Type, key: Type, how: str) -> NativeFunction:
    """The function from the bits of a value to its key."""
    bits = 8 * (key.itemsize if how == "float" else memory.itemsize)
    top = 1 << (bits - 1)
    infinity = {"float": 0x7F800000 if bits == 32 else 0x7FF0000000000000, "half": 0x7C00, "brain": 0x7F80}.get(how, 0)
    everything = (1 << bits) - 1

    @native(f"{_name(key)}({_name(memory)})", name=f"key_{name}", inline=True)
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


def _name(type: Type) -> str:
    return str(type.name)


# long function: the native functions inside close over one dtype's types
def _make_sorters(dtype: str) -> tuple[NativeFunction, NativeFunction]:
    """`insertion(keys, places, n)` for a few keys, and `radix(keys, places, other_keys, other_places, n)` for many; places are u32."""
    memory, key, how = SORTS[dtype]
    width = key.itemsize
    digits = width if how == "float" or width == 8 else memory.itemsize

    @native("void(ptr, ptr, i64)", name=f"insert_{dtype}")
    def insertion(keys, places, n):
        for i in range(1, n):
            k: key = load(key, keys, i)
            p = places.u32[i]
            j = i - 1
            while j >= 0 and load(key, keys, j) > k:
                store(key, keys, j + 1, load(key, keys, j))
                places.u32[j + 1] = places.u32[j]
                j -= 1
            store(key, keys, j + 1, k)
            places.u32[j + 1] = p

    @native("i32(ptr, ptr, ptr, ptr, i64)", name=f"radix_{dtype}")
    def radix(keys, places, other_keys, other_places, n):
        """Sorts by one byte after the other; tells which pair of arrays holds the result."""
        counts = stack(256 * 8 * 8)
        memset(counts, 0, 256 * 8 * digits)
        for i in range(n):
            k: key = load(key, keys, i)
            for d in range(digits):
                at = d * 256 + i64((k >> key(8 * d)) & key(255))
                counts.i64[at] = counts.i64[at] + 1
        swapped: i32 = 0
        a, b, p, q = keys, other_keys, places, other_places
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
                store(key, b, to, k2)
                q.u32[to] = p.u32[i]
            a, b = b, a
            p, q = q, p
            swapped = i32(1) - swapped
        return swapped

    return insertion, radix


def make_sort(dtype: str) -> NativeFunction:
    """The kernel that sorts rows of `dtype`: bufs are values, places (int64), then the rows, all contiguous."""
    memory, key, how = SORTS[dtype]
    key_of = make_key(dtype, memory, key, how)
    size, width = memory.itemsize, key.itemsize
    insertion, radix = _make_sorters(dtype)

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
        places = work + 2 * n * width
        other_places = places + 4 * n
        for r in range(first, last):
            values = bufs.ptr[0] + r * n * size
            index = bufs.ptr[1] + r * n * 8
            x = bufs.ptr[2] + r * n * size
            for i in range(n):
                store(key, keys, i, key_of(load(memory, x, i)) ^ flip)
                places.u32[i] = u32(i)
            swapped: i32 = 0
            if n <= SHORT:
                insertion(keys, places, n)
            else:
                swapped = radix(keys, places, other_keys, other_places, n)
            result = other_places if swapped == 1 else places
            for i in range(n):
                p = i64(result.u32[i])
                index.i64[i] = p
                store(memory, values, i, load(memory, x, p))
        free(work)
        return 0

    return sort


BLOCK = 64  # elements of which the least is found at once, before any of them is looked at


def make_best(dtype: str) -> NativeFunction:
    """`best(x, n, count, flip, keys, places)`: the least `count` keys of a row in order, and where they are.

    The best so far are kept sorted; hardly any of a long row's elements comes in, so most blocks are passed over by their least key.
    """
    memory, key, how = SORTS[dtype]
    key_of = make_key(f"top_{dtype}", memory, key, how)

    @native(f"void(ptr, i64, i64, {_name(key)}, ptr, ptr)", name=f"best_row_{dtype}")
    def best(x, n, count, flip, keys, places):
        block = stack(8 * BLOCK)
        held = 0
        worst: key = key(0)
        at = 0
        while at < n:
            m = min(n - at, BLOCK)
            least: key = key(0) - key(1)
            for i in range(m):
                k: key = key_of(load(memory, x, at + i)) ^ flip
                store(key, block, i, k)
                least = min(least, k)
            if held == count and least >= worst:
                at += m
                continue
            for i in range(m):
                k2: key = load(key, block, i)
                if held == count:
                    if k2 >= worst:
                        continue
                    held -= 1
                j = held
                while j > 0 and load(key, keys, j - 1) > k2:
                    store(key, keys, j, load(key, keys, j - 1))
                    places.i64[j] = places.i64[j - 1]
                    j -= 1
                store(key, keys, j, k2)
                places.i64[j] = at + i
                held += 1
                worst = load(key, keys, held - 1)
            at += m

    return best


def make_topk(dtype: str) -> NativeFunction:
    """The kernel that finds the first `K` of each row in order, for small K: bufs are values, places (int64), then the rows."""
    memory, key, _ = SORTS[dtype]
    size, width = memory.itemsize, key.itemsize
    best = make_best(dtype)

    @native("i32(ptr, ptr, i64)", name=f"rl_topk_{dtype}")
    def topk(bufs, ints, piece):
        n, count = ints.i64[N], ints.i64[K]
        first = piece * ints.i64[CHUNK]
        last = min(first + ints.i64[CHUNK], ints.i64[ROWS])
        keys = malloc(count * (width + 8))
        if keys is None:
            return rl_fail(bufs, piece, 4, 0, 0, 0)
        places = keys + count * width
        flip: key = key(0)
        if ints.i64[DESCENDING] != 0:
            flip = key(0) - key(1)
        for r in range(first, last):
            x = bufs.ptr[2] + r * n * size
            best(x, n, count, flip, keys, places)
            values = bufs.ptr[0] + r * count * size
            index = bufs.ptr[1] + r * count * 8
            for j in range(count):
                index.i64[j] = places.i64[j]
                store(memory, values, j, load(memory, x, places.i64[j]))
        free(keys)
        return 0

    return topk


# long function: the native functions inside close over one dtype's types
def make_best_many(dtype: str) -> NativeFunction:
    """`best(x, n, count, flip, work)`: the same for more of them; `work` gets the keys and, behind room for 2 (4 `count` + `BLOCK`) keys, the places.

    What is better than the last so far is gathered, and sorted when there are four times as many.
    """
    memory, key, how = SORTS[dtype]
    key_of = make_key(f"many_{dtype}", memory, key, how)
    width = key.itemsize
    insertion, radix = _make_sorters(dtype)

    @native("i64(ptr, i64, i64)", name=f"keep_best_{dtype}")
    def keep_best(work, held, count):
        """Sort what is held and keep the first `count`; how many those are.  `work`: keys, other keys, places, other places."""
        room = 4 * count + BLOCK
        keys, other = work, work + room * width
        places, other_places = work + 2 * room * width, work + 2 * room * width + 4 * room
        if held <= SHORT:
            insertion(keys, places, held)
        elif radix(keys, places, other, other_places, held) == 1:
            memcpy(keys, other, min(held, count) * width)
            memcpy(places, other_places, min(held, count) * 4)
        return min(held, count)

    @native(f"void(ptr, i64, i64, {_name(key)}, ptr)", name=f"best_many_{dtype}")
    def best(x, n, count, flip, work):
        places = work + 2 * (4 * count + BLOCK) * width
        block = stack(8 * BLOCK)
        held = 0
        full = False
        worst: key = key(0)
        at = 0
        while at < n:
            m = min(n - at, BLOCK)
            least: key = key(0) - key(1)
            for i in range(m):
                k: key = key_of(load(memory, x, at + i)) ^ flip
                store(key, block, i, k)
                least = min(least, k)
            if not full or least < worst:
                for i in range(m):
                    k2: key = load(key, block, i)
                    store(key, work, held, k2)
                    places.u32[held] = u32(at + i)
                    held += i64(not full or k2 < worst)
                if held >= 4 * count:
                    held = keep_best(work, held, count)
                    worst = load(key, work, count - 1)
                    full = True
            at += m
        keep_best(work, held, count)

    return best


def make_topk_many(dtype: str) -> NativeFunction:
    """The same for larger K."""
    memory, key, _ = SORTS[dtype]
    size, width = memory.itemsize, key.itemsize
    best = make_best_many(dtype)

    @native("i32(ptr, ptr, i64)", name=f"rl_topk_many_{dtype}")
    def topk(bufs, ints, piece):
        n, count = ints.i64[N], ints.i64[K]
        first = piece * ints.i64[CHUNK]
        last = min(first + ints.i64[CHUNK], ints.i64[ROWS])
        room = 4 * count + BLOCK
        work = malloc(room * 2 * (width + 4))
        if work is None:
            return rl_fail(bufs, piece, 4, 0, 0, 0)
        places = work + 2 * room * width
        flip: key = key(0)
        if ints.i64[DESCENDING] != 0:
            flip = key(0) - key(1)
        for r in range(first, last):
            x = bufs.ptr[2] + r * n * size
            best(x, n, count, flip, work)
            values = bufs.ptr[0] + r * count * size
            index = bufs.ptr[1] + r * count * 8
            for j in range(count):
                p = i64(places.u32[j])
                index.i64[j] = p
                store(memory, values, j, load(memory, x, p))
        free(work)
        return 0

    return topk


def _make_selection(dtype: str) -> NativeFunction:
    """`selection(keys, places, n, rank)`: Hoare's, with the median of three as pivot; the place of the element that ends at this rank."""
    key = SORTS[dtype][1]

    @native("void(ptr, ptr, i64, i64)", name=f"swap_{dtype}", inline=True)
    def swap(keys, places, i, j):
        k: key = load(key, keys, i)
        store(key, keys, i, load(key, keys, j))
        store(key, keys, j, k)
        p = places.u32[i]
        places.u32[i] = places.u32[j]
        places.u32[j] = p

    @native("i64(ptr, ptr, i64, i64)", name=f"selection_{dtype}")
    def selection(keys, places, n, rank):
        left, right = 0, n - 1
        while right > left + 1:
            swap(keys, places, left + (right - left) // 2, left + 1)
            if load(key, keys, left + 1) > load(key, keys, right):
                swap(keys, places, left + 1, right)
            if load(key, keys, left) > load(key, keys, right):
                swap(keys, places, left, right)
            if load(key, keys, left + 1) > load(key, keys, left):
                swap(keys, places, left + 1, left)
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
                    swap(keys, places, i, j)
            swap(keys, places, left, j)
            if j >= rank:
                right = j - 1
            if j <= rank:
                left = i
        if right == left + 1 and load(key, keys, left) > load(key, keys, right):
            swap(keys, places, left, right)
        return i64(places.u32[rank])

    return selection


# long function: the native function inside closes over one dtype's types
def make_kth(dtype: str) -> NativeFunction:
    """The kernel that finds the element of rank `K` of each row: bufs are values, places (int64), then the rows.

    Of equals it finds the one at which PyTorch's selection ends.  A low rank is found faster by keeping the best: then selection runs only where
    the value occurs more than once.
    """
    memory, key, how = SORTS[dtype]
    key_of = make_key(f"kth_{dtype}", memory, key, how)
    size, width = memory.itemsize, key.itemsize
    best, best_many, selection = make_best(dtype), make_best_many(dtype), _make_selection(dtype)

    @native("i32(ptr, ptr, i64)", name=f"rl_kth_{dtype}")
    def kth(bufs, ints, piece):
        n, rank = ints.i64[N], ints.i64[K]
        first = piece * ints.i64[CHUNK]
        last = min(first + ints.i64[CHUNK], ints.i64[ROWS])
        room = 4 * rank + 4 + BLOCK
        keys = malloc(max(n * (width + 8), 2 * room * (width + 4)))
        if keys is None:
            return rl_fail(bufs, piece, 4, 0, 0, 0)
        places = keys + n * width
        for r in range(first, last):
            x = bufs.ptr[2] + r * n * size
            count, place = 0, 0
            if 4 * rank < n:
                if rank < FEW:
                    best(x, n, rank + 1, key(0), keys, places)
                    place = places.i64[rank]
                else:
                    best_many(x, n, rank + 1, key(0), keys)
                    place = i64((keys + 2 * room * width).u32[rank])
                found: key = load(key, keys, rank)
                for i in range(n):
                    count += i64(key_of(load(memory, x, i)) == found)
            if count != 1:
                for i in range(n):
                    store(key, keys, i, key_of(load(memory, x, i)))
                    places.u32[i] = u32(i)
                place = selection(keys, places, n, rank)
            bufs.ptr[1].i64[r] = place
            store(memory, bufs.ptr[0], r, load(memory, x, place))
        free(keys)
        return 0

    return kth
