"""NVIDIA's management library, `libnvidia-ml`: how busy, how warm and how full a GPU is."""

from __future__ import annotations

import ctypes
from typing import Any

__all__ = ["ManagedDevice"]

_SM_CLOCK, _TEMPERATURE_GPU = 1, 0
_MOST_PROCESSES = 256


class _Rates(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class _MemoryUse(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class _Process(ctypes.Structure):
    _fields_ = (
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("instance", ctypes.c_uint),
        ("compute", ctypes.c_uint),
    )


_P, _I = ctypes.c_void_p, ctypes.c_int
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "nvmlInit_v2": (),
    "nvmlErrorString": (_I,),
    "nvmlDeviceGetHandleByPciBusId_v2": (ctypes.c_char_p, _P),
    "nvmlDeviceGetUtilizationRates": (_P, _P),
    "nvmlDeviceGetMemoryInfo": (_P, _P),
    "nvmlDeviceGetTemperature": (_P, _I, _P),
    "nvmlDeviceGetPowerUsage": (_P, _P),
    "nvmlDeviceGetClockInfo": (_P, _I, _P),
    "nvmlDeviceGetComputeRunningProcesses_v3": (_P, _P, _P),
}


def _open() -> Any:
    try:
        return ctypes.CDLL("libnvidia-ml.so.1")
    except OSError as error:
        raise RuntimeError(f"NVIDIA's management library (NVML) is not installed: {error}") from None


class ManagedDevice:
    """A GPU as the management library sees it, found by where it sits."""

    def __init__(self, bus: str) -> None:
        self._library, self._handle = _open(), ctypes.c_void_p()
        self._call("nvmlInit_v2")
        self._call("nvmlDeviceGetHandleByPciBusId_v2", bus.encode(), ctypes.byref(self._handle))

    def _call(self, name: str, *args: Any) -> None:
        code = self._function(name)(*args)
        if code:
            text = self._function("nvmlErrorString", ctypes.c_char_p)(code) or b"unknown"
            raise RuntimeError(f"NVML error: {text.decode()} ({code} from {name})")

    def _function(self, name: str, result: Any = _I) -> Any:
        try:
            found = getattr(self._library, name)
        except AttributeError:
            raise RuntimeError(f"NVIDIA's management library is too old: it has no {name}") from None
        found.argtypes, found.restype = _SIGNATURES[name], result
        return found

    def _number(self, name: str, *args: Any) -> int:
        made = ctypes.c_uint()
        self._call(name, self._handle, *args, ctypes.byref(made))
        return made.value

    def utilization(self) -> int:
        """Percent of the time in which a kernel ran."""
        rates = _Rates()
        self._call("nvmlDeviceGetUtilizationRates", self._handle, ctypes.byref(rates))
        return int(rates.gpu)

    def memory_usage(self) -> int:
        """Percent of the time in which memory was read or written."""
        rates = _Rates()
        self._call("nvmlDeviceGetUtilizationRates", self._handle, ctypes.byref(rates))
        return int(rates.memory)

    def memory_used(self) -> int:
        """Bytes of memory that all programs hold."""
        use = _MemoryUse()
        self._call("nvmlDeviceGetMemoryInfo", self._handle, ctypes.byref(use))
        return int(use.used)

    def temperature(self) -> int:
        """Degrees Celsius."""
        return self._number("nvmlDeviceGetTemperature", _TEMPERATURE_GPU)

    def power_draw(self) -> int:
        """Milliwatts."""
        return self._number("nvmlDeviceGetPowerUsage")

    def clock_rate(self) -> int:
        """Megahertz of the multiprocessors."""
        return self._number("nvmlDeviceGetClockInfo", _SM_CLOCK)

    def processes(self) -> list[tuple[int, int]]:
        """The processes that compute on it, and the bytes that each holds."""
        count, rows = ctypes.c_uint(_MOST_PROCESSES), (_Process * _MOST_PROCESSES)()
        self._call("nvmlDeviceGetComputeRunningProcesses_v3", self._handle, ctypes.byref(count), rows)
        return [(row.pid, row.used) for row in rows[: count.value]]
