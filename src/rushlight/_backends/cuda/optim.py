"""Optimizers' steps over many parameters in one launch.

The host's part gives a table with a row for each parameter: the addresses of its arrays, the bits of its numbers, and
its size (see `rushlight._engine.dispatch.multi_tensor`).  A program takes some elements of one parameter; which, says a
map that depends on the sizes alone and stays on the device.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rushlight._backends.cuda.driver.api import slots
from rushlight._backends.cuda.kernels import DeviceKernel
from rushlight._backends.cuda.target import CUDA_TARGET
from rushlight._codegen.blocks import Kernel, Pointer, Tile, Value
from rushlight._codegen.grid.signature import Signature
from rushlight._codegen.grid.tiles import GridBuilder, ceil_div
from rushlight._codegen.nest import Nest
from rushlight._schedule.expressions import Buffer
from rushlight._schedule.groups import Group, Stage
from rushlight._schedule.scheduling import schedule_graph
from rushlight._types.device import Device
from rushlight._types.dtype import FLOAT64, INT64, DType

if TYPE_CHECKING:
    from rushlight._backends.cuda.backend import CudaBackend
    from rushlight._graph.core import Graph

__all__ = ["MultiTensor", "rows_update_kernel"]

_TILE, _TILES = 1024, 4  # elements of a tile, and tiles of a program
_SIZE_AT = 8  # words of a row's constants before its size
_PIECES_AT = 8  # words of a call before its pieces of work
_SIZE = 1 << 20  # for which the rule is scheduled; the kernel takes any


class _RowSignature(Signature):
    """Memory and numbers of a row of the table, in the place of parameters."""

    def __init__(self, g: GridBuilder, buffers: Mapping[Buffer, int], first: int) -> None:
        super().__init__(g.b, INT64)
        self.places, self.first = buffers, first
        self.row: Value | None = None  # where the row begins in the table, once it is known
        self._held: dict[int, Value] = {}

    def word(self, place: int) -> Value:
        """A word of the row."""
        assert self.row is not None
        found = self._held.get(place)
        if found is None:
            at = self.b.offset(self.row, self.constant(place, INT64))
            found = self._held[place] = self.b.load(at)
        return found

    def pointer(self, buffer: Buffer) -> Value:
        return self.b.value("pointer_cast", self.word(self.places[buffer]), to=buffer.dtype)

    def argument(self, word: int, dtype: DType) -> Value:
        number = self.b.pointwise("bitcast", self.word(word), dtype=FLOAT64)
        return self.b.convert(number, dtype)


def rows_update_kernel(graph: Graph, layouts: Sequence[Any], aliases: Mapping[int, int]) -> Kernel:
    """The kernel of a rule on arrays of one dim, each written in place, with the table and the map as parameters."""
    schedule = schedule_graph(graph, layouts, None, dict(aliases), {}, CUDA_TARGET)
    (group,) = schedule.groups
    assert isinstance(group, Group) and len(group.stages) == 1, "a rule must change each element by itself"
    nest = Nest(group, CUDA_TARGET)
    nest.merge_dims()
    (stage,) = nest.stages
    arrays = len(schedule.inputs)
    g = GridBuilder("update", INT64, range(arrays, len(layouts)), 1)
    signature = _RowSignature(g, {b: k for k, b in enumerate(schedule.inputs)}, arrays)
    g.signature = g.elements.signature = signature
    _body(g, signature, stage, len(layouts))
    return g.b.finish(warps=4)


def _body(g: GridBuilder, signature: _RowSignature, stage: Stage, buffers: int) -> None:
    b = g.b
    table, chunks = (_parameter(g, name) for name in ("table", "map"))
    place = b.offset(chunks, g.elements.apply("mul", g.program(), signature.constant(2, INT64)))
    row = b.load(place)
    part = b.load(b.offset(place, signature.constant(1, INT64)))
    signature.row = b.offset(table, g.elements.apply("mul", row, signature.constant(buffers + 1, INT64)))
    for word in range(buffers + 1):
        signature.word(word)
    size = signature.word(buffers)
    begin = g.elements.apply("mul", part, signature.constant(_TILE * _TILES, INT64))

    def turn(tile: Value) -> list[Value]:
        at = g.places(g.elements.apply("add", begin, tile), _TILE, 0)
        inside = g.elements.inner({stage.loops[0]: at}, [g.elements.apply("lt", at, size)])
        for store in stage.stores:
            inside.x(store.value)  # all is read before anything is written
        for store in stage.stores:
            inside.store(store)
        return []

    end = signature.constant(_TILE * _TILES, INT64)
    b.for_(signature.constant(0, INT64), end, signature.constant(_TILE, INT64), [], turn)


def _parameter(g: GridBuilder, name: str) -> Value:
    value = Value(Tile(Pointer(INT64)), None, name)
    g.b.params.append(value)
    return value


class _Chunks(NamedTuple):
    """The map of some sizes on the device, and how many programs there are."""

    storage: Any
    programs: int


class MultiTensor:
    """See the module's text; the methods are those that `Backend.multi_tensor` names."""

    adafactor = None

    def __init__(self, backend: CudaBackend) -> None:
        self.backend = backend
        self.kernels: list[Kernel] = []
        self._ready: dict[tuple[int, int], DeviceKernel] = {}
        self._chunks: dict[tuple[int, tuple[int, ...]], _Chunks] = {}

    def element_kernel(self, trace: Callable[[int], Graph], layouts: Sequence[Any], aliases: Mapping[int, int]) -> int:
        """The number of the kernel of a rule."""
        self.kernels.append(rows_update_kernel(trace(_SIZE), layouts, aliases))
        return len(self.kernels) - 1

    def update_rows(self, work: int, table: int, kernel: int, buffers: int) -> None:
        """Run a kernel over all rows of a table of the host."""
        backend = self.backend
        pieces = ctypes.c_int64.from_address(work).value
        rows = ctypes.c_int64.from_address(work + 8 * (_PIECES_AT + 3 * (pieces - 1) + 1)).value
        words = array("q", (ctypes.c_int64 * (rows * (buffers + 1))).from_address(table))
        for row in range(rows):
            at = row * (buffers + 1) + buffers
            words[at] = ctypes.c_int64.from_address(words[at] + 8 * _SIZE_AT).value
        sizes = tuple(words[buffers :: buffers + 1])
        device = Device("cuda", backend.memory.device_at(words[0]))
        stream = backend.enter(device)
        chunks = self._map(sizes, device)
        on_device = backend.allocate(8 * len(words), device)
        backend.copy_in(on_device.ptr, words.buffer_info()[0], 8 * len(words), wait=False)
        key = kernel, device.index or 0
        ready = self._ready.get(key)
        if ready is None:
            ready = self._ready[key] = backend.kernels(device).get(self.kernels[kernel])
        ready.launch(stream, (chunks.programs, 1, 1), slots(on_device.ptr, chunks.storage.ptr))

    def _map(self, sizes: tuple[int, ...], device: Device) -> _Chunks:
        key = device.index or 0, sizes
        found = self._chunks.get(key)
        if found is None:
            each = _TILE * _TILES
            words = array("q")
            for row, size in enumerate(sizes):
                for part in range(ceil_div(size, each)):
                    words.extend((row, part))
            storage = self.backend.allocate(8 * len(words), device)
            self.backend.copy_in(storage.ptr, words.buffer_info()[0], 8 * len(words))
            if len(self._chunks) > 64:
                self._chunks.clear()
            found = self._chunks[key] = _Chunks(storage, len(words) // 2)
        return found
