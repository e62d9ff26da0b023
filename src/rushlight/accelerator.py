"""The machine's accelerator, as `torch.accelerator`: the device type whose backend was registered last; without one,
everything says so.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from rushlight import Stream
from rushlight import device as Device
from rushlight._interface.base import trace_marks
from rushlight._interface.devices import Backend, CapturedWork
from rushlight._interface.devices import accelerator as the_accelerator

__all__ = [
    "Graph",
    "current_accelerator",
    "current_device_idx",
    "current_device_index",
    "current_stream",
    "device_count",
    "device_index",
    "empty_cache",
    "empty_host_cache",
    "get_device_capability",
    "get_memory_info",
    "is_available",
    "max_memory_allocated",
    "max_memory_reserved",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "reset_accumulated_memory_stats",
    "reset_peak_memory_stats",
    "set_device_idx",
    "set_device_index",
    "set_stream",
    "synchronize",
]


def _backend() -> Backend:
    found = the_accelerator()
    if found is None:
        raise RuntimeError("Cannot access accelerator device when none is available.")
    return found


def _device(device: Any) -> Device:
    """The device of the accelerator that an index, a device, a string or nothing means."""
    backend = _backend()
    if device is None:
        return Device(backend.type, backend.current_device())
    if isinstance(device, int):
        return Device(backend.type, device)
    wanted = Device(device)
    if wanted.type != backend.type:
        raise ValueError(f"{wanted.type} doesn't match the current accelerator {backend.type}.")
    return wanted if wanted.index is not None else Device(backend.type, backend.current_device())


def is_available() -> bool:
    """Whether there is an accelerator with at least one device."""
    return device_count() > 0


def device_count() -> int:
    """How many devices the accelerator has; 0 without one."""
    found = the_accelerator()
    return 0 if found is None else found.device_count()


def current_accelerator(check_available: bool = False) -> Device | None:
    """The type of the accelerator as a device without an index; None where there is none."""
    found = the_accelerator()
    return None if found is None or check_available and not found.device_count() else Device(found.type)


def current_device_index() -> int:
    """The index of the device that a device without an index means."""
    return _backend().current_device()


current_device_idx = current_device_index


@trace_marks.changes_later_calls
def set_device_index(device: Any, /) -> None:
    """Let a device without an index mean this one."""
    _backend().set_device(_device(device).index or 0)


set_device_idx = set_device_index


def current_stream(device: Any = None, /) -> Any:
    """The stream that this thread's calls on a device go to."""
    place = _device(device)
    return Stream(place, handle=_backend().current_stream(place))


@trace_marks.changes_later_calls
def set_stream(stream: Any) -> None:
    """Let this thread's calls on the stream's device go to it."""
    _backend().set_stream(stream._handle)


def synchronize(device: Any = None, /) -> None:
    """Wait until all work of a device is done."""
    place = _device(device)
    _backend().synchronize(place)


def get_device_capability(device: Any = None, /) -> dict[str, Any]:
    """Facts about a device: see `Backend.properties`."""
    place = _device(device)
    return dict(_backend().properties(place))


def empty_cache() -> None:
    """Give memory that is kept for reuse back to the system."""
    _backend().empty_cache(_device(None))


def empty_host_cache() -> None:
    """Nothing: the host's memory for copies is not kept."""
    _backend()


def _stats(device: Any) -> Mapping[str, int]:
    place = _device(device)
    return _backend().memory_stats(place)


def memory_stats(device: Any = None, /) -> OrderedDict[str, int]:
    """The statistics of a device's memory, sorted by name; see `Backend.memory_stats`."""
    return OrderedDict(sorted(_stats(device).items()))


def memory_allocated(device: Any = None, /) -> int:
    """Bytes that tensors hold."""
    return _stats(device).get("allocated", 0)


def max_memory_allocated(device: Any = None, /) -> int:
    """The most bytes that tensors have held at a time."""
    return _stats(device).get("peak_allocated", 0)


def memory_reserved(device: Any = None, /) -> int:
    """Bytes that tensors hold and that are kept for reuse."""
    stats = _stats(device)
    return stats.get("allocated", 0) + stats.get("cached", 0)


def max_memory_reserved(device: Any = None, /) -> int:
    """The most of these bytes at a time."""
    stats = _stats(device)
    return stats.get("peak_held", stats.get("peak_allocated", 0))


def get_memory_info(device: Any = None, /) -> tuple[int, int]:
    """(free, total) bytes of a device; RuntimeError where the backend does not know its memory's size."""
    total = get_device_capability(device).get("total_memory")
    if total is None:
        raise RuntimeError(f"the backend of device type '{_backend().type}' does not say how much memory there is")
    return int(total) - memory_reserved(device), int(total)


def reset_peak_memory_stats(device: Any = None, /) -> None:
    """Start measuring the most bytes anew; NotImplementedError where the backend cannot."""
    place = _device(device)
    _backend().reset_peak(place)


reset_accumulated_memory_stats = reset_peak_memory_stats


class device_index:
    """A context that chooses a device by its number; None changes nothing."""

    def __init__(self, device: int | None, /) -> None:
        self.device = device
        self._before = 0

    def __enter__(self) -> None:
        if self.device is not None:
            self._before = current_device_index()
            set_device_index(self.device)

    def __exit__(self, *exc: object) -> None:
        if self.device is not None:
            set_device_index(self._before)


class Graph(CapturedWork):
    """A recorded piece of work on an accelerator: what the current stream is given within `with graph:` can be replayed.

    RuntimeError without an accelerator, NotImplementedError where its backend records none.
    """

    def __init__(self, keep_graph: bool = False, *, pool: Any = None, capture_error_mode: str = "default") -> None:
        self._graph = _backend().graph(keep_graph)
        self._pool, self._mode = pool, "global" if capture_error_mode == "default" else capture_error_mode

    def capture_begin(self) -> None:
        """Let further work of the current stream become the graph."""
        self._begin(self._pool, self._mode)

    def debug_dump(self, path: str) -> None:
        """Write the kept graph to a file in the language of Graphviz."""
        self._graph.dot(path)

    def __enter__(self) -> Graph:
        synchronize()
        self.capture_begin()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.capture_end()
