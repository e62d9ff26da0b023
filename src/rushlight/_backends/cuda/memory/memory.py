"""The memory of all GPUs: one allocator a device, pinned memory, and the blocks that storages show."""

from __future__ import annotations

from typing import Any

from rushlight._backends.cuda.devices import Devices
from rushlight._backends.cuda.driver.attributes import POINTER
from rushlight._backends.cuda.driver.errors import CudaError
from rushlight._backends.cuda.memory.allocator import Allocator
from rushlight._backends.cuda.memory.chunks import Chunk
from rushlight._backends.cuda.memory.history import Recording
from rushlight._backends.cuda.memory.pinned import PinnedMemory
from rushlight._backends.cuda.memory.pluggable import Pluggable
from rushlight._backends.cuda.memory.settings import current, parse
from rushlight._backends.cuda.native.unit import Shared
from rushlight._backends.cuda.streams import Streams
from rushlight._backends.protocol import Block
from rushlight._types.device import Device

__all__ = ["CudaBlock", "EmptyBlock", "ForeignBlock", "Memory"]


class CudaBlock(Block):
    """A chunk of a GPU's memory; it goes back to the allocator when nobody shows it any longer."""

    __slots__ = ("allocator", "chunk")

    movable = True

    def __init__(self, allocator: Allocator, chunk: Chunk, nbytes: int, device: Device) -> None:
        self.allocator, self.chunk = allocator, chunk
        super().__init__(chunk.address, nbytes, device)

    def __del__(self) -> None:
        self.allocator.free(self.chunk)


class EmptyBlock(Block):
    """No bytes: there is no memory, and a tensor over it may get some."""

    __slots__ = ()

    movable = True


class ForeignBlock(Block):
    """Memory of a GPU that somebody else has: another process, or another library (`owner`)."""

    __slots__ = ("owner",)

    def __init__(self, address: int, nbytes: int, device: Device, owner: Any) -> None:
        super().__init__(address, nbytes, device)
        self.owner = owner


class Memory:
    """The allocators of all devices."""

    def __init__(self, devices: Devices, streams: Streams) -> None:
        self.devices, self.streams = devices, streams
        settings = current()
        self.shared = Shared()
        self.allocators = [Allocator(devices, index, settings, shared=self.shared) for index in range(devices.count)]
        self.pinned = PinnedMemory(devices)
        self.empty = [Device("cuda", index) for index in range(devices.count)]

    def allocate(self, nbytes: int, device: Device) -> Block:
        """A block for work of the current stream; one of no bytes has no memory."""
        index = device.index or 0
        if not nbytes:
            return EmptyBlock(0, 0, device)
        allocator = self.allocators[index]
        return CudaBlock(allocator, allocator.allocate(nbytes, self.streams.current(index)), nbytes, device)

    def set(self, text: str) -> None:
        """Replace the settings; ValueError for those that there are not."""
        settings = parse(text)
        for allocator in self.allocators:
            allocator.settings = settings

    @staticmethod
    def pluggable(allocate: int, release: int) -> Pluggable:
        """An allocator from the addresses of two C functions."""
        return Pluggable(allocate, release)

    def record_history(self, asked: tuple[Any, ...], clear: bool) -> None:
        """Record what `Recording.asked` says from now on."""
        recording = Recording.asked(*asked)
        for allocator in self.allocators:
            allocator.record_history(recording, clear)

    def plug(self, source: Any) -> None:
        """Let a program's own allocator serve all requests on all devices."""
        for allocator in self.allocators:
            allocator.plug(source)

    def device_at(self, address: int) -> int:
        """The index of the device whose memory has an address."""
        for allocator in self.allocators:
            if allocator.segment_at(address) is not None:
                return allocator.index
        self.devices.enter_any()
        try:
            return self.devices.driver.cuPointerGetAttribute(POINTER["device_ordinal"], address)
        except CudaError:
            raise RuntimeError(f"{address:#x} is no address of a GPU's memory") from None

    def record(self, address: int, device: Device, stream: Any) -> None:
        """A further stream uses the memory at an address; nothing for memory that is not of the allocator."""
        allocator = self.allocators[device.index or 0]
        chunk = allocator.chunk_at(address)
        if chunk is not None:
            allocator.record(chunk, stream)
