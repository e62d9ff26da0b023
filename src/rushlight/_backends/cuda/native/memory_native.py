"""The fast path of the caching allocator: chunks that were freed, by stream and size, and those that native plans hold.

A chunk that the allocator in Python hands over has a record, found by its address.  It is lent by native code or waits
in the list of its stream and size; the next request of that stream and size takes the one freed last.  Whatever this
cannot serve goes to Python: `allocate_slow`, `release_slow`.
"""

from __future__ import annotations

from rushlight._backends.cuda.native.words_native import AT, STATE, stream_here
from rushlight._host.python_native import (
    Py_DecRef,
    Py_None,
    PyBool_FromLong,
    PyErr_Fetch,
    PyErr_NoMemory,
    PyErr_Restore,
    PyList_Append,
    PyList_New,
    PyLong_AsLongLong,
    PyLong_AsUnsignedLongLong,
    PyLong_FromLongLong,
    PyLong_FromUnsignedLongLong,
    PyObject_Vectorcall,
    PyTuple_New,
    PyTuple_SetItem,
    free,
    kept,
    malloc,
)
from rushlight._host.tensor_native import user_place
from rushlight._native import Record, call_ptr, extern, i64, native, ptr, stack, static, u64, unlikely

__all__ = [
    "STATISTIC_WORDS", "STATISTICS", "allocate", "py_admit", "py_best", "py_lend", "py_ready",
    "py_state", "py_take", "py_take_back", "py_withdraw", "release",
]  # fmt: skip

UNIT = 512  # bytes; every size is a multiple (`settings.UNIT`)
NOTED = 1 << 20  # bytes from which on a chunk remembers who asked for it
CHUNK_SLOTS, LIST_SLOTS = 1 << 15, 1 << 12
CHUNK_TABLE = static("rl_cuda_chunks", 8 * CHUNK_SLOTS)
LIST_TABLE = static("rl_cuda_lists", 8 * 4 * LIST_SLOTS)
# Five statistics of the small pool, of the large one, of both: current, peak, allocated, freed
STATISTIC_WORDS = 3 * 5 * 4
STATISTICS = static("rl_cuda_statistics", 8 * STATISTIC_WORDS)

LIST = Record(
    "free list", ("stream", i64, "its handle"), ("size", i64, "bytes asked for; 0: no list"), ("first", ptr, "the chunk freed last"),
    ("small", i64, "whether it is of the small pool"),
)  # fmt: skip
CHUNK = Record(
    "chunk",
    ("address", i64, "of its memory"),
    ("nbytes", i64, "of it"),
    ("requested", i64, "how many bytes the last owner wanted"),
    ("lent", i64, "1: native code lent it; 0: it is in its list"),
    ("list", ptr, "LIST"),
    ("next", ptr, "the chunk behind it in the list"),
    ("object", ptr, "the chunk in Python"),
    ("place", ptr, "who asked for it: a tuple of code object and instruction; null: not noted"),
)
LIST_BYTES, CHUNK_BYTES = 8 * len(LIST), 8 * len(CHUNK)

PyErr_WriteUnraisable = extern("PyErr_WriteUnraisable", "void(ptr)")


# ***** statistics *****


@native("void(ptr, i64)", inline=True)
def raised(at, amount):
    """A statistic with an amount more."""
    current = at.i64[0] + amount
    at.i64[0] = current
    at.i64[2] += amount
    if current > at.i64[1]:
        at.i64[1] = current


@native("void(ptr, i64)", inline=True)
def lowered(at, amount):
    at.i64[0] -= amount
    at.i64[3] += amount


@native("void(i64, i64, i64)")
def count_lent(small, nbytes, requested):
    """A chunk is lent: allocation, active, allocated_bytes, active_bytes, requested_bytes."""
    for k in range(2):
        at = STATISTICS + 320
        if k == 0:
            at = STATISTICS if small != 0 else STATISTICS + 160
        raised(at, 1)
        raised(at + 32, 1)
        raised(at + 64, nbytes)
        raised(at + 96, nbytes)
        raised(at + 128, requested)


