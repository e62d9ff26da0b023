"""`triton.runtime.driver`: the device that kernels run on."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Sequence
from typing import Any

import rushlight
from rushlight._interface.devices import backend_of

from ..compiler.compiler import GPUTarget
from ..testing import do_bench

__all__ = ["Driver", "driver"]

_HOST = rushlight.device("cpu")
_NUMBERS = frozenset((int, float, bool, type(None)))


class _Utilities:
    """Facts of devices."""

    @staticmethod
    def get_device_properties(device: int = 0) -> dict[str, int]:
        """Sizes that programs choose their blocks by.  The CPU has no limit of shared memory; a large one is named."""
        if rushlight.cuda.is_available():
            found = rushlight.cuda.get_device_properties(device)
            return {
                "max_shared_mem": found.shared_memory_per_block_optin,
                "multiprocessor_count": found.multi_processor_count,
                "max_num_regs": found.regs_per_multiprocessor,
                "warpSize": found.warp_size,
            }
        return {
            "max_shared_mem": 1 << 20,
            "multiprocessor_count": os.cpu_count() or 1,
            "max_num_regs": 1 << 16,
            "warpSize": 1,
            "sm_clock_rate": 0,
            "mem_clock_rate": 0,
            "mem_bus_width": 0,
        }


class Driver:
    """The active driver.  Kernels run where their tensors are; questions without a tensor are answered for the CPU."""

    def __init__(self) -> None:
        self.utils = _Utilities()

    @staticmethod
    def device_of(values: Sequence[Any]) -> Any:
        """The device of a launch: that of its tensors; ValueError where they are on several."""
        found, first = None, 0
        for place, value in enumerate(values):
            if type(value) in _NUMBERS or not hasattr(value, "data_ptr"):
                continue
            device = getattr(value, "device", None)
            if found is None:
                found, first = device, place
            elif device is not found and device is not None and device != found:
                raise ValueError(_on_several((first, found), (place, device)))
        return found or _HOST

    @staticmethod
    def target_of(device: Any) -> GPUTarget:
        """Target of kernels for tensors on a device."""
        major = backend_of(device).properties(device).get("major")
        if major is None:
            return GPUTarget(device.type, platform.machine(), 1)
        return GPUTarget(device.type, 10 * major + backend_of(device).properties(device)["minor"], 32)

    def get_current_target(self) -> GPUTarget:
        """That of the accelerator, or of the CPU where there is none."""
        return self.target_of(self.get_active_torch_device())

    @staticmethod
    def get_current_device() -> int:
        return rushlight.cuda.current_device() if rushlight.cuda.is_available() else 0

    @staticmethod
    def set_current_device(device: int) -> None:
        if rushlight.cuda.is_available():
            rushlight.cuda.set_device(device)

    @staticmethod
    def get_current_stream(device: int = 0) -> int:
        return 0

    @staticmethod
    def get_device_capability(device: int = 0) -> Any:
        return rushlight.cuda.get_device_capability(device) if rushlight.cuda.is_available() else ("cpu", 0)

    @staticmethod
    def get_active_torch_device() -> Any:
        """The current accelerator, or the CPU."""
        return rushlight.device("cuda", rushlight.cuda.current_device()) if rushlight.cuda.is_available() else _HOST

    @staticmethod
    def get_device_interface() -> Any:
        return rushlight.cuda if rushlight.cuda.is_available() else rushlight.cpu

    @staticmethod
    def is_active() -> bool:
        return True

    @staticmethod
    def get_empty_cache_for_benchmark() -> Any:
        """256 MB, to be written between measurements."""
        return rushlight.empty(1 << 26, dtype=rushlight.int32, device=Driver.get_active_torch_device())

    @staticmethod
    def clear_cache(cache: Any) -> None:
        cache.zero_()

    def get_benchmarker(self) -> Callable[..., Any]:
        return do_bench


def _on_several(*places: tuple[int, Any]) -> str:
    """Why a launch has no device; the argument named is the one on the host, or the second."""
    (at, device), (_, other) = sorted(places, key=lambda x: (x[1] != _HOST, -x[0]))
    told = " and ".join(f"argument {i} is on {d}" for i, d in places)
    hint = " (cpu tensor?)" if device == _HOST else ""
    return f"Pointer argument (at {at}) cannot be accessed from Triton{hint}: {told}, and a kernel runs on one device; move it, as by `.to('{other}')`"


class DriverConfig:
    """Holds the driver in use."""

    def __init__(self) -> None:
        self._default = Driver()
        self._active: Any = self._default

    @property
    def default(self) -> Any:
        return self._default

    @property
    def active(self) -> Any:
        return self._active

    def set_active(self, driver: Any) -> None:
        self._active = driver

    def reset_active(self) -> None:
        self._active = self._default


driver = DriverConfig()


def __getattr__(name: str) -> Any:
    if name in ("active", "default"):
        return getattr(driver, name)
    raise AttributeError(f"module 'triton.runtime.driver' has no attribute {name!r}")
