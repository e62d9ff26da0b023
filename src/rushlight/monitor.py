"""Events and running statistics of a program, as `torch.monitor`: whoever registers a handler sees them.

>>> from datetime import timedelta
>>> import rushlight.monitor as monitor
>>> seen = []
>>> handle = monitor.register_event_handler(lambda event: seen.append(event.data))
>>> stat = monitor.Stat("loss", [monitor.Aggregation.MEAN, monitor.Aggregation.COUNT], timedelta(hours=1), max_samples=2)
>>> stat.add(1.0), stat.add(3.0)
(None, None)
>>> seen
[{'loss.mean': 2.0, 'loss.count': 2.0}]
>>> monitor.unregister_event_handler(handle)
"""

from __future__ import annotations

import contextlib
import enum
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from rushlight._interface.base import free_after_fork

__all__ = [
    "Aggregation", "Event", "EventHandlerHandle", "STAT_EVENT", "Stat", "TensorboardEventHandler", "data_value_t", "log_event",
    "register_event_handler", "unregister_event_handler",
]  # fmt: skip

data_value_t = str | float | int | bool
STAT_EVENT = "torch.monitor.Stat"


class Aggregation(enum.Enum):
    """Aggregations of a `Stat` over a window."""

    VALUE = 1
    MEAN = 2
    COUNT = 3
    SUM = 4
    MAX = 5
    MIN = 6

    def __int__(self) -> int:
        return int(self.value)

    def __str__(self) -> str:
        return f"Aggregation.{self.name}"


VALUE = Aggregation.VALUE
MEAN = Aggregation.MEAN
COUNT = Aggregation.COUNT
SUM = Aggregation.SUM
MAX = Aggregation.MAX
MIN = Aggregation.MIN
# From the values of a window (never none).
_OF: dict[Aggregation, Callable[[list[float]], float]] = {
    VALUE: lambda held: held[-1], MEAN: lambda held: sum(held) / len(held), COUNT: lambda held: float(len(held)), SUM: sum, MAX: max, MIN: min,
}  # fmt: skip


class Event:
    """Something that happened: a name that says of what kind, when, and its data (strings, numbers, bools by name).

    TypeError for arguments of other types.
    """

    def __init__(self, name: str, timestamp: datetime, data: Mapping[str, data_value_t]) -> None:
        if not isinstance(name, str) or not isinstance(timestamp, datetime) or not isinstance(data, Mapping):
            raise TypeError(
                f"Event(name: str, timestamp: datetime, data: dict), got ({name!r}, {timestamp!r}, {data!r})"
            )
        for key, value in data.items():
            if not isinstance(key, str) or not isinstance(value, (str, float, int)):
                raise TypeError(f"Event(): data holds str, float, int or bool by name, got {key!r}: {value!r}")
        self.name, self.timestamp, self.data = name, timestamp, dict(data)


class EventHandlerHandle:
    """The handle that `register_event_handler` gives and `unregister_event_handler` takes."""

    __slots__ = ("_callback",)
    _callback: Callable[[Event], None]

    def __init__(self) -> None:
        raise TypeError("EventHandlerHandle: handles are made by register_event_handler")


_handlers: list[EventHandlerHandle] = []
_lock = free_after_fork(threading.RLock())


def register_event_handler(callback: Callable[[Event], None]) -> EventHandlerHandle:
    """Call `callback` for every event from now on, in the thread that logs it."""
    if not callable(callback):
        raise TypeError(f"register_event_handler(): callback must be callable, not {type(callback).__name__}")
    handle = object.__new__(EventHandlerHandle)
    handle._callback = callback
    with _lock:
        _handlers.append(handle)
    return handle


def unregister_event_handler(handler: EventHandlerHandle) -> None:
    """Do not call a registered handler any more."""
    if not isinstance(handler, EventHandlerHandle):
        raise TypeError(f"unregister_event_handler(): handler must be EventHandlerHandle, not {type(handler).__name__}")
    with _lock:
        if handler in _handlers:
            _handlers.remove(handler)


def log_event(event: Event) -> None:
    """Give an event to all registered handlers."""
    if not isinstance(event, Event):
        raise TypeError(f"log_event(): event must be Event, not {type(event).__name__}")
    with _lock:
        handlers = list(_handlers)
    for handle in handlers:
        handle._callback(event)


class Stat:
    """Statistics of the values of a window of time; logged as an event "torch.monitor.Stat" with `name.sum`,
    `name.mean`... when it closes.

    A window closes with the first value after `window_size`, with the `max_samples`-th value, and when the object goes
    away.
    """

    def __init__(
        self, name: str, aggregations: Sequence[Aggregation], window_size: timedelta, max_samples: int | None = None
    ) -> None:
        if (
            not isinstance(name, str)
            or not isinstance(window_size, timedelta)
            or not all(isinstance(a, Aggregation) for a in aggregations)
        ):
            raise TypeError(
                f"Stat(name: str, aggregations: list of Aggregation, window_size: timedelta), got {name!r}, {aggregations!r}, {window_size!r}"
            )
        self.name = name
        self._wanted = tuple(dict.fromkeys(aggregations))
        self._span, self._most = window_size.total_seconds(), max_samples
        self._held: list[float] = []
        self._last = dict.fromkeys(self._wanted, 0.0)
        self._closes = time.monotonic() + self._span
        self._guard = free_after_fork(threading.RLock())

    @property
    def count(self) -> int:
        """How many values the window holds."""
        return len(self._held)

    def add(self, v: float) -> None:
        """One more value."""
        if not hasattr(v, "__float__") and not hasattr(v, "__index__"):
            raise TypeError(f"add(): v must be a number, not {type(v).__name__}")
        with self._guard:
            event = self._close() if time.monotonic() >= self._closes else None
            self._held.append(float(v))
            full = self._close() if self._most is not None and len(self._held) >= self._most else None
        for each in (event, full):
            if each is not None:
                log_event(each)

    def get(self) -> dict[Aggregation, float]:
        """The statistics of the last window that was closed (zeros before the first)."""
        return dict(self._last)

    def _close(self) -> Event | None:
        self._closes = time.monotonic() + self._span
        if not self._held:
            return None
        self._last = {each: _OF[each](self._held) for each in self._wanted}
        self._held = []
        return Event(
            STAT_EVENT,
            datetime.now(),
            {f"{self.name}.{each.name.lower()}": value for each, value in self._last.items()},
        )

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError, TypeError):  # a constructor that failed, an interpreter that ends
            event = self._close()
            if event is not None:
                log_event(event)


class TensorboardEventHandler:
    """A handler that writes the numbers of "torch.monitor.Stat" events to a `SummaryWriter` as scalars."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def __call__(self, event: Event) -> None:
        if event.name == STAT_EVENT:
            for key, value in event.data.items():
                self._writer.add_scalar(key, value, walltime=event.timestamp.timestamp())
