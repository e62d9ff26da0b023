"""Scans and scatters: loops whose order matters.

A scan runs along its dim, all other dims are rows (or lanes).  A scatter copies its first operand, then goes through the
indices in order; what cannot collide (the dims that the index does not touch) is rows or lanes, so that the result is the
same for any number of threads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rushlight._kernels.groups import Stage
from rushlight._kernels.indexing import ZERO, Ix, Var
from rushlight._kernels.loops import Item, Loop, Scan, Section, Store, X
from rushlight._kernels.nest import Facts, Nest, facts_of, fitting, merge
from rushlight._kernels.pull import RUNTIME_ERROR, data_index
from rushlight._types.dtype import INT64
from rushlight._types.layout import numel

if TYPE_CHECKING:
    from rushlight._kernels.nest import Target
    from rushlight._kernels.placing import Special

__all__ = ["SpecialNest", "prepare"]

_SCANS = {"cumsum": "add", "cumprod": "mul", "cummax": "lastmax", "cummin": "lastmin"}
_COMBINE = {"set": None, "add": "add", "mul": "mul", "amax": "maximum", "amin": "minimum"}


def prepare(special: Special) -> None:
    """Fill the special's group with the stages of its kernels."""
    kind = special.node.prim.lower[0]
    if kind == "scan":
        _prepare_scan(special)
    elif kind == "scatter":
        _prepare_scatter(special)
    else:
        _prepare_index_put(special)


def _vars(shape: tuple[int, ...]) -> tuple[list[Ix], list[Var | None]]:
    dims = [Var(s, "d") if s != 1 else None for s in shape]
    return [ZERO if d is None else d.ix for d in dims], dims


def _prepare_scan(special: Special) -> None:
    node, group = special.node, special.group
    x, dim = node.inputs[0], node.params["dim"]
    index, dims = _vars(x.shape)
    value = group.puller.pull(x, index)
    b = group.builder
    stage = Stage([dims[dim]] if dims[dim] is not None else [])
    op = _SCANS[node.prim.name]
    if len(special.targets) == 1:
        item = Item(op, value, value.dtype)
        results = [b.ref(item)]
    else:
        item = Item(op, value, value.dtype, b.index(index[dim], INT64))
        results = [b.ref(item, 1), b.ref(item, 0)]
    if not stage.loops:  # a single element is its own scan
        results = [value, b.const(0, INT64)][: len(special.targets)]
    else:
        stage.items.append(item)
    stage.stores = [
        Store(t.buffer, t.place(index), r if r.dtype is t.buffer.dtype else b.op("convert", (r,), t.buffer.dtype))
        for t, r in zip(special.targets, results, strict=True)
    ]
    group.stages = [stage]
    group.values = [d for k, d in enumerate(dims) if d is not None and k != dim]  # type: ignore[misc]


def _prepare_copy(special: Special) -> Stage:
    """The stage that brings the first operand to the result."""
    x, target = special.node.inputs[0], special.targets[0]
    index, dims = _vars(x.shape)
    stage = Stage([d for d in dims if d is not None])
    stage.stores = [Store(target.buffer, target.place(index), special.group.puller.pull(x, index))]
    return stage


def _prepare_scatter(special: Special) -> None:
    node, group, target = special.node, special.group, special.targets[0]
    x, at, src = node.inputs
    dim = node.params["dim"]
    group.stages = [] if special.in_place else [_prepare_copy(special)]
    if numel(at.shape) == 0:
        group.values = []
        return
    index, dims = _vars(at.shape)
    value = group.puller.pull(src, index)
    place = list(index)
    place[dim] = data_index(group.puller.pull(at, index), x.shape[dim], dim, RUNTIME_ERROR)
    combine = _COMBINE[node.params["reduce"]]
    update = Stage([dims[dim]] if dims[dim] is not None else [])
    update.stores = [Store(target.buffer, target.place(place), value, combine)]
    group.stages.append(update)
    group.values = [d for k, d in enumerate(dims) if d is not None and k != dim]  # type: ignore[misc]


def _prepare_index_put(special: Special) -> None:
    node, group, target = special.node, special.group, special.targets[0]
    x, values, *at = node.inputs
    group.stages = [] if special.in_place else [_prepare_copy(special)]
    group.values = []
    if numel(values.shape) == 0:
        return
    ndim = len(at[0].shape)
    index, dims = _vars(values.shape)
    where = [data_index(group.puller.pull(a, index[:ndim]), x.shape[k], k) for k, a in enumerate(at)]
    value = group.puller.pull(values, index)
    combine = "add" if node.params["accumulate"] else None
    update = Stage([d for d in dims[:ndim] if d is not None])
    update.stores = [Store(target.buffer, target.place([*where, *index[ndim:]]), value, combine)]
    group.stages.append(update)
    group.values = [d for d in dims[ndim:] if d is not None]  # type: ignore[misc]


