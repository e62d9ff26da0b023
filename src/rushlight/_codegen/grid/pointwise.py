"""Kernels of pointwise stages: a program computes a tile of results.

Merged loops become a flat tile, others a tile of two dims whose last one runs along the results.  Where what is read
lies along another loop than what is written, both are sides of the tile, and emitters exchange it in shared memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rushlight._codegen.grid.signature import GridKernel
from rushlight._codegen.grid.tiles import GridBuilder, ceil_div, index_dtype, power_from, sizes_of
from rushlight._codegen.nest import Nest
from rushlight._schedule.costs import facts_of
from rushlight._schedule.expressions import Buffer
from rushlight._schedule.groups import Stage
from rushlight._schedule.indexing import Var

__all__ = ["pointwise_kernel"]

_TILE, _LEAST_TILE, _COSTLY_TILE = 1024, 128, 512
_COSTLY = 60  # what an element costs from which on tiles are smaller, so that registers suffice
_SIDE, _LEAST_SIDE = 32, 8
_WASTE = 4 / 3  # a tile may have this many times as many places as elements


class _Shape(NamedTuple):
    """How a stage is cut: `rest` loops for each program, `rows` and `columns` in its tile."""

    rest: list[Var]
    rows: list[Var]
    columns: list[Var]
    tile: tuple[int, int]


def pointwise_kernel(nest: Nest, stage: Stage, sizes: dict[Buffer, int], words: Sequence[int]) -> GridKernel:
    """The kernel of one pointwise stage of a nest whose loops are split, ordered and merged."""
    shape = _shape_of(nest, stage)
    high, wide = shape.tile
    index = index_dtype([stage], sizes, stage.work + high * wide)
    rank = 1 if high == 1 and not shape.rows and not shape.rest else 2
    g = GridBuilder("pointwise", index, words, rank)
    across, down = ceil_div(sizes_of(shape.columns), wide), ceil_div(sizes_of(shape.rows), high)
    program, places, masks = g.program(), {}, []
    if rank == 1:
        at = g.places(g.tile_of(program, wide), wide, 0)
        places, masks = g.spread(at, shape.columns), [g.inside(at, sizes_of(shape.columns), wide)]
    else:
        first, rest = program, None
        if across > 1:
            count = g.signature.size(across)
            first, rest = g.elements.apply("rem_trunc", program, count), g.elements.apply("div_trunc", program, count)
        else:
            first, rest = g.signature.size(0), program
        if shape.rest:
            count = g.signature.size(down)
            second, rest = g.elements.apply("rem_trunc", rest, count), g.elements.apply("div_trunc", rest, count)
            places |= g.spread(rest, shape.rest)
        else:
            second = rest
        for axis, (begin, loops, tile) in enumerate(((second, shape.rows, high), (first, shape.columns, wide))):
            at = g.places(g.tile_of(begin, tile), tile, axis)
            places |= g.spread(at, loops)
            masks.append(g.inside(at, sizes_of(loops), tile))
    elements = g.elements.inner(places, masks)
    for store in stage.stores:
        elements.x(store.value)  # all is read before anything is written
    for store in stage.stores:
        elements.store(store)
    return g.signature.finish(across * down * sizes_of(shape.rest), 4)


def _shape_of(nest: Nest, stage: Stage) -> _Shape:
    facts, loops = facts_of([stage]), list(stage.loops)
    most = _COSTLY_TILE if facts.cost(nest.policy) > _COSTLY else _TILE
    if len(loops) < 2:
        return _flat(loops, most)
    lane = nest.best_lane(loops, facts)
    others = [v for v in loops if v is not lane]
    across = _across(nest, stage, lane, others)
    if across is not None:
        others.remove(across)
        high = min(power_from(across.size), _SIDE)
        wide = min(power_from(lane.size), most // high)
        return _Shape(others, [across], [lane], (min(high, most // wide), wide))
    wide = min(power_from(lane.size), most)
    if lane.size < 4 or ceil_div(lane.size, wide) * wide > _WASTE * lane.size:
        return _flat(loops, most) if lane is loops[-1] else _flat([*others, lane], most)
    high = min(most // wide, power_from(sizes_of(others)))
    return _Shape([], others, [lane], (high, wide))


def _flat(loops: list[Var], most: int) -> _Shape:
    return _Shape([], [], loops, (1, most if sizes_of(loops) > _LEAST_TILE else _LEAST_TILE))


def _across(nest: Nest, stage: Stage, lane: Var, others: Sequence[Var]) -> Var | None:
    """A loop along which something is read that the lane steps far through; None where there is none."""
    if lane.size < _LEAST_SIDE:
        return None
    best: dict[Var, int] = {}
    for x in facts_of([stage]).loads:
        _, ix = x.value
        if any(type(a) is not Var for a, _ in ix.terms) or (ix.coefficient(lane) or 0) <= 1:
            continue
        for v in others:
            if ix.coefficient(v) == 1 and v.size >= _LEAST_SIDE:
                best[v] = best.get(v, 0) + 1
    return max(best, key=lambda v: best[v]) if best else None
