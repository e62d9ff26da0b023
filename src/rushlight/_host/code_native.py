"""The setter of a function's code and defaults, with word of it to whoever asked (see `function_codes`)."""

from __future__ import annotations

from rushlight._host.python_native import Py_DecRef, PyErr_Clear, PyObject_Vectorcall
from rushlight._native import call_ptr, native, stack, static, u64

__all__ = ["function_changed", "tell_of_functions"]

_words = static("rl_function_words", 8)  # what is called with a function that was changed


@native("i32(ptr, ptr, ptr)")
def function_changed(function, value, setter):
    """`function.__code__ = value`, or another attribute: `setter` is CPython's own."""
    failed = call_ptr("i32(ptr, ptr, ptr)", setter, function, value, None)
    if failed == 0:
        given = stack(8)
        given.ptr[0] = function
        found = PyObject_Vectorcall(_words.ptr[0], given, u64(1), None)
        if found is None:
            PyErr_Clear()
        else:
            Py_DecRef(found)
    return failed


@native("void(ptr)")
def tell_of_functions(told):
    """Note what is called."""
    _words.ptr[0] = told
