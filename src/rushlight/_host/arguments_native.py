"""Python's arguments as words, and callables over native code, in the native language."""

from __future__ import annotations

from rushlight._host.dispatch_words import HANDLE_TYPE, HOST, STORAGE_TYPE
from rushlight._host.python_native import (
    Py_DecRef,
    Py_IncRef,
    Py_None,
    PyBytes_AsString,
    PyCFunction_NewEx,
    PyErr_Clear,
    PyErr_ExceptionMatches,
    PyErr_Format,
    PyErr_Occurred,
    PyExc_OverflowError,
    PyExc_TypeError,
    PyFloat_AsDouble,
    PyFloat_Type,
    PyLong_AsLongLong,
    PyLong_AsUnsignedLongLong,
    PyLong_Type,
    PyNumber_Index,
    PyObject_Free,
    PyObject_New,
    PyType_IsSubtype,
)
from rushlight._host.storage_native import S_PTR
from rushlight._native import i32, i64, native, select, u64
from rushlight._native.objects import DIGIT_BITS, NEW_INTS

# words of a handle: the `__self__` of the package's native callables
H_FN, H_KEEPALIVE, H_NAME, H_WORDS, H_METHOD = 2, 3, 4, 5, 6
HANDLE_BYTES = 80
METH_FASTCALL = 0x80


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
    """`word` for other objects than small ints, floats and storages."""
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
    if kind == HOST.ptr[STORAGE_TYPE]:
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
    if obj.ptr[1] == HOST.ptr[STORAGE_TYPE]:
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
    """make_callable(address, name: bytes, keepalive, words, stub) -> builtin

    Without a `stub` (0) the address is a METH_FASTCALL function; otherwise the stub is one, which finds the address in
    its handle.  `words` is the number of arguments that a stub checks for (-1: any).
    """
    address = PyLong_AsLongLong(args.ptr[0])
    words = PyLong_AsLongLong(args.ptr[3])
    stub = PyLong_AsLongLong(args.ptr[4])
    name = PyBytes_AsString(args.ptr[1])
    if PyErr_Occurred() is not None:
        return None
    handle = PyObject_New(HOST.ptr[HANDLE_TYPE])
    if handle is None:
        return None
    Py_IncRef(args.ptr[1])
    Py_IncRef(args.ptr[2])
    handle.i64[H_FN] = address
    handle.ptr[H_NAME] = args.ptr[1]
    handle.ptr[H_KEEPALIVE] = args.ptr[2]
    handle.i64[H_WORDS] = words
    handle.ptr[H_METHOD] = name
    handle.i64[H_METHOD + 1] = stub if stub != 0 else address
    handle.i64[H_METHOD + 2] = METH_FASTCALL
    handle.ptr[H_METHOD + 3] = None
    out = PyCFunction_NewEx(handle + 8 * H_METHOD, handle, None)
    Py_DecRef(handle)
    return out
