"""Written by `python -m rushlight stubs` from the operator table and the live package: change those, not this file."""

from builtins import bool as _bool, int as _int, list as _list, str as _str
from collections import defaultdict as _defaultdict
from collections.abc import Iterator as _Iterator
from rushlight.profiler.ranges import ForeignRanges as _ForeignRanges
from typing import Any as _Any, NoReturn as _NoReturn

from rushlight._C._autograd import DeviceType as DeviceType
class EnforceUnique:

    def __init__(self) -> None:
        ...

    def see(self, *key: _Any) -> None:
        ...
from rushlight.profiler.events import EventList as EventList
from rushlight.profiler.ranges import ForeignRanges as ForeignRanges
from rushlight.profiler.events import FunctionEvent as FunctionEvent
from rushlight.profiler.events import FunctionEventAvg as FunctionEventAvg
from rushlight.profiler.events import Interval as Interval
from rushlight.profiler.events import Kernel as Kernel
class KinetoStepTracker:
    _step_dict: _defaultdict[_str, _int]

    @classmethod
    def init_step_count(cls, requester: _str) -> None:
        ...

    @classmethod
    def erase_step_count(cls, requester: _str) -> _bool:
        ...

    @classmethod
    def increment_step(cls, requester: _str) -> _int:
        ...

    @classmethod
    def current_step(cls) -> _int:
        ...
MEMORY_EVENT_NAME: _str
class MemRecordsAcc:

    def __init__(self, mem_records: _list[_Any]) -> None:
        ...

    def in_interval(self, start_ns: _int, end_ns: _int) -> _Iterator[_Any]:
        ...
OUT_OF_MEMORY_EVENT_NAME: _str
from rushlight.profiler.profile import ProfilerActivity as ProfilerActivity
class emit_itt(_ForeignRanges):
    ...
class emit_nvtx(_ForeignRanges):
    ...
from rushlight.profiler import kineto_available as kineto_available
def load_nvprof(path: _str) -> _NoReturn: ...
def parse_nvprof_trace(path: _str) -> _NoReturn: ...
from rushlight.profiler.session import profile as profile
from rushlight.profiler.ranges import record_function as record_function
