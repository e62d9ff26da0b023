"""Programs of launches, run from PTX: graphs of primitives, and what the backend's routines make of an operator."""

from __future__ import annotations

from typing import Any

import numpy as np
from tests.cuda.grids.grid_harness import Ran, compare, trace_arrays
from tests.cuda.running import Device

from rushlight._backends.cuda.program.steps import Launch, Memory, Operand
from rushlight._backends.reference import run as run_reference
from rushlight._types.dtype import BY_NAME

from .running import run_over

__all__ = ["PtxDevice", "PtxProgram", "check_primitive"]


class PtxProgram(Ran):
    """A graph whose launches are interpreted from PTX; `opcodes` are all that occurred."""

    def __init__(self, graph: Any, arrays: Any, architecture: str, **options: Any) -> None:
        self.architecture, self.opcodes, self.launches = architecture, set(), 0
        super().__init__(graph, arrays, **options)

    def _run(self, words: Any) -> None:
        for step in self.program.steps:
            if not isinstance(step, Launch):
                raise NotImplementedError(f"{step.name} is no kernel")
            for argument in step.arguments:
                memory = argument.memory if isinstance(argument, Operand) else argument
                if isinstance(memory, Memory) and memory not in self.data:
                    data = getattr(memory, "data", None)
                    self._put(
                        memory,
                        np.full(memory.nbytes, 0xA5, np.uint8)
                        if data is None
                        else np.frombuffer(data, np.uint8).copy(),
                    )
            given = [self._argument(a, words) for a in step.arguments]
            ran = run_over(step.kernel, step.grid, given, self.memory.buffers, self.architecture)
            self.opcodes |= ran.opcodes
            self.launches += 1


class PtxDevice(Device):
    """Memory with addresses; the steps of routines are interpreted from PTX."""

    def __init__(self, architecture: str) -> None:
        super().__init__()
        self.architecture = architecture

    def run(self, steps: Any, undefined: int = 0) -> None:
        for step in steps:
            assert isinstance(step, Launch), f"{step.name} is no kernel"
            given = [self.argument(a) for a in step.arguments]
            run_over(step.kernel, step.grid, given, self.memory.buffers, self.architecture)


def check_primitive(primitive: Any, arrays: Any, params: Any, architecture: str) -> PtxProgram:
    """Run a sample, and compare with the primitive's own NumPy reference."""
    arrays = [np.asarray(a) for a in arrays]
    single = any(a.dtype.name in ("float32", "complex64", "float16") for a in arrays)
    graph = trace_arrays(lambda *xs: primitive(*xs, **params), arrays, [BY_NAME[a.dtype.name] for a in arrays])
    expected = run_reference(graph, list(arrays))
    ran = PtxProgram(graph, arrays, architecture)
    tolerance = (2e-5, 1e-5) if single else (1e-10, 1e-10)
    for have, want in zip(ran.results, expected, strict=True):
        compare(have, want, *tolerance)
    return ran
