"""Layouts: which thread holds which elements of a tile, and in which register.

Sizes are powers of two, so the row-major number of an element is a string of bits, and so is a place (register, lane,
warp).  A layout says for each bit of a place which bit of the element's number it is; NONE for lanes or warps that hold
the same elements as others.  Blocked tiles, accumulators and operands of matrix instructions, results of reductions,
and every reshaped or permuted form of these are such layouts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

__all__ = [
    "NONE", "Layout", "after_broadcast", "after_permute", "axis_bits", "before_broadcast", "before_permute", "bits_of",
    "blocked", "filled", "without_bits",
]  # fmt: skip

NONE = -1
LANE_BITS = 5


class Layout(NamedTuple):
    """The bits of the element's number, for each bit of the register's number, of the lane and of the warp.

    >>> layout = blocked((4, 64), 1, (1, 0), 4)
    >>> layout
    Layout(registers=(0, 1, 7), lanes=(2, 3, 4, 5, 6), warps=())
    >>> layout.element(register=5, lane=3)
    141
    """

    registers: tuple[int, ...]
    lanes: tuple[int, ...]
    warps: tuple[int, ...]

    @property
    def size(self) -> int:
        """Registers of a thread."""
        return 1 << len(self.registers)

    def element(self, register: int = 0, lane: int = 0, warp: int = 0) -> int:
        """The row-major number of the element at a place."""
        total = 0
        for place, bits in ((register, self.registers), (lane, self.lanes), (warp, self.warps)):
            total |= sum(1 << bit for i, bit in enumerate(bits) if place >> i & 1 and bit != NONE)
        return total

    def table(self) -> tuple[int, ...]:
        """The elements of lane 0 of warp 0, by register."""
        return tuple(self.element(r) for r in range(self.size))

    def bases(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The increment of the element's number for each bit of lane and warp."""
        return tuple(0 if b == NONE else 1 << b for b in self.lanes), tuple(
            0 if b == NONE else 1 << b for b in self.warps
        )

    def idle(self) -> tuple[int, int]:
        """The bits of lane and of warp that make no difference, as numbers."""
        lanes = sum(1 << i for i, b in enumerate(self.lanes) if b == NONE)
        return lanes, sum(1 << i for i, b in enumerate(self.warps) if b == NONE)

    def register_of(self, element: int) -> int:
        """The register that holds the bits of an element which registers decide."""
        return sum(1 << i for i, b in enumerate(self.registers) if element >> b & 1)

    def run(self) -> int:
        """How many neighbouring elements lie in neighbouring registers."""
        width = 0
        while width < len(self.registers) and self.registers[width] == width:
            width += 1
        return 1 << width

    def mapped(self, change: Sequence[int]) -> Layout:
        """Bit b becomes `change[b]`; registers whose bit becomes NONE go."""
        lanes, warps = (tuple(b if b == NONE else change[b] for b in bits) for bits in (self.lanes, self.warps))
        return Layout(tuple(change[b] for b in self.registers if change[b] != NONE), lanes, warps)


def bits_of(size: int) -> int:
    """The logarithm of a power of two; ValueError for other sizes."""
    if size < 1 or size & (size - 1):
        raise ValueError(f"{size} is no power of two")
    return size.bit_length() - 1


def axis_bits(shape: Sequence[int], axis: int) -> range:
    """The bits of an element's number that count along a dim."""
    low = sum(bits_of(s) for s in shape[axis + 1 :])
    return range(low, low + bits_of(shape[axis]))


def blocked(shape: Sequence[int], warps: int, order: Sequence[int], vector: int) -> Layout:
    """Neighbours along the first dim of `order` in `vector` registers, then lanes, then warps, then registers again.

    Warps are taken from the top of the slowest dim with bits left, so that a row is within a warp where rows are many.
    """
    free = [bit for dim in order for bit in axis_bits(shape, dim)]
    fast = list(axis_bits(shape, order[0])) if order else []
    registers = fast[: bits_of(vector)]
    free = free[len(registers) :]
    lanes, free = free[:LANE_BITS], free[LANE_BITS:]
    count = bits_of(warps)
    one_dim = sum(1 for s in shape if s > 1) <= 1
    taken = free[:count] if one_dim else free[max(len(free) - count, 0) :]
    registers += [b for b in free if b not in taken]
    return Layout(tuple(registers), filled(lanes, LANE_BITS), filled(taken, count))


def filled(bits: Sequence[int], count: int) -> tuple[int, ...]:
    """So many bits of a place, of which the last make no difference."""
    return (*bits, *[NONE] * (count - len(bits)))


# ***** operations on shapes *****


def _permutation(shape: Sequence[int], order: Sequence[int]) -> list[int]:
    """For each bit of the operand's number the bit of the result's."""
    new = [shape[d] for d in order]
    change = [0] * sum(bits_of(s) for s in shape)
    for place, dim in enumerate(order):
        for old, now in zip(axis_bits(shape, dim), axis_bits(new, place), strict=True):
            change[old] = now
    return change


def after_permute(layout: Layout, shape: Sequence[int], order: Sequence[int]) -> Layout:
    """The layout of `permute` of a tile of `shape`."""
    return layout.mapped(_permutation(shape, order))


def before_permute(layout: Layout, shape: Sequence[int], order: Sequence[int]) -> Layout:
    """The layout of the operand, of `shape`, that makes the result's."""
    change = _permutation(shape, order)
    return layout.mapped([change.index(b) for b in range(len(change))])


def _broadcast_bits(old: Sequence[int], new: Sequence[int]) -> list[int]:
    """For each bit of the result's number the bit of the operand's, or NONE."""
    found = [NONE] * sum(bits_of(s) for s in new)
    for dim, (a, b) in enumerate(zip(old, new, strict=True)):
        if a == b:
            for source, target in zip(axis_bits(old, dim), axis_bits(new, dim), strict=True):
                found[target] = source
    return found


def before_broadcast(layout: Layout, old: Sequence[int], new: Sequence[int]) -> Layout:
    """The layout of the operand, of shape `old`, that makes the result's without moving data between threads."""
    return layout.mapped(_broadcast_bits(old, new))


def after_broadcast(layout: Layout, old: Sequence[int], new: Sequence[int]) -> Layout:
    """A layout of the result: new bits go to idle lanes, then to idle warps, then to registers."""
    back = _broadcast_bits(old, new)
    fresh = [bit for bit, source in enumerate(back) if source == NONE]
    moved = layout.mapped([back.index(b) for b in range(sum(bits_of(s) for s in old))])
    lanes, warps = list(moved.lanes), list(moved.warps)
    for bits in (lanes, warps):
        for i, bit in enumerate(bits):
            if bit == NONE and fresh:
                bits[i] = fresh.pop(0)
    return Layout((*moved.registers, *fresh), tuple(lanes), tuple(warps))


def without_bits(layout: Layout, bits: range) -> Layout:
    """The layout when a dim is gone: its lanes and warps hold the same, its registers are gone."""
    top = max([*layout.registers, *layout.lanes, *layout.warps, bits.stop - 1, 0]) + 1
    return layout.mapped([NONE if b in bits else b - len(bits) if b >= bits.stop else b for b in range(top)])
