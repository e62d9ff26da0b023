"""The seed and the offset of a generator: on the host, and in the memory of a device for the draws of a captured graph.

A replay draws what the same calls would draw at that moment: the seed and the offset as they are then go to the device,
and the generator's offset grows by all that the graph takes.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from rushlight._backends.cuda.immediate import Immediate
from rushlight._backends.cuda.random.philox import STATE_BYTES, Stream, state_launch
from rushlight._host.random_state import OFFSET, SEED

if TYPE_CHECKING:
    from rushlight._backends.cuda.backend import CudaBackend
    from rushlight._types.device import Device

__all__ = ["RecordedStream", "StreamState"]


class StreamState:
    """The seed and the offset of a generator, at an address of the host."""

    def __init__(self, address: int) -> None:
        self.longs = (ctypes.c_uint64 * (OFFSET + 1)).from_address(address)

    @property
    def stream(self) -> Stream:
        return Stream(self.longs[SEED], self.longs[OFFSET])

    def move(self, by: int) -> None:
        """Let the offset grow."""
        self.longs[OFFSET] = self.longs[OFFSET] + by


class RecordedStream:
    """The stream of a generator in a captured graph; `owner` keeps the generator's memory."""

    def __init__(self, backend: CudaBackend, device: Device, address: int, owner: Any) -> None:
        self.now, self.host, self.owner = Immediate(backend, device), StreamState(address), owner
        self.storage, self.memory = self.now.allocate(STATE_BYTES)
        self.taken = 0

    @property
    def stream(self) -> Stream:
        """Where the next draw of the capture begins."""
        return Stream(0, self.taken, self.memory)

    def move(self, by: int) -> None:
        """Note what a draw takes."""
        self.taken += by

    def begin_replay(self) -> None:
        """Tell the device where the stream is, on the current stream of work, and move the generator on."""
        if self.taken:
            self.now.run([state_launch(self.memory, self.host.stream)])
            self.host.move(self.taken)