@native("void(i64, i64, i64, i64)")
def count_taken_back(small, nbytes, requested, active):
    """A chunk is freed; it stays active where `active` is 0: streams use it still."""
    for k in range(2):
        at = STATISTICS + 320
        if k == 0:
            at = STATISTICS if small != 0 else STATISTICS + 160
        lowered(at, 1)
        lowered(at + 64, nbytes)
        lowered(at + 128, requested)
        if active != 0:
            lowered(at + 32, 1)
            lowered(at + 96, nbytes)


@native("ptr(ptr, ptr, i64)")
def py_lend(unused, args, count):
    """lend(small, nbytes, requested)"""
    count_lent(PyLong_AsLongLong(args.ptr[0]), PyLong_AsLongLong(args.ptr[1]), PyLong_AsLongLong(args.ptr[2]))
    return kept(Py_None)


@native("ptr(ptr, ptr, i64)")
def py_take_back(unused, args, count):
    """take_back(small, nbytes, requested, active)"""
    nbytes, requested = PyLong_AsLongLong(args.ptr[1]), PyLong_AsLongLong(args.ptr[2])
    count_taken_back(PyLong_AsLongLong(args.ptr[0]), nbytes, requested, PyLong_AsLongLong(args.ptr[3]))
    return kept(Py_None)


# ***** tables *****


@native("ptr(i64, i64)", inline=True)
def list_of(stream, size):
    """The list of a stream and a size, or the free place for one, whose size is 0."""
    mixed = u64(size >> 9) * u64(0x9E3779B1) + u64(stream >> 4) * u64(0x85EBCA77)
    k = i64(mixed >> 12) & (LIST_SLOTS - 1)
    at = LIST_TABLE + LIST_BYTES * k
    while at[LIST.size] != 0 and (at[LIST.size] != size or at[LIST.stream] != stream):
        k = (k + 1) & (LIST_SLOTS - 1)
        at = LIST_TABLE + LIST_BYTES * k
    return at


@native("i64(i64)", inline=True)
def home_of(address):
    """Where the search for an address begins."""
    return i64((u64(address >> 9) * u64(0x9E3779B1)) >> 11) & (CHUNK_SLOTS - 1)


@native("i64(i64)", inline=True)
def place_of(address):
    """The place of the chunk at an address, or the free one for it."""
    k = home_of(address)
    chunk = CHUNK_TABLE.ptr[k]
    while chunk is not None and chunk[CHUNK.address] != address:
        k = (k + 1) & (CHUNK_SLOTS - 1)
        chunk = CHUNK_TABLE.ptr[k]
    return k


@native("ptr(i64)")
def removed(address):
    """Forget a chunk; its object (a new reference).  Those behind it move up, so that a search ends at a free place."""
    hole = place_of(address)
    chunk = CHUNK_TABLE.ptr[hole]
    CHUNK_TABLE.ptr[hole] = None
    STATE.i64[AT.chunks] -= 1
    k = (hole + 1) & (CHUNK_SLOTS - 1)
    other = CHUNK_TABLE.ptr[k]
    while other is not None:
        home = home_of(other[CHUNK.address])
        if ((k - home) & (CHUNK_SLOTS - 1)) >= ((k - hole) & (CHUNK_SLOTS - 1)):
            CHUNK_TABLE.ptr[hole] = other
            CHUNK_TABLE.ptr[k] = None
            hole = k
        k = (k + 1) & (CHUNK_SLOTS - 1)
        other = CHUNK_TABLE.ptr[k]
    found = chunk[CHUNK.object]
    if chunk[CHUNK.place] is not None:
        Py_DecRef(chunk[CHUNK.place])
    free(chunk)
    return found


# ***** what plans call *****


@native("ptr(ptr, i64)", inline=True)
def lend(chunk, nbytes):
    """Lend the first chunk of its list."""
    home = chunk[CHUNK.list]
    home[LIST.first] = chunk[CHUNK.next]
    chunk[CHUNK.next] = None
    chunk[CHUNK.lent] = 1
    chunk[CHUNK.requested] = nbytes
    count_lent(home[LIST.small], chunk[CHUNK.nbytes], nbytes)
    if nbytes >= NOTED:
        chunk[CHUNK.place] = user_place()
    if STATE.ptr[AT.lend] is not None:
        call_ptr("void(i64, i64)", STATE.ptr[AT.lend], chunk[CHUNK.address], chunk[CHUNK.nbytes])
    return ptr(chunk[CHUNK.address])


