"""Memory of GPUs among processes: segments by the driver's handles, ordered by an event.

Who sends memory keeps it while others use it, as in PyTorch.  A segment is opened once in a process, and closed with
the last tensor over it.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from rushlight._backends.cuda.driver.errors import CudaError
from rushlight._backends.cuda.memory.expandable import ExpandableSegment
from rushlight._backends.cuda.streams import CudaEvent
from rushlight._backends.protocol import ForeignBlock
from rushlight._types.device import Device

if TYPE_CHECKING:
    from rushlight._backends.cuda.backend import CudaBackend

__all__ = ["Sharing"]

_KEPT = 1024  # events that were sent: a process that is to open one must find it


class _Segment:
    """A segment of another process, open in this one."""

    __slots__ = ("__weakref__", "address", "backend", "index")

    def __init__(self, backend: CudaBackend, index: int, handle: bytes) -> None:
        self.backend, self.index = backend, index
        backend.devices.enter(index)
        self.address = backend.driver.cuIpcOpenMemHandle(handle)

    def __del__(self) -> None:
        if hasattr(self, "address") and not self.backend.devices.forked:
            with suppress(CudaError), self.backend.devices.aside(self.index):
                self.backend.driver.cuCtxSynchronize()
                self.backend.driver.cuIpcCloseMemHandle(self.address)


class Sharing:
    """Memory that a process sends, and memory of others that it opened."""

    def __init__(self, backend: CudaBackend) -> None:
        self.backend = backend
        self._open: WeakValueDictionary[bytes, _Segment] = WeakValueDictionary()
        self._sent: deque[CudaEvent] = deque(maxlen=_KEPT)

    def export(self, address: int, device: Device) -> tuple[int, bytes, int, bytes]:
        """Plain data for `opened` of another process: what the current stream has is done before it is used there."""
        index = device.index or 0
        segment = self.backend.memory.allocators[index].segment_at(address)
        if segment is None:
            raise RuntimeError(
                "memory that another process or library has cannot be sent on: send a clone of the tensor"
            )
        if isinstance(segment, ExpandableSegment):
            raise RuntimeError(
                "memory of expandable segments has no handle for other processes: send tensors with expandable_segments:False, or a clone made with "
                "torch.cuda.use_mem_pool and an allocator of its own"
            )
        event = CudaEvent(self.backend.devices, device, interprocess=True)
        event.record(self.backend.streams.current(index))
        self._sent.append(event)
        handle = self.backend.driver.cuIpcGetMemHandle(segment.address)
        return index, handle, address - segment.address, event.ipc_handle(self.backend.streams.current(index))

    def opened(self, data: tuple[int, bytes, int, bytes], nbytes: int) -> ForeignBlock:
        """The memory of another process, for work that the current stream gets from now on."""
        index, handle, offset, mark = data
        device = Device("cuda", index)
        segment = self._open.get(handle)
        if segment is None:
            segment = self._open[handle] = _Segment(self.backend, index, handle)
        self.backend.streams.current(index).wait(self.backend.opened_event(device, mark))
        return ForeignBlock(segment.address + offset, nbytes, device, segment)
