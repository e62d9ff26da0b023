"""Functions that are called when GPUs are given events, waits, streams and memory, as `torch.cuda._gpu_trace`.

    torch.cuda._gpu_trace.register_callback_for_event_record(lambda event, stream: print(event, stream))
    torch._C._activate_gpu_trace()

Nothing is called before the trace is activated.  A function that raises does not stop the program: the error is logged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from rushlight.cuda.access import gpus

__all__ = ["CallbackRegistry", "activate"]

_LOGGER = logging.getLogger(__name__)
_ACTIVE: list[bool] = []


class CallbackRegistry:
    """Functions for one kind of call."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.callback_list: list[Callable[..., Any]] = []

    def add_callback(self, cb: Callable[..., Any]) -> None:
        """Call a function from now on, behind those that are there."""
        self.callback_list.append(cb)

    def fire_callbacks(self, *args: Any) -> None:
        """Call all."""
        for callback in self.callback_list:
            try:
                callback(*args)
            except Exception:
                _LOGGER.exception("Exception in callback for %s registered with gpu trace", self.name)


EventCreationCallbacks = CallbackRegistry("CUDA event creation")
EventDeletionCallbacks = CallbackRegistry("CUDA event deletion")
EventRecordCallbacks = CallbackRegistry("CUDA event record")
EventWaitCallbacks = CallbackRegistry("CUDA event wait")
EventSynchronizationCallbacks = CallbackRegistry("CUDA event synchronization")
MemoryAllocationCallbacks = CallbackRegistry("CUDA memory allocation")
MemoryDeallocationCallbacks = CallbackRegistry("CUDA memory deallocation")
StreamCreationCallbacks = CallbackRegistry("CUDA stream creation")
StreamSynchronizationCallbacks = CallbackRegistry("CUDA stream synchronization")
DeviceSynchronizationCallbacks = CallbackRegistry("CUDA device synchronization")

register_callback_for_event_creation = EventCreationCallbacks.add_callback
register_callback_for_event_deletion = EventDeletionCallbacks.add_callback
register_callback_for_event_record = EventRecordCallbacks.add_callback
register_callback_for_event_wait = EventWaitCallbacks.add_callback
register_callback_for_event_synchronization = EventSynchronizationCallbacks.add_callback
register_callback_for_memory_allocation = MemoryAllocationCallbacks.add_callback
register_callback_for_memory_deallocation = MemoryDeallocationCallbacks.add_callback
register_callback_for_stream_creation = StreamCreationCallbacks.add_callback
register_callback_for_stream_synchronization = StreamSynchronizationCallbacks.add_callback
register_callback_for_device_synchronization = DeviceSynchronizationCallbacks.add_callback


def activate() -> None:
    """Begin to call the functions; a second call changes nothing."""
    if not _ACTIVE:
        _ACTIVE.append(True)
        registries = [r for r in globals().values() if isinstance(r, CallbackRegistry)]
        gpus().trace({r.name.removeprefix("CUDA ").replace(" ", "_"): r.fire_callbacks for r in registries})
