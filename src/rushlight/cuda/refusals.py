"""What needs a GPU, under its name in `torch.cuda`: functions that refuse, and classes of which there are no objects."""

from __future__ import annotations

from typing import Any, NoReturn

from rushlight._interface.base import MissingDeviceError

__all__ = ["gpu_class", "needs_gpu"]


def needs_gpu(name: str) -> Any:
    """A function that may be mentioned; calling it is the error of a machine without a GPU."""

    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise MissingDeviceError(f"torch.cuda.{name} needs a CUDA GPU, and rushlight computes on the CPU only")

    refuse.__name__ = refuse.__qualname__ = name.rpartition(".")[2]
    refuse.__module__ = "rushlight.cuda"
    refuse.__doc__ = "RuntimeError: there is no GPU."
    return refuse


def gpu_class(name: str) -> Any:
    """A class for `isinstance` and annotations, of which nobody has an object."""
    return type(
        name,
        (),
        {"__new__": needs_gpu(name), "__module__": "rushlight.cuda", "__doc__": "RuntimeError: there is no GPU."},
    )
