"""Operands that stay packed from call to call, in the native language.

An operand may be *pinned*: kernels pack it once, into memory that the program keeps, and again where it was written to.
Other memory than the pinned operand is packed into memory of the call, which begins with LEAD bytes that say where it
is.

A piece of the operand is packed by one thread at a time, which reads the mark before it begins: what is written to
meanwhile has a later mark, and is packed again by the next call.
"""

from __future__ import annotations

from rushlight._host.storage_native import S_LENT, S_OPEN, S_VERSION, S_WINDOWS
from rushlight._native import Record, atomic_cas, atomic_load, atomic_store, i64, native, pause, ptr

__all__ = [
    "LEAD",
    "NEVER",
    "PACKED",
    "PINNED",
    "begin_packing",
    "end_packing",
    "packed_place",
    "pinned_panels",
    "place_to_pack",
]

# Behind it, for each piece: its mark when it was packed, NEVER, or BUSY.
PINNED = Record(
    "pinned",
    ("weight", i64, "the address of the operand"),
    ("storage", ptr, "the storage that it lies in"),
    ("root", ptr, "the storage whose memory that one shows; itself, where it has its own"),
    ("panels", ptr, "where it is packed"),
)
NEVER, BUSY, PACKED = -1, -2, -3
LEAD = 64  # bytes before the memory of a call; the first word: where the operand is packed, null: behind them
PIECES = 8 * len(PINNED)


@native("i64(ptr)", inline=True)
def mark_of(state):
    """A number that grows with each write to the memory, and with each further storage that shows it."""
    storage, root = state[PINNED.storage], state[PINNED.root]
    return storage.i64[S_VERSION] + storage.i64[S_WINDOWS] + root.i64[S_VERSION] + root.i64[S_WINDOWS]


@native("i64(ptr)", inline=True)
def is_shown(state):
    """Whether an array or a further storage shows the memory: then it may be written to unseen."""
    storage, root = state[PINNED.storage], state[PINNED.root]
    return i64(root.i64[S_LENT] != 0 or storage.i64[S_OPEN] != 0 or (root != storage and root.i64[S_OPEN] != 1))


@native("ptr(ptr, i64)", inline=True)
def pinned_panels(state, weight):
    """Where the operand at `weight` stays packed; null for other memory than the pinned operand."""
    if state[PINNED.weight] != weight:
        return None
    return state[PINNED.panels]


@native("ptr(ptr, ptr, i64)", inline=True)
def place_to_pack(state, memory, weight):
    """Where a kernel that packs one operand does so: where it stays packed, else behind LEAD in memory of the call."""
    kept = pinned_panels(state, weight)
    memory.ptr[0] = kept
    if kept is None:
        return memory + LEAD
    return kept


@native("ptr(ptr)", inline=True)
def packed_place(memory):
    """Where `place_to_pack` was, by the same memory."""
    if memory.ptr[0] is None:
        return memory + LEAD
    return memory.ptr[0]


@native("i64(ptr, i64)")
def begin_packing(state, piece):
    """PACKED, or what `end_packing` takes: then the piece is the caller's until that."""
    at = state + PIECES + 8 * piece
    while True:
        seen = atomic_load(i64, at, 0)
        if seen == BUSY:
            pause()
        else:
            mark, shown = mark_of(state), is_shown(state)
            if seen == mark and shown == 0:
                return PACKED
            if atomic_cas(i64, at, 0, seen, BUSY) == seen:
                return mark if shown == 0 else i64(NEVER)


@native("void(ptr, i64, i64)")
def end_packing(state, piece, mark):
    """The piece is packed, or packing it failed (NEVER)."""
    atomic_store(i64, state + PIECES + 8 * piece, 0, mark)
