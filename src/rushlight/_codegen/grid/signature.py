"""The parameters of a block kernel, as they are asked for: memory, sizes, numbers.

Sizes and strides are arguments, so that shapes of a class share one kernel: all integers but -1, 0, 1 and 2 are
parameters, equal ones the same.  What divides them is part of the kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight._codegen.blocks import BlockBuilder, Kernel, Pointer, Tile, Value
from rushlight._codegen.loops import number_slot
from rushlight._schedule.expressions import Buffer
from rushlight._types.dtype import COMPLEX32, COMPLEX64, FLOAT16, FLOAT32, FLOAT64, DType

__all__ = ["Argument", "GridKernel", "Signature", "part_of", "relaxed"]

_DIVISORS = (16, 4)
_ALIGNED = 16  # bytes: every buffer that programs allocate begins at such an address
Argument = tuple[str, Any]  # ("buffer", Buffer), ("int", n), ("float", x), ("arg", word)


def part_of(dtype: DType) -> DType:
    """The dtype of the parts of a complex dtype; others have one part."""
    if dtype.kind != "c":
        return dtype
    return FLOAT16 if dtype is COMPLEX32 else FLOAT32 if dtype is COMPLEX64 else FLOAT64


class GridKernel:
    """A block kernel with what a launch gives it: programs along x, and an argument for each parameter.

    `pointers` are the numbers of the parameters that are memory, which are taken to be aligned.
    """

    __slots__ = ("arguments", "kernel", "pointers", "programs", "reads", "writes")

    def __init__(
        self,
        kernel: Kernel,
        programs: int,
        arguments: Sequence[Argument],
        reads: Sequence[Buffer],
        writes: Sequence[Buffer],
    ) -> None:
        self.kernel, self.programs, self.arguments = kernel, programs, list(arguments)
        self.pointers = [k for k, (kind, _) in enumerate(arguments) if kind == "buffer"]
        self.reads, self.writes = list(reads), list(writes)


def relaxed(kernel: Kernel, pointers: Sequence[int]) -> Kernel:
    """The kernel for addresses that are aligned to their elements alone."""
    divisible = {k: by for k, by in kernel.divisible.items() if k not in pointers}
    return Kernel(kernel.name, kernel.body, divisible=divisible, warps=kernel.warps, stages=kernel.stages)


class Signature:
    """Makes the parameters of the kernel of a builder; `index` is the dtype of sizes and indices."""

    def __init__(self, builder: BlockBuilder, index: DType) -> None:
        self.b, self.index = builder, index
        self.arguments: list[Argument] = []
        self.divisible: dict[int, int] = {}
        self.read: dict[Buffer, None] = {}
        self.written: dict[Buffer, None] = {}
        self._known: dict[Any, Value] = {}
        self._first = 0  # operations at the begin of the kernel: constants

    def _parameter(self, key: Any, type: Tile, name: str, argument: Argument) -> Value:
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = Value(type, None, f"{name}{len(self.arguments)}")
            self.b.params.append(found)
            self.arguments.append(argument)
        return found

    def pointer(self, buffer: Buffer) -> Value:
        """Where a buffer begins; of complex numbers a pointer to the first part."""
        new = buffer not in self._known
        value = self._parameter(buffer, Tile(Pointer(part_of(buffer.dtype))), "p", ("buffer", buffer))
        if new:
            self.divisible[len(self.arguments) - 1] = _ALIGNED
        return value

    def size(self, n: int, dtype: DType | None = None) -> Value:
        """An integer as a scalar."""
        dtype = dtype or self.index
        if -1 <= n <= 2:
            return self.constant(n, dtype)
        key = (n, dtype)
        new = key not in self._known
        value = self._parameter(key, Tile(dtype), "s", ("int", n))
        by = next((d for d in _DIVISORS if n % d == 0), 1)
        if new and by > 1:
            self.divisible[len(self.arguments) - 1] = by
        return value

    def number(self, value: Any, dtype: DType) -> Value:
        """A number of an expression as a scalar: a parameter where it follows from a size, else a constant."""
        key = number_slot(value, dtype) if dtype.kind != "c" else None
        if key is None:
            return self.constant(value, dtype)
        if dtype.kind != "f":
            return self._parameter((key, dtype), Tile(dtype), "n", ("int", int(value)))
        return self._parameter((key, dtype), Tile(dtype), "n", ("float", float(value)))

    def argument(self, word: int, dtype: DType) -> Value:
        """One of the program's numbers; `word` counts the words of all numbers."""
        kind = "float" if dtype.kind == "f" else "int"
        wide = {"float": dtype if dtype.itemsize >= 4 else FLOAT32, "int": dtype}[kind]
        value = self._parameter(("arg", word), Tile(wide), "a", ("arg", word))
        return value if wide is dtype else self.b.convert(value, dtype)

    def constant(self, value: Any, dtype: DType) -> Value:
        """A number in the text of the kernel, as a scalar."""
        if dtype.kind == "c":
            part = part_of(dtype)
            parts = [self.constant(float(p), part) for p in (complex(value).real, complex(value).imag)]
            return self._at_begin(("complex", *map(id, parts)), lambda: self.b.pointwise("complex", *parts))
        number: Any = bool(value) if dtype.kind == "b" else float(value) if dtype.kind == "f" else int(value)
        return self._at_begin(("constant", repr(number), dtype), lambda: self._constant(number, dtype))

    def _constant(self, number: Any, dtype: DType) -> Value:
        if dtype.kind == "f" and dtype.itemsize < 4:
            return self.b.convert(self.b.constant(number, FLOAT32), dtype)
        return self.b.constant(number, dtype)

    def _at_begin(self, key: Any, make: Any) -> Value:
        """A value made once, before everything else."""
        found = self._known.get(key)
        if found is None:
            outer, self.b.regions = self.b.regions, self.b.regions[:1]
            ops = self.b.regions[0].ops
            count = len(ops)
            found = self._known[key] = make()
            made = ops[count:]
            del ops[count:]
            ops[self._first : self._first] = made
            self._first += len(made)
            self.b.regions = outer
        return found

    def finish(self, programs: int, warps: int) -> GridKernel:
        """The kernel, ended."""
        kernel = self.b.finish(divisible=self.divisible, warps=warps)
        return GridKernel(kernel, programs, self.arguments, list(self.read), list(self.written))
