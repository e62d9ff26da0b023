"""The few things that files need to know of tensors' memory: its bytes, its identity, and tensors laid over it."""

from __future__ import annotations

import sys
from typing import Any

from rushlight import Tensor, device
from rushlight import dtype as DType
from rushlight._interface.devices import host
from rushlight._interface.memory import BY_NAME, TYPED_STORAGES, device_of, fresh_storage
from rushlight._interface.tensors import Spec, bytes_on, make
from rushlight.storage import TypedStorage, UntypedStorage

__all__ = [
    "BY_NAME",
    "DType",
    "allocate",
    "bytes_of",
    "identity",
    "in_native_order",
    "native",
    "storage_of",
    "tensor_over",
    "typed",
    "wipe",
]

_CPU = device("cpu")


def storage_of(tensor: Any) -> UntypedStorage:
    """The storage that holds the tensor's memory."""
    storage: UntypedStorage = tensor.untyped_storage()
    return storage


def typed(storage: UntypedStorage, dtype: DType) -> TypedStorage:
    """The storage as elements of a dtype."""
    return TypedStorage(wrap_storage=storage, dtype=dtype)


def has_storage_type(dtype: DType) -> bool:
    """Whether there is a class of storages with this dtype (younger dtypes have none)."""
    return any(cls.dtype is dtype for cls in TYPED_STORAGES.values())


def native(storage: Any) -> Any:
    """The runtime's storage behind a public one."""
    return (storage.untyped() if isinstance(storage, TypedStorage) else storage)._native


def identity(storage: UntypedStorage) -> int:
    """Equal for storages that begin at the same place: each look at a tensor's storage makes an object of its own."""
    return int(storage._native.ptr) or id(storage._native)


def bytes_of(storage: UntypedStorage) -> memoryview:
    """The bytes of a storage: writable where it is the host's memory, of another device's a copy."""
    return storage._bytes()


def allocate(nbytes: int) -> UntypedStorage:
    """A new storage of `nbytes` bytes, of undefined contents."""
    return UntypedStorage(native=fresh_storage(nbytes, _CPU))


def wipe(nbytes: int) -> UntypedStorage:
    """A new storage of zeros."""
    return UntypedStorage(native=host().zeros(nbytes, _CPU))


def in_native_order(storage: UntypedStorage, order: str, dtype: DType) -> UntypedStorage:
    """The storage, its numbers turned round in place if they are of the other byte order."""
    if order != sys.byteorder:
        storage.byteswap(dtype)
    return storage


def tensor_over(storage: Any, dtype: DType, offset: int, size: tuple[int, ...], stride: tuple[int, ...]) -> Tensor:
    """A tensor over a storage of the runtime; the caller has checked that it fits."""
    spec = Spec.of(dtype, device_of(storage), size, stride)
    return make(storage, spec, storage.ptr + bytes_on(spec, offset))
