"""Memory that a piece of work borrows while it runs: a few blocks kept for the purpose, one for each thread that is at work.

Fresh pages cost more than what is done in them, so a block is kept, and grows when more is asked for.  A thread gets the block again that it had
before: that lies in its own core's caches, where the block of another thread would have to be fetched from that one's, line by line.
"""

from __future__ import annotations

from rushlight._backends.native import atomic_cas, atomic_store, extern, i32, native, static

__all__ = ["borrow", "borrowed", "give_back"]

SLOTS = 256
# words of a slot, which is a line of the cache: whether it is taken, who had it last, its memory, and how many bytes that is
TAKEN, OWNER, MEMORY, SIZE, WORDS = 0, 1, 2, 3, 8
TABLE = static("scratch_table", 8 * WORDS * SLOTS)
aligned_alloc = extern("aligned_alloc", "ptr(i64, i64)")
free = extern("free", "void(ptr)")
pthread_self = extern("pthread_self", "i64()")


@native("i64(i64)")
def take(me):
    """A slot that nobody has, and that `me` had last where there is one; -1 where all are taken."""
    for slot in range(SLOTS):
        at = WORDS * slot
        if TABLE.i64[at + OWNER] == 0:
            break
        if TABLE.i64[at + OWNER] == me and TABLE.i32[2 * at] == 0:
            if atomic_cas(i32, TABLE, 2 * at, 0, 1) == 0:
                return slot
    for slot in range(SLOTS):
        at = WORDS * slot
        if TABLE.i32[2 * at] == 0 and atomic_cas(i32, TABLE, 2 * at, 0, 1) == 0:
            TABLE.i64[at + OWNER] = me
            return slot
    return -1


@native("ptr(i64)")
def borrowed(slot):
    """The memory of a slot, aligned to 64 bytes."""
    return TABLE.ptr[WORDS * slot + MEMORY]


@native("void(i64)")
def give_back(slot):
    """The slot may be taken again."""
    atomic_store(i32, TABLE, 2 * WORDS * slot, 0)


@native("i64(i64)")
def borrow(nbytes):
    """The number of a slot whose memory (`borrowed`) is ours until `give_back`; -1 where there is none."""
    slot = take(pthread_self())
    at = WORDS * slot
    if slot >= 0 and TABLE.i64[at + SIZE] < nbytes:
        free(TABLE.ptr[at + MEMORY])
        TABLE.ptr[at + MEMORY] = aligned_alloc(64, (nbytes + 4095) // 4096 * 4096)
        TABLE.i64[at + SIZE] = nbytes
        if TABLE.ptr[at + MEMORY] is None:
            TABLE.i64[at + SIZE] = 0
            give_back(slot)
            return -1
    return slot
