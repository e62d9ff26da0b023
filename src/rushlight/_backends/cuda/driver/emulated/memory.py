"""Memory of emulated devices: one file in memory, mapped twice.

A device address lies in a reservation without access, so whoever reads it on the host is stopped by the processor.  The
emulator reaches the same bytes at the address plus `delta`, which is one constant for all devices:

    reservation   | device 0 | device 1 | ... | pinned | other processes' | reserved |      no access, but for pinned memory
    alias         | device 0 | device 1 | ... | pinned | other processes' | reserved |      = reservation + delta

Reserved addresses are those of `cuMemAddressReserve`: they show memory of a device where some is mapped.

Pinned memory is open at both addresses, as on a machine where host and devices share addresses.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from bisect import bisect_right, insort

from rushlight._backends.cuda.driver.emulated.mappings import Mappings
from rushlight._backends.cuda.driver.errors import fail

__all__ = ["ALIGNMENT", "GRANULARITY", "Part", "Region"]

ALIGNMENT = 512  # of addresses
GRANULARITY = 2 << 20  # of memory that is mapped at reserved addresses
_RESERVATIONS = 16  # times the memory of the devices
_CLOSED, _OPEN = 0, mmap.PROT_READ | mmap.PROT_WRITE
_FIXED, _NO_RESERVE = 0x10, 0x4000
_PUNCH_HOLE = 3  # and keep the size

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
_libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long)


def _map(at: int | None, nbytes: int, protection: int, flags: int, fd: int, offset: int = 0) -> int:
    address = _libc.mmap(at, nbytes, protection, flags, fd, offset)
    if address in (None, 2**64 - 1):
        raise OSError(ctypes.get_errno(), f"{nbytes} bytes cannot be mapped: {os.strerror(ctypes.get_errno())}")
    return int(address)


class Part:
    """A stretch of addresses and what of it is taken: the memory of one device, or the pinned memory of the host."""

    def __init__(self, start: int, nbytes: int) -> None:
        self.start, self.nbytes, self.end = start, nbytes, start + nbytes
        self.sizes: dict[int, int] = {}  # of what is taken, by address
        self._free = [(start, self.end)]
        self.held = 0

    def take(self, nbytes: int) -> int | None:
        """The address of free memory, the lowest there is; None where there is none."""
        size = max(-(-nbytes // ALIGNMENT), 1) * ALIGNMENT
        if self.held + size > self.nbytes:  # some is mapped at reserved addresses
            return None
        for i, (low, high) in enumerate(self._free):
            if high - low >= size:
                self._free[i : i + 1] = [(low + size, high)] if high - low > size else []
                self.sizes[low] = size
                self.held += size
                return low
        return None

    def give_back(self, address: int) -> int:
        """Free what `take` took; its size."""
        size = self.sizes.pop(address)
        self.held -= size
        low, high = address, address + size
        insort(self._free, (low, high))
        merged: list[tuple[int, int]] = []
        for piece in self._free:
            if merged and merged[-1][1] == piece[0]:
                merged[-1] = (merged[-1][0], piece[1])
            else:
                merged.append(piece)
        self._free = merged
        return size

    def range_of(self, address: int) -> tuple[int, int] | None:
        """The address and the size of the allocation in which an address lies."""
        starts = sorted(self.sizes)
        at = bisect_right(starts, address) - 1
        if at < 0 or address >= starts[at] + self.sizes[starts[at]]:
            return None
        return starts[at], self.sizes[starts[at]]


class Region:
    """All memory of the emulated devices."""

    def __init__(self, devices: int, nbytes: int, pinned: int, foreign: int) -> None:
        page = mmap.PAGESIZE
        nbytes = -(-nbytes // page) * page
        reserved = _RESERVATIONS * devices * -(-nbytes // GRANULARITY) * GRANULARITY
        total = devices * nbytes + pinned + foreign + reserved + GRANULARITY
        self.fd = os.memfd_create("rushlight-cuda")
        os.ftruncate(self.fd, total)
        self.base = _map(None, total, _CLOSED, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE, -1)
        self.alias = _map(None, total, _OPEN, mmap.MAP_SHARED | _NO_RESERVE, self.fd)
        self.delta, self.total = self.alias - self.base, total
        self.devices = [Part(self.base + i * nbytes, nbytes) for i in range(devices)]
        start = self.base + devices * nbytes
        _map(start, pinned, _OPEN, mmap.MAP_SHARED | _FIXED, self.fd, start - self.base)
        self.pinned, self.foreign = Part(start, pinned), Part(start + pinned, foreign)
        self.reserved = Part(-(-self.foreign.end // GRANULARITY) * GRANULARITY, reserved)
        self.mappings = Mappings(self)

    def device_of(self, address: int) -> int | None:
        """The device whose memory has an address; None for any other."""
        if self.reserved.start <= address < self.reserved.end:
            return self.mappings.device_of(address)
        if not self.base <= address < self.pinned.start:
            return None
        return (address - self.base) // self.devices[0].nbytes

    def part_of(self, address: int) -> Part | None:
        """The part in which an address lies; None for memory that no device knows."""
        if self.reserved.start <= address < self.reserved.end:
            return self.reserved
        device = self.device_of(address)
        if device is not None:
            return self.devices[device]
        return next((p for p in (self.pinned, self.foreign) if p.start <= address < p.end), None)

    def is_pinned(self, address: int) -> bool:
        """Whether an address is of pinned memory."""
        return self.pinned.start <= address < self.pinned.end

    def visible(self, address: int) -> int:
        """Where the emulator reads what a program has at an address, be it of a device or of the host."""
        return address + self.delta if self.base <= address < self.base + self.total else address

    def check(self, address: int, nbytes: int, call: str) -> None:
        """CudaError unless a stretch lies within one allocation."""
        if self.reserved.start <= address < self.reserved.end:
            return self.mappings.check(address, nbytes, call)
        part = self.part_of(address)
        found = None if part is None else part.range_of(address)
        if found is None or address + nbytes > found[0] + found[1]:
            fail("CUDA_ERROR_INVALID_VALUE", call, f"{nbytes} bytes at {address:#x} are not allocated")

    def release_pages(self, address: int, nbytes: int) -> None:
        """Give the pages of freed memory back to the system; the next owner finds zeros there."""
        page = mmap.PAGESIZE
        low, high = -(-address // page) * page, (address + nbytes) // page * page
        if high > low:
            _libc.fallocate(self.fd, _PUNCH_HOLE, low - self.base, high - low)

    # ***** memory of other processes *****

    def show(self, path: str, offset: int, nbytes: int) -> int:
        """Map a stretch of another process's file among the foreign memory; its device address."""
        page = mmap.PAGESIZE
        first = offset // page * page
        size = -(-(offset + nbytes - first) // page) * page
        address = self.foreign.take(size + page)
        if address is None:
            fail("CUDA_ERROR_OUT_OF_MEMORY", "cuIpcOpenMemHandle")
        at = -(-address // page) * page
        fd = os.open(path, os.O_RDWR)
        try:
            _map(at + self.delta, size, _OPEN, mmap.MAP_SHARED | _FIXED, fd, first)
        finally:
            os.close(fd)
        return at + offset - first

    def hide(self, address: int) -> None:
        """Take back what `show` mapped."""
        found = self.foreign.range_of(address)
        if found is None:
            fail("CUDA_ERROR_INVALID_VALUE", "cuIpcCloseMemHandle")
        start, size = found
        page = mmap.PAGESIZE
        low = -(-start // page) * page
        high = (start + size) // page * page
        _map(low + self.delta, high - low, _OPEN, mmap.MAP_SHARED | _FIXED, self.fd, low - self.base)
        self.foreign.give_back(start)
