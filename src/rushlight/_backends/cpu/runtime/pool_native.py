"""The memory pool, in the native language.  Everything here runs with the GIL held.

Blocks come in size classes: multiples of 64 bytes up to 1 KB, then four classes per power of two.  A freed block goes
to the list of its class (its first word links to the next one) and is handed out again, warm, to the next request of
the class.  What the lists hold is capped; beyond the cap they are emptied, in favour of the block being freed. Blocks
of 2 MB and more are mapped on their own, aligned to 2 MB, and ask for huge pages: a first touch of 4 KB pages costs
more than most arithmetic on them.

Before another large block is asked of the system while the lists hold memory, the system is asked how much it has left:
where that is little, the lists are emptied first, for others may need it more, and a process that asks for too much is
killed rather than refused.
"""

from __future__ import annotations

import sys

from rushlight._backends.cpu.runtime.threads_native import rl_parallel_for
from rushlight._host.dispatch_words import HOST, STORAGE_TYPE
from rushlight._host.python_native import (
    Py_IncRef,
    Py_None,
    PyErr_Format,
    PyErr_Occurred,
    PyExc_RuntimeError,
    PyExc_TypeError,
    PyExc_ValueError,
    PyLong_AsLongLong,
    free,
)
from rushlight._host.storage_native import S_NBYTES, S_OWNER, S_PTR, S_RELEASE, storage_new
from rushlight._native import clz, extern, i64, memcpy, memset, native, ptr, stack, static, u8, unlikely

__all__ = [
    "ALLOCATED",
    "BLOCKS",
    "CACHED",
    "CACHED_BLOCKS",
    "CAP",
    "GROUP_LIMIT",
    "LIMIT",
    "LIVE",
    "OOM_ERROR",
    "PEAK",
    "PEAK_HELD",
    "RESERVE",
    "STATE",
    "STATE_WORDS",
    "SYSTEM_CALLS",
    "TOTAL",
    "TRIMS",
    "block_alloc",
    "block_alloc_zeroed",
    "block_free",
    "class_bytes",
    "empty_cache",
    "py_alloc",
    "py_alloc_zeroed",
    "py_empty_cache",
    "py_resize",
    "size_class",
]

STATE_WORDS = 512
STATE = static("rl_state", 8 * STATE_WORDS)
# words of STATE
OOM_ERROR = 2
CAP, LIMIT = 4, 5  # most bytes to keep in the lists; most bytes to hold in all (0: no limit)
ALLOCATED, CACHED, PEAK, TOTAL, LIVE, SYSTEM_CALLS, TRIMS, CACHED_BLOCKS, FRESH, PEAK_HELD = range(6, 16)
# Bytes that the system should keep; most bytes that the control group may have (0: no limit)
RESERVE, GROUP_LIMIT = 16, 17
HEADS, BLOCKS = 64, 256  # per class: first free block, number of free blocks
CLASSES = 170

HUGE = 2 << 20
MAPPED = sys.platform == "linux"  # elsewhere large blocks come from posix_memalign, as small ones do
MAX_BYTES = 1 << 47
CLEARED = 256 << 10  # bytes that a thread sets to zero at a time

posix_memalign = extern("posix_memalign", "i32(ptr, i64, i64)")
mmap = extern("mmap", "ptr(ptr, i64, i32, i32, i32, i64)")
munmap = extern("munmap", "i32(ptr, i64)")
madvise = extern("madvise", "i32(ptr, i64, i32)")
open_file = extern("open", "i32(ptr, i32, ...)")
read_file = extern("read", "i64(i32, ptr, i64)")
close_file = extern("close", "i32(i32)")
strstr = extern("strstr", "ptr(ptr, ptr)")

# ***** size classes *****


@native("i64(i64)", inline=True)
def size_class(nbytes):
    """The class of a request of 1 byte or more."""
    if nbytes <= 1024:
        return (nbytes + 63) >> 6
    b = 63 - clz(nbytes - 1)
    return ((b - 10) << 2) + ((nbytes - 1) >> (b - 2)) + 13


