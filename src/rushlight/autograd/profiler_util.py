"""The events of profiles under the name of the module that PyTorch keeps them in; see `torch.profiler`."""

from __future__ import annotations

from rushlight.autograd.profiler import (
    MEMORY_EVENT_NAME,
    OUT_OF_MEMORY_EVENT_NAME,
    DeviceType,
    EventList,
    FunctionEvent,
    FunctionEventAvg,
    Interval,
    Kernel,
    MemRecordsAcc,
)

__all__ = [
    "MEMORY_EVENT_NAME", "OUT_OF_MEMORY_EVENT_NAME", "DeviceType", "EventList", "FunctionEvent", "FunctionEventAvg", "Interval", "Kernel",
    "MemRecordsAcc",
]  # fmt: skip
