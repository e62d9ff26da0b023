"""Activities of GPUs while a profiler watches: the times of kernels, copies and fills, by NVIDIA's own record of them where CUPTI is
installed (see `cupti`), else by events around each.

    watch = Activities(backend, lambda call, began, ended: None)
    watch.start()
    ...
    found = watch.stop()        # waits for the devices

While it runs, launches go through Python (the allocators are held up, see `memory.allocator`), where calls of the driver
are exchanged for timed ones.  Work that a graph captures is not timed; a replay is one activity.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, NamedTuple

from rushlight._backends.cuda.reports.cupti import Cupti, CuptiError, Record, cupti
from rushlight._base.errors import warn_once

if TYPE_CHECKING:
    from rushlight._backends.cuda.backend import CudaBackend

__all__ = ["Activities", "Activity", "CuptiActivities", "activities_of"]


class Activity(NamedTuple):
    """Something that a device did: times in nanoseconds, those of `perf_counter_ns`; `mark` is what the watcher gave for
    the call that started it.
    """

    kind: str  # kernel, gpu_memcpy, gpu_memset
    name: str
    device: int
    stream: int
    begin: int
    duration: int
    mark: Any
    details: dict[str, Any]


class _Work(NamedTuple):
    """A call that was timed: the events before and behind it, and what it was."""

    kind: str
    name: Any
    device: int
    stream: int
    events: tuple[int, int]
    mark: Any
    details: dict[str, Any]


def _launch(watch: Activities, function: int, grid: Any, block: Any, shared: int, stream: int, *more: Any) -> Any:
    return "kernel", function, {"grid": list(grid), "block": list(block), "shared memory": shared}


def _graph(watch: Activities, executable: int, stream: int) -> Any:
    return "kernel", "graph", {}


def _to_device(watch: Activities, address: int, source: int, nbytes: int, stream: int) -> Any:
    return "gpu_memcpy", f"Memcpy HtoD ({watch.kind_of(source)} -> Device)", {"bytes": nbytes}


def _to_host(watch: Activities, address: int, source: int, nbytes: int, stream: int) -> Any:
    return "gpu_memcpy", f"Memcpy DtoH (Device -> {watch.kind_of(address)})", {"bytes": nbytes}


def _within(watch: Activities, address: int, source: int, nbytes: int, stream: int) -> Any:
    return "gpu_memcpy", "Memcpy DtoD (Device -> Device)", {"bytes": nbytes}


def _between(watch: Activities, to: int, to_context: int, source: int, context: int, nbytes: int, stream: int) -> Any:
    return "gpu_memcpy", "Memcpy PtoP (Device -> Device)", {"bytes": nbytes}


def _fill(width: int) -> Callable[..., Any]:
    def described(watch: Activities, address: int, value: int, count: int, stream: int) -> Any:
        return "gpu_memset", "Memset (Device)", {"bytes": width * count}

    return described


_CALLS: dict[str, Callable[..., Any]] = {
    "cuLaunchKernel": _launch, "cuLaunchKernelEx": _launch, "cuGraphLaunch": _graph, "cuMemcpyHtoDAsync": _to_device,
    "cuMemcpyDtoHAsync": _to_host, "cuMemcpyDtoDAsync": _within, "cuMemcpyPeerAsync": _between, "cuMemsetD8Async": _fill(1),
    "cuMemsetD16Async": _fill(2), "cuMemsetD32Async": _fill(4),
}  # fmt: skip
_STREAM_AT = {"cuLaunchKernel": 4, "cuLaunchKernelEx": 4}  # else the last argument


class Activities:
    """Watches all devices from `start` to `stop`.  `told(call, began, ended)` is called behind each call of the driver, in the
    thread that made it; what it gives is the activity's mark.
    """

    def __init__(self, backend: CudaBackend, told: Callable[[str, int, int], Any]) -> None:
        self.backend, self.driver, self.told = backend, backend.driver, told
        self.work: list[_Work] = []
        self.bases: dict[int, tuple[int, int]] = {}  # for each device an event, and when it was
        self._held_up: list[bool] = []
        self._lock = threading.Lock()

    def kind_of(self, address: int) -> str:
        """Which memory of the host an address is of."""
        return "Pinned" if self.backend.is_pinned(address) else "Pageable"

    def start(self) -> None:
        """Time what is given to the devices from now on."""
        allocators = self.backend.memory.allocators
        self._held_up = [a.held_up for a in allocators]
        for allocator in allocators:
            allocator.held_up = True
        for call, described in _CALLS.items():
            setattr(self.driver, call, self._timed(call, getattr(self.driver, call), described))
        self.backend.launch.watch = self

    def stop(self) -> list[Activity]:
        """Activities of the devices, once all of them are done."""
        self.backend.launch.watch = None
        for call in _CALLS:
            delattr(self.driver, call)
        for allocator, before in zip(self.backend.memory.allocators, self._held_up, strict=True):
            allocator.held_up = before
        with self._lock:
            work, self.work = self.work, []
        return self._found(work)

    def _found(self, work: list[_Work]) -> list[Activity]:
        for device in self.bases:
            self.backend.devices.enter(device)
            self.driver.cuCtxSynchronize()
        names = {k.function: k.kernel.name for all_ in self.backend.compiled_kernels() for k in all_}
        found = [self._activity(one, names) for one in work]
        for events in [*(one.events for one in work), *((base,) for base, _ in self.bases.values())]:
            for event in events:
                self.driver.cuEventDestroy(event)
        self.bases.clear()
        return found

    def around(self, name: str, stream: int, call: Callable[[], Any]) -> Any:
        """Time a call of a library that gives kernels to a stream."""
        return self._watched(name, stream, call, lambda: ("kernel", name, {}))

    def _timed(self, call: str, function: Callable[..., Any], described: Callable[..., Any]) -> Callable[..., Any]:
        at = _STREAM_AT.get(call, -1)

        @functools.wraps(function)
        def timed(*args: Any) -> Any:
            return self._watched(call, args[at], lambda: function(*args), lambda: described(self, *args))

        return timed

    def _watched(self, name: str, stream: int, call: Callable[[], Any], described: Callable[[], Any]) -> Any:
        if stream and self.driver.cuStreamGetCaptureInfo(stream)[0]:
            return call()
        return self._one(name, stream, call, described)

    def _one(self, name: str, stream: int, call: Callable[[], Any], described: Callable[[], Any]) -> Any:
        driver, device = self.driver, self.backend.devices.thread.bound
        if device not in self.bases:
            self._begin(device, stream)
        first = driver.cuEventCreate(0)
        driver.cuEventRecord(first, stream)
        began = perf_counter_ns()
        made = call()
        ended = perf_counter_ns()
        last = driver.cuEventCreate(0)
        driver.cuEventRecord(last, stream)
        mark = self.told(name, began, ended)
        kind, what, details = described()
        with self._lock:
            self.work.append(_Work(kind, what, device, stream, (first, last), mark, details))
        return made

    def _begin(self, device: int, stream: int) -> None:
        base = self.driver.cuEventCreate(0)
        self.driver.cuEventRecord(base, stream)
        self.driver.cuEventSynchronize(base)
        self.bases[device] = base, perf_counter_ns()

    def _activity(self, work: _Work, names: dict[int, str]) -> Activity:
        base, then = self.bases[work.device]
        begin = then + round(1e6 * self.driver.cuEventElapsedTime(base, work.events[0]))
        took = round(1e6 * self.driver.cuEventElapsedTime(*work.events))
        name = names.get(work.name, "kernel") if isinstance(work.name, int) else work.name
        return Activity(work.kind, name, work.device, work.stream, begin, max(took, 0), work.mark, work.details)


_BY_EVENTS = "times of GPUs are those of events, because CUPTI cannot be used: {}"


class CuptiActivities(Activities):
    """The same by CUPTI's records, which belong to the calls that were under way when they were asked for."""

    def __init__(self, backend: CudaBackend, told: Callable[[str, int, int], Any], library: Cupti) -> None:
        super().__init__(backend, told)
        self.library: Cupti | None = library
        self.ahead = 0  # of our clock

    def start(self) -> None:
        """Where CUPTI refuses (it asks for a privilege, or another profiler is at work) a warning says so, and events are taken."""
        assert self.library is not None
        try:
            self.library.start()
            self.ahead = perf_counter_ns() - self.library.time()
        except CuptiError as error:
            self.library = None
            warn_once(_BY_EVENTS.format(error))
        super().start()

    def _one(self, name: str, stream: int, call: Callable[[], Any], described: Callable[[], Any]) -> Any:
        if self.library is None:
            return super()._one(name, stream, call, described)
        device = self.backend.devices.thread.bound
        with self._lock:
            number = len(self.work)
            self.work.append(_Work("", name, device, stream, (0, 0), None, {}))
        self.library.push(1 + number)
        try:
            began = perf_counter_ns()
            made = call()
            ended = perf_counter_ns()
        finally:
            self.library.pop()
        mark = self.told(name, began, ended)
        kind, what, details = described()
        with self._lock:
            self.work[number] = _Work(kind, what, device, stream, (0, 0), mark, details)
        return made

    def _found(self, work: list[_Work]) -> list[Activity]:
        if self.library is None:
            return super()._found(work)
        for device in {one.device for one in work}:
            self.backend.devices.enter(device)
            self.driver.cuCtxSynchronize()
        records = self.library.stop()
        calls = {r.correlation: r.call for r in records if r.kind == "call" and 0 < r.call <= len(work)}
        found = [self._of_record(r, work, calls) for r in records if r.kind != "call"]
        return sorted(found, key=lambda activity: activity.begin)

    def _of_record(self, record: Record, work: list[_Work], calls: dict[int, int]) -> Activity:
        """The activity of a record; one that no call of ours asked for has no mark, and CUPTI's own stream number."""
        number = calls.get(record.correlation)
        one = None if number is None else work[number - 1]
        begin, took = record.start + self.ahead, record.end - record.start
        stream, mark = (record.stream, None) if one is None else (one.stream, one.mark)
        details = {**({} if one is None else one.details), **record.details}
        return Activity(record.kind, record.name, record.device, stream, begin, took, mark, details)


def activities_of(backend: CudaBackend, told: Callable[[str, int, int], Any]) -> Activities:
    """A watch by CUPTI where it is installed and works, else by events."""
    if not backend.driver.emulated:
        try:
            library = cupti()
            if library is not None:
                return CuptiActivities(backend, told, library)
        except CuptiError as error:
            warn_once(_BY_EVENTS.format(error))
    return Activities(backend, told)
