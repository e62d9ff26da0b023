"""Tensors over memory of other kinds: mapped files, and objects with Python's buffer protocol."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from rushlight._base.errors import warn_once
from rushlight._base.lazy import LazyModule
from rushlight._base.lazy import numpy as np
from rushlight._engine.core.creation import finish, python_dtype
from rushlight._engine.core.integers import as_int
from rushlight._engine.core.memory import MEMORY, from_address
from rushlight._engine.core.tensor import Tensor
from rushlight._types.device import CPU
from rushlight._types.dtype import DType
from rushlight._types.promotion import default_dtype
from rushlight._types.spec import Spec

ctypes: Any = LazyModule("ctypes")
mmap: Any = LazyModule("mmap")

__all__ = ["MappedFile", "from_file", "frombuffer", "map_file"]


class MappedFile(NamedTuple):
    """References that keep a mapped file in memory, and its name where writes reach the file."""

    window: Any
    view: Any
    filename: str | None


def map_file(filename: Any, shared: bool, nbytes: int) -> Any:
    """A storage over the first `nbytes` bytes of a file.

    With `shared`, writes reach the file, which is made or enlarged where it is too small; else they stay in this
    process.  RuntimeError where the file cannot be opened or is too small.
    """
    path = os.fspath(filename)
    if nbytes < 0:
        raise RuntimeError(f"cannot map {nbytes} bytes of file <{path}>")
    flags = os.O_RDWR | os.O_CREAT if shared else os.O_RDONLY
    try:
        handle = os.open(path, flags, 0o666)
    except OSError as error:
        raise RuntimeError(
            f"unable to open file <{path}> in {'read-write' if shared else 'read-only'} mode: {error.strerror} ({error.errno})"
        ) from None
    try:
        held = os.fstat(handle).st_size
        if held < nbytes:
            if not shared:
                raise RuntimeError(f"unable to map {nbytes} bytes of file <{path}>: it has {held}")
            os.ftruncate(handle, nbytes)
        if not nbytes:
            return MEMORY.alloc(0)
        kind = mmap.MAP_SHARED if shared else mmap.MAP_PRIVATE
        view = mmap.mmap(handle, nbytes, flags=kind, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    finally:
        os.close(handle)
    window = (ctypes.c_char * nbytes).from_buffer(view)
    return MEMORY.from_owner(ctypes.addressof(window), nbytes, MappedFile(window, view, path if shared else None))


def from_file(
    filename: Any,
    shared: bool | None = None,
    size: int | None = 0,
    *,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
    layout: Any = None,
    pin_memory: bool = False,
) -> Tensor:
    """A one-dimensional tensor of `size` elements over a file's memory; `shared` says whether writes reach the file."""
    kind = dtype or default_dtype()
    count = size or 0
    storage = map_file(filename, bool(shared), count * kind.itemsize)
    return finish(
        from_address(storage.ptr, Spec.of(kind, CPU, (count,)), count * kind.itemsize, storage), requires_grad
    )


def frombuffer(buffer: Any, *, dtype: DType, count: int = -1, offset: int = 0, requires_grad: bool = False) -> Tensor:
    """A one-dimensional tensor over the memory of an object with the buffer protocol (`bytearray`, `array.array`, ...).

    `count` elements (-1: all that are there) from byte `offset` on.  ValueError where they do not fit, or for an empty
    buffer.
    """
    dtype = dtype if isinstance(dtype, DType) else python_dtype(dtype)
    count, offset = as_int("frombuffer", "count", count), as_int("frombuffer", "offset", offset)
    try:
        raw = memoryview(buffer)
    except TypeError:
        raise ValueError(f"object does not implement Python buffer protocol: {type(buffer).__name__}") from None
    if not raw.c_contiguous:
        raise ValueError("the buffer must lie in memory without gaps")
    length, size = raw.nbytes, dtype.itemsize
    if not length or count == 0:
        raise ValueError(f"both buffer length ({length}) and count ({count}) must not be 0")
    if not 0 <= offset < length:
        raise ValueError(
            f"offset ({offset} bytes) must be non-negative and no greater than buffer length ({length} bytes) minus 1"
        )
    if count < 0:
        if (length - offset) % size:
            raise ValueError(
                f"buffer length ({length - offset} bytes) after offset ({offset} bytes) must be a multiple of element size ({size})"
            )
        count = (length - offset) // size
    elif offset + count * size > length:
        raise ValueError(
            f"requested buffer length ({count} * {size} bytes) after offset ({offset} bytes) must not be greater than actual buffer length ({length} bytes)"
        )
    if raw.readonly:
        address = np.frombuffer(raw, dtype=np.uint8).__array_interface__["data"][0]
        warn_once(
            "The given buffer is not writable, and PyTorch does not support non-writable tensors. This means you can write to the underlying "
            "(supposedly non-writable) buffer using the tensor. You may want to copy the buffer to protect its data or make it writable before "
            "converting it to a tensor. This type of warning will be suppressed for the rest of this program."
        )
    else:
        address = ctypes.addressof((ctypes.c_char * length).from_buffer(raw))
    return finish(from_address(address + offset, Spec.of(dtype, CPU, (count,)), count * size, raw), requires_grad)
