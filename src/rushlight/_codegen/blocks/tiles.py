"""`load_tile` and `load_windows` by pointers and masks, for emitters without instructions of their own."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from rushlight._types.dtype import BOOL

from .expressions import Term, TermBuilder
from .ir import Op, Region, Value

__all__ = ["TILE_LOADS", "TileAccess", "WindowAccess", "constant_of", "expand_tiles"]

TILE_LOADS = ("load_tile", "load_windows")


def constant_of(x: Value) -> Any:
    """The number that a scalar is known to be."""
    return x.op.attributes["value"] if x.op is not None and x.op.kind == "constant" else None


class TileAccess:
    """The operands of a `load_tile`: where an array lies, and which tile of it is loaded."""

    def __init__(self, op: Op) -> None:
        self.op, n = op, len(op.result.shape)
        self.pointer = op.operands[0]
        self.sizes, self.strides, self.starts = (op.operands[1 + k * n : 1 + (k + 1) * n] for k in range(3))


class WindowAccess:
    """The operands of a `load_windows`: an array [N, *S, C], and which windows of it are loaded."""

    def __init__(self, op: Op) -> None:
        self.op, n = op, len(op.attributes["stride"])
        self.pointer, at = op.operands[0], 1
        parts = []
        for count in (n + 2, n + 2, n, n + 1, n, 1):
            parts.append(op.operands[at : at + count])
            at += count
        self.sizes, self.strides, self.positions, self.starts, self.offsets, (self.channel,) = parts
        self.stride, self.lo = op.attributes["stride"], op.attributes["lo"]


def expand_tiles(region: Region, keep: Container[Op] = ()) -> None:
    """Put `load` in the place of every load of tiles that is not in `keep`."""
    _expand(region, keep, {})


def _expand(region: Region, keep: Container[Op], new: dict[Value, Value]) -> None:
    ops, region.ops = region.ops, []
    for op in ops:
        op.operands = [new.get(v, v) for v in op.operands]
        for inner in op.regions:
            _expand(inner, keep, new)
        if op.kind not in TILE_LOADS or op in keep:
            region.ops.append(op)
            continue
        b = TermBuilder("", [], line=op.line)
        made = _loaded(b, TileAccess(op)) if op.kind == "load_tile" else _windows(b, WindowAccess(op))
        new[op.result] = made.value
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


def _windows(b: TermBuilder, w: WindowAccess) -> Term:
    rows, channels = w.op.result.shape
    number = Term(b, w.starts[0])
    for start, count in zip(w.starts[1:], w.positions, strict=True):
        number = number * Term(b, count) + Term(b, start)
    number = number + b.index(rows)
    indices = [Term(b, w.channel) + b.index(channels)[None, :]]
    windows = zip(w.positions, w.stride, w.offsets, w.lo, strict=True)
    for count, step, offset, lo in reversed([*windows]):
        place = number % Term(b, count)
        number = number // Term(b, count)
        indices.append((place * step + (Term(b, offset) - lo))[:, None])
    pointer, inside = Term(b, w.pointer), b.number(True, BOOL, (rows, channels))
    for index, size, stride in zip([number[:, None], *reversed(indices)], w.sizes, w.strides, strict=True):
        step = index.to(stride.dtype)
        pointer = pointer + (step if constant_of(stride) == 1 else step * Term(b, stride))
        inside = inside & ((index >= 0) & (index < Term(b, size))).spread((rows, channels))
    return pointer.spread((rows, channels)).load(inside, 0)
