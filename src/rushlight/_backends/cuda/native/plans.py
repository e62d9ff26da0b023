"""Python's side of a GPU's native plans: requests that native code cannot serve, the streams of threads, programs
laid out as tables.
"""

from __future__ import annotations

import atexit
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rushlight._backends.cuda.native.launch_native import LIBRARY_FAILED
from rushlight._backends.cuda.native.unit import MOST_DEVICES, GpuPlans
from rushlight._backends.cuda.native.words_native import AT
from rushlight._backends.current_streams import tell
from rushlight._backends.protocol import Block
from rushlight._types.device import Device

if TYPE_CHECKING:
    from rushlight._backends.cuda.backend import CudaBackend

__all__ = ["DevicePlans"]


class _Owner(Block):
    """The owner of all storages that native code makes on a device; their memory goes back through their `release`."""

    __slots__ = ()

    movable = True


class DevicePlans:
    """Native plans of one device: `native` is what the host knows of it."""

    def __init__(self, backend: CudaBackend, index: int) -> None:
        self.backend, self.index, self.device = backend, index, Device("cuda", index)
        self.allocator = backend.memory.allocators[index]
        unit = self.unit = self.allocator.unit
        self.native = GpuPlans(unit, _Owner(0, 0, self.device))
        for word, function in (
            (AT.allocate_slow, self._allocate),
            (AT.zero_slow, self._zero),
            (AT.release_slow, self.allocator.released),
            (AT.fail_slow, self._fail),
        ):
            unit.use(word, function)
        atexit.register(self._end)
        self.can_launch = index < MOST_DEVICES and self._find_functions()
        if index == 0:
            backend.devices.entered = self._tell_thread
            tell(lambda side: self._tell_thread())
            backend.devices.in_child = self._in_child
        self.allocator.held_up = backend.launch.blocking or not self.can_launch

    def _end(self) -> None:
        """The interpreter ends: what Python would be told of memory, nobody wants to know."""
        self.unit.words[AT.release_slow] = 0

    def _find_functions(self) -> bool:
        """Take the driver's C functions; False where it has none."""
        driver, words = self.backend.driver, self.unit.words
        try:
            words[AT.launch_kernel] = driver.function_address("cuLaunchKernel")
            words[AT.memset] = driver.function_address("cuMemsetD8Async")
            words[AT.query] = driver.function_address("cuStreamQuery")
            words[AT.encode_map] = driver.function_address("cuTensorMapEncodeTiled")
            words[AT.encode_windows] = driver.function_address("cuTensorMapEncodeIm2col")
            words[AT.launch_graph] = driver.function_address("cuGraphLaunch")
            words[AT.set_node] = driver.function_address("cuGraphExecKernelNodeSetParams")
        except (NotImplementedError, AttributeError):
            return False
        if driver.emulated:
            words[AT.lend], words[AT.take_back] = map(driver.function_address, ("lend", "take_back"))
            driver.queue.count_notes(words[AT.note_count])  # type: ignore[attr-defined]
            driver.note_of = self.backend.launch.note_of  # type: ignore[attr-defined]
        return True

    def _tell_thread(self) -> None:
        """Native code learns this thread's context and streams."""
        self.unit.tell_thread(self.backend.devices.thread.bound, self.backend.streams.handles()[:MOST_DEVICES])

    def _in_child(self) -> None:
        """Nothing runs natively in a process that was forked from one with a context: Python says why."""
        for allocator in self.backend.memory.allocators:
            allocator.held_up = True

    def nothing_waits(self) -> None:
        """The device was waited for: its queues have room."""
        self.unit.words[AT.waiting] = self.unit.words[AT.several_streams] = 0

    @contextmanager
    def without_driver(self) -> Iterator[None]:
        """Launches of native code do nothing in a block, which measures the host's own work: results hold anything."""
        words = self.unit.words
        held = [words[place] for place in (AT.launch_kernel, AT.lend, AT.take_back)]
        words[AT.launch_kernel], words[AT.lend], words[AT.take_back] = self.unit.address("no_launch"), 0, 0
        try:
            yield
        finally:
            words[AT.launch_kernel], words[AT.lend], words[AT.take_back] = held

    # ***** what native code leaves to Python *****

    def _allocate(self, nbytes: int) -> int:
        self.backend.devices.enter(self.index)
        return self.allocator.lend_natively(nbytes, self.backend.streams.current(self.index))

    def _zero(self, address: int, nbytes: int) -> None:
        self.backend.driver.cuMemsetD8Async(address, 0, nbytes, self.backend.enter(self.device))

    def _fail(self, code: int) -> None:
        if code >= LIBRARY_FAILED:
            raise RuntimeError(f"a call of a library failed with status {code - LIBRARY_FAILED}")
        raise self.backend.driver.error_of(code, "cuLaunchKernel")
