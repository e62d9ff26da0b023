"""Programs: the steps that compute a graph, over numbered buffers.

A program knows nothing of memory or of how kernels run; `compile` makes something to call of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rushlight._backends.cpu.epilogue.rectangle import Epilogue, Prologue
from rushlight._base.digest import digest
from rushlight._base.lazy import LazyModule
from rushlight._codegen.loops import Kernel
from rushlight._codegen.traffic import traffic
from rushlight._graph.listing import graph_lines
from rushlight._types.dtype import DType

if TYPE_CHECKING:
    from rushlight._codegen import llvm_function
    from rushlight._graph.core import Graph
    from rushlight._schedule.policy import Target
else:
    llvm_function = LazyModule("rushlight._codegen.llvm_function")  # kernels that are found on disk need no text

__all__ = [
    "MAX_FRESH",
    "ExternStep",
    "KernelStep",
    "Operand",
    "Program",
    "ReadyStep",
    "RectangleStep",
    "Step",
    "symbol_of",
]

MAX_FRESH = 5  # outputs that the stub allocates in one call


class Operand:
    """An operand or result of a library call: the number of its buffer (-1: none yet), dtype, shape and strides."""

    __slots__ = ("dtype", "number", "shape", "strides")

    def __init__(self, number: int, dtype: DType, shape: Sequence[int], strides: Sequence[int]) -> None:
        self.number, self.dtype, self.shape, self.strides = number, dtype, tuple(shape), tuple(strides)

    def __repr__(self) -> str:
        return f"b{self.number}: {self.dtype.name}{list(self.shape)} strides {list(self.strides)}"


class KernelStep:
    """Runs a generated kernel.

    `words` are the numbers of the buffers and arguments that it takes. `sizes` are the bytes of the outputs that it
    allocates. `big`: it may release the interpreter lock.
    """

    __slots__ = ("_key", "big", "kernel", "sizes", "target", "words")

    def __init__(self, kernel: Kernel, sizes: list[int], words: list[int], big: bool, target: Target) -> None:
        self.kernel, self.sizes, self.words, self.big, self.target = kernel, sizes, words, big, target
        self._key: str | None = None

    @property
    def key(self) -> str:
        """The key of the compiled kernel.  Equal keys are equal machine code."""
        if self._key is None:
            t = self.target
            text = self.kernel.text()
            dots = " byte_dots" if t.byte_dots and "dp4a" in text else ""
            self._key = f"{t.vector_bytes} {int(t.fma)}{dots}\n{text}"
        return self._key

    @property
    def symbol(self) -> str:
        """The name of the kernel's function."""
        return symbol_of(self.key)

    def llvm(self) -> str:
        """The LLVM module of the kernel, whose function is named `symbol`."""
        t = self.target
        bits = 8 * t.vector_bytes
        return llvm_function.print_kernel(self.kernel, self.symbol, fma=t.fma, bits=bits, byte_dots=t.byte_dots)

    def ints(self) -> list[int]:
        """The constants of a call: pieces, flags, number and sizes of the outputs to allocate, and the slots from word
        8 on.
        """
        head = [self.kernel.pieces, int(self.big), len(self.sizes), *self.sizes]
        return head + [0] * (8 - len(head)) + self.kernel.slot_values()


def symbol_of(key: str) -> str:
    """The name of the function of a kernel with this key."""
    return "k" + digest(key.encode()).hex()[:24]


class RectangleStep:
    """An epilogue or prologue as the steps of a library call: `part` is what the schedule fused, `step` its kernel
    over a rectangle.

    `arrays` holds, for each array that the kernel touches beside the rectangle, a word of the library call. Words are
    the outputs of the call, then its operands, then `words`.
    """

    __slots__ = ("arrays", "part", "step", "words")

    def __init__(self, part: Epilogue | Prologue, step: KernelStep, arrays: list[int], words: list[int]) -> None:
        self.part, self.step, self.arrays, self.words = part, step, arrays, words


