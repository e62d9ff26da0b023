"""The steps of a program: launches of block kernels, and calls of host functions that give work to a stream.

Steps name memory by `Memory` objects; a program says later where each lies.  Nothing here knows the driver.

>>> from rushlight._backends.cuda.program.steps import Memory, Operand
>>> from rushlight._types.dtype import FLOAT32
>>> Operand(Memory(64, "x"), FLOAT32, (4, 4), (4, 1))
x: torch.float32[4, 4] strides [4, 1]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from rushlight._codegen.blocks import Kernel
from rushlight._types.dtype import DType

__all__ = ["Call", "Constant", "Launch", "LibraryFunction", "Memory", "Operand", "Step", "Word"]


class Memory:
    """A stretch of `nbytes` bytes of the device's memory, aligned to 256 bytes unless it is an input's."""

    __slots__ = ("name", "nbytes")

    def __init__(self, nbytes: int, name: str = "") -> None:
        self.nbytes, self.name = nbytes, name

    def __repr__(self) -> str:
        return f"Memory({self.nbytes}, {self.name!r})"


class Constant(Memory):
    """Memory that holds `data` before the first step, and is never written: tables of kernels."""

    __slots__ = ("data",)

    def __init__(self, data: bytes, name: str = "") -> None:
        super().__init__(len(data), name)
        self.data = data


class Operand:
    """A strided array in some memory: its first element lies `offset` elements behind the memory's begin."""

    __slots__ = ("dtype", "memory", "offset", "shape", "strides")

    def __init__(
        self, memory: Memory, dtype: DType, shape: Sequence[int], strides: Sequence[int], offset: int = 0
    ) -> None:
        self.memory, self.dtype, self.shape, self.strides = memory, dtype, tuple(shape), tuple(strides)
        self.offset = offset

    def __repr__(self) -> str:
        at = f" from {self.offset}" if self.offset else ""
        return f"{self.memory.name}: {self.dtype!r}{list(self.shape)} strides {list(self.strides)}{at}"


class Word(NamedTuple):
    """One of the numbers that a program is called with, as an argument: its place among all words of the call."""

    place: int


Argument = Any  # an `Operand` or a `Memory` (its address), a `Word`, an int, or a float


_MOST_PROGRAMS = (2**31 - 1, 2**16 - 1, 2**16 - 1)  # along each axis, on every device


class Launch:
    """One launch of a block kernel: an argument for each of its parameters, in order.

    `reads` and `writes` are the memories that it touches, for whoever plans memory; by default every memory among the
    arguments counts as both.
    """

    __slots__ = ("arguments", "grid", "kernel", "reads", "writes")

    def __init__(
        self,
        kernel: Kernel,
        grid: Sequence[int],
        arguments: Sequence[Argument],
        reads: Sequence[Memory] | None = None,
        writes: Sequence[Memory] | None = None,
    ) -> None:
        if len(arguments) != len(kernel.params):
            raise ValueError(f"kernel {kernel.name} takes {len(kernel.params)} arguments, not {len(arguments)}")
        x, y, z = (*grid, 1, 1)[:3]
        if any(n > most for n, most in zip((x, y, z), _MOST_PROGRAMS, strict=True)):
            raise ValueError(f"kernel {kernel.name} has a grid of {(x, y, z)}; the most is {_MOST_PROGRAMS}")
        self.kernel, self.grid, self.arguments = kernel, (x, y, z), tuple(arguments)
        touched = touched_by(arguments)
        self.reads = touched if reads is None else list(reads)
        self.writes = touched if writes is None else list(writes)

    @property
    def name(self) -> str:
        return self.kernel.name


class LibraryFunction(NamedTuple):
    """A C function of `words` (pointers and numbers of 8 bytes, at most 16) that returns a status, so that native code
    calls it: `places` are the words that are argument k's address, `stream` is the word that is the stream.  One that does
    not `work` gives nothing to the stream.  Where an address is no multiple of `alignment`, Python makes the call.
    """

    name: str
    address: int
    words: Sequence[int]
    places: Sequence[Sequence[int]]
    stream: int
    works: bool = True
    alignment: int = 1


class Call:
    """A call of `function(stream, *arguments)`, with addresses in the places of memory, that gives work to a stream.

    A function that is one call of a library tells it by `function.native`, a `LibraryFunction`, or None.
    """

    __slots__ = ("arguments", "function", "name", "reads", "writes")

    def __init__(self, name: str, function: Callable[..., None], arguments: Sequence[Argument]) -> None:
        self.name, self.function, self.arguments = name, function, tuple(arguments)
        self.reads = self.writes = touched_by(arguments)


Step = Launch | Call


def touched_by(arguments: Sequence[Argument]) -> list[Memory]:
    """The memories among arguments, each once."""
    found = [a.memory if isinstance(a, Operand) else a for a in arguments if isinstance(a, Operand | Memory)]
    return list(dict.fromkeys(found))