def plain(ix: Ix) -> bool:
    """Whether an index is a sum of loop variables alone."""
    return all(type(a) is Var for a, _ in ix.terms)


class SpecialNest(Nest):
    """The loop nest of a scan or of the writing part of a scatter: `outer` in any order, the inner loops in order."""

    def __init__(self, special: Special, stage: Stage, outer: list[Var], target: Target) -> None:
        super().__init__(special.group, target)
        self.special = special
        self.stages = [stage]
        self.outer = outer

    def all_loops(self) -> list[Var]:
        return list(self.outer)

    def order_dims(self) -> None:
        if self.outer:
            self.outer = self.ordered(self.outer, facts_of(self.stages))

    def merge_dims(self) -> None:
        mapping: dict[Var, Ix] = {}
        self.outer = merge(self.outer, list(facts_of(self.stages).places), mapping)
        self.apply(mapping)

    def turned_rows(self, stage: Stage, outer: list[Var], facts: Facts, width: int) -> tuple[Var | None, list[X]]:
        """Rows to put into lanes where a scan runs along contiguous memory, put last, and the loads that are then to be turned."""
        along = stage.loops[0]
        lane = next((v for v in reversed(outer) if v.size >= width), None)
        if lane is None or along.size < width:
            return None, []
        turned = [x for x in facts.loads if lane in x.value[1].vars and along in x.value[1].vars]
        for x in turned:
            buffer, ix = x.value
            if x.args or buffer.dtype.kind == "c" or not plain(ix) or ix.coefficient(along) != 1:
                return None, []
        for s in stage.stores:
            if s.buffer.dtype.kind == "c" or s.guard is not None or not plain(s.ix) or s.ix.coefficient(along) != 1:
                return None, []
        if not turned:
            return None, []
        outer.remove(lane)
        outer.append(lane)
        return lane, turned

    def wide_columns(self, facts: Facts, unroll: int, width: int, rows: int) -> int:
        """Scans down the columns of a wide matrix take many columns at once, so that each row of memory gives several lines at a time."""
        if facts.cost > 8 or self.target.vector_bytes < 64:
            return unroll
        while unroll < 16 and rows >= 16 * width * unroll:
            unroll *= 2
        return unroll

    def stripe(self, stage: Stage, lane: Var | None) -> int:
        """Vectors of a row that a piece writes, at least: threads that share rows which come in any order take each other's lines away."""
        return 256 if lane is not None and all(s.ix.coefficient(lane) is not None for s in stage.stores) else 8

    def sections(self) -> list[Section]:
        self.split_dims()
        self.order_dims()
        self.merge_dims()
        stage = self.stages[0]
        facts = facts_of(self.stages)
        width, unroll = self.lane_count(facts), 4
        outer = list(self.outer)
        lane: Var | None = None
        if outer:
            votes = self.votes(outer, facts)
            lane = max(outer, key=lambda v: votes[v])
            if votes[lane] <= 0 or lane.size < 4:
                lane = None
            else:
                outer.remove(lane)
                outer.append(lane)
        body: list[Any] = list(stage.stores)
        elements = numel([v.size for v in outer]) * stage.work
        work = facts.cost * elements
        turned: list[X] = []
        if stage.items and lane is None:
            lane, turned = self.turned_rows(stage, outer, facts, width)
            unroll = 1
        unroll = fitting(unroll, width, lane.size) if lane is not None else 1
        if stage.items:
            if lane is not None and not turned:
                unroll = self.wide_columns(facts, unroll, width, lane.size)
            reverse = bool(self.special.node.params.get("reverse", False))
            body = [Scan(stage.loops[0], stage.items, body, reverse, turned)]
            split = self.cut(outer, work, elements, width * unroll, lane)
        else:
            split = self.cut(outer, work, elements, self.stripe(stage, lane) * width, lane)
            if lane is not None:  # inside the loops in order: an index is read once for a whole row
                body = [Loop(lane, body, lanes=True)]
                outer.remove(lane)
                lane = None
            for v in reversed(stage.loops):
                body = [Loop(v, body)]
        for v in reversed(outer):
            body = [Loop(v, body, lanes=v is lane)]
        return [Section(body, split, width if lane is not None or not stage.items else 1, unroll)]
