"""The `Storage` type in the native language: memory of some device with an owner.  Everything here runs with the GIL
held.

A storage never touches its memory.  It comes from a device's `allocate`, and goes back to the `release` of that device,
which the storage keeps the address of; memory of others is released with the reference to its owner.
"""

from __future__ import annotations

from rushlight._host.dispatch_words import BIRTH, HOST, STORAGE_TYPE
from rushlight._host.python_native import (
    Py_DecRef,
    Py_IncRef,
    PyBuffer_FillInfo,
    PyErr_Format,
    PyErr_Occurred,
    PyExc_TypeError,
    PyExc_ValueError,
    PyLong_AsLongLong,
    PyLong_AsUnsignedLongLong,
    PyObject_ClearWeakRefs,
    PyObject_Free,
    PyObject_New,
)
from rushlight._native import call_ptr, native, ptr, u64

# words of a Storage object, after its reference count and type
S_PTR, S_NBYTES, S_VERSION, S_OWNER, S_RELEASE, S_WEAK, S_CHANGED, S_BORN, S_LENT, S_WINDOWS, S_OPEN = range(2, 13)
STORAGE_BYTES = 104


@native("ptr(ptr, i64, ptr, ptr)")
def storage_wrap(p, nbytes, owner, release):
    """A new Storage around memory; `owner` is a new reference or null, `release` the function that takes the memory
    back, or null.
    """
    self = PyObject_New(HOST.ptr[STORAGE_TYPE])
    if self is not None:
        self.ptr[S_PTR] = p
        self.i64[S_NBYTES] = nbytes
        self.i64[S_VERSION] = 0
        self.ptr[S_OWNER] = owner
        self.ptr[S_RELEASE] = release
        self.ptr[S_WEAK] = None
        self.ptr[S_CHANGED] = None
        self.i64[S_BORN] = HOST.i64[BIRTH]
        self.i64[S_LENT] = 0
        self.i64[S_WINDOWS] = 0
        self.i64[S_OPEN] = 0
        if owner is not None:
            if owner.ptr[1] == HOST.ptr[STORAGE_TYPE]:  # the same memory once more
                self.i64[S_BORN] = owner.i64[S_BORN]
                owner.i64[S_WINDOWS] += 1
                owner.i64[S_OPEN] += 1
    return self


@native("ptr(ptr, ptr, i64)")
def storage_new(allocate, release, nbytes):
    """A new Storage of `nbytes` bytes from a device's `allocate` (a null pointer for none); null with an exception set."""
    p: ptr = None
    if nbytes > 0:
        p = call_ptr("ptr(i64)", allocate, nbytes)
        if p is None:
            return None
    elif nbytes < 0:
        PyErr_Format(PyExc_ValueError.ptr[0], "cannot allocate a negative number of bytes (%lld)", nbytes)
        return None
    else:
        release = None
    self = storage_wrap(p, nbytes, None, release)
    if self is None and nbytes > 0:
        call_ptr("void(ptr, i64)", release, p, nbytes)
    return self


@native("void(ptr)")
def storage_dealloc(self):
    """tp_dealloc."""
    kind = self.ptr[1]
    if self.ptr[S_WEAK] is not None:
        PyObject_ClearWeakRefs(self)
    p = self.ptr[S_PTR]
    owner, changed = self.ptr[S_OWNER], self.ptr[S_CHANGED]
    if self.ptr[S_RELEASE] is not None:
        call_ptr("void(ptr, i64)", self.ptr[S_RELEASE], p, self.i64[S_NBYTES])
    PyObject_Free(self)
    Py_DecRef(kind)
    if changed is not None:
        Py_DecRef(changed)
    if owner is not None:
        if owner.ptr[1] == HOST.ptr[STORAGE_TYPE]:
            owner.i64[S_OPEN] -= 1
        Py_DecRef(owner)


@native("i32(ptr, ptr, i32)")
def storage_buffer(self, view, flags):
    """bf_getbuffer: the bytes, writable; the view keeps the Storage alive."""
    return PyBuffer_FillInfo(view, self, self.ptr[S_PTR], self.i64[S_NBYTES], 0, flags)


@native("ptr(ptr, ptr, i64)")
def py_from_owner(self, args, nargs):
    """from_owner(address, nbytes, owner) -> Storage"""
    if nargs != 3:
        return PyErr_Format(
            PyExc_TypeError.ptr[0], "from_owner takes 3 arguments (address, nbytes, owner), %lld given", nargs
        )
    address = PyLong_AsUnsignedLongLong(args.ptr[0])
    if address == u64(-1) and PyErr_Occurred() is not None:
        return None
    nbytes = PyLong_AsLongLong(args.ptr[1])
    if nbytes == -1 and PyErr_Occurred() is not None:
        return None
    if nbytes < 0 or (address == 0 and nbytes > 0):
        return PyErr_Format(PyExc_ValueError.ptr[0], "no memory of %lld bytes at address %llu", nbytes, address)
    owner = args.ptr[2]
    Py_IncRef(owner)
    out = storage_wrap(ptr(address), nbytes, owner, None)
    if out is None:
        Py_DecRef(owner)
    return out
