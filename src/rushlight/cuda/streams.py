"""Streams and events of GPUs, as `torch.cuda.streams`.

Work is given to the current stream of a device and runs in order there; streams run beside each other.  Events order
them:

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        y = x * 2
    torch.cuda.current_stream().wait_stream(side)
"""

from __future__ import annotations

from typing import Any

from rushlight import Event as _Event
from rushlight import Stream as _Stream
from rushlight._interface.base import trace_marks
from rushlight.cuda.access import device_of, gpu, gpus, index_of, on_gpu

__all__ = ["Event", "ExternalStream", "Stream"]


class Stream(_Stream):
    """A stream of a GPU: `Stream(device, priority=0)`, by default of the current one.

    Lower numbers are higher priorities.  Streams come from a pool of 32 a device and priority, as in PyTorch.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        gpu("Stream")
        return super().__new__(cls)

    def __init__(
        self,
        device: Any = None,
        priority: int = 0,
        *,
        stream_id: int | None = None,
        device_index: int | None = None,
        device_type: int | None = None,
        handle: Any = None,
    ) -> None:
        if stream_id is not None and handle is None:
            handle = gpus().external_stream(stream_id, device_of(device_index))
        super().__init__(
            device_of(None if isinstance(device, int) and device < 0 else device) if handle is None else handle.device,
            priority=priority,
            handle=handle,
        )

    @property
    def cuda_stream(self) -> int:
        """The driver's handle, as other libraries take it; 0 is the default stream."""
        return self.stream_id

    native_handle = cuda_stream

    @property
    def priority(self) -> int:
        """The priority; lower numbers are higher ones."""
        return int(self._handle.priority)

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """The least and the greatest priority."""
        least, greatest = gpu("Stream.priority_range").priority_range()
        return int(least), int(greatest)

    def record_event(self, event: Any = None) -> Any:
        """An event that marks this moment."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def wait_stream(self, stream: Any) -> None:
        """Let further work wait for all that another stream was given until now."""
        self.wait_event(stream.record_event())

    def is_capturing(self) -> bool:
        """Whether its work becomes a graph."""
        return bool(gpus().is_capturing(self._handle))

    @property
    def _as_parameter_(self) -> Any:
        import ctypes

        return ctypes.c_void_p(self.cuda_stream)

    def __cuda_stream__(self) -> tuple[int, int]:
        """The protocol by which CUDA's Python libraries exchange streams."""
        return 0, self.cuda_stream

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Stream) and (self.device, self.stream_id) == (other.device, other.stream_id)

    def __hash__(self) -> int:
        return hash((self.cuda_stream, self.device))

    def __repr__(self) -> str:
        return f"<torch.cuda.Stream device={self.device} cuda_stream={self.cuda_stream:#x}>"


class ExternalStream(Stream):
    """A stream that another library made, by its handle; who made it keeps it alive."""

    def __init__(self, stream_ptr: int, device: Any = None, **kwargs: Any) -> None:
        super().__init__(handle=gpus().external_stream(stream_ptr, device_of(device)))


class Event(_Event):
    """A mark in a stream: `Event(enable_timing=True)` measures, `interprocess=True` can be sent to other processes."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        gpu("Event")
        return super().__new__(cls)

    def __init__(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, external: bool = False
    ) -> None:
        if enable_timing and interprocess:
            raise ValueError("an event for other processes has no timing: enable_timing must be False")
        self._handle = gpus().event(device_of(None), enable_timing, blocking, interprocess)
        self._timed, self._recorded = enable_timing, False

    @classmethod
    def from_ipc_handle(cls, device: Any, handle: bytes) -> Event:
        """The event of another process whose `ipc_handle` this is."""
        made = cls(interprocess=True)
        made._handle = gpus().opened_event(device_of(device), handle)
        made._recorded = True
        return made

    @property
    def device(self) -> Any:
        """The device of the stream that recorded it first; None before."""
        return self._handle.device if self.cuda_event else None

    @property
    def cuda_event(self) -> int:
        """The driver's handle; 0 before the event is first recorded."""
        return int(self._handle.id)

    def ipc_handle(self) -> bytes:
        """64 bytes by which another process opens the event."""
        return bytes(self._handle.ipc_handle(gpus().current_stream(self._handle.device)))

    def record(self, stream: Any = None) -> None:
        """Mark this moment of a stream, by default of the current one."""
        super().record(current_stream() if stream is None else stream)

    def wait(self, stream: Any = None) -> None:
        """Let further work of a stream, by default of the current one, wait for the event."""
        (current_stream() if stream is None else stream).wait_event(self)

    def query(self) -> bool:
        """Whether what came before is done."""
        return super().query()

    def synchronize(self) -> None:
        """Wait until what came before is done."""
        super().synchronize()

    def elapsed_time(self, end_event: Any) -> float:
        """Milliseconds from this event to another; both need `enable_timing=True` and must have been recorded."""
        return super().elapsed_time(end_event)

    @property
    def _as_parameter_(self) -> Any:
        import ctypes

        return ctypes.c_void_p(self.cuda_event)

    def __repr__(self) -> str:
        return f"<torch.cuda.Event {self.cuda_event:#x}>" if self.cuda_event else "<torch.cuda.Event uninitialized>"


class StreamContext:
    """A context in which a stream and its device are the current ones; None changes nothing."""

    def __init__(self, stream: Any) -> None:
        self.stream, self.idx = stream, index_of(None) if stream is None else stream.device_index
        self._before: list[tuple[int, Any]] = []

    def __enter__(self) -> None:
        if self.stream is None:
            return
        backend = gpus()
        self._before.append((backend.current_device(), backend.current_stream(self.stream.device)))
        backend.set_device(self.stream.device_index)
        backend.set_stream(self.stream._handle)

    def __exit__(self, type: Any, value: Any, traceback: Any) -> None:
        if self.stream is None:
            return
        index, handle = self._before.pop()
        gpus().set_stream(handle)
        gpus().set_device(index)


@on_gpu
def stream(stream: Any) -> StreamContext:
    """A context in which a stream is the current one: `with torch.cuda.stream(s): ...`; None changes nothing."""
    return StreamContext(stream)


@on_gpu
def current_stream(device: Any = None) -> Stream:
    """The stream that this thread's calls on a device go to."""
    return Stream(handle=gpus().current_stream(device_of(device)))


@on_gpu
def default_stream(device: Any = None) -> Stream:
    """The default stream of a device."""
    return Stream(handle=gpus().default_stream(device_of(device)))


@on_gpu
@trace_marks.changes_later_calls
def set_stream(stream: Any) -> None:
    """Let this thread's calls on the stream's device go to it; prefer `with torch.cuda.stream(s)`."""
    if stream is not None:
        gpus().set_device(stream.device_index)
        gpus().set_stream(stream._handle)


@on_gpu
def get_stream_from_external(data_ptr: int, device: Any = None) -> ExternalStream:
    """The stream of another library, by its handle."""
    return ExternalStream(data_ptr, device)
