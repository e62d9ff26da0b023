"""Steps that run at once on a device, outside of programs: routines and random numbers."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from rushlight._backends.cuda.driver.api import slots
from rushlight._backends.cuda.kernels import word_of
from rushlight._backends.cuda.program.steps import Launch, Memory, Operand, Step
from rushlight._codegen.blocks import Pointer
from rushlight._codegen.grid.signature import relaxed
from rushlight._types.device import Device

if TYPE_CHECKING:
    from rushlight._backends.cuda.backend import CudaBackend

__all__ = ["Immediate", "Placed"]


class Placed(Memory):
    """Memory that lies at an address already."""

    __slots__ = ("address",)

    def __init__(self, address: int, nbytes: int = 0, name: str = "") -> None:
        super().__init__(nbytes, name)
        self.address = address


class Immediate:
    """The current device of this thread, or that of an address."""

    def __init__(self, backend: CudaBackend, device: Device) -> None:
        self.backend, self.device = backend, device
        self.kernels = backend.kernels(device)

    def run(self, steps: Sequence[Step], places: Mapping[Memory, Any] = MappingProxyType({})) -> None:
        """Give steps to the current stream; memory that is neither `Placed` nor a storage of `places` is allocated for their
        time.
        """
        stream = self.backend.enter(self.device)
        held: dict[Memory, Any] = dict(places)
        for step in steps:
            if not isinstance(step, Launch):
                step.function(stream, *[self._argument(a, held) for a in step.arguments])
                continue
            params = step.kernel.params
            words = [
                word_of(self._argument(a, held), p.type.element) for a, p in zip(step.arguments, params, strict=True)
            ]
            kernel = step.kernel
            if any(words[i] % by for i, by in kernel.divisible.items()):
                kernel = relaxed(kernel, [i for i, p in enumerate(params) if isinstance(p.type.element, Pointer)])
            self.kernels.get(kernel).launch(stream, step.grid, slots(*words))

    def _argument(self, given: Any, held: dict[Memory, Any]) -> Any:
        if isinstance(given, Operand):
            return self._address(given.memory, held) + given.offset * given.dtype.itemsize
        return self._address(given, held) if isinstance(given, Memory) else given

    def _address(self, memory: Memory, held: dict[Memory, Any]) -> int:
        if isinstance(memory, Placed):
            return memory.address
        if memory not in held:
            held[memory] = self.backend.allocate(memory.nbytes, self.device)
        return int(held[memory].ptr)

    def allocate(self, nbytes: int) -> tuple[Any, Placed]:
        """Memory, and the storage that holds it."""
        storage = self.backend.allocate(nbytes, self.device)
        return storage, Placed(storage.ptr, nbytes)

    def read(self, memory: Placed, nbytes: int) -> bytes:
        """The first bytes of some memory, behind all that was given to the current stream."""
        data = ctypes.create_string_buffer(nbytes)
        self.backend.copy_out(ctypes.addressof(data), memory.address, nbytes)
        return data.raw

    def write(self, memory: Placed, data: bytes) -> None:
        """Bytes of the host to some memory, in the order of the current stream."""
        source = ctypes.create_string_buffer(data, len(data))  # pageable: the driver has read it when the call returns
        self.backend.copy_in(memory.address, ctypes.addressof(source), len(data), wait=False)
