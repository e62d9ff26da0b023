"""The profiler under its older name, as `torch.autograd.profiler`; see `torch.profiler`."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NoReturn

from rushlight._interface.tensors import OBSERVED, STATE
from rushlight.profiler import DeviceType, ProfilerActivity, kineto_available, record_function
from rushlight.profiler.events import (
    MEMORY_EVENT_NAME,
    OUT_OF_MEMORY_EVENT_NAME,
    EventList,
    FunctionEvent,
    FunctionEventAvg,
    Interval,
    Kernel,
)
from rushlight.profiler.ranges import ForeignRanges
from rushlight.profiler.session import profile

__all__ = [
    "MEMORY_EVENT_NAME", "OUT_OF_MEMORY_EVENT_NAME", "DeviceType", "EnforceUnique", "EventList", "FunctionEvent", "FunctionEventAvg", "Interval",
    "Kernel", "KinetoStepTracker", "MemRecordsAcc", "ProfilerActivity", "emit_itt", "emit_nvtx", "kineto_available", "load_nvprof",
    "parse_nvprof_trace", "profile", "record_function",
]  # fmt: skip


class EnforceUnique:
    """Raises RuntimeError when it sees the same key twice.

    >>> seen = torch.autograd.profiler.EnforceUnique()
    >>> seen.see("a", 1)
    """

    def __init__(self) -> None:
        self.seen: set[Any] = set()

    def see(self, *key: Any) -> None:
        """Note a key."""
        if key in self.seen:
            raise RuntimeError(f"duplicate key: {key}")
        self.seen.add(key)


class KinetoStepTracker:
    """How many steps a program has made, where several parts of it (a profiler, optimizers) count: the largest count."""

    _current_step = 0
    _step_dict: defaultdict[str, int] = defaultdict(int)

    @classmethod
    def init_step_count(cls, requester: str) -> None:
        """A new counter, which starts where the others are."""
        cls._step_dict[requester] = cls._current_step

    @classmethod
    def erase_step_count(cls, requester: str) -> bool:
        """Forget a counter; whether there was one."""
        return cls._step_dict.pop(requester, None) is not None

    @classmethod
    def increment_step(cls, requester: str) -> int:
        """Count a step; the step that the program is in."""
        if requester not in cls._step_dict:
            cls.init_step_count(requester)
        cls._step_dict[requester] += 1
        cls._current_step = max(cls._current_step, max(cls._step_dict.values()))
        return cls._current_step

    @classmethod
    def current_step(cls) -> int:
        """The step that the program is in."""
        return cls._current_step


class MemRecordsAcc:
    """Records of memory in the order of their times, for asking which lie in an interval."""

    def __init__(self, mem_records: list[Any]) -> None:
        self._records = sorted(mem_records, key=lambda record: record[0].start_ns())
        self._starts = [record[0].start_ns() for record in self._records]

    def in_interval(self, start_ns: int, end_ns: int) -> Iterator[Any]:
        """Those that begin in the interval, its ends included."""
        yield from self._records[bisect_left(self._starts, start_ns) : bisect_right(self._starts, end_ns)]


class emit_itt(ForeignRanges):
    """Ranges for VTune: RuntimeError on entering, since this is no build with ITT; nothing with `enabled=False`."""

    _needs = "ranges for VTune need Intel's ITT"


class emit_nvtx(ForeignRanges):
    """Ranges for nvprof and Nsight: RuntimeError on entering, since there is no CUDA; nothing with `enabled=False`."""

    _needs = "ranges for Nsight need CUDA's NVTX"


def load_nvprof(path: str) -> NoReturn:
    """NotImplementedError: files of nvprof come from CUDA, which is not here."""
    raise NotImplementedError(
        f"load_nvprof({path!r}): rushlight reads no profiles of nvprof: it has no CUDA that could write them"
    )


def parse_nvprof_trace(path: str) -> NoReturn:
    """NotImplementedError: files of nvprof come from CUDA, which is not here."""
    raise NotImplementedError(
        f"parse_nvprof_trace({path!r}): rushlight reads no profiles of nvprof: it has no CUDA that could write them"
    )


def __getattr__(name: str) -> Any:
    if name == "_is_profiler_enabled":  # what programs look at before they enter ranges
        return bool(STATE.word & OBSERVED)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
