"""Between Python and kernels, in the native language: argument words, the one stub that all kernels share, failures.

A kernel is `i32 kernel(ptr bufs, ptr ints, i64 piece)`.  The eight words before `bufs` belong to the call: a kernel
that finds a bad index returns `rl_fail(bufs, piece, code, value, dim, size)`, which notes it there; the failure of the
lowest piece is kept, and becomes a Python exception once all threads are done.
"""

from __future__ import annotations

from rushlight._host.pool_native import (
    HANDLE_TYPE,
    S_PTR,
    STATE,
    STORAGE_TYPE,
    Py_DecRef,
    Py_IncRef,
    Py_None,
    PyErr_Format,
    PyErr_Occurred,
    PyExc_TypeError,
    PyLong_AsLongLong,
    PyLong_AsUnsignedLongLong,
    PyObject_Free,
    PyObject_New,
    free,
    storage_new,
)  # fmt: skip
from rushlight._host.threads_native import rl_parallel_for
from rushlight._native import (
    atomic_cas,
    atomic_store,
    call_ptr,
    extern,
    extern_data,
    i32,
    i64,
    native,
    pause,
    select,
    stack,
    u64,
    unlikely,
)  # fmt: skip
from rushlight._native.objects import DIGIT_BITS, NEW_INTS
from rushlight._types.layout import BELOW_ALL

__all__ = [
    "HANDLE_BYTES", "handle_dealloc", "kernel_stub", "py_make_callable", "rl_arg_f64", "rl_arg_int", "rl_arg_ptr",
    "rl_count_error", "rl_fail", "rl_raise",
]  # fmt: skip

# words of a handle: what a callable of ours has as its __self__
H_FN, H_KEEPALIVE, H_NAME, H_WORDS, H_METHOD = 2, 3, 4, 5, 6
HANDLE_BYTES = 80
METH_FASTCALL = 0x80

# words before bufs
HEADER = 8
MOVED = -(BELOW_ALL >> 1)  # an index below this was moved out of range
F_LOCK, F_CODE, F_PIECE, F_VALUE, F_DIM, F_SIZE = -1, -2, -3, -4, -5, -6
STACK_WORDS = 56  # calls with more words than this use malloc

malloc = extern("malloc", "ptr(i64)")
PyErr_NoMemory = extern("PyErr_NoMemory", "ptr()")
PyErr_ExceptionMatches = extern("PyErr_ExceptionMatches", "i32(ptr)")
PyErr_Clear = extern("PyErr_Clear", "void()")
PyFloat_AsDouble = extern("PyFloat_AsDouble", "f64(ptr)")
PyNumber_Index = extern("PyNumber_Index", "ptr(ptr)")
PyType_IsSubtype = extern("PyType_IsSubtype", "i32(ptr, ptr)")
PyTuple_New = extern("PyTuple_New", "ptr(i64)")
PyTuple_SetItem = extern("PyTuple_SetItem", "i32(ptr, i64, ptr)")
PyEval_SaveThread = extern("PyEval_SaveThread", "ptr()")
PyEval_RestoreThread = extern("PyEval_RestoreThread", "void(ptr)")
PyCFunction_NewEx = extern("PyCFunction_NewEx", "ptr(ptr, ptr, ptr)")
PyBytes_AsString = extern("PyBytes_AsString", "ptr(ptr)")
PyLong_Type = extern_data("PyLong_Type")
PyFloat_Type = extern_data("PyFloat_Type")
PyExc_IndexError = extern_data("PyExc_IndexError")
PyExc_RuntimeError = extern_data("PyExc_RuntimeError")
PyExc_OverflowError = extern_data("PyExc_OverflowError")


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