@native("ptr(ptr, i64)")
def address_from(function, nbytes):
    """The address that a function in Python gives for a number of bytes; null with an exception set."""
    given = stack(8)
    given.ptr[0] = PyLong_FromLongLong(nbytes)
    if given.ptr[0] is None:
        return None
    found = PyObject_Vectorcall(function, given, u64(1), None)
    Py_DecRef(given.ptr[0])
    if found is None:
        return None
    address = PyLong_AsUnsignedLongLong(found)
    Py_DecRef(found)
    return ptr(address)


@native("ptr(i64)")
def allocate(nbytes):
    """`DEVICE.allocate`: memory for work of the calling thread's current stream."""
    stream = stack(8)
    if STATE.i64[AT.slow] == 0 and stream_here(stream) != 0:
        home = list_of(stream.i64[0], (nbytes + (UNIT - 1)) & -UNIT)
        if home[LIST.size] != 0:
            chunk = home[LIST.first]
            if chunk is not None:
                return lend(chunk, nbytes)
    return address_from(STATE.ptr[AT.allocate_slow], nbytes)


@native("void(i64)")
def release_slow(address):
    """Memory that Python lent goes back; called by destructors, so an exception that is set stays set.

    When the interpreter ends there is no function to call any longer, and memory goes with the process.
    """
    if STATE.ptr[AT.release_slow] is None:
        return
    held, given = stack(24), stack(8)
    PyErr_Fetch(held, held + 8, held + 16)
    given.ptr[0] = PyLong_FromUnsignedLongLong(u64(address))
    if given.ptr[0] is not None:
        found = PyObject_Vectorcall(STATE.ptr[AT.release_slow], given, u64(1), None)
        Py_DecRef(given.ptr[0])
        if found is None:
            PyErr_WriteUnraisable(STATE.ptr[AT.release_slow])
        else:
            Py_DecRef(found)
    PyErr_Restore(held.ptr[0], held.ptr[1], held.ptr[2])


@native("void(ptr, i64)")
def release(p, nbytes):
    """`DEVICE.release`: a chunk goes back to the list of its stream and size."""
    chunk = CHUNK_TABLE.ptr[place_of(i64(p))]
    if unlikely(chunk is None):
        release_slow(i64(p))
        return
    home = chunk[CHUNK.list]
    count_taken_back(home[LIST.small], chunk[CHUNK.nbytes], chunk[CHUNK.requested], 1)
    chunk[CHUNK.lent] = 0
    chunk[CHUNK.next] = home[LIST.first]
    home[LIST.first] = chunk
    if STATE.ptr[AT.take_back] is not None:
        call_ptr("void(i64)", STATE.ptr[AT.take_back], chunk[CHUNK.address])
    place = chunk[CHUNK.place]
    if place is not None:
        chunk[CHUNK.place] = None
        Py_DecRef(place)


# ***** what Python calls *****


@native("ptr(ptr, ptr, i64)")
def py_admit(unused, args, count):
    """admit(chunk, address, nbytes, size, stream, small, requested, lent, place or None) -> whether there was room

    Hand a chunk over: one that is free for requests of `size` bytes on a stream, or one that native code lent.
    """
    address, size, stream = (
        PyLong_AsLongLong(args.ptr[1]),
        PyLong_AsLongLong(args.ptr[3]),
        PyLong_AsLongLong(args.ptr[4]),
    )
    home = list_of(stream, size)
    if STATE.i64[AT.chunks] >= CHUNK_SLOTS // 2 or (home[LIST.size] == 0 and STATE.i64[AT.lists] >= LIST_SLOTS // 2):
        return PyBool_FromLong(0)
    chunk = malloc(CHUNK_BYTES)
    if chunk is None:
        return PyErr_NoMemory()
    if home[LIST.size] == 0:
        STATE.i64[AT.lists] += 1
        home[LIST.size] = size
        home[LIST.stream] = stream
        home[LIST.first] = None
        home[LIST.small] = PyLong_AsLongLong(args.ptr[5])
    chunk[CHUNK.address] = address
    chunk[CHUNK.nbytes] = PyLong_AsLongLong(args.ptr[2])
    chunk[CHUNK.requested] = PyLong_AsLongLong(args.ptr[6])
    chunk[CHUNK.lent] = PyLong_AsLongLong(args.ptr[7])
    chunk[CHUNK.list] = home
    chunk[CHUNK.next] = None
    chunk[CHUNK.object] = kept(args.ptr[0])
    chunk[CHUNK.place] = None
    if args.ptr[8] != Py_None:
        chunk[CHUNK.place] = kept(args.ptr[8])
    if chunk[CHUNK.lent] == 0:
        chunk[CHUNK.next] = home[LIST.first]
        home[LIST.first] = chunk
    CHUNK_TABLE.ptr[place_of(address)] = chunk
    STATE.i64[AT.chunks] += 1
    return PyBool_FromLong(1)


