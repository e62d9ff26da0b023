"""Plan caches in the native language: hash tables by call key, open addressing, entries are Python objects."""

from __future__ import annotations

from rushlight._host.dispatch_words import (
    D_PLANS,
    D_SHAPE_CLASSES,
    E_COUNT,
    E_HASH,
    E_KEEP,
    E_PICK_COUNT,
    E_PICKS,
    E_PLAN,
    E_WORDS,
    E_WRAP,
    ENTRY_TYPE,
    HOST,
    T_MASK,
    T_SLOTS,
    T_USED,
)
from rushlight._host.python_native import (
    Py_DecRef,
    Py_IncRef,
    PyErr_NoMemory,
    PyObject_Free,
    PyObject_New,
    free,
    malloc,
)
from rushlight._native import i64, memcpy, native, u64

__all__ = ["empty_table", "find", "forget", "hash_words", "new_entry", "put"]


@native("i64(ptr, i64)", inline=True)
def hash_words(words, n):
    """A hash of a call key."""
    h = u64(0x9E3779B97F4A7C15)
    for k in range(n):
        h = (h ^ words.u64[k]) * u64(0xFF51AFD7ED558CCD)
        h = h ^ (h >> 29)
    return i64(h)


@native("i64(ptr, ptr, i64)", inline=True)
def same_words(a, b, n):
    """Whether two keys are equal."""
    k: i64 = 0
    while k < n and a.i64[k] == b.i64[k]:
        k += 1
    return i64(k == n)


@native("ptr(ptr, ptr, i64, i64)", inline=True)
def find(table, words, n, key):
    """The slot of a key in the table, or the empty slot where it would go."""
    slots, mask = table.ptr[T_SLOTS], table.i64[T_MASK]
    at = key & mask
    while True:
        entry = slots.ptr[at]
        if entry is None:
            return slots + 8 * at
        if entry.i64[E_HASH] == key and entry.i64[E_COUNT] == n and same_words(entry.ptr[E_WORDS], words, n) != 0:
            return slots + 8 * at
        at = (at + 1) & mask


@native("i32(ptr, i64)")
def grow(table, size):
    """Give a table `size` slots (a power of two), with the same entries; 1 where there is no memory."""
    fresh = malloc(8 * size)
    if fresh is None:
        return 1
    for k in range(size):
        fresh.ptr[k] = None
    slots = table.ptr[T_SLOTS]
    if slots is not None:
        for k in range(table.i64[T_MASK] + 1):
            entry = slots.ptr[k]
            if entry is not None:
                at = entry.i64[E_HASH] & (size - 1)
                while fresh.ptr[at] is not None:
                    at = (at + 1) & (size - 1)
                fresh.ptr[at] = entry
        free(slots)
    table.ptr[T_SLOTS] = fresh
    table.i64[T_MASK] = size - 1
    return 0


@native("void(ptr)")
def empty_table(table):
    """A table without entries, which takes no memory."""
    table.ptr[T_SLOTS] = None
    table.i64[T_MASK] = 0
    table.i64[T_USED] = 0


@native("void(ptr)")
def forget_table(table):
    """Drop all entries.  Their destructors may run any code, so the table is emptied first."""
    slots, mask = table.ptr[T_SLOTS], table.i64[T_MASK]
    empty_table(table)
    if slots is not None:
        for k in range(mask + 1):
            if slots.ptr[k] is not None:
                Py_DecRef(slots.ptr[k])
        free(slots)


@native("void(ptr)")
def forget(self):
    """Clear both tables of a dispatcher."""
    forget_table(self + 8 * D_PLANS)
    forget_table(self + 8 * D_SHAPE_CLASSES)


@native("ptr(ptr, i64, ptr, ptr, i64, ptr, ptr)")
def new_entry(words, n, plan, picks, count, wrap, keep):
    """An entry for a key."""
    entry = PyObject_New(HOST.ptr[ENTRY_TYPE])
    if entry is None:
        return None
    memory = malloc(8 * (n + count) + 8)
    if memory is None:
        PyObject_Free(entry)
        return PyErr_NoMemory()
    memcpy(memory, words, 8 * n)
    memcpy(memory + 8 * n, picks, 8 * count)
    entry.i64[E_HASH] = hash_words(words, n)
    entry.i64[E_COUNT] = n
    entry.ptr[E_WORDS] = memory
    entry.ptr[E_PICKS] = memory + 8 * n
    entry.i64[E_PICK_COUNT] = count
    entry.ptr[E_PLAN] = plan
    entry.ptr[E_WRAP] = wrap
    entry.ptr[E_KEEP] = keep
    Py_IncRef(plan)
    Py_IncRef(wrap)
    Py_IncRef(keep)
    return entry


@native("ptr(ptr, ptr)")
def put(table, entry):
    """Put an entry into the table, or in the place of one with the same key.  Takes over the reference; returns the
    entry (borrowed).

    Null with an exception set, also where there is no entry.
    """
    if entry is None:
        return None
    if table.ptr[T_SLOTS] is None or 2 * table.i64[T_USED] > table.i64[T_MASK]:
        size = i64(8) if table.ptr[T_SLOTS] is None else 2 * (table.i64[T_MASK] + 1)
        if grow(table, size) != 0:
            Py_DecRef(entry)
            return PyErr_NoMemory()
    place = find(table, entry.ptr[E_WORDS], entry.i64[E_COUNT], entry.i64[E_HASH])
    before = place.ptr[0]
    place.ptr[0] = entry
    if before is not None:
        Py_DecRef(before)
    else:
        table.i64[T_USED] += 1
    return entry
