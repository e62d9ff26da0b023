"""From the groups of a schedule to block kernels: one for most, two for long reductions of few rows.

How a reduction is cut follows from sizes alone, not from the number of multiprocessors, so sums have the same bits on
every device.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from rushlight._codegen.grid.pointwise import pointwise_kernel
from rushlight._codegen.grid.rows import RowShape, in_tiles, row_shape, rows_kernel
from rushlight._codegen.grid.scatter import SortedRuns, keys_of, runs_kernel
from rushlight._codegen.grid.sequential import scan_kernel, scatter_kernel
from rushlight._codegen.grid.signature import GridKernel
from rushlight._codegen.grid.tiles import GridBuilder, ceil_div, index_dtype, power_below, sizes_of
from rushlight._codegen.lowering import copied, group_of_parts, parts_of
from rushlight._codegen.nest import Nest
from rushlight._codegen.scans import SequentialNest
from rushlight._schedule.expressions import Buffer, Item, Store
from rushlight._schedule.groups import Group, Stage
from rushlight._schedule.indexing import Var
from rushlight._schedule.policy import Target
from rushlight._schedule.schedule import Copy, Sequential
from rushlight._types.dtype import INT64

__all__ = ["GridLowering"]

_PROGRAMS = 1024  # programs that occupy every device
_TURNS = 4  # tiles of a part, at least
_PARTS = 1024
_SORTED = 64  # elements from which on a scatter goes through sorted places rather than one after another
N = TypeVar("N", bound=Nest)


class GridLowering:
    """Makes the kernels of groups.  `sizes` maps buffers to their numbers of elements, and gets temporaries between two
    kernels; `words` are the places of the program's numbers among its words, and `sorts` says whether the target can sort.
    """

    def __init__(self, target: Target, sizes: dict[Buffer, int], words: Sequence[int], sorts: bool = False) -> None:
        self.target, self.sizes, self.words, self.sorts = target, sizes, list(words), sorts

    def kernels(self, group: Group | Sequential | Copy) -> list[GridKernel | SortedRuns]:
        """The kernels of a group, and the sorts between them, in the order they run.  The group's expressions are rewritten."""
        if isinstance(group, Sequential):
            return self.sequential(group)
        if isinstance(group, Copy):
            group = copied(group, self.target.policy)
        if group.row is None and not group.reductions:
            return self.pointwise(group)
        parts = self.parts(group)
        if parts is not None:
            return self.two_kernels(group, *parts)
        nest = shaped(Nest(group, self.target))
        return [rows_kernel(nest, row_shape(nest), self.sizes, self.words)]

    def pointwise(self, group: Group) -> list[GridKernel | SortedRuns]:
        """A kernel for each stage; only concatenations have several."""
        nest = shaped(Nest(group, self.target))
        return [pointwise_kernel(nest, stage, self.sizes, self.words) for stage in nest.stages]

    # ***** long reductions of few rows *****

    def parts(self, group: Group) -> tuple[int, int] | None:
        """Number and length of the parts into which a reduction is cut; None where its rows stay whole."""
        nest = shaped(Nest(group, self.target).shadow())
        stages = [s for s in nest.stages if s.loops]
        if len(stages) != 1 or not stages[0].items or stages[0].stores:
            return None
        shape, (stage,) = row_shape(nest), stages
        columns = shape.columns[nest.stages.index(stage)]
        programs = ceil_div(sizes_of(nest.outer), shape.rows)
        wanted = min(power_below(stage.work // (columns * _TURNS)), _PARTS, power_below(max(_PROGRAMS // programs, 1)))
        if stage.work < columns * _TURNS * 2 or wanted < 2:
            return None
        length = ceil_div(ceil_div(stage.work, wanted), columns) * columns
        return ceil_div(stage.work, length), length

    def two_kernels(self, group: Group, count: int, length: int) -> list[GridKernel | SortedRuns]:
        """Reduce parts of the rows into temporaries, then reduce these."""
        b = group.builder
        first = next(s for s in group.stages if s.loops)
        kept, items, temporaries = [s for s in group.stages if s is not first], first.items, []
        partial, piece = Stage([]), Var(count, "part")
        first.items = []
        for item in items:
            of_part = Item(item.op, item.value, item.dtype, item.position)
            first.items.append(of_part)
            for part, dtype in parts_of(of_part):
                buffer = Buffer(f"partial{len(self.sizes)}", dtype, "temporary")
                self.sizes[buffer] = count * group.rows
                temporaries.append((item, part, buffer))
                partial.stores.append(Store(buffer, piece.ix * group.rows + group.row_ix, b.ref(of_part, part)))
        nest = Nest(group, self.target)
        nest.stages = [first, partial]
        kernel = self.partial_kernel(shaped(nest), piece, length)
        final = group_of_parts(group, items, kept, temporaries, count)
        nest = shaped(Nest(final, self.target))
        return [kernel, rows_kernel(nest, row_shape(nest), self.sizes, self.words)]

    def partial_kernel(self, nest: Nest, piece: Var, length: int) -> GridKernel:
        """The kernel that reduces parts; programs go through the rows first."""
        shape: RowShape = row_shape(nest)
        rows, stage = sizes_of(nest.outer), nest.stages[0]
        index = index_dtype(nest.stages, self.sizes, (rows + shape.rows) * (stage.work + length))
        g = GridBuilder("partial", index, self.words, 2)
        g.rows, g.order = shape.rows, shape.order
        tiles, program = ceil_div(rows, shape.rows), g.program()
        number, tile = program, g.signature.size(0)
        if tiles > 1:
            count = g.signature.size(tiles)
            number, tile = g.elements.apply("div_trunc", program, count), g.elements.apply("rem_trunc", program, count)
        at = g.places(g.tile_of(tile, shape.rows), shape.rows, 0)
        masks = [g.inside(at, rows, shape.rows), None]
        row = g.elements.inner({**g.spread(at, nest.outer), piece: number}, masks)
        in_tiles(g, row, stage, shape.columns[0], (number, length))
        for store in nest.stages[1].stores:
            row.store(store)
        return g.signature.finish(tiles * piece.size, 4)

    # ***** scans and scatters *****

    def sequential(self, sequential: Sequential) -> list[GridKernel | SortedRuns]:
        """A scan is one kernel.  A scatter copies its first operand, unless it writes there, and then writes."""
        stages, kernels = sequential.group.stages, []
        outer: list[Var] = list(sequential.group.values)  # type: ignore[arg-type]
        scan = sequential.node.prim.lower[0] == "scan"
        if not sequential.in_place and not (scan and stages[0].loops):
            if scan:
                stages[0].loops = outer
            kernels = self.one_stage(sequential.group, stages[0])
            stages = stages[1:]
        for stage in stages:
            if not scan and self.sorts and stage.work >= _SORTED:
                kernels += self.in_runs(sequential.group, stage, outer)
                continue
            nest = shaped(SequentialNest(sequential, stage, outer, self.target))
            if scan:
                reverse = bool(sequential.node.params.get("reverse", False))
                kernels.append(scan_kernel(nest, reverse, self.sizes, self.words))
            else:
                kernels.append(scatter_kernel(nest, self.sizes, self.words))
        return kernels

    def one_stage(self, group: Group, stage: Stage) -> list[GridKernel | SortedRuns]:
        """One pointwise stage of a group."""
        only = Group(group.locate, self.target.policy)
        only.builder, only.stages = group.builder, [stage]
        return self.pointwise(only)

    def in_runs(self, group: Group, stage: Stage, outer: list[Var]) -> list[GridKernel | SortedRuns]:
        """The writing stage of a scatter by sorted places."""
        keys, values, order = (Buffer(f"{n}{len(self.sizes)}", INT64, "temporary") for n in ("keys", "sorted", "order"))
        first = keys_of(stage, outer, group.builder, keys)
        count = first.work
        self.sizes |= {keys: count, values: count, order: count}
        runs = SortedRuns(keys, values, order, count)
        made = self.one_stage(group, first)
        return [*made, runs, runs_kernel(stage, outer, runs, self.sizes, self.words)]


def shaped(nest: N) -> N:
    """A nest with its loops split, ordered and merged."""
    nest.split_dims()
    nest.order_dims()
    nest.merge_dims()
    return nest
