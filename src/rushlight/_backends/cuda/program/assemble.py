"""From a graph to its program: the graph is scheduled, groups become block kernels, library calls become steps.

>>> from rushlight._backends.cuda.program.assemble import compile_graph
>>> from rushlight._graph.core import trace
>>> from rushlight._types.dtype import FLOAT32
>>> graph = trace(lambda x: x * 2.0, [((1000,), FLOAT32)])
>>> [(step.name, step.grid) for step in compile_graph(graph, [(1,)]).steps]
[('pointwise', (1, 1, 1))]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rushlight._backends.cuda.conv.conv import convolution_by_any
from rushlight._backends.cuda.epilogues import ProductEpilogue
from rushlight._backends.cuda.externs import EXTERNS, ExternCall, lower
from rushlight._backends.cuda.gemm.dot import product_with_epilogue
from rushlight._backends.cuda.gemm.grouped import grouped_steps
from rushlight._backends.cuda.program.alone import sums_alone
from rushlight._backends.cuda.program.joining import joined
from rushlight._backends.cuda.program.laid import convolutions_laid
from rushlight._backends.cuda.program.steps import Launch, Memory, Operand, Step, Word
from rushlight._backends.cuda.target import CUDA_TARGET
from rushlight._codegen.grid.lowering import GridLowering
from rushlight._codegen.grid.scatter import SortedRuns
from rushlight._codegen.grid.signature import GridKernel
from rushlight._schedule.expressions import Buffer
from rushlight._schedule.inline import Location
from rushlight._schedule.rewrites.interleaved import apart
from rushlight._schedule.rewrites.prepare import prepared
from rushlight._schedule.schedule import LibraryCall, Schedule
from rushlight._schedule.scheduling import schedule_graph
from rushlight._types.dtype import INT64

if TYPE_CHECKING:
    from rushlight._graph.core import Graph, Value

__all__ = ["Program", "compile_graph"]


class Program:
    """Steps over memory.  `inputs` are the memories of the tensor inputs, `results` those of the fresh outputs, and
    `numbers` counts the words of numbers that follow the addresses in a call.
    """

    __slots__ = ("graph", "inputs", "notes", "numbers", "results", "steps")

    def __init__(
        self,
        graph: Graph,
        steps: Sequence[Step],
        inputs: Sequence[Memory],
        results: Sequence[Memory],
        numbers: int,
        notes: Sequence[str],
    ) -> None:
        self.graph, self.steps, self.inputs, self.results = graph, list(steps), list(inputs), list(results)
        self.numbers, self.notes = numbers, list(notes)


def compile_graph(
    graph: Graph,
    layouts: Sequence[Sequence[int] | None],
    out_strides: Sequence[Sequence[int] | None] | None = None,
    *,
    aliases: Mapping[int, int] | None = None,
    overlaps: Mapping[int, Sequence[int]] | None = None,
) -> Program:
    """The program that computes `graph`; arguments as those of `Backend.compile`.  NotImplementedError names a primitive
    without a lowering.
    """
    graph = convolutions_laid(sums_alone(graph, layouts, out_strides))
    graph = apart(prepared(graph, CUDA_TARGET), layouts, CUDA_TARGET.policy)
    schedule = schedule_graph(graph, layouts, out_strides, dict(aliases or {}), dict(overlaps or {}), CUDA_TARGET)
    program = Assembler(schedule).program()
    if not overlaps:  # else memories may be parts of each other
        program.steps, notes = joined(program.steps)
        program.notes += notes
    return program


class Assembler:
    """Turns the groups of a schedule into steps."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.memories: dict[Buffer, Memory] = {}
        first, words = len(schedule.inputs), list[int]()
        for dtype in schedule.args:
            words.append(first)
            first += 2 if dtype.kind == "c" else 1  # a complex number takes two words
        self.numbers = first - len(schedule.inputs)
        self.lowering = GridLowering(schedule.target, schedule.sizes, words, sorts="sort" in EXTERNS)
        self.steps: list[Step] = []

    def program(self) -> Program:
        """The program of all groups."""
        for group in self.schedule.groups:
            if isinstance(group, LibraryCall):
                self.steps += self.library_call(group)
            else:
                for made in self.lowering.kernels(group):
                    self.steps += self.sort(made) if isinstance(made, SortedRuns) else [self.launch(made)]
        inputs = [self.memory(b) for b in self.schedule.inputs]
        results = [self.memory(b) for b in self.schedule.outputs]
        return Program(self.schedule.graph, self.steps, inputs, results, self.numbers, self.schedule.notes)

    def memory(self, buffer: Buffer) -> Memory:
        """Where a buffer lies."""
        found = self.memories.get(buffer)
        if found is None:
            found = self.memories[buffer] = Memory(self.schedule.sizes[buffer] * buffer.dtype.itemsize, buffer.name)
        return found

    def launch(self, made: GridKernel) -> Launch:
        """The launch of a generated kernel."""
        arguments = [self.argument(*argument) for argument in made.arguments]
        reads, writes = [self.memory(b) for b in made.reads], [self.memory(b) for b in made.writes]
        return Launch(made.kernel, (made.programs,), arguments, reads, writes)

    def argument(self, kind: str, value: Any) -> Any:
        """An argument of a launch, from one of a kernel."""
        return self.memory(value) if kind == "buffer" else Word(value) if kind == "arg" else value

    def sort(self, runs: SortedRuns) -> list[Step]:
        """The steps of a sort between two kernels."""
        keys, *results = (self.memory(b) for b in (runs.keys, runs.values, runs.order))
        operands = [Operand(m, INT64, (runs.size,), (1,)) for m in (keys, *results)]
        params = {"dim": 0, "descending": False, "stable": True}
        return lower(ExternCall("sort", operands[:1], operands[1:], params))

    def library_call(self, call: LibraryCall) -> list[Step]:
        """The steps of a library call."""
        node = call.node
        inputs = [self.operand(v, at) for v, at in zip(node.inputs, call.inputs, strict=True)]
        outputs = [self.operand(v, at) for v, at in zip(node.outputs, call.outputs, strict=True)]
        made = ExternCall(node.prim.name, inputs, outputs, {**node.params, **call.params})
        if call.epilogue is None:
            return lower(made)
        epilogue: ProductEpilogue = call.epilogue
        bound = epilogue.bound(self.schedule.sizes, self.lowering.words, self.argument)
        if made.name == "conv_windows":
            return convolution_by_any(made, bound)
        if made.name == "grouped_dot":
            return grouped_steps(made, epilogue=bound)
        return product_with_epilogue(made, bound)

    def operand(self, value: Value, at: Location) -> Operand:
        """A value in memory as an operand of a library call."""
        return Operand(self.memory(at.buffer), value.dtype, value.shape, at.strides, at.start)
