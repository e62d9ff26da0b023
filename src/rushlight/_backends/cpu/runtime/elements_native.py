"""Elements in the CPU's memory as Python's numbers, and the other way, in the native language."""

from __future__ import annotations

from typing import Any

from rushlight._backends.cpu.runtime.pool_native import block_alloc, block_free
from rushlight._host.call_words_native import sequence_size
from rushlight._host.numbers_native import BOOLS, FLOATS, MOST_DIMS, number_kind
from rushlight._host.python_native import (
    Py_DecRef,
    Py_False,
    Py_True,
    PyErr_Format,
    PyExc_ValueError,
    PyFloat_FromDouble,
    PyList_New,
    PyList_SetItem,
    PyLong_AsLongLong,
    PyLong_FromLongLong,
    PyLong_FromUnsignedLongLong,
    PyTuple_New,
    PyTuple_SetItem,
    kept,
    sequence_items,
    small_int,
)
from rushlight._host.storage_native import S_PTR, storage_new
from rushlight._host.tensor_native import new_tensor
from rushlight._native import Record, f32, f64, i64, listed, native, ptr, select, stack, u8

COORDINATES = 32  # dims of a mask, at most
NESTED = Record(
    "nested lists",
    ("ndim", i64, "how many levels of lists there are"),
    ("code", i64, "the dtype, as in NUMBER_CODES"),
    ("dims", listed(i64), "for each level how many items a list has, and how many bytes lie between them"),
)

# ***** elements as Python's numbers *****

# Dtypes that are read natively
NUMBER_CODES = {"float32": 0, "float64": 1, "int64": 2, "int32": 3, "int16": 4, "int8": 5, "uint8": 6, "bool": 7}


@native("ptr(ptr, i64)")
def number_at(p, code):
    """The element at an address as a Python number; `code` is one of `NUMBER_CODES`."""
    if code == 0:
        return PyFloat_FromDouble(f64(p.f32[0]))
    if code == 1:
        return PyFloat_FromDouble(p.f64[0])
    if code == 2:
        return PyLong_FromLongLong(p.i64[0])
    if code == 3:
        return PyLong_FromLongLong(i64(p.i32[0]))
    if code == 4:
        return PyLong_FromLongLong(i64(p.i16[0]))
    if code == 5:
        return PyLong_FromLongLong(i64(p.i8[0]))
    if code == 6:
        return PyLong_FromLongLong(i64(p.u8[0]))
    if p.u8[0] != 0:
        return kept(Py_True)
    return kept(Py_False)


def _reader(code: int, name: str) -> Any:
    @native("ptr(ptr)", name=f"read_{name}")
    def read(p):
        return number_at(p, code)

    return read


# The element at an address as a Python number
READERS = {name: _reader(code, name) for name, code in NUMBER_CODES.items()}


@native("ptr(ptr, ptr, i64)")
def nested(p, layout, dim):
    """Elements as nested lists; `layout` is a record NESTED."""
    n, step = layout[NESTED.dims].i64[2 * dim], layout[NESTED.dims].i64[2 * dim + 1]
    out = PyList_New(n)
    for k in range(n):
        if out is not None:
            item: ptr = None
            if dim + 1 == layout[NESTED.ndim]:
                item = number_at(p + k * step, layout[NESTED.code])
            else:
                item = nested(p + k * step, layout, dim + 1)
            if item is None:
                Py_DecRef(out)
                return None
            PyList_SetItem(out, k, item)
    return out


@native("ptr(ptr, ptr, i64)")
def py_nested(unused, args, count):
    """nested(address, address of the layout) -> nested lists of Python numbers"""
    return nested(ptr(PyLong_AsLongLong(args.ptr[0])), ptr(PyLong_AsLongLong(args.ptr[1])), 0)


@native("ptr(ptr, ptr, i64)")
def py_coordinates(unused, args, count):
    """coordinates(address, sizes) -> (count, storage) of the bytes that are set in a dense mask: all first coordinates,
    all second ones, ...
    """
    mask = ptr(PyLong_AsLongLong(args.ptr[0]))
    sizes, ndim = sequence_items(args.ptr[1]), sequence_size(args.ptr[1])
    n: i64 = 1
    for d in range(ndim):
        n = n * PyLong_AsLongLong(sizes.ptr[d])
    found: i64 = 0
    for k in range(n):
        found += i64(mask.u8[k] != 0)
    storage = storage_new(block_alloc, block_free, 8 * ndim * found)
    if storage is None:
        return None
    out = PyTuple_New(2)
    if out is None:
        Py_DecRef(storage)
        return None
    at = storage.ptr[S_PTR]
    place = stack(8 * COORDINATES)
    for d in range(ndim):
        place.i64[d] = 0
    inner = PyLong_AsLongLong(sizes.ptr[ndim - 1])
    done: i64 = 0
    k: i64 = 0
    while done < found:  # a row after the other
        for j in range(inner):
            if mask.u8[k + j] != 0:
                place.i64[ndim - 1] = j
                for d in range(ndim):
                    at.i64[d * found + done] = place.i64[d]
                done += 1
        k += inner
        d: i64 = ndim - 2
        while d >= 0:
            place.i64[d] = place.i64[d] + 1
            if place.i64[d] < PyLong_AsLongLong(sizes.ptr[d]):
                break
            place.i64[d] = 0
            d -= 1
    PyTuple_SetItem(out, 0, PyLong_FromLongLong(found))
    PyTuple_SetItem(out, 1, storage)
    return out


# ***** Python's numbers as elements *****


@native("i64(ptr, ptr, i64)")
def put_numbers(obj, to, deep):
    """Write the numbers in nested sequences.  `to`: where, how many there is room for, their kind, the code of the
    elements.  0 where they differ.
    """
    size = sequence_size(obj)
    if size >= 0:
        if deep > MOST_DIMS:
            return 0
        items = sequence_items(obj)
        for k in range(size):
            if put_numbers(items.ptr[k], to, deep + 1) == 0:
                return 0
        return 1
    kind, code, p = to.i64[2], to.i64[3], to.ptr[0]
    if to.i64[1] == 0 or number_kind(obj) != kind:
        return 0
    to.i64[1] -= 1
    if kind == BOOLS:
        p.u8[0] = select(obj == Py_True, u8(1), u8(0))
        to.ptr[0] = p + 1
    elif code == 2:
        p.i64[0] = small_int(obj)
        to.ptr[0] = p + 8
    else:
        value = obj.f64[2] if kind == FLOATS else f64(small_int(obj))
        if code == 0:
            p.f32[0] = f32(value)
            to.ptr[0] = p + 4
        else:
            p.f64[0] = value
            to.ptr[0] = p + 8
    return 1


@native("ptr(ptr, ptr, i64)")
def py_of_numbers(unused, args, count):
    """of_numbers(data, spec, nbytes, numel, kind, code) -> a tensor of what was measured; `code` is one of
    `NUMBER_CODES`
    """
    storage = storage_new(block_alloc, block_free, PyLong_AsLongLong(args.ptr[2]))
    if storage is None:
        return None
    to = stack(32)
    to.ptr[0] = storage.ptr[S_PTR]
    for k in range(3):
        to.i64[1 + k] = PyLong_AsLongLong(args.ptr[3 + k])
    if put_numbers(args.ptr[0], to, 0) == 0 or to.i64[1] != 0:
        Py_DecRef(storage)
        return PyErr_Format(PyExc_ValueError.ptr[0], "the sequence changed while it was read")
    return new_tensor(storage, args.ptr[1], PyLong_FromUnsignedLongLong(storage.u64[S_PTR]))
