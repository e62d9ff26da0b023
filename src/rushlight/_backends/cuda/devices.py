"""The GPUs of the process: contexts, the current device of each thread, and what is known of a device."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

from rushlight._backends.cuda.driver.api import Driver
from rushlight._backends.cuda.driver.attributes import CAPTURE_MODES, DEVICE
from rushlight._base.forking import free_after_fork

__all__ = ["Devices"]


class _PerThread(threading.local):
    """The device that calls without one mean, and the device whose context is the thread's."""

    current = 0
    bound = -1


class Devices:
    """Primary contexts of the driver's devices, each made by its first use."""

    def __init__(self, driver: Driver) -> None:
        self.driver, self.count = driver, driver.cuDeviceGetCount()
        self.contexts: list[int] = [0] * self.count
        self.thread = _PerThread()
        self._lock = free_after_fork(threading.RLock())
        self._forked = False
        self.entered: Callable[[], None] = lambda: None  # called when this thread's context is another
        self.in_child: Callable[[], None] = lambda: None  # called in a forked process
        os.register_at_fork(after_in_child=self._in_child)

    def _in_child(self) -> None:
        """The contexts of the parent are none of the child's."""
        self._forked = any(self.contexts)
        self.thread = _PerThread()
        self.in_child()

    @property
    def forked(self) -> bool:
        """Whether this process was forked from one that had a context."""
        return self._forked

    def enter(self, index: int) -> None:
        """Let the driver's calls of this thread work on a device."""
        if self.thread.bound != index:
            self.driver.cuCtxSetCurrent(self.context(index))
            self.thread.bound = index
            self.entered()

    def enter_any(self) -> None:
        """Give this thread a context where it has none: events and addresses are those of any."""
        if self.thread.bound < 0:
            self.enter(self.thread.current)

    @contextmanager
    def aside(self, index: int) -> Iterator[None]:
        """As `enter`, for destructors, which run in the middle of other calls: behind it the thread's device is the same."""
        before = self.thread.bound
        self.enter(index)
        try:
            yield
        finally:
            if before >= 0:
                self.enter(before)

    @contextmanager
    def unseen(self) -> Iterator[None]:
        """Calls meanwhile allocate, load modules and ask events, whatever captures go on: they are no part of them."""
        before = self.driver.cuThreadExchangeStreamCaptureMode(CAPTURE_MODES["relaxed"])
        try:
            yield
        finally:
            self.driver.cuThreadExchangeStreamCaptureMode(before)

    def context(self, index: int) -> int:
        """The primary context of a device."""
        if self._forked:
            raise RuntimeError(
                "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the 'spawn' start method"
            )
        found = self.contexts[index]
        if not found:
            with self._lock:
                found = self.contexts[index] = self.contexts[index] or self.driver.cuDevicePrimaryCtxRetain(index)
        return found

    @property
    def is_initialized(self) -> bool:
        """Whether a context exists."""
        return any(self.contexts) and not self._forked

    @cache  # noqa: B019  (there is one object of the class, for ever)
    def attribute(self, name: str, index: int) -> int:
        """A property of a device by its name in `attributes.DEVICE`."""
        return self.driver.cuDeviceGetAttribute(DEVICE[name], index)

    @cache  # noqa: B019
    def properties(self, index: int) -> Mapping[str, Any]:
        """Facts about a device, under PyTorch's names."""
        driver = self.driver

        def value(name: str) -> int:
            return self.attribute(name, index)

        return {
            "name": driver.cuDeviceGetName(index), "major": value("compute_capability_major"), "minor": value("compute_capability_minor"),
            "total_memory": driver.cuDeviceTotalMem(index), "multi_processor_count": value("multiprocessor_count"),
            "warp_size": value("warp_size"), "max_threads_per_block": value("max_threads_per_block"),
            "max_threads_per_multi_processor": value("max_threads_per_multiprocessor"),
            "regs_per_multiprocessor": value("max_registers_per_multiprocessor"),
            "shared_memory_per_block": value("max_shared_memory_per_block"),
            "shared_memory_per_block_optin": value("max_shared_memory_per_block_optin"),
            "shared_memory_per_multiprocessor": value("max_shared_memory_per_multiprocessor"),
            "L2_cache_size": value("l2_cache_size"), "memory_bus_width": value("global_memory_bus_width"),
            "memory_clock_rate": value("memory_clock_rate"), "clock_rate": value("clock_rate"), "is_integrated": value("integrated"),
            "is_multi_gpu_board": value("multi_gpu_board"), "pci_bus_id": value("pci_bus_id"), "pci_device_id": value("pci_device_id"),
            "pci_domain_id": value("pci_domain_id"), "uuid": driver.cuDeviceGetUuid(index),
        }  # fmt: skip
