"""`triton.runtime.driver`: the device that kernels run on."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Sequence
from typing import Any

import rushlight

from ..compiler.compiler import GPUTarget
from ..testing import do_bench

__all__ = ["Driver", "driver"]

_CPU = GPUTarget("cpu", platform.machine(), 1)
_TARGETS = {_CPU.backend: _CPU}


class _Utilities:
    """Facts of devices."""

    @staticmethod
    def get_device_properties(device: int = 0) -> dict[str, int]:
        """Sizes that programs choose their blocks by.  The CPU has no limit of shared memory; a large one is named."""
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
    def kind_of(values: Sequence[Any]) -> str:
        """The type of the device of a launch: that of its tensors; ValueError where they are on several."""
        found = ""
        for value in values:
            device = getattr(value, "device", None)
            if device is not None and hasattr(value, "data_ptr"):
                if found and device.type != found:
                    raise ValueError(
                        f"Pointer argument cannot be accessed from Triton (tensors on {found} and on {device.type} in one launch)"
                    )
                found = device.type
        return found or "cpu"

    @staticmethod
    def target_of(kind: str) -> GPUTarget:
        """What kernels for tensors on a type of device are compiled for."""
        found = _TARGETS.get(kind)
        if found is not None:
            return found
        raise NotImplementedError(
            f"kernels of the Triton language run on the CPU here; a tensor is on {kind!r} (move it by `.cpu()`)"
        )

    def get_current_target(self) -> GPUTarget:
        return _CPU

    @staticmethod
    def get_current_device() -> int:
        return 0

    @staticmethod
    def set_current_device(device: int) -> None:
        """One CPU: nothing changes."""

    @staticmethod
    def get_current_stream(device: int = 0) -> int:
        return 0

    @staticmethod
    def get_device_capability(device: int = 0) -> tuple[str, int]:
        return ("cpu", 0)

    @staticmethod
    def get_active_torch_device() -> Any:
        return rushlight.device("cpu")

    @staticmethod
    def get_device_interface() -> Any:
        return rushlight.cpu

    @staticmethod
    def is_active() -> bool:
        return True

    @staticmethod
    def get_empty_cache_for_benchmark() -> Any:
        """256 MB, to be written between measurements."""
        return rushlight.empty(1 << 26, dtype=rushlight.int32)

    @staticmethod
    def clear_cache(cache: Any) -> None:
        cache.zero_()

    def get_benchmarker(self) -> Callable[..., Any]:
        return do_bench


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
