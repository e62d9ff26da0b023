"""Memory of any object with Python's buffer protocol, without NumPy."""

from __future__ import annotations

import ctypes
from math import prod

from rushlight_loader.index import DTYPES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["address_of", "filled_view", "shape_of"]

# Formats of memoryviews; Python has none for complex numbers (NumPy says "Zf") and bfloat16, which are bytes.
_FORMATS = {
    "bool": "?", "uint8": "B", "int8": "b", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I", "int64": "q", "uint64": "Q",
    "float16": "e", "float32": "f", "float64": "d",
}  # fmt: skip
_SAME = {"l": "q", "L": "Q"}  # where a C long has 8 bytes
_OTHERS = {"complex64": ("Zf",), "complex128": ("Zd",), "bfloat16": ("H",)}


class _Buffer(ctypes.Structure):
    """Py_buffer of Python's stable interface."""

    _fields_ = (
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.c_void_p),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_void_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    )


_get = ctypes.pythonapi.PyObject_GetBuffer
_get.restype, _get.argtypes = ctypes.c_int, (ctypes.py_object, ctypes.POINTER(_Buffer), ctypes.c_int)
_release = ctypes.pythonapi.PyBuffer_Release
_release.restype, _release.argtypes = None, (ctypes.POINTER(_Buffer),)


def address_of(view: memoryview) -> int:
    """Where the memory of a row-major view begins.  The caller keeps the view as long as it uses the address."""
    found = _Buffer()
    _get(view, ctypes.byref(found), 0)  # also of memory that is only read, which `from_buffer` refuses
    address = found.buf or 0
    _release(ctypes.byref(found))
    return address


def shape_of(view: memoryview, name: str, dtype: str, wanted: Sequence[int | str]) -> tuple[int, ...]:
    """The shape of the tensor that a view stands for.

    TypeError for another dtype, ValueError for memory that is not row-major, has other bytes or is not aligned.
    """
    fixed = [n for n in wanted if isinstance(n, int)]
    said = _SAME.get(view.format, view.format) if view.itemsize == 8 else view.format
    if said not in ("B", "c", _FORMATS.get(dtype), *_OTHERS.get(dtype, ())):
        raise TypeError(f"input {name!r} must be memory of {dtype} or of bytes, not of the format {view.format!r}")
    if not view.c_contiguous:
        raise ValueError(f"input {name!r} must be row-major memory")
    if view.nbytes and address_of(view) % min(DTYPES[dtype], 8):
        raise ValueError(f"input {name!r} must begin at a multiple of its items' {DTYPES[dtype]} bytes")
    if view.ndim == 1 and len(fixed) == len(wanted):
        if view.nbytes != prod(fixed) * DTYPES[dtype]:
            raise ValueError(f"input {name!r} must have {prod(fixed) * DTYPES[dtype]} bytes, not {view.nbytes}")
        return tuple(fixed)
    if view.itemsize != DTYPES[dtype]:
        raise ValueError(f"input {name!r} varies in size, which bytes do not say: give a memoryview of {dtype}")
    return tuple(view.shape or ())


def filled_view(view: memoryview, dtype: str, shape: Sequence[int]) -> memoryview:
    """Bytes that were filled, as the dtype and the shape, where Python has a format of it."""
    if dtype not in _FORMATS or not view.nbytes:
        return view
    return view.cast(_FORMATS[dtype], tuple(shape))  # type: ignore[call-overload]
