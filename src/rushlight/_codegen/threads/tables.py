"""Gathers within tiles and histograms: through shared memory."""

from __future__ import annotations

from rushlight._codegen.blocks import Op
from rushlight._types.dtype import BOOL, INT32

from .exchange import Swizzle, access_width, read_shared, write_shared
from .form import Buffer, Registers
from .layout import axis_bits
from .lower import HANDLERS, Lowering

__all__: list[str] = []


def _gather(lo: Lowering, op: Op) -> None:
    """The source lies in shared memory, row-major, and each thread reads its elements there."""
    x, index = op.operands
    axis = op.attributes["axis"]
    layout = lo.layouts.memory(op.result.shape)
    chosen = lo.b.spread(lo.value(index, layout), layout.size)
    own = lo.layouts.anchor([x])
    made = lo.b.spread(lo.value(x, own), own.size)
    itemsize = made.dtype.itemsize
    buffer = Buffer(x.type.numel * itemsize)
    write_shared(lo.b, made, own, buffer, Swizzle(), access_width(own, itemsize))
    old, new = axis_bits(x.shape, axis), axis_bits(op.result.shape, axis)

    def place(element: int) -> int:
        """The offset of an element of the result, were its index 0."""
        low = element & (1 << new.start) - 1
        return (low | element >> new.stop << old.stop) * itemsize

    lanes, warps = ([place(base) for base in bases] for bases in layout.bases())
    start = lo.b.index([place(e) for e in layout.table()], lanes, warps)
    number = (
        chosen if chosen.dtype is INT32 else lo.b.pointwise("convert", chosen, dtype=INT32, params={"dtype": INT32})
    )
    step = lo.b.number(itemsize << old.start, INT32)
    offset = lo.b.pointwise("add", start, lo.b.pointwise("mul", number, step))
    result = [Registers(made.dtype, layout.size)]
    loaded = lo.b.emit("shared_load", [offset], result, buffer=buffer, dtype=made.dtype, vector=1).result
    lo.give(op.result, loaded, layout)


def _histogram(lo: Lowering, op: Op) -> None:
    """Counters in shared memory, each element adds to one; sums of integers are the same in any order."""
    bins = op.attributes["bins"]
    layout, own = lo.layouts.memory((bins,)), lo.layouts.anchor(op.operands)
    buffer = Buffer(bins * 4)
    zeros = lo.b.spread(lo.b.number(0, INT32), layout.size)
    write_shared(lo.b, zeros, layout, buffer, Swizzle(), access_width(layout, 4))
    x = lo.b.spread(lo.value(op.operands[0], own), own.size)
    if x.dtype is not INT32:
        x = lo.b.pointwise("convert", x, dtype=INT32, params={"dtype": INT32})
    inside = lo.b.pointwise("le", lo.b.number(0, INT32), x, dtype=BOOL)
    mask = lo.b.both(inside, lo.b.pointwise("lt", x, lo.b.number(bins, INT32), dtype=BOOL))
    mask = lo.b.both(mask, lo.b.only_where_zero(*own.idle()))
    if len(op.operands) > 1:
        mask = lo.b.both(mask, lo.b.spread(lo.value(op.operands[1], own), own.size))
    assert mask is not None
    offset = lo.b.pointwise("mul", x, lo.b.number(4, INT32))
    one = lo.b.spread(lo.b.number(1, INT32), own.size)
    lo.b.emit("shared_add", [offset, one, mask], [], buffer=buffer, vector=1)
    lo.give(op.result, read_shared(lo.b, zeros, layout, buffer, Swizzle(), access_width(layout, 4)), layout)


HANDLERS.update({"gather": _gather, "histogram": _histogram})
