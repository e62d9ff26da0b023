"""The kernel of matrix products: one program makes a tile of the result, in turns along the inner dim.

Parameters are sizes and strides, so one kernel serves all products of a form.  Complex products are four real ones in
one loop.  An `Epilogue` does pointwise work on the sums before they are stored, a `Prologue` on the operands after they
are loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from rushlight._backends.cuda.arguments import Arguments, Array, Batch, as_reals
from rushlight._backends.cuda.gemm.tiles import TileShape
from rushlight._backends.cuda.gemm.warpgroups import TileLoads, wants_groups
from rushlight._backends.cuda.program.steps import Launch, Operand
from rushlight._codegen.blocks.expressions import Term, TermBuilder
from rushlight._types.dtype import FLOAT32, INT32, DType
from rushlight._types.layout import numel

__all__ = [
    "Epilogue",
    "Loads",
    "Place",
    "Product",
    "ProductKernel",
    "Prologue",
    "TiledResult",
    "product_launch",
    "store_result",
]

Ints = tuple[int, ...]
_GROUP = 8  # so many rows of tiles are made together, so that columns of the second operand stay in the L2 cache


class Place(NamedTuple):
    """Where the elements of a tile lie in a result [batch..., rows, columns]."""

    batch: tuple[Term, ...]  # scalars
    rows: Term  # [R, 1]
    columns: Term  # [1, C]
    inside: Term | None  # [R, C], None where all are
    row_end: Term  # scalars, before which rows and columns lie
    column_end: Term


class Epilogue(NamedTuple):
    """Pointwise work on sums: `declare(arguments)` adds what it needs to the parameters of the kernel and gives `emit(b,
    sums, place)`, which stores whatever becomes of a tile of sums.
    """

    declare: Callable[[Arguments], Callable[[TermBuilder, Term, Place], None]]


class Prologue(NamedTuple):
    """Pointwise work on an operand: `declare(arguments)` gives `emit(b, tile, place) -> tile`; masked elements stay out."""

    declare: Callable[[Arguments], Callable[[TermBuilder, Term, Place], Term]]


class Product(NamedTuple):
    """The operands of a product: a [*B, M, K], b [*B, K, N] into out [*B, M, N], sums in `sums`."""

    a: Operand
    b: Operand
    out: Operand
    sums: DType
    precision: str = "ieee"

    @property
    def depth(self) -> int:
        return self.a.shape[-1]


def store_result(out: Operand) -> Epilogue:
    """The sums, converted to the result's dtype."""

    def declare(arguments: Arguments) -> Callable[[TermBuilder, Term, Place], None]:
        array = Array(arguments, out, "out")

        def emit(b: TermBuilder, sums: Term, place: Place) -> None:
            array.pointer(b, *place.batch, place.rows, place.columns).store(sums, place.inside)

        return emit

    return Epilogue(declare)


class Loads:
    """Tiles of one operand as the loop goes along its inner dim (1 for the first operand, 0 for the second); for complex
    operands the parts.
    """

    def __init__(self, arguments: Arguments, x: Operand, name: str, inner: int) -> None:
        self.inner = inner
        self.source = as_reals(x) if x.dtype.is_complex else x
        self.parts = 2 if x.dtype.is_complex else 1
        self.array = Array(arguments, self.source, name)

    def base(self, b: TermBuilder, batch: Sequence[Term], outer: Term) -> Any:
        """Terms that do not change in the loop; `outer` are row (or column) numbers."""
        zero = b.number(0, self.array.dtype)
        place = (outer, zero) if self.inner == 1 else (zero, outer)
        return self.array.pointer(b, *batch, *place), self.array.stride(b, len(batch) + self.inner)

    def pointers(self, b: TermBuilder, base: Any, at: Term) -> tuple[Term, Term | None]:
        """Addresses at places along the inner dim, and which of them are in memory besides the edges of the tile."""
        pointers, along = base
        return pointers + at.to(self.array.dtype) * along, None


