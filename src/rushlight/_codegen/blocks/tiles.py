"""`load_tile` by pointers and masks, for emitters without an instruction of its own."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from rushlight._types.dtype import BOOL

from .expressions import Term, TermBuilder
from .ir import Op, Region, Value

__all__ = ["TileAccess", "constant_of", "expand_tiles"]


def constant_of(x: Value) -> Any:
    """The number that a scalar is known to be."""
    return x.op.attributes["value"] if x.op is not None and x.op.kind == "constant" else None


class TileAccess:
    """The operands of a `load_tile`: where an array lies, and which tile of it is loaded."""

    def __init__(self, op: Op) -> None:
        self.op, n = op, len(op.result.shape)
        self.pointer = op.operands[0]
        self.sizes, self.strides, self.starts = (op.operands[1 + k * n : 1 + (k + 1) * n] for k in range(3))


def expand_tiles(region: Region, keep: Container[Op] = ()) -> None:
    """Put `load` in the place of every `load_tile` that is not in `keep`."""
    _expand(region, keep, {})


def _expand(region: Region, keep: Container[Op], new: dict[Value, Value]) -> None:
    ops, region.ops = region.ops, []
    for op in ops:
        op.operands = [new.get(v, v) for v in op.operands]
        for inner in op.regions:
            _expand(inner, keep, new)
        if op.kind != "load_tile" or op in keep:
            region.ops.append(op)
            continue
        b = TermBuilder("", [], line=op.line)
        new[op.result] = _loaded(b, TileAccess(op)).value
        region.ops += b.regions[0].ops


def _loaded(b: TermBuilder, tile: TileAccess) -> Term:
    shape = tile.op.result.shape
    pointer, inside = Term(b, tile.pointer), b.number(True, BOOL, shape)
    for d, (size, stride, start) in enumerate(zip(tile.sizes, tile.strides, tile.starts, strict=True)):
        index = Term(b, start).to(size.dtype) + b.index(shape[d]).to(size.dtype)
        for axis in range(len(shape)):
            index = index if axis == d else Term(b, b.expand_dims(index.value, axis))
        step = index.to(stride.dtype)
        pointer = pointer + (step if constant_of(stride) == 1 else step * Term(b, stride))
        inside = inside & (index < Term(b, size))
    return pointer.spread(shape).load(inside, 0)
