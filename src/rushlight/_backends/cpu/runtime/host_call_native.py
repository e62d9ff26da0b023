"""A kernel that calls a Python function: a program runs it between its own kernels, with or without the interpreter lock."""

from __future__ import annotations

from rushlight._backends.cpu.runtime.stub_native import OF_PYTHON, rl_fail
from rushlight._host.python_native import (
    Py_DecRef,
    PyGILState_Ensure,
    PyGILState_Release,
    PyLong_FromLongLong,
    PyObject_Vectorcall,
)
from rushlight._native import i64, native, stack

__all__ = ["FUNCTION", "call_host"]

FUNCTION = 8  # the word among the constants that is the function's address


@native("i32(ptr, ptr, i64)")
def call_host(bufs, ints, piece):
    """`function(address of the words)`; what it raises is the failure of the kernel."""
    state = PyGILState_Ensure()
    args = stack(8)
    args.ptr[0] = PyLong_FromLongLong(i64(bufs))
    found = PyObject_Vectorcall(ints.ptr[FUNCTION], args, 1, None)
    Py_DecRef(args.ptr[0])
    if found is not None:
        Py_DecRef(found)
    PyGILState_Release(state)
    if found is None:
        return rl_fail(bufs, piece, OF_PYTHON, 0, 0, 0)
    return 0
