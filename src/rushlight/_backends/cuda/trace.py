"""Telling who asks of what orders work on GPUs: events, streams, waits, and memory that is lent and given back.

    trace_to(backend, {"event_record": lambda event, stream: ...})

Calls of the driver are exchanged for telling ones, and allocations leave the native path.  It stays so until the process
ends.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rushlight._backends.cuda.backend import CudaBackend

__all__ = ["KINDS", "trace_to"]

# What is told, by which call of the driver: before the call (with its arguments), or behind it (with its result).
_BEFORE: dict[str, tuple[str, Callable[..., tuple[Any, ...]]]] = {
    "cuEventDestroy": ("event_deletion", lambda event: (event,)),
    "cuEventRecord": ("event_record", lambda event, stream: (event, stream)),
    "cuStreamWaitEvent": ("event_wait", lambda stream, event, flags=0: (event, stream)),
    "cuEventSynchronize": ("event_synchronization", lambda event: (event,)),
    "cuStreamSynchronize": ("stream_synchronization", lambda stream: (stream,)),
    "cuCtxSynchronize": ("device_synchronization", lambda: ()),
}
_BEHIND = {"cuEventCreate": "event_creation", "cuStreamCreateWithPriority": "stream_creation"}
_MEMORY = ("memory_allocation", "memory_deallocation")
KINDS = (*[kind for kind, _ in _BEFORE.values()], *_BEHIND.values(), *_MEMORY)


def trace_to(backend: CudaBackend, told: Mapping[str, Callable[..., Any]]) -> None:
    """Call `told[kind]` for each of `KINDS` that it names."""
    driver = backend.driver
    for call, (kind, arguments) in _BEFORE.items():
        if kind in told:
            setattr(driver, call, _before(getattr(driver, call), told[kind], arguments))
    for call, kind in _BEHIND.items():
        if kind in told:
            setattr(driver, call, _behind(getattr(driver, call), told[kind]))
    lent, back = (told.get(kind, _nothing) for kind in _MEMORY)
    for allocator in backend.memory.allocators:
        allocator.held_up = True
        allocator.watched = lent, back


def _nothing(address: int) -> None:
    """Nobody wants to know."""


def _before(
    function: Callable[..., Any], tell: Callable[..., Any], arguments: Callable[..., Any]
) -> Callable[..., Any]:
    @functools.wraps(function)
    def telling(*args: Any) -> Any:
        tell(*arguments(*args))
        return function(*args)

    return telling


def _behind(function: Callable[..., Any], tell: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def telling(*args: Any) -> Any:
        made = function(*args)
        tell(made)
        return made

    return telling
