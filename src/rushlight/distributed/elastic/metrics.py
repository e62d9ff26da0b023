"""`torch.distributed.elastic.metrics`: numbers that a launcher's parts report, and where they go.

>>> from rushlight.distributed.elastic.metrics import ConsoleMetricHandler, configure, put_metric
>>> configure(ConsoleMetricHandler(), "mine")
>>> put_metric("restarts", 2, "mine")  # doctest: +ELLIPSIS
[...][mine]: restarts=2
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple

__all__ = [
    "ConsoleMetricHandler", "MetricData", "MetricHandler", "MetricStream", "MetricsConfig", "NullMetricHandler", "configure", "getStream",
    "get_elapsed_time_ms", "initialize_metrics", "prof", "profile", "publish_metric", "put_metric",
]  # fmt: skip


class MetricData(NamedTuple):
    """One number: when, of which group, its name and value."""

    timestamp: int
    group_name: str
    name: str
    value: Any


class MetricsConfig:
    """Settings of a handler."""

    __slots__ = ("params",)

    def __init__(self, params: dict[str, str] | None = None) -> None:
        self.params = {} if params is None else params


class MetricHandler(ABC):
    """Where numbers go; a subclass defines `emit`."""

    @abstractmethod
    def emit(self, metric_data: MetricData) -> None:
        """Take one number."""


class ConsoleMetricHandler(MetricHandler):
    """Prints them."""

    def emit(self, metric_data: MetricData) -> None:
        print(f"[{metric_data.timestamp}][{metric_data.group_name}]: {metric_data.name}={metric_data.value}")


class NullMetricHandler(MetricHandler):
    """Drops them: the default."""

    def emit(self, metric_data: MetricData) -> None:
        pass


class MetricStream:
    """The numbers of one group, on their way to its handler."""

    def __init__(self, group_name: str, handler: MetricHandler) -> None:
        self.group_name, self.handler = group_name, handler

    def add_value(self, metric_name: str, metric_value: Any) -> None:
        """Report a number."""
        self.handler.emit(MetricData(int(time.time()), self.group_name, metric_name, metric_value))


_HANDLERS: dict[str | None, MetricHandler] = {None: NullMetricHandler()}


def configure(handler: MetricHandler, group: str | None = None) -> None:
    """Let the numbers of a group, or those of all groups without a handler of their own, go to `handler`."""
    _HANDLERS[group] = handler


def initialize_metrics(cfg: MetricsConfig | None = None) -> None:
    """Accepted; a program chooses its handlers by `configure`."""


def getStream(group: str) -> MetricStream:
    """The stream of a group."""
    return MetricStream(group, _HANDLERS.get(group, _HANDLERS[None]))


def put_metric(metric_name: str, metric_value: Any, metric_group: str = "torchelastic") -> None:
    """Report a number of a group."""
    getStream(metric_group).add_value(metric_name, metric_value)


def publish_metric(metric_group: str, metric_name: str, metric_value: Any) -> None:
    """Report a number of a group: `put_metric` with its older order of arguments."""
    put_metric(metric_name, metric_value, metric_group)


def get_elapsed_time_ms(start_time_in_seconds: float) -> int:
    """Milliseconds since a time of `time.time()`."""
    return int(1000 * (time.time() - start_time_in_seconds))


def prof(fn: Callable[..., Any] | None = None, group: str = "torchelastic") -> Any:
    """A decorator: report how often a function succeeds (`name.success`), fails, and for how many milliseconds it runs."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        name = function.__qualname__

        @wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            began = time.time()
            try:
                result = function(*args, **kwargs)
            except Exception:
                put_metric(f"{name}.failure", 1, group)
                raise
            else:
                put_metric(f"{name}.success", 1, group)
                return result
            finally:
                put_metric(f"{name}.duration.ms", get_elapsed_time_ms(began), group)

        return wrapper

    return decorate if fn is None else decorate(fn)


def profile(group: str | None = None) -> Callable[..., Any]:
    """`prof` by its older name."""
    decorate: Callable[..., Any] = prof(group=group or "torchelastic")
    return decorate
