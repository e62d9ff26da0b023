"""Kernels of the routines: what a mask selects, runs of equal neighbours, rows gathered from anywhere.

A mask is processed in pieces: the count before each piece gives each program the place of its results.
"""

from __future__ import annotations

from collections.abc import Sequence

from rushlight._backends.cuda.arguments import Arguments
from rushlight._backends.cuda.program.steps import Launch, Memory
from rushlight._codegen.blocks.expressions import Term, TermBuilder
from rushlight._types.dtype import INT32, INT64, UINT8, UINT16, UINT32, UINT64, DType

__all__ = [
    "PIECE", "compact_launch", "count_launch", "list_launch", "mark_launch", "number_launch", "rows_launch", "lengths_launch", "unravel_launch",
]  # fmt: skip

PIECE = 2048
_BLOCK = 1024
_BITS = {1: UINT8, 2: UINT16, 4: UINT32, 8: UINT64}


def _pieces(n: int, piece: int = PIECE) -> int:
    return -(-n // piece)


class _Mask:
    """A mask of bytes among the parameters of a kernel, and the place of its results."""

    def __init__(self, mask: Memory, n: int, before: Memory | None) -> None:
        self.arguments = Arguments()
        self.mask = self.arguments.pointer(mask, "mask", UINT8)
        self.n = self.arguments.number(n, INT64, "n")
        self.before = None if before is None else self.arguments.pointer(before, "before", INT64)

    def piece(self, b: TermBuilder) -> tuple[Term, Term, Term]:
        """Element numbers of this program, which are inside, and which are set."""
        places = b.program(0).to(INT64) * PIECE + b.index(PIECE).to(INT64)
        inside = places < self.arguments.term(b, self.n, INT64)
        return places, inside, (self.arguments.term(b, self.mask) + places).load(inside, 0).differs(0) & inside

    def upto(self, b: TermBuilder, chosen: Term) -> Term:
        """How many are set up to each element, itself included."""
        assert self.before is not None
        first = (self.arguments.term(b, self.before) + b.program(0)).load()
        return first + b.prefixes(chosen.to(INT32), 0).to(INT64)


def count_launch(mask: Memory, n: int, counts: Memory) -> Launch:
    """How many of each piece are set: int32."""
    given = _Mask(mask, n, None)
    to = given.arguments.pointer(counts, "counts", INT32)
    b = given.arguments.builder("count_true")
    _, _, chosen = given.piece(b)
    (given.arguments.term(b, to) + b.program(0)).store(b.total(chosen.to(INT32), 0))
    return Launch(given.arguments.finish(b, warps=8), (_pieces(n),), given.arguments.values)


def list_launch(mask: Memory, n: int, before: Memory, indices: Memory) -> Launch:
    """The indices of what is set: int64."""
    given = _Mask(mask, n, before)
    to = given.arguments.pointer(indices, "indices", INT64)
    b = given.arguments.builder("list_true")
    places, _, chosen = given.piece(b)
    (given.arguments.term(b, to) + (given.upto(b, chosen) - 1)).store(places, chosen)
    return Launch(given.arguments.finish(b, warps=8), (_pieces(n),), given.arguments.values)


def compact_launch(source: Memory, size: int, mask: Memory, n: int, before: Memory, result: Memory) -> Launch:
    """The elements, of `size` bytes, that are set."""
    given = _Mask(mask, n, before)
    at, to = (given.arguments.pointer(m, k, _BITS[size]) for m, k in ((source, "source"), (result, "result")))
    b = given.arguments.builder(f"compact_{size}")
    places, _, chosen = given.piece(b)
    value = (given.arguments.term(b, at) + places).load(chosen, 0)
    (given.arguments.term(b, to) + (given.upto(b, chosen) - 1)).store(value, chosen)
    return Launch(given.arguments.finish(b, warps=8), (_pieces(n),), given.arguments.values)


def number_launch(mask: Memory, n: int, before: Memory, order: Memory | None, result: Memory) -> Launch:
    """The number of each element's run, at its index or at that in `order`: int64."""
    given = _Mask(mask, n, before)
    to = given.arguments.pointer(result, "result", INT64)
    at = None if order is None else given.arguments.pointer(order, "order", INT64)
    b = given.arguments.builder("number_runs" if order is None else "number_runs_ordered")
    places, inside, chosen = given.piece(b)
    number = given.upto(b, chosen) - 1
    where = places if at is None else (given.arguments.term(b, at) + places).load(inside, 0)
    (given.arguments.term(b, to) + where).store(number, inside)
    return Launch(given.arguments.finish(b, warps=8), (_pieces(n),), given.arguments.values)


def _elements(arguments: Arguments, n: int) -> int:
    return arguments.number(n, INT64, "n")


def _place(b: TermBuilder, arguments: Arguments, n: int) -> tuple[Term, Term]:
    places = b.program(0).to(INT64) * _BLOCK + b.index(_BLOCK).to(INT64)
    return places, places < arguments.term(b, n, INT64)


def mark_launch(x: Memory, dtype: DType, n: int, mask: Memory) -> Launch:
    """Whether each element differs from the one before it; the first does.  NaN differs from NaN."""
    arguments = Arguments()
    source, to, count = (
        arguments.pointer(x, "x", dtype),
        arguments.pointer(mask, "mask", UINT8),
        _elements(arguments, n),
    )
    b = arguments.builder(f"mark_runs_{dtype.abbr}")
    places, inside = _place(b, arguments, count)
    mine = (arguments.term(b, source) + places).load(inside, 0)
    later = inside & (places > 0)
    before = (arguments.term(b, source) + (places - 1)).load(later, 0)
    wide = dtype.wide if dtype.kind == "f" else dtype
    new = mine.to(wide).differs(before.to(wide)) | places.equals(0)
    (arguments.term(b, to) + places).store(new.to(UINT8), inside)
    return Launch(arguments.finish(b), (_pieces(n, _BLOCK),), arguments.values)


def lengths_launch(starts: Memory, n: int, total: int, result: Memory) -> Launch:
    """How long runs are that begin at these indices of `total` elements."""
    arguments = Arguments()
    at, to = arguments.pointer(starts, "starts", INT64), arguments.pointer(result, "result", INT64)
    count, whole = _elements(arguments, n), arguments.number(total, INT64, "total")
    b = arguments.builder("run_lengths")
    places, inside = _place(b, arguments, count)
    begin = (arguments.term(b, at) + places).load(inside, 0)
    more = places + 1 < arguments.term(b, count, INT64)
    end = (arguments.term(b, at) + (places + 1)).load(more, 0)
    end = b.where(more, end, arguments.term(b, whole, INT64))
    (arguments.term(b, to) + places).store(end - begin, inside)
    return Launch(arguments.finish(b), (_pieces(n, _BLOCK),), arguments.values)


def unravel_launch(indices: Memory, n: int, sizes: Sequence[int], coordinates: Memory) -> Launch:
    """Flat indices as coordinates [ndim, n]: int64."""
    arguments = Arguments()
    at, to = arguments.pointer(indices, "indices", INT64), arguments.pointer(coordinates, "coordinates", INT64)
    count = _elements(arguments, n)
    given = [arguments.number(size, INT64, f"size{d}") for d, size in enumerate(sizes)]
    b = arguments.builder(f"unravel_{len(sizes)}")
    places, inside = _place(b, arguments, count)
    rest, many = (arguments.term(b, at) + places).load(inside, 0), arguments.term(b, count, INT64)
    for d in reversed(range(len(sizes))):
        size = arguments.term(b, given[d], INT64)
        index = rest % size if d else rest
        rest = rest // size
        (arguments.term(b, to) + (many * d + places)).store(index, inside)
    return Launch(arguments.finish(b), (_pieces(n, _BLOCK),), arguments.values)


def rows_launch(target: Memory, addresses: Memory, n: int, nbytes: int, aligned: bool) -> Launch:
    """Stretches of memory one behind the other; 8 bytes at a time where all are `aligned`."""
    arguments, dtype = Arguments(), UINT64 if aligned else UINT8
    to, table = arguments.pointer(target, "target", dtype), arguments.pointer(addresses, "addresses", INT64)
    length = nbytes // dtype.itemsize
    count, pieces = (
        arguments.number(length, INT64, "length"),
        arguments.number(_pieces(length, _BLOCK), INT32, "pieces"),
    )
    b = arguments.builder(f"copy_rows_{dtype.itemsize}")
    many, each = arguments.term(b, count, INT64), arguments.term(b, pieces, INT32)
    row = (b.program(0) // each).to(INT64)
    source = (arguments.term(b, table) + row).load()
    places = (b.program(0) % each).to(INT64) * _BLOCK + b.index(_BLOCK).to(INT64)
    inside = places < many
    from_there = Term(b, b.value("pointer_cast", source.value, to=dtype))
    value = (from_there + places).load(inside, 0)
    (arguments.term(b, to) + (row * many + places)).store(value, inside)
    return Launch(arguments.finish(b), (n * _pieces(length, _BLOCK),), arguments.values)
