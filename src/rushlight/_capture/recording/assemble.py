"""From the log of a recording to one graph without memory.

Memory is an array of a stretch of addresses: what was written there last, in the layout in which it was written.  Reads
in that layout are the array itself, all others are views of it (`regions`), and a write to a part is a new array.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from rushlight._capture.recording.backend import FIRST_ADDRESS
from rushlight._capture.recording.bits import bits_as
from rushlight._capture.recording.element_numbers import ElementNumber
from rushlight._capture.recording.errors import RecordingError
from rushlight._capture.recording.log import Branch, Call, Check, Collective, Copy, Draw, Entry, Fill, Loop, Move, Read
from rushlight._capture.recording.regions import (
    Layout,
    RegionError,
    gathered,
    lies_apart,
    packed_like,
    path_to,
    rewritten,
    scattered,
    shown,
)
from rushlight._capture.recording.running.host_numbers import HostNumber, host_number
from rushlight._graph.core import Graph, Node, Value
from rushlight._graph.rewrite import RewritingBuilder
from rushlight._prims import build
from rushlight._prims.effects import prim
from rushlight._transforms.simplify import EXACT
from rushlight._types.dtype import BFLOAT16, BOOL, FLOAT16, FLOAT32, FLOAT64, INT32, INT64, UINT8, DType
from rushlight._types.layout import contiguous_strides, extent, numel

__all__ = ["Assembler", "Given", "laid_out"]

_FORMATS = {
    "bool": "?", "uint8": "B", "int8": "b", "uint16": "H", "int16": "h", "uint32": "I", "int32": "i", "uint64": "Q", "int64": "q", "float16": "e",
    "float32": "f", "float64": "d",
}  # fmt: skip
# Kinds of random numbers whose dtype is known.
_DRAWN = {"f32": FLOAT32, "f64": FLOAT64, "f16": FLOAT16, "bf16": BFLOAT16, "i64": INT64, "i32": INT32}


class Given(NamedTuple):
    """An input of the graph.

    `kind` is "input" (`content`: the number of the recording's input whose memory it is), "cotangent" (its number),
    "draw" (the entry of the log), "constant" (bytes), or "number" (of the host).
    """

    kind: str
    content: Any
    layout: Layout
    dtype: DType


class Stretch:
    """Contents of a stretch of memory: `value` in `layout` (in elements of `dtype` from `address` on), or `raw` content
    that nobody has read yet.
    """

    __slots__ = ("address", "dtype", "first", "layout", "nbytes", "raw", "root", "value")

    def __init__(self, address: int, nbytes: int) -> None:
        self.address, self.nbytes = address, nbytes
        self.value: Any = None
        self.dtype: Any = None
        self.layout = Layout((), ())
        self.raw: Any = None
        self.root: Any = None  # of an input: its `Given`
        self.first: Any = None  # of an input: the value that it has at first


class Assembler:
    """Writes the graph of a log.

    `roots` says for the memory of inputs, by address, in which layout and dtype the graph gets it; `place(i)` where
    input i begins in its memory, in elements; `flattened` which of these memories are given as rows of elements.
    """

    def __init__(
        self, recording: Any, roots: dict[int, Given], place: Callable[[int], int], flattened: set[int]
    ) -> None:
        self.recording, self.roots, self.place, self.flattened = recording, roots, place, flattened
        self.builder = RewritingBuilder(EXACT)
        self.given: dict[Any, Given] = {}
        self.numbers: dict[int, Any] = {}
        self.draws: dict[Any, Any] = {}
        self.stretches: dict[int, Stretch] = {}
        self.calls = 0
        self.checks: list[Any] = []  # bools that must be False
        self.orders: dict[int, Any] = {}  # of calls in process groups, by number of the group
        self.control_flow: Any = None  # who writes `Branch` and `Loop`

    # ***** the log *****

    def run(self, log: Sequence[Entry]) -> None:
        """Go through the log, or a part of it."""
        with self.builder:
            for entry in log:
                if type(entry) is Call:
                    self._call(entry)
                elif type(entry) is Fill:
                    self._fill(entry)
                elif type(entry) is Draw:
                    self._draw(entry)
                elif type(entry) is Read:
                    leaf = entry.leaf
                    leaf.value = self.read(leaf.address, (), (), leaf.dtype)
                elif isinstance(entry, (Branch, Loop)):
                    self.control_flow.write(self, entry)
                elif type(entry) is Collective:
                    self._collective(entry)
                elif type(entry) is Move:
                    self._move(entry)
                elif type(entry) is Check:
                    self.checks.append(self.read(entry.address, (), (), BOOL))
                else:
                    assert type(entry) is Copy
                    self._copy(entry)

    def _call(self, entry: Call) -> None:
        exe, words = entry.exe, iter(entry.words)
        self.calls += 1
        graph: Graph = exe.graph
        addresses: dict[int, int] = {i: next(words) for i, layout in enumerate(exe.in_layouts) if layout is not None}
        operands: list[Any] = []
        given: set[int] = set()
        for i, (value, layout) in enumerate(zip(graph.inputs, exe.in_layouts, strict=True)):
            if layout is not None:
                held = self.read(addresses[i], value.shape, layout, value.dtype)
                if id(held) in given:  # its kernel takes it as if they were two, and may add in another order else
                    self.calls += 1
                given.add(id(held))
                operands.append(self.operand(held))
            else:
                number = next(words)
                if value.dtype.is_complex:
                    number = complex(number, next(words))
                operands.append(self.operand(self.number(number, value.dtype)))
        strides = tuple(
            tuple(exe.in_layouts[exe.aliases[k]] if k in exe.aliases else exe.out_layouts[k])
            for k in range(len(graph.outputs))
        )
        results = prim.border(*self._inlined(graph, operands), strides=strides)
        fresh = iter(entry.fresh)
        for k, (value, result) in enumerate(zip(graph.outputs, results, strict=True)):
            target = exe.aliases.get(k)
            if target is None:
                self.write(next(fresh), value.shape, strides[k], result)
            else:
                self.write(addresses[target], value.shape, strides[k], result)

    def _move(self, entry: Move) -> None:
        """An element of the host becomes a tensor: kernels are given it as a number."""
        leaf, spec = entry.leaf, entry.spec
        exact = FLOAT64 if spec.dtype is FLOAT64 else FLOAT32 if spec.dtype.is_floating_point else INT64
        self.calls += 1
        leaf.value, leaf.dtype = self.read(leaf.address, (), (), spec.dtype), exact
        if spec.dtype is not exact:
            leaf.value = _call_of(build.convert(self.operand(leaf.value), exact))
        real = exact is not INT64
        value = self.number(host_number(leaf, float if real else int), FLOAT64 if real else INT64)
        self.calls += 1
        self.write(entry.address, (), (), _call_of(build.convert(self.operand(value), spec.dtype)))

    def _collective(self, entry: Collective) -> None:
        """A call of its own, after all others in its group."""
        (address, spec), (target, made), group = entry.operand, entry.result, entry.params["group"]
        if group not in self.orders:
            self.orders[group] = _call_of(build.full((), 0, INT64))
        strides = contiguous_strides(tuple(spec.shape))
        self.calls += 1
        order = self.operand(self.orders[group])
        x = self.operand(self.read(address, spec.shape, strides, spec.dtype))
        found = getattr(prim, entry.name)(order, x, **entry.params)
        lies = contiguous_strides(tuple(made.shape))
        self.orders[group], result = prim.border(*found, strides=((), tuple(lies)))
        self.write(target, made.shape, lies, result)

    def last_calls(self) -> list[Stretch]:
        """Outputs that keep the collective calls of each group in the program; the next part begins anew."""
        found = []
        for value in self.orders.values():
            made = Stretch(0, 8)
            made.value, made.dtype = value, INT64
            found.append(made)
        self.orders = {}
        return found

    def failed(self) -> Stretch:
        """Whether one of the checks fails, as memory that the program gives."""
        with self.builder:
            self.calls += 1
            found, *rest = [self.operand(value) for value in self.checks]
            for value in rest:
                found = prim.bitwise_or(found, value)
            made = Stretch(0, 1)
            made.value, made.dtype = _call_of(found), BOOL
        return made

    def operand(self, value: Any) -> Any:
        """A value as the call at hand is given it."""
        return prim.operand(value, call=self.calls)

    def _inlined(self, graph: Graph, operands: Sequence[Value]) -> list[Value]:
        """The outputs of a call's graph, whose nodes are copied as they are: rules were applied when it was made."""
        values = dict(zip(graph.inputs, operands, strict=True))
        nodes = self.builder.nodes
        for node in graph.nodes:
            copy = Node(
                node.prim,
                tuple([values[v] for v in node.inputs]),
                node.params,
                [(v.shape, v.dtype) for v in node.outputs],
            )
            nodes.append(copy)
            values.update(zip(node.outputs, copy.outputs, strict=True))
        return [values[v] for v in graph.outputs]

    def number(self, number: Any, dtype: DType) -> Any:
        """A Python number that was given to a kernel."""
        if isinstance(number, ElementNumber):
            return self.element(number.tensor, dtype)
        if isinstance(number, HostNumber):
            value = self.numbers.get(id(number))
            if value is None:
                value = self.numbers[id(number)] = self.builder.input((), dtype, weak=True)
                self.given[value] = Given("number", number, Layout((), ()), dtype)
            return value
        return build.full((), number, dtype)

    def element(self, tensor: Any, dtype: DType) -> Any:
        """The number that a tensor of one element holds, as a kernel is given numbers."""
        value = self.read(tensor._ptr, (), (), tensor._spec.dtype)
        if value.dtype is dtype:
            return value
        self.calls += 1
        return _call_of(build.convert(self.operand(value), dtype))

    def _fill(self, entry: Fill) -> None:
        if not entry.nbytes:
            return
        stretch = self.stretch(entry.address)
        if entry.address != stretch.address or entry.nbytes < stretch.nbytes:
            raise RecordingError("bytes were put into a part of a tensor")
        stretch.raw, stretch.value = entry, None

    def _draw(self, entry: Draw) -> None:
        if not entry.total:
            return
        stretch = self.stretch(entry.address)
        if entry.address == stretch.address and entry.total * entry.itemsize >= stretch.nbytes:
            stretch.raw, stretch.value = entry.first or entry, None
            return
        dtype = stretch.dtype or _DRAWN.get(entry.kind)
        if dtype is None or dtype.itemsize != entry.itemsize:
            raise RecordingError(f"random numbers of '{entry.name}' were put into a part of a tensor of another dtype")
        drawn = self._drawn(entry.first or entry, entry.total, dtype)
        self.write(entry.address, (entry.total,), (1,), drawn)

    def _copy(self, entry: Copy) -> None:
        if not entry.nbytes:
            return
        source, target = self.stretch(entry.source), self.stretch(entry.address)
        whole = entry.source == source.address and entry.address == target.address
        if not whole or entry.nbytes < target.nbytes or entry.nbytes < source.nbytes:
            dtype = source.dtype if source.value is not None else target.dtype or UINT8
            count, rest = divmod(entry.nbytes, dtype.itemsize)
            if rest:
                raise RecordingError("a part of an element was copied")
            self.write(entry.address, (count,), (1,), self.read(entry.source, (count,), (1,), dtype))
            return
        target.raw, target.value, target.layout, target.dtype = source.raw, source.value, source.layout, source.dtype

    # ***** memory *****

    def stretch(self, address: int) -> Stretch:
        """The memory in which an address lies."""
        if address < FIRST_ADDRESS:
            raise RecordingError("a tensor with memory was given to a recorded call")
        memory = self.recording.memory_at(address)
        found = self.stretches.get(memory.address)
        if found is None:
            found = self.stretches[memory.address] = Stretch(memory.address, memory.nbytes)
            root = self.roots.get(memory.address)
            if root is not None:
                found.root = root
                found.first = found.value = self._given(found.root)
                found.layout, found.dtype = root.layout, root.dtype
        return found

    def _given(self, given: Given) -> Any:
        value = self.builder.input(given.layout.shape, given.dtype)
        self.given[value] = given
        return value

    def read(self, address: int, shape: Sequence[int], strides: Sequence[int], dtype: DType) -> Any:
        """The array that memory shows at an address."""
        shape = tuple(shape)
        if 0 in shape:
            return build.full(shape, 0, dtype)
        stretch = self.stretch(address)
        self._hold(stretch, dtype)
        offset = self._offset(stretch, address, dtype)
        held = stretch.layout
        try:
            return shown(stretch.value, path_to(*held, shape, strides, offset))
        except RegionError:
            flat, first = self._flat(stretch, offset, offset + extent(shape, strides))
            self.calls += 1
            # It lies as the region does where it can: kernels that read it add in an order that depends on that.
            lies = tuple(strides) if lies_apart(shape, strides) else packed_like(shape, strides)
            return _call_of(gathered(self.operand(flat), shape, strides, offset - first), lies)

    def write(self, address: int, shape: Sequence[int], strides: Sequence[int], value: Any) -> None:
        """Put an array where memory is at an address."""
        shape, strides = tuple(shape), tuple(strides)
        if 0 in shape:
            return
        stretch, dtype = self.stretch(address), value.dtype
        offset = self._offset(stretch, address, dtype)
        layout = Layout(shape, strides, offset)
        count = numel(shape)
        dense = extent(shape, strides) == count
        whole = dense and count * dtype.itemsize >= stretch.nbytes
        if whole or (stretch.value is not None and stretch.layout == layout and stretch.dtype is dtype):
            if not (dense or stretch.value is not None):
                raise RecordingError("a tensor whose own elements overlap was written")
            stretch.raw, stretch.value, stretch.layout, stretch.dtype = None, value, layout, dtype
            return
        self._hold(stretch, dtype)
        try:
            path = path_to(*stretch.layout, shape, strides, offset)
            self.calls += 1
            whole_value = rewritten(self.operand(stretch.value), self.operand(value), path)
            stretch.value = _call_of(whole_value, stretch.layout.strides)
        except RegionError:
            flat, first = self._flat(stretch, offset, offset + extent(shape, strides))
            self.calls += 1
            row = scattered(self.operand(flat), self.operand(value), shape, strides, offset - first)
            stretch.value = _call_of(row)
            stretch.layout = Layout(flat.shape, (1,), first)

    def _offset(self, stretch: Stretch, address: int, dtype: DType) -> int:
        offset, rest = divmod(address - stretch.address, dtype.itemsize)
        if rest:
            raise RecordingError(f"elements of {dtype} that do not begin at a multiple of their size")
        return offset

    def _flat(self, stretch: Stretch, start: int = 0, stop: int = 0) -> tuple[Any, int]:
        """All elements of a stretch in a row, and the place of the first; those from `start` to `stop` must be among
        them.
        """
        layout = stretch.layout
        count = numel(layout.shape)
        try:
            if stop and (start < layout.offset or stop > layout.end):
                raise RegionError("a region beyond the array")
            return shown(stretch.value, path_to(*layout, (count,), (1,), layout.offset)), layout.offset
        except RegionError:
            if stretch.root is None or stretch.address in self.flattened:
                raise RecordingError("a region that is no view of the memory in which it lies") from None
            raise Restart(stretch.address) from None

    def _hold(self, stretch: Stretch, dtype: DType) -> None:
        """Let a stretch hold an array of this dtype."""
        if stretch.value is None:
            count = stretch.nbytes // dtype.itemsize
            stretch.value = self._raw(stretch.raw, count, dtype)
            stretch.raw, stretch.layout, stretch.dtype = None, Layout((count,), (1,)), dtype
        elif stretch.dtype is not dtype:
            self._retype(stretch, dtype)

    def _raw(self, raw: Any, count: int, dtype: DType) -> Any:
        # Known elements lie in memory as they do for eager calls: within a call they would change how its sums are
        # added.
        if raw is None or (type(raw) is Fill and raw.data is None):
            return _call_of(build.full((count,), 0, dtype))
        if type(raw) is Draw:
            if raw.itemsize != dtype.itemsize:
                raise RecordingError(f"random numbers of {raw.itemsize} bytes are read as {dtype}")
            return self._drawn(raw, count, dtype)
        return self._constant(raw.data, count, dtype)

    def _drawn(self, entry: Draw, count: int, dtype: DType) -> Any:
        """The array of drawn numbers; one for numbers that are drawn again."""
        key = (id(entry), count, dtype)
        if key not in self.draws:
            self.draws[key] = self._given(Given("draw", entry, Layout((count,), (1,)), dtype))
        return self.draws[key]

    def _constant(self, data: bytes, count: int, dtype: DType) -> Any:
        """An array of bytes that are known: of one number where all elements are the same."""
        size = dtype.itemsize
        code = _FORMATS.get(dtype.name)
        if code is not None and data[: count * size] == data[:size] * count:
            (number,) = struct.unpack(code, data[:size])
            if number == number:
                return _call_of(build.full((count,), number, dtype))
        return self._given(Given("constant", data[: count * size], Layout((count,), (1,)), dtype))

    def _retype(self, stretch: Stretch, dtype: DType) -> None:
        """Let the elements be those of another dtype: the same bits."""
        held, layout = stretch.dtype, stretch.layout
        if held.itemsize == dtype.itemsize and not held.is_complex and not dtype.is_complex:
            self.calls += 1
            bits = prim.bitcast(self.operand(stretch.value), dtype=dtype)
            stretch.value, stretch.dtype = _call_of(bits, layout.strides), dtype
            return
        flat, first = self._flat(stretch)
        self.calls += 1
        value, (start, rest) = bits_as(self.operand(flat), dtype), divmod(first * held.itemsize, dtype.itemsize)
        if value is None or rest:
            raise RecordingError(f"memory of {held} at {layout} is read as {dtype}")
        stretch.layout = Layout(value.shape, (1,), start)
        stretch.value, stretch.dtype = _call_of(value), dtype


def laid_out(value: Any, strides: Sequence[int]) -> Any:
    """A value as the result of a call that lies in memory with these strides."""
    node = value.node
    there = node is not None and node.prim.name == "border" and node.params["strides"][value.index] == tuple(strides)
    return value if there else _call_of(value, strides)


def _call_of(value: Any, strides: Sequence[int] | None = None) -> Any:
    """The result of a call of its own, row-major unless `strides` are given."""
    (made,) = prim.border(value, strides=(tuple(contiguous_strides(value.shape) if strides is None else strides),))
    return made


class Restart(Exception):
    """The memory of an input has to be given as one row of elements."""

    def __init__(self, address: int) -> None:
        super().__init__(address)
        self.address = address
