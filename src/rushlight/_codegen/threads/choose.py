"""Chooses a layout for each tile of a kernel.

Loads, stores, products and reductions decide on layouts (anchors); what is computed from such a tile has its layout.
Tiles that come from `arange` and scalars alone are free: they are computed anew in each layout that somebody asks for,
so most masks and addresses never move between threads.

Sums round, so their order is no matter of addresses: a tile that is summed is divided among threads as its type says, or, of
kernels that do not say along which dim threads have neighbours, as if all addresses were aligned.  What is known of
addresses changes the width of accesses alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from rushlight._codegen.blocks import Kernel, Op, Pointer, Region
from rushlight._codegen.blocks import Value as TileValue
from rushlight._codegen.blocks.axes import axes_of

from .layout import (
    Layout,
    after_broadcast,
    after_permute,
    axis_bits,
    before_broadcast,
    before_permute,
    bits_of,
    blocked,
    without_bits,
)
from .matrices import layouts as matrix_layouts

__all__ = ["PURE", "RENUMBERED", "SAME_SHAPE", "Layouts", "commutes", "moved", "required"]

# operations whose result has at each place what one place of each operand gives
SAME_SHAPE = frozenset({"pointwise", "multiply_high", "offset", "pointer_cast", "address", "hint"})
PURE = SAME_SHAPE | {"constant", "program_id", "num_programs", "choose", "arange", "splat", "expand_dims", "reshape", "permute", "broadcast"} | {"join", "cat"}  # fmt: skip
_RESHAPED = frozenset({"expand_dims", "reshape"})
RENUMBERED = _RESHAPED | {"permute", "broadcast"}
_MEMORY = frozenset({"load", "store", "atomic", "atomic_cas"})
_COMMUTATIVE = frozenset({"add", "mul", "maximum", "minimum", "bitwise_and", "bitwise_or", "bitwise_xor"})
ACCESS_BYTES = 16


def commutes(region: Region) -> bool:
    """Whether each value is one commutative primitive of its own two elements."""
    n = len(region.params) // 2
    for k, value in enumerate(region.yielded):
        op = value.op
        if op is None or op.kind != "pointwise" or op.attributes["prim"] not in _COMMUTATIVE:
            return False
        if {id(v) for v in op.operands} != {id(region.params[k]), id(region.params[n + k])}:
            return False
    return True


def _rounds(op: Op) -> bool:
    """Whether the result of a reduction depends on the order in which layouts let it be taken."""
    if op.kind != "reduce" or not commutes(op.regions[0]):
        return False  # others take neighbours first, whatever the layout
    combined = [(v.dtype, v.op) for v in op.regions[0].yielded]
    return any(d.kind == "f" and o is not None and o.attributes["prim"] in ("add", "mul") for d, o in combined)


def moved(op: Op, layout: Layout) -> Layout | None:
    """The layout of an operation's result when its (first) operand has `layout`; None where no rule carries it over."""
    shape = op.operands[0].shape
    if op.kind in SAME_SHAPE or op.kind in _RESHAPED:
        return layout
    if op.kind == "permute":
        return after_permute(layout, shape, op.attributes["order"])
    if op.kind == "broadcast":
        return after_broadcast(layout, shape, op.attributes["shape"])
    if op.kind == "join":
        up = layout.mapped([b + 1 for b in range(64)])
        return Layout((0, *up.registers), up.lanes, up.warps)
    if op.kind == "cat" and op.operands[0].shape == op.operands[1].shape:
        top = sum(len(axis_bits(shape, d)) for d in range(len(shape)))
        return Layout((*layout.registers, top), layout.lanes, layout.warps)
    if op.kind == "split" and 0 in layout.registers:
        return without_bits(layout, range(1))
    return None


def required(op: Op, layout: Layout) -> Layout | None:
    """The layout of the operands from which the result can be made in `layout` without moving data between threads."""
    shape = op.operands[0].shape
    if op.kind in SAME_SHAPE or op.kind in _RESHAPED:
        return layout
    if op.kind == "permute":
        return before_permute(layout, shape, op.attributes["order"])
    if op.kind == "broadcast":
        return before_broadcast(layout, shape, op.attributes["shape"])
    if op.kind == "join" and 0 in layout.registers:
        return without_bits(layout, range(1))
    if op.kind == "cat" and op.operands[0].shape == op.operands[1].shape:
        top = sum(len(axis_bits(shape, d)) for d in range(len(shape)))
        return without_bits(layout, range(top, top + 1)) if top in layout.registers else None
    return None


