"""Memory that processes share: anonymous files in memory, which no crash leaves behind, because they never have a name for long.

The file is unlinked as soon as it is mapped, and its descriptor stays open beside the mapping: a forked process has both, any other
one can be handed the descriptor.  When the last tensor over it is gone, so is the memory.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from typing import Any

from rushlight._base.lazy import LazyModule
from rushlight._engine.memory import MEMORY
from rushlight._engine.tensor import Tensor

ctypes: Any = LazyModule("ctypes")
gc: Any = LazyModule("gc")
mmap: Any = LazyModule("mmap")

__all__ = ["SharedBlock", "block_of", "is_shared", "relocate", "share"]


class SharedBlock:
    """A mapping of shared memory and the descriptor of its file; `SharedBlock(nbytes, handle)` maps one that another process made."""

    __slots__ = ("__weakref__", "address", "handle", "nbytes", "window")

    def __init__(self, nbytes: int, handle: int | None = None) -> None:
        self.nbytes = nbytes
        self.handle = _anonymous(nbytes) if handle is None else handle
        self.window = mmap.mmap(self.handle, nbytes, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ | mmap.PROT_WRITE)
        self.address = ctypes.addressof((ctypes.c_char * nbytes).from_buffer(self.window))
        _BLOCKS[self.address] = self
        weakref.finalize(self, os.close, self.handle)


# The living blocks by their addresses.
_BLOCKS: weakref.WeakValueDictionary[int, SharedBlock] = weakref.WeakValueDictionary()


def _anonymous(nbytes: int) -> int:
    """An open file of this size in memory, without a name."""
    if hasattr(os, "memfd_create"):
        handle = os.memfd_create("rushlight", os.MFD_CLOEXEC)
    else:
        place = "/dev/shm" if os.path.isdir("/dev/shm") else None
        handle, path = tempfile.mkstemp(prefix="rushlight-", dir=place)
        os.unlink(path)
    os.ftruncate(handle, nbytes)
    return handle


def block_of(storage: Any) -> SharedBlock | None:
    """The shared block that a storage lies at the start of."""
    return _BLOCKS.get(storage.ptr) if storage.nbytes else None


def is_shared(storage: Any) -> bool:
    """Whether other processes can see a storage's memory."""
    return block_of(storage) is not None


def share(storage: Any) -> Any:
    """A storage's bytes in shared memory: itself where they are there, else a new storage to which all tensors over the old one move."""
    if not storage.nbytes or is_shared(storage):
        return storage
    block = SharedBlock(storage.nbytes)
    fresh = MEMORY.from_owner(block.address, block.nbytes, block)
    ctypes.memmove(block.address, storage.ptr, storage.nbytes)
    relocate(storage, fresh)
    return fresh


def relocate(old: Any, new: Any) -> None:
    """Let every tensor over one storage look at another, at the same offsets.

    Tensors keep the address of their first element, so each is told; the garbage collector knows where they are.
    """
    shift, new.version = new.ptr - old.ptr, old.version
    for holder in gc.get_referrers(old):
        if isinstance(holder, Tensor) and holder._storage is old:
            holder._storage = new
            holder._ptr += shift