class TiledResult:
    """A kernel over tiles of a product's result, under construction: where its programs work."""

    def __init__(self, product: Product, tile: TileShape) -> None:
        self.product, self.tile = product, tile
        self.arguments = Arguments()
        *batch, rows, depth = product.a.shape
        columns = product.b.shape[-1]
        self.batch = tuple(batch)
        self.even: tuple[bool, ...] = (rows % tile.rows == 0, columns % tile.columns == 0)
        self.sizes = [
            self.arguments.integer(n, name) for n, name in ((rows, "rows"), (columns, "columns"), (depth, "depth"))
        ]
        self.items = Batch(self.arguments, batch)

    def place(self, b: TermBuilder, number: Term) -> Place:
        """The tile with a number."""
        batch, row, column, end = self.begins(b, number)
        self.corner = row, column
        return self.part_of_tile(b, batch, row, column, end, (self.tile.rows, self.tile.columns))

    def begins(self, b: TermBuilder, number: Term) -> tuple[tuple[Term, ...], Term, Term, Term]:
        """Where the tile with a number begins in a batch, along rows and along columns, and where its rows end."""
        columns = self.arguments.term(b, self.sizes[1])
        down, across = self.tiles_down(b), (columns + (self.tile.columns - 1)) // self.tile.columns
        group = across * _GROUP
        batch: tuple[Term, ...] = ()
        if self.batch:
            batch, number = self.items.split(b, number // (down * across)), number % (down * across)
        first = number // group * _GROUP
        height = (down - first).least(_GROUP)
        within = number % group
        row, end = self.begin(b, first + within % height)
        return batch, row, (within // height) * self.tile.columns, end

    def part_of_tile(
        self, b: TermBuilder, batch: tuple[Term, ...], row: Term, column: Term, end: Term, shape: tuple[int, int]
    ) -> Place:
        """The place of rows and columns that begin somewhere in a tile."""
        columns = self.arguments.term(b, self.sizes[1])
        r, c = (row + b.index(shape[0]))[:, None], (column + b.index(shape[1]))[None, :]
        inside = None
        if not self.even[0]:
            inside = r < end
        if not self.even[1]:
            inside = (c < columns) if inside is None else inside & (c < columns)
        if inside is not None:
            inside = inside.spread(shape)
        return Place(batch, r, c, inside, end, columns)

    def tiles_down(self, b: TermBuilder) -> Term:
        """How many tiles there are along the rows."""
        return (self.arguments.term(b, self.sizes[0]) + (self.tile.rows - 1)) // self.tile.rows

    def begin(self, b: TermBuilder, down: Term) -> tuple[Term, Term]:
        """The first row of a tile, and where its rows end."""
        return down * self.tile.rows, self.arguments.term(b, self.sizes[0])

    def programs(self) -> int:
        """Tiles of the result."""
        rows, columns = self.product.a.shape[-2], self.product.b.shape[-1]
        return -(-rows // self.tile.rows) * -(-columns // self.tile.columns) * numel(self.batch)

    def count_tiles(self, b: TermBuilder) -> Term:
        """All tiles of the result."""
        columns = self.arguments.term(b, self.sizes[1])
        count = self.tiles_down(b) * ((columns + (self.tile.columns - 1)) // self.tile.columns)
        for n in self.items.counts:
            count = count * self.arguments.term(b, n)
        return count


class ProductKernel(TiledResult):
    """A kernel of products under construction."""

    def __init__(
        self, product: Product, tile: TileShape, splits: int, epilogue: Epilogue, prologues: Sequence[Prologue | None]
    ) -> None:
        super().__init__(product, tile)
        self.splits = splits
        self.even = (*self.even[:2], product.depth % (tile.depth * splits) == 0)
        tiled = tile.depth * product.a.dtype.itemsize == 128 and self.wants_tiles(prologues)
        self.tiles: Any = self.declare_tiles() if tiled else None
        self.loads = None if tiled else self.declare_loads()
        self.emit = epilogue.declare(self.arguments)
        self.prologues = [None if p is None else p.declare(self.arguments) for p in prologues]

    def declare_loads(self) -> tuple[Loads, Loads]:
        """Where tiles of the operands come from."""
        return Loads(self.arguments, self.product.a, "a", 1), Loads(self.arguments, self.product.b, "b", 0)

    def wants_tiles(self, prologues: Sequence[Prologue | None]) -> bool:
        """Whether bulk copies and warpgroups do it."""
        p = self.product
        return all(x is None for x in prologues) and wants_groups(p.a, p.b, p.sums, p.precision)

    def declare_tiles(self) -> Any:
        """The operands as arrays whose tiles are loaded."""
        rows, columns, depth = self.sizes
        batch = self.items.counts
        a = TileLoads(self.arguments, self.product.a, "a", 1, [*batch, rows, depth])
        return a, TileLoads(self.arguments, self.product.b, "b", 0, [*batch, depth, columns])

    # ***** the loop *****

    def loaded(
        self, b: TermBuilder, loads: Loads, base: Any, turn: Term, mask: Term | None, which: int, place: Place
    ) -> list[Term]:
        """The parts of an operand's tile at a turn."""
        depth = turn + b.index(self.tile.depth)
        at = depth[None, :] if loads.inner == 1 else depth[:, None]
        pointers, more = loads.pointers(b, base, at)
        limit = None if self.even[2] else at < self.end
        for also in (more, limit):
            if also is not None:
                mask = also if mask is None else mask & also
        prologue, parts = self.prologues[which], []
        for part in range(loads.parts):
            value = (pointers + part if part else pointers).load(mask, None if mask is None else 0)
            if prologue is not None:
                where = place._replace(inside=mask)
                where = where._replace(columns=at) if which == 0 else where._replace(rows=at)
                value = prologue(b, value, where)
                if mask is not None:
                    value = b.where(mask, value, 0)
            parts.append(value)
        return parts

    def build(self) -> Any:
        tile = self.tile
        b = self.arguments.builder(self._name())
        if self.tile.walks:  # in a fixed order: which program makes a tile changes no bit of it
            b.loop(b.program(0), self.count_tiles(b), Term(b, b.num_programs(0)), [], partial(self._one_tile, b))
        else:
            self._one_tile(b, b.program(0))
        return self.arguments.finish(b, warps=tile.warps, stages=tile.stages)

    def _one_tile(self, b: TermBuilder, number: Term) -> list[Term]:
        """A tile of the result by its number."""
        product, tile = self.product, self.tile
        place = self.place(b, number)
        columns, depth = (self.arguments.term(b, n) for n in self.sizes[1:])
        low, self.end = self.part(b, depth, place)
        bases = []
        if self.loads is not None:
            outers = place.rows, place.columns
            bases = [loads.base(b, place.batch, outer) for loads, outer in zip(self.loads, outers, strict=True)]
        row_mask = None if self.even[0] else (place.rows < place.row_end)
        column_mask = None if self.even[1] else (place.columns < columns)
        real = product.sums.to_real()
        shape = (tile.rows, tile.columns)
        count = 3 if product.sums.is_complex else 1
        zeros = [b.number(0, real, shape) for _ in range(count)]

        def turn(k: Term, *sums: Term) -> list[Term]:
            if self.tiles is not None:
                return self._multiplied(b, *self._tiles(b, self.tiles, place, k), sums)
            assert self.loads is not None
            x = self.loaded(b, self.loads[0], bases[0], k, row_mask, 0, place)
            y = self.loaded(b, self.loads[1], bases[1], k, column_mask, 1, place)
            return self._multiplied(b, x, y, sums)

        sums = b.loop(low, self.end, tile.depth, zeros, turn)
        if product.sums.is_complex:
            self._store_complex(b, sums, place)
        else:
            self.store(b, sums[0], place)
        return []

    def store(self, b: TermBuilder, sums: Term, place: Place) -> None:
        """Store a tile of real sums."""
        self.emit(b, sums, place._replace(batch=self._with_split(b, place.batch)))

    def launch(self) -> Launch:
        """The launch for the whole product."""
        programs = self.programs()
        if self.tile.walks:
            programs = min(programs, self.tile.walks)
        return Launch(self.build(), (programs, self.splits), self.arguments.values)

    def _tiles(self, b: TermBuilder, tiles: Any, place: Place, k: Term) -> tuple[list[Term], list[Term]]:
        """The tiles of both operands at a turn."""
        tile, (left, right), starts = self.tile, tiles, self.tile_starts(place, k)
        x = left.load(b, starts[0], (tile.rows, tile.depth))
        return [x], [right.load(b, starts[1], (tile.depth, tile.columns))]

    def tile_starts(self, place: Place, k: Term) -> tuple[tuple[Term, ...], tuple[Term, ...]]:
        """Where the tiles of both operands begin in their arrays."""
        row, column = self.corner
        return (*place.batch, row, k), (*place.batch, k, column)

    def _with_split(self, b: TermBuilder, batch: tuple[Term, ...]) -> tuple[Term, ...]:
        """Parts of the inner dim are a first dim of what is stored."""
        return (b.program(1), *batch) if self.splits > 1 else batch

    def part(self, b: TermBuilder, depth: Term, place: Place) -> tuple[Any, Term]:
        """From where to where along the inner dim this program sums up: whole turns."""
        if self.splits == 1:
            return 0, depth
        step = self.tile.depth
        each = ((depth + (step * self.splits - 1)) // (step * self.splits)) * step
        low = b.program(1) * each
        return low, (low + each).least(depth)

    def _multiplied(self, b: TermBuilder, x: Sequence[Term], y: Sequence[Term], sums: Sequence[Term]) -> list[Term]:
        precision = self.product.precision if self.product.a.dtype is FLOAT32 else "ieee"
        if len(x) == 1:
            return [b.matrix_product(x[0], y[0], sums[0], precision)]
        straight, crossed, turned = sums
        return [
            b.matrix_product(x[0], y[0], straight), b.matrix_product(x[1], y[1], crossed),
            b.matrix_product(x[1], y[0], b.matrix_product(x[0], y[1], turned)),
        ]  # fmt: skip

    def _store_complex(self, b: TermBuilder, sums: Sequence[Term], place: Place) -> None:
        batch = self._with_split(b, place.batch)
        for part, value in enumerate((sums[0] - sums[1], sums[2])):
            self.emit(b, value, place._replace(batch=(b.number(part, INT32), *batch)))

    def _name(self) -> str:
        p = self.product
        kinds = f"{p.a.dtype.abbr}_{p.b.dtype.abbr}_{p.sums.abbr}"
        how = ("walking_" if self.tile.walks else "") + ("grouped_" if self.tiles else "")
        return f"{how}product_{kinds}_{self.tile.rows}x{self.tile.columns}x{self.tile.depth}"


def product_launch(
    product: Product,
    tile: TileShape,
    splits: int,
    epilogue: Epilogue,
    prologues: Sequence[Prologue | None] = (None, None),
) -> Launch:
    """The launch of a product; with `splits` above 1 the epilogue gets the number of the part as the first of a place's
    batch, and for complex sums the number of the part of the number before that.
    """
    return ProductKernel(product, tile, splits, epilogue, prologues).launch()
