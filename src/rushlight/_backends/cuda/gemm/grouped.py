"""`grouped_dot` on CUDA devices: all groups in one launch, whose programs read from memory where groups end.

Along rows no tile crosses the end of a group, so there are at most rows / tile + groups + 1 tiles down; each program
looks for its own among the ends.  Rows behind the last end are one group more, without an inner dim.  Columns in groups
are rows of the transposed product.  Along the inner dim a group is an item of a batch with bounds of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rushlight._backends.cuda.arguments import Arguments, Array
from rushlight._backends.cuda.externs import ExternCall, extern
from rushlight._backends.cuda.gemm.joined import of_transposed, transposed
from rushlight._backends.cuda.gemm.precision import float32_precision
from rushlight._backends.cuda.gemm.product import Epilogue, Loads, Place, Product, ProductKernel, store_result
from rushlight._backends.cuda.gemm.tiles import TileShape, choose_tile
from rushlight._backends.cuda.gemm.warpgroups import TileLoads, choose_group_tile, wants_groups
from rushlight._backends.cuda.program.steps import Operand, Step
from rushlight._codegen.blocks.expressions import Term, TermBuilder
from rushlight._schedule.library import CallForm
from rushlight._types.dtype import INT32
from rushlight._types.layout import numel

if TYPE_CHECKING:
    from rushlight._graph.core import Node

__all__ = ["grouped_steps"]

_GROUP_ROWS = 64  # of a group on average, below which tiles of warpgroups are mostly empty


def _fits(node: Node) -> bool:
    return all(numel(x.shape) for x in (*node.inputs, *node.outputs))


@extern("grouped_dot", takes=_fits, form=CallForm(strided=True, strided_results=True))
def grouped_dot(call: ExternCall) -> list[Step]:
    return grouped_steps(call)


def grouped_steps(call: ExternCall, *, epilogue: Epilogue | None = None, tile: TileShape | None = None) -> list[Step]:
    """The launch of a call; an epilogue takes the place of the store, and sees the result's own rows and columns."""
    (a, b, ends), out = call.inputs, call.outputs[0]
    store = epilogue or store_result(out)
    if len(a.shape) == 3:
        a, b, out, store = transposed(b), transposed(a), transposed(out), of_transposed(store)
    cuts_rows = len(b.shape) == 3
    if not cuts_rows:
        a, b = (_repeated(x, ends.shape[0]) for x in (a, b))
    product = Product(a, b, out, out.dtype.wide, float32_precision())
    kernel = _RowGroups if cuts_rows else _InnerGroups
    return [kernel(product, ends, tile or _tile(product, ends.shape[0], cuts_rows), store).launch()]


