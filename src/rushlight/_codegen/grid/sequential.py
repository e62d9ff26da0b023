"""Kernels whose loops run in order: scans, and the writing stages of scatters.

A scan goes through its rows in tiles and carries the running results from tile to tile.  A scatter goes through the
indices one after another, for all places that the index does not touch side by side, so what equal indices write does
not depend on how programs run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rushlight._codegen.blocks import BlockBuilder, Value
from rushlight._codegen.grid.combining import Combined
from rushlight._codegen.grid.elements import Elements
from rushlight._codegen.grid.rows import elements_facts, masked
from rushlight._codegen.grid.signature import GridKernel
from rushlight._codegen.grid.tiles import GridBuilder, ceil_div, index_dtype, power_from, sizes_of
from rushlight._codegen.scans import SequentialNest
from rushlight._schedule.expressions import Buffer
from rushlight._schedule.groups import Stage

__all__ = ["scan_kernel", "scatter_kernel"]

_SCANNED, _SIDE, _SHORT = 1024, 32, 32
_SCATTERED = 256


def scan_kernel(nest: SequentialNest, reverse: bool, sizes: dict[Buffer, int], words: Sequence[int]) -> GridKernel:
    """The kernel of a scan whose loops are split, ordered and merged."""
    (stage,) = nest.stages
    rows, length = sizes_of(nest.outer), stage.work
    if nest.outer and nest.lanes_over_rows(elements_facts(nest)):
        high, columns = min(power_from(rows), _SIDE), min(power_from(length), _SHORT)
    else:
        columns = min(power_from(length), _SCANNED)
        high = min(max(_SCANNED // columns, 1), power_from(rows))
    index = index_dtype([stage], sizes, (rows + high) * (length + columns))
    g = GridBuilder("scan", index, words, 2)
    g.rows = high
    at = g.places(g.tile_of(g.program(), high), high, 0)
    row = g.elements.inner(g.spread(at, nest.outer), [g.inside(at, rows, high), None])
    items = [Combined(item, index) for item in stage.items]
    carry = [row.expanded(v, (high, 1)) for item in items for v in item.neutral(row)]
    scan = _Scan(g, row, stage, items, columns, reverse)
    if length <= columns:
        scan.tile(None, carry)
    else:
        step = g.signature.constant(columns, index)
        g.b.for_(
            g.signature.size(0), g.signature.size(length), step, carry,
            lambda begin, *running: scan.tile(begin, running),
        )  # fmt: skip
    return g.signature.finish(ceil_div(rows, high), 4)


@dataclass(frozen=True, slots=True)
class _Scan:
    """A scan of some rows, tile by tile: `columns` elements of each row, from the last one on where it is in `reverse`."""

    g: GridBuilder
    row: Elements
    stage: Stage
    items: Sequence[Combined]
    columns: int
    reverse: bool

    def tile(self, begin: Value | None, carry: Sequence[Value]) -> list[Value]:
        """Scan and store a tile that begins with the results `carry`; the results with which the next one begins."""
        g, row, stage, columns = self.g, self.row, self.stage, self.columns
        (loop,), rest, last = stage.loops, list(carry), list[Value]()
        at = g.places(begin, columns, 1)
        mask = g.inside(at, stage.work, columns)
        place = row.apply("sub", g.signature.size(stage.work - 1), at) if self.reverse else at
        inside = row.inner({loop: place}, [row.masks[0], mask])
        tile = (g.rows, columns)
        for item in self.items:
            n = len(item.dtypes)
            parts = g.b.scan(masked(inside, item, tile), 1, item.combine) if columns > 1 else masked(inside, item, tile)
            running = item.combine(g.b, [row.expanded(v, tile) for v in rest[:n]], parts)
            inside.results.update(item.results(inside, running))
            last += [g.b.expand_dims(v, 1) for v in g.b.reduce(running, 1, _right)] if columns > 1 else running
            del rest[:n]
        for store in stage.stores:
            inside.store(store)
        return last


def _right(b: BlockBuilder, left: Sequence[Value], right: Sequence[Value]) -> list[Value]:
    return list(right)


def scatter_kernel(nest: SequentialNest, sizes: dict[Buffer, int], words: Sequence[int]) -> GridKernel:
    """The kernel of the stage of a scatter that writes; its loops are split, ordered and merged."""
    (stage,) = nest.stages
    places = sizes_of(nest.outer)
    tile = min(power_from(places), _SCATTERED)
    index = index_dtype([stage], sizes, (places + tile) * stage.work)
    g = GridBuilder("scatter", index, words, 1)
    at = g.places(g.tile_of(g.program(), tile), tile, 0)
    outer = g.elements.inner(g.spread(at, nest.outer), [g.inside(at, places, tile)])

    def body(turn: Value) -> list[Value]:
        inside = outer.inner(g.spread(turn, stage.loops), outer.masks)
        for store in stage.stores:
            inside.store(store)
        g.b.emit("barrier")
        return []

    roots = [s.value for s in stage.stores] + [s.ix for s in stage.stores]
    outer.before_loop(roots, stage.loops)
    g.b.for_(g.signature.size(0), g.signature.size(stage.work), g.signature.size(1), [], body)
    return g.signature.finish(ceil_div(places, tile), 4)
