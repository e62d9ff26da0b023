"""A device for tests: its memory is mapped without access, and opened only inside the methods of the protocol.

Whoever else reads or writes an element, natively too, is stopped by the processor.  Kernels are the reference's, in NumPy.
`register()` makes the device type `guarded` known to this process; there are two devices.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any

from rushlight._backends.protocol import Block
from rushlight._backends.reference.backend import ReferenceBackend
from rushlight._backends.registry import backends, host, unregister
from rushlight._backends.registry import register as register_backend
from rushlight._base.errors import OutOfMemoryError
from rushlight._engine.core.tensor import from_owner
from rushlight._types.device import Device

PAGE = mmap.PAGESIZE
CLOSED, OPEN = 0, mmap.PROT_READ | mmap.PROT_WRITE
TOTAL = 1 << 32  # bytes that a device says it has

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


class GuardedBlock(Block):
    """Whole pages of a device, given back when nobody shows them any longer."""

    __slots__ = ("backend", "mapped", "users")

    def __init__(self, backend: GuardedBackend, nbytes: int, device: Device) -> None:
        self.backend, self.mapped, self.users = backend, -(-max(nbytes, 1) // PAGE) * PAGE, 0
        address = _libc.mmap(None, self.mapped, CLOSED, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
        if address in (None, 2**64 - 1):
            raise OutOfMemoryError(f"device '{device}' has no {nbytes} bytes: {os.strerror(ctypes.get_errno())}")
        super().__init__(address, nbytes, device)

    def __del__(self) -> None:
        self.backend.forget(self)
        _libc.munmap(self.address, self.mapped)


class GuardedBackend(ReferenceBackend):
    """The device type `guarded`."""

    type = "guarded"
    block_type = GuardedBlock

    def __init__(self) -> None:
        self._lock, self._current = threading.RLock(), 0
        self._starts: list[int] = []
        self._blocks: dict[int, Any] = {}  # address -> weak reference to the block
        self._held = {"allocated": 0, "peak_allocated": 0, "allocations": 0}

    # ***** devices *****

    def device_count(self) -> int:
        return 2

    def current_device(self) -> int:
        return self._current

    def set_device(self, index: int) -> None:
        self._current = index

    def properties(self, device: Device) -> Mapping[str, Any]:
        return {"name": f"guarded memory {device.index}", "total_memory": TOTAL}

    def memory_stats(self, device: Device) -> Mapping[str, int]:
        return dict(self._held)

    # ***** memory *****

    def allocate(self, nbytes: int, device: Device) -> Any:
        block = self.block_type(self, nbytes, device)
        with self._lock:
            at = bisect_right(self._starts, block.address)
            self._starts.insert(at, block.address)
            self._blocks[block.address] = _weak(block)
            self._held["allocated"] += nbytes
            self._held["allocations"] += 1
            self._held["peak_allocated"] = max(self._held["peak_allocated"], self._held["allocated"])
        return from_owner(block.address, nbytes, block)

    zeros = allocate  # fresh pages are zeros

    def forget(self, block: GuardedBlock) -> None:
        """A block is gone."""
        with self._lock:
            if self._blocks.pop(block.address, None) is not None:
                self._starts.remove(block.address)
                self._held["allocated"] -= block.nbytes

    def block_at(self, address: int) -> GuardedBlock | None:
        """The block in which an address lies, None for memory that is not of this device."""
        with self._lock:
            at = bisect_right(self._starts, address) - 1
            block = self._blocks[self._starts[at]]() if at >= 0 else None
        return block if block is not None and address < block.address + block.mapped else None

    @contextmanager
    def opened(self, address: int, nbytes: int) -> Iterator[memoryview]:
        block = self.block_at(address)
        if block is None or address + nbytes > block.address + max(block.nbytes, 1):
            if not nbytes:
                yield memoryview(b"")
                return
            raise AssertionError(f"{nbytes} bytes at {address:#x} are no memory of this device")
        with self._lock:
            block.users += 1
            _libc.mprotect(block.address, block.mapped, OPEN)
        try:
            yield memoryview((ctypes.c_ubyte * nbytes).from_address(address)).cast("B")
        finally:
            with self._lock:
                block.users -= 1
                if not block.users:
                    _libc.mprotect(block.address, block.mapped, CLOSED)

    def copy_in(self, address: int, source: int, nbytes: int) -> None:
        with self.opened(address, nbytes):
            ctypes.memmove(address, source, nbytes)

    def copy_out(self, address: int, source: int, nbytes: int) -> None:
        with self.opened(source, nbytes):
            ctypes.memmove(address, source, nbytes)

    def copy(self, address: int, source: int, nbytes: int, device: Device) -> None:
        with self.opened(source, nbytes), self.opened(address, nbytes):
            ctypes.memmove(address, source, nbytes)

    def copy_peer(self, address: int, device: Device, source: int, source_device: Device, nbytes: int) -> None:
        self.copy(address, source, nbytes, device)

    # ***** what the host's routines do, with the memory open *****

    def _opening(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function`, with the blocks open in which an argument lies."""

        def run(*args: Any) -> Any:
            with ExitStack() as stack:
                for argument in args:
                    block = self.block_at(argument) if type(argument) is int and argument > PAGE else None
                    if block is not None:
                        stack.enter_context(self.opened(block.address, block.nbytes))
                return function(*args)

        return run

    def routine(self, name: str, key: Any = None) -> Callable[..., Any]:
        return self._opening(host().routine(name, key))

    @property
    def selection_piece(self) -> int:
        return host().selection_piece

    def random_kernel(self, name: str, kind: str) -> Callable[..., Any]:
        return self._opening(host().random_kernel(name, kind))

    def stream_entry(self) -> int:
        return host().stream_entry()


def _weak(block: GuardedBlock) -> Any:
    import weakref

    return weakref.ref(block)


def register() -> None:
    """Make the device type known, once."""
    if GuardedBackend.type not in backends():
        register_backend(GuardedBackend.type, _the_backend)


@cache
def _the_backend() -> GuardedBackend:
    """One for the process: plans of an earlier registration know it."""
    return GuardedBackend()


@contextmanager
def registered() -> Iterator[None]:
    """The device type for the time of a block; other tests of the process know nothing of it."""
    register()
    try:
        yield
    finally:
        unregister(GuardedBackend.type)
