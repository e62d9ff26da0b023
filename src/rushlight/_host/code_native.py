"""The setter of a function's `__code__`, with word of it to whoever asked (see `function_codes`)."""

from __future__ import annotations

from rushlight._host.python_native import Py_DecRef, PyErr_Clear, PyObject_Vectorcall
from rushlight._native import call_ptr, native, stack, static, u64

__all__ = ["code_assigned", "tell_of_codes"]

_words = static("rl_code_words", 16)  # CPython's own setter, and what is called with a function that has other code


@native("i32(ptr, ptr, ptr)")
def code_assigned(function, value, closure):
    """`function.__code__ = value`."""
    failed = call_ptr("i32(ptr, ptr, ptr)", _words.ptr[0], function, value, closure)
    if failed == 0:
        given = stack(8)
        given.ptr[0] = function
        found = PyObject_Vectorcall(_words.ptr[1], given, u64(1), None)
        if found is None:
            PyErr_Clear()
        else:
            Py_DecRef(found)
    return failed


@native("void(ptr, ptr)")
def tell_of_codes(setter, told):
    """Note CPython's setter, and what is called."""
    _words.ptr[0] = setter
    _words.ptr[1] = told
