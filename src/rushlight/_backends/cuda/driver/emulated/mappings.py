"""Memory that is mapped at reserved addresses of the emulated driver: the calls on virtual memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rushlight._backends.cuda.driver.errors import fail

if TYPE_CHECKING:
    from rushlight._backends.cuda.driver.emulated.memory import Region

__all__ = ["Mappings", "Physical"]


class Physical:
    """Memory of a device without an address of its own."""

    def __init__(self, device: int, nbytes: int) -> None:
        self.device, self.nbytes = device, nbytes
        self.address: int | None = None  # where it is mapped
        self.released = False


class Mappings:
    """Physical memory that is mapped at reserved addresses."""

    def __init__(self, region: Region) -> None:
        self.region = region
        self.shown: dict[int, Physical] = {}  # by the first address
        self.open: set[int] = set()  # those that `cuMemSetAccess` named

    def _at(self, address: int) -> tuple[int, Physical] | None:
        return next(((start, p) for start, p in self.shown.items() if start <= address < start + p.nbytes), None)

    def device_of(self, address: int) -> int | None:
        """The device whose memory an address shows; None where nothing is mapped."""
        found = self._at(address)
        return None if found is None else found[1].device

    def check(self, address: int, nbytes: int, call: str) -> None:
        """CudaError unless all of a stretch is mapped and open."""
        at = address
        while at < address + max(nbytes, 1):
            found = self._at(at)
            if found is None or found[0] not in self.open:
                fail("CUDA_ERROR_INVALID_VALUE", call, f"{nbytes} bytes at {address:#x} are not mapped")
            at = found[0] + found[1].nbytes

    def create(self, device: int, nbytes: int, granularity: int, call: str) -> Physical:
        """Memory of a device."""
        if nbytes <= 0 or nbytes % granularity:
            fail("CUDA_ERROR_INVALID_VALUE", call, f"{nbytes} bytes are no multiple of {granularity}")
        part = self.region.devices[device]
        if part.held + nbytes > part.nbytes:
            fail("CUDA_ERROR_OUT_OF_MEMORY", call)
        part.held += nbytes
        return Physical(device, nbytes)

    def map(self, address: int, nbytes: int, memory: Physical, call: str) -> None:
        """Show memory at reserved addresses."""
        found = self.region.reserved.range_of(address)
        if found is None or address + nbytes > found[0] + found[1]:
            fail("CUDA_ERROR_INVALID_VALUE", call, f"{nbytes} bytes at {address:#x} are not reserved")
        if nbytes != memory.nbytes or memory.address is not None:
            fail("CUDA_ERROR_INVALID_VALUE", call, "the emulated driver maps memory as a whole, and once")
        if any(start < address + nbytes and address < start + p.nbytes for start, p in self.shown.items()):
            fail("CUDA_ERROR_INVALID_VALUE", call, f"{address:#x} is mapped already")
        memory.address = address
        self.shown[address] = memory

    def unmap(self, address: int, nbytes: int, call: str) -> None:
        """Take whole mappings back."""
        end = address + nbytes
        gone = {start: p for start, p in self.shown.items() if address <= start < end}
        if sum(p.nbytes for p in gone.values()) != nbytes:
            fail("CUDA_ERROR_INVALID_VALUE", call, f"{nbytes} bytes at {address:#x} are no whole mappings")
        for start, memory in gone.items():
            del self.shown[start]
            self.open.discard(start)
            memory.address = None
            self.give_back(memory)
        self.region.release_pages(address, nbytes)

    def give_back(self, memory: Physical) -> None:
        """Count memory as free that is released and shown nowhere."""
        if memory.released and memory.address is None:
            self.region.devices[memory.device].held -= memory.nbytes
