"""From the groups of a schedule to loop nests: one for most, two for long reductions of few rows, several for
concatenations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from rushlight._codegen.loops import Loop, Section, Split
from rushlight._codegen.nest import Nest
from rushlight._codegen.scans import SequentialNest
from rushlight._schedule.costs import facts_of
from rushlight._schedule.expressions import Buffer, Item, Store, identity, substitute
from rushlight._schedule.groups import Group, Stage
from rushlight._schedule.indexing import ZERO, Var
from rushlight._schedule.policy import Policy, Target
from rushlight._schedule.schedule import Copy, Sequential
from rushlight._types.dtype import INT64, DType
from rushlight._types.layout import numel
from rushlight._types.symbols import truncated

__all__ = ["LoopNest", "Lowering", "copied", "cut_loop", "group_of_parts", "parts_of"]


class LoopNest(NamedTuple):
    """The loops of one kernel: `sections` compute `stages`.  `copies`: it only prepares memory for a later nest."""

    sections: list[Section]
    stages: Sequence[Stage]
    copies: bool = False


def finished(nest: Nest, copies: bool = False) -> LoopNest:
    """The loops of a nest, whose stages are rewritten."""
    return LoopNest(nest.sections(), nest.stages, copies)


class Lowering:
    """Chooses the loop nests of groups.  `sizes` maps buffers to their numbers of elements; temporaries between two
    nests are added to it.
    """

    def __init__(self, target: Target, sizes: dict[Buffer, int]) -> None:
        self.target, self.policy, self.sizes = target, target.policy, sizes

    def nests(self, group: Group | Sequential | Copy) -> list[LoopNest]:
        """The loop nests of a group, in the order they run.  The group's expressions are rewritten."""
        if isinstance(group, Sequential):
            return self.sequential(group)
        if isinstance(group, Copy):
            return self.copy(group)
        if group.joins and len(group.stages) > self.policy.max_joined:
            return self.joined(group)
        nest = Nest(group, self.target)
        if group.reductions and self.wants_two_stages(nest):
            return self.two_stages(group, nest)
        return [finished(nest)]

    def joined(self, group: Group) -> list[LoopNest]:
        """A concatenation of many operands in powers of two, so that other numbers of operands need no new kernels."""
        stages, nests = group.stages, []
        while stages:
            count = min(1 << len(stages).bit_length() - 1, self.policy.max_joined)
            part = Group(group.locate, self.policy)
            part.builder, part.shape, part.stages = group.builder, group.shape, stages[:count]
            nests.append(finished(Nest(part, self.target)))
            stages = stages[count:]
        return nests

    def wants_two_stages(self, nest: Nest) -> bool:
        """Whether the reduced dims are cut, because the rows are too few to occupy the threads or the columns too long
        for the caches.
        """
        stages = [s for s in nest.stages if s.loops]
        if len(stages) != 1 or not stages[0].items or stages[0].stores:
            return False
        rows = numel([v.size for v in nest.outer])
        if rows * stages[0].work <= self.policy.serial_work:
            return False
        if self.tall(nest, rows):
            return True
        if rows >= 4096:
            return False
        many = self.policy.many_rows
        return rows < many or stages[0].work >= self.policy.long_column and self.lane_blocks(nest) < many

    def tall(self, nest: Nest, rows: int) -> bool:
        """Whether the group reduces long columns side by side that the caches do not hold, and so reads memory in
        blocks of whole rows.

        A stripe of columns would read a kilobyte of each row, and every row from another page.
        """
        stage = next(s for s in nest.stages if s.loops)
        size = max((b.dtype.itemsize for b, _, _ in facts_of([stage]).accesses), default=0)
        cache = self.target.l2_bytes
        if (
            stage.work < self.policy.tall_column
            or not 2048 <= rows * size <= cache // 2
            or rows * stage.work * size < 4 * cache
        ):
            return False
        if any(i.position for i in stage.items):
            return False
        nest = nest.shadow()
        nest.split_dims()
        nest.order_dims()
        nest.merge_dims()
        loops = [v for s in nest.stages for v in s.loops]
        return len(nest.outer) == 1 == len(loops) and nest.lanes_over_rows()

    def rows_in_turn(self, nest: Nest, first: Stage, partial: Stage) -> Section:
        """Reduce row after row of memory into one row of results, which stays in the cache."""
        facts, lane = facts_of([first]), nest.outer[0]
        width, unroll = nest.shape_of_lanes(facts)
        starts, steps = [], []
        for item, store in zip(first.items, partial.stores, strict=True):
            starts.append(Store(store.buffer, store.ix, nest.builder.const(identity(item.op, item.dtype), item.dtype)))
            steps.append(Store(store.buffer, store.ix, item.value, item.op))
        body: list[Any] = [Loop(lane, starts, lanes=True), Loop(first.loops[0], [Loop(lane, steps, lanes=True)])]
        return Section(body, None, width, unroll)

    def lane_blocks(self, nest: Nest) -> int:
        """How many pieces the rows alone give.  The nest itself does not change."""
        nest = nest.shadow()
        nest.split_dims()
        nest.order_dims()
        nest.merge_dims()
        rows = numel([v.size for v in nest.outer])
        if not nest.lanes_over_rows():
            return rows
        width, unroll = nest.shape_of_lanes(facts_of(nest.stages))
        return -(-rows // (width * unroll))

    def two_stages(self, group: Group, nest: Nest) -> list[LoopNest]:
        """Reduce parts of the reduced dims into temporaries, then reduce these."""
        b, tall = group.builder, self.tall(nest, group.rows)
        first = next(s for s in group.stages if s.loops)
        kept = [s for s in group.stages if s is not first]
        row = group.row_ix
        nest = Nest(group, self.target)
        partial = Stage([])
        nest.stages = [first, partial]
        # No more than there will be: what is stored for each counts when lanes are chosen
        piece = Var(self.policy.max_parts, "piece")
        temporaries = []
        for item in first.items:
            for part, dtype in parts_of(item):
                buffer = Buffer(f"partial{len(self.sizes)}", dtype, "temporary")
                temporaries.append((item, part, buffer))
                partial.stores.append(Store(buffer, piece.ix * group.rows + row, b.ref(item, part)))
        nest.split_dims()
        nest.order_dims()
        nest.merge_dims()
        section = self.rows_in_turn(nest, first, partial) if tall else nest.rows()
        work = facts_of([first]).cost(self.policy) * first.work * group.rows
        output_numbers = truncated(min(max(work // self.policy.serial_work, 2), self.policy.max_parts))
        section.split = Split(*cut_loop(first.loops, output_numbers), piece)
        pieces = section.pieces
        for _, _, buffer in temporaries:
            self.sizes[buffer] = pieces * group.rows
        second = self.second_stage(group, first.items, kept, temporaries, pieces)
        return [LoopNest([section], nest.stages), second]

    def second_stage(
        self, group: Group, items: list[Item], kept: list[Stage], temporaries: list[Any], pieces: int
    ) -> LoopNest:
        """The nest that combines the results of all parts."""
        if pieces == 1:
            raise AssertionError("a reduction in one piece needs no second stage")
        return finished(Nest(group_of_parts(group, items, kept, temporaries, pieces), self.target))

    # ***** scans, scatters and copies *****

    def sequential(self, sequential: Sequential) -> list[LoopNest]:
        """A scan is one loop nest.  A scatter copies its first operand, unless it writes there, and then writes its
        updates.
        """
        stages, nests = sequential.group.stages, []
        outer: list[Any] = list(sequential.group.values)
        scan = sequential.node.prim.lower[0] == "scan"
        if not sequential.in_place and not (scan and stages[0].loops):
            if scan:
                stages[0].loops = outer
            nests.append(self.points(sequential.group, stages[0]))
            stages = stages[1:]
        return nests + [finished(SequentialNest(sequential, stage, outer, self.target)) for stage in stages]

    def points(self, group: Group, stage: Stage) -> LoopNest:
        """One pointwise stage of a group."""
        only = Group(group.locate, self.policy)
        only.builder, only.stages = group.builder, [stage]
        return finished(Nest(only, self.target), copies=True)

    def copy(self, copy: Copy) -> list[LoopNest]:
        """A copy of a temporary to the memory of an input."""
        group = copied(copy, self.policy)
        return [self.points(group, group.stages[0])]


def copied(copy: Copy, policy: Policy) -> Group:
    """A copy as a group of one pointwise stage."""
    group = Group(lambda value: None, policy)
    dims = [Var(s, "d") if s != 1 else None for s in copy.shape]
    index = [ZERO if d is None else d.ix for d in dims]
    stage = Stage([d for d in dims if d is not None])
    value = group.builder.load(copy.source.buffer, copy.source.offset(index))
    stage.stores = [Store(copy.target.buffer, copy.target.offset(index), value)]
    group.stages = [stage]
    return group


def group_of_parts(group: Group, items: list[Item], kept: list[Stage], temporaries: list[Any], pieces: int) -> Group:
    """The group that combines the results of all parts of a reduction, and does what is left of `group`.

    `temporaries` are (item, part of it, buffer), with the results of all rows for each of the `pieces`.
    """
    b = group.builder
    final = Group(group.locate, group.policy)
    final.builder, final.rows = b, group.rows
    final.row = Var(group.rows, "row") if group.row is not None else None
    over = Var(pieces, "piece")
    stage = Stage([over])
    at = over.ix * group.rows + final.row_ix
    loads = {(item, part): b.load(buffer, at) for item, part, buffer in temporaries}
    renamed: dict[Item, Item] = {}
    for item in items:
        position = loads.get((item, 0)) if item.position is not None else None
        value = loads[item, 1] if item.position is not None else loads[item, 0]
        renamed[item] = Item(item.op, value, item.dtype, position)
    stage.items = list(renamed.values())
    mapping = {group.row: final.row_ix} if group.row is not None else {}
    ix, x = substitute(b, mapping, renamed)
    for s in kept:
        for store in s.stores:
            store.ix, store.value = ix(store.ix), x(store.value)
    final.stages = [stage, *kept]
    final.reductions = {id(i): i for i in stage.items}
    return final


def parts_of(item: Item) -> list[tuple[int, DType]]:
    """The parts of the result of an item, by the numbers that references use, and their dtypes."""
    return [(0, INT64), (1, item.dtype)] if item.position is not None else [(0, item.dtype)]


def cut_loop(loops: Sequence[Var], output_numbers: int) -> tuple[Var, int]:
    """The loop that is cut into about `wanted` parts, and the turns of a part.

    It is the first loop with that many turns, else the longest, or the longest of those that are cut at all. Of the
    last loop, whose elements are neighbours, parts are multiples of 64 turns.
    """
    by_size = sorted(loops, key=lambda v: -v.size)
    first = next((v for v in loops if v.size >= output_numbers), by_size[0])
    for var in (first, *by_size):
        chunk = -(-var.size // min(output_numbers, var.size))
        if var is loops[-1]:
            chunk = -(-chunk // 64) * 64
        if chunk < var.size:
            return var, chunk
    return first, -(-first.size // min(output_numbers, first.size))
