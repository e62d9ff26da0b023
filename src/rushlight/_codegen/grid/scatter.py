"""Scatters whose writes go through the sorted places: what equal indices write is combined by one program, in order.

Three steps: a kernel writes the place of every element as a key, a stable sort brings equal keys together, and of each
run of equal keys the program of its first element goes through the run.  So no memory is written by two programs, and
the result has the bits of one write after another.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rushlight._codegen.blocks import Value
from rushlight._codegen.grid.elements import Elements, combined_store
from rushlight._codegen.grid.signature import GridKernel
from rushlight._codegen.grid.tiles import GridBuilder, ceil_div, index_dtype, power_from, sizes_of
from rushlight._schedule.expressions import Buffer, Builder, Store
from rushlight._schedule.groups import Stage
from rushlight._schedule.indexing import Data, Ix, Var, linearize
from rushlight._types.dtype import INT64

__all__ = ["SortedRuns", "keys_of", "runs_kernel"]

_TILE = 256


class SortedRuns(NamedTuple):
    """A stable sort of `size` int64 keys: `values` are the sorted ones, `order` says where each was."""

    keys: Buffer
    values: Buffer
    order: Buffer
    size: int


def divided(store: Store, loops: Sequence[Var], outer: Sequence[Var]) -> tuple[list[Var], list[Var]]:
    """The loops whose values say where an element is written, and those that are the same for all."""
    data = frozenset[Var]().union(*(a.vars for a, _ in store.ix.terms if type(a) is Data))
    sorted_loops = [*[v for v in outer if v in data], *loops]
    return sorted_loops, [v for v in outer if v not in data]


def keys_of(stage: Stage, outer: Sequence[Var], builder: Builder, keys: Buffer) -> Stage:
    """The stage that writes the key of every element: the part of its place that the other loops do not change."""
    (store,) = stage.stores
    loops, others = divided(store, stage.loops, outer)
    terms = tuple((a, c) for a, c in store.ix.terms if a not in others)
    made = Stage(loops)
    place = linearize([v.ix for v in loops], [v.size for v in loops])
    made.stores = [Store(keys, place, builder.index(Ix(terms, 0), INT64))]
    return made


def runs_kernel(
    stage: Stage, outer: Sequence[Var], runs: SortedRuns, sizes: dict[Buffer, int], words: Sequence[int]
) -> GridKernel:
    """The kernel that goes through the runs of equal keys."""
    (store,) = stage.stores
    loops, others = divided(store, stage.loops, outer)
    places = sizes_of(others)
    tile = min(power_from(places), _TILE)
    g = GridBuilder("runs", index_dtype([stage], sizes, runs.size * (places + tile)), words, 1)
    tiles, program = ceil_div(places, tile), g.program()
    first, at = program, g.signature.size(0)
    if tiles > 1:
        count = g.signature.size(tiles)
        first, at = g.elements.apply("div_trunc", program, count), g.elements.apply("rem_trunc", program, count)
    at = g.places(g.tile_of(at, tile), tile, 0)
    row = g.elements.inner(g.spread(at, others), [g.inside(at, places, tile)])
    values, order = g.signature.pointer(runs.values), g.signature.pointer(runs.order)
    for buffer in (runs.values, runs.order):
        g.signature.read[buffer] = None
    key = g.b.load(g.b.offset(values, first))
    step = -1 if store.combine is not None else 1
    neighbour = row.apply("add", first, g.signature.size(step))
    begins = row.apply("ne", _key(g, row, values, neighbour, runs.size), key)

    def write() -> list[Value]:
        inside = row.inner(_loops_at(g, order, first, loops), row.masks)
        if store.combine is None:
            inside.store(Store(store.buffer, store.ix, store.value))
            return []
        _combine(g, inside, row, store, (values, order, key, first), loops, runs.size, tile)
        return []

    g.b.if_(begins, write, list)
    return g.signature.finish(runs.size * tiles, 4)


def _key(g: GridBuilder, row: Elements, values: Value, at: Value, count: int) -> Value:
    """The key at a place; -1 outside."""
    there = row.apply("le", g.signature.size(0), at)
    there = row.apply("bitwise_and", there, row.apply("lt", at, g.signature.size(count)))
    return g.b.load(g.b.offset(values, at), there, g.signature.constant(-1, INT64))


def _loops_at(g: GridBuilder, order: Value, at: Value, loops: Sequence[Var]) -> dict[Var, Value]:
    """The loop variables of the element that stands at a place of the sorted keys."""
    number = g.b.convert(g.b.load(g.b.offset(order, at)), g.index)
    return g.spread(number, loops)


def _combine(
    g: GridBuilder,
    inside: Elements,
    row: Elements,
    store: Store,
    run: tuple[Value, Value, Value, Value],
    loops: Sequence[Var],
    count: int,
    tile: int,
) -> None:
    """Combine what is in memory with the elements of a run, one after another."""
    values, order, key, first = run
    buffer, shape = store.buffer, (tile,)
    g.signature.read[buffer] = g.signature.written[buffer] = None
    pointer, at = g.signature.pointer(buffer), inside.expanded(inside.ix(store.ix), shape)
    mask = inside.mask(shape)
    old = inside.read(pointer, at, mask, buffer.dtype)
    parts = [g.b.pointwise(n, old) for n in ("real", "imag")] if old.dtype.kind == "c" else [old]
    types = [first.type, *[p.type for p in parts]]
    with g.b.region(types) as before:
        place = before.params[0]
        same = row.apply("eq", _key(g, row, values, place, count), key)
        g.b.emit("yield", same, *before.params)
    with g.b.region(types) as after:
        place, *held = after.params
        element = row.inner(_loops_at(g, order, place, loops), row.masks)
        whole = g.b.pointwise("complex", *held) if len(held) == 2 else held[0]
        assert store.combine is not None
        new = combined_store(element, store.combine, whole, element.x(store.value), buffer.dtype)
        news = [g.b.pointwise(n, new) for n in ("real", "imag")] if len(held) == 2 else [new]
        news = [element.expanded(n, shape) for n in news]
        g.b.emit("yield", element.apply("add", place, g.signature.size(1)), *news)
    found = g.b.emit("while", first, *parts, regions=[before, after]).results[1:]
    result = g.b.pointwise("complex", *found) if len(found) == 2 else found[0]
    inside.write(pointer, at, result, mask, shape)
