"""C functions of the emulated driver: what native code gives it is written down, in order, until Python asks for it.

A row of words is [kind, words of the row, ...]: a launch (the number of the thread, how many launches had been noted,
then what `cuLaunchKernel` is given, parameters by value), a fill (the number of the thread, address, byte, bytes,
stream), memory that the allocator lends (address, bytes), and memory
that it takes back (address).  Everything here runs with the GIL held.
"""

from __future__ import annotations

from rushlight._host.python_native import (
    Py_DecRef,
    Py_None,
    PyErr_Clear,
    PyErr_Fetch,
    PyErr_Restore,
    PyList_Append,
    PyList_New,
    PyLong_FromLongLong,
    PyLong_FromUnsignedLongLong,
    PyObject_Vectorcall,
    PyThreadState_Get,
    PyThreadState_GetID,
    kept,
)
from rushlight._native import i64, native, stack, static, u64, unlikely

__all__ = [
    "CATCH_UP", "DRAIN", "EAGER", "FAILED", "LAUNCH", "LEND", "MEMSET", "NOTED", "QUEUE", "QUEUE_WORDS", "TAKE_BACK", "emulated_launch", "emulated_lend", "emulated_memset",
    "emulated_take_back", "py_rows", "py_thread",
]  # fmt: skip

LAUNCH, LEND, TAKE_BACK, MEMSET = 1, 2, 3, 4
ROOM, MOST_LAUNCHES = 1 << 14, 32  # words; launches, of which the notes are known
QUEUE_WORDS = 8
QUEUE = static("rl_emulated_queue", 8 * QUEUE_WORDS)
ROWS = static("rl_emulated_rows", 8 * (ROOM + 4096))
# words of QUEUE: words in use, launches among the rows, whether a device has failed, the address of the count of notes, a
# function in Python that takes the rows, one that raises what went wrong with them, whether every launch calls that
USED, LAUNCHES, FAILED, NOTED, DRAIN, CATCH_UP, EAGER = range(7)
MOST_PARAMETERS = 2048
ASK_PYTHON, RAISED = -2, -1  # see `launch_native`


@native("void()")
def drained():
    """Let Python take the rows; what goes wrong there is told by the driver's next call."""
    held, nothing_given = stack(24), stack(8)
    PyErr_Fetch(held, held + 8, held + 16)
    found = PyObject_Vectorcall(QUEUE.ptr[DRAIN], nothing_given, u64(0), None)
    if found is None:
        PyErr_Clear()
    else:
        Py_DecRef(found)
    PyErr_Restore(held.ptr[0], held.ptr[1], held.ptr[2])


@native("i32()")
def looked_at():
    """Behind a row: Python takes the rows where each is looked at, and where there is no room for more."""
    if QUEUE.i64[EAGER] != 0 or QUEUE.i64[USED] > ROOM or QUEUE.i64[LAUNCHES] >= MOST_LAUNCHES:
        nothing_given = stack(8)
        found = PyObject_Vectorcall(QUEUE.ptr[CATCH_UP], nothing_given, u64(0), None)
        if found is None:
            return RAISED
        Py_DecRef(found)
    return 0


@native("i32(ptr, u32, u32, u32, u32, u32, u32, u32, ptr, ptr, ptr)")
def emulated_launch(function, x, y, z, threads, rows, layers, shared, stream, parameters, extra):
    """`cuLaunchKernel`.  A function's handle is where two words lie: its code, and how many parameters it has."""
    count = function.i64[1]
    if unlikely(QUEUE.i64[FAILED] != 0 or count < 0 or count > MOST_PARAMETERS):
        return ASK_PYTHON
    at = ROWS + 8 * QUEUE.i64[USED]
    at.i64[0] = LAUNCH
    at.i64[1] = 14 + count
    at.u64[2] = PyThreadState_GetID(PyThreadState_Get())
    at.i64[3] = QUEUE.ptr[NOTED].i64[0]
    at.ptr[4] = function
    at.i64[5] = i64(x)
    at.i64[6] = i64(y)
    at.i64[7] = i64(z)
    at.i64[8] = i64(threads)
    at.i64[9] = i64(rows)
    at.i64[10] = i64(layers)
    at.i64[11] = i64(shared)
    at.ptr[12] = stream
    at.i64[13] = count
    for k in range(count):
        at.i64[14 + k] = parameters.ptr[k].i64[0]
    QUEUE.i64[USED] += 14 + count
    QUEUE.i64[LAUNCHES] += 1
    return looked_at()


@native("i32(ptr, u8, i64, ptr)")
def emulated_memset(address, value, count, stream):
    """`cuMemsetD8Async`."""
    if unlikely(QUEUE.i64[FAILED] != 0):
        return ASK_PYTHON
    at = ROWS + 8 * QUEUE.i64[USED]
    at.i64[0] = MEMSET
    at.i64[1] = 7
    at.u64[2] = PyThreadState_GetID(PyThreadState_Get())
    at.ptr[3] = address
    at.i64[4] = i64(value)
    at.i64[5] = count
    at.ptr[6] = stream
    QUEUE.i64[USED] += 7
    return looked_at()


@native("void(i64, i64)")
def emulated_lend(address, nbytes):
    """The allocator lends memory."""
    at = ROWS + 8 * QUEUE.i64[USED]
    at.i64[0] = LEND
    at.i64[1] = 4
    at.i64[2] = address
    at.i64[3] = nbytes
    QUEUE.i64[USED] += 4
    if QUEUE.i64[USED] > ROOM:
        drained()


@native("void(i64)")
def emulated_take_back(address):
    """The allocator takes it back."""
    at = ROWS + 8 * QUEUE.i64[USED]
    at.i64[0] = TAKE_BACK
    at.i64[1] = 3
    at.i64[2] = address
    QUEUE.i64[USED] += 3
    if QUEUE.i64[USED] > ROOM:
        drained()


@native("ptr(ptr, ptr, i64)")
def py_rows(unused, args, count):
    """rows() -> the words of all rows, which are taken; None where there are none"""
    used = QUEUE.i64[USED]
    if used == 0:
        return kept(Py_None)
    out = PyList_New(0)
    if out is None:
        return None
    for k in range(used):
        word = PyLong_FromLongLong(ROWS.i64[k])
        PyList_Append(out, word)
        Py_DecRef(word)
    QUEUE.i64[USED] = 0
    QUEUE.i64[LAUNCHES] = 0
    return out


@native("ptr(ptr, ptr, i64)")
def py_thread(unused, args, count):
    """thread() -> the number of the calling thread, which no other ever has"""
    return PyLong_FromUnsignedLongLong(PyThreadState_GetID(PyThreadState_Get()))