class Layouts:
    """Layouts of the tiles of one kernel; a tile that has none is free."""

    def __init__(self, kernel: Kernel, capability: int, dots: Mapping[Op, Layout] | None = None) -> None:
        self.warps, self.capability, self.dots = kernel.warps, capability, dots or {}
        self.of: dict[TileValue, Layout] = {}
        self.known = axes_of(kernel)
        self.chained = matrix_layouts.chained_products(kernel)
        self._access: dict[Op, Layout] = {}
        self._width: dict[tuple[int, ...], int] = {}
        self._divided: dict[tuple[int, ...], Layout] = {}  # by shape: of tiles whose sums say how they are divided
        self._divide(kernel)
        self._region(kernel.body)

    def _divide(self, kernel: Kernel) -> None:
        sums = [op for op in kernel.body.walk() if _rounds(op)]
        for op in sums:
            layout = self._of_sum(op)
            if layout is not None:
                self._divided.setdefault(op.operands[0].shape, layout)
        summed = {op.operands[0].shape for op in sums}
        for op in kernel.body.walk():
            if op.kind in _MEMORY and op.operands[0].type.numel > 1:
                shape = op.operands[0].shape
                run = self._run(op, self.order(op)[0], aligned=shape in summed)
                self._width[shape] = max(run, self._width.get(shape, 1))

    def _of_sum(self, op: Op) -> Layout | None:
        """The layout in which a sum takes its operands, if it says so: it follows from their type alone."""
        if "order" not in op.attributes or not _rounds(op):
            return None
        shape = op.operands[0].shape
        order = sorted(op.attributes["order"], key=lambda d: shape[d] == 1)
        return self._blocked(shape, order, ACCESS_BYTES // max(v.dtype.itemsize for v in op.operands))

    def reduced(self, op: Op) -> Layout:
        """The layout in which a reduction takes its operands."""
        return self._of_sum(op) or self.anchor(op.operands)

    # ***** tiles that lie as memory does *****

    def order(self, op: Op) -> tuple[int, ...]:
        """The dims of an access, that with the longest runs in memory first."""
        pointer = op.operands[0]
        runs = self.known[pointer].contiguous
        return tuple(sorted(range(len(pointer.shape)), key=lambda d: (pointer.shape[d] == 1, -runs[d], -d)))

    def _run(self, op: Op, dim: int, aligned: bool = False) -> int:
        """Elements that may be moved at once along a dim: neighbours, aligned (or taken to be), under one mask."""
        pointer = op.operands[0]
        element = pointer.type.element
        assert isinstance(element, Pointer)
        if op.kind not in ("load", "store"):
            return 1
        itemsize, known = element.to.itemsize, self.known[pointer]
        run = min(known.contiguous[dim], max(1, ACCESS_BYTES // itemsize))
        if not aligned:
            run = min(run, max(1, known.multiple[dim] // itemsize))
        masks = op.operands[1:2] if op.kind == "load" else op.operands[2:3]
        for mask in masks:
            if mask.type.numel > 1:
                run = min(run, self.known[mask].constant[dim])
        return 1 << run.bit_length() - 1

    def memory(self, shape: Sequence[int], order: Sequence[int] | None = None) -> Layout:
        """The blocked layout in which tiles of a shape are read and written."""
        shape = tuple(shape)
        if shape in self._divided:
            return self._divided[shape]
        order = order or sorted(range(len(shape)), key=lambda d: (shape[d] == 1, -d))
        return self._blocked(shape, order, self._width.get(shape, 4))

    def _blocked(self, shape: tuple[int, ...], order: Sequence[int], width: int) -> Layout:
        share = max(1, math.prod(shape) // (32 * self.warps))
        return blocked(shape, self.warps, order, min(width, share, shape[order[0]] if shape else 1))

    def access(self, op: Op) -> Layout:
        """The layout in which an operation reaches memory."""
        return self._access[op]

    def _choose_access(self, op: Op) -> None:
        pointer = op.operands[0]
        shape, order = pointer.shape, self.order(op)
        layout = self.memory(shape, order)
        if max(self.known[pointer].contiguous) == 1 and pointer in self.of:
            layout = self.of[pointer]  # addresses without any order: they stay where they are
        elif op.kind == "store" and op.operands[1] in self.of:
            held = self.of[op.operands[1]]
            few = math.prod(shape) <= 32 * self.warps  # less than an element a thread: no exchange pays
            if op.attributes.get("as_held") or few or (pointer not in self.of and _as_near(held, layout)):
                layout = held
        self._access[op] = layout

    def vector(self, op: Op, layout: Layout) -> int:
        """Registers that one access of a load or store may move."""
        dim = self.order(op)[0]
        bits, width = axis_bits(op.operands[0].shape, dim), 0
        while width < min(len(layout.registers), len(bits)) and layout.registers[width] == bits[width]:
            width += 1
        return min(1 << width, self._run(op, dim))

    # ***** forward through the operations *****

    def _region(self, region: Region) -> None:
        for op in region.ops:
            if op.kind in _CONTROL:
                _CONTROL[op.kind](self, op)
            else:
                self._op(op)

    def _op(self, op: Op) -> None:
        if op.kind in _MEMORY and op.operands[0].type.numel > 1:
            self._choose_access(op)
        for result in op.results:
            if result.type.numel > 1:
                layout = self._result(op, result)
                if layout is not None:
                    self.of[result] = layout

    def _result(self, op: Op, result: TileValue) -> Layout | None:
        if op.kind in ("arange", "splat", "constant"):
            return None
        if op.kind in _MEMORY:
            return self._access[op]
        if op.kind in ("gather", "histogram"):
            return self.memory(result.shape)
        if op in self.dots:
            return self.dots[op]
        if op.kind == "dot":
            return self.product(op, matrix_layouts.form_of(op, self.capability))
        if op.kind == "scan":
            return self.anchor(op.operands)
        if op.kind == "reduce":
            return without_bits(self.reduced(op), axis_bits(op.operands[0].shape, op.attributes["axis"]))
        known = [self.of[v] for v in op.operands if v in self.of]
        if not known:
            return None
        if op.kind in SAME_SHAPE:
            return known[0]
        source = self.of.get(op.operands[0])
        return (moved(op, source) if source is not None else None) or self.memory(result.shape)

    def product(self, op: Op, form: matrix_layouts.MatrixForm | None) -> Layout:
        """The layout of the accumulators of a `dot`; without a form, of sums that are made one by one."""
        if form is None:
            shape = op.results[0].shape
            return self.memory(shape) if op in self.chained else matrix_layouts.square_layout(shape, self.warps)
        return matrix_layouts.result_layout(op, form, self.warps, op in self.chained)

    def factors(self, op: Op, form: matrix_layouts.MatrixForm) -> tuple[Layout, Layout]:
        """The layouts of the operands of a `dot`."""
        return matrix_layouts.operand_layouts(op, form, self.warps, op in self.chained)

    def anchor(self, operands: Sequence[TileValue]) -> Layout:
        """The layout in which an operation over tiles takes its operands."""
        return next((self.of[v] for v in operands if v in self.of), None) or self.memory(operands[0].shape)

    # ***** control flow *****

    def _set(self, values: Sequence[TileValue], layouts: Sequence[Layout | None]) -> None:
        for value, layout in zip(values, layouts, strict=True):
            if layout is not None:
                self.of[value] = layout
            else:
                self.of.pop(value, None)

    def _got(self, values: Sequence[TileValue]) -> list[Layout | None]:
        return [self.of.get(v) for v in values]

    def _whole(self, values: Sequence[TileValue], *choices: Sequence[Layout | None]) -> list[Layout | None]:
        """The first layout of several choices for each value, or that of memory; none for scalars."""
        found: list[Layout | None] = []
        for i, value in enumerate(values):
            given = next((c[i] for c in choices if c[i] is not None), None)
            found.append((given or self.memory(value.shape)) if value.type.numel > 1 else None)
        return found

    def _for(self, op: Op) -> None:
        (body,) = op.regions
        carried = body.params[1:]
        first = self._got(op.operands[3:])
        self._set(carried, first)
        self._region(body)
        wanted = self._wanted(body, carried)
        layouts = self._whole(carried, self._got(body.yielded), first, wanted)
        self._set(carried, layouts)
        self._region(body)
        self._set(op.results, layouts)

    def _while(self, op: Op) -> None:
        before, after = op.regions
        first = self._got(op.operands)
        for turn in range(2):
            if turn:
                first = self._whole(before.params, first, self._got(after.yielded), self._wanted(after, before.params))
            self._set(before.params, first)
            self._region(before)
            given = self._whole(after.params, self._got(before.yielded[1:]))
            self._set(after.params, given)
            self._region(after)
        self._set(op.results, given)

    def _if(self, op: Op) -> None:
        for region in op.regions:
            self._region(region)
        first, second = (self._got(region.yielded) for region in op.regions)
        self._set(op.results, self._whole(op.results, first, second))

    def _wanted(self, region: Region, params: Sequence[TileValue]) -> list[Layout | None]:
        """The layouts in which loads and stores of a region use parameters that have none."""
        found: dict[TileValue, Layout] = {}
        open_params = {p for p in params if p not in self.of}
        for op in region.walk():
            if op.kind in _MEMORY and op.operands[0].type.numel > 1:
                self._back(op.operands[0], self._access[op], open_params, found)
        return [found.get(p) for p in params]

    def _back(self, value: TileValue, layout: Layout, params: set[TileValue], found: dict[TileValue, Layout]) -> None:
        if value in params:
            found.setdefault(value, layout)
        op = value.op
        if op is None or value in self.of or not op.operands or value.type.numel == 1:
            return
        source = required(op, layout) if op.kind != "splat" else None
        for operand in op.operands if source is not None else []:
            assert source is not None
            self._back(operand, source, params, found)


def _as_near(held: Layout, layout: Layout) -> bool:
    """Whether threads that hold a tile write as long runs of memory as they would after an exchange: 8 lanes together."""
    width = bits_of(layout.run())
    return width > 0 and held.registers[:width] == layout.registers[:width] and held.lanes[:3] == layout.lanes[:3]


_CONTROL = {"for": Layouts._for, "while": Layouts._while, "if": Layouts._if}
