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

__all__ = ["SORTS", "make_kth", "make_sort", "make_topk"]

FEW = 64  # results up to which each is put into its place at once

RARE = 4096  # float32 numbers among which two are rarely equal

ROWS, N, DESCENDING, CHUNK, K, SORTED = 8, 9, 10, 11, 12, 13
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


def _make_insertion(dtype: str) -> NativeFunction:
    """`insertion(keys, places, n)`: equals keep their order; places are u32."""
    key = SORTS[dtype][1]

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

    return insertion


def _make_sorters(dtype: str) -> tuple[NativeFunction, NativeFunction]:
    """`insertion(keys, places, n)` for a few keys, and `radix(keys, places, other_keys, other_places, n)` for many; places are u32."""
    memory, key, how = SORTS[dtype]
    width = key.itemsize
    digits = width if how == "float" or width == 8 else memory.itemsize

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

    return _make_insertion(dtype), radix


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
                    places.u32[j] = places.u32[j - 1]
                    j -= 1
                store(key, keys, j, k2)
                places.u32[j] = u32(at + i)
                held += 1
                worst = load(key, keys, held - 1)
            at += m

    return best


# long function: the native functions inside close over one dtype's types
def make_best_many(dtype: str) -> NativeFunction:
    """`best(x, n, count, flip, work, room)`: the same for more of them, in arrays of `room` >= 4 `count` + `BLOCK`: keys, others, places, others.

    What is better than the last so far is gathered, and sorted when there are four times as many.
    """
    memory, key, how = SORTS[dtype]
    key_of = make_key(f"many_{dtype}", memory, key, how)
    width = key.itemsize
    insertion, radix = _make_sorters(dtype)

    @native("i64(ptr, i64, i64, i64)", name=f"keep_best_{dtype}")
    def keep_best(work, room, held, count):
        """Sort what is held and keep the first `count`; how many those are."""
        keys, other = work, work + room * width
        places, other_places = work + 2 * room * width, work + 2 * room * width + 4 * room
        if held <= SHORT:
            insertion(keys, places, held)
        elif radix(keys, places, other, other_places, held) == 1:
            memcpy(keys, other, min(held, count) * width)
            memcpy(places, other_places, min(held, count) * 4)
        return min(held, count)

    @native(f"void(ptr, i64, i64, {_name(key)}, ptr, i64)", name=f"best_many_{dtype}")
    def best(x, n, count, flip, work, room):
        places = work + 2 * room * width
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
                    held = keep_best(work, room, held, count)
                    worst = load(key, work, count - 1)
                    full = True
            at += m
        keep_best(work, room, held, count)

    return best


