"""Loop nests of scans and scatters, in which the order of some loops matters (see `_schedule.scans`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rushlight._codegen.loops import Loop, Scan, Section
from rushlight._codegen.nest import Nest, fitting, merge
from rushlight._schedule.costs import Facts, facts_of
from rushlight._schedule.expressions import Expr
from rushlight._schedule.groups import Stage
from rushlight._schedule.indexing import Ix, Var
from rushlight._types.layout import numel

if TYPE_CHECKING:
    from rushlight._schedule.policy import Target
    from rushlight._schedule.schedule import Sequential

__all__ = ["SequentialNest"]


def plain(ix: Ix) -> bool:
    """Whether an index is a sum of loop variables."""
    return all(type(a) is Var for a, _ in ix.terms)


class SequentialNest(Nest):
    """The loop nest of a scan, or of the stage of a scatter that writes: `outer` loops in any order, inner loops in
    order.
    """

    def __init__(self, sequential: Sequential, stage: Stage, outer: list[Var], target: Target) -> None:
        super().__init__(sequential.group, target)
        self.sequential = sequential
        self.stages = [stage]
        self.outer = outer

    def all_loops(self) -> list[Var]:
        return list(self.outer)

    def order_dims(self) -> None:
        if self.outer:
            self.outer = self.ordered(self.outer, facts_of(self.stages))

    def merge_dims(self) -> None:
        mapping: dict[Var, Ix] = {}
        self.outer = merge(self.outer, list(facts_of(self.stages).indices), mapping)
        self.apply(mapping)

    def transposed_rows(
        self, stage: Stage, outer: list[Var], facts: Facts, width: int
    ) -> tuple[Var | None, list[Expr]]:
        """For a scan along contiguous memory: the rows to put into lanes, moved to the last place of `outer`, and the
        loads to transpose.
        """
        along = stage.loops[0]
        lane = next((v for v in reversed(outer) if v.size >= width), None)
        if lane is None or along.size < width:
            return None, []
        transposed = [x for x in facts.loads if lane in x.value[1].vars and along in x.value[1].vars]
        for x in transposed:
            buffer, ix = x.value
            if x.args or buffer.dtype.kind == "c" or not plain(ix) or ix.coefficient(along) != 1:
                return None, []
        for s in stage.stores:
            if s.buffer.dtype.kind == "c" or s.guard is not None or not plain(s.ix) or s.ix.coefficient(along) != 1:
                return None, []
        if not transposed:
            return None, []
        outer.remove(lane)
        outer.append(lane)
        return lane, transposed

    def wide_columns(self, facts: Facts, unroll: int, width: int, rows: int) -> int:
        """Vectors in a step of a scan down columns: many columns at once, so that several lines of each row are read
        together.
        """
        if facts.cost(self.policy) > 8 or self.target.vector_bytes < 64:
            return unroll
        while unroll < 16 and rows >= 16 * width * unroll:
            unroll *= 2
        return unroll

    def stripe(self, stage: Stage, lane: Var | None) -> int:
        """Vectors of a row in a piece, at least: threads that write to the same rows in any order contend for their
        lines.
        """
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
        work = facts.cost(self.policy) * elements
        transposed: list[Expr] = []
        if stage.items and lane is None:
            lane, transposed = self.transposed_rows(stage, outer, facts, width)
            unroll = 1
        unroll = fitting(unroll, width, lane.size) if lane is not None else 1
        if stage.items:
            if lane is not None and not transposed:
                unroll = self.wide_columns(facts, unroll, width, lane.size)
            reverse = bool(self.sequential.node.params.get("reverse", False))
            body = [Scan(stage.loops[0], stage.items, body, reverse, transposed)]
            split = self.cut(outer, work, elements, width * unroll, lane)
        else:
            split = self.cut(outer, work, elements, self.stripe(stage, lane) * width, lane)
            if lane is not None:  # inside of the ordered loops, so an index is read once for a whole row
                body = [Loop(lane, body, lanes=True)]
                outer.remove(lane)
                lane = None
            for v in reversed(stage.loops):
                body = [Loop(v, body)]
        for v in reversed(outer):
            body = [Loop(v, body, lanes=v is lane)]
        return [Section(body, split, width if lane is not None or not stage.items else 1, unroll)]
