"""Capsules of the DLPack protocol, made and read by ctypes: for devices whose memory NumPy knows nothing of.

The structures are those of `dlpack.h`, before and after version 1.0.  What a capsule shows lives until its deleter is
called, by the consumer or by the capsule's own destructor.
"""

from __future__ import annotations

import ctypes
from typing import Any

from rushlight._backends.protocol import ForeignBlock
from rushlight._engine.core.memory import from_address
from rushlight._engine.core.tensor import Tensor
from rushlight._types.device import Device
from rushlight._types.dtype import BY_NAME, DType
from rushlight._types.layout import contiguous_strides, extent
from rushlight._types.spec import Spec

__all__ = ["capsule", "consumed", "place_of"]

_SIGNED, _UNSIGNED, _FLOAT, _COMPLEX = 0, 1, 2, 5
_NAMED = {
    "bfloat16": 4,
    "bool": 6,
    "float8_e4m3fn": 10,
    "float8_e4m3fnuz": 11,
    "float8_e5m2": 12,
    "float8_e5m2fnuz": 13,
}
_OLD, _NEW, _USED_OLD, _USED_NEW = b"dltensor", b"dltensor_versioned", b"used_dltensor", b"used_dltensor_versioned"


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Managed(ctypes.Structure):
    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


_python = ctypes.pythonapi
_new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", _python)
)
_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_IsValid", _python))
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_GetPointer", _python))
_rename = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_SetName", _python))
_DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_LENT: dict[int, Any] = {}  # address of a structure -> itself and all that it shows


@_DELETER
def _delete(address: int) -> None:
    _LENT.pop(address, None)


@ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
def _destroy(this: int) -> None:
    """A capsule goes: what nobody took over goes with it."""
    for name in (_OLD, _NEW):
        if _valid(this, name):
            _LENT.pop(_pointer(this, name), None)


def _code(dtype: DType) -> int:
    named = _NAMED.get(dtype.name)
    if named is not None:
        return named
    if dtype.is_complex:
        return _COMPLEX
    if dtype.is_floating_point:
        return _FLOAT
    return _SIGNED if dtype.is_signed else _UNSIGNED


def capsule(x: Tensor, place: tuple[int, int], versioned: bool) -> Any:
    """A capsule over a tensor's memory."""
    spec = x._spec
    shape = (ctypes.c_int64 * max(spec.ndim, 1))(*spec.shape)
    strides = (ctypes.c_int64 * max(spec.ndim, 1))(*spec.strides)
    shown = _Tensor(x._ptr, *place, spec.ndim, _code(spec.dtype), 8 * spec.dtype.itemsize, 1, shape, strides, 0)
    deleter = ctypes.cast(_delete, ctypes.c_void_p)
    made: Any = _Versioned(1, 0, None, deleter, 0, shown) if versioned else _Managed(shown, None, deleter)
    address = ctypes.addressof(made)
    _LENT[address] = (made, shape, strides, x)
    return _new(address, _NEW if versioned else _OLD, ctypes.cast(_destroy, ctypes.c_void_p))


def _opened(found: Any) -> tuple[int, bool]:
    """The address of a capsule's structure, and whether it is one of version 1; RuntimeError for one that was used."""
    for name, versioned in ((_NEW, True), (_OLD, False)):
        if _valid(id(found), name):
            return _pointer(id(found), name), versioned
    raise RuntimeError(
        "from_dlpack received an invalid capsule. Note that DLTensor capsules can be consumed only once, so you might "
        "have already constructed a tensor from it once."
    )


def place_of(found: Any) -> tuple[int, int]:
    """The device of a capsule, by DLPack's numbers."""
    address, versioned = _opened(found)
    shown = (_Versioned if versioned else _Managed).from_address(address).tensor
    return shown.device_type, shown.device_id


class _Taken:
    """A structure that was taken over; its deleter is called with the last tensor over it."""

    __slots__ = ("address", "delete")

    def __init__(self, address: int, deleter: int | None) -> None:
        self.address, self.delete = address, _DELETER(deleter) if deleter else None

    def __del__(self) -> None:
        if self.delete is not None:
            self.delete(self.address)


def consumed(found: Any, device: Device) -> Tensor:
    """The tensor that a capsule shows, which is taken over."""
    address, versioned = _opened(found)
    managed: Any = (_Versioned if versioned else _Managed).from_address(address)
    if versioned and managed.major != 1:
        raise BufferError(f"rushlight reads DLPack up to version 1, this is version {managed.major}.{managed.minor}")
    shown = managed.tensor
    dtype = _dtype(shown.code, shown.bits, shown.lanes)
    shape = tuple(shown.shape[: shown.ndim])
    strides = tuple(shown.strides[: shown.ndim]) if shown.strides else contiguous_strides(shape)
    _rename(id(found), _USED_NEW if versioned else _USED_OLD)
    at = (shown.data or 0) + shown.byte_offset
    nbytes = extent(shape, strides) * dtype.itemsize if 0 not in shape else 0
    block = ForeignBlock(at, nbytes, device, _Taken(address, managed.deleter))
    return from_address(at, Spec.of(dtype, device, shape, strides), nbytes, block)


def _dtype(code: int, bits: int, lanes: int) -> DType:
    for dtype in BY_NAME.values():
        if lanes == 1 and 8 * dtype.itemsize == bits and _code(dtype) == code and not dtype.name.startswith("q"):
            return dtype
    raise BufferError(f"rushlight has no dtype for DLPack's code {code} with {bits} bits and {lanes} lanes")