# long function: the native functions inside close over one dtype's types
def _make_standard(dtype: str) -> tuple[NativeFunction, NativeFunction, NativeFunction]:
    """`heap(keys, places, hole, n, k, p)`, `select(keys, places, n, rank)` and `order(keys, places, n)`: what `std::partial_sort`, `nth_element` and
    `sort` of the GNU library do, step by step, for these say which of equals PyTorch takes.

    `heap` lets (k, p) sink from the hole in a heap of n with the greatest at its top.
    """
    key = SORTS[dtype][1]
    insertion = _make_insertion(dtype)

    @native("void(ptr, ptr, i64, i64)", name=f"swap_in_{dtype}", inline=True)
    def swap(keys, places, i, j):
        k: key = load(key, keys, i)
        store(key, keys, i, load(key, keys, j))
        store(key, keys, j, k)
        p = places.u32[i]
        places.u32[i] = places.u32[j]
        places.u32[j] = p

    @native(f"void(ptr, ptr, i64, i64, {_name(key)}, u32)", name=f"sink_{dtype}")
    def heap(keys, places, hole, n, k, p):
        top, child = hole, hole
        while child < (n - 1) // 2:
            child = 2 * (child + 1)
            if load(key, keys, child) < load(key, keys, child - 1):
                child -= 1
            store(key, keys, hole, load(key, keys, child))
            places.u32[hole] = places.u32[child]
            hole = child
        if n % 2 == 0 and child == (n - 2) // 2:
            child = 2 * child + 1
            store(key, keys, hole, load(key, keys, child))
            places.u32[hole] = places.u32[child]
            hole = child
        while hole > top and load(key, keys, (hole - 1) // 2) < k:
            parent = (hole - 1) // 2
            store(key, keys, hole, load(key, keys, parent))
            places.u32[hole] = places.u32[parent]
            hole = parent
        store(key, keys, hole, k)
        places.u32[hole] = p

    @native("void(ptr, ptr, i64, i64)", name=f"heap_of_least_{dtype}")
    def least(keys, places, count, n):
        """The least `count` of n, as a heap at the front."""
        for i in range(count // 2):
            at = count // 2 - 1 - i
            heap(keys, places, at, count, load(key, keys, at), places.u32[at])
        for i in range(count, n):
            k: key = load(key, keys, i)
            if k < load(key, keys, 0):
                p = places.u32[i]
                store(key, keys, i, load(key, keys, 0))
                places.u32[i] = places.u32[0]
                heap(keys, places, 0, count, k, p)

    @native("void(ptr, ptr, i64)", name=f"heap_to_row_{dtype}")
    def lined_up(keys, places, n):
        for i in range(n - 1):
            last = n - 1 - i
            k: key = load(key, keys, last)
            p = places.u32[last]
            store(key, keys, last, load(key, keys, 0))
            places.u32[last] = places.u32[0]
            heap(keys, places, 0, last, k, p)

    @native("i64(ptr, ptr, i64, i64)", name=f"parted_{dtype}")
    def part(keys, places, first, last):
        """Parts [first, last) at the median of three; where the second part begins."""
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
        swap(keys, places, first, middle)
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
            swap(keys, places, i, j)
            i += 1

    @native("i64(i64)", name=f"depth_{dtype}", inline=True)
    def depth_of(n):
        depth = 0
        while n > 1:
            depth += 2
            n //= 2
        return depth

    @native("void(ptr, ptr, i64, i64)", name=f"nth_{dtype}")
    def select(keys, places, n, rank):
        """The element of the rank comes to its place, lesser ones before it."""
        first, last = 0, n
        depth = depth_of(n)
        while last - first > 3:
            if depth == 0:
                least(keys + first * key.itemsize, places + first * 4, rank + 1 - first, last - first)
                swap(keys, places, first, rank)
                return
            depth -= 1
            cut = part(keys, places, first, last)
            if cut <= rank:
                first = cut
            else:
                last = cut
        insertion(keys + first * key.itemsize, places + first * 4, last - first)

    @native("void(ptr, ptr, i64)", name=f"ordered_{dtype}")
    def order(keys, places, n):
        waiting = stack(3 * 8 * 80)
        count = 1
        waiting.i64[0] = 0
        waiting.i64[1] = n
        waiting.i64[2] = depth_of(n)
        while count > 0:
            count -= 1
            first, last, depth = waiting.i64[3 * count], waiting.i64[3 * count + 1], waiting.i64[3 * count + 2]
            while last - first > 16:
                if depth == 0:
                    least(keys + first * key.itemsize, places + first * 4, last - first, last - first)
                    lined_up(keys + first * key.itemsize, places + first * 4, last - first)
                    break
                depth -= 1
                cut = part(keys, places, first, last)
                waiting.i64[3 * count] = cut
                waiting.i64[3 * count + 1] = last
                waiting.i64[3 * count + 2] = depth
                count += 1
                last = cut
        insertion(keys, places, n)

    return heap, select, order


# long function: the native functions inside close over one dtype's types
def make_topk(dtype: str) -> NativeFunction:
    """The kernel that finds the first `K` of each row in order (in PyTorch's order without `SORTED`): bufs are values, places (int64), then the rows.

    Of equals it takes those that PyTorch takes.  There a heap of few goes over a long row; here as well, past blocks in which nothing is better.
    From other rows the best are found in our own way where equals among them are unlikely, and, if there are any, once more in PyTorch's.
    """
    memory, key, how = SORTS[dtype]
    differ = 0 if how != "float" else RARE if key.itemsize == 4 else 1 << 62
    key_of = make_key(f"first_{dtype}", memory, key, how)
    size, width = memory.itemsize, key.itemsize
    best, best_many = make_best(dtype), make_best_many(dtype)
    heap, select, order = _make_standard(dtype)
    insertion, radix = _make_sorters(dtype)

    @native(f"void(ptr, i64, i64, {_name(key)}, ptr, ptr)", name=f"heaped_{dtype}")
    def heaped(x, n, count, flip, keys, places):
        block = stack(8 * BLOCK)
        for i in range(count):
            store(key, keys, i, key_of(load(memory, x, i)) ^ flip)
            places.u32[i] = u32(i)
        for i in range(count // 2):
            at = count // 2 - 1 - i
            heap(keys, places, at, count, load(key, keys, at), places.u32[at])
        at = count
        while at < n:
            m = min(n - at, BLOCK)
            least: key = key(0) - key(1)
            for i in range(m):
                k: key = key_of(load(memory, x, at + i)) ^ flip
                store(key, block, i, k)
                least = min(least, k)
            if least < load(key, keys, 0):
                for i in range(m):
                    k2: key = load(key, block, i)
                    if k2 < load(key, keys, 0):
                        heap(keys, places, 0, count, k2, u32(at + i))
            at += m
        for i in range(count - 1):
            last = count - 1 - i
            k3: key = load(key, keys, last)
            p = places.u32[last]
            store(key, keys, last, load(key, keys, 0))
            places.u32[last] = places.u32[0]
            heap(keys, places, 0, last, k3, p)

    @native(f"void(ptr, i64, {_name(key)}, ptr, ptr)", name=f"listed_{dtype}")
    def listed(x, n, flip, keys, places):
        for i in range(n):
            store(key, keys, i, key_of(load(memory, x, i)) ^ flip)
            places.u32[i] = u32(i)

    @native(f"i32(ptr, i64, i64, {_name(key)}, ptr, i64)", name=f"differing_{dtype}")
    def differing(x, n, count, flip, work, room):
        """The first `count` in order; whether no two of them are equal."""
        places = work + 2 * room * width
        if 4 * count > n:
            listed(x, n, flip, work, places)
            if n <= SHORT:
                insertion(work, places, n)
            elif radix(work, places, work + room * width, places + 4 * room, n) == 1:
                memcpy(work, work + room * width, count * width)
                memcpy(places, places + 4 * room, count * 4)
        elif count <= FEW:
            best(x, n, count, flip, work, places)
        else:
            best_many(x, n, count, flip, work, room)
        for i in range(1, count):
            if load(key, work, i) == load(key, work, i - 1):
                return 0
        return 1

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
        places = work + 2 * room * width
        flip: key = key(0)
        if ints.i64[DESCENDING] != 0:
            flip = key(0) - key(1)
        for r in range(first, last):
            x = bufs.ptr[2] + r * n * size
            if few:
                heaped(x, n, count, flip, work, places)
            elif ints.i64[SORTED] == 0 or count > differ or differing(x, n, min(count + 1, n), flip, work, room) == 0:
                listed(x, n, flip, work, places)
                select(work, places, n, count - 1)
                if ints.i64[SORTED] != 0:
                    order(work, places, count - 1)
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
                    place = i64(places.u32[rank])
                else:
                    best_many(x, n, rank + 1, key(0), keys, room)
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
