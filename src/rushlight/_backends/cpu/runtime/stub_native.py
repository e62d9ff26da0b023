"""Between the host and kernels, in the native language: how one is launched, the stub that all of them share, failures.

A kernel is `i32 kernel(ptr bufs, ptr ints, i64 piece)`.  The eight words before `bufs` belong to the call: a kernel
that finds a bad index returns `rl_fail(bufs, piece, code, value, dim, size)`, which notes it there; the failure of the
lowest piece is kept, and becomes a Python exception once all threads are done.
"""

from __future__ import annotations

from collections.abc import Sequence

from rushlight._backends.cpu.runtime.pool_native import block_alloc, block_free
from rushlight._backends.cpu.runtime.threads_native import rl_parallel_for
from rushlight._host.arguments_native import H_FN, H_WORDS, rl_count_error, word
from rushlight._host.device_records import FRESH_SIZES, HEADER, LAUNCH, MAY_UNLOCK
from rushlight._host.python_native import (
    Py_DecRef,
    Py_IncRef,
    Py_None,
    PyErr_Format,
    PyErr_NoMemory,
    PyEval_RestoreThread,
    PyEval_SaveThread,
    PyExc_IndexError,
    PyExc_RuntimeError,
    PyExc_TypeError,
    PyTuple_New,
    PyTuple_SetItem,
    free,
    malloc,
)
from rushlight._host.storage_native import S_PTR, storage_new
from rushlight._native import NativeFunction, atomic_cas, atomic_store, call_ptr, i64, native, pause, stack, unlikely
from rushlight._prims.elementwise.requirements import REQUIREMENTS, Requirement
from rushlight._types.layout import BELOW_ALL

__all__ = [
    "BY_ZERO", "F_CODE", "F_DIM", "F_SIZE", "F_VALUE", "MOVED", "OF_PYTHON", "OUT_OF_BOUNDS", "OUT_OF_RANGE", "UNKNOWN_FAILURE", "kernel_stub",
    "launch", "rl_fail", "rl_raise", "unfulfilled",
]  # fmt: skip

# words before bufs, of which the host keeps HEADER free
MOVED = -(BELOW_ALL >> 1)  # an index below this was moved out of range
F_LOCK, F_CODE, F_PIECE, F_VALUE, F_DIM, F_SIZE = -1, -2, -3, -4, -5, -6
OF_PYTHON = 9  # the code of a failure whose exception is set
# what failures say, also in programs without Python
OUT_OF_BOUNDS = "index %lld is out of bounds for dimension %lld with size %lld"
OUT_OF_RANGE, BY_ZERO = "index out of range in self", "ZeroDivisionError"
UNKNOWN_FAILURE = "a kernel failed with status %d, code %lld, value %lld"
STACK_WORDS = 56  # calls with more words than this use malloc


# ***** failures *****


@native("i32(ptr, i64, i64, i64, i64, i64)")
def rl_fail(bufs, piece, code, value, dim, size):
    """Note the failure of a piece and return 1, the status for the kernel to return."""
    while atomic_cas(i64, bufs, F_LOCK, 0, 1) != 0:
        pause()
    if bufs.i64[F_CODE] < 0 or piece < bufs.i64[F_PIECE]:
        bufs.i64[F_CODE] = code
        bufs.i64[F_PIECE] = piece
        bufs.i64[F_VALUE] = value
        bufs.i64[F_DIM] = dim
        bufs.i64[F_SIZE] = size
    atomic_store(i64, bufs, F_LOCK, 0)
    return 1


def _make_unfulfilled(requirements: Sequence[Requirement]) -> NativeFunction:
    """The function from a code to the text of its requirement; from other codes to null."""
    if not requirements:

        @native("ptr(i64)", name="unfulfilled_none", inline=True)
        def none(code):
            return None

        return none
    CODE, TEXT = requirements[0]
    others = _make_unfulfilled(requirements[1:])

    @native("ptr(i64)", name=f"unfulfilled_{CODE}", inline=True)
    def found(code):
        if code == CODE:
            return TEXT
        return others(code)

    return found


unfulfilled = _make_unfulfilled(list(REQUIREMENTS.values()))


