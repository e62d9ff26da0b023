"""The few things that files need to know of tensors' memory: its bytes, its identity, and tensors laid over it."""

from __future__ import annotations

import ctypes
from typing import Any

from rushlight import Tensor
from rushlight._engine.memory import MEMORY
from rushlight._engine.tensor import make
from rushlight._types.device import CPU
from rushlight._types.dtype import BY_NAME, DType
from rushlight._types.spec import Spec

__all__ = ["BY_NAME", "DType", "allocate", "identity", "mapped", "memory_of", "place_of", "storage_of", "tensor_over"]


def storage_of(tensor: Any) -> Any:
    """The storage that holds the tensor's memory (None for a meta tensor)."""
    return tensor._storage


def place_of(tensor: Any) -> int:
    """The tensor's offset in its storage, in elements."""
    return int(tensor.storage_offset())


def identity(storage: Any) -> int:
    """Equal for storages over the same memory: `tensor.data` has a storage object of its own."""
    return int(storage.ptr) or id(storage)


def memory_of(storage: Any) -> memoryview:
    """The bytes of a storage, writable."""
    return memoryview(storage).cast("B") if storage.nbytes else memoryview(bytearray())


def allocate(nbytes: int) -> Any:
    """A new storage of `nbytes` bytes."""
    return MEMORY.alloc(nbytes)


def mapped(owner: Any, start: int, nbytes: int) -> Any:
    """A storage over `nbytes` bytes of a writable buffer, which it keeps alive."""
    if nbytes == 0:
        return MEMORY.alloc(0)
    view = (ctypes.c_char * nbytes).from_buffer(owner, start)
    return MEMORY.from_owner(ctypes.addressof(view), nbytes, view)


def tensor_over(storage: Any, dtype: DType, offset: int, size: tuple[int, ...], stride: tuple[int, ...]) -> Tensor:
    """A tensor over a storage; the caller has checked that it fits."""
    spec = Spec.of(dtype, CPU, size, stride)
    return make(storage, spec, storage.ptr + offset * dtype.itemsize)
