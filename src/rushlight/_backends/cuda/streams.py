"""Streams and events of GPUs as the backends' protocol wants them, and the current stream of each thread."""

from __future__ import annotations

import threading
from contextlib import suppress

from rushlight._backends.cuda.devices import Devices
from rushlight._backends.cuda.driver.attributes import (
    EVENT_BLOCKING,
    EVENT_INTERPROCESS,
    EVENT_WITHOUT_TIMING,
    STREAM_NON_BLOCKING,
)
from rushlight._backends.cuda.driver.errors import CudaError
from rushlight._backends.current_streams import CURRENT_STREAMS
from rushlight._backends.protocol import EventHandle, StreamHandle
from rushlight._types.device import Device

__all__ = ["CudaEvent", "CudaStream", "Streams"]

_POOL = 32  # streams of a device and priority; further ones are these again, as in PyTorch


class CudaStream(StreamHandle):
    """A stream; `id` is the driver's handle, 0 of the default one."""

    __slots__ = ("devices", "id")

    def __init__(self, devices: Devices, device: Device, handle: int, priority: int = 0) -> None:
        super().__init__(device, priority)
        self.devices, self.id = devices, handle

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CudaStream) and (self.id, self.device) == (other.id, other.device)

    def __hash__(self) -> int:
        return hash((self.id, self.device))

    def _enter(self) -> None:
        self.devices.enter(self.device.index or 0)

    def query(self) -> bool:
        """Whether all work of the stream is done."""
        self._enter()
        return self.devices.driver.cuStreamQuery(self.id)

    def synchronize(self) -> None:
        """Wait until it is."""
        self._enter()
        self.devices.driver.cuStreamSynchronize(self.id)

    def wait(self, event: EventHandle) -> None:
        """Let further work of the stream wait for an event."""
        if event.id:
            self._enter()
            self.devices.driver.cuStreamWaitEvent(self.id, event.id)


class CudaEvent(EventHandle):
    """An event; the driver's is made when it is first recorded, on the device of the stream."""

    __slots__ = ("devices", "flags", "id")

    def __init__(
        self, devices: Devices, device: Device, timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> None:
        super().__init__(device, timing)
        self.devices, self.id = devices, 0
        self.flags = (0 if timing else EVENT_WITHOUT_TIMING) | (EVENT_BLOCKING if blocking else 0)
        self.flags |= EVENT_INTERPROCESS if interprocess else 0

    def ipc_handle(self, stream: StreamHandle) -> bytes:
        """64 bytes by which another process opens the event; one that was not recorded is made on a stream's device."""
        if not self.flags & EVENT_INTERPROCESS:
            raise RuntimeError("only an event made with interprocess=True can be sent to other processes")
        if not self.id:
            self.record(stream)
        return self.devices.driver.cuIpcGetEventHandle(self.id)

    def record(self, stream: StreamHandle) -> None:
        """Mark this moment of a stream."""
        if self.id and stream.device is not self.device:
            raise RuntimeError(f"Event device {self.device} does not match recording stream's device {stream.device}.")
        self.device = stream.device
        self.devices.enter(stream.device.index or 0)
        if not self.id:
            self.id = self.devices.driver.cuEventCreate(self.flags)
        self.devices.driver.cuEventRecord(self.id, stream.id)

    def query(self) -> bool:
        """Whether what came before is done."""
        if not self.id:
            return True
        self.devices.enter_any()
        return self.devices.driver.cuEventQuery(self.id)

    def synchronize(self) -> None:
        """Wait until it is."""
        if self.id:
            self.devices.enter_any()
            self.devices.driver.cuEventSynchronize(self.id)

    def elapsed(self, end: EventHandle) -> float:
        """Milliseconds from this event to another; both were recorded, on one device."""
        if self.device is not end.device:
            raise RuntimeError(f"no time lies between events of two devices: {self.device} and {end.device}")
        self.devices.enter_any()
        return self.devices.driver.cuEventElapsedTime(self.id, end.id)

    def __del__(self) -> None:
        if getattr(self, "id", 0) and not self.devices.forked:
            with suppress(CudaError):  # a device that failed, or a driver that ended, has nothing to forget
                self.devices.enter_any()
                self.devices.driver.cuEventDestroy(self.id)


class Streams:
    """The streams of all devices: default ones, pools of others, and each thread's current ones."""

    def __init__(self, devices: Devices) -> None:
        self.devices = devices
        self.default = [CudaStream(devices, Device("cuda", i), 0) for i in range(devices.count)]
        self._pools: dict[tuple[int, int], list[CudaStream]] = {}
        self._next: dict[tuple[int, int], int] = {}
        self._lock = threading.Lock()

    def new(self, device: Device, priority: int = 0) -> CudaStream:
        """A stream from the pool of a device and priority, one after the other."""
        index = device.index or 0
        with self._lock:
            pool = self._pools.setdefault((index, priority), [])
            at = self._next.get((index, priority), 0)
            if at == len(pool):
                self.devices.enter(index)
                handle = self.devices.driver.cuStreamCreateWithPriority(STREAM_NON_BLOCKING, priority)
                pool.append(CudaStream(self.devices, device, handle, priority))
            self._next[index, priority] = (at + 1) % _POOL  # last: making a stream may fail, or be interrupted
            return pool[at]

    def external(self, handle: int, device: Device) -> CudaStream:
        """The stream of a handle: one of ours, or one that somebody else made."""
        own = [self.default[device.index or 0]] if not handle else []
        pools = [s for (index, _), pool in self._pools.items() if index == (device.index or 0) for s in pool]
        return next((s for s in own + pools if s.id == handle), CudaStream(self.devices, device, handle))

    def current(self, index: int) -> CudaStream:
        """The stream of this thread on a device."""
        default = self.default[index]
        return CURRENT_STREAMS.by_device.get(default.device, default)  # type: ignore[return-value]

    def set_current(self, stream: CudaStream) -> None:
        """Let this thread's calls on the stream's device go to it."""
        CURRENT_STREAMS.choose(stream, not stream.id)

    def handles(self) -> tuple[int, ...]:
        """The driver's handles of this thread's streams, by device."""
        return tuple([self.current(index).id for index in range(self.devices.count)])
