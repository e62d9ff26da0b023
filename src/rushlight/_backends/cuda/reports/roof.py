"""The time of each step of a program by the device's events, and the least that it could take: that of moving its bytes as fast as
a copy within the device does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from rushlight._types.device import Device

if TYPE_CHECKING:
    from rushlight._backends.cuda.backend import CudaBackend
    from rushlight._backends.cuda.program.executable import CudaExecutable

__all__ = ["StepTime", "copy_rate", "step_times"]

_COPIED = 64 << 20  # bytes: more than caches of level 2 hold
_CALLS = 20  # at most
_RATES: dict[int, float] = {}


class StepTime(NamedTuple):
    """`seconds` of a call that a step took, and the `least` that it could take for the bytes `moved`."""

    name: str
    primitives: str
    seconds: float
    least: float
    moved: int
    operations: int = 0


def copy_rate(backend: CudaBackend, device: Device) -> float:
    """Bytes in a second that a copy reads and writes; measured once for a device."""
    index = device.index or 0
    if index not in _RATES:
        nbytes = min(_COPIED, backend.properties(device)["total_memory"] // 64)
        source, target = (backend.allocate(nbytes, device) for _ in range(2))
        times = [
            _timed(backend, device, lambda: backend.copy(target.ptr, source.ptr, nbytes, device)) for _ in range(4)
        ]
        _RATES[index] = 2 * nbytes / min(times)
    return _RATES[index]


def step_times(executable: CudaExecutable, words: Sequence[Any], seconds: float) -> list[StepTime]:
    """Each step by its median, of calls with `words` for about so many seconds, 2 at least."""
    backend, device = executable.backend, executable.device
    rate, stream = copy_rate(backend, device), backend.enter(device)
    begun, found = perf_counter(), list[list[float]]()
    while len(found) < 2 or (len(found) < _CALLS and perf_counter() - begun < seconds):
        _, table, _arena = executable.laid_out(words)
        runs = [partial(step.run, stream, table) for step in executable.prepared]
        found.append([_timed(backend, device, run) for run in runs])
    rows = zip(executable.steps(), zip(*found, strict=True), strict=True)
    return [StepTime(step.name, step.name, median(times), step.moved / rate, step.moved) for step, times in rows]


def _timed(backend: CudaBackend, device: Device, work: Callable[[], None]) -> float:
    """Seconds of what `work` gives to the current stream."""
    begin, end = (backend.event(device, timing=True) for _ in range(2))
    stream = backend.current_stream(device)
    begin.record(stream)
    work()
    end.record(stream)
    end.synchronize()
    return max(begin.elapsed(end) / 1e3, 1e-9)