@native("i64(i64)", inline=True)
def class_bytes(c):
    """The size of the blocks of class `c`."""
    if c <= 16:
        return c << 6
    k = c - 17
    return ((k & 3) + 5) << ((k >> 2) + 8)


# ***** memory of the system *****


@native("ptr(i64)")
def map_huge(size):
    """Map `size` bytes aligned to 2 MB, asking for huge pages; null when the system refuses."""
    p = mmap(None, size + HUGE, 3, 0x22, -1, 0)
    if i64(p) == -1:
        return None
    head = -i64(p) & (HUGE - 1)
    if head > 0:
        munmap(p, head)
    munmap(p + head + size, HUGE - head)
    madvise(p + head, size, 14)  # MADV_HUGEPAGE; a kernel without it says so, and nothing is lost
    return p + head


@native("i64(ptr, ptr)")
def number_in(path, before):
    """The number that follows the text `before` in a small file (at its beginning: ""); -1 where there is none."""
    fd = open_file(path, 0x80000)  # O_RDONLY | O_CLOEXEC
    if fd < 0:
        return -1
    text = stack(2048)
    got = read_file(fd, text, 2047)
    close_file(fd)
    if got <= 0:
        return -1
    text.u8[got] = u8(0)
    p = strstr(text, before)
    if p is None:
        return -1
    while p.u8[0] != 0 and (p.u8[0] < 48 or p.u8[0] > 57):
        p = p + 1
    found: i64 = -1
    while p.u8[0] >= 48 and p.u8[0] <= 57:
        found = max(found, i64(0)) * 10 + i64(p.u8[0]) - 48
        p = p + 1
    return found


@native("i64(i64)")
def memory_is_short(size):
    """Whether the system, or the control group, would have less than the reserve left after giving `size` bytes."""
    least = STATE.i64[RESERVE] + size
    available = number_in("/proc/meminfo", "MemAvailable:")
    if available >= 0 and available << 10 < least:
        return 1
    limit = STATE.i64[GROUP_LIMIT]
    if limit > 0:
        used = number_in("/sys/fs/cgroup/memory.current", "")
        if used >= 0 and limit - used < least:
            return 1
    return 0


@native("ptr(i64)")
def system_alloc(size):
    """A block from the system; null when it has none, or when the pool's own limit forbids it."""
    limit = STATE.i64[LIMIT]
    if limit > 0 and STATE.i64[ALLOCATED] + STATE.i64[CACHED] + size > limit:
        return None
    STATE.i64[SYSTEM_CALLS] += 1
    if MAPPED:
        if size >= HUGE:
            STATE.i64[FRESH] = 1
            return map_huge(size)
    out = stack(8)
    if posix_memalign(out, 64, size) != 0:
        return None
    return out.ptr[0]


@native("void(ptr, i64)")
def system_free(p, size):
    STATE.i64[SYSTEM_CALLS] += 1
    if MAPPED:
        if size >= HUGE:
            munmap(p, size)
            return
    free(p)


@native("void()")
def empty_cache():
    """Give every free block back to the system."""
    for c in range(CLASSES):
        p = STATE.ptr[HEADS + c]
        size = class_bytes(c)
        while p is not None:
            after = p.ptr[0]
            system_free(p, size)
            p = after
        STATE.ptr[HEADS + c] = None
        STATE.i64[BLOCKS + c] = 0
    STATE.i64[CACHED] = 0
    STATE.i64[CACHED_BLOCKS] = 0
    STATE.i64[TRIMS] += 1


# ***** blocks *****