@native("ptr(ptr, i32)")
def rl_raise(bufs, status):
    """Set the exception for the failure noted before `bufs`; returns null."""
    code, value = bufs.i64[F_CODE], bufs.i64[F_VALUE]
    dim, size = bufs.i64[F_DIM], bufs.i64[F_SIZE]
    if value < MOVED:
        value += BELOW_ALL
    if code == 0:
        return PyErr_Format(PyExc_IndexError.ptr[0], OUT_OF_BOUNDS, value, dim, size)
    if code == 1:
        return PyErr_Format(PyExc_RuntimeError.ptr[0], OUT_OF_BOUNDS, value, dim, size)
    if code == 2:
        return PyErr_Format(PyExc_IndexError.ptr[0], OUT_OF_RANGE)
    if code == 3:
        return PyErr_Format(PyExc_RuntimeError.ptr[0], BY_ZERO)
    if code == 4:
        return PyErr_NoMemory()
    if code == OF_PYTHON:
        return None
    text = unfulfilled(code)
    if text is not None:
        return PyErr_Format(PyExc_RuntimeError.ptr[0], "%s", text)
    return PyErr_Format(PyExc_RuntimeError.ptr[0], UNKNOWN_FAILURE, status, code, value)


# ***** the stub of all kernels *****


@native("i32(ptr, ptr, ptr)")
def launch_unlocked(fn, bufs, ints):
    """Run a kernel while other Python threads run."""
    state = PyEval_SaveThread()
    status = rl_parallel_for(fn, bufs, ints, ints[LAUNCH.pieces])
    PyEval_RestoreThread(state)
    return status


@native("i32(ptr, ptr, ptr)")
def launch(fn, bufs, ints):
    """Run a kernel as `ints` says: how many pieces, with or without the GIL.  Its status; `rl_raise` sets the exception
    for a failure.
    """
    bufs.i64[F_LOCK] = 0
    bufs.i64[F_CODE] = -1
    if ints[LAUNCH.flags] & MAY_UNLOCK != 0:
        return launch_unlocked(fn, bufs, ints)
    if ints[LAUNCH.pieces] == 1:
        return call_ptr("i32(ptr, ptr, i64)", fn, bufs, ints, 0)
    return rl_parallel_for(fn, bufs, ints, ints[LAUNCH.pieces])


@native("ptr(ptr, i64)")
def results(made, count):
    """Result of a kernel callable: None, a Storage, or a tuple of them."""
    if count == 1:
        return made.ptr[0]
    if count == 0:
        Py_IncRef(Py_None)
        return Py_None
    out = PyTuple_New(count)
    for k in range(count):
        if out is not None:
            PyTuple_SetItem(out, k, made.ptr[k])
        else:
            Py_DecRef(made.ptr[k])
    return out


@native("ptr(ptr, ptr, ptr, i64, ptr, ptr)", inline=True)
def call_kernel(self, ints, args, count, bufs, made):
    """Allocate the outputs, convert the arguments, run, and return the results."""
    outputs = ints[LAUNCH.fresh]
    bad = False
    n = 0
    while n < outputs and not bad:
        storage = storage_new(block_alloc, block_free, ints.i64[FRESH_SIZES + n])
        if storage is None:
            bad = True
        else:
            made.ptr[n] = storage
            bufs.ptr[n] = storage.ptr[S_PTR]
            n += 1
    k = 0
    while k < count and not bad:
        bad = word(args.ptr[k], bufs + 8 * (outputs + k)) != 0
        k += 1
    if not bad:
        status = launch(self.ptr[H_FN], bufs, ints)
        if unlikely(status != 0):
            rl_raise(bufs, status)
            bad = True
    if unlikely(bad):
        for j in range(n):
            Py_DecRef(made.ptr[j])
        return None
    return results(made, outputs)


@native("ptr(ptr, ptr, i64)")
def kernel_stub(self, args, nargs):
    """`K(ints, *words)`: the METH_FASTCALL function behind every kernel."""
    header = stack(512)
    made = stack(64)
    wanted = self.i64[H_WORDS]
    if nargs < 1 or (wanted >= 0 and nargs != wanted):
        rl_count_error(self, nargs, max(wanted, i64(1)))
        return None
    if word(args.ptr[0], made) != 0:
        return None
    ints = made.ptr[0]
    if ints is None:
        return PyErr_Format(
            PyExc_TypeError.ptr[0], "the first argument of a kernel is the address of its constants, not 0"
        )
    outputs = ints[LAUNCH.fresh]
    if unlikely(outputs < 0 or outputs > 5):
        return PyErr_Format(PyExc_TypeError.ptr[0], "a kernel cannot allocate %lld outputs (at most 5)", outputs)
    count = nargs - 1
    if count + outputs <= STACK_WORDS:
        return call_kernel(self, ints, args + 8, count, header + 8 * HEADER, made)
    memory = malloc(8 * (HEADER + count + outputs))
    if memory is None:
        return PyErr_NoMemory()
    out = call_kernel(self, ints, args + 8, count, memory + 8 * HEADER, made)
    free(memory)
    return out
