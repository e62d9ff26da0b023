"""Parameters of block kernels over strided arrays: pointers, sizes and strides, with what is known of them."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from typing import Any

from rushlight._backends.cuda.program.steps import Memory, Operand
from rushlight._codegen.blocks import Kernel, Pointer, Tile
from rushlight._codegen.blocks.expressions import Term, TermBuilder
from rushlight._types.dtype import INT32, INT64, DType
from rushlight._types.layout import broadcast_shapes

__all__ = ["Arguments", "Array", "Batch", "as_reals", "dense_operand", "index_dtype", "merged", "span"]

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
        """The number of a parameter that is an address: a multiple of 16 but for its offset.  Launches with other addresses
        take the kernel without that knowledge.
        """
        to = where.dtype if dtype is None and isinstance(where, Operand) else dtype
        assert to is not None
        number = self._add(Tile(Pointer(to)), where, name)
        start = where.offset * where.dtype.itemsize if isinstance(where, Operand) else 0
        known = gcd(start, _KNOWN)
        if known > 1:
            self.divisible[number] = known
        return number

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


class Array:
    """An operand among the parameters of a kernel: its address and its strides."""

    def __init__(self, arguments: Arguments, x: Operand, name: str) -> None:
        self.arguments, self.dtype, self.ndim = arguments, index_dtype(x), len(x.shape)
        self.at = arguments.pointer(x, name)
        self.strides = [arguments.integer(s, f"{name}_stride{d}", self.dtype) for d, s in enumerate(x.strides)]

    def stride(self, b: TermBuilder, dim: int) -> Term:
        return self.arguments.term(b, self.strides[dim], self.dtype)

    def offset(self, b: TermBuilder, *indices: Term) -> Term:
        """The number of the element at indices, which broadcast, those along repeated dims too; fewer than there are dims count
        from dim 0.
        """
        total: Term | None = None
        for dim, index in enumerate(indices):
            step = self.strides[dim]
            if step == (0,):
                continue
            part = index.to(self.dtype)
            part = part if step == (1,) else part * self.stride(b, dim)
            total = part if total is None else total + part
        shape = broadcast_shapes(*(index.shape for index in indices))
        return (b.number(0, self.dtype) if total is None else total).spread(shape)

    def pointer(self, b: TermBuilder, *indices: Term) -> Term:
        """The address of the element at indices."""
        return self.arguments.term(b, self.at) + self.offset(b, *indices)


class Batch:
    """The dims of a batch: a program's number is its place among them, in row-major order."""

    def __init__(self, arguments: Arguments, sizes: Sequence[int]) -> None:
        self.arguments = arguments
        self.counts = [arguments.integer(n, f"batch{d}") for d, n in enumerate(sizes)]

    def split(self, b: TermBuilder, number: Term) -> tuple[Term, ...]:
        """The index along each dim."""
        indices: list[Term] = []
        for size in reversed(self.counts[1:]):
            n = self.arguments.term(b, size)
            indices.append(number % n)
            number = number // n
        return (number, *reversed(indices)) if self.counts else ()


def merged(trailing: int, *xs: Operand) -> list[Operand]:
    """Operands of one batch, which is all but `trailing` dims, with as few dims of batch as their strides allow."""
    lead = xs[0].shape[: len(xs[0].shape) - trailing]
    n = len(lead)
    sizes: list[int] = []
    steps: list[list[int]] = [[] for _ in xs]
    for d, size in enumerate(lead):
        if size == 1:
            continue
        if sizes and all(mine[-1] == x.strides[d] * size for mine, x in zip(steps, xs, strict=True)):
            sizes[-1] *= size
            for mine, x in zip(steps, xs, strict=True):
                mine[-1] = x.strides[d]
            continue
        sizes.append(size)
        for mine, x in zip(steps, xs, strict=True):
            mine.append(x.strides[d])
    return [
        Operand(x.memory, x.dtype, (*sizes, *x.shape[n:]), (*mine, *x.strides[n:]), x.offset)
        for x, mine in zip(xs, steps, strict=True)
    ]
