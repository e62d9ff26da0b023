"""Marks for NVIDIA's profilers, as `torch.cuda.profiler`: begin and end of what they record."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rushlight.cuda.access import device_of, gpu, gpus, on_gpu

__all__ = ["profile", "start", "stop"]


@on_gpu
def start() -> None:
    """Let a profiler that watches this process record."""
    gpus().initialize(device_of(None))
    gpus().driver.cuProfilerStart()


@on_gpu
def stop() -> None:
    """Let it record no more."""
    gpus().initialize(device_of(None))
    gpus().driver.cuProfilerStop()


@contextmanager
def profile() -> Iterator[None]:
    """A context within which it records."""
    gpu("profiler.profile")
    try:
        start()
        yield
    finally:
        stop()
