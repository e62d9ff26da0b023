"""Steps measured on memory of their own: what decides between our kernels and a library."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any

from rushlight._backends.cuda.arguments import span
from rushlight._backends.cuda.immediate import Immediate, Placed
from rushlight._backends.cuda.program.steps import Memory, Operand, Step
from rushlight._base.lazy import numpy as np
from rushlight._codegen.blocks.memory import bits_of, numbers_of

if TYPE_CHECKING:
    from rushlight._backends.cuda.backend import CudaBackend
    from rushlight._types.device import Device

__all__ = ["Trial"]


class Trial:
    """Memory with the numbers of `given`, in the order in which they lie there, and room for `outputs`."""

    def __init__(
        self, backend: CudaBackend, device: Device, given: Sequence[tuple[Operand, Any]], outputs: Sequence[Operand]
    ) -> None:
        self.now, self.backend, self.device, self.outputs = Immediate(backend, device), backend, device, outputs
        self.held: dict[Memory, Any] = {}
        for x in (*(x for x, _ in given), *outputs):
            self.held[x.memory] = backend.allocate((x.offset + span(x)) * x.dtype.itemsize, device)
        for x, numbers in given:
            self.now.write(self._place(x), bits_of(np.ascontiguousarray(numbers).reshape(-1), x.dtype).tobytes())

    def _place(self, x: Operand) -> Placed:
        return Placed(self.held[x.memory].ptr + x.offset * x.dtype.itemsize)

    def timed(self, steps: Sequence[Step]) -> tuple[list[Any], float]:
        """The numbers that lie in each output, and the seconds of the second run."""
        for x in self.outputs:  # what writes nothing must not agree with the one before
            self.now.write(self._place(x), b"\xff" * (span(x) * x.dtype.itemsize))
        seconds = 0.0
        for _ in range(2):
            self.backend.synchronize(self.device)
            began = perf_counter()
            self.now.run(steps, self.held)
            self.backend.synchronize(self.device)
            seconds = perf_counter() - began
        return [self._read(x) for x in self.outputs], seconds

    def _read(self, x: Operand) -> Any:
        raw = np.frombuffer(self.now.read(self._place(x), span(x) * x.dtype.itemsize), np.uint8)
        return numbers_of(raw, x.dtype)
