"""Kernels of stages over common rows: a program reduces some rows, and computes what follows from the results.

A row that fits a tile is read once and stays in registers for all stages.  A longer one is gone through in tiles, with
a running result for each place of a tile, and read again by later stages.  Where rows lie side by side in memory, the
tile's rows are neighbours.  The order of sums follows from sizes alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rushlight._codegen.blocks import Value
from rushlight._codegen.grid.combining import Combined
from rushlight._codegen.grid.elements import Elements
from rushlight._codegen.grid.signature import GridKernel
from rushlight._codegen.grid.tiles import GridBuilder, ceil_div, index_dtype, power_below, power_from, sizes_of
from rushlight._codegen.nest import Nest
from rushlight._schedule.costs import Facts, facts_of
from rushlight._schedule.expressions import Buffer, substitute
from rushlight._schedule.groups import Stage
from rushlight._schedule.indexing import Ix, Var

__all__ = ["RowShape", "elements_facts", "row_shape", "rows_kernel"]

_REGISTERS = 4096  # elements of a row that a program keeps
_TILE = 2048
_SIDE = 64  # neighbouring rows in a tile


class RowShape(NamedTuple):
    """Rows of a tile, and columns of it for each stage; `whole` stages have all of a row in a tile.

    `order` has the axes of the tile, that first along which threads have neighbours.
    """

    rows: int
    columns: list[int]
    whole: list[bool]
    order: tuple[int, int] = (1, 0)


def row_shape(nest: Nest) -> RowShape:
    """The tile of a nest whose loops are split, ordered and merged."""
    rows, works = sizes_of(nest.outer), [s.work for s in nest.stages]
    longest, order = max(works, default=1), (1, 0)
    facts = elements_facts(nest)
    if nest.outer and nest.lanes_over_rows(facts):
        order = (0, 1) if nest.rows_are_nearer(facts) else order
        high = min(power_from(rows), _SIDE)
        columns = [min(power_from(w), max(_TILE // high // 2, 1)) for w in works]
    else:
        wide = min(power_from(longest), _TILE if longest > _REGISTERS else _REGISTERS)
        high = min(max(power_below(_TILE // 2 // wide), 1), power_from(rows))
        columns = [min(power_from(w), wide) for w in works]
    return RowShape(high, columns, [w <= c for w, c in zip(works, columns, strict=True)], order)


def elements_facts(nest: Nest) -> Facts:
    """Facts that choose the axis along which the tiles of a nest are divided: the first of the largest accesses.

    Operations that are fused with a sum bring others.  The sum is taken in the order of a sum of their result, which
    lies in memory as their first operand of its size does, so what is read once for a row or a column has no say.
    """
    inner, facts = [v for s in nest.stages for v in s.loops], facts_of(nest.stages)
    loops = [*nest.outer, *inner]  # an index may hold elements of other memory, too
    first = next((i for s in nest.stages for i in s.items), None)
    if first is not None:
        of_item = Facts()
        of_item.work = next(s.work for s in nest.stages if s.items)
        of_item.add_item(first)
        if any(_is_whole(ix, nest.outer, inner) for _, ix, _ in of_item.accesses):
            facts = of_item
    whole = [k for k, (_, ix, _) in enumerate(facts.accesses) if _is_whole(ix, nest.outer, inner)]
    if whole:
        largest = max(whole, key=lambda k: sizes_of([v for v in loops if v in facts.accesses[k][1].vars]))
        facts.accesses, facts.runs = [facts.accesses[largest]], [facts.runs[largest]]
    return facts


def _is_whole(ix: Ix, outer: Sequence[Var], inner: Sequence[Var]) -> bool:
    """Whether an access goes through rows and along them."""
    return not ix.vars.isdisjoint(outer) and not ix.vars.isdisjoint(inner)


def rows_kernel(nest: Nest, shape: RowShape, sizes: dict[Buffer, int], words: Sequence[int]) -> GridKernel:
    """The kernel of stages over common rows."""
    rows, most = sizes_of(nest.outer), max(shape.columns, default=1)
    longest = max((s.work for s in nest.stages), default=1)
    index = index_dtype(nest.stages, sizes, (rows + shape.rows) * (longest + most))
    share_loops(nest)
    g = GridBuilder("rows", index, words, 2)
    g.rows, g.order = shape.rows, shape.order
    at = g.places(g.tile_of(g.program(), shape.rows), shape.rows, 0)
    row = g.elements.inner(g.spread(at, nest.outer), [g.inside(at, rows, shape.rows), None])
    shared: dict[tuple[Var, ...], Elements] = {}
    for stage, columns, whole in zip(nest.stages, shape.columns, shape.whole, strict=True):
        if not stage.loops:
            for store in stage.stores:
                row.store(store)
        elif whole:
            _whole(g, row, stage, columns, shared)
        else:
            in_tiles(g, row, stage, columns, None)
    elements = shape.rows * most
    return g.signature.finish(ceil_div(rows, shape.rows), 8 if elements >= _REGISTERS else 4)


def share_loops(nest: Nest) -> None:
    """Let stages with equal loops have the same loop variables, so that what both need is one expression."""
    for at, late in enumerate(nest.stages):
        for early in nest.stages[:at]:
            if late.loops and [v.size for v in late.loops] == [v.size for v in early.loops]:
                mapping: dict[Var, Ix] = {b: a.ix for a, b in zip(early.loops, late.loops, strict=True) if a is not b}
                ix, x = substitute(nest.builder, mapping)
                for item in late.items:
                    item.value = x(item.value)
                    item.position = x(item.position) if item.position is not None else None
                for store in late.stores:
                    store.ix, store.value = ix(store.ix), x(store.value)
                    store.guard = x(store.guard) if store.guard is not None else None
                late.loops = list(early.loops)
                break


def _whole(g: GridBuilder, row: Elements, stage: Stage, columns: int, shared: dict[tuple[Var, ...], Elements]) -> None:
    """A stage whose rows are tiles."""
    loops = tuple(stage.loops)
    inside = shared.get(loops)
    if inside is None:
        at = g.places(None, columns, 1)
        inside = row.inner(g.spread(at, loops), [row.masks[0], g.inside(at, stage.work, columns)])
        shared[loops] = inside
    for item in stage.items:
        combined = Combined(item, g.index)
        parts = masked(inside, combined, (g.rows, columns))
        row.results.update(combined.results(row, reduced(g, combined, parts)))
    for store in stage.stores:
        inside.store(store)


def masked(elements: Elements, combined: Combined, shape: tuple[int, ...]) -> list[Value]:
    """The parts of an item at every place of a tile; the neutral ones behind the end of a row."""
    parts, mask = combined.parts(elements), elements.masks[1]
    if mask is not None:
        neutral = combined.neutral(elements)
        parts = [elements.apply("select", mask, p, n) for p, n in zip(parts, neutral, strict=True)]
    return [elements.expanded(p, shape) for p in parts]


def reduced(g: GridBuilder, combined: Combined, parts: Sequence[Value]) -> list[Value]:
    """The parts of each row's result, from those of a tile."""
    if parts[0].shape[1] == 1:
        return list(parts)
    return [g.b.expand_dims(v, 1) for v in g.b.reduce(parts, 1, combined.combine, g.order)]


