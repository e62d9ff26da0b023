"""Parameters of block kernels over strided arrays: pointers, sizes and strides, with what is known of them."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from typing import Any

from rushlight._backends.cuda.program.steps import Memory, Operand
from rushlight._codegen.blocks import Kernel, Pointer, Tile
from rushlight._codegen.blocks.expressions import Term, TermBuilder
from rushlight._types.dtype import INT32, INT64, DType

__all__ = ["Arguments", "as_reals", "dense_operand", "index_dtype", "span"]

Ints = tuple[int, ...]
_KNOWN = 16  # what divides an integer is told up to this number


class Arguments:
    """Collects the parameters of a kernel, then gives them to a builder and to the launch.

    A size or a stride of 1 (or 0) is a constant in the kernel, any other a parameter, so that kernels of many shapes are one.
    """

    def __init__(self) -> None:
        self.types: list[Tile] = []
        self.names: list[str] = []
        self.values: list[Any] = []
        self.divisible: dict[int, int] = {}

    def pointer(self, where: Operand | Memory, name: str, dtype: DType | None = None) -> int:
        """The number of a parameter that is an address."""
        to = where.dtype if dtype is None and isinstance(where, Operand) else dtype
        assert to is not None
        return self._add(Tile(Pointer(to)), where, name)

    def integer(self, value: int, name: str, dtype: DType = INT32) -> int | tuple[int]:
        """The number of a parameter, or (value,) for a constant."""
        if value in (0, 1):
            return (value,)
        number = self._add(Tile(dtype), value, name)
        known = gcd(value, _KNOWN)
        if known > 1:
            self.divisible[number] = known
        return number

    def _add(self, type: Tile, value: Any, name: str) -> int:
        self.types.append(type)
        self.values.append(value)
        self.names.append(name)
        return len(self.types) - 1

    def number(self, value: float, dtype: DType, name: str) -> int:
        """The number of a parameter that is a scalar."""
        return self._add(Tile(dtype), value, name)

    def builder(self, name: str) -> TermBuilder:
        """A builder of a kernel with these parameters."""
        return TermBuilder(name, self.types, self.names)

    def term(self, b: TermBuilder, at: int | tuple[int], dtype: DType = INT32) -> Term:
        """The parameter, or the constant."""
        return b.number(at[0], dtype) if isinstance(at, tuple) else Term(b, b.params[at])

    def finish(self, b: TermBuilder, **options: Any) -> Kernel:
        return b.finish(divisible=self.divisible, **options)


def span(x: Operand) -> int:
    """Elements from the first of an operand to behind its last."""
    return 1 + sum((size - 1) * abs(stride) for size, stride in zip(x.shape, x.strides, strict=True) if size)


def index_dtype(*xs: Operand) -> DType:
    """int32 where it counts the elements of all operands, with room for a tile beyond their ends."""
    return INT32 if all(span(x) < 2**31 - 2**20 for x in xs) else INT64


def as_reals(x: Operand) -> Operand:
    """Complex numbers as pairs of real ones: a last dim of size 2."""
    return Operand(x.memory, x.dtype.to_real(), (*x.shape, 2), (*(2 * s for s in x.strides), 1), 2 * x.offset)


def dense_operand(memory: Memory, dtype: DType, shape: Sequence[int]) -> Operand:
    """Row-major elements in memory."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return Operand(memory, dtype, shape, strides[::-1])
