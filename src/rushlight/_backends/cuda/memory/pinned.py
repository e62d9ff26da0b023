"""Pinned memory of the host: what devices copy from and to while the program goes on.

Pieces are powers of two, kept when they are freed.  One that streams still copy from or to is kept until they are done.
"""

from __future__ import annotations

import threading
from bisect import bisect_right, insort
from collections import deque
from contextlib import suppress
from weakref import WeakValueDictionary

from rushlight._backends.cuda.devices import Devices
from rushlight._backends.cuda.driver.errors import CudaError
from rushlight._backends.cuda.memory.stats import Statistics
from rushlight._backends.cuda.streams import CudaEvent, CudaStream
from rushlight._base.forking import free_after_fork

__all__ = ["PinnedBlock", "PinnedMemory"]

_LEAST = 512


class PinnedBlock:
    """Pinned memory that a storage shows."""

    __slots__ = ("__weakref__", "address", "memory", "nbytes", "size", "uses")

    def __init__(self, memory: PinnedMemory, address: int, nbytes: int, size: int) -> None:
        self.memory, self.address, self.nbytes, self.size = memory, address, nbytes, size
        self.uses: set[CudaStream] = set()

    def __del__(self) -> None:
        self.memory.give_back(self.address, self.size, self.uses)


class PinnedMemory:
    """The process's pinned memory."""

    def __init__(self, devices: Devices) -> None:
        self.devices, self.driver = devices, devices.driver
        self.statistics = Statistics()
        self._free: dict[int, list[int]] = {}
        self._waiting: deque[tuple[list[CudaEvent], int, int]] = deque()
        self._freed: deque[tuple[int, int, set[CudaStream]]] = deque()
        self._lock = free_after_fork(threading.Lock())
        self._starts: list[int] = []
        self._registered: dict[int, int] = {}  # address -> bytes, of memory that somebody else has
        self._sizes: dict[int, int] = {}
        self._blocks: WeakValueDictionary[int, PinnedBlock] = WeakValueDictionary()

    def allocate(self, nbytes: int) -> PinnedBlock:
        """Pinned memory of so many bytes."""
        size = max(1 << max(nbytes - 1, 0).bit_length(), _LEAST)
        with self._lock:
            self._settle()
            free = self._free.get(size)
            address = free.pop() if free else self._new(size)
            self.statistics.add("allocation", True, 1)
            self.statistics.add("allocated_bytes", True, size)
        made = self._blocks[address] = PinnedBlock(self, address, nbytes, size)
        return made

    def _new(self, size: int) -> int:
        self.devices.enter_any()
        with self.devices.unseen():
            address = self.driver.cuMemHostAlloc(size, 1)
        insort(self._starts, address)
        self._sizes[address] = size
        self.statistics.add("segment", True, 1)
        self.statistics.add("reserved_bytes", True, size)
        return address

    def give_back(self, address: int, size: int, uses: set[CudaStream]) -> None:
        """Nobody shows a piece any longer."""
        self._freed.append((address, size, uses))
        if not self.devices.forked and self._lock.acquire(False):
            try:
                with suppress(CudaError):  # who asks for memory is told
                    self._settle()
            finally:
                self._lock.release()

    def _settle(self) -> None:
        while self._freed:
            address, size, uses = self._freed.popleft()
            self.statistics.add("allocation", True, -1)
            self.statistics.add("allocated_bytes", True, -size)
            if not uses:
                self._free.setdefault(size, []).append(address)
            else:
                self._wait(address, size, uses)
        while self._waiting:
            with self.devices.unseen():
                if not all(event.query() for event in self._waiting[0][0]):
                    return
            _, address, size = self._waiting.popleft()
            self._free.setdefault(size, []).append(address)

    def _wait(self, address: int, size: int, uses: set[CudaStream]) -> None:
        events = []
        try:
            for stream in uses:
                events.append(CudaEvent(self.devices, stream.device))
                with self.devices.aside(stream.device.index or 0):
                    events[-1].record(stream)
        except CudaError:  # the device failed
            return
        self._waiting.append((events, address, size))

    def _start_of(self, address: int) -> int | None:
        at = bisect_right(self._starts, address) - 1
        return self._starts[at] if at >= 0 and address < self._starts[at] + self._sizes[self._starts[at]] else None

    def is_pinned(self, address: int) -> bool:
        """Whether an address is of this memory, or of registered memory."""
        if self._registered and any(a <= address < a + n for a, n in self._registered.items()):
            return True
        return self._start_of(address) is not None

    def register(self, address: int, nbytes: int, flags: int = 0) -> None:
        """Let the driver pin memory of the host that somebody else has."""
        self.devices.enter_any()
        self.driver.cuMemHostRegister(address, nbytes, flags)
        self._registered[address] = nbytes

    def unregister(self, address: int) -> None:
        """Undo `register`."""
        self.devices.enter_any()
        self.driver.cuMemHostUnregister(address)
        self._registered.pop(address, None)

    def block_at(self, address: int) -> PinnedBlock | None:
        """The block of this memory in which an address lies."""
        start = self._start_of(address)
        return None if start is None else self._blocks.get(start)

    def empty_cache(self) -> None:
        """Give pieces that nobody uses back to the driver."""
        self.devices.enter_any()
        with self._lock, self.devices.unseen():
            self._settle()
            for size, free in self._free.items():
                for address in free:
                    self.driver.cuMemFreeHost(address)
                    self._starts.remove(address)
                    del self._sizes[address]
                    self.statistics.add("segment", True, -1)
                    self.statistics.add("reserved_bytes", True, -size)
            self._free.clear()