def _tile(product: Product, groups: int, cuts_rows: bool) -> TileShape:
    """By the rows that a group has on average."""
    a, columns = product.a, product.b.shape[-1]
    rows = -(-a.shape[-2] // groups) if cuts_rows else a.shape[-2]
    if cuts_rows and rows >= _GROUP_ROWS and wants_groups(a, product.b, product.sums, product.precision):
        return choose_group_tile(a, groups, rows, columns, a.shape[-1])
    return choose_tile(a.dtype, product.sums, groups, rows, columns)


def _repeated(x: Operand, count: int) -> Operand:
    return Operand(x.memory, x.dtype, (count, *x.shape), (0, *x.strides), x.offset)


class _Ends:
    """Where groups end, among the parameters of a kernel."""

    def __init__(self, arguments: Arguments, ends: Operand) -> None:
        self.arguments, self.array = arguments, Array(arguments, ends, "ends")
        self.count = arguments.integer(ends.shape[0], "groups")

    def end(self, b: TermBuilder, group: Term, before: Term | int, size: Term) -> Term:
        """Where a group ends: within the dim, and not before the one before it does."""
        return self.array.pointer(b, group).load().to(INT32).least(size).greatest(before)

    def walk(self, b: TermBuilder, tile: Term, height: int, size: Term) -> tuple[Term, Term, Term]:
        """The group of a tile, its first row, and where its rows end."""
        count = self.arguments.term(b, self.count)
        zero = b.number(0, INT32)

        def turn(i: Term, *values: Term) -> list[Term]:
            before, tiles, group, start, end = values
            stop = self.end(b, i, before, size)
            after = tiles + (stop - before + (height - 1)) // height
            here = (tiles <= tile) & (tile < after)
            first = before + (tile - tiles) * height
            return [stop, after, b.where(here, i, group), b.where(here, first, start), b.where(here, stop, end)]

        last, tiles, group, start, end = b.loop(0, count, 1, [zero, zero, count, zero, zero], turn)
        behind = group.equals(count)
        rest = last + (tile - tiles) * height
        return group, b.where(behind, rest, start), b.where(behind, size, end)


class _OfGroup(Loads):
    """Tiles of the matrix of one group, which the kernel finds."""

    def __init__(self, kernel: _RowGroups, x: Operand) -> None:
        self.kernel = kernel
        super().__init__(kernel.arguments, x, "b", 0)

    def base(self, b: TermBuilder, batch: Any, outer: Term) -> Any:
        return super().base(b, (self.kernel.group,), outer)


class _RowGroups(ProductKernel):
    """a [M, K], whose rows are in groups, by b [G, K, N] into [M, N]."""

    group: Term  # the program's; the last one again behind all groups
    owned: Term

    def __init__(self, product: Product, ends: Operand, tile: TileShape, epilogue: Epilogue) -> None:
        self.given = ends
        super().__init__(product, tile, 1, epilogue, (None, None))
        self.even = (False, *self.even[1:])

    def declare_loads(self) -> tuple[Loads, Loads]:
        self.ends = _Ends(self.arguments, self.given)
        return Loads(self.arguments, self.product.a, "a", 1), _OfGroup(self, self.product.b)

    def declare_tiles(self) -> tuple[TileLoads, TileLoads]:
        self.ends = _Ends(self.arguments, self.given)
        rows, columns, depth = self.sizes
        a = TileLoads(self.arguments, self.product.a, "a", 1, [rows, depth])
        return a, TileLoads(self.arguments, self.product.b, "b", 0, [self.ends.count, depth, columns])

    def count_down(self, rows: Any, groups: Any) -> Any:
        """Tiles along the rows, at most."""
        return (rows + (self.tile.rows - 1)) // self.tile.rows + groups

    def begin(self, b: TermBuilder, down: Term) -> tuple[Term, Term]:
        rows = self.arguments.term(b, self.sizes[0])
        group, start, end = self.ends.walk(b, down, self.tile.rows, rows)
        count = self.arguments.term(b, self.ends.count)
        self.owned = group < count
        self.group = group.least(count - 1)
        return start, end

    def tiles_down(self, b: TermBuilder) -> Term:
        rows, count = (self.arguments.term(b, n) for n in (self.sizes[0], self.ends.count))
        return self.count_down(rows, count)

    def part(self, b: TermBuilder, depth: Term, place: Place) -> tuple[Any, Term]:
        return 0, b.where(self.owned, depth, 0)

    def tile_starts(self, place: Place, k: Term) -> tuple[tuple[Term, ...], tuple[Term, ...]]:
        row, column = self.corner
        return (row, k), (self.group, k, column)

    def programs(self) -> int:
        columns = -(-self.product.b.shape[-1] // self.tile.columns)
        return int(self.count_down(self.product.a.shape[0], self.given.shape[0])) * columns

    def _name(self) -> str:
        return f"rows_in_groups_{super()._name()}"


class _InnerGroups(ProductKernel):
    """a [M, K] by b [K, N], whose inner dim is in groups, into [G, M, N]: operands are repeated along the groups."""

    def __init__(self, product: Product, ends: Operand, tile: TileShape, epilogue: Epilogue) -> None:
        self.given = ends
        super().__init__(product, tile, 1, epilogue, (None, None))
        self.even = (*self.even[:2], False)

    def wants_tiles(self, prologues: Any) -> bool:
        return False  # copies would bring numbers of the next group

    def declare_loads(self) -> tuple[Loads, Loads]:
        self.ends = _Ends(self.arguments, self.given)
        return super().declare_loads()

    def part(self, b: TermBuilder, depth: Term, place: Place) -> tuple[Any, Term]:
        (group,) = place.batch
        zero = b.number(0, INT32)
        low = self.ends.end(b, (group - 1).greatest(0), 0, depth)
        low = b.where(group > 0, low, zero)
        return low, self.ends.end(b, group, low, depth)

    def _name(self) -> str:
        return f"inner_in_groups_{super()._name()}"
