"""Times of a program: operators, backward, memory, ranges of its own, as `torch.profiler`.

>>> from rushlight.profiler import profile, record_function
>>> with profile(profile_memory=True) as prof:
...     with record_function("square"):
...         y = torch.ones(4, 8).square()
>>> [(row.key, row.count) for row in prof.key_averages() if row.key in ("square", "aten::square", "aten::ones")]
[('square', 1), ('aten::ones', 1), ('aten::square', 1)]
"""

from __future__ import annotations

from rushlight.profiler import itt
from rushlight.profiler.events import DeviceType
from rushlight.profiler.execution_trace import ExecutionTraceObserver
from rushlight.profiler.profile import (
    ProfilerAction,
    ProfilerActivity,
    _KinetoProfile,
    profile,
    schedule,
    supported_activities,
    tensorboard_trace_handler,
)
from rushlight.profiler.ranges import record_function

__all__ = [
    "DeviceType",
    "ExecutionTraceObserver",
    "ProfilerAction",
    "ProfilerActivity",
    "_KinetoProfile",
    "itt",
    "kineto_available",
    "profile",
    "record_function",
    "schedule",
    "supported_activities",
    "tensorboard_trace_handler",
]


def kineto_available() -> bool:
    """True: traces can be recorded and exported, by this package's own recorder."""
    return True
