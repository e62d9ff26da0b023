"""Shared parts of the pages of `torch.cuda`: the GPUs' backend, the device that an argument means, and refusals where
there is no GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, NoReturn, TypeVar

from rushlight import AcceleratorError
from rushlight import device as Device
from rushlight._interface.base import MissingDeviceError, import_whole
from rushlight._interface.cuda import backend_of, why_absent

__all__ = ["OnGpu", "device_of", "gpu", "gpu_class", "gpus", "index_of", "needs_gpu", "on_gpu", "on_gpus", "why_no_gpu"]

F = TypeVar("F", bound=Callable[..., Any])


def why_no_gpu() -> str | None:
    """Why no GPU can be used; None where one can."""
    return why_absent("cuda")


def gpus() -> Any:
    """The backend of all GPUs; MissingDeviceError where there is none."""
    return backend_of(Device("cuda", 0))


def gpu(name: str) -> Any:
    """The backend of all GPUs; MissingDeviceError that names who asked where there is none."""
    reason = why_no_gpu()
    if reason is not None:
        raise MissingDeviceError(f"torch.cuda.{name} needs a CUDA GPU, and there is none to use: {reason}")
    return gpus()


def on_gpu(function: F) -> F:
    """A function of the page that first sees whether there is a GPU."""
    page = function.__module__.partition(".cuda")[2].lstrip(".")
    name = f"{page}.{function.__name__}" if page in ("comm", "nccl", "nvtx", "profiler") else function.__name__

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        gpu(name)
        return function(*args, **kwargs)

    return call  # type: ignore[return-value]


class OnGpu:
    """A class of which there are objects where there is a GPU."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        gpu(cls.__name__)
        return super().__new__(cls)


def index_of(device: Any, optional: bool = True, others: bool = False) -> int:
    """The number of the GPU that an argument means: a number, a device, its name, or None for the current one.

    With `others` a device that is no GPU is -1.  ValueError for those without it, and for a device without a number
    unless it is `optional`.
    """
    if device is None:
        if not optional:
            raise ValueError("Expected a torch.device with a specified index or an integer, but got:None")
        return int(gpus().current_device())
    if isinstance(device, int) and not isinstance(device, bool):
        return device
    place = Device(device) if isinstance(device, str) else device
    if isinstance(place, import_whole("rushlight.cuda").device):
        return int(place.idx)
    if isinstance(place, Device):
        if place.type != "cuda":
            if others:
                return -1
            raise ValueError(f"Expected a cuda device, but got: {place}")
        if place.index is None:
            return index_of(None, optional)
        return place.index
    raise ValueError(f"Expected a torch.device with a specified index or an integer, but got:{device!r}")


def device_of(device: Any, what: str = "") -> Device:
    """The same as a device; AcceleratorError for a number that no GPU has, AssertionError where it is the device whose
    properties are asked for (`what` it is called then).
    """
    index = index_of(device)
    count = gpus().device_count()
    if not 0 <= index < count:
        if what:
            raise AssertionError(f"Invalid {what}id {index}: there are {count} GPUs, numbered from 0")
        error: Any = AcceleratorError(
            f"CUDA error: invalid device ordinal {index}: there are {count} devices, numbered from 0"
        )
        error.error_code = 101
        raise error
    return Device("cuda", index)


def needs_gpu(name: str) -> Any:
    """A function that is not there: with a GPU NotImplementedError, without one the error of a machine without."""

    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        gpu(name)
        raise NotImplementedError(f"rushlight has no torch.cuda.{name} yet")

    refuse.__name__ = refuse.__qualname__ = name.rpartition(".")[2]
    refuse.__module__ = "rushlight.cuda"
    refuse.__doc__ = "RuntimeError without a GPU, NotImplementedError with one."
    return refuse


def gpu_class(name: str) -> Any:
    """A class for `isinstance` and annotations, of which nobody has an object."""
    return type(name, (), {"__new__": needs_gpu(name), "__module__": "rushlight.cuda", "__doc__": "Nothing is of it."})


def on_gpus(kind: Any) -> Any:
    """The class of tensors on GPUs (`torch.cuda.FloatTensor`) beside one of the CPU (`torch.FloatTensor`)."""
    place = kind.__module__.replace("torch", "torch.cuda", 1)
    return type(kind)(kind.__name__, (), {"dtype": kind.dtype, "device_type": "cuda", "__module__": place})
