"""C functions of the emulated driver: what native code gives it is written down, in order, until Python asks for it.

A row of words is [kind, words of the row, ...]: a launch (the number of the thread, how many launches had been noted,
then what `cuLaunchKernel` is given, parameters by value), the parameters of a node (executable, node, and the same), a
launch of a graph (the number of the thread, how many launches had been noted, executable, stream), a fill (the number of
the thread, address, byte, bytes, stream), memory that the allocator lends (address, bytes), and memory that it takes back
(address).  `cuLaunchKernel` and `cuStreamQuery` may be called without the GIL, and take it; all others
are called with it.
"""

from __future__ import annotations

from rushlight._host.python_native import (
    Py_DecRef,
    Py_None,
    PyErr_Clear,
    PyErr_Fetch,
    PyErr_Restore,
    PyGILState_Ensure,
    PyGILState_Release,
    PyList_Append,
    PyList_New,
    PyLong_FromLongLong,
    PyLong_FromUnsignedLongLong,
    PyObject_Vectorcall,
    PyThreadState_Get,
    PyThreadState_GetID,
    kept,
)
from rushlight._native import i64, native, stack, static, u32, u64, unlikely

__all__ = [
    "CATCH_UP", "DRAIN", "EAGER", "FAILED", "LAUNCH", "LAUNCH_GRAPH", "LEND", "MEMSET", "NOTED", "QUEUE",
    "QUEUE_WORDS", "SET_NODE", "TAKE_BACK", "emulated_encode_map", "emulated_encode_windows", "emulated_launch", "emulated_launch_graph",
    "emulated_lend", "emulated_memset", "emulated_query", "emulated_set_node", "emulated_take_back", "py_rows",
    "py_thread",
]  # fmt: skip

LAUNCH, LEND, TAKE_BACK, MEMSET, SET_NODE, LAUNCH_GRAPH = 1, 2, 3, 4, 5, 6
ROOM, MOST_LAUNCHES = 1 << 14, 32  # words; launches, of which the notes are known
QUEUE_WORDS = 8
QUEUE = static("rl_emulated_queue", 8 * QUEUE_WORDS)
ROWS = static("rl_emulated_rows", 8 * (ROOM + 4096))
# words of QUEUE: words in use, launches among the rows, whether a device has failed, the address of the count of notes, a
# function in Python that takes the rows, one that raises what went wrong with them, whether every launch calls that
USED, LAUNCHES, FAILED, NOTED, DRAIN, CATCH_UP, EAGER = range(7)
MOST_PARAMETERS, MAP_WORDS, MOST_DIMS, MOST_PIXELS = 2048, 16, 5, 1024
SWIZZLE_128, L2_256, FIRST_FLOAT, LAST_KIND = 3, 3, 6, 12  # of the driver's enumerations for tensor maps
INVALID, NOT_READY = 1, 600  # CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_READY
ITEM_BYTES = 0x4442842884421  # of each kind of element of a tensor map: 4 bits a kind, the first kind last
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
    """`cuLaunchKernel`.  A function's handle is where three words lie: its code, and how many parameters and tensor maps it
    has.
    """
    held = PyGILState_Ensure()
    status = written_launch(function, x, y, z, threads, rows, layers, shared, stream, parameters)
    PyGILState_Release(held)
    return status


@native("i64(ptr, ptr, ptr)")
def parameters_to(at, function, parameters):
    """Write parameters down by value; how many words."""
    count, maps = function.i64[1], function.i64[2]
    for k in range(count):
        at.i64[k] = parameters.ptr[k].i64[0]
    for m in range(maps):
        source = parameters.ptr[count + m]
        for k in range(i64(MAP_WORDS)):
            at.i64[count + MAP_WORDS * m + k] = source.i64[k]
    return count + MAP_WORDS * maps


@native("i32(ptr, u32, u32, u32, u32, u32, u32, u32, ptr, ptr)")
def written_launch(function, x, y, z, threads, rows, layers, shared, stream, parameters):
    """A launch as a row."""
    if unlikely(QUEUE.i64[FAILED] != 0 or function.i64[1] < 0 or function.i64[1] > MOST_PARAMETERS):
        return ASK_PYTHON
    at = ROWS + 8 * QUEUE.i64[USED]
    count = parameters_to(at + 8 * 14, function, parameters)
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
    QUEUE.i64[USED] += 14 + count
    QUEUE.i64[LAUNCHES] += 1
    return looked_at()


@native("i32(ptr, ptr, ptr)")
def emulated_set_node(executable, node, given):
    """`cuGraphExecKernelNodeSetParams`, of the first version."""
    function = given.ptr[0]
    if unlikely(QUEUE.i64[FAILED] != 0 or function.i64[1] < 0 or function.i64[1] > MOST_PARAMETERS):
        return ASK_PYTHON
    at = ROWS + 8 * QUEUE.i64[USED]
    count = parameters_to(at + 8 * 13, function, given.ptr[5])
    at.i64[0] = SET_NODE
    at.i64[1] = 13 + count
    at.ptr[2] = executable
    at.ptr[3] = node
    at.ptr[4] = function
    for k in range(7):
        at.i64[5 + k] = i64(given.u32[2 + k])
    at.i64[12] = count
    QUEUE.i64[USED] += 13 + count
    if QUEUE.i64[USED] > ROOM:
        drained()
    return 0


@native("i32(ptr, ptr)")
def emulated_launch_graph(executable, stream):
    """`cuGraphLaunch`."""
    held = PyGILState_Ensure()
    status = written_graph(executable, stream)
    PyGILState_Release(held)
    return status


