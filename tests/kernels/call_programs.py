"""Programs of calls for tests: each call is written into one graph with borders, and run by itself as an operator is.

program = Calls()
x = program.input((3, 4), FLOAT32)
y = program.call(lambda x: prim.exp(x), x)
program.check([y])          # the linked program gives the bytes of the calls
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from rushlight._backends.registry import backend_of
from rushlight._graph.core import GraphBuilder, evaluate, trace
from rushlight._prims import build
from rushlight._prims.effects import prim
from rushlight._types.device import CPU
from rushlight._types.dtype import DType
from rushlight._types.layout import contiguous_strides, extent

__all__ = ["Calls", "Stored", "bytes_of", "filled"]


def backend() -> Any:
    return backend_of(CPU)


def filled(storage: Any, dtype: DType, count: int, seed: int) -> None:
    """Fill memory with numbers of a dtype."""
    rand = random.Random(seed)
    import rushlight as torch

    numbers = [rand.randrange(0, 3) if dtype.kind in "iub" else rand.uniform(-2, 2) for _ in range(count)]
    made = torch.tensor(numbers, dtype=getattr(torch, dtype.name))
    backend().copy_in(storage.ptr, made.data_ptr(), count * dtype.itemsize)


def bytes_of(storage: Any) -> bytes:
    """What lies in memory."""
    return bytes(backend().window(storage.ptr, storage.nbytes)) if storage.nbytes else b""


class Stored:
    """A view of memory: its value in the program's graph, and where it lies."""

    def __init__(self, value: Any, storage: Any, strides: Sequence[int], offset: int = 0) -> None:
        self.value, self.storage, self.strides, self.offset = value, storage, tuple(strides), offset

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.value.shape)

    @property
    def dtype(self) -> DType:
        return self.value.dtype


class Calls:
    """A program under construction."""

    def __init__(self, seed: int = 0) -> None:
        self.builder = GraphBuilder()
        self.inputs: list[Stored] = []
        self.seed, self.calls = seed, 0

    def input(self, shape: Sequence[int], dtype: DType, strides: Sequence[int] | None = None) -> Stored:
        """An input with random contents."""
        strides = contiguous_strides(shape) if strides is None else strides
        count = extent(shape, strides)
        storage = backend().allocate(count * dtype.itemsize, CPU)
        self.seed += 1
        filled(storage, dtype, count, self.seed)
        made = Stored(self.builder.input(shape, dtype), storage, strides)
        self.inputs.append(made)
        return made

    def view(self, x: Stored, name: str, **params: Any) -> Stored:
        """A view of a value in memory."""
        primitive = getattr(prim, name)
        shape, strides, offset = primitive.layout(x.shape, x.strides, x.offset, **params)
        with self.builder:
            value = primitive(x.value, **params)
        assert tuple(value.shape) == tuple(shape)
        return Stored(value, x.storage, strides, offset)

    def call(
        self, function: Callable[..., Any], *operands: Stored, numbers: Sequence[Any] = (), strides: Any = None
    ) -> Any:
        """The result of a call, or a tuple of them; `numbers` are (content, dtype) and come behind the operands."""
        avals = [(x.shape, x.dtype) for x in operands] + [((), dtype) for _, dtype in numbers]
        graph = trace(function, avals)
        strides = [contiguous_strides(v.shape) for v in graph.outputs] if strides is None else strides
        layouts = [x.strides for x in operands] + [None] * len(numbers)
        run = backend().compile(graph, layouts, strides, CPU)
        words = [x.storage.ptr + x.offset * x.dtype.itemsize for x in operands]
        self.calls += 1
        found = run(*words, *[float(n) if d.kind == "f" else n for n, d in numbers])
        found = found if isinstance(found, tuple) else (found,)
        with self.builder:
            given = [prim.operand(x.value, call=self.calls) for x in operands]
            given += [prim.operand(build.full((), n, d), call=self.calls) for n, d in numbers]
            values = prim.border(*evaluate(graph, given), strides=tuple(map(tuple, strides)))
        made = tuple(Stored(v, s, lies) for v, s, lies in zip(values, found, strides, strict=True))
        return made[0] if len(made) == 1 else made

    def linked(self, outputs: Sequence[Stored], into: dict[int, Stored] | None = None, options: Any = None) -> Any:
        """The program as one executable; `into` names for outputs the input in whose memory they belong."""
        graph = self.builder.finish([x.value for x in outputs])
        inputs = [id(x) for x in self.inputs]
        aliases = {i: inputs.index(id(x)) for i, x in (into or {}).items()}
        return backend().compile(
            graph, [x.strides for x in self.inputs], [x.strides for x in outputs], CPU, aliases, None, options
        )

    def run(self, executable: Any, into: dict[int, Stored] | None = None) -> list[bytes]:
        """What a linked program gives for copies of the inputs; then what it left in those of `into`."""
        copies = []
        for x in self.inputs:
            copy = backend().allocate(x.storage.nbytes, CPU)
            backend().copy(copy.ptr, x.storage.ptr, x.storage.nbytes, CPU)
            copies.append(copy)
        found = executable(*[c.ptr for c in copies])
        results = [bytes_of(s) for s in (found if isinstance(found, tuple) else () if found is None else (found,))]
        return results + [bytes_of(copies[self.inputs.index(x)]) for x in (into or {}).values()]

    def check(self, outputs: Sequence[Stored], into: dict[int, Stored] | None = None, options: Any = None) -> Any:
        """Assert that the linked program gives the bytes of the calls, twice; the executable."""
        executable = self.linked(outputs, into, options)
        wanted = [bytes_of(x.storage) for i, x in enumerate(outputs) if i not in (into or {})]
        wanted += [bytes_of(outputs[i].storage) for i in into or {}]
        for _ in range(2):
            assert self.run(executable, into) == wanted
        return executable