class ExternStep:
    """Calls the library routine `name`, which allocates its outputs.

    `words` are the numbers of the buffers and arguments that epilogue and prologues touch beside the operands.
    `prologues` holds one entry for each operand, None for operands that lie in memory.
    """

    __slots__ = ("epilogue", "inputs", "name", "outputs", "params", "prologues", "sizes", "words")

    def __init__(
        self,
        name: str,
        inputs: list[Operand],
        outputs: list[Operand],
        sizes: list[int],
        params: dict[str, Any],
        epilogue: RectangleStep | None = None,
        prologues: Sequence[RectangleStep | None] = (),
        words: Sequence[int] = (),
    ) -> None:
        self.name, self.inputs, self.outputs, self.sizes, self.params = name, inputs, outputs, sizes, params
        self.epilogue, self.prologues, self.words = epilogue, tuple(prologues), words

    @property
    def parts(self) -> list[RectangleStep]:
        """The epilogue and the prologues that there are."""
        return [part for part in (self.epilogue, *self.prologues) if part is not None]

    def pinned(self, side: int) -> ExternStep:
        """The same, with an operand that may stay packed: the first (0) or the second."""
        params = {**self.params, "pinned": side}
        return ExternStep(
            self.name, self.inputs, self.outputs, self.sizes, params, self.epilogue, self.prologues, self.words
        )


class ReadyStep:
    """Runs a kernel that is compiled: `call` with the constants `numbers`.  `text` is the key of a generated kernel,
    else empty.
    """

    __slots__ = ("call", "numbers", "sizes", "text", "words")

    def __init__(self, call: Any, numbers: Sequence[int], words: list[int], sizes: Sequence[int], text: str) -> None:
        self.call, self.numbers, self.words, self.sizes, self.text = call, numbers, words, sizes, text


Step = KernelStep | ExternStep | ReadyStep


class Program:
    """Steps over numbered buffers: tensor inputs, then scalar inputs, then the outputs of the steps in order.

    `results` are the numbers of the new outputs, -1 for an output without elements. `graph` is None for a program that
    was cast from a template.
    """

    __slots__ = ("graph", "n_args", "n_inputs", "notes", "results", "steps")

    def __init__(
        self, graph: Graph | None, steps: list[Step], results: list[int], n_inputs: int, n_args: int, notes: list[str]
    ) -> None:
        self.graph, self.steps, self.results = graph, steps, results
        self.n_inputs, self.n_args, self.notes = n_inputs, n_args, notes

    def explain(self) -> str:
        """The graph, what was fused, and the loop nests, as text."""
        parts = (
            []
            if self.graph is None
            else [
                "graph",
                *(f"  {line}" for line in graph_lines(self.graph)),
                "fusion",
                *(f"  {n}" for n in self.notes),
            ]
        )
        for k, step in enumerate(self.steps):
            if isinstance(step, ExternStep):
                parts.append(f"step {k}: call {step.name} {step.params or ''}")
                parts += [f"  in  {o}" for o in step.inputs] + [f"  out {o}" for o in step.outputs]
                if step.epilogue is not None:
                    parts += [
                        "  each rectangle of sums goes through",
                        *(f"  {line}" for line in step.epilogue.step.kernel.text().splitlines()),
                    ]
                for n, before in enumerate(step.prologues):
                    if before is not None:
                        parts += [
                            f"  operand {n} is made while it is packed, by",
                            *(f"  {line}" for line in before.step.kernel.text().splitlines()),
                        ]
                continue
            if isinstance(step, ReadyStep):
                parts += [
                    f"step {k}: a kernel made for other sizes",
                    *(f"  {line}" for line in step.text.splitlines()),
                    f"  constants {list(step.numbers)}",
                ]
                continue
            moved, flops = traffic(step.kernel)
            parts.append(
                f"step {k}: {step.symbol}  {step.kernel.pieces} pieces, about {moved} bytes, {flops} operations"
            )
            parts += [f"  {line}" for line in step.kernel.text().splitlines()]
            parts.append("  slots " + " ".join(f"s{i}={n}" for i, n in enumerate(step.kernel.slot_values())))
        return "\n".join(parts)
