"""Tiles of loops: which elements a program computes, and where they lie in its tile."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rushlight._codegen.blocks import BlockBuilder, Value
from rushlight._codegen.grid.elements import Elements, digits
from rushlight._codegen.grid.signature import Signature
from rushlight._schedule.costs import facts_of
from rushlight._schedule.expressions import Buffer
from rushlight._schedule.groups import Stage
from rushlight._schedule.indexing import Var
from rushlight._types.dtype import INT32, INT64, DType
from rushlight._types.layout import numel

__all__ = ["GridBuilder", "ceil_div", "index_dtype", "power_below", "power_from", "sizes_of"]

_SMALL = 1 << 30  # elements up to which 32 bits hold every index, those behind the end of a tile included


def power_from(n: int) -> int:
    """The least power of two that is not below `n`."""
    return 1 << max(n - 1, 0).bit_length()


def power_below(n: int) -> int:
    """The largest power of two that is not above `n`."""
    return 1 << max(n, 1).bit_length() - 1


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def index_dtype(stages: Iterable[Stage], sizes: dict[Buffer, int], elements: int) -> DType:
    """The dtype that holds all indices of some stages, which go through so many elements."""
    reach = elements
    for buffer, _, _ in facts_of(stages).accesses:
        reach = max(reach, sizes.get(buffer, 0) * (2 if buffer.dtype.kind == "c" else 1))
    return INT32 if reach < _SMALL else INT64


class GridBuilder:
    """One kernel under construction: its builder, its parameters, and the scope of the whole program."""

    def __init__(self, name: str, index: DType, words: Sequence[int], rank: int) -> None:
        self.b = BlockBuilder(name, [])
        self.signature = Signature(self.b, index)
        self.elements = Elements(self.signature, words, {}, [None] * rank)
        self.rank = rank
        self.rows = 1  # places of the first axis, for kernels over rows
        self.order: tuple[int, ...] = (1, 0)  # axes, that first along which threads have neighbours

    @property
    def index(self) -> DType:
        return self.signature.index

    def program(self) -> Value:
        """The number of the program, in the index dtype."""
        return self.b.convert(self.b.program_id(0), self.index)

    def range(self, size: int, axis: int) -> Value:
        """0 ... size - 1 along an axis of the tile."""
        if size == 1:
            return self.b.splat(self.signature.size(0), (1,) * self.rank)
        value = self.b.convert(self.b.arange(0, size), self.index)
        for other in range(self.rank):
            if other != axis:
                value = self.b.expand_dims(value, other)
        return value

    def places(self, begin: Value | None, size: int, axis: int) -> Value:
        """The places of a tile along an axis, from a scalar `begin` on."""
        at = self.range(size, axis)
        return at if begin is None else self.elements.apply("add", begin, at)

    def inside(self, at: Value, size: int, tile: int) -> Value | None:
        """Which places lie below a size; None where the tiles fill it."""
        return None if size % tile == 0 else self.elements.apply("lt", at, self.signature.size(size))

    def spread(self, at: Value, loops: Sequence[Var]) -> dict[Var, Value]:
        """The loop variables at flat places."""
        return digits(self.elements, at, loops)

    def tile_of(self, program: Value, tile: int) -> Value:
        """Where a program's tile begins."""
        return self.elements.apply("mul", program, self.signature.constant(tile, self.index)) if tile > 1 else program


def sizes_of(loops: Sequence[Var]) -> int:
    """How many combinations of values some loop variables have."""
    return numel([v.size for v in loops])
