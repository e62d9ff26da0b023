"""NVIDIA's GPUs: their backend, and why there is none."""

from __future__ import annotations

from typing import Any

from rushlight._backends.registry import backend_of, is_replaced
from rushlight._base.lazy import require
from rushlight._engine.random.random import generator_of
from rushlight._types.device import Device

__all__ = [
    "generator_of",  # the default random generator of a device
    "gpus",  # the backend of all GPUs
    "memory_settings",  # what `PYTORCH_CUDA_ALLOC_CONF` says, parsed
    "why_no_gpu",  # the reason, or None
]


def why_no_gpu() -> str | None:
    """Why no GPU can be used; None where one can."""
    if is_replaced("cuda"):
        return None
    reason: str | None = require("rushlight._backends.cuda.driver.choice").unavailable()
    return reason


def gpus() -> Any:
    """The backend of all GPUs; MissingDeviceError where there is none."""
    return backend_of(Device("cuda", 0))


def memory_settings(text: str) -> Any:
    """The settings of the caching allocator in a text; ValueError for those that it does not have."""
    return require("rushlight._backends.cuda.memory.settings").parse(text)
