"""Written by `python -m rushlight stubs` from the operator table and the live package: change those, not this file."""

import enum as _enum
from builtins import dict as _dict, float as _float, int as _int, str as _str
from collections.abc import Callable as _Callable, Mapping as _Mapping, Sequence as _Sequence
from datetime import datetime as _datetime, timedelta as _timedelta
from rushlight.monitor import Aggregation as _Aggregation, Event as _Event, EventHandlerHandle as _EventHandlerHandle, data_value_t as _data_value_t
from types import UnionType as _UnionType
from typing import Any as _Any

class Aggregation(_enum.Enum):

    def __int__(self) -> _int:
        ...

    def __str__(self) -> _str:
        ...
COUNT: _Aggregation
class Event:

    def __init__(self, name: _str, timestamp: _datetime, data: _Mapping[_str, _data_value_t]) -> None:
        ...
class EventHandlerHandle:
    _callback: _Callable[[_Event], None]

    def __init__(self) -> None:
        ...
MAX: _Aggregation
MEAN: _Aggregation
MIN: _Aggregation
STAT_EVENT: _str
SUM: _Aggregation
class Stat:

    def __init__(self, name: _str, aggregations: _Sequence[_Aggregation], window_size: _timedelta, max_samples: _int | None=...) -> None:
        ...

    @property
    def count(self) -> _int:
        ...

    def add(self, v: _float) -> None:
        ...

    def get(self) -> _dict[_Aggregation, _float]:
        ...

    def _close(self) -> _Event | None:
        ...

    def __del__(self) -> None:
        ...
class TensorboardEventHandler:

    def __init__(self, writer: _Any) -> None:
        ...

    def __call__(self, event: _Event) -> None:
        ...
VALUE: _Aggregation
data_value_t: _UnionType
def log_event(event: _Event) -> None: ...
def register_event_handler(callback: _Callable[[_Event], None]) -> _EventHandlerHandle: ...
def unregister_event_handler(handler: _EventHandlerHandle) -> None: ...