@native("void(ptr, i64)", inline=True)
def keep(p, c):
    """Put a free block into the list of its class."""
    p.ptr[0] = STATE.ptr[HEADS + c]
    STATE.ptr[HEADS + c] = p
    STATE.i64[BLOCKS + c] += 1
    STATE.i64[CACHED_BLOCKS] += 1
    STATE.i64[CACHED] += class_bytes(c)


@native("void(i64)", inline=True)
def forget(c):
    """Take the first free block of a class out of its list."""
    STATE.ptr[HEADS + c] = STATE.ptr[HEADS + c].ptr[0]
    STATE.i64[BLOCKS + c] -= 1
    STATE.i64[CACHED_BLOCKS] -= 1
    STATE.i64[CACHED] -= class_bytes(c)


@native("ptr(i64)")
def take_larger(c):
    """A part of a free block of a larger class, the smallest there is; null where there is none.

    Its pages have been touched, fresh ones have not. What is left of it is kept as a smaller block, as far as it makes
    one.
    """
    for k in range(c + 1, CLASSES):
        p = STATE.ptr[HEADS + k]
        if p is not None:
            forget(k)
            size = class_bytes(c)
            left = class_bytes(k) - size
            if left >= HUGE:
                d = size_class(left)
                if class_bytes(d) > left:
                    d -= 1
                keep(p + size, d)
                size += class_bytes(d)
                left -= class_bytes(d)
            if left > 0:
                STATE.i64[SYSTEM_CALLS] += 1
                munmap(p + size, left)  # sizes of such classes are whole pages
            return p
    return None


@native("ptr(i64)")
def block_from_system(nbytes):
    """The slow way: a new block, after emptying the lists if need be; null with an exception set."""
    if nbytes > MAX_BYTES:
        PyErr_Format(
            STATE.ptr[OOM_ERROR], "rushlight: tried to allocate %lld bytes, more than an address space holds", nbytes
        )
        return None
    size = class_bytes(size_class(nbytes))
    if MAPPED:
        if size >= HUGE and STATE.i64[CACHED] >= HUGE:
            larger = take_larger(size_class(nbytes))
            if larger is not None:
                return larger
            if memory_is_short(size) != 0:
                empty_cache()
    p = system_alloc(size)
    if p is None and STATE.i64[CACHED] > 0:
        empty_cache()
        p = system_alloc(size)
    if p is None:
        PyErr_Format(
            STATE.ptr[OOM_ERROR],
            "rushlight: out of memory on the CPU: tried to allocate %lld bytes; %lld bytes are held by %lld live "
            "storages, %lld bytes are cached, the limit is %lld bytes (0: none)",
            nbytes, STATE.i64[ALLOCATED], STATE.i64[LIVE], STATE.i64[CACHED], STATE.i64[LIMIT],
        )  # fmt: skip
    return p


@native("ptr(i64)")
def block_alloc(nbytes):
    """A block for `nbytes` > 0, 64-byte aligned; null with an exception set."""
    STATE.i64[FRESH] = 0
    c: i64 = 0
    p: ptr = None
    if nbytes <= MAX_BYTES:
        c = size_class(nbytes)
        p = STATE.ptr[HEADS + c]
    size = class_bytes(c)
    if p is not None:
        forget(c)
    else:
        p = block_from_system(nbytes)
        if p is None:
            return None
    allocated = STATE.i64[ALLOCATED] + size
    STATE.i64[ALLOCATED] = allocated
    STATE.i64[PEAK] = max(STATE.i64[PEAK], allocated)
    STATE.i64[PEAK_HELD] = max(STATE.i64[PEAK_HELD], allocated + STATE.i64[CACHED])
    STATE.i64[TOTAL] += 1
    STATE.i64[LIVE] += 1
    return p


@native("void(ptr, i64)")
def block_free(p, nbytes):
    """Take a block back that was given for `nbytes`."""
    c = size_class(nbytes)
    size = class_bytes(c)
    STATE.i64[ALLOCATED] -= size
    STATE.i64[LIVE] -= 1
    cap = STATE.i64[CAP]
    if unlikely(STATE.i64[CACHED] + size > cap):
        if size > cap:
            system_free(p, size)
            return
        empty_cache()
    keep(p, c)


