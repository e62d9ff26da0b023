"""Tiles moved from one layout to another: within threads where that is enough, else through shared memory."""

from __future__ import annotations

from collections.abc import Sequence

from rushlight._types.dtype import BOOL

from .form import Buffer, Registers, ThreadBuilder, Value
from .layout import NONE, Layout

__all__ = ["Swizzle", "exchange", "read_shared", "through_shared", "write_shared"]

BANK_BITS = range(2, 7)  # the bits of an address, in bytes, that tell banks of shared memory apart


def exchange(b: ThreadBuilder, x: Value, source: Layout, target: Layout) -> Value:
    """The tile `x`, which lies as `source` says, as `target` says."""
    if source == target:
        return x
    if (source.lanes, source.warps) == (target.lanes, target.warps):
        return b.pick([x], [(0, source.register_of(e)) for e in target.table()])
    return _narrowed(b, x, source, target) or through_shared(b, x, source, target)


def _narrowed(b: ThreadBuilder, x: Value, source: Layout, target: Layout) -> Value | None:
    """Where threads that held the same now hold parts: each selects its part.  None where data must move."""
    pairs = [(5, source.lanes, target.lanes, 0), (len(source.warps), source.warps, target.warps, 1)]
    registers = list(source.registers)
    for count, old, new, side in pairs:
        for i in range(count):
            if old[i] == new[i]:
                continue
            if old[i] != NONE or new[i] not in registers:
                return None
            place = registers.index(new[i])
            halves = [[r for r in range(x.count) if r >> place & 1 == k] for k in (0, 1)]
            low, high = (b.pick([x], [(0, r) for r in half]) for half in halves)
            zero = b.only_where_zero(*((1 << i, 0) if side == 0 else (0, 1 << i)))
            assert zero is not None
            x = b.pointwise("select", b.spread(zero, low.count), low, high, dtype=x.dtype)
            registers.pop(place)
    rest = Layout(tuple(registers), target.lanes, target.warps)
    return b.pick([x], [(0, rest.register_of(e)) for e in target.table()])


class Swizzle:
    """Where elements lie in a buffer: the number of an element, with some of its bits xored by others above.

    `shift` and `bits` choose them; the lowest `keep` bits stay, so that neighbours can be moved together.
    """

    def __init__(self, keep: int = 0, bits: int = 0, shift: int = 0) -> None:
        self.keep, self.bits, self.shift = keep, bits, shift

    def __call__(self, element: int) -> int:
        mask = (1 << self.bits) - 1
        return element ^ ((element >> self.shift & mask) << self.keep)


def _conflicts(layout: Layout, swizzle: Swizzle, itemsize: int, vector: int) -> int:
    """How many turns an access takes: lanes that differ and fall on the same banks."""
    bases = [swizzle(1 << bit) * itemsize for bit in layout.lanes if bit != NONE]
    size = vector * itemsize
    bases = bases[: max(0, 5 - max(0, size.bit_length() - 3))]  # wide accesses are done by parts of a warp
    return 1 << (len(bases) - _rank([base & 0x7C for base in bases]))


def _rank(vectors: Sequence[int]) -> int:
    """The dimension of what numbers span under exclusive or."""
    basis: list[int] = []
    for vector in vectors:
        for other in basis:
            vector = min(vector, vector ^ other)
        if vector:
            basis.append(vector)
    return len(basis)


def best_swizzle(layouts: Sequence[tuple[Layout, int]], itemsize: int, size_bits: int) -> Swizzle:
    """The swizzle with the fewest conflicts for accesses (layout, vector)."""
    keep = max(vector.bit_length() - 1 for _, vector in layouts)
    best, cost = Swizzle(keep), sum(_conflicts(layout, Swizzle(keep), itemsize, v) for layout, v in layouts)
    low = max(0, 2 - (itemsize.bit_length() - 1))
    keep_at_least = max(keep, low)
    for bits in range(1, 6):
        for shift in range(keep_at_least + bits, size_bits):
            width = min(bits, size_bits - shift)
            candidate = Swizzle(keep_at_least, width, shift)
            found = sum(_conflicts(layout, candidate, itemsize, v) for layout, v in layouts)
            if found < cost:
                best, cost = candidate, found
    return best


def access_width(layout: Layout, itemsize: int) -> int:
    """Registers in one access of shared memory."""
    return min(layout.run(), max(1, 16 // itemsize))


def write_shared(b: ThreadBuilder, x: Value, layout: Layout, buffer: Buffer, swizzle: Swizzle, vector: int) -> None:
    """Each element of a tile to its place; threads that hold the same leave it to the first."""
    mask = b.only_where_zero(*layout.idle())
    operands = [offsets(b, layout, swizzle, x.dtype.itemsize), x]
    if mask is not None:
        operands.append(b.spread(mask, x.count))
    b.emit("shared_store", operands, [], buffer=buffer, vector=vector)


def read_shared(b: ThreadBuilder, like: Value, layout: Layout, buffer: Buffer, swizzle: Swizzle, vector: int) -> Value:
    """A tile from its places, in a layout."""
    place = offsets(b, layout, swizzle, like.dtype.itemsize)
    result = Registers(like.dtype, layout.size)
    return b.emit("shared_load", [place], [result], buffer=buffer, dtype=like.dtype, vector=vector).result


def offsets(b: ThreadBuilder, layout: Layout, swizzle: Swizzle, itemsize: int) -> Value:
    """Byte offsets of the elements that a thread holds."""
    lanes, warps = ([swizzle(base) * itemsize for base in bases] for bases in layout.bases())
    return b.index([swizzle(e) * itemsize for e in layout.table()], lanes, warps)


def through_shared(b: ThreadBuilder, x: Value, source: Layout, target: Layout) -> Value:
    """Written by `source`, read by `target`."""
    itemsize = 1 if x.dtype is BOOL else x.dtype.itemsize
    used = sorted({bit for part in source for bit in part if bit != NONE})  # a reduction leaves gaps
    change = [used.index(bit) if bit in used else NONE for bit in range(max(used, default=-1) + 1)]
    source, target, bits = source.mapped(change), target.mapped(change), len(used)
    writes, reads = (access_width(layout, itemsize) for layout in (source, target))
    swizzle = best_swizzle([(source, writes), (target, reads)], itemsize, bits)
    buffer = Buffer(itemsize << bits)
    write_shared(b, x, source, buffer, swizzle, writes)
    return read_shared(b, x, target, buffer, swizzle, reads)