@native("i32(ptr, ptr)")
def written_graph(executable, stream):
    """A launch of a graph as a row."""
    if unlikely(QUEUE.i64[FAILED] != 0):
        return ASK_PYTHON
    at = ROWS + 8 * QUEUE.i64[USED]
    at.i64[0] = LAUNCH_GRAPH
    at.i64[1] = 6
    at.u64[2] = PyThreadState_GetID(PyThreadState_Get())
    at.i64[3] = QUEUE.ptr[NOTED].i64[0]
    at.ptr[4] = executable
    at.ptr[5] = stream
    QUEUE.i64[USED] += 6
    QUEUE.i64[LAUNCHES] += 1
    return looked_at()


@native("i32(ptr)")
def emulated_query(stream):
    """`cuStreamQuery`: there is always something left, since nothing runs before somebody waits."""
    return NOT_READY


@native("i64(ptr, i32, i32, i32, i32, i32)")
def refused_modes(out, kind, interleave, swizzle, promotion, fill):
    """Whether a map is refused for where it lies, its elements or its modes (see `tensor_maps.Modes`)."""
    if i64(out) % 64 != 0 or kind < 0 or kind > LAST_KIND or interleave != 0 or swizzle != SWIZZLE_128:
        return 1
    if promotion < 0 or promotion > L2_256 or fill < 0 or fill > 1 or (fill == 1 and kind < FIRST_FLOAT):
        return 1
    return 0


@native("i32(ptr, i32, u32, i64, ptr, ptr, ptr, ptr, i32, i32, i32, i32)")
def emulated_encode_map(out, kind, dims, address, sizes, strides, box, steps, interleave, swizzle, promotion, fill):
    """`cuTensorMapEncodeTiled`: the record that twins read (see `_codegen.threads.tile_maps`)."""
    if refused_modes(out, kind, interleave, swizzle, promotion, fill) != 0:
        return INVALID
    item = (i64(ITEM_BYTES) >> (4 * i64(kind))) & 15
    if dims < u32(1) or dims > u32(MOST_DIMS) or address % 16 != 0:
        return INVALID
    n = i64(dims)
    wide = i64(box.u32[0]) * item
    if wide <= 0 or wide > 128 or wide % 16 != 0:
        return INVALID
    out.i64[0] = address
    for k in range(i64(MOST_DIMS)):
        size, stride, part = i64(1), i64(0), i64(1)
        if k < n:
            size, part = sizes.i64[k], i64(box.u32[k])
            if size <= 0 or size > 1 << 32 or part <= 0 or part > 256 or steps.u32[k] != u32(1):
                return INVALID
        if k < n - 1:
            stride = strides.i64[k]
            if stride <= 0 or stride % 16 != 0 or stride >= 1 << 40:
                return INVALID
        out.i64[1 + k] = size
        if k < MOST_DIMS - 1:
            out.i64[6 + k] = stride
        out.i64[10 + k] = part
    out.i64[15] = item
    return 0


@native("i32(ptr, i32, u32, i64, ptr, ptr, ptr, ptr, u32, u32, ptr, i32, i32, i32, i32)")
def emulated_encode_windows(
    out,
    kind,
    dims,
    address,
    sizes,
    strides,
    lower,
    upper,
    channels,
    pixels,
    steps,
    interleave,
    swizzle,
    promotion,
    fill,
):
    """`cuTensorMapEncodeIm2col`: the record of windows."""
    if refused_modes(out, kind, interleave, swizzle, promotion, fill) != 0:
        return INVALID
    item, n = (i64(ITEM_BYTES) >> (4 * i64(kind))) & 15, i64(dims)
    wide = i64(channels) * item
    if n < 3 or n > MOST_DIMS or address % 16 != 0 or wide <= 0 or wide > 128 or wide % 16 != 0:
        return INVALID
    half = i64(1) << 15
    if n == 4:
        half = i64(1) << 7
    elif n == 5:
        half = i64(1) << 4
    if pixels == u32(0) or pixels > u32(MOST_PIXELS) or steps.u32[0] != u32(1) or steps.u32[n - 1] != u32(1):
        return INVALID
    out.i64[0] = address
    for k in range(i64(MOST_DIMS)):
        out.i64[1 + k] = i64(1)
        if k < MOST_DIMS - 1:
            out.i64[6 + k] = i64(0)
    for k in range(n):
        place = k
        if k == n - 1:
            place = i64(MOST_DIMS) - 1  # images are the last of the dims
        if sizes.i64[k] <= 0 or sizes.i64[k] > 1 << 32:
            return INVALID
        out.i64[1 + place] = sizes.i64[k]
        if k > 0:
            stride = strides.i64[k - 1]
            if stride <= 0 or stride % 16 != 0 or stride >= 1 << 40:
                return INVALID
            out.i64[5 + place] = stride
    for k in range(i64(MOST_DIMS) - 2):
        out.i64[12 + k] = (i64(1) << 32) | 1
        if k < n - 2:
            first, last, step = i64(lower.i32[k]), i64(upper.i32[k]), i64(steps.u32[k + 1])
            room = sizes.i64[k + 1] + last - first
            if first < -half or first >= half or last < -half or last >= half or step < 1 or step > 8 or room < 1:
                return INVALID
            out.i64[12 + k] = (((room - 1) // step + 1) << 32) | ((first & 65535) << 16) | step
    out.i64[10] = i64(channels)
    out.i64[11] = i64(pixels)
    out.i64[15] = item | (i64(1) << 32)
    return 0


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
    if QUEUE.i64[USED] == 0:
        return kept(Py_None)
    out = PyList_New(0)
    if out is None:
        return None
    used = QUEUE.i64[USED]  # after the list was made: that may collect garbage, whose destructors add rows
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