@native("ptr(ptr, i32)")
def rl_raise(bufs, status):
    """Set the exception for the failure noted before `bufs`; returns null."""
    code, value = bufs.i64[F_CODE], bufs.i64[F_VALUE]
    dim, size = bufs.i64[F_DIM], bufs.i64[F_SIZE]
    if value < MOVED:
        value += BELOW_ALL
    if code == 0:
        return PyErr_Format(
            PyExc_IndexError.ptr[0], "index %lld is out of bounds for dimension %lld with size %lld", value, dim, size
        )
    if code == 1:
        return PyErr_Format(
            PyExc_RuntimeError.ptr[0], "index %lld is out of bounds for dimension %lld with size %lld", value, dim, size
        )
    if code == 2:
        return PyErr_Format(PyExc_IndexError.ptr[0], "index out of range in self")
    if code == 3:
        return PyErr_Format(PyExc_RuntimeError.ptr[0], "ZeroDivisionError")
    if code == 4:
        return PyErr_NoMemory()
    if code == 5:
        return PyErr_Format(PyExc_RuntimeError.ptr[0], "all elements of input should be between 0 and 1")
    if code == 7:
        return PyErr_Format(PyExc_RuntimeError.ptr[0], "all elements of target should be between 0 and 1")
    return PyErr_Format(
        PyExc_RuntimeError.ptr[0], "a kernel failed with status %d, code %lld, value %lld", status, code, value
    )


# ***** Python objects to words *****


@native("i32(ptr, ptr)")
def int_word(obj, out):
    """The word of an int, or of what has `__index__`; up to 64 bits, signed or not."""
    number = PyNumber_Index(obj)
    if number is None:
        return 1
    value = PyLong_AsLongLong(number)
    if value == -1 and PyErr_Occurred() is not None:
        PyErr_Clear()
        value = i64(PyLong_AsUnsignedLongLong(number))
    Py_DecRef(number)
    out.i64[0] = value
    return i32(value == -1 and PyErr_Occurred() is not None)


@native("i32(ptr, ptr)")
def word_slow(obj, out):
    """`word` for what is neither an exact small int nor a float nor a Storage."""
    if obj == Py_None:
        out.i64[0] = 0
        return 0
    kind = obj.ptr[1]
    if PyType_IsSubtype(kind, PyFloat_Type) == 0:
        if int_word(obj, out) == 0:
            return 0
        if PyErr_ExceptionMatches(PyExc_TypeError.ptr[0]) == 0:
            return 1  # an int, but too large
        PyErr_Clear()
    out.f64[0] = PyFloat_AsDouble(obj)
    if out.f64[0] == -1.0 and PyErr_Occurred() is not None:
        PyErr_Format(
            PyExc_TypeError.ptr[0],
            "an argument of a kernel must be an int, a float, a Storage or None, not %.200s",
            kind.ptr[3],
        )
        return 1
    return 0


@native("i32(ptr, ptr)", inline=True)
def word(obj, out):
    """The 64-bit word for a Python argument; 1 with an exception set when there is none."""
    kind = obj.ptr[1]
    if kind == PyLong_Type:
        # addresses have two digits, sizes one or two; what is larger or negative goes the slow way
        digits = obj.u64[2]
        if NEW_INTS:
            digits = select(digits & 3 == 0, digits >> 3, select(digits & 3 == 1, u64(0), u64(9)))
        if digits == 2:
            out.u64[0] = u64(obj.u32[6]) | (u64(obj.u32[7]) << DIGIT_BITS)
            return 0
        if digits == 1:
            out.u64[0] = u64(obj.u32[6])
            return 0
        if digits == 0:
            out.u64[0] = 0
            return 0
        return word_slow(obj, out)
    if kind == STATE.ptr[STORAGE_TYPE]:
        out.ptr[0] = obj.ptr[S_PTR]
        return 0
    if kind == PyFloat_Type:
        out.f64[0] = obj.f64[2]
        return 0
    return word_slow(obj, out)


@native("i32(ptr, ptr, i64, i64)")
def rl_arg_int(obj, out, width, signed):
    """An integer argument of `width` bits; 1 with an exception set when it does not fit."""
    status = word(obj, out) if obj.ptr[1] == PyLong_Type else int_word(obj, out)
    if status != 0:
        return 1
    value = out.i64[0]
    if width < 64:
        low = i64(0) if signed == 0 else -(1 << (width - 1))
        if value < low or value - low >= 1 << width:
            PyErr_Format(PyExc_OverflowError.ptr[0], "%lld does not fit in %lld bits", value, width)
            return 1
    return 0


