"""NVIDIA's profiler, as `torch.cuda.profiler`: it needs a GPU."""

from __future__ import annotations

from rushlight.cuda.refusals import needs_gpu

__all__ = ["profile", "start", "stop"]

profile = needs_gpu("profiler.profile")
start = needs_gpu("profiler.start")
stop = needs_gpu("profiler.stop")
