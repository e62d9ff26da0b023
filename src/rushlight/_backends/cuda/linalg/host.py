"""The host's LAPACK as a step of a program: operands are copied to the host, results back.

It stands in the table of routines under the primitive's name with `, by the host`, so `explain` shows it.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from rushlight._backends.cuda.externs import ExternCall
from rushlight._backends.cuda.program.steps import Call, Operand
from rushlight._backends.registry import backend_of, host
from rushlight._graph.core import trace
from rushlight._prims import PRIMITIVES
from rushlight._types.device import CPU, Device
from rushlight._types.layout import numel

if TYPE_CHECKING:
    from rushlight._backends.protocol import Backend

__all__ = ["host_step"]


def host_step(call: ExternCall) -> Call:
    """The step for a call whose operands and results are row-major."""
    return Call(f"{call.name}, by the host", _HostCall(call), [*call.inputs, *call.outputs])


class _HostCall:
    """Called with a stream and the addresses of operands and results; the program of the host is compiled once."""

    def __init__(self, call: ExternCall) -> None:
        self.name, self.params = call.name, call.params
        self.inputs, self.outputs = list(call.inputs), list(call.outputs)
        self.program: Any = None

    def _compiled(self) -> Any:
        if self.program is None:
            primitive, params = PRIMITIVES[self.name], self.params
            specs = [(x.shape, x.dtype) for x in self.inputs]
            graph = trace(lambda *xs: primitive(*xs, **params), specs)
            layouts = [x.strides for x in self.inputs], [x.strides for x in self.outputs]
            self.program = host().compile(graph, *layouts, CPU)
        return self.program

    def __call__(self, stream: int, *addresses: int) -> None:
        backend: Backend = backend_of(Device("cuda", 0))
        count = len(self.inputs)
        held = [_Bytes(x) for x in self.inputs]
        for data, address in zip(held, addresses[:count], strict=True):
            if data.nbytes:
                backend.copy_out(data.address, address, data.nbytes)
        made = self._compiled()(*[data.address for data in held])
        results = made if isinstance(made, tuple) else (made,)
        for x, storage, address in zip(self.outputs, results, addresses[count:], strict=True):
            if numel(x.shape):
                backend.copy_in(address, storage.ptr, numel(x.shape) * x.dtype.itemsize)


class _Bytes:
    """Memory of the host for an operand."""

    def __init__(self, x: Operand) -> None:
        self.nbytes = numel(x.shape) * x.dtype.itemsize
        self.data = ctypes.create_string_buffer(self.nbytes + 64)
        self.address = (ctypes.addressof(self.data) + 63) & -64