@native("ptr(ptr)", inline=True)
def first_out(home):
    """Take the first chunk out of a list; its object (a new reference)."""
    chunk = home[LIST.first]
    home[LIST.first] = chunk[CHUNK.next]
    return removed(chunk[CHUNK.address])


@native("ptr(ptr, ptr, i64)")
def py_take(unused, args, count):
    """take(stream, size) -> a free chunk of that stream and size, or None"""
    home = list_of(PyLong_AsLongLong(args.ptr[0]), PyLong_AsLongLong(args.ptr[1]))
    if home[LIST.size] == 0:
        return kept(Py_None)
    if home[LIST.first] is None:
        return kept(Py_None)
    return first_out(home)


@native("ptr(ptr, ptr, i64)")
def py_best(unused, args, count):
    """best(stream, size, most, small) -> the smallest free chunk of so many bytes at least, `most` at most, or None"""
    stream, size = PyLong_AsLongLong(args.ptr[0]), PyLong_AsLongLong(args.ptr[1])
    most, small = PyLong_AsLongLong(args.ptr[2]), PyLong_AsLongLong(args.ptr[3])
    found: ptr = None
    for k in range(LIST_SLOTS):
        home = LIST_TABLE + LIST_BYTES * k
        if home[LIST.size] >= size and home[LIST.stream] == stream and home[LIST.small] == small:
            chunk = home[LIST.first]
            if chunk is not None:
                if chunk[CHUNK.nbytes] <= most:
                    if found is None:
                        found = home
                    elif chunk[CHUNK.nbytes] < found[LIST.first][CHUNK.nbytes]:
                        found = home
    if found is None:
        return kept(Py_None)
    return first_out(found)


@native("ptr(ptr, ptr, i64)")
def py_ready(unused, args, count):
    """ready() -> all free chunks, which are Python's from now on"""
    out = PyList_New(0)
    if out is None:
        return None
    for k in range(LIST_SLOTS):
        home = LIST_TABLE + LIST_BYTES * k
        while home[LIST.size] != 0 and home[LIST.first] is not None:
            chunk = first_out(home)
            PyList_Append(out, chunk)
            Py_DecRef(chunk)
    return out


@native("ptr(ptr)")
def state_of(chunk):
    """(whether it is lent, bytes requested, place or None) of a chunk."""
    out = PyTuple_New(3)
    if out is None:
        return None
    PyTuple_SetItem(out, 0, PyBool_FromLong(chunk[CHUNK.lent]))
    PyTuple_SetItem(out, 1, PyLong_FromLongLong(chunk[CHUNK.requested]))
    place = chunk[CHUNK.place]
    PyTuple_SetItem(out, 2, kept(Py_None if place is None else place))
    return out


@native("ptr(ptr, ptr, i64)")
def py_state(unused, args, count):
    """state(address) -> (whether it is lent, bytes requested, place or None) of a chunk that was handed over, else None"""
    chunk = CHUNK_TABLE.ptr[place_of(PyLong_AsLongLong(args.ptr[0]))]
    if chunk is None:
        return kept(Py_None)
    return state_of(chunk)


@native("ptr(ptr, ptr, i64)")
def py_withdraw(unused, args, count):
    """withdraw(address) -> its state; a chunk that native code lent is Python's from now on"""
    address = PyLong_AsLongLong(args.ptr[0])
    chunk = CHUNK_TABLE.ptr[place_of(address)]
    if chunk is None:
        return kept(Py_None)
    if chunk[CHUNK.lent] == 0:
        return kept(Py_None)
    out = state_of(chunk)
    Py_DecRef(removed(address))
    return out
