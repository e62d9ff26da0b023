"""Sequences of Python's numbers: of which kind they are, and how they are nested, in the native language."""

from __future__ import annotations

from rushlight._host.call_words_native import sequence_size
from rushlight._host.python_native import (
    Py_None,
    PyBool_Type,
    PyFloat_Type,
    PyLong_FromLongLong,
    PyLong_Type,
    PyTuple_New,
    PyTuple_SetItem,
    kept,
    sequence_items,
    small_int,
)
from rushlight._native import i64, native, stack

FLOATS, INTS, BOOLS = 0, 1, 2  # what a sequence holds
MOST_DIMS = 8  # dims that are read here


@native("i64(ptr)", inline=True)
def number_kind(obj):
    """FLOATS, INTS or BOOLS; -1 for what is none of them, or does not fit 64 bits."""
    kind = obj.ptr[1]
    if kind == PyFloat_Type:
        return FLOATS
    if kind == PyBool_Type:
        return BOOLS
    if kind == PyLong_Type and small_int(obj) != -1 << 63:
        return INTS
    return -1


@native("i64(ptr, ptr, i64, i64, i64)")
def has_dims(obj, dims, n, dim, kind):
    """Whether nested sequences have these sizes, from one dim on, and hold numbers of one kind."""
    if dim == n:
        return i64(number_kind(obj) == kind)
    size = sequence_size(obj)
    if size != dims.i64[dim]:
        return 0
    items = sequence_items(obj)
    for k in range(size):
        if has_dims(items.ptr[k], dims, n, dim + 1, kind) == 0:
            return 0
    return 1


@native("ptr(ptr, ptr, i64)")
def py_measure(unused, args, count):
    """measure(data) -> (kind of the numbers, *sizes) of a number or of nested lists and tuples of numbers of one kind;
    None for all else
    """
    data = args.ptr[0]
    dims = stack(8 * MOST_DIMS)
    n: i64 = 0
    first = data
    size = sequence_size(first)
    while size > 0 and n < MOST_DIMS:
        dims.i64[n] = size
        n += 1
        first = sequence_items(first).ptr[0]
        size = sequence_size(first)
    kind: i64 = FLOATS
    if size == 0 and n < MOST_DIMS:
        dims.i64[n] = 0
        n += 1
    else:
        kind = number_kind(first)
    if kind < 0 or has_dims(data, dims, n, 0, kind) == 0:
        return kept(Py_None)
    out = PyTuple_New(n + 1)
    if out is not None:
        PyTuple_SetItem(out, 0, PyLong_FromLongLong(kind))
        for k in range(n):
            PyTuple_SetItem(out, k + 1, PyLong_FromLongLong(dims.i64[k]))
    return out
