"""Allocators of a program's own, as C functions: `torch.cuda.memory.CUDAPluggableAllocator`.

void *allocate(ssize_t size, int device, void *stream);
void release(void *address, size_t size, int device, void *stream);
"""

from __future__ import annotations

import ctypes

__all__ = ["Pluggable"]

_ALLOCATE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)
_RELEASE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)


class Pluggable:
    """A pair of C functions, by their addresses."""

    def __init__(self, allocate: int, release: int) -> None:
        if not allocate or not release:
            raise ValueError("an allocator has two functions, and one of the addresses is 0")
        self._allocate, self._release = _ALLOCATE(allocate), _RELEASE(release)

    def allocate(self, nbytes: int, device: int, stream: int) -> int:
        """The address of memory, 0 where there is none."""
        return self._allocate(nbytes, device, stream) or 0

    def release(self, address: int, nbytes: int, device: int, stream: int) -> None:
        """Give it back."""
        self._release(address, nbytes, device, stream)