# ***** zeros *****


@native("i32(ptr, ptr, i64)")
def clear_piece(bufs, ints, piece):
    """A kernel: zeros into a piece of memory."""
    start = piece * CLEARED
    memset(bufs.ptr[0] + start, u8(0), min(CLEARED, ints.i64[0] - start))
    return 0


@native("ptr(i64)")
def block_alloc_zeroed(nbytes):
    """A block of zeros, as `block_alloc` gives one."""
    p = block_alloc(nbytes)
    # fresh mappings are zero already, and touching them now would cost a page fault each
    if p is not None and (nbytes < HUGE or STATE.i64[FRESH] == 0):
        if nbytes <= CLEARED:
            memset(p, u8(0), nbytes)
        else:
            words = stack(16)
            words.ptr[0] = p
            words.i64[1] = nbytes
            rl_parallel_for(clear_piece, words, words + 8, (nbytes + CLEARED - 1) // CLEARED)
    return p


# ***** what Python calls *****


@native("ptr(ptr, ptr, i64)")
def py_alloc(self, args, nargs):
    """alloc(nbytes) -> Storage"""
    if nargs != 1:
        return PyErr_Format(PyExc_TypeError.ptr[0], "alloc takes 1 argument (nbytes), %lld given", nargs)
    nbytes = PyLong_AsLongLong(args.ptr[0])
    if nbytes == -1 and PyErr_Occurred() is not None:
        return None
    return storage_new(block_alloc, block_free, nbytes)


@native("ptr(ptr, ptr, i64)")
def py_alloc_zeroed(self, args, nargs):
    """alloc_zeroed(nbytes) -> Storage"""
    if nargs != 1:
        return PyErr_Format(PyExc_TypeError.ptr[0], "alloc_zeroed takes 1 argument (nbytes), %lld given", nargs)
    nbytes = PyLong_AsLongLong(args.ptr[0])
    if nbytes == -1 and PyErr_Occurred() is not None:
        return None
    return storage_new(block_alloc_zeroed, block_free, nbytes)


@native("ptr(ptr, ptr, i64)")
def py_resize(self, args, nargs):
    """resize(storage, nbytes): new memory for a Storage of the pool, with the old bytes as far as they fit."""
    if nargs != 2 or args.ptr[0].ptr[1] != HOST.ptr[STORAGE_TYPE]:
        return PyErr_Format(PyExc_TypeError.ptr[0], "resize takes a Storage and a number of bytes")
    nbytes = PyLong_AsLongLong(args.ptr[1])
    if nbytes == -1 and PyErr_Occurred() is not None:
        return None
    storage = args.ptr[0]
    old, size = storage.ptr[S_PTR], storage.i64[S_NBYTES]
    if nbytes < 0:
        return PyErr_Format(PyExc_ValueError.ptr[0], "cannot resize to a negative number of bytes (%lld)", nbytes)
    if storage.ptr[S_OWNER] is not None:
        return PyErr_Format(PyExc_RuntimeError.ptr[0], "Trying to resize storage that is not resizable")
    new: ptr = None
    if nbytes > 0:
        new = block_alloc(nbytes)
        if new is None:
            return None
        memcpy(new, old, min(size, nbytes))
    if storage.ptr[S_RELEASE] is not None:
        block_free(old, size)
    storage.ptr[S_PTR] = new
    storage.i64[S_NBYTES] = nbytes
    storage.ptr[S_RELEASE] = block_free if nbytes > 0 else ptr(0)
    Py_IncRef(Py_None)
    return Py_None


@native("ptr(ptr, ptr, i64)")
def py_empty_cache(self, args, nargs):
    """empty_cache()"""
    empty_cache()
    Py_IncRef(Py_None)
    return Py_None
