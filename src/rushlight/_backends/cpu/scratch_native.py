"""Scratch memory that a piece of work borrows while it runs: a few blocks, one for each running thread.

Touching fresh pages costs more than the work in them, so blocks are kept, and grow on demand.
"""

from __future__ import annotations

from rushlight._native import atomic_cas, atomic_store, extern, i32, i64, native, static, u64

__all__ = ["borrow", "borrowed", "give_back"]

SLOTS, HOMES = 256, 256  # a home is the upper 8 bits of a hash
# A cache line for each slot, so that threads do not contend for lines.
TABLE = static("scratch_table", 64 * SLOTS)
# Words of a slot: whether it is taken (32 bits), its memory, and the bytes of that.
TAKEN4, MEMORY, BYTES = 0, 1, 2
# The slot that a thread had last, whose memory may still be in its core's cache.
LAST = static("scratch_last", 8 * HOMES)
aligned_alloc = extern("aligned_alloc", "ptr(i64, i64)")
free = extern("free", "void(ptr)")
pthread_self = extern("pthread_self", "i64()")


@native("i1(i64)", inline=True)
def take(slot):
    """Take a slot if it is free.  Returns whether it was."""
    return TABLE.i32[16 * slot + TAKEN4] == 0 and atomic_cas(i32, TABLE, 16 * slot + TAKEN4, 0, 1) == 0


@native("i64()", inline=True)
def find():
    """Take the slot that this thread had last, else the first free one.  Returns its number, or -1 where none is free."""
    # Fibonacci hashing (Knuth, volume 3, 6.4), for stacks that lie evenly apart; threads with the same home are slower,
    # not wrong
    home = i64(u64(pthread_self()) * u64(0x9E3779B97F4A7C15) >> u64(56))
    slot = LAST.i64[home]
    if not take(slot):
        slot = 0
        while slot < SLOTS and not take(slot):
            slot += 1
        if slot == SLOTS:
            return -1
        LAST.i64[home] = slot
    return slot


@native("i64(i64)")
def borrow(nbytes):
    """Borrow a slot whose memory (`borrowed`) has at least `nbytes`.  Returns its number, or -1 where there is none."""
    slot = find()
    if slot >= 0:
        words = TABLE + 64 * slot
        if words.i64[BYTES] < nbytes:
            free(words.ptr[MEMORY])
            words.ptr[MEMORY] = aligned_alloc(64, (nbytes + 4095) // 4096 * 4096)
            words.i64[BYTES] = nbytes
            if words.ptr[MEMORY] is None:
                words.i64[BYTES] = 0
                atomic_store(i32, TABLE, 16 * slot + TAKEN4, 0)
                return -1
    return slot


@native("ptr(i64)")
def borrowed(slot):
    """The memory of a slot, aligned to 64 bytes."""
    return TABLE.ptr[8 * slot + MEMORY]


@native("void(i64)")
def give_back(slot):
    """Free a slot."""
    atomic_store(i32, TABLE, 16 * slot + TAKEN4, 0)
