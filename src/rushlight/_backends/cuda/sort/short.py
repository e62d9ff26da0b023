"""Rows that one program sorts in registers."""

from __future__ import annotations

from collections.abc import Sequence

from rushlight._backends.cuda.arguments import Arguments, Array, Batch
from rushlight._backends.cuda.program.steps import Launch, Memory, Operand
from rushlight._backends.cuda.sort.keys import index_of, key_dtype, key_of, packed, sorted_tile
from rushlight._codegen.blocks.expressions import Term, TermBuilder
from rushlight._types.dtype import INT64, UINT32, UINT64, DType
from rushlight._types.layout import numel

__all__ = ["LONGEST", "candidates_launch", "finals_launch", "short_launch"]

LONGEST = 2048  # elements of a row in a tile
_TILE = 1024  # elements of a tile of several rows


def power_of_two(n: int) -> int:
    """The least power of two that is not less."""
    return 1 << max(n - 1, 0).bit_length()


def short_launch(x: Operand, values: Operand, indices: Operand, first: int, descending: bool) -> Launch:
    """Sorts rows (the last dim) of at most `LONGEST` elements; writes those from rank `first` on, as many as the results
    have.
    """
    length, count = x.shape[-1], values.shape[-1]
    width = power_of_two(length)
    rows_here = max(1, _TILE // width)
    arguments = Arguments()
    source, to, to_index = (Array(arguments, v, n) for v, n in ((x, "x"), (values, "values"), (indices, "indices")))
    batch = Batch(arguments, x.shape[:-1])
    rows = numel(x.shape[:-1])
    n_rows, n_count = arguments.integer(rows, "rows"), arguments.integer(count, "count")
    n_length, n_first = arguments.integer(length, "length"), arguments.integer(first, "first")
    b = arguments.builder(f"sort_{x.dtype.abbr}_{width}")
    row = b.program(0) * rows_here + b.index(rows_here)
    at = tuple(i[:, None] for i in batch.split(b, row))
    places = b.index(width)[None, :]
    many = arguments.term(b, n_length)
    inside = ((row < arguments.term(b, n_rows))[:, None] & (places < many)).spread((rows_here, width))
    loaded = source.pointer(b, *at, places).load(inside, 0)
    key = b.where(inside, key_of(b, loaded, descending), _most(key_dtype(x.dtype)))
    entries = sorted_tile(b, packed(key, places.spread((rows_here, width))))
    index = index_of(entries)
    rank = places - arguments.term(b, n_first)
    kept = (inside & (rank >= 0) & (rank < arguments.term(b, n_count))).spread((rows_here, width))
    _store(b, source, to, to_index, at, rank, index, kept)
    return Launch(
        arguments.finish(b, warps=4 if rows_here * width >= 512 else 1), (-(-rows // rows_here),), arguments.values
    )


def _most(dtype: DType) -> int:
    return (1 << (8 * dtype.itemsize)) - 1


def _store(
    b: TermBuilder,
    source: Array,
    values: Array,
    indices: Array,
    at: tuple[Term, ...],
    rank: Term,
    index: Term,
    kept: Term,
) -> None:
    """The elements at indices, and the indices, at ranks."""
    safe = b.where(kept, index, 0)
    values.pointer(b, *at, rank).store(source.pointer(b, *at, safe).load(kept, 0), kept)
    indices.pointer(b, *at, rank).store(index, kept)


# ***** the first of long rows: a tournament *****


def candidates_launch(
    source: Operand | Sequence[Memory],
    dtype: DType,
    rows: int,
    length: int,
    kept: int,
    outs: Sequence[Memory],
    descending: bool,
) -> Launch:
    """The first `kept` of each piece of `LONGEST` elements of a row, as dense entries [rows, pieces * kept]."""
    pieces = -(-length // LONGEST)
    arguments = Arguments()
    x = Array(arguments, source, "x") if isinstance(source, Operand) else None
    batch = Batch(arguments, source.shape[:-1]) if isinstance(source, Operand) else None
    entries_in = [] if isinstance(source, Operand) else [_pointer(arguments, m, k, dtype) for k, m in enumerate(source)]
    entries_out = [_pointer(arguments, m, k + 2, dtype) for k, m in enumerate(outs)]
    n_length, n_kept = arguments.integer(length, "length"), arguments.integer(kept, "kept")
    n_pieces = arguments.integer(pieces, "pieces")
    b = arguments.builder(f"candidates_{dtype.abbr}")
    many, keep, across = (arguments.term(b, n) for n in (n_length, n_kept, n_pieces))
    row, piece = b.program(0) // across, b.program(0) % across
    places = piece * LONGEST + b.index(LONGEST)
    inside = places < many
    if x is not None and batch is not None:
        value = x.pointer(b, *batch.split(b, row), places).load(inside, 0)
        key = b.where(inside, key_of(b, value, descending), _most(key_dtype(dtype)))
        entries = packed(key, places)
    else:
        offset = row.to(INT64) * many.to(INT64) + places.to(INT64)
        filler = packed_filler(b, dtype, places)
        entries = [
            b.where(inside, (arguments.term(b, at) + offset).load(inside, 0), fill)
            for at, fill in zip(entries_in, filler, strict=True)
        ]
    entries = sorted_tile(b, entries)
    place = b.index(LONGEST)
    where = (row * across + piece).to(INT64) * keep.to(INT64) + place.to(INT64)
    for at, entry in zip(entries_out, entries, strict=True):
        (arguments.term(b, at) + where).store(entry, place < keep)
    return Launch(arguments.finish(b, warps=8), (rows * pieces,), arguments.values)


def packed_filler(b: TermBuilder, dtype: DType, places: Term) -> list[Term]:
    """Entries behind all others, which differ from each other."""
    key = b.number(_most(key_dtype(dtype)), key_dtype(dtype), places.shape)
    return packed(key, places | _UPPER)


_UPPER = -(1 << 31)


def _pointer(arguments: Arguments, memory: Memory, number: int, dtype: DType) -> int:
    """The address of entries: keys (with indices, where they fit), or indices."""
    alone = key_dtype(dtype) is UINT64
    return arguments.pointer(memory, f"entries{number}", UINT32 if alone and number % 2 else UINT64)


def finals_launch(x: Operand, values: Operand, indices: Operand, entries: Sequence[Memory], length: int) -> Launch:
    """Sorts dense entries [rows, length], and writes the elements of `x` and the indices that the first of them name."""
    width, count = power_of_two(length), values.shape[-1]
    arguments = Arguments()
    source, to, to_index = (Array(arguments, v, n) for v, n in ((x, "x"), (values, "values"), (indices, "indices")))
    batch = Batch(arguments, x.shape[:-1])
    given = [_pointer(arguments, m, k, x.dtype) for k, m in enumerate(entries)]
    n_length, n_count = arguments.integer(length, "length"), arguments.integer(count, "count")
    b = arguments.builder(f"finals_{x.dtype.abbr}_{width}")
    row, places = b.program(0), b.index(width)
    many = arguments.term(b, n_length)
    inside = places < many
    offset = row.to(INT64) * many.to(INT64) + places.to(INT64)
    filler = packed_filler(b, x.dtype, places)
    loaded = [
        b.where(inside, (arguments.term(b, at) + offset).load(inside, 0), fill)
        for at, fill in zip(given, filler, strict=True)
    ]
    index = index_of(sorted_tile(b, loaded))
    _store(b, source, to, to_index, batch.split(b, row), places, index, places < arguments.term(b, n_count))
    return Launch(arguments.finish(b, warps=8), (numel(x.shape[:-1]),), arguments.values)
