"""Functions of CUDA's runtime and of NVIDIA's management library."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

from rushlight._interface.base import MissingDeviceError
from rushlight.cuda.access import device_of, gpu, gpus, on_gpu, why_no_gpu

__all__ = [
    "CudaError", "DeferredCudaCallError", "GreenContext", "check_error", "clock_rate", "cudaStatus", "cudart", "device_memory_used", "memory_usage",
    "power_draw", "temperature", "utilization",
]  # fmt: skip


def error_text(code: int) -> str:
    """The text of NVIDIA's runtime for the number of an error."""
    return f"CUDA error {code}" if why_no_gpu() is not None else str(gpus().error_text(code))


class CudaError(RuntimeError):
    """A call of `cudart()` returned an error."""

    def __init__(self, code: int) -> None:
        super().__init__(f"{error_text(int(code))} ({int(code)})")


class DeferredCudaCallError(Exception):
    """A call that waited for the GPU failed; never raised here."""


class cudaStatus:
    """Numbers that calls of `cudart()` return."""

    SUCCESS = 0
    ERROR_NOT_READY = 34


def check_error(res: int) -> None:
    """CudaError for a number that is not `cudaStatus.SUCCESS`."""
    if res != cudaStatus.SUCCESS:
        raise CudaError(res)


def _status(call: Any, *args: Any) -> int:
    """The number of the error that a call raises; 0 where it raises none."""
    try:
        call(*args)
    except RuntimeError as error:
        return int(getattr(error, "error_code", 999)) or 999
    return cudaStatus.SUCCESS


class _Error(int):
    """The number of an error, as `cudart().cudaError`."""

    success = 0


@on_gpu
def _sleep(cycles: int) -> None:
    """Let the current stream do nothing for so many cycles of a multiprocessor."""
    backend, place = gpus(), device_of(None)
    seconds = cycles / (backend.properties(place)["clock_rate"] * 1000)
    backend.driver.cuLaunchHostFunc(backend.enter(place), lambda: time.sleep(seconds))


@on_gpu
def cudart() -> Any:
    """The calls of the runtime that programs make through PyTorch: `cudaHostRegister`, `cudaMemGetInfo`, ...; all but
    those that return something else return a number for `check_error`.
    """
    backend = gpus()
    backend.initialize(device_of(None))
    driver = backend.driver
    return SimpleNamespace(
        cudaError=_Error,
        cudaHostRegister=lambda pointer, size, flags=0: _status(backend.memory.pinned.register, pointer, size, flags),
        cudaHostUnregister=lambda pointer: _status(backend.memory.pinned.unregister, pointer),
        cudaMemGetInfo=lambda device=None: backend.memory_info(device_of(device)),
        cudaProfilerStart=lambda: _status(driver.cuProfilerStart),
        cudaProfilerStop=lambda: _status(driver.cuProfilerStop),
        cudaStreamCreate=lambda address: _status(backend.create_stream, address),
        cudaStreamDestroy=lambda stream: _status(driver.cuStreamDestroy, stream),
        cudaStreamSynchronize=lambda stream: _status(driver.cuStreamSynchronize, stream),
        cudaGetErrorString=lambda code: error_text(int(code)),
    )


@on_gpu
def utilization(device: Any = None) -> int:
    """Percent of the last second in which a kernel ran; RuntimeError where NVIDIA's management library is missing."""
    return int(gpus().management(device_of(device)).utilization())


@on_gpu
def memory_usage(device: Any = None) -> int:
    """Percent of the last second in which memory was read or written."""
    return int(gpus().management(device_of(device)).memory_usage())


@on_gpu
def device_memory_used(device: Any = None) -> int:
    """Bytes of memory that all programs hold."""
    return int(gpus().management(device_of(device)).memory_used())


@on_gpu
def temperature(device: Any = None) -> int:
    """Degrees Celsius."""
    return int(gpus().management(device_of(device)).temperature())


@on_gpu
def power_draw(device: Any = None) -> int:
    """Milliwatts."""
    return int(gpus().management(device_of(device)).power_draw())


@on_gpu
def clock_rate(device: Any = None) -> int:
    """Megahertz of the multiprocessors."""
    return int(gpus().management(device_of(device)).clock_rate())


class GreenContext:
    """A share of a GPU's multiprocessors; NotImplementedError: the driver's calls for them are not made here."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        raise cls._missing()

    @staticmethod
    def _missing() -> Exception:
        try:
            gpu("GreenContext")
        except MissingDeviceError as error:
            return error
        return NotImplementedError("rushlight has no torch.cuda.GreenContext yet")

    @staticmethod
    def create(
        *, num_sms: int | None = None, workqueue_scope: Any = None, workqueue_concurrency_limit: Any = None, device_id: int | None = None
    ) -> Any:  # fmt: skip
        """NotImplementedError."""
        raise GreenContext._missing()

    @staticmethod
    def max_workqueue_concurrency(device_id: int | None = None) -> int:
        """NotImplementedError."""
        raise GreenContext._missing()

    def set_context(self) -> None:
        """NotImplementedError."""
        raise self._missing()

    def pop_context(self) -> None:
        """NotImplementedError."""
        raise self._missing()

    def Stream(self) -> Any:
        """NotImplementedError."""
        raise self._missing()
