"""The reference backend as an instance of the protocol: graphs run in NumPy on memory that the host can open.

By itself it works on the host's memory and serves no device type.  A backend for a new device can start from it: once
`opened` gives access to the device's memory, every operator, its gradient and its in-place form run before the first
kernel is written.

>>> from rushlight._backends.reference.backend import ReferenceBackend
>>> from rushlight._graph.core import trace
>>> from rushlight._types.device import CPU
>>> from rushlight._types.dtype import FLOAT64
>>> backend = ReferenceBackend()
>>> graph = trace(lambda x: x * 2.0, [((2,), FLOAT64)])
>>> given = backend.zeros(16, CPU)
>>> memoryview(given).cast("d")[1] = 1.5
>>> memoryview(backend.compile(graph, [(1,)], [(1,)], CPU)(given.ptr)).cast("d").tolist()
[0.0, 3.0]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rushlight._backends.protocol import Backend, Step
from rushlight._backends.reference.run import run
from rushlight._backends.registry import host
from rushlight._base.lazy import numpy as np
from rushlight._graph.core import Graph
from rushlight._prims.numbers import holder
from rushlight._types.device import Device
from rushlight._types.dtype import BFLOAT16, COMPLEX32, FLOAT8, DType
from rushlight._types.float8 import encode, values
from rushlight._types.layout import extent, numel

__all__ = ["ReferenceBackend", "ReferenceExecutable", "load_elements", "store_elements"]


class ReferenceBackend(Backend):
    """Compiles a graph to its interpretation by the primitives' references.  A subclass for a device supplies the
    memory."""

    type = "reference"

    def allocate(self, nbytes: int, device: Device) -> Any:
        """A storage of the host's memory."""
        return host().allocate(nbytes, device)

    def zeros(self, nbytes: int, device: Device) -> Any:
        """A storage of the host's memory, zeroed."""
        return host().zeros(nbytes, device)

    def window(self, address: int, nbytes: int) -> memoryview:
        """The host's bytes at an address."""
        return host().window(address, nbytes)

    @contextmanager
    def opened(self, address: int, nbytes: int) -> Iterator[memoryview]:
        """The device's bytes at an address, for the host to read and write within the block."""
        yield self.window(address, nbytes)

    def compile(
        self,
        graph: Graph,
        in_layouts: Sequence[tuple[int, ...] | None],
        out_layouts: Sequence[tuple[int, ...]],
        device: Device,
        aliases: Mapping[int, int] | None = None,
        overlaps: Mapping[int, Sequence[int]] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> ReferenceExecutable:
        """See `Backend.compile`.  Inputs are copied before anything is written, so overlaps are safe."""
        return ReferenceExecutable(self, graph, in_layouts, out_layouts, device, aliases or {})

    def steps(self, graph: Graph, in_layouts: Sequence[Any], out_layouts: Sequence[Any]) -> int:
        """One for each primitive."""
        return len(graph.nodes)

    def reader(self, dtype: DType) -> Callable[[int], Any]:
        """A function from the address of an element to a Python number."""
        if holder(dtype).startswith("uint") and not dtype.is_integer:
            raise NotImplementedError(f"no element of dtype {dtype} can be read as a number")

        def read(address: int) -> Any:
            with self.opened(address, dtype.itemsize) as memory:
                return load_elements(memory, dtype, (), ()).item()

        return read


class ReferenceExecutable:
    """One graph with the layouts of its inputs and outputs; see `Executable`."""

    __slots__ = ("aliases", "backend", "device", "graph", "in_layouts", "out_layouts")

    def __init__(
        self,
        backend: ReferenceBackend,
        graph: Graph,
        in_layouts: Sequence[tuple[int, ...] | None],
        out_layouts: Sequence[tuple[int, ...]],
        device: Device,
        aliases: Mapping[int, int],
    ) -> None:
        self.backend, self.graph, self.device, self.aliases = backend, graph, device, dict(aliases)
        self.in_layouts, self.out_layouts = in_layouts, out_layouts

    def __call__(self, *words: Any) -> Any:
        """Run on addresses of tensors, then numbers; see `Executable`."""
        tensors = [v for v in self.graph.inputs if not v.weak]
        addresses, numbers = words[: len(tensors)], list(words[len(tensors) :])
        given, rest = iter(addresses), iter(numbers)
        places: list[int] = []
        arguments: list[Any] = []
        for value, layout in zip(self.graph.inputs, self.in_layouts, strict=True):
            if value.weak:
                places.append(0)
                arguments.append(complex(next(rest), next(rest)) if value.dtype.is_complex else next(rest))
            else:
                places.append(next(given))
                assert layout is not None
                arguments.append(self._read(places[-1], value, layout))
        fresh = [self._written(array, k, places) for k, array in enumerate(run(self.graph, arguments))]
        made = [storage for k, storage in enumerate(fresh) if k not in self.aliases]
        return made[0] if len(made) == 1 else tuple(made) if made else None

    def _read(self, address: int, value: Any, layout: tuple[int, ...]) -> Any:
        nbytes = _span(value.shape, layout, value.dtype)
        with self.backend.opened(address, nbytes) as memory:
            return load_elements(memory, value.dtype, value.shape, layout)

    def _written(self, array: Any, number: int, places: Sequence[int]) -> Any:
        """Write one output to fresh memory, or to that of the input that it aliases; returns the storage."""
        value, layout, storage = self.graph.outputs[number], self.out_layouts[number], None
        nbytes = _span(value.shape, layout, value.dtype)
        if number in self.aliases:
            address = places[self.aliases[number]]
        else:
            storage = self.backend.allocate(nbytes, self.device)
            address = storage.ptr
        with self.backend.opened(address, nbytes) as memory:
            store_elements(memory, value.dtype, value.shape, layout, array)
        return storage

    def steps(self) -> list[Step]:
        """One: the interpreter runs the primitives in order."""
        moved = sum(numel(v.shape) * v.dtype.itemsize for v in (*self.graph.inputs, *self.graph.outputs))
        return [Step("reference", moved)]

    def timed(self, words: Sequence[Any], clock: Callable[[], float]) -> tuple[Any, list[float]]:
        """A call, and its duration."""
        began = clock()
        result = self(*words)
        return result, [clock() - began]

    def code(self) -> list[tuple[str, str]]:
        """No kernel is generated."""
        return []

    assembly = code

    def explain(self, asm: bool = False) -> str:
        """The graph, which is what runs."""
        return "\n".join(str(node) for node in self.graph.nodes)

    @property
    def notes(self) -> list[str]:
        """Nothing is fused."""
        return ["every primitive runs by itself, in NumPy"]


# ***** elements of dtypes that NumPy lacks *****


def _span(shape: Sequence[int], strides: Sequence[int], dtype: DType) -> int:
    """Bytes from the first element to the end of the last."""
    return extent(shape, strides) * dtype.itemsize if 0 not in shape else 0


def _raw(memory: memoryview, dtype: DType, shape: Sequence[int], strides: Sequence[int]) -> Any:
    """The strided elements in memory; dtypes that NumPy lacks as their bits."""
    code = dtype.numpy_name or f"uint{8 * dtype.itemsize}"
    if 0 in shape:
        return np.zeros(shape, code)
    return np.ndarray(tuple(shape), code, memory, 0, tuple(s * dtype.itemsize for s in strides))


def load_elements(memory: memoryview, dtype: DType, shape: Sequence[int], strides: Sequence[int]) -> Any:
    """A copy of strided elements in the array type that stores `dtype` (see `_prims.numbers.holder`)."""
    raw = np.array(_raw(memory, dtype, shape, strides), order="C")
    if dtype is BFLOAT16:
        return (raw.astype(np.uint32) << 16).view(np.float32).reshape(tuple(shape))
    if dtype in FLOAT8:
        return np.array(values(dtype.name), dtype=np.float32)[raw]
    if dtype is COMPLEX32:
        parts = raw.reshape(-1).view(np.float16).astype(np.float32).reshape(-1, 2)
        return (parts[:, 0] + np.complex64(1j) * parts[:, 1]).reshape(tuple(shape))
    return raw


def store_elements(memory: memoryview, dtype: DType, shape: Sequence[int], strides: Sequence[int], array: Any) -> None:
    """Write the array of a value into strided memory of its dtype."""
    if dtype is BFLOAT16:
        bits = np.ascontiguousarray(array, dtype=np.float32).view(np.uint32) >> 16
        array = bits.astype(np.uint16)
    elif dtype in FLOAT8:
        array = np.array([encode(dtype.name, v) for v in array.ravel().tolist()], dtype=np.uint8).reshape(array.shape)
    elif dtype is COMPLEX32:
        parts = np.stack([array.real, array.imag], -1).astype(np.float16)
        array = parts.reshape(-1).view(np.uint32).reshape(array.shape)
    _raw(memory, dtype, shape, strides)[...] = np.asarray(array).reshape(tuple(shape))
