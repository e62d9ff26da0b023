"""Products whose turns are shared out evenly ("stream-K"): each program makes a stretch of them, from tile to tile.

With a program for each tile, the last wave of programs leaves most of a card idle where tiles are few more than
multiprocessors.  Here every program makes whole tiles first, and then an equal share of the turns of the tiles that are
left, which are fewer than two for each program.  A tile of which several programs made turns is added up by a second
launch, part after part along the inner dim.

How many programs there are follows from sizes alone, so the bits are the same on every card; they are not those of a
program for each tile.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

from rushlight._backends.cuda.gemm.product import Epilogue, Place, Product, ProductKernel, TiledResult, product_launch
from rushlight._backends.cuda.gemm.tiles import TileShape, count_stretches
from rushlight._backends.cuda.program.steps import Launch, Memory, Operand, Step
from rushlight._codegen.blocks.expressions import Term, TermBuilder
from rushlight._types.dtype import INT32, INT64
from rushlight._types.layout import numel

__all__ = ["product_in_stretches", "workspace_bytes"]

_MOST_TURNS = 1 << 30  # that are counted
_ROWS = 8  # of a part of a tile that one program adds up


class _Shares(NamedTuple):
    """Scalars of the whole launch: programs, whole tiles of each, turns of a tile, tiles that are cut, turns of a stretch."""

    programs: Term
    whole: Term
    turns: Term
    left: Term
    each: Term


def product_in_stretches(product: Product, tile: TileShape, epilogue: Epilogue, workspace: Any) -> list[Step]:
    """The steps of a real product; `workspace(nbytes)` gives memory for parts of tiles."""
    programs = _programs(product, tile)
    tiles, turns = TiledResult(product, tile).programs(), -(-product.depth // tile.depth)
    if tiles % programs == 0 or 2 * programs * turns >= _MOST_TURNS:
        return [product_launch(product, tile._replace(walks=programs), 1, epilogue)]
    parts = workspace(workspace_bytes(programs, tile, product))
    pieces = (tiles - max(tiles // programs - 1, 0) * programs) * -(-tile.rows // _ROWS)
    return [
        _Stretches(product, tile, epilogue, parts, programs).launch(),
        _Sums(product, tile, epilogue, parts, programs).launch(pieces),
    ]


def workspace_bytes(programs: int, tile: TileShape, product: Product) -> int:
    """Bytes of the parts of tiles that programs leave: the end of one, and the begin of another."""
    return 2 * programs * tile.rows * tile.columns * product.sums.itemsize


def _programs(product: Product, tile: TileShape) -> int:
    *batch, rows, columns = product.out.shape
    return count_stretches(tile, numel(tuple(batch)), rows, columns, product.depth)


def _shares(kernel: TiledResult, b: TermBuilder, programs: Term) -> _Shares:
    depth = kernel.arguments.term(b, kernel.sizes[2])
    turns = (depth + (kernel.tile.depth - 1)) // kernel.tile.depth
    tiles = kernel.count_tiles(b)
    whole = (tiles // programs - 1).greatest(0)
    left = tiles - whole * programs
    return _Shares(programs, whole, turns, left, (left * turns + (programs - 1)) // programs)


class _Stretches(ProductKernel):
    """Whole tiles, and parts of tiles into a workspace."""

    def __init__(
        self, product: Product, tile: TileShape, epilogue: Epilogue, parts: Memory | Operand, programs: int
    ) -> None:
        super().__init__(product, tile, 1, epilogue, (None, None))
        self.parts, self.count = self.arguments.pointer(parts, "parts", product.sums), programs

    def build(self) -> Any:
        b = self.arguments.builder(f"stretches_of_{self._name()}")
        shares = _shares(self, b, Term(b, b.num_programs(0)))
        first = b.program(0) * shares.each
        last = (first + shares.each).least(shares.left * shares.turns)
        touched = ((last - 1) // shares.turns - first // shares.turns + 1).greatest(0)
        more = b.where(first < last, touched, 0)
        b.loop(0, shares.whole + more, 1, [], partial(self._segment, b, shares, first, last))
        return self.arguments.finish(b, warps=self.tile.warps, stages=self.tile.stages)

    def _segment(self, b: TermBuilder, shares: _Shares, first: Term, last: Term, number: Term) -> list[Term]:
        """Turns of one tile."""
        is_whole = number < shares.whole
        cut = first // shares.turns + (number - shares.whole)
        begin = cut * shares.turns
        low = b.where(is_whole, 0, (first - begin).greatest(0))
        high = b.where(is_whole, shares.turns, (last - begin).least(shares.turns))
        self.turns, self.all = (low, high), low.equals(0) & high.equals(shares.turns)
        tile = b.where(is_whole, b.program(0) + number * shares.programs, shares.whole * shares.programs + cut)
        return self._one_tile(b, tile)

    def part(self, b: TermBuilder, depth: Term, place: Place) -> tuple[Any, Term]:
        low, high = self.turns
        return low * self.tile.depth, (high * self.tile.depth).least(depth)

    def store(self, b: TermBuilder, sums: Term, place: Place) -> None:
        """The first turns of a tile are the second part of a program, for its stretch ends with them."""
        rows, columns = self.tile.rows, self.tile.columns
        slot = b.program(0) * 2 + self.turns[0].equals(0).to(INT32)
        at = (slot * rows + b.index(rows))[:, None] * columns + b.index(columns)[None, :]
        to = self.arguments.term(b, self.parts) + at
        b.when(self.all, lambda: self.emit(b, sums, place), lambda: to.store(sums, as_held=True))

    def launch(self) -> Launch:
        return Launch(self.build(), (self.count,), self.arguments.values)


class _Sums(TiledResult):
    """Tiles of parts, added up in order; a program makes a few rows of one."""

    def __init__(
        self, product: Product, tile: TileShape, epilogue: Epilogue, parts: Memory | Operand, programs: int
    ) -> None:
        super().__init__(product, tile)
        self.parts = self.arguments.pointer(parts, "parts", product.sums)
        self.workers = self.arguments.integer(programs, "programs")
        self.emit = epilogue.declare(self.arguments)

    def launch(self, programs: int) -> Launch:
        p, t = self.product, self.tile
        b = self.arguments.builder(f"sums_of_stretches_{p.sums.abbr}_{t.rows}x{t.columns}x{t.depth}")
        shares = _shares(self, b, self.arguments.term(b, self.workers))
        pieces = -(-t.rows // _ROWS)
        cut, piece = b.program(0) // pieces, b.program(0) % pieces
        begin = cut * shares.turns
        first, last = begin // shares.each, (begin + (shares.turns - 1)) // shares.each
        b.when(first < last, lambda: self._add_up(b, shares, (cut, piece * _ROWS), first, last))
        return Launch(self.arguments.finish(b), (programs,), self.arguments.values)

    def _add_up(self, b: TermBuilder, shares: _Shares, where: tuple[Term, Term], first: Term, last: Term) -> None:
        (cut, row), columns = where, self.tile.columns
        shape = (_ROWS, columns)
        at = (row + b.index(_ROWS))[:, None] * columns + b.index(columns)[None, :]

        def part(number: Term) -> Term:
            return (self.arguments.term(b, self.parts) + number.to(INT64) * (self.tile.rows * columns) + at).load()

        (total,) = b.loop(first + 1, last + 1, 1, [part(first * 2 + 1)], lambda p, total: [total + part(p * 2)])
        batch, top, left, end = self.begins(b, shares.whole * shares.programs + cut)
        self.emit(b, total, self.part_of_tile(b, batch, top + row, left, end, shape))
