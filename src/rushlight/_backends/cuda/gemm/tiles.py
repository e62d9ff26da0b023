"""Tiles of products by shape and dtype: what one program computes, and in how many parts the inner dim is cut.

The numbers depend on nothing but the product, so sums have one order on every card.
"""

from __future__ import annotations

from typing import NamedTuple

from rushlight._types.dtype import DType

__all__ = [
    "TileShape",
    "choose_tile",
    "choose_tile_in_parts",
    "choose_tile_in_stretches",
    "count_splits",
    "count_stretches",
]

_PROGRAMS = 128  # so many programs fill a card
_LEAST_DEPTH = 512  # of the inner dim, that a part of it is worth a program of its own
_MOST_SPLITS = 32
_STRETCHES = 132  # programs that share the turns of all tiles, whatever the card: the multiprocessors of an H200
_LEAST = 32  # rows and columns of a tile, where the result has as many


class TileShape(NamedTuple):
    """Rows, columns and depth of one turn of a program's loop, and how the program is laid out.

    With `walks` the grid has at most so many programs, and each makes several tiles, in a fixed order.
    """

    rows: int
    columns: int
    depth: int
    warps: int
    stages: int
    walks: int = 0


# For operands of 1 or 2 bytes, which tensor cores multiply: from the largest to the smallest.
_NARROW = (
    (128, 128, 64, 8, 3), (128, 64, 64, 8, 3), (64, 128, 64, 8, 3), (64, 64, 32, 4, 4), (32, 64, 64, 4, 4),
    (16, 64, 64, 2, 4), (64, 16, 64, 2, 4), (16, 16, 64, 1, 4),
)  # fmt: skip
_FLOAT32 = (
    (128, 128, 16, 8, 3), (128, 64, 16, 4, 3), (64, 64, 16, 4, 3), (32, 64, 32, 4, 3), (32, 32, 32, 2, 3),
    (16, 64, 32, 2, 3), (64, 16, 32, 2, 3), (16, 16, 32, 1, 3),
)  # fmt: skip
_WIDE = ((64, 64, 16, 8, 2), (32, 32, 16, 4, 2), (16, 16, 16, 1, 2))


def _table(a: DType, sums: DType) -> tuple[TileShape, ...]:
    if a.itemsize <= 2 and sums.itemsize <= 4:
        rows = _NARROW
    else:
        rows = _WIDE if sums.itemsize >= 8 else _FLOAT32
    return tuple(TileShape(*row) for row in rows)


def choose_tile(a: DType, sums: DType, batch: int, rows: int, columns: int) -> TileShape:
    """The largest tile that leaves few of its elements empty and makes enough programs; else the one that makes most."""
    fitting = _fitting(a, sums, rows, columns)
    for tile in fitting:
        if batch * _parts(rows, tile.rows) * _parts(columns, tile.columns) >= _PROGRAMS:
            return tile
    return fitting[-1]


def choose_tile_in_parts(a: DType, sums: DType, batch: int, rows: int, columns: int, depth: int) -> TileShape:
    """The largest that makes enough programs with the inner dim in parts, which `count_splits` counts."""
    fitting = _fitting(a, sums, rows, columns)
    for tile in fitting:
        programs = batch * _parts(rows, tile.rows) * _parts(columns, tile.columns)
        if 2 * programs * count_splits(tile, batch, rows, columns, depth) > _PROGRAMS:
            return tile
    return fitting[-1]


def choose_tile_in_stretches(a: DType, sums: DType, batch: int, rows: int, columns: int, depth: int) -> TileShape:
    """The largest whose turns are work for enough programs."""
    fitting = _fitting(a, sums, rows, columns)
    for tile in fitting:
        if count_stretches(tile, batch, rows, columns, depth) == _STRETCHES:
            return tile
    return fitting[-1]


def _fitting(a: DType, sums: DType, rows: int, columns: int) -> list[TileShape]:
    """Tiles of which a result leaves few elements empty, the largest first."""
    table = _table(a, sums)
    return [
        t
        for t in table
        if min(rows, _LEAST) <= t.rows < 2 * max(rows, 16) and min(columns, _LEAST) <= t.columns < 2 * max(columns, 16)
    ] or list(table[-1:])


def count_splits(tile: TileShape, batch: int, rows: int, columns: int, depth: int) -> int:
    """In how many parts the inner dim is cut: 1 where there are enough programs, or the dim is short."""
    programs = batch * _parts(rows, tile.rows) * _parts(columns, tile.columns)
    if programs == 0 or programs >= _PROGRAMS or depth < 2 * _LEAST_DEPTH:
        return 1
    return max(1, min(_PROGRAMS // programs, depth // _LEAST_DEPTH, _MOST_SPLITS))


def count_stretches(tile: TileShape, batch: int, rows: int, columns: int, depth: int) -> int:
    """How many programs share the turns of all tiles: fewer where their stretches would be short, at least one for each tile."""
    tiles = batch * _parts(rows, tile.rows) * _parts(columns, tile.columns)
    turns = tiles * _parts(depth, tile.depth)
    return max(1, min(_STRETCHES, max(tiles, turns // _parts(_LEAST_DEPTH, tile.depth))))


def _parts(size: int, part: int) -> int:
    return -(-size // part)
