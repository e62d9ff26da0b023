"""Memory that a piece of work borrows while it runs: a few blocks kept for the purpose, one for each thread that is at work.

Fresh pages cost more than what is done in them, so a block is kept, and grows when more is asked for.
"""

from __future__ import annotations

from rushlight._backends.native import atomic_cas, atomic_store, extern, i32, native, static

__all__ = ["borrow", "borrowed", "give_back"]

SLOTS = 256
TABLE = static("scratch_table", 24 * SLOTS)  # for each slot: whether it is taken, its memory, and how many bytes that is
aligned_alloc = extern("aligned_alloc", "ptr(i64, i64)")
free = extern("free", "void(ptr)")


@native("i64(i64)")
def borrow(nbytes):
    """The number of a slot whose memory (`borrowed`) is ours until `give_back`; -1 where there is none."""
    for slot in range(SLOTS):
        if TABLE.i32[6 * slot] == 0:
            if atomic_cas(i32, TABLE, 6 * slot, 0, 1) == 0:
                if TABLE.i64[3 * slot + 2] < nbytes:
                    free(TABLE.ptr[3 * slot + 1])
                    TABLE.ptr[3 * slot + 1] = aligned_alloc(64, (nbytes + 4095) // 4096 * 4096)
                    TABLE.i64[3 * slot + 2] = nbytes
                    if TABLE.ptr[3 * slot + 1] is None:
                        TABLE.i64[3 * slot + 2] = 0
                        atomic_store(i32, TABLE, 6 * slot, 0)
                        return -1
                return slot
    return -1


@native("ptr(i64)")
def borrowed(slot):
    """The memory of a slot, aligned to 64 bytes."""
    return TABLE.ptr[3 * slot + 1]


@native("void(i64)")
def give_back(slot):
    """The slot may be taken again."""
    atomic_store(i32, TABLE, 6 * slot, 0)