def in_tiles(g: GridBuilder, row: Elements, stage: Stage, columns: int, part: tuple[Value, int] | None) -> None:
    """A stage that goes through its rows in tiles; of a part of the rows only, given (its number, its columns)."""
    items = [Combined(item, g.index) for item in stage.items]
    tile = (g.rows, columns)
    roots = [i.value for i in stage.items] + [i.position for i in stage.items if i.position is not None]
    row.before_loop([*roots, *(s.value for s in stage.stores), *(s.ix for s in stage.stores)], stage.loops)
    first = [row.expanded(v, tile) for item in items for v in item.neutral(row)]
    low, high = g.signature.size(0), g.signature.size(stage.work)
    exact = stage.work % columns == 0
    if part is not None:
        number, length = part
        low = row.apply("mul", number, g.signature.size(length))
        high = row.apply("minimum", row.apply("add", low, g.signature.size(length)), high)
        exact = exact and length % columns == 0
    step = g.signature.constant(columns, g.index)

    def body(begin: Value, *running: Value) -> list[Value]:
        at = g.places(begin, columns, 1)
        mask = None if exact else row.apply("lt", at, high)
        inside = row.inner(g.spread(at, stage.loops), [row.masks[0], mask])
        new, rest = [], list(running)
        for item in items:
            n = len(item.dtypes)
            new += item.combine(g.b, rest[:n], masked(inside, item, tile))
            del rest[:n]
        for store in stage.stores:
            inside.store(store)
        return new

    found = list(g.b.for_(low, high, step, first, body))
    for item in items:
        n = len(item.dtypes)
        row.results.update(item.results(row, reduced(g, item, found[:n])))
        del found[:n]
