"""Keys of sorting: unsigned integers in the order of the elements, and of equals by their index."""

from __future__ import annotations

from rushlight._codegen.blocks.expressions import Term, TermBuilder
from rushlight._types.dtype import BOOL, INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32, UINT64, DType

__all__ = ["exchange", "index_of", "key_dtype", "key_of", "packed", "sorted_tile"]

_UNSIGNED = {1: UINT8, 2: UINT16, 4: UINT32, 8: UINT64}
_SIGNED = {1: INT8, 2: INT16, 4: INT32, 8: INT64}


def key_dtype(dtype: DType) -> DType:
    """The dtype of a key: 32 bits, or 64."""
    return UINT64 if dtype.itemsize == 8 else UINT32


def key_of(b: TermBuilder, x: Term, descending: bool) -> Term:
    """The key of each element; equal elements have equal keys, -0.0 that of 0.0."""
    dtype = x.dtype
    if dtype is BOOL:
        key = x.to(UINT32)
    elif dtype.kind == "f":
        key = _of_float(b, x).to(key_dtype(dtype))
    elif dtype.is_signed:
        unsigned = _UNSIGNED[dtype.itemsize]
        key = (x.bits(unsigned) ^ (1 << (8 * dtype.itemsize - 1))).to(key_dtype(dtype))
    else:
        key = x.to(key_dtype(dtype))
    return ~key if descending else key


def _of_float(b: TermBuilder, x: Term) -> Term:
    size = x.dtype.itemsize
    unsigned, sign = _UNSIGNED[size], 1 << (8 * size - 1)
    bits = b.where(x.equals(0.0), 0.0, x).bits(unsigned)
    ordered = b.where((bits >> (8 * size - 1)).equals(1), ~bits, bits | sign)
    return b.where(x.differs(x), (1 << (8 * size)) - 1, ordered)


def packed(key: Term, index: Term) -> list[Term]:
    """Values that sorting compares: key and index in one uint64 where they fit, else both apart."""
    if key.dtype is UINT32:
        return [(key.to(UINT64) << 32) | index.to(UINT64)]
    return [key, index.to(UINT32)]


def index_of(entries: list[Term]) -> Term:
    """The index, as int64."""
    if len(entries) == 1:
        return (entries[0] & 0xFFFFFFFF).to(INT64)
    return entries[1].to(INT64)


def _less(a: list[Term], other: list[Term]) -> Term:
    if len(a) == 1:
        return a[0] < other[0]
    return (a[0] < other[0]) | (a[0].equals(other[0]) & (a[1] < other[1]))


def exchange(b: TermBuilder, entries: list[Term], distance: int, run: int) -> list[Term]:
    """One step of Batcher's bitonic network along the last dim: pairs at a distance, in order within runs that alternate."""
    *lead, size = entries[0].shape
    place = b.index(size)
    index = (place ^ distance).spread((*lead, size))
    partners = [b.taken(x, index, len(lead)) for x in entries]
    low = (place & distance).equals(0)
    rising = (place & run).equals(0)
    first = low.equals(rising).spread((*lead, size))
    mine = _less(entries, partners).equals(first)
    return [b.where(mine, x, y) for x, y in zip(entries, partners, strict=True)]


def sorted_tile(b: TermBuilder, entries: list[Term]) -> list[Term]:
    """Entries that differ from each other, in order along the last dim, whose size is a power of two."""
    size, run = entries[0].shape[-1], 2
    while run <= size:
        distance = run // 2
        while distance:
            entries = exchange(b, entries, distance, run)
            distance //= 2
        run *= 2
    return entries