@native("i32(ptr, ptr)")
def rl_arg_ptr(obj, out):
    """A pointer argument: an address, a Storage or None."""
    if obj == Py_None:
        out.ptr[0] = None
        return 0
    if obj.ptr[1] == STATE.ptr[STORAGE_TYPE]:
        out.ptr[0] = obj.ptr[S_PTR]
        return 0
    return rl_arg_int(obj, out, 64, 0)


@native("i32(ptr, ptr)")
def rl_arg_f64(obj, out):
    """A float argument."""
    value = PyFloat_AsDouble(obj)
    out.f64[0] = value
    if value == -1.0 and PyErr_Occurred() is not None:
        return 1
    return 0


@native("void(ptr, i64, i64)")
def rl_count_error(self, given, wanted):
    """TypeError for a wrong number of arguments."""
    name = PyBytes_AsString(self.ptr[H_NAME])
    PyErr_Format(PyExc_TypeError.ptr[0], "%s takes %lld arguments, %lld given", name, wanted, given)


# ***** the stub of all kernels *****


@native("i32(ptr, ptr, ptr)", inline=True)
def run(fn, bufs, ints):
    """Run a kernel as `ints` says: how many pieces, with or without the GIL."""
    pieces = ints.i64[0]
    if ints.i64[1] & 1 == 0:
        if pieces == 1:
            return call_ptr("i32(ptr, ptr, i64)", fn, bufs, ints, 0)
        return rl_parallel_for(fn, bufs, ints, pieces)
    state = PyEval_SaveThread()
    status = rl_parallel_for(fn, bufs, ints, pieces)
    PyEval_RestoreThread(state)
    return status


@native("ptr(ptr, i64)")
def results(made, count):
    """What a kernel callable returns: None, a Storage, or a tuple of them."""
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
    outputs = ints.i64[2]
    bufs.i64[F_LOCK] = 0
    bufs.i64[F_CODE] = -1
    bad = False
    n = 0
    while n < outputs and not bad:
        storage = storage_new(ints.i64[3 + n])
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
        status = run(self.ptr[H_FN], bufs, ints)
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
    outputs = ints.i64[2]
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


# ***** callables *****


@native("void(ptr)")
def handle_dealloc(self):
    """tp_dealloc of a handle: the machine code may be unloaded now."""
    kind = self.ptr[1]
    keepalive, name = self.ptr[H_KEEPALIVE], self.ptr[H_NAME]
    PyObject_Free(self)
    Py_DecRef(kind)
    Py_DecRef(keepalive)
    Py_DecRef(name)


@native("ptr(ptr, ptr, i64)")
def py_make_callable(self, args, nargs):
    """make_callable(address, name: bytes, keepalive, words, is_method) -> builtin

    With `is_method` the address is a METH_FASTCALL function, otherwise a kernel that gets the common stub; `words` is
    the number of arguments that are checked for (-1: any).
    """
    address = PyLong_AsLongLong(args.ptr[0])
    words = PyLong_AsLongLong(args.ptr[3])
    is_method = PyLong_AsLongLong(args.ptr[4])
    name = PyBytes_AsString(args.ptr[1])
    if PyErr_Occurred() is not None:
        return None
    handle = PyObject_New(STATE.ptr[HANDLE_TYPE])
    if handle is None:
        return None
    Py_IncRef(args.ptr[1])
    Py_IncRef(args.ptr[2])
    handle.i64[H_FN] = address
    handle.ptr[H_NAME] = args.ptr[1]
    handle.ptr[H_KEEPALIVE] = args.ptr[2]
    handle.i64[H_WORDS] = words
    handle.ptr[H_METHOD] = name
    if is_method != 0:
        handle.i64[H_METHOD + 1] = address
    else:
        handle.ptr[H_METHOD + 1] = kernel_stub
    handle.i64[H_METHOD + 2] = METH_FASTCALL
    handle.ptr[H_METHOD + 3] = None
    out = PyCFunction_NewEx(handle + 8 * H_METHOD, handle, None)
    Py_DecRef(handle)
    return out
